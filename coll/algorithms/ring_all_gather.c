/* All-gather on a ring: every block travels around it.
 *
 * n - 1 steps, each passing on the block that came last: least bytes over neighbour links. Best for
 * large blocks. The ring passes through the hosts one after another (order.h). */
#include "coll/algorithms/order.h"

static enum tutti_result ring_all_gather_plan(const struct tti_plan_spec *spec,
                                              struct tti_plan **plan)
{
    int n = spec->nranks, lanes = spec->lanes;
    struct tti_order order;
    struct tti_builder b;
    TTI_TRY(tti_order_create(spec, &order));
    int next = tti_order_rank(&order, (order.place + 1) % n);
    int previous = tti_order_rank(&order, tti_mod(order.place - 1, n));
    tti_plan_begin(&b, spec, lanes, (uint32_t)lanes, 0, 0);
    for (int lane = 0; lane < lanes; lane++)
        for (int k = 0; k < n; k++) {
            uint32_t chunk = (uint32_t)lane;
            int block = tti_order_rank(&order, tti_mod(order.place - k, n));
            struct tti_ref out = tti_out((uint32_t)(block * lanes + lane));
            bool pass_on = k < n - 1;
            int forward = pass_on ? TTI_FORWARD : 0, to = pass_on ? next : -1;
            if (k == 0)
                tti_copy(&b, lane, chunk, 1, tti_in(chunk), out, forward, to);
            else
                tti_recv(&b, lane, chunk, 1, previous, out, forward, to);
        }
    tti_order_release(&order);
    return tti_plan_finish(&b, plan);
}

const struct tti_algorithm tti_ring_all_gather = {
    .name = "ring",
    .collective = TUTTI_ALL_GATHER,
    .plan = ring_all_gather_plan,
    .cost = tti_ring_cost,
    .translates = true,
    .summary = "blocks travel around a ring; least bytes, n-1 steps",
};
