/* The verifier's run of all ranks' plans on symbolic values (plan/verify_parts.h).
 *
 * Lanes are sequential processes joined by channels, one for each (sender, receiver, lane). They
 * share no memory that one of them writes (verify_check.c), so the outcome does not depend on who
 * runs when: one order, that of a work list, stands for all. With TTI_CHANNEL_ONE a step that sends
 * waits for room, after it has taken its own message if it is a fused one. With TTI_CHANNEL_NONE a
 * send only leaves a note; the receiver reads the sender's memory, as it is then. */
#include "plan/verify_run.h"

#include "base/memory.h"
#include "plan/print.h"

#include <stdio.h>
#include <string.h>

/* ---- memory and messages ---- */

static uint32_t *run_cell(const struct tti_run *run, int rank, struct tti_ref ref, uint32_t k)
{
    return &run->cells[run->cell_base[rank] +
                       tti_memory_cell(&run->memory[rank], ref.buffer, ref.index + k)];
}

uint32_t tti_run_out(const struct tti_run *run, int rank, uint32_t index)
{
    return *run_cell(run, rank, (struct tti_ref){TTI_OUT, index}, 0);
}

static void run_wake(struct tti_run *run, int32_t number)
{
    if (number == TTI_RUN_NONE || run->lanes[number].queued)
        return;
    run->lanes[number].queued = true;
    run->queue[(run->queue_head + run->queue_count++) % run->nlanes] = number;
}

static bool channel_has_message(const struct tti_run *run, const struct tti_run_channel *channel)
{
    return channel->sender != TTI_RUN_NONE && channel->head != TTI_RUN_NONE &&
           run->lanes[channel->sender].done > (uint32_t)channel->head;
}

/* The step completes; its message, if it sends one, is now in the channel. */
static enum tutti_result run_post(struct tti_run *run, struct tti_run_lane *lane,
                                  const struct tti_step *step)
{
    size_t at = lane->base + lane->done;
    if (run->out[at] != TTI_RUN_NONE) {
        struct tti_run_channel *channel = &run->channels[run->out[at]];
        run->unconsumed[at] = 1;
        if (run->model == TTI_CHANNEL_ONE) {
            void *copy = channel->copy;
            TTI_TRY(tti_grow(&copy, &channel->copy_capacity, step->nchunks, sizeof *channel->copy));
            channel->copy = copy;
            for (uint32_t k = 0; k < step->nchunks; k++)
                channel->copy[k] = *run_cell(run, lane->rank, tti_step_sent(step), k);
        }
        run_wake(run, channel->receiver);
    }
    lane->done++;
    while (lane->unconsumed < lane->done && !run->unconsumed[lane->base + lane->unconsumed])
        lane->unconsumed++;
    return TUTTI_OK;
}

static void run_consume(struct tti_run *run, struct tti_run_channel *channel)
{
    struct tti_run_lane *sender = &run->lanes[channel->sender];
    size_t at = sender->base + (size_t)channel->head;
    run->unconsumed[at] = 0;
    channel->head = run->next[at];
    while (sender->unconsumed < sender->done && !run->unconsumed[sender->base + sender->unconsumed])
        sender->unconsumed++;
    run_wake(run, channel->sender);
}

/* Does the message fit the step that takes it? */
static enum tutti_result run_match(const struct tti_run *run, const struct tti_run_lane *lane,
                                   const struct tti_run_channel *channel)
{
    const struct tti_step *step = &lane->steps[lane->done];
    const struct tti_run_lane *sender = &run->lanes[channel->sender];
    const struct tti_step *sent = &sender->steps[channel->head];
    const struct tti_plan *plan = run->plans[lane->rank], *from = run->plans[sender->rank];
    if (sent->chunk != step->chunk || sent->nchunks != step->nchunks)
        return tti_verify_fail(plan, lane->lane, lane->done,
                               "expects %u chunks from %u on, gets %u from %u on, sent by rank %d "
                               "in step %d",
                               step->nchunks, step->chunk, sent->nchunks, sent->chunk, sender->rank,
                               channel->head);
    uint32_t buffer = tti_step_sent(sent).buffer;
    bool acc = from->reduces && (buffer == TTI_SCRATCH || buffer == TTI_SLOT);
    if (acc != ((step->flags & TTI_MSG_ACC) != 0))
        return tti_verify_fail(
            plan, lane->lane, lane->done, "expects %s, but rank %d sends %s in step %d (from %s)",
            acc ? "elements" : "accumulators", sender->rank, acc ? "accumulators" : "elements",
            channel->head, tti_buffer_name(buffer));
    return TUTTI_OK;
}

static uint32_t run_message(const struct tti_run *run, const struct tti_run_channel *channel,
                            uint32_t k)
{
    if (run->model == TTI_CHANNEL_ONE)
        return channel->copy[k];
    const struct tti_run_lane *sender = &run->lanes[channel->sender];
    return *run_cell(run, sender->rank, tti_step_sent(&sender->steps[channel->head]), k);
}

/* ---- computing ---- */

static enum tutti_result run_read(const struct tti_run *run, const struct tti_run_lane *lane,
                                  struct tti_ref ref, uint32_t k, uint32_t *value)
{
    *value = *run_cell(run, lane->rank, ref, k);
    if (*value == 0)
        return tti_verify_fail(run->plans[lane->rank], lane->lane, lane->done,
                               "reads %s[%u], which was never written", tti_buffer_name(ref.buffer),
                               ref.index + k);
    return TUTTI_OK;
}

static enum tutti_result run_reduce(struct tti_run *run, const struct tti_run_lane *lane,
                                    uint32_t left, uint32_t right, uint32_t *value)
{
    const struct tti_plan *plan = run->plans[lane->rank];
    const struct tti_value *a = tti_value_at(run->values, left);
    const struct tti_value *b = tti_value_at(run->values, right);
    bool idempotent = plan->spec.collective == TUTTI_BARRIER;
    if (a->chunk != b->chunk)
        return tti_verify_fail(plan, lane->lane, lane->done,
                               "combines chunk %u of IN with chunk %u of IN", a->chunk, b->chunk);
    if (!idempotent && (a->final || b->final))
        return tti_verify_fail(plan, lane->lane, lane->done,
                               "combines a final result with something (chunk %u of IN)", a->chunk);
    int twice = tti_value_common(run->values, left, right);
    if (!idempotent && twice >= 0)
        return tti_verify_fail(plan, lane->lane, lane->done,
                               "the contribution of rank %d to chunk %u of IN counts twice", twice,
                               a->chunk);
    return tti_value_reduce(run->values, left, right, value);
}

/* TTI_FINAL stands exactly where a result first becomes complete. */
static enum tutti_result run_finish(struct tti_run *run, const struct tti_run_lane *lane,
                                    uint32_t *value)
{
    const struct tti_step *step = &lane->steps[lane->done];
    const struct tti_plan *plan = run->plans[lane->rank];
    const struct tti_value *result = tti_value_at(run->values, *value);
    bool complete = result->count == (uint32_t)run->nranks;
    bool says = (step->flags & TTI_FINAL) != 0;
    if (says && !complete)
        return tti_verify_fail(plan, lane->lane, lane->done,
                               "TTI_FINAL, but the contribution of rank %d is missing",
                               tti_value_lacks(run->values, *value));
    if (says && result->final)
        return tti_verify_fail(plan, lane->lane, lane->done, "TTI_FINAL on a result already final");
    if (!says && complete && !result->final && step->kind != TTI_RECV)
        return tti_verify_fail(plan, lane->lane, lane->done,
                               "the result is complete, but TTI_FINAL is missing");
    if (says)
        TTI_TRY(tti_value_finish(run->values, *value, value));
    result = tti_value_at(run->values, *value);
    if (step->dst.buffer == TTI_OUT && result->count > 1 && !result->final)
        return tti_verify_fail(plan, lane->lane, lane->done,
                               "writes a partial result (%u of %d contributions) to OUT",
                               result->count, run->nranks);
    return TUTTI_OK;
}

/* Is chunk k of the step's range, `value`, of the block that the step says? An all-gather's blocks
 * are those of the ranks that give them. */
static enum tutti_result run_block(const struct tti_run *run, const struct tti_run_lane *lane,
                                   uint32_t k, uint32_t value)
{
    const struct tti_plan *plan = run->plans[lane->rank];
    const struct tti_step *step = &lane->steps[lane->done];
    const struct tti_value *v = tti_value_at(run->values, value);
    if (!tti_has_uneven(plan->spec.collective))
        return TUTTI_OK;
    if (step->block < 0)
        return tti_verify_fail(plan, lane->lane, lane->done,
                               "does not know whose block it is about");
    const uint32_t block =
        ((uint32_t)step->block + (step->chunk + k) / plan->chunks) % (uint32_t)run->nranks;
    const bool own = plan->spec.collective == TUTTI_REDUCE_SCATTER
                         ? v->chunk / plan->chunks == block
                         : tti_value_has(run->values, value, (int)block);
    if (!own)
        return tti_verify_fail(plan, lane->lane, lane->done,
                               "is about block %d from its first chunk on, but chunk %u of it is "
                               "not of block %u",
                               step->block, k, block);
    return TUTTI_OK;
}

/* All of the step but its send. */
static enum tutti_result run_compute(struct tti_run *run, const struct tti_run_lane *lane)
{
    const struct tti_step *step = &lane->steps[lane->done];
    int32_t in = run->in[lane->base + lane->done];
    const struct tti_run_channel *channel = in == TTI_RUN_NONE ? NULL : &run->channels[in];
    if (channel)
        TTI_TRY(run_match(run, lane, channel));
    for (uint32_t k = 0; k < step->nchunks; k++) {
        uint32_t left = 0, right = 0;
        if (step->kind != TTI_RECV)
            TTI_TRY(run_read(run, lane, step->src, k, &left));
        if (step->kind == TTI_SEND) {
            TTI_TRY(run_block(run, lane, k, left));
            continue;
        }
        if (step->kind == TTI_REDUCE)
            TTI_TRY(run_read(run, lane, step->src2, k, &right));
        if (channel)
            right = run_message(run, channel, k);
        uint32_t value = step->kind == TTI_RECV ? right : left;
        bool swapped = step->flags & TTI_MSG_LEFT;
        if (tti_step_reduces(step))
            TTI_TRY(run_reduce(run, lane, swapped ? right : left, swapped ? left : right, &value));
        if (run->plans[lane->rank]->reduces)
            TTI_TRY(run_finish(run, lane, &value));
        TTI_TRY(run_block(run, lane, k, value));
        *run_cell(run, lane->rank, step->dst, k) = value;
    }
    return TUTTI_OK;
}

/* ---- running ---- */

/* What the lane's next step waits for. */
enum run_wait { RUN_READY, RUN_WAIT_MESSAGE, RUN_WAIT_HAZARD, RUN_WAIT_ROOM };

static enum run_wait run_waits(const struct tti_run *run, const struct tti_run_lane *lane)
{
    const struct tti_step *step = &lane->steps[lane->done];
    size_t at = lane->base + lane->done;
    if (!lane->computed) {
        if (run->in[at] != TTI_RUN_NONE && !channel_has_message(run, &run->channels[run->in[at]]))
            return RUN_WAIT_MESSAGE;
        if (run->model == TTI_CHANNEL_NONE && (int64_t)lane->unconsumed <= step->hazard)
            return RUN_WAIT_HAZARD;
        if (run->in[at] != TTI_RUN_NONE)
            return RUN_READY; /* a fused step takes its message before it waits for room */
    }
    if (run->model == TTI_CHANNEL_ONE && run->out[at] != TTI_RUN_NONE &&
        channel_has_message(run, &run->channels[run->out[at]]))
        return RUN_WAIT_ROOM;
    return RUN_READY;
}

/* Run a lane until it waits or ends. */
static enum tutti_result run_advance(struct tti_run *run, struct tti_run_lane *lane,
                                     struct tti_verify_stats *stats)
{
    while (lane->done < lane->count && run_waits(run, lane) == RUN_READY) {
        int32_t in = run->in[lane->base + lane->done];
        if (!lane->computed) {
            TTI_TRY(run_compute(run, lane));
            lane->computed = true;
            if (in != TTI_RUN_NONE) {
                run_consume(run, &run->channels[in]);
                stats->messages++;
                continue;
            }
        }
        TTI_TRY(run_post(run, lane, &lane->steps[lane->done]));
        lane->computed = false;
        stats->steps++;
    }
    return TUTTI_OK;
}

static enum tutti_result run_deadlock(const struct tti_run *run)
{
    char text[768] = "";
    size_t used = 0;
    int stuck = 0;
    for (int32_t l = 0; l < run->nlanes; l++) {
        const struct tti_run_lane *lane = &run->lanes[l];
        if (lane->done == lane->count || ++stuck > 4)
            continue;
        const struct tti_step *step = &lane->steps[lane->done];
        static const char *const waits[] = {
            [RUN_WAIT_MESSAGE] = "a message from rank",
            [RUN_WAIT_HAZARD] = "its sends to be taken, up to step",
            [RUN_WAIT_ROOM] = "room for a message to rank",
        };
        enum run_wait wait = run_waits(run, lane);
        int32_t whom = wait == RUN_WAIT_MESSAGE  ? step->from
                       : wait == RUN_WAIT_HAZARD ? step->hazard
                                                 : step->to;
        int more = snprintf(
            text + used, sizeof text - used, "%srank %d lane %d step %u: chunk %u: waits for %s %d",
            used ? "; " : "", lane->rank, lane->lane, lane->done, step->chunk, waits[wait], whom);
        used += more > 0 && (size_t)more < sizeof text - used ? (size_t)more : 0;
    }
    return TTI_FAIL(TUTTI_ERR_INTERNAL, "deadlock, %d lane%s stuck: %s%s", stuck,
                    stuck == 1 ? "" : "s", text, stuck > 4 ? "; ..." : "");
}

/* Every step done, every message taken? */
static enum tutti_result run_ended(const struct tti_run *run)
{
    for (int32_t l = 0; l < run->nlanes; l++)
        if (run->lanes[l].done < run->lanes[l].count)
            return run_deadlock(run);
    for (size_t c = 0; c < run->nchannels; c++) {
        const struct tti_run_channel *channel = &run->channels[c];
        if (!channel_has_message(run, channel))
            continue;
        const struct tti_run_lane *lane = &run->lanes[channel->sender];
        return tti_verify_fail(run->plans[lane->rank], lane->lane, (size_t)channel->head,
                               "rank %d never receives this message",
                               lane->steps[channel->head].to);
    }
    return TUTTI_OK;
}

static enum tutti_result run_reset(struct tti_run *run, bool in_place)
{
    memset(run->cells, 0, run->cell_base[run->nranks] * sizeof *run->cells);
    memset(run->unconsumed, 0, run->nsteps);
    for (int rank = 0; rank < run->nranks; rank++) {
        tti_memory_of(run->plans[rank], in_place, &run->memory[rank]);
        for (uint32_t i = 0; i < run->memory[rank].size[TTI_IN]; i++)
            TTI_TRY(tti_value_raw(run->values, rank, i,
                                  run_cell(run, rank, (struct tti_ref){TTI_IN, i}, 0)));
    }
    for (size_t c = 0; c < run->nchannels; c++)
        run->channels[c].head = run->channels[c].first;
    run->queue_head = run->queue_count = 0;
    for (int32_t l = 0; l < run->nlanes; l++) {
        struct tti_run_lane *lane = &run->lanes[l];
        lane->done = lane->unconsumed = 0;
        lane->computed = lane->queued = false;
        run_wake(run, l);
    }
    return TUTTI_OK;
}

enum tutti_result tti_run_all(struct tti_run *run, enum tti_channel_model model, bool in_place,
                              struct tti_verify_stats *stats)
{
    run->model = model;
    TTI_TRY(run_reset(run, in_place));
    while (run->queue_count > 0) {
        struct tti_run_lane *lane = &run->lanes[run->queue[run->queue_head]];
        run->queue_head = (run->queue_head + 1) % run->nlanes;
        run->queue_count--;
        lane->queued = false;
        TTI_TRY(run_advance(run, lane, stats));
    }
    return run_ended(run);
}
