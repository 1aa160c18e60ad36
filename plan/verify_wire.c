/* Wiring up a symbolic run: number the cells and lanes of all ranks, and find for every step the
 * channels that it takes from and sends on (plan/verify_run.h). Read next: plan/verify_run.c. */
#include "plan/verify_run.h"

#include "base/memory.h"

#include <stdlib.h>

static int32_t wire_lane_number(const struct tti_run *run, int rank, int lane)
{
    return lane < run->plans[rank]->nlanes ? run->lane_base[rank] + lane : TTI_RUN_NONE;
}

/* Channels already made, by key, open addressing; only used while the run is made. */
struct wire_index {
    uint64_t *keys; /* + 1; 0 is free */
    int32_t *channels;
    size_t places; /* power of two */
};

static enum tutti_result wire_channel_of(struct tti_run *run, struct wire_index *index, int from,
                                         int to, int lane, int32_t *channel)
{
    uint64_t key = ((uint64_t)from * (uint64_t)run->nranks + (uint64_t)to) * 4096 + (uint64_t)lane;
    size_t at = (size_t)((key * 0x9e3779b97f4a7c15u) >> 20) & (index->places - 1);
    while (index->keys[at] && index->keys[at] != key + 1)
        at = (at + 1) & (index->places - 1);
    if (!index->keys[at]) {
        void *channels = run->channels;
        TTI_TRY(
            tti_grow(&channels, &run->channel_capacity, run->nchannels + 1, sizeof *run->channels));
        run->channels = channels;
        run->channels[run->nchannels] =
            (struct tti_run_channel){.sender = wire_lane_number(run, from, lane),
                                     .receiver = wire_lane_number(run, to, lane),
                                     .first = TTI_RUN_NONE,
                                     .last = TTI_RUN_NONE};
        index->keys[at] = key + 1;
        index->channels[at] = (int32_t)run->nchannels++;
    }
    *channel = index->channels[at];
    return TUTTI_OK;
}

static enum tutti_result wire_connect_step(struct tti_run *run, struct wire_index *index,
                                           const struct tti_run_lane *lane, uint32_t s)
{
    const struct tti_step *step = &lane->steps[s];
    size_t at = lane->base + s;
    run->in[at] = run->out[at] = run->next[at] = TTI_RUN_NONE;
    if (tti_step_receives(step))
        TTI_TRY(wire_channel_of(run, index, step->from, lane->rank, lane->lane, &run->in[at]));
    if (!tti_step_sends(step))
        return TUTTI_OK;
    TTI_TRY(wire_channel_of(run, index, lane->rank, step->to, lane->lane, &run->out[at]));
    struct tti_run_channel *channel = &run->channels[run->out[at]];
    if (channel->last == TTI_RUN_NONE)
        channel->first = (int32_t)s;
    else
        run->next[lane->base + (size_t)channel->last] = (int32_t)s;
    channel->last = (int32_t)s;
    return TUTTI_OK;
}

static enum tutti_result wire_connect(struct tti_run *run)
{
    struct wire_index index = {.places = 64};
    size_t most = 0; /* channels: both ways with every peer (`peers` has all, verify_check.c) */
    for (int rank = 0; rank < run->nranks; rank++)
        most += 2 * (size_t)run->plans[rank]->npeers * (size_t)run->plans[rank]->nlanes;
    while (index.places < 2 * most)
        index.places *= 2;
    enum tutti_result result = TUTTI_ERR_MEMORY;
    index.keys = tti_calloc(index.places, sizeof *index.keys);
    index.channels = tti_calloc(index.places, sizeof *index.channels);
    if (index.keys && index.channels)
        result = TUTTI_OK;
    for (int32_t l = 0; result == TUTTI_OK && l < run->nlanes; l++)
        for (uint32_t s = 0; result == TUTTI_OK && s < run->lanes[l].count; s++)
            result = wire_connect_step(run, &index, &run->lanes[l], s);
    free(index.keys);
    free(index.channels);
    return result;
}

/* Number ranks' cells and lanes; they must fit 31 bits. */
static enum tutti_result wire_count(struct tti_run *run)
{
    int64_t lanes = 0;
    for (int rank = 0; rank < run->nranks; rank++) {
        const struct tti_plan *plan = run->plans[rank];
        tti_memory_of(plan, false, &run->memory[rank]);
        run->cell_base[rank + 1] = run->cell_base[rank] + run->memory[rank].cells;
        run->lane_base[rank] = (int32_t)lanes;
        lanes += plan->nlanes;
        if (plan->nlanes > 4096 || lanes > INT32_MAX / 2)
            return TTI_FAIL(TUTTI_ERR_INTERNAL, "rank %d: %d lanes are beyond the verifier", rank,
                            plan->nlanes);
        for (int lane = 0; lane < plan->nlanes; lane++)
            run->nsteps += plan->lanes[lane].count;
    }
    run->nlanes = (int32_t)lanes;
    run->lane_base[run->nranks] = run->nlanes;
    return TUTTI_OK;
}

static void wire_fill_lanes(struct tti_run *run)
{
    size_t base = 0;
    for (int rank = 0; rank < run->nranks; rank++)
        for (int lane = 0; lane < run->plans[rank]->nlanes; lane++) {
            const struct tti_lane *steps = &run->plans[rank]->lanes[lane];
            run->lanes[run->lane_base[rank] + lane] =
                (struct tti_run_lane){.rank = rank,
                                      .lane = lane,
                                      .steps = steps->steps,
                                      .count = (uint32_t)steps->count,
                                      .base = base};
            base += steps->count;
        }
}

static enum tutti_result wire_allocate(struct tti_run *run)
{
    run->memory = tti_calloc((size_t)run->nranks, sizeof *run->memory);
    run->cell_base = tti_calloc((size_t)run->nranks + 1, sizeof *run->cell_base);
    run->lane_base = tti_calloc((size_t)run->nranks + 1, sizeof *run->lane_base);
    if (!run->memory || !run->cell_base || !run->lane_base)
        return TUTTI_ERR_MEMORY;
    TTI_TRY(wire_count(run));
    run->cells = tti_calloc(run->cell_base[run->nranks], sizeof *run->cells);
    run->lanes = tti_calloc((size_t)run->nlanes, sizeof *run->lanes);
    run->queue = tti_calloc((size_t)run->nlanes, sizeof *run->queue);
    run->in = tti_calloc(run->nsteps, sizeof *run->in);
    run->out = tti_calloc(run->nsteps, sizeof *run->out);
    run->next = tti_calloc(run->nsteps, sizeof *run->next);
    run->unconsumed = tti_calloc(run->nsteps, sizeof *run->unconsumed);
    if (!run->cells || !run->lanes || !run->queue || !run->in || !run->out || !run->next ||
        !run->unconsumed)
        return TUTTI_ERR_MEMORY;
    wire_fill_lanes(run);
    return wire_connect(run);
}

enum tutti_result tti_run_create(struct tti_plan *const *plans, int nranks,
                                 struct tti_values *values, struct tti_run **run)
{
    struct tti_run *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->plans = plans;
    made->nranks = nranks;
    made->values = values;
    enum tutti_result result = wire_allocate(made);
    if (result != TUTTI_OK) {
        tti_run_destroy(made);
        return result;
    }
    *run = made;
    return TUTTI_OK;
}

void tti_run_destroy(struct tti_run *run)
{
    if (!run)
        return;
    for (size_t c = 0; c < run->nchannels; c++)
        free(run->channels[c].copy);
    free(run->memory);
    free(run->cell_base);
    free(run->cells);
    free(run->lane_base);
    free(run->lanes);
    free(run->channels);
    free(run->in);
    free(run->out);
    free(run->next);
    free(run->unconsumed);
    free(run->queue);
    free(run);
}
