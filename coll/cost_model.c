/* The cost model (coll/cost_model.h). */
#include "coll/cost_model.h"

#include "coll/fused.h"
#include "coll/small_plan.h"

#include <math.h>

/* Where a rank's bytes lie: 0 in L1, 1 in L2, 2 in the L3 that the host's ranks share, 3 in memory,
 * and between them where a cache holds a part. An L3 has other users: it is full before its size.
 */
static double cost_level(const struct tti_profile *profile, const struct tti_cost_place *place,
                         double touched)
{
    double shared = profile->cache[2] / place->most_local;
    double own = profile->cache[1] < shared / 4 ? profile->cache[1] : shared / 4;
    double edge[4] = {profile->cache[0] < own / 2 ? profile->cache[0] : own / 2, own, shared / 2,
                      2 * shared};
    if (touched <= edge[0])
        return 0;
    for (int level = 1; level < 4; level++)
        if (touched < edge[level])
            return level - 1 + log(touched / edge[level - 1]) / log(edge[level] / edge[level - 1]);
    return 3;
}

/* The constant of a level: four of them from `first` on, blended in proportion. */
static double cost_at(const double *cost, int first, double level)
{
    int below = level >= 3 ? 2 : (int)level;
    double part = level - below, a = cost[first + below], b = cost[first + below + 1];
    return a > 0 && b > 0 ? a * pow(b / a, part) : a + part * (b - a);
}

/* Data go one way only, so nobody waits for the others before the next call. */
static bool cost_is_rooted(enum tutti_collective collective)
{
    return collective == TUTTI_BROADCAST || collective == TUTTI_REDUCE ||
           collective == TUTTI_GATHER || collective == TUTTI_SCATTER;
}

static double cost_fused(const struct tti_profile *profile, const struct tti_cost_place *place,
                         const struct tti_plan_spec *spec, double bytes)
{
    const double *cost = profile->cost[place->medium];
    double touched = tti_fused_touched(spec->collective, spec->nranks) * bytes;
    double level = cost_level(profile, place, touched);
    return cost[TTI_COST_FUSED] + touched * cost_at(cost, TTI_COST_FUSED_TOUCH, level);
}

double tti_cost_seconds(const struct tti_profile *profile, const struct tti_cost_place *place,
                        const struct tti_cost_way *way, double bytes)
{
    const double *cost = profile->cost[place->medium];
    const struct tti_plan_spec *spec = &way->spec;
    double turns = place->most_local / profile->cores;
    bool crowded = turns > 1;
    turns = crowded ? turns : 1;
    /* Collectives with a root run ahead of the scheduler while transports hold their messages. */
    bool one_way = way->path == TTI_PATH_PLAN && cost_is_rooted(spec->collective);
    crowded = crowded && !(one_way && bytes < TTI_SMALL_BYTES);
    double alpha = cost[crowded   ? TTI_COST_CROWDED_ALPHA
                        : one_way ? TTI_COST_ONE_WAY
                                  : TTI_COST_ALPHA];
    double call = crowded ? cost[TTI_COST_CROWDED_CALL] : 0;
    if (way->path == TTI_PATH_FUSED)
        return call + 2 * alpha + turns * cost_fused(profile, place, spec, bytes);
    bool small = way->small && bytes <= TTI_SMALL_BYTES;
    double touched = way->work.touched * bytes;
    double level = cost_level(profile, place, touched);
    double busy =
        cost[small ? TTI_COST_SMALL : TTI_COST_CALL] +
        way->work.steps * spec->lanes * cost[small ? TTI_COST_SMALL_STEP : TTI_COST_STEP] +
        touched * cost_at(cost, TTI_COST_TOUCH, level);
    if (turns * way->work.evenness < 1)
        turns = 1;
    else
        turns *= way->work.evenness; /* cores are shared with ranks that have less to do */
    return call + way->algorithm->cost(spec, bytes, alpha, cost_at(cost, TTI_COST_WIRE, level)) +
           turns * busy;
}
