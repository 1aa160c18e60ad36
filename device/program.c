/* See program.h. */
#include "device/program.h"

#include <string.h>

_Static_assert((int)TTI_DEVICE_IN == TTI_IN && (int)TTI_DEVICE_SLOT == TTI_SLOT, "buffers");
_Static_assert((int)TTI_DEVICE_COPY == TTI_COPY && (int)TTI_DEVICE_REDUCE == TTI_REDUCE &&
                   (int)TTI_DEVICE_SEND == TTI_SEND && (int)TTI_DEVICE_RECV == TTI_RECV &&
                   (int)TTI_DEVICE_RECV_REDUCE == TTI_RECV_REDUCE,
               "steps");
_Static_assert((int)TTI_DEVICE_FORWARD == TTI_FORWARD && (int)TTI_DEVICE_FINAL == TTI_FINAL &&
                   (int)TTI_DEVICE_MSG_LEFT == TTI_MSG_LEFT,
               "flags");

static bool step_sends(const struct tti_step *s)
{
    return s->kind == TTI_SEND || (s->flags & TTI_FORWARD);
}

static bool step_receives(const struct tti_step *s)
{
    return s->kind == TTI_RECV || s->kind == TTI_RECV_REDUCE;
}

static uint32_t ref_of(struct tti_ref ref)
{
    return TTI_DEVICE_REF(ref.buffer, ref.index);
}

/* Message number `number` of the lane that goes to `to`; NULL: there are not so many. */
static const struct tti_step *message_find(const struct tti_lane *lane, int to, uint32_t number)
{
    for (size_t i = 0; i < lane->count; i++)
        if (step_sends(&lane->steps[i]) && lane->steps[i].to == to && number-- == 0)
            return &lane->steps[i];
    return NULL;
}

/* The messages to each rank that steps up to `hazard` send: one need for each rank that gets any.
 */
static uint16_t needs_of(const struct tti_lane *lane, int hazard, struct tti_device_need *needs)
{
    uint32_t messages[TTI_GPU_RANKS] = {0};
    uint16_t count = 0;
    for (int i = 0; i <= hazard; i++)
        if (step_sends(&lane->steps[i]))
            messages[lane->steps[i].to]++;
    for (uint32_t r = 0; r < TTI_GPU_RANKS; r++) {
        if (messages[r] == 0)
            continue;
        if (needs)
            needs[count] = (struct tti_device_need){r, messages[r]};
        count++;
    }
    return count;
}

static size_t program_bytes(const struct tti_plan *plan, size_t *steps)
{
    size_t needs = 0;
    *steps = 0;
    for (int l = 0; l < plan->nlanes; l++) {
        *steps += plan->lanes[l].count;
        for (size_t i = 0; i < plan->lanes[l].count; i++)
            needs += needs_of(&plan->lanes[l], plan->lanes[l].steps[i].hazard, NULL);
    }
    return sizeof(struct tti_device_program) + *steps * sizeof(struct tti_device_step) +
           needs * sizeof(struct tti_device_need);
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

enum tutti_result tti_program_shape_of(struct tti_plan *const *plans, int nranks,
                                       struct tti_program_shape *shape)
{
    struct tti_program_shape found = {0};
    for (int r = 0; r < nranks; r++) {
        const struct tti_plan *plan = plans[r];
        size_t steps = 0;
        const size_t bytes = program_bytes(plan, &steps);
        if (nranks > TTI_GPU_RANKS || plan->nlanes > TTI_PLAN_LANES || bytes > UINT16_MAX)
            return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                            "a plan of %d lanes and %zu steps for %d ranks is more than a kernel "
                            "takes (%d lanes, %d ranks)",
                            plan->nlanes, steps, nranks, TTI_PLAN_LANES, TTI_GPU_RANKS);
        found.bytes = bytes > found.bytes ? bytes : found.bytes;
        found.scratch_blocks = larger(found.scratch_blocks, plan->scratch_blocks);
        found.slots = larger(found.slots, plan->slots);
        for (int l = 0; l < plan->nlanes; l++)
            for (size_t i = 0; i < plan->lanes[l].count; i++)
                if (step_sends(&plan->lanes[l].steps[i]))
                    found.message = larger(found.message, plan->lanes[l].steps[i].nchunks);
    }
    *shape = found;
    return TUTTI_OK;
}

struct making {
    struct tti_plan *const *plans;
    int rank;
    struct tti_device_program *program;
    struct tti_device_step *steps;
    struct tti_device_need *needs;
    size_t step_count, need_count;
};

/* What the kernel takes for granted: a ref's place in its block follows from the step's chunk. */
static bool ref_agrees(const struct tti_plan *plan, const struct tti_step *s, struct tti_ref ref)
{
    return ref.buffer == TTI_SLOT || ref.index % plan->chunks == s->chunk;
}

static bool refs_agree(const struct tti_plan *plan, const struct tti_step *s)
{
    return (s->kind == TTI_RECV || ref_agrees(plan, s, s->src)) &&
           (s->kind != TTI_REDUCE || ref_agrees(plan, s, s->src2)) &&
           (s->kind == TTI_SEND || ref_agrees(plan, s, s->dst));
}

static enum tutti_result make_step(struct making *m, int l, const struct tti_step *s,
                                   uint32_t *received)
{
    const struct tti_lane *lane = &m->plans[m->rank]->lanes[l];
    struct tti_device_step step = {
        .kind = s->kind,
        .flags = s->flags & (TTI_DEVICE_FORWARD | TTI_DEVICE_FINAL | TTI_DEVICE_MSG_LEFT),
        .from = (uint8_t)(step_receives(s) ? s->from : 0),
        .to = (uint8_t)(step_sends(s) ? s->to : 0),
        .chunk = s->chunk,
        .nchunks = s->nchunks,
        .src = ref_of(s->src),
        .src2 = ref_of(s->src2),
        .dst = ref_of(s->dst),
        .need = (uint16_t)m->need_count,
        .block = (uint8_t)(s->block < 0 ? 0 : s->block), /* none counts where it is not known */
    };
    if (!refs_agree(m->plans[m->rank], s))
        return TTI_FAIL(TUTTI_ERR_INTERNAL,
                        "plan of rank %d, lane %d, step %zu: a buffer's chunk is not the step's, "
                        "%u",
                        m->rank, l, (size_t)(s - lane->steps), s->chunk);
    if (step_receives(s)) {
        const struct tti_step *sent =
            l < m->plans[s->from]->nlanes
                ? message_find(&m->plans[s->from]->lanes[l], m->rank, received[s->from]++)
                : NULL;
        if (!sent || sent->chunk != s->chunk || sent->nchunks != s->nchunks ||
            sent->block != s->block)
            return TTI_FAIL(TUTTI_ERR_INTERNAL,
                            "plans of ranks %d and %d, lane %d: a message from the former of "
                            "chunks %u to %u is not what the latter receives",
                            (int)s->from, m->rank, l, s->chunk, s->chunk + s->nchunks);
        step.home = ref_of(sent->kind == TTI_SEND ? sent->src : sent->dst);
        m->program->lane[l].senders |= 1u << s->from;
    }
    step.needs = (uint8_t)needs_of(lane, s->hazard, m->needs + m->need_count);
    m->need_count += step.needs;
    m->steps[m->step_count++] = step;
    return TUTTI_OK;
}

enum tutti_result tti_program_make(struct tti_plan *const *plans, int nranks, int rank,
                                   void *memory, size_t room)
{
    const struct tti_plan *plan = plans[rank];
    size_t steps = 0;
    const size_t bytes = program_bytes(plan, &steps);
    (void)nranks;
    if (bytes > room)
        return TTI_FAIL(TUTTI_ERR_INTERNAL, "a plan's program takes %zu bytes, there are %zu",
                        bytes, room);
    struct making m = {.plans = plans, .rank = rank, .program = memory};
    m.steps = (struct tti_device_step *)(void *)(m.program + 1);
    m.needs = (struct tti_device_need *)(void *)(m.steps + steps);
    m.program->lanes = (uint32_t)plan->nlanes;
    m.program->needs_at = (uint32_t)((char *)m.needs - (char *)memory);
    for (int l = 0; l < plan->nlanes; l++) {
        uint32_t received[TTI_GPU_RANKS] = {0};
        m.program->lane[l].first = (uint32_t)m.step_count;
        m.program->lane[l].steps = (uint32_t)plan->lanes[l].count;
        for (size_t i = 0; i < plan->lanes[l].count; i++)
            TTI_TRY(make_step(&m, l, &plan->lanes[l].steps[i], received));
    }
    return TUTTI_OK;
}
