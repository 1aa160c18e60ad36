/* Writing a plan, and what finish works out from it (plan/build.h). */
#include "plan/build.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

void tti_plan_begin(struct tti_builder *builder, const struct tti_plan_spec *spec, int lanes,
                    uint32_t chunks, uint32_t scratch_blocks, uint32_t slots)
{
    builder->failed = true;
    builder->plan = tti_calloc(1, sizeof *builder->plan);
    if (!builder->plan)
        return;
    builder->plan->spec = *spec;
    builder->plan->spec.layout.host_of = NULL;
    memset(builder->plan->spec.layout.near, 0, sizeof builder->plan->spec.layout.near);
    builder->plan->spec.layout.gates = (struct tti_gates){0};
    builder->plan->chunks = chunks;
    builder->plan->scratch_blocks = scratch_blocks;
    builder->plan->slots = slots;
    builder->plan->reduces = tti_reduces(spec->collective);
    builder->plan->nlanes = lanes;
    builder->plan->lanes = tti_calloc((size_t)lanes, sizeof *builder->plan->lanes);
    builder->failed = !builder->plan->lanes;
}

static void build_append(struct tti_builder *builder, int lane, const struct tti_step *step)
{
    if (builder->failed || step->nchunks == 0)
        return;
    struct tti_lane *to = &builder->plan->lanes[lane];
    void *steps = to->steps;
    if (tti_grow(&steps, &to->capacity, to->count + 1, sizeof *to->steps) != TUTTI_OK) {
        builder->failed = true;
        return;
    }
    to->steps = steps;
    to->steps[to->count] = *step;
    to->steps[to->count].hazard = -1;
    to->steps[to->count].block = -1;
    to->count++;
}

void tti_copy(struct tti_builder *builder, int lane, uint32_t chunk, uint32_t n, struct tti_ref src,
              struct tti_ref dst, int flags, int to)
{
    build_append(builder, lane,
                 &(struct tti_step){.kind = TTI_COPY,
                                    .flags = (uint8_t)flags,
                                    .from = -1,
                                    .to = to,
                                    .chunk = chunk,
                                    .nchunks = n,
                                    .src = src,
                                    .dst = dst});
}

void tti_reduce_step(struct tti_builder *builder, int lane, uint32_t chunk, uint32_t n,
                     struct tti_ref src, struct tti_ref src2, struct tti_ref dst, int flags, int to)
{
    build_append(builder, lane,
                 &(struct tti_step){.kind = TTI_REDUCE,
                                    .flags = (uint8_t)flags,
                                    .from = -1,
                                    .to = to,
                                    .chunk = chunk,
                                    .nchunks = n,
                                    .src = src,
                                    .src2 = src2,
                                    .dst = dst});
}

void tti_send(struct tti_builder *builder, int lane, uint32_t chunk, uint32_t n, struct tti_ref src,
              int to)
{
    build_append(
        builder, lane,
        &(struct tti_step){
            .kind = TTI_SEND, .from = -1, .to = to, .chunk = chunk, .nchunks = n, .src = src});
}

void tti_recv(struct tti_builder *builder, int lane, uint32_t chunk, uint32_t n, int from,
              struct tti_ref dst, int flags, int to)
{
    build_append(builder, lane,
                 &(struct tti_step){.kind = TTI_RECV,
                                    .flags = (uint8_t)flags,
                                    .from = from,
                                    .to = to,
                                    .chunk = chunk,
                                    .nchunks = n,
                                    .dst = dst});
}

void tti_recv_reduce(struct tti_builder *builder, int lane, uint32_t chunk, uint32_t n, int from,
                     struct tti_ref src, struct tti_ref dst, int flags, int to)
{
    build_append(builder, lane,
                 &(struct tti_step){.kind = TTI_RECV_REDUCE,
                                    .flags = (uint8_t)flags,
                                    .from = from,
                                    .to = to,
                                    .chunk = chunk,
                                    .nchunks = n,
                                    .src = src,
                                    .dst = dst});
}

/* ---- finish: hazards ----
 * One cell per chunk of memory: the last step of the lane that sends from it. IN and OUT chunks
 * that are the same memory in place share a cell, so that a plan is safe both ways. A lane of few
 * steps over many chunks (logarithmic algorithms at scale) compares its ranges pairwise instead. */

struct build_cells {
    uint32_t chunks, in_chunks, out_chunks, scratch_chunks;
    bool aliased;
    uint32_t in_first, out_first; /* the aliased chunks start here in each buffer */
    uint32_t shared;              /* how many are aliased */
    int32_t *last_send;
    size_t count;
};

static size_t cell_of(const struct build_cells *cells, uint32_t buffer, uint32_t index)
{
    switch ((enum tti_buffer)buffer) {
    case TTI_IN:
        return index;
    case TTI_OUT:
        if (cells->aliased && index >= cells->out_first && index - cells->out_first < cells->shared)
            return cells->in_first + (index - cells->out_first);
        return (size_t)cells->in_chunks + index;
    case TTI_SCRATCH:
        return (size_t)cells->in_chunks + cells->out_chunks + index;
    case TTI_SLOT:
        break;
    }
    return (size_t)cells->in_chunks + cells->out_chunks + cells->scratch_chunks + index;
}

static void cells_lay_out(const struct tti_plan *plan, struct build_cells *cells)
{
    const struct tti_plan_spec *spec = &plan->spec;
    uint32_t in_blocks = 0, out_blocks = 0, in_block = 0, out_block = 0;
    tti_shape(spec->collective, spec->nranks, spec->rank, spec->root, &in_blocks, &out_blocks);
    memset(cells, 0, sizeof *cells);
    cells->chunks = plan->chunks;
    cells->in_chunks = in_blocks * plan->chunks;
    cells->out_chunks = out_blocks * plan->chunks;
    cells->scratch_chunks = plan->scratch_blocks * plan->chunks;
    cells->aliased = tti_plan_in_place(spec, &in_block, &out_block);
    cells->in_first = in_block * plan->chunks;
    cells->out_first = out_block * plan->chunks;
    uint32_t in_rest = cells->in_chunks - cells->in_first;
    uint32_t out_rest = cells->out_chunks - cells->out_first;
    cells->shared = in_rest < out_rest ? in_rest : out_rest;
    cells->count =
        (size_t)cells->in_chunks + cells->out_chunks + cells->scratch_chunks + plan->slots;
}

/* Refs come from algorithms that may be wrong; the verifier reports those, so just stay inside. */
static bool cell_in_range(const struct build_cells *cells, struct tti_ref ref, uint32_t n)
{
    size_t first = cell_of(cells, ref.buffer, ref.index);
    return first < cells->count && n <= cells->count && (size_t)ref.index + n <= cells->count;
}

static struct tti_ref sent_ref(const struct tti_step *step)
{
    return step->kind == TTI_SEND ? step->src : step->dst;
}

static bool step_sends(const struct tti_step *step)
{
    return step->kind == TTI_SEND || (step->flags & TTI_FORWARD);
}

static void cell_hazards(struct tti_lane *lane, struct build_cells *cells)
{
    for (size_t i = 0; i < cells->count; i++)
        cells->last_send[i] = -1;
    for (size_t s = 0; s < lane->count; s++) {
        struct tti_step *step = &lane->steps[s];
        bool writes = step->kind != TTI_SEND;
        bool sends = step_sends(step);
        struct tti_ref sent = sent_ref(step);
        for (uint32_t k = 0; writes && k < step->nchunks; k++) {
            size_t cell = cell_of(cells, step->dst.buffer, step->dst.index + k);
            if (cell_in_range(cells, step->dst, step->nchunks) && cell < cells->count &&
                cells->last_send[cell] > step->hazard)
                step->hazard = cells->last_send[cell];
        }
        for (uint32_t k = 0; sends && k < step->nchunks; k++) {
            size_t cell = cell_of(cells, sent.buffer, sent.index + k);
            if (cell_in_range(cells, sent, step->nchunks) && cell < cells->count)
                cells->last_send[cell] = (int32_t)s;
        }
    }
}

static bool ranges_meet(uint64_t a, uint64_t a_count, uint64_t b, uint64_t b_count)
{
    return a < b + b_count && b < a + a_count;
}

/* Do n chunks from IN index `in` and m chunks from OUT index `out` share memory in place? */
static bool aliases_meet(const struct build_cells *cells, uint64_t in, uint64_t n, uint64_t out,
                         uint64_t m)
{
    uint64_t first = out > cells->out_first ? out : cells->out_first;
    uint64_t end = (uint64_t)cells->out_first + cells->shared;
    end = out + m < end ? out + m : end;
    return cells->aliased && first < end &&
           ranges_meet(in, n, first - cells->out_first + cells->in_first, end - first);
}

static bool refs_meet(const struct build_cells *cells, struct tti_ref a, uint32_t a_count,
                      struct tti_ref b, uint32_t b_count)
{
    if (a.buffer == b.buffer)
        return ranges_meet(a.index, a_count, b.index, b_count);
    if (a.buffer == TTI_IN && b.buffer == TTI_OUT)
        return aliases_meet(cells, a.index, a_count, b.index, b_count);
    if (a.buffer == TTI_OUT && b.buffer == TTI_IN)
        return aliases_meet(cells, b.index, b_count, a.index, a_count);
    return false;
}

static void pair_hazards(struct tti_lane *lane, const struct build_cells *cells)
{
    for (size_t s = 0; s < lane->count; s++) {
        struct tti_step *step = &lane->steps[s];
        for (size_t j = s; step->kind != TTI_SEND && j-- > 0 && step->hazard < 0;) {
            const struct tti_step *sender = &lane->steps[j];
            if (step_sends(sender) &&
                refs_meet(cells, step->dst, step->nchunks, sent_ref(sender), sender->nchunks))
                step->hazard = (int32_t)j;
        }
    }
}

static enum tutti_result plan_hazards(struct tti_plan *plan)
{
    struct build_cells cells;
    cells_lay_out(plan, &cells);
    for (int lane = 0; lane < plan->nlanes; lane++) {
        size_t steps = plan->lanes[lane].count;
        if (steps < 1024 && steps * steps / 2 < cells.count) {
            pair_hazards(&plan->lanes[lane], &cells);
            continue;
        }
        if (!cells.last_send)
            cells.last_send = tti_calloc(cells.count, sizeof *cells.last_send);
        if (!cells.last_send)
            return TUTTI_ERR_MEMORY;
        cell_hazards(&plan->lanes[lane], &cells);
    }
    free(cells.last_send);
    return TUTTI_OK;
}

/* ---- finish: whose block a step is about ----
 * What is in IN or OUT says it itself. Slots and scratch hold what was put there last, which is
 * known from there on; or, where a message was put down, back from the step that combines it with
 * something known. */

struct build_holds {
    const struct tti_plan *plan;
    int32_t *slots, *scratch; /* by slot, by block of scratch; -1: not known */
};

static bool ref_tells(struct tti_ref ref)
{
    return ref.buffer == TTI_IN || ref.buffer == TTI_OUT;
}

/* The places that `ref` means, and their number: of a slot one. */
static int32_t *holds_at(const struct build_holds *holds, struct tti_ref ref,
                         const struct tti_step *step, uint32_t *count)
{
    const struct tti_plan *plan = holds->plan;
    const uint32_t block = ref.index / plan->chunks;
    *count = ref.buffer == TTI_SLOT ? 1 : (step->chunk + step->nchunks - 1) / plan->chunks + 1;
    if (ref.buffer == TTI_SLOT ? ref.index >= plan->slots : block + *count > plan->scratch_blocks)
        *count = 0; /* an algorithm that is wrong: the verifier says so */
    return ref.buffer == TTI_SLOT ? &holds->slots[ref.index] : &holds->scratch[block];
}

static int32_t holds_next(const struct build_holds *holds, int32_t block, uint32_t k)
{
    return (int32_t)(((uint32_t)block + k) % (uint32_t)holds->plan->spec.nranks);
}

/* The first block of what `ref` holds, -1: not known. */
static int32_t holds_block(const struct build_holds *holds, struct tti_ref ref,
                           const struct tti_step *step)
{
    const struct tti_plan *plan = holds->plan;
    const bool gathers = plan->spec.collective == TUTTI_ALL_GATHER;
    if (ref_tells(ref))
        return (ref.buffer == TTI_OUT) == gathers ? (int32_t)(ref.index / plan->chunks)
                                                  : plan->spec.rank;
    uint32_t count = 0;
    const int32_t *at = holds_at(holds, ref, step, &count);
    for (uint32_t k = 0; k < count; k++)
        if (at[0] < 0 || at[k] != holds_next(holds, at[0], k))
            return -1;
    return count > 0 ? at[0] : -1;
}

static void holds_put(struct build_holds *holds, struct tti_ref ref, const struct tti_step *step,
                      int32_t block)
{
    uint32_t count = 0;
    if (ref_tells(ref))
        return;
    int32_t *at = holds_at(holds, ref, step, &count);
    for (uint32_t k = 0; k < count; k++)
        at[k] = block < 0 ? -1 : holds_next(holds, block, k);
}

/* What a step names, without what it only writes. */
static size_t step_reads(const struct tti_step *step, struct tti_ref refs[2])
{
    refs[0] = step->src;
    refs[1] = step->src2;
    return step->kind == TTI_RECV ? 0 : step->kind == TTI_REDUCE ? 2 : 1;
}

static void block_forward(struct build_holds *holds, struct tti_step *step)
{
    struct tti_ref refs[2];
    const size_t reads = step_reads(step, refs);
    step->block = -1;
    for (size_t i = 0; i < reads && step->block < 0; i++)
        step->block = holds_block(holds, refs[i], step);
    if (step->kind == TTI_SEND)
        return;
    if (ref_tells(step->dst))
        step->block = holds_block(holds, step->dst, step);
    holds_put(holds, step->dst, step, step->block);
}

static void block_backward(struct build_holds *holds, struct tti_step *step)
{
    struct tti_ref refs[2];
    const size_t reads = step_reads(step, refs);
    if (step->kind != TTI_SEND) {
        if (step->block < 0)
            step->block = holds_block(holds, step->dst, step);
        holds_put(holds, step->dst, step, -1);
    }
    for (size_t i = 0; i < reads; i++)
        holds_put(holds, refs[i], step, step->block);
}

static enum tutti_result plan_blocks(struct tti_plan *plan)
{
    const size_t count = plan->slots + (size_t)plan->scratch_blocks;
    struct build_holds holds = {.plan = plan, .slots = tti_calloc(count, sizeof *holds.slots)};
    if (!holds.slots)
        return TUTTI_ERR_MEMORY;
    holds.scratch = holds.slots + plan->slots;
    for (int lane = 0; lane < plan->nlanes; lane++) {
        struct tti_lane *of = &plan->lanes[lane];
        memset(holds.slots, -1, count * sizeof *holds.slots);
        for (size_t s = 0; s < of->count; s++)
            block_forward(&holds, &of->steps[s]);
        memset(holds.slots, -1, count * sizeof *holds.slots);
        for (size_t s = of->count; s-- > 0;)
            block_backward(&holds, &of->steps[s]);
    }
    free(holds.slots);
    return TUTTI_OK;
}

static int compare_ints(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static enum tutti_result plan_peers(struct tti_plan *plan)
{
    size_t most = 0;
    for (int lane = 0; lane < plan->nlanes; lane++)
        most += 2 * plan->lanes[lane].count;
    plan->peers = tti_calloc(most, sizeof *plan->peers);
    if (!plan->peers)
        return TUTTI_ERR_MEMORY;
    size_t count = 0;
    for (int lane = 0; lane < plan->nlanes; lane++)
        for (size_t s = 0; s < plan->lanes[lane].count; s++) {
            const struct tti_step *step = &plan->lanes[lane].steps[s];
            if (step->from >= 0)
                plan->peers[count++] = step->from;
            if (step->to >= 0)
                plan->peers[count++] = step->to;
        }
    qsort(plan->peers, count, sizeof *plan->peers, compare_ints);
    plan->npeers = 0;
    for (size_t i = 0; i < count; i++)
        if (i == 0 || plan->peers[i] != plan->peers[i - 1])
            plan->peers[plan->npeers++] = plan->peers[i];
    return TUTTI_OK;
}

enum tutti_result tti_plan_finish(struct tti_builder *builder, struct tti_plan **plan)
{
    struct tti_plan *built = builder->plan;
    builder->plan = NULL;
    enum tutti_result result = builder->failed ? TUTTI_ERR_MEMORY : plan_hazards(built);
    if (result == TUTTI_OK && tti_has_uneven(built->spec.collective))
        result = plan_blocks(built);
    if (result == TUTTI_OK)
        result = plan_peers(built);
    if (result != TUTTI_OK) {
        tti_plan_destroy(built);
        return result;
    }
    *plan = built;
    return TUTTI_OK;
}
