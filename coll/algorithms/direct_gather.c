/* Gather where everybody sends its block straight to the root.
 *
 * Least bytes; the root takes n - 1 messages. */
#include "coll/algorithms/parts.h"

static enum tutti_result direct_gather_plan(const struct tti_plan_spec *spec,
                                            struct tti_plan **plan)
{
    int n = spec->nranks, rank = spec->rank, lanes = spec->lanes;
    struct tti_builder b;
    tti_plan_begin(&b, spec, lanes, (uint32_t)lanes, 0, 0);
    for (int lane = 0; lane < lanes; lane++) {
        uint32_t chunk = (uint32_t)lane;
        if (rank != spec->root) {
            tti_send(&b, lane, chunk, 1, tti_in(chunk), spec->root);
            continue;
        }
        tti_copy(&b, lane, chunk, 1, tti_in(chunk), tti_out((uint32_t)(rank * lanes + lane)), 0,
                 -1);
        for (int k = 1; k < n; k++) {
            int peer = (rank + k) % n;
            tti_recv(&b, lane, chunk, 1, peer, tti_out((uint32_t)(peer * lanes + lane)), 0, -1);
        }
    }
    return tti_plan_finish(&b, plan);
}

const struct tti_algorithm tti_direct_gather = {
    .name = "direct",
    .collective = TUTTI_GATHER,
    .plan = direct_gather_plan,
    .cost = tti_direct_cost,
    .summary = "each block straight to the root; least bytes, n-1 messages at the root",
};
