/* All-gather where everybody sends its block to everybody.
 *
 * Least bytes in one latency: best wherever every pair of ranks has a path of its own. Sends start
 * at the next rank and receives at the one before, so all ranks are busy from the start. */
#include "coll/algorithms/parts.h"

static enum tutti_result direct_all_gather_plan(const struct tti_plan_spec *spec,
                                                struct tti_plan **plan)
{
    int n = spec->nranks, rank = spec->rank, lanes = spec->lanes;
    struct tti_builder b;
    tti_plan_begin(&b, spec, lanes, (uint32_t)lanes, 0, 0);
    for (int lane = 0; lane < lanes; lane++) {
        uint32_t chunk = (uint32_t)lane;
        struct tti_ref own = tti_out((uint32_t)(rank * lanes + lane));
        tti_copy(&b, lane, chunk, 1, tti_in(chunk), own, n > 1 ? TTI_FORWARD : 0,
                 n > 1 ? (rank + 1) % n : -1);
        for (int k = 2; k < n; k++)
            tti_send(&b, lane, chunk, 1, own, (rank + k) % n);
        for (int k = 1; k < n; k++) {
            int peer = tti_mod(rank - k, n);
            tti_recv(&b, lane, chunk, 1, peer, tti_out((uint32_t)(peer * lanes + lane)), 0, -1);
        }
    }
    return tti_plan_finish(&b, plan);
}

const struct tti_algorithm tti_direct_all_gather = {
    .name = "direct",
    .collective = TUTTI_ALL_GATHER,
    .plan = direct_all_gather_plan,
    .cost = tti_direct_cost,
    .translates = true,
    .summary = "each block straight to all; least bytes, 1 step",
};
