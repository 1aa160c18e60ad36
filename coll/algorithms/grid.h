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
/* Of a spec without root to which it applies. */
enum tutti_result tti_grid_create(const struct tti_plan_spec *spec, struct tti_grid *grid);
void tti_grid_release(struct tti_grid *grid);

/* Host and local number go around. */
static inline int tti_grid_rank(const struct tti_grid *grid, int host, int local)
{
    return tti_order_rank(&grid->order,
                          tti_mod(host, grid->hosts) * grid->each + tti_mod(local, grid->each));
}

/* n-1 blocks sent, with a latency from host to host and one inside. */
double tti_grid_cost(const struct tti_plan_spec *spec, double bytes, double alpha, double beta);

#endif
