/* Reduce where everybody sends to the root, which combines in rank order.
 *
 * One latency, but the root takes n - 1 blocks: for few ranks and small blocks, and where the order
 * of the sum matters. Slices keep the root's sum in cache. */
#include "coll/algorithms/parts.h"

static enum tutti_result direct_reduce_plan(const struct tti_plan_spec *spec,
                                            struct tti_plan **plan)
{
    struct tti_group all = tti_group_of_all(spec);
    struct tti_builder b;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)(spec->lanes * spec->slices), 0,
                   (uint32_t)spec->lanes);
    for (int lane = 0; lane < spec->lanes; lane++)
        for (int s = 0; s < spec->slices; s++) {
            uint32_t chunk = (uint32_t)(lane * spec->slices + s);
            if (spec->rank != spec->root)
                tti_send(&b, lane, chunk, 1, tti_in(chunk), spec->root);
            else
                tti_ordered_reduce(&b, lane, chunk, 1, &all, tti_in(chunk),
                                   tti_slot((uint32_t)lane), tti_out(chunk), TTI_FINAL, -1);
        }
    return tti_plan_finish(&b, plan);
}

const struct tti_algorithm tti_direct_reduce = {
    .name = "direct",
    .collective = TUTTI_REDUCE,
    .plan = direct_reduce_plan,
    .cost = tti_direct_cost,
    .sliced = true,
    .ordered = true,
    .summary =
        "all send to the root, which reduces in rank order; 1 step, (n-1) blocks at the root",
};
