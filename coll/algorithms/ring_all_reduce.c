/* All-reduce on a ring: reduce-scatter around it, then all-gather around it.
 *
 * n ranks, every lane a share of the block in n chunks. The ring passes through the hosts one after
 * another (order.h); r is the place on it. In step k of the first half place r passes on its
 * partial sum of chunk r - k and receives that of chunk r - k - 1; after n - 1 steps it holds the
 * complete chunk r + 1, which the second half hands around. Each rank moves
 * 2 (n-1)/n of the block, the least possible, in 2 (n-1) steps: best for large blocks. The steps
 * are in tti_ring_steps, which the hierarchical all-reduce uses between hosts.
 *
 * Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations,
 * JPDC 2009. */
#include "coll/algorithms/order.h"

static void ring_all_reduce_lane(struct tti_builder *b, const struct tti_plan_spec *spec, int lane,
                                 const struct tti_order *order)
{
    struct tti_group all = tti_order_group(order);
    tti_ring_steps(b, lane, (uint32_t)(lane * spec->nranks), &all, (uint32_t)(2 * lane));
}

static enum tutti_result ring_all_reduce_plan(const struct tti_plan_spec *spec,
                                              struct tti_plan **plan)
{
    struct tti_builder b;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)(spec->nranks * spec->lanes), 0,
                   (uint32_t)(2 * spec->lanes));
    tti_order_lanes(&b, spec, ring_all_reduce_lane);
    return tti_plan_finish(&b, plan);
}

static double ring_all_reduce_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                                   double beta)
{
    double n = spec->nranks;
    return 2 * (n - 1) * alpha + 2 * (n - 1) / n * bytes * beta;
}

const struct tti_algorithm tti_ring_all_reduce = {
    .name = "ring",
    .collective = TUTTI_ALL_REDUCE,
    .plan = ring_all_reduce_plan,
    .cost = ring_all_reduce_cost,
    .translates = true,
    .turns = true,
    .summary = "reduce-scatter, then all-gather, around a ring; least bytes, 2(n-1) steps",
};
