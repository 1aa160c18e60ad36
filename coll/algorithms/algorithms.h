/* The table of algorithms. Each entry is defined in a file of its own name; to add one, write the
 * file, name it in algorithms.c, and the verifier, the simulator, the tools and the library have
 * it. Within a collective the order is that of TUTTI_ALGO's numbers in message tags: append only.
 */
#ifndef TTI_COLL_ALGORITHMS_H
#define TTI_COLL_ALGORITHMS_H

#include "plan/plan.h"

/* Algorithm number `index` (0, 1, ...) of a collective; NULL past the end. */
const struct tti_algorithm *tti_algorithm_at(enum tutti_collective collective, int index);
/* Those that hand-written code elsewhere is equal to. */
extern const struct tti_algorithm tti_one_shot_all_reduce, tti_two_shot_all_reduce,
    tti_direct_reduce_scatter, tti_direct_all_gather, tti_scatter_gather_broadcast,
    tti_direct_reduce, tti_direct_gather, tti_direct_scatter, tti_direct_all_to_all;

/* By name; NULL if there is none. */
const struct tti_algorithm *tti_algorithm_find(enum tutti_collective collective, const char *name);

#endif
