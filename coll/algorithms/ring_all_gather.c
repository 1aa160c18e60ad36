/* All-gather on a ring: every block travels around it.
 *
 * n - 1 steps, each passing on the block that came last: least bytes over neighbour links. Best for
 * large blocks. The ring passes through the hosts one after another (order.h). */
#include "coll/algorithms/order.h"

static void ring_all_gather_lane(struct tti_builder *b, const struct tti_plan_spec *spec, int lane,
                                 const struct tti_order *order)
{
    const int n = order->n;
    const int next = tti_order_rank(order, (order->place + 1) % n);
    const int previous = tti_order_rank(order, tti_mod(order->place - 1, n));
    const uint32_t chunk = (uint32_t)lane;
    for (int k = 0; k < n; k++) {
        int block = tti_order_rank(order, tti_mod(order->place - k, n));
        struct tti_ref out = tti_out((uint32_t)(block * spec->lanes + lane));
        bool pass_on = k < n - 1;
        int forward = pass_on ? TTI_FORWARD : 0, to = pass_on ? next : -1;
        if (k == 0)
            tti_copy(b, lane, chunk, 1, tti_in(chunk), out, forward, to);
        else
            tti_recv(b, lane, chunk, 1, previous, out, forward, to);
    }
}

static enum tutti_result ring_all_gather_plan(const struct tti_plan_spec *spec,
                                              struct tti_plan **plan)
{
    struct tti_builder b;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)spec->lanes, 0, 0);
    tti_order_lanes(&b, spec, ring_all_gather_lane);
    return tti_plan_finish(&b, plan);
}

const struct tti_algorithm tti_ring_all_gather = {
    .name = "ring",
    .collective = TUTTI_ALL_GATHER,
    .plan = ring_all_gather_plan,
    .cost = tti_ring_cost,
    .translates = true,
    .turns = true,
    .summary = "blocks travel around a ring; least bytes, n-1 steps",
};
