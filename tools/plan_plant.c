/* Planted errors: tutti-plan verify --plant breaks one step of one plan, to show that the verifier
 * notices. Every kind below makes a plan wrong, whichever step it hits. */
#include "base/config.h"
#include "plan/build.h"
#include "plan/print.h"
#include "tools/plan_tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum plant_kind { DROP_STEP, REPEAT_STEP, WRONG_PEER, WRONG_CHUNK, DROP_FLAG, PLANT_KINDS };

static const char *const plant_names[PLANT_KINDS] = {
    [DROP_STEP] = "drop-step",     [REPEAT_STEP] = "repeat-step", [WRONG_PEER] = "wrong-peer",
    [WRONG_CHUNK] = "wrong-chunk", [DROP_FLAG] = "drop-flag",
};

enum tutti_result plan_plant_parse(const char *text, struct plan_plant *plant)
{
    const char *colon = strchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : strlen(text);
    long seed = 1;
    if (colon)
        TTI_TRY(tti_parse_int("the seed of --plant", colon + 1, 0, 1000000000, &seed));
    for (int kind = 0; kind < PLANT_KINDS; kind++)
        if (strlen(plant_names[kind]) == length && strncmp(text, plant_names[kind], length) == 0) {
            *plant = (struct plan_plant){kind, (unsigned)seed};
            return TUTTI_OK;
        }
    return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                    "--plant is \"%s\"; expected drop-step, repeat-step, wrong-peer, wrong-chunk "
                    "or drop-flag, and :seed if you like",
                    text);
}

static void shift_ref(struct tti_ref *ref, int by)
{
    if (ref->buffer != TTI_SLOT)
        ref->index = (ref->index + (uint32_t)by) & 0x3fffffffu;
}

static bool plant_chunk(const struct tti_plan *plan, struct tti_step *step)
{
    int by = step->chunk + step->nchunks < plan->chunks ? 1 : -1;
    if (by < 0 && step->chunk == 0)
        return false;
    step->chunk += (uint32_t)by;
    if (step->kind != TTI_RECV)
        shift_ref(&step->src, by);
    if (step->kind == TTI_REDUCE)
        shift_ref(&step->src2, by);
    if (step->kind != TTI_SEND)
        shift_ref(&step->dst, by);
    return true;
}

static bool plant_peer(const struct tti_plan *plan, struct tti_step *step)
{
    int32_t *peer = step->to >= 0 ? &step->to : &step->from;
    if (*peer < 0 || plan->spec.nranks < 3)
        return false;
    do {
        *peer = (*peer + 1) % plan->spec.nranks;
    } while (*peer == plan->spec.rank);
    return true;
}

static bool plant_flag(struct tti_step *step)
{
    static const int flags[] = {TTI_MSG_ACC, TTI_FINAL, TTI_FORWARD};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
        if (step->flags & flags[i]) {
            step->flags = (uint8_t)(step->flags & ~flags[i]);
            if (flags[i] == TTI_FORWARD)
                step->to = -1;
            return true;
        }
    return false;
}

/* Duplicate steps[at]. The lane had capacity for one more or is grown. */
static bool plant_repeat(struct tti_lane *lane, size_t at)
{
    const struct tti_step *step = &lane->steps[at];
    if (step->to < 0 && step->from < 0)
        return false;
    struct tti_step *steps = realloc(lane->steps, (lane->count + 1) * sizeof *steps);
    if (!steps)
        return false;
    memmove(&steps[at + 1], &steps[at], (lane->count - at) * sizeof *steps);
    lane->steps = steps;
    lane->capacity = ++lane->count;
    return true;
}

static bool plant_step(int kind, struct tti_plan *plan, struct tti_lane *lane, size_t at)
{
    switch ((enum plant_kind)kind) {
    case DROP_STEP:
        lane->count--;
        memmove(&lane->steps[at], &lane->steps[at + 1], (lane->count - at) * sizeof *lane->steps);
        return true;
    case REPEAT_STEP:
        return plant_repeat(lane, at);
    case WRONG_PEER:
        return plant_peer(plan, &lane->steps[at]);
    case WRONG_CHUNK:
        return plant_chunk(plan, &lane->steps[at]);
    case DROP_FLAG:
    case PLANT_KINDS:
        break;
    }
    return plant_flag(&lane->steps[at]);
}

/* Hazards and peers of the changed plan, so that only what was planted is wrong. */
static enum tutti_result plant_finish(struct tti_plan **plan)
{
    struct tti_builder builder = {.plan = *plan};
    for (int lane = 0; lane < (*plan)->nlanes; lane++)
        for (size_t s = 0; s < (*plan)->lanes[lane].count; s++)
            (*plan)->lanes[lane].steps[s].hazard = -1;
    free((*plan)->peers);
    (*plan)->peers = NULL;
    *plan = NULL; /* finish releases it on failure */
    return tti_plan_finish(&builder, plan);
}

static enum tutti_result plant_in_lane(const struct plan_plant *plant, struct tti_plan **plan,
                                       int index, bool *applied)
{
    struct tti_lane *lane = &(*plan)->lanes[index];
    for (size_t i = 0; i < lane->count; i++) {
        size_t at = (i + plant->seed / 7) % lane->count;
        char was[TTI_STEP_TEXT_BYTES];
        tti_step_text(&lane->steps[at], was, sizeof was);
        if (!plant_step(plant->kind, *plan, lane, at))
            continue;
        const struct tti_plan_spec *spec = &(*plan)->spec;
        printf("planted %s: %s of %d ranks, root %d, lanes %d, slices %d: rank %d, lane %d, step "
               "%zu, which was: %s\n",
               plant_names[plant->kind], tutti_collective_name(spec->collective), spec->nranks,
               spec->root, spec->lanes, spec->slices, spec->rank, index, at, was);
        *applied = true;
        return plant_finish(plan);
    }
    return TUTTI_OK;
}

enum tutti_result plan_plant_apply(const struct plan_plant *plant, struct tti_plan **plans,
                                   int nranks, bool *applied)
{
    *applied = false;
    for (int i = 0; i < nranks; i++) {
        int rank = (int)((plant->seed + (unsigned)i) % (unsigned)nranks);
        for (int lane = 0; lane < plans[rank]->nlanes && !*applied; lane++)
            TTI_TRY(plant_in_lane(plant, &plans[rank], lane, applied));
        if (*applied)
            return TUTTI_OK;
    }
    return TUTTI_OK;
}
