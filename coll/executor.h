/* The CPU executor: runs one plan, or one batch of sends and receives, over host memory.
 *
 * Every lane is a small state machine; one thread turns them all until each is through its steps
 * and all sends are consumed. Sends have a home in memory until the receiver took them (the plan's
 * hazards see to it), so a lane never blocks on a full channel: deadlock-freedom of the plan is
 * deadlock-freedom of the run. Big operations run the plan in several passes over windows of every
 * block, which bounds scratch memory; lanes enter the next pass on their own.
 *
 * When nothing moves the thread spins, then yields, then sleeps until a descriptor wakes it. */
#ifndef TTI_COLL_EXECUTOR_H
#define TTI_COLL_EXECUTOR_H

#include "coll/operation.h"
#include "coll/plan_cache.h"
#include "device/reduce.h"

struct tutti_comm;
struct tti_executor;

enum tutti_result tti_executor_create(struct tutti_comm *comm, struct tti_executor **executor);
void tti_executor_destroy(struct tti_executor *executor);
/* Add what it holds. */
void tti_executor_memory(const struct tti_executor *executor, struct tutti_memory *memory);

/* Run a collective. Links to the plan's peers are up. `label` names the operation in errors. */
enum tutti_result tti_executor_run(struct tti_executor *executor, const struct tti_operation *op,
                                   const struct tti_plan_entry *entry, uint64_t tag,
                                   uint64_t deadline, const struct tti_label *label);

/* Run sends and receives together: between two ranks in the order of the list, otherwise all at
 * once. Messages to the own rank are matched in order. */
enum tutti_result tti_executor_exchange(struct tti_executor *executor,
                                        const struct tti_operation *ops, size_t count,
                                        uint64_t deadline, const struct tti_label *label);
/* The messages to the own rank among them: the k-th send meets the k-th receive. USAGE: one has no
 * partner of its count and type. `move` NULL: they are looked at only. */
typedef enum tutti_result tti_exchange_move(void *context, void *to, const void *from,
                                            size_t bytes);
enum tutti_result tti_exchange_self(const struct tutti_comm *comm, const struct tti_operation *ops,
                                    size_t count, tti_exchange_move *move, void *context);
/* A move by this processor. */
tti_exchange_move tti_exchange_copy;

#endif
