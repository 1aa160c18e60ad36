/* Barrier where everybody tells everybody.
 *
 * One step whatever the number of ranks, for n - 1 messages each instead of lg n: best for a few
 * ranks that reach each other directly, and above all where ranks outnumber the cores, since each
 * step then costs a turn of the other ranks on this core. An all-reduce in one shot, of nothing. */
#include "coll/algorithms/parts.h"

static enum tutti_result direct_barrier_plan(const struct tti_plan_spec *spec,
                                             struct tti_plan **plan)
{
    struct tti_plan_spec single = *spec;
    single.lanes = 1;
    return tti_one_shot_plan(&single, plan);
}

const struct tti_algorithm tti_direct_barrier = {
    .name = "direct",
    .collective = TUTTI_BARRIER,
    .plan = direct_barrier_plan,
    .cost = tti_direct_cost,
    .summary = "everybody tells everybody; 1 step, n-1 messages",
};
