/* Which algorithm, how many lanes and slices, and who runs it: the cheapest by a cost model
 * and by what was measured on the machine, or the one asked for. An algorithm that is asked for by
 * name runs by its hand-written equal where it has one (TUTTI_FAST=0 forbids those). The answer
 * depends only on what all ranks know alike. */
#ifndef TTI_COLL_SELECT_H
#define TTI_COLL_SELECT_H

#include "coll/comm.h"
#include "coll/operation.h"

/* `root` for rooted collectives, else 0. Errors: ARGUMENT when the settings name an algorithm that
 * does not exist (those that do are listed) or is not applicable here. */
enum tutti_result tti_select(struct tutti_comm *comm, enum tutti_collective collective,
                             size_t count, enum tutti_type type, int root,
                             struct tti_selection *selection);

/* The same without the fused path: for an operation whose memory turned out not to be mapped by all
 * (which all ranks know alike by then). */
enum tutti_result tti_select_plan(struct tutti_comm *comm, enum tutti_collective collective,
                                  size_t count, enum tutti_type type, int root,
                                  struct tti_selection *selection);

/* All ways of doing it, the best first: what tti_select takes, or tti_select_plan where the fused
 * path is not allowed. For root 0. */
enum tutti_result tti_select_ways(struct tutti_comm *comm, enum tutti_collective collective,
                                  size_t count, enum tutti_type type, bool fused,
                                  struct tti_ways *ways);
/* What lies between the ranks; `mapped`: the buffers are mapped by all. */
enum tti_medium tti_select_medium(const struct tutti_comm *comm, bool mapped);
/* The slices that an operation of this size is cut into. */
int tti_select_slices(const struct tti_algorithm *algorithm, double bytes);
/* From now on `way` is selected, whatever is asked for; NULL: the best again. Collective in effect.
 * For tutti-tune. */
void tti_select_try(struct tutti_comm *comm, const struct tti_selection *way);

/* The algorithm that the settings (TUTTI_ALGO) name for a collective: "ring" names it for every
 * collective that has one of that name, which can serve these ranks on their hosts;
 * "all_reduce=ring" for one, come what may. False if none is named. */
bool tti_select_forced(const struct tutti_comm *comm, enum tutti_collective collective, char *name,
                       size_t bytes);
/* Check the "ring" or "all_reduce=ring,..." text of the settings once, when they are read. In the
 * reproducible mode what does not combine in the order of ranks is refused too. */
enum tutti_result tti_select_check(const char *algorithms, bool reproducible);

#endif
