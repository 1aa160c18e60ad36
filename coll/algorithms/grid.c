/* Hosts of as many ranks each (coll/algorithms/grid.h). */
#include "coll/algorithms/grid.h"

#include <string.h>

bool tti_grid_applicable(const struct tti_plan_spec *spec)
{
    int each = 0, most = 0;
    return spec->layout.host_of && spec->layout.nhosts > 1 &&
           tti_count_hosts(spec, &each, &most) == TUTTI_OK && each > 1;
}

enum tutti_result tti_grid_plan(const struct tti_plan_spec *spec, uint32_t slots,
                                void (*fill)(const struct tti_grid_lane *lane),
                                struct tti_plan **plan)
{
    struct tti_grid grid = {.hosts = spec->layout.nhosts};
    struct tti_builder b;
    struct tti_plan_spec by_host = *spec; /* a column has the same number on all hosts */
    memset(by_host.layout.near, 0, sizeof by_host.layout.near);
    TTI_TRY(tti_order_create(&by_host, &grid.order));
    grid.each = spec->nranks / grid.hosts;
    grid.host = grid.order.place / grid.each;
    grid.local = grid.order.place % grid.each;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)spec->lanes, 0, slots * (uint32_t)spec->lanes);
    for (int lane = 0; lane < spec->lanes; lane++)
        fill(&(struct tti_grid_lane){&b, &grid, lane, spec->lanes});
    tti_order_release(&grid.order);
    return tti_plan_finish(&b, plan);
}

double tti_grid_cost(const struct tti_plan_spec *spec, double bytes, double alpha, double beta)
{
    return spec->layout.nhosts * alpha + (spec->nranks - 1) * bytes * beta;
}
