/* Hosts of as many ranks each (coll/algorithms/grid.h). */
#include "coll/algorithms/grid.h"

bool tti_grid_applicable(const struct tti_plan_spec *spec)
{
    int each = 0, most = 0;
    return spec->layout.host_of && spec->layout.nhosts > 1 &&
           tti_count_hosts(spec, &each, &most) == TUTTI_OK && each > 1;
}

enum tutti_result tti_grid_create(const struct tti_plan_spec *spec, struct tti_grid *grid)
{
    struct tti_grid made = {.hosts = spec->layout.nhosts};
    TTI_TRY(tti_order_create(spec, &made.order));
    made.each = spec->nranks / made.hosts;
    made.host = made.order.place / made.each;
    made.local = made.order.place % made.each;
    *grid = made;
    return TUTTI_OK;
}

void tti_grid_release(struct tti_grid *grid)
{
    tti_order_release(&grid->order);
}

double tti_grid_cost(const struct tti_plan_spec *spec, double bytes, double alpha, double beta)
{
    return spec->layout.nhosts * alpha + (spec->nranks - 1) * bytes * beta;
}
