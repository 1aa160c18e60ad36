/* A plain interpreter of all-reduce plans (tests/plan/concrete.h). Shares no code with the verifier
 * or the builder. A number is 64 random bits, memory starts as noise, TTI_FINAL maps x to 3x + 7,
 * and an accumulator travels in disguise, so that a wrong flag shows in the result. Numbers are
 * added, or combined so that each order and each grouping gives another result. */
#include "tests/plan/concrete.h"

#include "tests/tutti_cmocka.h"

#include <stdlib.h>
#include <string.h>

enum { RANKS = 8, LANES = 4, PENDING = 64 };
static const uint64_t disguise = 0x5bd1e9955bd1e995u;

struct channel {
    int count;
    size_t step[PENDING];        /* of the sender */
    uint64_t value[PENDING][32]; /* copied at send */
};

struct world {
    struct tti_plan *const *plans;
    int nranks;
    bool lazy, in_place, ordered, partial;
    bool narrowed; /* partial: a contribution was put where it would be rounded */
    uint64_t *memory[RANKS][4];
    struct channel *channels; /* [from][to][lane] */
    size_t done[RANKS][LANES];
    bool computed[RANKS][LANES];
};

uint64_t concrete_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static struct channel *channel_of(struct world *world, int from, int to, int lane)
{
    return &world->channels[(from * world->nranks + to) * LANES + lane];
}

static uint64_t *word(struct world *world, int rank, struct tti_ref ref, uint32_t k)
{
    uint32_t buffer = ref.buffer == TTI_OUT && world->in_place ? TTI_IN : ref.buffer;
    return &world->memory[rank][buffer][ref.index + k];
}

static struct tti_ref sent_ref(const struct tti_step *step)
{
    return step->kind == TTI_SEND ? step->src : step->dst;
}

static bool is_accumulator(const struct world *world, struct tti_ref ref)
{
    return ref.buffer == TTI_SCRATCH || ref.buffer == TTI_SLOT ||
           (world->partial && ref.buffer == TTI_IN);
}

/* Chunk k of the next message; the channel has one. */
static uint64_t message(struct world *world, int from, int to, int lane, uint32_t k)
{
    struct channel *channel = channel_of(world, from, to, lane);
    if (!world->lazy)
        return channel->value[0][k];
    struct tti_ref ref = sent_ref(&world->plans[from]->lanes[lane].steps[channel->step[0]]);
    return *word(world, from, ref, k) ^ (is_accumulator(world, ref) ? disguise : 0);
}

static bool sends_pending(struct world *world, int rank, int lane, int32_t hazard)
{
    for (int to = 0; to < world->nranks; to++) {
        const struct channel *channel = channel_of(world, rank, to, lane);
        for (int i = 0; i < channel->count; i++)
            if ((int64_t)channel->step[i] <= hazard)
                return true;
    }
    return false;
}

static uint64_t combine(const struct world *world, uint64_t left, uint64_t right)
{
    return world->ordered ? (left ^ left >> 29) * 0x9e3779b97f4a7c15u + right : left + right;
}

/* What the step computes from its operands. */
static uint64_t result_of(const struct world *world, const struct tti_step *step, uint64_t src,
                          uint64_t other)
{
    if (step->kind == TTI_COPY)
        return src;
    if (step->kind == TTI_RECV)
        return other;
    return step->flags & TTI_MSG_LEFT ? combine(world, other, src) : combine(world, src, other);
}

static void compute(struct world *world, int rank, int lane, const struct tti_step *step)
{
    for (uint32_t k = 0; step->kind != TTI_SEND && k < step->nchunks; k++) {
        bool receives = step->kind == TTI_RECV || step->kind == TTI_RECV_REDUCE;
        uint64_t src = step->kind == TTI_RECV ? 0 : *word(world, rank, step->src, k), other = 0;
        if (step->kind == TTI_REDUCE)
            other = *word(world, rank, step->src2, k);
        if (receives)
            other = message(world, step->from, rank, lane, k) ^
                    (step->flags & TTI_MSG_ACC ? disguise : 0);
        uint64_t sum = result_of(world, step, src, other);
        world->narrowed |= world->partial && step->dst.buffer == TTI_OUT &&
                           !(step->flags & TTI_FINAL) &&
                           (step->kind != TTI_RECV || step->flags & TTI_MSG_ACC);
        *word(world, rank, step->dst, k) = step->flags & TTI_FINAL ? 3 * sum + 7 : sum;
    }
}

static void pop(struct channel *channel)
{
    channel->count--;
    memmove(channel->step, channel->step + 1, (size_t)channel->count * sizeof channel->step[0]);
    memmove(channel->value, channel->value + 1, (size_t)channel->count * sizeof channel->value[0]);
}

/* One move of one lane; false when it has to wait. */
static bool move(struct world *world, int rank, int lane)
{
    const struct tti_step *step = &world->plans[rank]->lanes[lane].steps[world->done[rank][lane]];
    if (!world->computed[rank][lane]) {
        struct channel *in = step->from < 0 ? NULL : channel_of(world, step->from, rank, lane);
        if ((in && in->count == 0) ||
            (world->lazy && sends_pending(world, rank, lane, step->hazard)))
            return false;
        compute(world, rank, lane, step);
        if (in)
            pop(in);
        world->computed[rank][lane] = true;
        return true;
    }
    if (step->to >= 0) {
        struct channel *out = channel_of(world, rank, step->to, lane);
        if (!world->lazy && out->count > 0)
            return false;
        assert_true(out->count < PENDING && step->nchunks <= 32);
        for (uint32_t k = 0; k < step->nchunks; k++)
            out->value[out->count][k] = *word(world, rank, sent_ref(step), k) ^
                                        (is_accumulator(world, sent_ref(step)) ? disguise : 0);
        out->step[out->count++] = world->done[rank][lane];
    }
    world->computed[rank][lane] = false;
    world->done[rank][lane]++;
    return true;
}

static bool at_end(const struct world *world, int rank, int lane)
{
    const struct tti_plan *plan = world->plans[rank];
    return lane >= plan->nlanes || world->done[rank][lane] == plan->lanes[lane].count;
}

static const char *run(struct world *world, uint64_t *random)
{
    for (;;) {
        uint64_t first = concrete_random(random);
        bool all_done = true, moved = false;
        for (int i = 0; !moved && i < world->nranks * LANES; i++) {
            int which = (int)((first + (uint64_t)i) % (uint64_t)(world->nranks * LANES));
            if (at_end(world, which / LANES, which % LANES))
                continue;
            all_done = false;
            moved = move(world, which / LANES, which % LANES);
        }
        if (all_done)
            return NULL;
        if (!moved)
            return "deadlock";
    }
}

static const char *judge(struct world *world, const uint64_t *sums)
{
    for (int c = 0; c < world->nranks * world->nranks * LANES; c++)
        if (world->channels[c].count > 0)
            return "a message was never received";
    for (int rank = 0; rank < world->nranks; rank++)
        for (uint32_t i = 0; i < world->plans[rank]->chunks; i++)
            if (*word(world, rank, (struct tti_ref){TTI_OUT, i}, 0) != 3 * sums[i] + 7)
                return "a wrong result";
    return NULL;
}

static const char *all_reduce(struct world *world, uint64_t *random)
{
    struct tti_plan *const *plans = world->plans;
    const int nranks = world->nranks;
    uint64_t sums[64] = {0};
    assert_in_range(nranks, 1, RANKS);
    assert_in_range(plans[0]->chunks, 1, 64);
    world->channels = calloc((size_t)(nranks * nranks) * LANES, sizeof *world->channels);
    assert_non_null(world->channels);
    for (int rank = 0; rank < nranks; rank++) {
        const struct tti_plan *plan = plans[rank];
        uint32_t sizes[4] = {plan->chunks, plan->chunks, plan->chunks * plan->scratch_blocks,
                             plan->slots};
        for (int buffer = 0; buffer < 4; buffer++) {
            world->memory[rank][buffer] = calloc(sizes[buffer] + 1, sizeof(uint64_t));
            assert_non_null(world->memory[rank][buffer]);
            for (uint32_t i = 0; i < sizes[buffer]; i++)
                world->memory[rank][buffer][i] = concrete_random(random);
        }
        for (uint32_t i = 0; i < plan->chunks; i++)
            sums[i] = rank == 0 ? world->memory[rank][TTI_IN][i]
                                : combine(world, sums[i], world->memory[rank][TTI_IN][i]);
    }
    const char *wrong = run(world, random);
    if (!wrong)
        wrong = world->narrowed ? "a contribution is rounded" : judge(world, sums);
    for (int rank = 0; rank < nranks; rank++)
        for (int buffer = 0; buffer < 4; buffer++)
            free(world->memory[rank][buffer]);
    free(world->channels);
    return wrong;
}

const char *concrete_all_reduce(struct tti_plan *const *plans, int nranks, bool lazy, bool in_place,
                                bool ordered, uint64_t *random)
{
    struct world world = {
        .plans = plans, .nranks = nranks, .lazy = lazy, .in_place = in_place, .ordered = ordered};
    return all_reduce(&world, random);
}

const char *concrete_partial_all_reduce(struct tti_plan *const *plans, int nranks, bool lazy,
                                        uint64_t *random)
{
    struct world world = {.plans = plans, .nranks = nranks, .lazy = lazy, .partial = true};
    return all_reduce(&world, random);
}
