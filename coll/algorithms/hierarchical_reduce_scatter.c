/* Reduce-scatter in two levels: inside each host to columns, and around the hosts in each column.
 *
 * The all-gather run backwards (hierarchical_all_gather.c). For the blocks of a host, each rank
 * sums those of its host's contributions that belong to its column; these sums go around a ring of
 * hosts, each adding its own, and end where the block belongs. A host's line carries m(h-1) blocks
 * each way for h hosts of m ranks, where a flat ring takes hm-1. Best when the network between
 * hosts is slower than inside. */
#include "coll/algorithms/grid.h"

/* The own host's sum for the column's block of the host k before, to `slot` and, with `to` >= 0, on
 * to that rank. */
static void scatter_sum(const struct tti_grid_lane *l, int k, struct tti_ref slot, int to)
{
    const struct tti_grid *g = l->grid;
    uint32_t chunk = (uint32_t)l->lane;
    struct tti_ref sum = tti_in(tti_grid_block(l, g->host - k, g->local));
    for (int i = 1; i < g->each; i++)
        tti_send(l->b, l->lane, chunk, 1, tti_in(tti_grid_block(l, g->host - k, g->local + i)),
                 tti_grid_rank(g, g->host, g->local + i));
    for (int i = 1; i < g->each; i++) {
        bool forward = to >= 0 && i == g->each - 1;
        tti_recv_reduce(l->b, l->lane, chunk, 1, tti_grid_rank(g, g->host, g->local - i), sum, slot,
                        forward ? TTI_FORWARD : 0, forward ? to : -1);
        sum = slot;
    }
}

static void scatter_lane(const struct tti_grid_lane *l)
{
    const struct tti_grid *g = l->grid;
    uint32_t chunk = (uint32_t)l->lane;
    int next = tti_grid_rank(g, g->host + 1, g->local);
    int previous = tti_grid_rank(g, g->host - 1, g->local);
    for (int k = 1; k <= g->hosts; k++) {
        struct tti_ref slot = tti_slot((uint32_t)(2 * l->lane + (k & 1)));
        bool complete = k == g->hosts;
        scatter_sum(l, k, slot, k == 1 ? next : -1);
        if (k > 1)
            tti_recv_reduce(
                l->b, l->lane, chunk, 1, previous, slot, complete ? tti_out(chunk) : slot,
                TTI_MSG_ACC | (complete ? TTI_FINAL : TTI_FORWARD), complete ? -1 : next);
    }
}

static enum tutti_result hierarchical_reduce_scatter_plan(const struct tti_plan_spec *spec,
                                                          struct tti_plan **plan)
{
    return tti_grid_plan(spec, 2, scatter_lane, plan);
}

const struct tti_algorithm tti_hierarchical_reduce_scatter = {
    .name = "hierarchical",
    .collective = TUTTI_REDUCE_SCATTER,
    .applicable = tti_grid_applicable,
    .plan = hierarchical_reduce_scatter_plan,
    .cost = tti_grid_cost,
    .summary = "direct inside hosts, rings between them; hosts of as many ranks each",
};
