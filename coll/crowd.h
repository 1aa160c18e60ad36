/* Do the ranks of a host outnumber the cores that they may run on? Whoever waits must give its core
 * away then, and selection counts differently (cost_model.h). And which ranks are near each other?
 * Rings, chains and trees pass through those first (algorithms/order.h).
 *
 * Not the number of cores counts but where each rank may run: two ranks that are bound to one core
 * take turns on it, however many others are idle. */
#ifndef TTI_COLL_CROWD_H
#define TTI_COLL_CROWD_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct tutti_comm;

enum { TTI_CPUS = 1024, TTI_CPU_WORDS = TTI_CPUS / 64 };

/* The processors that a thread may run on, as the system numbers them. */
struct tti_cpus {
    uint64_t bits[TTI_CPU_WORDS];
    /* Of all of them (tti_near_node, tti_cpu_shared_cache), or the node of the rank's GPU and no
     * cache; -1: not known. */
    int32_t node, cache;
};

/* Of the calling thread; all, where the system does not say. */
void tti_cpus_own(struct tti_cpus *cpus);

/* How many of the ranks take turns on a core, where there are the most: of the ranks that may only
 * run on some set of processors, by processor. At most 1: each can have its own. */
double tti_crowd_turns(const struct tti_cpus *cpus, const int *ranks, int count);

/* Of `count` ranks on `hosts` (0 and up, fewer than ranks): *group_of says who are near each other,
 * as a layout has it (plan.h); for free(3). Those of a NUMA node, in it those that share an L3,
 * and, if ranks `take_turns`, those that are bound to one processor: each as far as it is known of
 * all ranks of a host. NULL, and *groups is 0, where that is the order of ranks anyway. May give
 * MEMORY. */
enum tutti_result tti_crowd_groups(const struct tti_cpus *cpus, const int *hosts, int count,
                                   bool take_turns, int **group_of, int *groups);

/* Set the communicator's `crowded`, `crowds`, its profile's `cores` and its peers' `group_of`, by
 * its `cpus` (which are freed) and the hosts that the ranks are on. */
enum tutti_result tti_crowd(struct tutti_comm *comm);

#endif
