/* Broadcast on a binomial tree: who has the block sends it to the rank 2^k away, k falling.
 *
 * lg n steps of the whole block: best for small blocks. The largest subtree is served first. */
#include "coll/algorithms/parts.h"

static enum tutti_result tree_broadcast_plan(const struct tti_plan_spec *spec,
                                             struct tti_plan **plan)
{
    int n = spec->nranks, root = spec->root, place = tti_mod(spec->rank - root, n);
    int parent = (tti_binomial_parent(place) + root) % n;
    int size = tti_binomial_size(n, place), largest = tti_power_floor(size > 1 ? size - 1 : 1);
    bool inside = size > 1;
    int first = inside ? (place + largest + root) % n : -1;
    struct tti_builder b;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)spec->lanes, 0, 0);
    for (int lane = 0; lane < spec->lanes; lane++) {
        uint32_t chunk = (uint32_t)lane;
        int forward = inside ? TTI_FORWARD : 0;
        if (place == 0)
            tti_copy(&b, lane, chunk, 1, tti_in(chunk), tti_out(chunk), forward, first);
        else
            tti_recv(&b, lane, chunk, 1, parent, tti_out(chunk), forward, first);
        for (int k = largest / 2; inside && k >= 1; k /= 2)
            tti_send(&b, lane, chunk, 1, tti_out(chunk), (place + k + root) % n);
    }
    return tti_plan_finish(&b, plan);
}

static double tree_broadcast_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                                  double beta)
{
    return tti_log2_ceil(spec->nranks) * (alpha + bytes * beta);
}

const struct tti_algorithm tti_tree_broadcast = {
    .name = "tree",
    .collective = TUTTI_BROADCAST,
    .plan = tree_broadcast_plan,
    .cost = tree_broadcast_cost,
    .summary = "binomial tree; lg n steps of the whole block",
};
