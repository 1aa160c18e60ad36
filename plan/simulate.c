/* The simulator's front: what is asked, how many ranks must be run for it, and the answer.
 * Read next: plan/sim_model.h. */
#include "plan/simulate.h"

#include "plan/sim_model.h"

#include <math.h>
#include <stdlib.h>

static bool link_is_sane(const struct tti_link_model *link)
{
    return isfinite(link->alpha) && link->alpha >= 0 && isfinite(link->beta) && link->beta >= 0;
}

static enum tutti_result simulate_check(const struct tti_algorithm *algorithm,
                                        const struct tti_plan_spec *spec,
                                        const struct tti_network *network, enum tutti_type type)
{
    if (network->nranks != spec->nranks || spec->nranks < 1)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "cannot simulate: the network has %d ranks, the plan is for %d; both must "
                        "be the same, 1 or more",
                        network->nranks, spec->nranks);
    if (network->ranks_per_host < 1 || network->nics < 1)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "cannot simulate a network of %d ranks and %d network ports a host: give "
                        "at least 1 of each",
                        network->ranks_per_host, network->nics);
    if (!link_is_sane(&network->intra) || !link_is_sane(&network->inter) ||
        !isfinite(network->gamma) || network->gamma < 0 || !isfinite(network->delta) ||
        network->delta < 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "cannot simulate: latencies and times per byte must be "
                                            "finite and not negative");
    if (tutti_type_size(type) == 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "cannot simulate: element type %d does not exist",
                        (int)type);
    if (algorithm->collective != spec->collective)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "algorithm %s is for %s, not for %s", algorithm->name,
                        tutti_collective_name(algorithm->collective),
                        tutti_collective_name(spec->collective));
    if (algorithm->applicable && !algorithm->applicable(spec))
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "%s %s does not serve %d ranks on %d hosts",
                        tutti_collective_name(spec->collective), algorithm->name, spec->nranks,
                        spec->layout.nhosts > 1 ? spec->layout.nhosts : 1);
    return TUTTI_OK;
}

static size_t accumulator_size(enum tutti_type type)
{
    switch (type) {
    case TUTTI_FLOAT16:
    case TUTTI_BFLOAT16:
    case TUTTI_FLOAT8_E4M3:
    case TUTTI_FLOAT8_E5M2:
        return sizeof(float);
    default:
        return tutti_type_size(type);
    }
}

static void sim_release(struct sim *sim)
{
    free(sim->steps);
    free(sim->details);
    free(sim->consumed);
    free(sim->lanes);
    free(sim->channels);
    free(sim->map);
}

enum tutti_result sim_predict(const struct tti_algorithm *algorithm,
                              const struct tti_plan_spec *spec, const struct tti_network *network,
                              size_t count, enum tutti_type type, struct tti_timeline *timeline,
                              size_t steps_max, struct tti_prediction *prediction)
{
    TTI_TRY(simulate_check(algorithm, spec, network, type));
    struct sim sim = {.network = network,
                      .algorithm = algorithm,
                      .spec = *spec,
                      .timeline = timeline,
                      .count = (double)count,
                      .elements = count,
                      .type_size = tutti_type_size(type),
                      .acc_size = accumulator_size(type),
                      .steps_max = steps_max};
    struct tti_prediction answer;
    enum tutti_result result = sim_choose_period(&sim);
    if (result == TUTTI_OK)
        result = sim_compile(&sim);
    if (result == TUTTI_OK && timeline)
        result = tti_timeline_begin(timeline, sim.period, sim.nlanes, sim.nsteps, sim.messages);
    if (result == TUTTI_OK)
        result = sim_run(&sim, &answer);
    if (result == TUTTI_OK) {
        double copies = (double)spec->nranks / sim.period;
        answer.simulated_ranks = sim.period;
        answer.messages = sim.messages * (uint64_t)(spec->nranks / sim.period);
        answer.bytes_inter = (uint64_t)(sim.bytes_inter * copies + 0.5);
        answer.bytes_intra = (uint64_t)(sim.bytes_intra * copies + 0.5);
        *prediction = answer;
    }
    sim_release(&sim);
    return result;
}

enum tutti_result tti_simulate(const struct tti_algorithm *algorithm,
                               const struct tti_plan_spec *spec, const struct tti_network *network,
                               size_t count, enum tutti_type type, struct tti_timeline *timeline,
                               struct tti_prediction *prediction)
{
    return sim_predict(algorithm, spec, network, count, type, timeline, SIM_STEPS_MAX, prediction);
}
