/* All-gather in two levels: around the hosts in columns, and from each column to its row.
 *
 * The ranks with the same number on their hosts pass their blocks around a ring of hosts; what
 * comes, and its own block, a rank sends to the others of its host. A host's line carries m(h-1)
 * blocks each way for h hosts of m ranks, where a flat ring takes hm-1, and in h-1 steps between
 * hosts instead of n-1; all ranks of a host share them. Best when the network between hosts is
 * slower than inside. */
#include "coll/algorithms/grid.h"

/* The column's block of the host k before goes to the row. */
static void gather_share(const struct tti_grid_lane *l, int k)
{
    const struct tti_grid *g = l->grid;
    struct tti_ref block = tti_out(tti_grid_block(l, g->host - k, g->local));
    for (int i = 1; i < g->each; i++)
        tti_send(l->b, l->lane, (uint32_t)l->lane, 1, block,
                 tti_grid_rank(g, g->host, g->local + i));
}

/* ... and those of the other columns come from there. */
static void gather_collect(const struct tti_grid_lane *l, int k)
{
    const struct tti_grid *g = l->grid;
    for (int i = 1; i < g->each; i++)
        tti_recv(l->b, l->lane, (uint32_t)l->lane, 1, tti_grid_rank(g, g->host, g->local - i),
                 tti_out(tti_grid_block(l, g->host - k, g->local - i)), 0, -1);
}

/* A row's blocks are collected a step late: what goes on to the next host comes first. */
static void gather_lane(const struct tti_grid_lane *l)
{
    const struct tti_grid *g = l->grid;
    uint32_t chunk = (uint32_t)l->lane;
    int next = tti_grid_rank(g, g->host + 1, g->local);
    int previous = tti_grid_rank(g, g->host - 1, g->local);
    tti_copy(l->b, l->lane, chunk, 1, tti_in(chunk), tti_out(tti_grid_block(l, g->host, g->local)),
             TTI_FORWARD, next);
    gather_share(l, 0);
    for (int k = 1; k < g->hosts; k++) {
        bool pass_on = k < g->hosts - 1;
        tti_recv(l->b, l->lane, chunk, 1, previous,
                 tti_out(tti_grid_block(l, g->host - k, g->local)), pass_on ? TTI_FORWARD : 0,
                 pass_on ? next : -1);
        gather_collect(l, k - 1);
        gather_share(l, k);
    }
    gather_collect(l, g->hosts - 1);
}

static enum tutti_result hierarchical_all_gather_plan(const struct tti_plan_spec *spec,
                                                      struct tti_plan **plan)
{
    return tti_grid_plan(spec, 0, gather_lane, plan);
}

const struct tti_algorithm tti_hierarchical_all_gather = {
    .name = "hierarchical",
    .collective = TUTTI_ALL_GATHER,
    .applicable = tti_grid_applicable,
    .plan = hierarchical_all_gather_plan,
    .cost = tti_grid_cost,
    .summary = "rings between hosts, direct inside them; hosts of as many ranks each",
};
