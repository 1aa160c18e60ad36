/* Reduce-scatter where everybody sends each rank its block, and reduces its own in rank order.
 *
 * Least bytes in one latency: best wherever every pair of ranks has a path of its own. */
#include "coll/algorithms/parts.h"

static enum tutti_result direct_reduce_scatter_plan(const struct tti_plan_spec *spec,
                                                    struct tti_plan **plan)
{
    int n = spec->nranks, rank = spec->rank, lanes = spec->lanes;
    struct tti_group all = tti_group_of_all(spec);
    struct tti_builder b;
    tti_plan_begin(&b, spec, lanes, (uint32_t)lanes, 0, n > 2 ? (uint32_t)lanes : 0);
    for (int lane = 0; lane < lanes; lane++) {
        uint32_t chunk = (uint32_t)lane;
        for (int k = 1; k < n; k++) {
            int peer = (rank + k) % n;
            tti_send(&b, lane, chunk, 1, tti_in((uint32_t)(peer * lanes + lane)), peer);
        }
        tti_ordered_reduce(&b, lane, chunk, 1, &all, tti_in((uint32_t)(rank * lanes + lane)),
                           tti_slot(chunk), tti_out(chunk), TTI_FINAL, -1);
    }
    return tti_plan_finish(&b, plan);
}

const struct tti_algorithm tti_direct_reduce_scatter = {
    .name = "direct",
    .collective = TUTTI_REDUCE_SCATTER,
    .plan = direct_reduce_scatter_plan,
    .cost = tti_direct_cost,
    .ordered = true,
    .summary = "each block straight to its rank, reduced in rank order; least bytes, 1 step",
};
