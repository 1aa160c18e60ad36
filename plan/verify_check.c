/* The verifier's look at one plan by itself: is every step well formed, is every slot read as what
 * it holds, does `hazard` cover every send that a write could overtake, do lanes keep out of each
 * other's way? In-place sharing of IN and OUT counts wherever the collective has it, since one plan
 * serves both placements. Read next: plan/verify_run.c. */
#include "plan/verify_parts.h"

#include "base/memory.h"
#include "plan/print.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void tti_memory_of(const struct tti_plan *plan, bool in_place, struct tti_memory *memory)
{
    const struct tti_plan_spec *spec = &plan->spec;
    uint32_t in_blocks = 0, out_blocks = 0, in_block = 0, out_block = 0;
    tti_shape(spec->collective, spec->nranks, spec->rank, spec->root, &in_blocks, &out_blocks);
    *memory = (struct tti_memory){
        .size = {in_blocks * plan->chunks, out_blocks * plan->chunks,
                 plan->scratch_blocks * plan->chunks, plan->slots},
    };
    for (int buffer = 0; buffer < 4; buffer++) {
        memory->first[buffer] = memory->cells;
        memory->cells += memory->size[buffer];
    }
    if (in_place && tti_plan_in_place(spec, &in_block, &out_block)) {
        memory->in_from = in_block * plan->chunks;
        memory->out_from = out_block * plan->chunks;
        uint32_t in_rest = memory->size[TTI_IN] - memory->in_from;
        uint32_t out_rest = memory->size[TTI_OUT] - memory->out_from;
        memory->shared = in_rest < out_rest ? in_rest : out_rest;
    }
}

enum tutti_result tti_verify_fail(const struct tti_plan *plan, int lane, size_t step,
                                  const char *format, ...)
{
    char text[TTI_STEP_TEXT_BYTES], what[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    const struct tti_step *at = &plan->lanes[lane].steps[step];
    return TTI_FAIL(TUTTI_ERR_INTERNAL,
                    "rank %d lane %d step %zu: chunk %u: %s; the step is \"%s\"", plan->spec.rank,
                    lane, step, at->chunk, what, tti_step_text(at, text, sizeof text));
}

/* ---- form: refs, peers, flags ---- */

static enum tutti_result check_ref(const struct tti_plan *plan, const struct tti_memory *memory,
                                   int lane, size_t step, const char *name, struct tti_ref ref,
                                   bool used)
{
    const struct tti_step *at = &plan->lanes[lane].steps[step];
    if (!used) {
        if (ref.buffer != 0 || ref.index != 0)
            return tti_verify_fail(plan, lane, step, "the unused %s is set", name);
        return TUTTI_OK;
    }
    const char *buffer = tti_buffer_name(ref.buffer);
    uint32_t size = memory->size[ref.buffer];
    if (ref.index >= size || at->nchunks > size - ref.index)
        return tti_verify_fail(plan, lane, step,
                               "%s is %s[%u] + %u chunks, but that buffer has %u of them here",
                               name, buffer, ref.index, at->nchunks, size);
    if (ref.buffer == TTI_SLOT && at->nchunks != 1)
        return tti_verify_fail(plan, lane, step, "%s takes %u chunks of slots, a step takes one",
                               name, at->nchunks);
    if (ref.buffer != TTI_SLOT && ref.index % plan->chunks != at->chunk)
        return tti_verify_fail(plan, lane, step, "%s %s[%u] is chunk %u of its block, not %u", name,
                               buffer, ref.index, ref.index % plan->chunks, at->chunk);
    return TUTTI_OK;
}

static bool is_peer(const struct tti_plan *plan, int rank)
{
    for (int low = 0, high = plan->npeers; low < high;) {
        int middle = low + (high - low) / 2;
        if (plan->peers[middle] == rank)
            return true;
        if (plan->peers[middle] < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return false;
}

static enum tutti_result check_peer(const struct tti_plan *plan, int lane, size_t step,
                                    const char *name, int peer, bool used)
{
    if (!used) {
        if (peer != -1)
            return tti_verify_fail(plan, lane, step, "`%s` is rank %d, but nothing goes there",
                                   name, peer);
        return TUTTI_OK;
    }
    if (peer < 0 || peer >= plan->spec.nranks)
        return tti_verify_fail(plan, lane, step, "`%s` is rank %d of %d", name, peer,
                               plan->spec.nranks);
    if (peer == plan->spec.rank)
        return tti_verify_fail(plan, lane, step, "`%s` is the rank itself", name);
    if (!is_peer(plan, peer))
        return tti_verify_fail(plan, lane, step, "`%s` is rank %d, which `peers` lacks", name,
                               peer);
    return TUTTI_OK;
}

static enum tutti_result check_flags(const struct tti_plan *plan, int lane, size_t step)
{
    const struct tti_step *at = &plan->lanes[lane].steps[step];
    int flags = at->flags;
    if (flags & ~(TTI_FORWARD | TTI_FINAL | TTI_MSG_ACC | TTI_MSG_LEFT))
        return tti_verify_fail(plan, lane, step, "unknown flag bits in %#x", (unsigned)flags);
    if ((flags & TTI_FORWARD) && at->kind == TTI_SEND)
        return tti_verify_fail(plan, lane, step, "TTI_FORWARD on a send");
    if ((flags & TTI_MSG_ACC) && !tti_step_receives(at))
        return tti_verify_fail(plan, lane, step, "TTI_MSG_ACC without a message");
    if ((flags & TTI_MSG_LEFT) && at->kind != TTI_RECV_REDUCE)
        return tti_verify_fail(plan, lane, step, "TTI_MSG_LEFT is for receive-reduce only");
    if (!plan->reduces && ((flags & (TTI_FINAL | TTI_MSG_ACC)) || tti_step_reduces(at)))
        return tti_verify_fail(plan, lane, step, "a reduction in a plan that does not reduce");
    if ((flags & TTI_FINAL) && (at->kind == TTI_SEND || at->kind == TTI_RECV))
        return tti_verify_fail(plan, lane, step, "TTI_FINAL where nothing is computed");
    return TUTTI_OK;
}

static enum tutti_result check_form(const struct tti_plan *plan, const struct tti_memory *memory,
                                    int lane, size_t step)
{
    const struct tti_step *at = &plan->lanes[lane].steps[step];
    if (at->kind > TTI_RECV_REDUCE)
        return tti_verify_fail(plan, lane, step, "step kind %d does not exist", at->kind);
    if (at->chunk >= plan->chunks || at->nchunks == 0)
        return tti_verify_fail(plan, lane, step, "%u chunks from %u on, in blocks of %u",
                               at->nchunks, at->chunk, plan->chunks);
    bool src = at->kind != TTI_RECV, dst = at->kind != TTI_SEND;
    TTI_TRY(check_flags(plan, lane, step));
    TTI_TRY(check_ref(plan, memory, lane, step, "src", at->src, src));
    TTI_TRY(check_ref(plan, memory, lane, step, "src2", at->src2, at->kind == TTI_REDUCE));
    TTI_TRY(check_ref(plan, memory, lane, step, "dst", at->dst, dst));
    if (dst && at->dst.buffer == TTI_IN)
        return tti_verify_fail(plan, lane, step, "IN is written, which the caller only lends");
    TTI_TRY(check_peer(plan, lane, step, "from", at->from, tti_step_receives(at)));
    return check_peer(plan, lane, step, "to", at->to, tti_step_sends(at));
}

/* ---- memory: hazards, slots, lanes ---- */

enum { CHECK_NOBODY = -1 };

/* What is known about one cell while the lanes are read, one after the other. */
struct check_cell {
    int32_t user;       /* the first lane that uses it */
    uint32_t used;      /* at this step */
    int32_t writer;     /* the lane that writes it */
    uint32_t written;   /* at this step, last */
    int32_t sender;     /* lane of `sent` */
    int32_t sent;       /* the latest step that sends from it */
    int32_t slot_chunk; /* slots: chunk put there last, or -1 */
    uint32_t mark;      /* the step that writes it, counted over all lanes, and as which of its */
    uint32_t mark_as;   /* chunks: finds overlap of a step's own operands */
};

struct check {
    const struct tti_plan *plan;
    struct tti_memory memory;
    struct check_cell *cells;
    uint32_t stamp;
};

static enum tutti_result check_lanes(struct check *check, int lane, size_t step, struct tti_ref ref,
                                     uint32_t k, bool write)
{
    struct check_cell *cell =
        &check->cells[tti_memory_cell(&check->memory, ref.buffer, ref.index + k)];
    if (write && cell->user != CHECK_NOBODY && cell->user != lane)
        return tti_verify_fail(check->plan, lane, step,
                               "writes %s[%u], which lane %d uses (step %u)",
                               tti_buffer_name(ref.buffer), ref.index + k, cell->user, cell->used);
    if (cell->writer != CHECK_NOBODY && cell->writer != lane)
        return tti_verify_fail(
            check->plan, lane, step, "uses %s[%u], which lane %d writes (step %u)",
            tti_buffer_name(ref.buffer), ref.index + k, cell->writer, cell->written);
    if (cell->user == CHECK_NOBODY) {
        cell->user = lane;
        cell->used = (uint32_t)step;
    }
    if (write) {
        cell->writer = lane;
        cell->written = (uint32_t)step;
    }
    return TUTTI_OK;
}

static enum tutti_result check_read(struct check *check, int lane, size_t step, struct tti_ref ref)
{
    const struct tti_step *at = &check->plan->lanes[lane].steps[step];
    for (uint32_t k = 0; k < at->nchunks; k++) {
        TTI_TRY(check_lanes(check, lane, step, ref, k, false));
        const struct check_cell *cell =
            &check->cells[tti_memory_cell(&check->memory, ref.buffer, ref.index + k)];
        if (ref.buffer == TTI_SLOT && cell->slot_chunk < 0)
            return tti_verify_fail(check->plan, lane, step,
                                   "reads SLOT[%u], which was never written", ref.index);
        if (ref.buffer == TTI_SLOT && cell->slot_chunk != (int32_t)at->chunk)
            return tti_verify_fail(check->plan, lane, step, "reads SLOT[%u], which holds chunk %d",
                                   ref.index, cell->slot_chunk);
        if (cell->mark == check->stamp && cell->mark_as != k)
            return tti_verify_fail(check->plan, lane, step,
                                   "reads %s[%u], which it also writes, as another chunk",
                                   tti_buffer_name(ref.buffer), ref.index + k);
    }
    return TUTTI_OK;
}

static enum tutti_result check_write(struct check *check, int lane, size_t step)
{
    const struct tti_step *at = &check->plan->lanes[lane].steps[step];
    for (uint32_t k = 0; k < at->nchunks; k++) {
        TTI_TRY(check_lanes(check, lane, step, at->dst, k, true));
        struct check_cell *cell =
            &check->cells[tti_memory_cell(&check->memory, at->dst.buffer, at->dst.index + k)];
        if (cell->sender == lane && cell->sent > at->hazard)
            return tti_verify_fail(check->plan, lane, step,
                                   "writes %s[%u] with hazard %d, but step %d still sends from it",
                                   tti_buffer_name(at->dst.buffer), at->dst.index + k, at->hazard,
                                   cell->sent);
    }
    return TUTTI_OK;
}

/* What goes out from `ref` must stay until it is taken. */
static void check_sent(struct check *check, int lane, size_t step, struct tti_ref ref)
{
    for (uint32_t k = 0; k < check->plan->lanes[lane].steps[step].nchunks; k++) {
        struct check_cell *cell =
            &check->cells[tti_memory_cell(&check->memory, ref.buffer, ref.index + k)];
        cell->sender = lane;
        cell->sent = (int32_t)step;
    }
}

static enum tutti_result check_memory(struct check *check, int lane, size_t step)
{
    const struct tti_step *at = &check->plan->lanes[lane].steps[step];
    check->stamp++;
    if (at->hazard < -1 || at->hazard >= (int64_t)step)
        return tti_verify_fail(check->plan, lane, step, "waits for the sends up to step %d",
                               at->hazard);
    bool dst = at->kind != TTI_SEND;
    for (uint32_t k = 0; dst && k < at->nchunks; k++) {
        struct check_cell *cell =
            &check->cells[tti_memory_cell(&check->memory, at->dst.buffer, at->dst.index + k)];
        cell->mark = check->stamp;
        cell->mark_as = k;
    }
    if (at->kind != TTI_RECV)
        TTI_TRY(check_read(check, lane, step, at->src));
    if (at->kind == TTI_REDUCE)
        TTI_TRY(check_read(check, lane, step, at->src2));
    if (dst)
        TTI_TRY(check_write(check, lane, step));
    if (dst && at->dst.buffer == TTI_SLOT)
        check->cells[tti_memory_cell(&check->memory, TTI_SLOT, at->dst.index)].slot_chunk =
            (int32_t)at->chunk;
    if (tti_step_sends(at))
        check_sent(check, lane, step, tti_step_sent(at));
    if (tti_step_sends(at) && at->kind == TTI_COPY && at->src.buffer == TTI_IN)
        check_sent(check, lane, step, at->src); /* from there the executor may send it, too */
    return TUTTI_OK;
}

enum tutti_result tti_verify_check(const struct tti_plan *plan)
{
    struct check check = {.plan = plan};
    tti_memory_of(plan, true, &check.memory);
    for (int lane = 0; lane < plan->nlanes; lane++)
        for (size_t step = 0; step < plan->lanes[lane].count; step++)
            TTI_TRY(check_form(plan, &check.memory, lane, step));
    check.cells = tti_calloc(check.memory.cells, sizeof *check.cells);
    if (!check.cells)
        return TUTTI_ERR_MEMORY;
    for (uint32_t i = 0; i < check.memory.cells; i++)
        check.cells[i] = (struct check_cell){
            .user = CHECK_NOBODY, .writer = CHECK_NOBODY, .sender = -1, .slot_chunk = -1};
    enum tutti_result result = TUTTI_OK;
    for (int lane = 0; result == TUTTI_OK && lane < plan->nlanes; lane++)
        for (size_t step = 0; result == TUTTI_OK && step < plan->lanes[lane].count; step++)
            result = check_memory(&check, lane, step);
    free(check.cells);
    return result;
}
