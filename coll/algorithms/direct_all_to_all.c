/* All-to-all where every block goes straight to its rank.
 *
 * In round t ranks r and t - r (mod n) meet, so everybody has another partner in every round and
 * both of a pair meet in the same one. All sends are posted first, in that order. IN and OUT are
 * never the same memory (tti_plan_in_place). */
#include "coll/algorithms/parts.h"

static enum tutti_result direct_all_to_all_plan(const struct tti_plan_spec *spec,
                                                struct tti_plan **plan)
{
    int n = spec->nranks, rank = spec->rank, lanes = spec->lanes;
    struct tti_builder b;
    tti_plan_begin(&b, spec, lanes, (uint32_t)lanes, 0, 0);
    for (int lane = 0; lane < lanes; lane++) {
        uint32_t chunk = (uint32_t)lane;
        for (int t = 0; t < n; t++) {
            int peer = tti_mod(t - rank, n);
            uint32_t at = (uint32_t)(peer * lanes + lane);
            if (peer != rank)
                tti_send(&b, lane, chunk, 1, tti_in(at), peer);
        }
        for (int t = 0; t < n; t++) {
            int peer = tti_mod(t - rank, n);
            uint32_t at = (uint32_t)(peer * lanes + lane);
            if (peer == rank)
                tti_copy(&b, lane, chunk, 1, tti_in(at), tti_out(at), 0, -1);
            else
                tti_recv(&b, lane, chunk, 1, peer, tti_out(at), 0, -1);
        }
    }
    return tti_plan_finish(&b, plan);
}

const struct tti_algorithm tti_direct_all_to_all = {
    .name = "direct",
    .collective = TUTTI_ALL_TO_ALL,
    .plan = direct_all_to_all_plan,
    .cost = tti_direct_cost,
    .summary = "each block straight to its rank, partners in rotation; least bytes, 1 step",
};
