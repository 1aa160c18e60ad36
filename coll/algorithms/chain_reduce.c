/* Reduce along a chain that ends at the root, in slices: the broadcast chain run backwards.
 *
 * Every rank adds its part to each slice and passes it on while the next arrives. Best for large
 * blocks. Two slots a lane, so that a slice may still be on its way while the next is combined. */
#include "coll/algorithms/order.h"

static void chain_reduce_lane(struct tti_builder *b, const struct tti_plan_spec *spec, int lane,
                              const struct tti_order *order)
{
    const int n = order->n, place = order->place;
    const int above = place < n - 1 ? tti_order_rank(order, place + 1) : -1;
    const int below = place > 0 ? tti_order_rank(order, place - 1) : -1;
    const int acc = place < n - 2 ? TTI_MSG_ACC : 0;
    for (int s = 0; s < spec->slices; s++) {
        uint32_t chunk = (uint32_t)(lane * spec->slices + s);
        struct tti_ref own = tti_in(chunk), out = tti_out(chunk);
        struct tti_ref slot = tti_slot((uint32_t)(2 * lane + (s & 1)));
        if (n == 1)
            tti_copy(b, lane, chunk, 1, own, out, TTI_FINAL, -1);
        else if (place == n - 1)
            tti_send(b, lane, chunk, 1, own, below);
        else if (place > 0)
            tti_recv_reduce(b, lane, chunk, 1, above, own, slot, acc | TTI_FORWARD, below);
        else
            tti_recv_reduce(b, lane, chunk, 1, above, own, out, acc | TTI_FINAL, -1);
    }
}

static enum tutti_result chain_reduce_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct tti_builder b;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)(spec->lanes * spec->slices), 0,
                   (uint32_t)(2 * spec->lanes));
    tti_order_lanes(&b, spec, chain_reduce_lane);
    return tti_plan_finish(&b, plan);
}

/* n - 1 hops of the first slice, then the others one after another. */
const struct tti_algorithm tti_chain_reduce = {
    .name = "chain",
    .collective = TUTTI_REDUCE,
    .plan = chain_reduce_plan,
    .cost = tti_chain_cost,
    .sliced = true,
    .turns = true,
    .summary = "pipeline of slices along a chain to the root; every link carries the block once",
};
