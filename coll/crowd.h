/* Do the ranks of a host outnumber the cores that they may run on? Whoever waits must give its core
 * away then, and selection counts differently (cost_model.h).
 *
 * Not the number of cores counts but where each rank may run: two ranks that are bound to one core
 * take turns on it, however many others are idle. */
#ifndef TTI_COLL_CROWD_H
#define TTI_COLL_CROWD_H

#include "base/error.h"

#include <stdint.h>

struct tutti_comm;

enum { TTI_CPUS = 1024, TTI_CPU_WORDS = TTI_CPUS / 64 };

/* The processors that a thread may run on, as the system numbers them. */
struct tti_cpus {
    uint64_t bits[TTI_CPU_WORDS];
};

/* Of the calling thread; all, where the system does not say. */
void tti_cpus_own(struct tti_cpus *cpus);

/* How many of the ranks take turns on a core, where there are the most: of the ranks that may only
 * run on some set of processors, by processor. At most 1: each can have its own. */
double tti_crowd_turns(const struct tti_cpus *cpus, const int *ranks, int count);

/* Of `count` ranks on `hosts`: *core_of numbers the processors that they are bound to, as a layout
 * has them (plan.h); for free(3). NULL, and *cores is 0, where some rank may run on several, or the
 * ranks of each follow each other. May give MEMORY. */
enum tutti_result tti_crowd_cores(const struct tti_cpus *cpus, const int *hosts, int count,
                                  int **core_of, int *cores);

/* Set the communicator's `crowded`, `crowds`, its profile's `cores` and its peers' `core_of`, by
 * its `cpus` (which are freed) and the hosts that the ranks are on. */
enum tutti_result tti_crowd(struct tutti_comm *comm);

#endif
