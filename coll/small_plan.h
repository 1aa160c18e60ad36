/* Small operations: a plan, its pass over a block worked out once for one count and type, run step
 * by step.
 *
 * The executor serves many lanes, passes and cut-through, and looks everything up as it goes. None
 * of that matters for some KiB, where its bookkeeping costs more than what it brings. Here the plan
 * of one lane becomes a list of steps with their addresses, sizes and links (a program), kept with
 * the communicator. The messages are the executor's, so some ranks may run the program and others
 * the executor in one and the same operation; tests/coll/test_small_plan.c holds the two together.
 * TUTTI_FAST=0 switches it off. */
#ifndef TTI_COLL_SMALL_PLAN_H
#define TTI_COLL_SMALL_PLAN_H

#include "coll/operation.h"
#include "coll/plan_cache.h"
#include "coll/selection.h"

struct tutti_comm;
struct tti_small_program;

enum {
    TTI_SMALL_STEPS = 64, /* the most of a plan */
    /* The most of a message, and of one over a network, which brings it in parts that the executor
     * can pass on one by one. */
    TTI_SMALL_BYTES = 64 << 10,
    TTI_SMALL_NETWORK_BYTES = 8 << 10,
    TTI_SMALL_PROGRAMS = 16,
};

/* The programs of a communicator, by what their operations agree on. */
struct tti_small_plans {
    struct tti_small_program *all[TTI_SMALL_PROGRAMS];
    uint64_t uneven; /* the key of the last operation on uneven blocks that had none */
};

/* The program of an operation like `o`, or NULL. `refused`: whether the fused path was tried first
 * and turned out not to serve. Those have programs of their own: whether a rank has a program is
 * its own affair, whether the fused path is tried is not. */
const struct tti_small_program *tti_small_find(struct tutti_comm *comm,
                                               const struct tti_operation *o, bool refused);

/* Make one of the plan that was selected for `o`, whose links are up. *program is NULL where a plan
 * is no small one or has several lanes. */
enum tutti_result tti_small_make(struct tutti_comm *comm, const struct tti_operation *o,
                                 const struct tti_selection *selection,
                                 const struct tti_plan_entry *entry,
                                 const struct tti_small_program **program);

enum tutti_result tti_small_run(struct tutti_comm *comm, const struct tti_small_program *program,
                                const struct tti_operation *o, const struct tti_label *label);

/* Run a blocking call on host memory whose arguments nobody has looked at, if it is like one that a
 * program was made for, wherever its buffers lie now, or one before on the fused path
 * (tti_run_again), and nothing is before it. False: something is not as it was then, or might not
 * be; nothing was done. */
bool tti_call_known(struct tutti_comm *comm, const struct tti_operation *o,
                    enum tutti_result *result);
void tti_small_plans_destroy(struct tti_small_plans *plans);

#endif
