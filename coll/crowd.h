/* Do the ranks of a host outnumber the cores that they may run on? Whoever waits must give its core
 * away then, and selection counts differently (cost_model.h). And which ranks are near each other?
 * Rings, chains and trees pass through those one after the other (algorithms/order.h).
 *
 * Not the number of cores counts but where each rank may run: two ranks that are bound to one core
 * take turns on it, however many others are idle. */
#ifndef TTI_COLL_CROWD_H
#define TTI_COLL_CROWD_H

#include "base/error.h"
#include "plan/plan.h"

#include <stdbool.h>
#include <stdint.h>

struct tutti_comm;

enum { TTI_CPUS = 1024, TTI_CPU_WORDS = TTI_CPUS / 64 };

/* The processors that a thread may run on, as the system numbers them. */
struct tti_cpus {
    uint64_t bits[TTI_CPU_WORDS];
    /* Of all of them (tti_near_node, tti_cpu_shared_cache); -1: not known. Of ranks that are on no
     * one node, their GPU's. */
    int32_t node, cache;
};

/* Of the calling thread; all, where the system does not say. */
void tti_cpus_own(struct tti_cpus *cpus);

/* How many of the ranks take turns on a core, where there are the most: of the ranks that may only
 * run on some set of processors, by processor. At most 1: each can have its own. */
double tti_crowd_turns(const struct tti_cpus *cpus, const int *ranks, int count);

/* Of `count` ranks on `hosts` (0 and up, fewer than ranks), with those of host h taking turns on
 * cores if take_turns[h]: near_of[level], of near_count[level] numbers, says who are near each
 * other, as a layout has it (plan.h); each for free(3). A level counts as far as it is known of all
 * ranks of a host. All NULL where that is the order of ranks anyway. May give MEMORY. */
enum tutti_result tti_crowd_near(const struct tti_cpus *cpus, const int *hosts,
                                 const bool *take_turns, int count, int *near_of[TTI_NEAR_LEVELS],
                                 int near_count[TTI_NEAR_LEVELS]);

/* Set the communicator's `crowded`, `crowds`, its profile's `cores` and its peers' `near_of`, by
 * its `cpus` (which are freed) and the hosts that the ranks are on. */
enum tutti_result tti_crowd(struct tutti_comm *comm);

#endif
