/* Broadcast on a binomial tree: who has the block sends it to the rank 2^k away, k falling.
 *
 * lg n steps of the whole block: best for small blocks. The largest subtree is served first. Ranks
 * are counted host by host from the root (order.h). */
#include "coll/algorithms/order.h"

static enum tutti_result tree_broadcast_plan(const struct tti_plan_spec *spec,
                                             struct tti_plan **plan)
{
    struct tti_order order;
    struct tti_builder b;
    TTI_TRY(tti_order_create(spec, &order));
    int n = order.n, place = order.place;
    int parent = tti_order_rank(&order, tti_binomial_parent(place));
    int size = tti_binomial_size(n, place), largest = tti_power_floor(size > 1 ? size - 1 : 1);
    bool inside = size > 1;
    int first = inside ? tti_order_rank(&order, place + largest) : -1;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)spec->lanes, 0, 0);
    for (int lane = 0; lane < spec->lanes; lane++) {
        uint32_t chunk = (uint32_t)lane;
        int forward = inside ? TTI_FORWARD : 0;
        if (place == 0)
            tti_copy(&b, lane, chunk, 1, tti_in(chunk), tti_out(chunk), forward, first);
        else
            tti_recv(&b, lane, chunk, 1, parent, tti_out(chunk), forward, first);
        for (int k = largest / 2; inside && k >= 1; k /= 2)
            tti_send(&b, lane, chunk, 1, tti_out(chunk), tti_order_rank(&order, place + k));
    }
    tti_order_release(&order);
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
