/* Reduce on a binomial tree: the broadcast tree run backwards.
 *
 * A rank adds its children's sums to its own part, the smallest subtree (the first to be ready)
 * first, and forwards the last sum while it is computed. lg n steps: best for small blocks. */
#include "coll/algorithms/order.h"

static void tree_reduce_lane(struct tti_builder *b, int lane, const struct tti_order *order)
{
    int n = order->n, place = order->place;
    int parent = tti_order_rank(order, tti_binomial_parent(place));
    int size = tti_binomial_size(n, place);
    uint32_t chunk = (uint32_t)lane;
    struct tti_ref sum = tti_in(chunk);
    if (n == 1)
        tti_copy(b, lane, chunk, 1, sum, tti_out(chunk), TTI_FINAL, -1);
    else if (size == 1)
        tti_send(b, lane, chunk, 1, sum, parent);
    for (int k = 1; k < size; k *= 2) {
        bool last = 2 * k >= size, complete = last && place == 0, forward = last && place > 0;
        struct tti_ref dst = complete ? tti_out(chunk) : tti_slot(chunk);
        bool child_sums = tti_binomial_size(n, place + k) > 1;
        tti_recv_reduce(b, lane, chunk, 1, tti_order_rank(order, place + k), sum, dst,
                        (child_sums ? TTI_MSG_ACC : 0) | (complete ? TTI_FINAL : 0) |
                            (forward ? TTI_FORWARD : 0),
                        forward ? parent : -1);
        sum = dst;
    }
}

static enum tutti_result tree_reduce_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    struct tti_order order;
    struct tti_builder b;
    TTI_TRY(tti_order_create(spec, &order));
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)spec->lanes, 0, (uint32_t)spec->lanes);
    for (int lane = 0; lane < spec->lanes; lane++)
        tree_reduce_lane(&b, lane, &order);
    tti_order_release(&order);
    return tti_plan_finish(&b, plan);
}

static double tree_reduce_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                               double beta)
{
    return tti_log2_ceil(spec->nranks) * (alpha + bytes * beta);
}

const struct tti_algorithm tti_tree_reduce = {
    .name = "tree",
    .collective = TUTTI_REDUCE,
    .plan = tree_reduce_plan,
    .cost = tree_reduce_cost,
    .summary = "binomial tree; lg n steps of the whole block",
};
