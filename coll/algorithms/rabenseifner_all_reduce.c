/* All-reduce after Rabenseifner: reduce-scatter by recursive halving, all-gather by doubling.
 *
 * A lane's share is cut into as many chunks as ranks take part (a power of two; tti_fold deals with
 * the rest). In the first half a rank exchanges with the one 1, 2, 4 ... away, sends the half of
 * its range that the other keeps, and adds what it gets to the half that it keeps itself: the
 * largest messages go to the nearest ranks. The second half runs back. As few bytes as a ring (for
 * powers of two) in 2 lg n steps: best for medium and large blocks.
 *
 * Partial sums stay in SCRATCH, at their place in the block; a step sends one half of the range and
 * writes the other, so nothing waits. Each chunk is completed by one rank: same bits everywhere.
 *
 * The steps are in tti_halving_steps, which the hierarchical all-reduce uses between hosts.
 *
 * Source: Rabenseifner, Optimization of collective reduction operations, ICCS 2004. */
#include "coll/algorithms/parts.h"

static enum tutti_result halving_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    int size = tti_power_floor(spec->nranks);
    struct tti_group all = tti_group_of_all(spec);
    struct tti_builder b;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)(size * spec->lanes), spec->nranks > 2 ? 1 : 0,
                   0);
    for (int lane = 0; lane < spec->lanes; lane++)
        tti_halving_steps(&b, lane, (uint32_t)(lane * size), &all);
    return tti_plan_finish(&b, plan);
}

static double halving_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                           double beta)
{
    double size = tti_power_floor(spec->nranks);
    double fold = size < spec->nranks ? 2 * (alpha + bytes * beta) : 0;
    return 2 * tti_log2_ceil((int)size) * alpha + 2 * (size - 1) / size * bytes * beta + fold;
}

const struct tti_algorithm tti_rabenseifner_all_reduce = {
    .name = "rabenseifner",
    .collective = TUTTI_ALL_REDUCE,
    .plan = halving_plan,
    .cost = halving_cost,
    .summary = "recursive halving, then doubling; least bytes in 2 lg n steps (powers of two)",
};
