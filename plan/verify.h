/* The verifier: runs the plans of all ranks symbolically and says whether the collective is right.
 *
 * Checked: every OUT chunk ends with exactly the right contributions, each once; nothing is read
 * that was not written; no partial result in OUT; TTI_FINAL exactly on complete results; message
 * types agree; refs in range and consistent with `chunk`; what the steps of an all-gather or a
 * reduce-scatter say of whose blocks they are about (so that these may have a count each); every
 * message is received and every receive gets one of the same chunks; no lane writes what another
 * touches; no deadlock with channels that hold one message (a send blocks while the channel is
 * full) and none with channels that hold nothing (a send's memory stays in use until the receiver
 * takes it). Both out of place and in place. */
#ifndef TTI_PLAN_VERIFY_H
#define TTI_PLAN_VERIFY_H

#include "plan/plan.h"

struct tti_verify_stats {
    uint64_t plans;    /* plans (one per rank) checked */
    uint64_t steps;    /* steps executed symbolically, over both placements and channel models */
    uint64_t messages; /* messages delivered */
};

/* Verify the given plans (plans[r] of rank r, nranks of them, all of one collective and shape).
 * TUTTI_OK, or TUTTI_ERR_INTERNAL with a text that names rank, lane, step, chunk and what is
 * wrong. `stats` may be NULL; counts are added to it. */
enum tutti_result tti_verify_plans(struct tti_plan *const *plans, int nranks,
                                   struct tti_verify_stats *stats);

/* The same, and every combined chunk of OUT must be the canonical expression: ((c_0 op c_1) op c_2)
 * ... op c_{n-1}, each sum the left operand and each contribution the right one, in accumulators
 * all the way (which is checked of all plans) and finished once. Plans that pass give the same bits
 * as each other, for any operator that gives the same bits for the same operands. This is no test
 * by hashes: a value that began otherwise is known as such. */
enum tutti_result tti_verify_ordered(struct tti_plan *const *plans, int nranks,
                                     struct tti_verify_stats *stats);

/* Build the plans of all ranks with `algorithm` for `spec` (rank ignored), verify them, and check
 * the algorithm's `ordered` and `translates` claims when it makes them. */
enum tutti_result tti_verify_algorithm(const struct tti_algorithm *algorithm,
                                       const struct tti_plan_spec *spec,
                                       struct tti_verify_stats *stats);

#endif
