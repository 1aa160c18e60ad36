/* All-reduce in one shot: everybody sends everything to everybody, and reduces it all.
 *
 * One message of the whole block each way between any two ranks, so one latency; every rank reduces
 * in the order 0 .. n-1, so all get the same bits. Best for the smallest messages on few ranks that
 * reach each other directly. Sends start at the next rank, so that no rank is everybody's first.
 *
 * In place the last step overwrites IN, which waits until all peers have taken it: they take it
 * before their own last step, except that of rank n-1, whose last step receives nothing. Two ranks
 * have no earlier step (tti_pair_all_reduce). */
#include "coll/algorithms/parts.h"

enum tutti_result tti_one_shot_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    int n = spec->nranks, rank = spec->rank;
    struct tti_group all = tti_group_of_all(spec);
    struct tti_builder b;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)spec->lanes, 0, (uint32_t)spec->lanes);
    for (int lane = 0; lane < spec->lanes; lane++) {
        uint32_t chunk = (uint32_t)lane;
        if (n == 2) {
            tti_pair_all_reduce(&b, lane, chunk, rank == 1, 1 - rank, chunk);
            continue;
        }
        for (int k = 1; k < n; k++)
            tti_send(&b, lane, chunk, 1, tti_in(chunk), (rank + k) % n);
        tti_ordered_reduce(&b, lane, chunk, 1, &all, tti_in(chunk), tti_slot(chunk), tti_out(chunk),
                           TTI_FINAL, -1);
    }
    return tti_plan_finish(&b, plan);
}

const struct tti_algorithm tti_one_shot_all_reduce = {
    .name = "one_shot",
    .collective = TUTTI_ALL_REDUCE,
    .plan = tti_one_shot_plan,
    .cost = tti_direct_cost,
    .ordered = true,
    .summary = "everybody sends all to all and reduces in rank order; 1 step, (n-1) blocks",
};
