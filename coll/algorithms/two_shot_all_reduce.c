/* All-reduce in two shots: direct reduce-scatter, then direct all-gather.
 *
 * A lane's share is cut into n chunks; everybody sends chunk p to rank p, which reduces it in rank
 * order and sends the result to all. As few bytes as a ring in two latencies instead of 2 (n-1):
 * best for medium and large blocks where every pair of ranks has a path of its own. With two ranks
 * the result is forwarded while it is reduced, and nothing needs a temporary. */
#include "coll/algorithms/parts.h"

static void two_shot_lane(struct tti_builder *b, int lane, const struct tti_plan_spec *spec)
{
    int n = spec->nranks, rank = spec->rank;
    struct tti_group all = tti_group_of_all(spec);
    uint32_t base = (uint32_t)(lane * n), own = base + (uint32_t)rank;
    for (int k = 1; k < n; k++) {
        int peer = (rank + k) % n;
        uint32_t chunk = base + (uint32_t)peer;
        tti_send(b, lane, chunk, 1, tti_in(chunk), peer);
    }
    bool forward = n == 2;
    tti_ordered_reduce(b, lane, own, 1, &all, tti_in(own), tti_slot((uint32_t)lane), tti_out(own),
                       TTI_FINAL | (forward ? TTI_FORWARD : 0), forward ? 1 - rank : -1);
    for (int k = 1; k < n && !forward; k++)
        tti_send(b, lane, own, 1, tti_out(own), (rank + k) % n);
    for (int k = 1; k < n; k++) {
        int peer = tti_mod(rank - k, n);
        uint32_t chunk = base + (uint32_t)peer;
        tti_recv(b, lane, chunk, 1, peer, tti_out(chunk), 0, -1);
    }
}

static enum tutti_result two_shot_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    int n = spec->nranks;
    struct tti_builder b;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)(n * spec->lanes), 0,
                   n > 2 ? (uint32_t)spec->lanes : 0);
    for (int lane = 0; lane < spec->lanes; lane++)
        two_shot_lane(&b, lane, spec);
    return tti_plan_finish(&b, plan);
}

static double two_shot_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                            double beta)
{
    double n = spec->nranks;
    return n > 1 ? 2 * alpha + 2 * (n - 1) / n * bytes * beta : 0;
}

const struct tti_algorithm tti_two_shot_all_reduce = {
    .name = "two_shot",
    .collective = TUTTI_ALL_REDUCE,
    .plan = two_shot_plan,
    .cost = two_shot_cost,
    .ordered = true,
    .summary = "direct reduce-scatter in rank order, direct all-gather; least bytes, 2 steps",
};
