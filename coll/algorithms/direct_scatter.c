/* Scatter where the root sends every rank its block.
 *
 * Least bytes; the root sends n - 1 messages. */
#include "coll/algorithms/parts.h"

static enum tutti_result direct_scatter_plan(const struct tti_plan_spec *spec,
                                             struct tti_plan **plan)
{
    int n = spec->nranks, rank = spec->rank, lanes = spec->lanes;
    struct tti_builder b;
    tti_plan_begin(&b, spec, lanes, (uint32_t)lanes, 0, 0);
    for (int lane = 0; lane < lanes; lane++) {
        uint32_t chunk = (uint32_t)lane;
        if (rank != spec->root) {
            tti_recv(&b, lane, chunk, 1, spec->root, tti_out(chunk), 0, -1);
            continue;
        }
        for (int k = 1; k < n; k++) {
            int peer = (rank + k) % n;
            tti_send(&b, lane, chunk, 1, tti_in((uint32_t)(peer * lanes + lane)), peer);
        }
        tti_copy(&b, lane, chunk, 1, tti_in((uint32_t)(rank * lanes + lane)), tti_out(chunk), 0,
                 -1);
    }
    return tti_plan_finish(&b, plan);
}

const struct tti_algorithm tti_direct_scatter = {
    .name = "direct",
    .collective = TUTTI_SCATTER,
    .plan = direct_scatter_plan,
    .cost = tti_direct_cost,
    .summary = "each block straight from the root; least bytes, n-1 messages at the root",
};
