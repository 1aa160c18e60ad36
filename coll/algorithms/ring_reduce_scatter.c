/* Reduce-scatter on a ring: the first half of the ring all-reduce, ending at the own block.
 *
 * The ring passes through the hosts one after another (order.h). Place r starts the block of place
 * r - 1 on its way; in step k it adds its part to that of r - k and passes it on, until its own
 * arrives with all but its own part. n - 1 steps, least bytes: best for large blocks.
 *
 * Source: as ring_all_reduce.c. */
#include "coll/algorithms/order.h"

static void ring_reduce_scatter_lane(struct tti_builder *b, const struct tti_plan_spec *spec,
                                     int lane, const struct tti_order *order)
{
    const int n = order->n, lanes = spec->lanes;
    const int next = tti_order_rank(order, (order->place + 1) % n);
    const int previous = tti_order_rank(order, tti_mod(order->place - 1, n));
    const uint32_t chunk = (uint32_t)lane;
    struct tti_ref first = tti_in((uint32_t)(previous * lanes + lane));
    if (n == 1) {
        tti_copy(b, lane, chunk, 1, first, tti_out(chunk), TTI_FINAL, -1);
        return;
    }
    tti_send(b, lane, chunk, 1, first, next);
    for (int k = 2; k <= n; k++) {
        int block = tti_order_rank(order, tti_mod(order->place - k, n));
        struct tti_ref own = tti_in((uint32_t)(block * lanes + lane));
        bool complete = k == n;
        tti_recv_reduce(b, lane, chunk, 1, previous, own,
                        complete ? tti_out(chunk) : tti_slot((uint32_t)(2 * lane + (k & 1))),
                        (k > 2 ? TTI_MSG_ACC : 0) | (complete ? TTI_FINAL : TTI_FORWARD),
                        complete ? -1 : next);
    }
}

static enum tutti_result ring_reduce_scatter_plan(const struct tti_plan_spec *spec,
                                                  struct tti_plan **plan)
{
    struct tti_builder b;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)spec->lanes, 0, (uint32_t)(2 * spec->lanes));
    tti_order_lanes(&b, spec, ring_reduce_scatter_lane);
    return tti_plan_finish(&b, plan);
}

const struct tti_algorithm tti_ring_reduce_scatter = {
    .name = "ring",
    .collective = TUTTI_REDUCE_SCATTER,
    .plan = ring_reduce_scatter_plan,
    .cost = tti_ring_cost,
    .translates = true,
    .turns = true,
    .summary = "partial sums travel around a ring; least bytes, n-1 steps",
};
