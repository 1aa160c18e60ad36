/* Reduce-scatter on a ring: the first half of the ring all-reduce, ending at the own block.
 *
 * Rank r starts block r - 1 on its way; in step k it adds its part to block r - k and passes it on,
 * until block r arrives with all but its own part. n - 1 steps, least bytes: best for large blocks.
 *
 * Source: as ring_all_reduce.c. */
#include "coll/algorithms/parts.h"

static enum tutti_result ring_reduce_scatter_plan(const struct tti_plan_spec *spec,
                                                  struct tti_plan **plan)
{
    int n = spec->nranks, rank = spec->rank, lanes = spec->lanes;
    int next = (rank + 1) % n, previous = tti_mod(rank - 1, n);
    struct tti_builder b;
    tti_plan_begin(&b, spec, lanes, (uint32_t)lanes, 0, (uint32_t)(2 * lanes));
    for (int lane = 0; lane < lanes; lane++) {
        uint32_t chunk = (uint32_t)lane;
        struct tti_ref first = tti_in((uint32_t)(previous * lanes + lane));
        if (n == 1) {
            tti_copy(&b, lane, chunk, 1, first, tti_out(chunk), TTI_FINAL, -1);
            continue;
        }
        tti_send(&b, lane, chunk, 1, first, next);
        for (int k = 2; k <= n; k++) {
            struct tti_ref own = tti_in((uint32_t)(tti_mod(rank - k, n) * lanes + lane));
            bool complete = k == n;
            tti_recv_reduce(&b, lane, chunk, 1, previous, own,
                            complete ? tti_out(chunk) : tti_slot((uint32_t)(2 * lane + (k & 1))),
                            (k > 2 ? TTI_MSG_ACC : 0) | (complete ? TTI_FINAL : TTI_FORWARD),
                            complete ? -1 : next);
        }
    }
    return tti_plan_finish(&b, plan);
}

const struct tti_algorithm tti_ring_reduce_scatter = {
    .name = "ring",
    .collective = TUTTI_REDUCE_SCATTER,
    .plan = ring_reduce_scatter_plan,
    .cost = tti_ring_cost,
    .translates = true,
    .summary = "partial sums travel around a ring; least bytes, n-1 steps",
};
