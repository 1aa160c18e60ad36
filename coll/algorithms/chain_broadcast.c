/* Broadcast along a chain from the root, in slices.
 *
 * Every rank passes each slice on while the next arrives, so with many slices the time is that of
 * one transfer of the block, whatever n. Best for large blocks. The chain passes through the hosts
 * one after another (order.h). */
#include "coll/algorithms/order.h"

static void chain_broadcast_lane(struct tti_builder *b, const struct tti_plan_spec *spec, int lane,
                                 const struct tti_order *order)
{
    const int place = order->place;
    const int next = place < order->n - 1 ? tti_order_rank(order, place + 1) : -1;
    const int previous = place > 0 ? tti_order_rank(order, place - 1) : -1;
    const int forward = next >= 0 ? TTI_FORWARD : 0;
    for (int s = 0; s < spec->slices; s++) {
        uint32_t chunk = (uint32_t)(lane * spec->slices + s);
        if (place == 0)
            tti_copy(b, lane, chunk, 1, tti_in(chunk), tti_out(chunk), forward, next);
        else
            tti_recv(b, lane, chunk, 1, previous, tti_out(chunk), forward, next);
    }
}

static enum tutti_result chain_broadcast_plan(const struct tti_plan_spec *spec,
                                              struct tti_plan **plan)
{
    struct tti_builder b;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)(spec->lanes * spec->slices), 0, 0);
    tti_order_lanes(&b, spec, chain_broadcast_lane);
    return tti_plan_finish(&b, plan);
}

/* n - 1 hops of the first slice, then the others one after another. */
const struct tti_algorithm tti_chain_broadcast = {
    .name = "chain",
    .collective = TUTTI_BROADCAST,
    .plan = chain_broadcast_plan,
    .cost = tti_chain_cost,
    .sliced = true,
    .turns = true,
    .summary = "pipeline of slices along a chain; every link carries the block once",
};
