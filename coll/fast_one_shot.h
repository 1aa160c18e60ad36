/* Small all-reduces over shared memory without interpreting a plan.
 *
 * The equal of the plan of "one_shot" (algorithms/one_shot_all_reduce.c): the same messages in the
 * same order, the same order of combination, so the same bits; some ranks may take this way and
 * others the executor's in one and the same operation. tests/coll/test_fast_one_shot.c holds the
 * two together. TUTTI_FAST=0 switches it off. */
#ifndef TTI_COLL_FAST_ONE_SHOT_H
#define TTI_COLL_FAST_ONE_SHOT_H

#include "coll/comm.h"
#include "coll/executor.h"

enum {
    TTI_FAST_BYTES = 2048, /* of a block: well below what transports pass by reference */
    TTI_FAST_RANKS = 16,   /* beyond, other algorithms are chosen */
};

/* Does the fast way serve this operation, and are all links up? Cheap. */
bool tti_fast_one_shot_serves(struct tutti_comm *comm, const struct tti_operation *o,
                              const struct tti_selection *selection);
enum tutti_result tti_fast_one_shot(struct tutti_comm *comm, const struct tti_operation *o,
                                    uint64_t tag, const struct tti_label *label);

#endif
