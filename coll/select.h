/* Which algorithm, how many lanes and slices, and who runs it: the cheapest by a cost model, or the
 * one asked for. An algorithm that is asked for by name runs by its hand-written equal where it has
 * one (TUTTI_FAST=0 forbids those).
 * The answer depends only on what all ranks know alike. */
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

/* Check the "ring" or "all_reduce=ring,..." text of the settings once, when they are read. */
enum tutti_result tti_select_check(const char *algorithms);

#endif
