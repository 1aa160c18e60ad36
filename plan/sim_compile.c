/* Plans into flat steps with times and channels (plan/sim_model.h says why). */
#include "base/memory.h"
#include "plan/sim_model.h"

#include <math.h>
#include <stdlib.h>

/* First element of chunk c, counted over all blocks of a buffer. */
static double compile_begin(const struct sim *sim, uint32_t chunks, uint64_t c)
{
    double whole = (double)(c / chunks) * sim->count;
    return whole +
           (double)tti_chunk_begin(sim->elements, sim->type_size, chunks, (uint32_t)(c % chunks));
}

double sim_elements(const struct sim *sim, uint32_t chunks, uint32_t chunk, uint32_t n)
{
    return compile_begin(sim, chunks, (uint64_t)chunk + n) - compile_begin(sim, chunks, chunk);
}

/* The elements that a step is timed with. In the quotient a step stands for the same step of every
 * host, over other chunks; the longest decides, and the first chunks are the longest. */
static double compile_timed(const struct sim *sim, uint32_t chunks, const struct tti_step *step)
{
    bool quotient = sim->period < sim->spec.nranks;
    return sim_elements(sim, chunks, quotient ? 0 : step->chunk, step->nchunks);
}

/* Of the same, the elements on average: for counting bytes. */
static double compile_counted(const struct sim *sim, uint32_t chunks, const struct tti_step *step)
{
    if (sim->period == sim->spec.nranks)
        return sim_elements(sim, chunks, step->chunk, step->nchunks);
    return sim->count * step->nchunks / chunks;
}

static size_t compile_element(const struct sim *sim, const struct tti_plan *plan, uint32_t buffer)
{
    bool accumulates = plan->reduces && (buffer == TTI_SCRATCH || buffer == TTI_SLOT);
    return accumulates ? sim->acc_size : sim->type_size;
}

static size_t map_slot(const struct sim_map_entry *map, size_t size, uint64_t key)
{
    uint64_t hash = (key ^ key >> 31) * UINT64_C(0x9e3779b97f4a7c15);
    size_t slot = (size_t)(hash ^ hash >> 32) & (size - 1);
    while (map[slot].key != UINT64_MAX && map[slot].key != key)
        slot = (slot + 1) & (size - 1);
    return slot;
}

static enum tutti_result map_grow(struct sim *sim)
{
    size_t size = sim->map_size ? 2 * sim->map_size : 1024;
    struct sim_map_entry *map = tti_calloc(size, sizeof *map);
    if (!map)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < size; i++)
        map[i].key = UINT64_MAX;
    for (size_t i = 0; i < sim->map_size; i++)
        if (sim->map[i].key != UINT64_MAX)
            map[map_slot(map, size, sim->map[i].key)] = sim->map[i];
    free(sim->map);
    sim->map = map;
    sim->map_size = size;
    return TUTTI_OK;
}

/* The channel on `lane` from rank `from` to rank `to`, one of which is in the period. */
static enum tutti_result compile_channel(struct sim *sim, int from, int to, int lane,
                                         uint32_t *channel)
{
    int n = sim->spec.nranks, period = sim->period, host = sim->network->ranks_per_host;
    uint32_t distance = (uint32_t)(((int64_t)to - from + n) % n);
    uint32_t receiver = (uint32_t)(to % period * sim->nlanes + lane);
    uint64_t key = (uint64_t)receiver << 31 | distance;
    if (2 * sim->nchannels >= sim->map_size)
        TTI_TRY(map_grow(sim));
    struct sim_map_entry *entry = &sim->map[map_slot(sim->map, sim->map_size, key)];
    if (entry->key == UINT64_MAX) {
        void *channels = sim->channels;
        TTI_TRY(tti_grow(&channels, &sim->channels_capacity, sim->nchannels + 1,
                         sizeof *sim->channels));
        sim->channels = channels;
        sim->channels[sim->nchannels] =
            (struct sim_channel){.receiver = receiver,
                                 .sender = (uint32_t)(from % period * sim->nlanes + lane),
                                 .distance = distance,
                                 .inter = from / host != to / host,
                                 .head = SIM_NONE,
                                 .tail = SIM_NONE};
        *entry = (struct sim_map_entry){key, (uint32_t)sim->nchannels++};
    }
    *channel = entry->channel;
    return TUTTI_OK;
}

static double compile_work(const struct sim *sim, const struct tti_plan *plan,
                           const struct tti_step *step, double elements)
{
    double bytes = elements * (double)compile_element(sim, plan, step->dst.buffer);
    if (step->kind == TTI_COPY)
        return bytes * sim->network->delta;
    if (step->kind == TTI_REDUCE || step->kind == TTI_RECV_REDUCE)
        return bytes * sim->network->gamma;
    return 0;
}

static enum tutti_result compile_step(struct sim *sim, const struct tti_plan *plan, int lane,
                                      const struct tti_step *step)
{
    int rank = plan->spec.rank;
    double elements = compile_timed(sim, plan->chunks, step);
    struct sim_step *out = &sim->steps[sim->nsteps];
    *out = (struct sim_step){.work = compile_work(sim, plan, step, elements),
                             .in = SIM_NONE,
                             .out = SIM_NONE,
                             .hazard = step->hazard};
    bool receives = step->kind == TTI_RECV || step->kind == TTI_RECV_REDUCE;
    bool sends = step->kind == TTI_SEND || (step->flags & TTI_FORWARD);
    if ((receives && (step->from < 0 || step->from >= sim->spec.nranks)) ||
        (sends && (step->to < 0 || step->to >= sim->spec.nranks)))
        return TTI_FAIL(TUTTI_ERR_INTERNAL,
                        "plan of rank %d, lane %d: a step over chunk %u names a rank outside "
                        "0..%d; verify the plan",
                        rank, lane, step->chunk, sim->spec.nranks - 1);
    if (receives)
        TTI_TRY(compile_channel(sim, step->from, rank, lane, &out->in));
    if (sends) {
        struct tti_ref src = step->kind == TTI_SEND ? step->src : step->dst;
        double size = (double)compile_element(sim, plan, src.buffer);
        TTI_TRY(compile_channel(sim, rank, step->to, lane, &out->out));
        out->bytes = elements * size;
        double counted = compile_counted(sim, plan->chunks, step) * size;
        *(sim->channels[out->out].inter ? &sim->bytes_inter : &sim->bytes_intra) += counted;
        sim->messages++;
    }
    if (sim->timeline)
        sim->details[sim->nsteps] = *step;
    sim->nsteps++;
    return TUTTI_OK;
}

static enum tutti_result compile_reserve(struct sim *sim, size_t more)
{
    size_t need = sim->nsteps + more;
    if (need > sim->steps_max)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "cannot simulate %s %s on %d ranks: its plans have more than %zu steps; "
                        "use fewer ranks, lanes or slices",
                        tutti_collective_name(sim->spec.collective), sim->algorithm->name,
                        sim->spec.nranks, sim->steps_max);
    void *steps = sim->steps, *details = sim->details;
    TTI_TRY(tti_grow(&steps, &sim->steps_capacity, need, sizeof *sim->steps));
    sim->steps = steps;
    if (sim->timeline) {
        TTI_TRY(tti_grow(&details, &sim->details_capacity, need, sizeof *sim->details));
        sim->details = details;
    }
    return TUTTI_OK;
}

static enum tutti_result compile_plan(struct sim *sim, const struct tti_plan *plan)
{
    int rank = plan->spec.rank;
    if (rank == 0) {
        sim->nlanes = plan->nlanes;
        sim->lanes = tti_calloc((size_t)sim->period * (size_t)plan->nlanes, sizeof *sim->lanes);
        if (!sim->lanes)
            return TUTTI_ERR_MEMORY;
    }
    if (plan->nlanes != sim->nlanes)
        return TTI_FAIL(TUTTI_ERR_INTERNAL, "plan of rank %d has %d lanes, that of rank 0 has %d",
                        rank, plan->nlanes, sim->nlanes);
    for (int lane = 0; lane < plan->nlanes; lane++) {
        const struct tti_lane *from = &plan->lanes[lane];
        TTI_TRY(compile_reserve(sim, from->count));
        sim->lanes[rank * sim->nlanes + lane] =
            (struct sim_lane){.first = (uint32_t)sim->nsteps, .count = (uint32_t)from->count};
        for (size_t s = 0; s < from->count; s++)
            TTI_TRY(compile_step(sim, plan, lane, &from->steps[s]));
    }
    return TUTTI_OK;
}

enum tutti_result sim_compile(struct sim *sim)
{
    for (int rank = 0; rank < sim->period; rank++) {
        struct tti_plan *plan = NULL;
        TTI_TRY(sim_plan_of(sim, rank, &plan));
        enum tutti_result result = compile_plan(sim, plan);
        tti_plan_destroy(plan);
        TTI_TRY(result);
    }
    sim->consumed = tti_calloc(sim->nsteps, sizeof *sim->consumed);
    return sim->consumed ? TUTTI_OK : TUTTI_ERR_MEMORY;
}
