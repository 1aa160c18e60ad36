/* Hosts of as many ranks each, as a grid: a row is a host, a column the ranks with the same number
 * on their hosts. Between hosts each column works for itself, so all ranks, and the adapters near
 * them, carry as much; inside a row ranks trade what their columns brought. */
#ifndef TTI_COLL_ALGORITHMS_GRID_H
#define TTI_COLL_ALGORITHMS_GRID_H

#include "coll/algorithms/order.h"

struct tti_grid {
    struct tti_order order;
    int hosts, each; /* rows, columns */
    int host, local; /* of the own rank */
};

/* Several hosts of several ranks each, as many on every host? */
bool tti_grid_applicable(const struct tti_plan_spec *spec);
/* Host and local number go around. */
static inline int tti_grid_rank(const struct tti_grid *grid, int host, int local)
{
    return tti_order_rank(&grid->order,
                          tti_mod(host, grid->hosts) * grid->each + tti_mod(local, grid->each));
}

/* A lane of a plan. */
struct tti_grid_lane {
    struct tti_builder *b;
    const struct tti_grid *grid;
    int lane, lanes;
};

/* The lane's part of a rank's block, among the blocks of all. */
static inline uint32_t tti_grid_block(const struct tti_grid_lane *l, int host, int local)
{
    return (uint32_t)(tti_grid_rank(l->grid, host, local) * l->lanes + l->lane);
}

/* The plan whose lanes `fill` writes, each with so many slots. */
enum tutti_result tti_grid_plan(const struct tti_plan_spec *spec, uint32_t slots,
                                void (*fill)(const struct tti_grid_lane *lane),
                                struct tti_plan **plan);
/* n-1 blocks sent, with a latency from host to host and one inside. */
double tti_grid_cost(const struct tti_plan_spec *spec, double bytes, double alpha, double beta);

#endif
