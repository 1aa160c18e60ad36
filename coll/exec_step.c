/* Steps of the CPU executor: one lane's turn. */
#include "coll/exec_internal.h"

#include "coll/diagnose.h"
#include "device/memory.h"

#include <string.h>

enum {
    PIECE_BYTES = 256 * 1024,  /* what a step takes at once, so that cut-through starts early */
    THROUGH_BYTES = 16 * 1024, /* of a result that goes to two places: fits a first-level cache */
};

static bool step_receives(const struct tti_step *step)
{
    return step->kind == TTI_RECV || step->kind == TTI_RECV_REDUCE;
}

/* A last pass over a shorter window, or the one after it, lays scratch memory out anew: a chunk
 * lies where other lanes had theirs. Are these through with the passes before, and what they sent
 * from there consumed? */
static bool step_scratch_free(struct tti_executor *x, const struct tti_exec_lane *lane)
{
    if (lane->pass == 0 || tti_exec_window(x, lane->pass) == tti_exec_window(x, lane->pass - 1))
        return true;
    for (size_t l = 0; l < x->lane_count; l++) {
        struct tti_exec_lane *other = &x->lanes[l];
        if (other->count == 0)
            continue;
        if (other->pass < lane->pass ||
            !tti_exec_sends_done(x, other, (uint64_t)lane->pass * other->count - 1))
            return false;
    }
    return true;
}

/* May the step write now? Sends of ranges that it overwrites must be consumed, and so must all
 * earlier passes' sends before scratch memory is used again. */
static bool step_may_write(struct tti_executor *x, struct tti_exec_lane *lane,
                           const struct tti_step *step)
{
    uint64_t before = (uint64_t)lane->pass * lane->count; /* serials of earlier passes are below */
    if (step->kind == TTI_SEND)
        return true;
    if (step->dst.buffer == TTI_SCRATCH && !step_scratch_free(x, lane))
        return false;
    if (!lane->oldest)
        return true;
    if (step->hazard >= 0)
        return tti_exec_sends_done(x, lane, before + (uint64_t)step->hazard);
    if (lane->pass > 0 && step->dst.buffer >= TTI_SCRATCH)
        return tti_exec_sends_done(x, lane, before - 1);
    return true;
}

static const struct tti_finish *step_finish(const struct tti_executor *x,
                                            const struct tti_step *step)
{
    return (step->flags & TTI_FINAL) && x->finish.average ? &x->finish : NULL;
}

bool tti_exec_passes_input(const struct tti_executor *x, const struct tti_step *step)
{
    return step->kind == TTI_COPY && (step->flags & TTI_FORWARD) && step->src.buffer == TTI_IN &&
           !x->device.base && x->buffers.type[TTI_IN] == x->buffers.type[step->dst.buffer] &&
           !step_finish(x, step);
}

/* Type of the incoming message. */
static enum tutti_type message_type(const struct tti_executor *x, const struct tti_step *step)
{
    return x->buffers.type[(step->flags & TTI_MSG_ACC) ? TTI_SLOT : TTI_OUT];
}

/* Combine `n` elements of the message with the local operand into `dst`. */
static void combine(const struct tti_executor *x, const struct tti_step *step, void *dst,
                    const void *local, const void *message, size_t n)
{
    enum tutti_type dst_type = x->buffers.type[step->dst.buffer];
    enum tutti_type local_type = x->buffers.type[step->src.buffer];
    enum tutti_type type = message_type(x, step);
    if (step->flags & TTI_MSG_LEFT)
        tti_reduce(x->op, dst, dst_type, message, type, local, local_type, n, step_finish(x, step));
    else
        tti_reduce(x->op, dst, dst_type, local, local_type, message, type, n, step_finish(x, step));
}

static bool tag_is_message(uint64_t tag)
{
    return tag >> 60 == TUTTI_SEND_RECV;
}

/* What the tags say; the ranks' recorders say it better, and of all ranks. */
enum tutti_result tti_exec_mismatch(struct tti_executor *x, int from, uint64_t expected,
                                    uint64_t found)
{
    char theirs[200], ours[200];
    const struct tti_peer *peer = &x->comm->peers.all[from];
    const struct tti_peer *own = &x->comm->peers.all[x->comm->rank];
    const uint64_t number = x->comm->sequence; /* of collectives; those of messages are others */
    tti_tag_text(found, tag_is_message(found) ? 0 : number, theirs, sizeof theirs);
    tti_tag_text(expected, tag_is_message(expected) ? 0 : number, ours, sizeof ours);
    const bool kinds = tag_is_message(expected) && tag_is_message(found) &&
                       tti_tag_of_device(expected) != tti_tag_of_device(found);
    return tti_diagnose(
        x->comm, tag_is_message(expected)
                     ? TTI_FAIL(TUTTI_ERR_MISMATCH,
                                "rank %d (%s) called %s, rank %d (%s) called recv%s from it; both "
                                "sides of a message must agree%s",
                                from, peer->name, theirs, x->comm->rank, own->name, ours + 4,
                                kinds ? ", also in that it is in device memory" : "")
                     : TTI_FAIL(TUTTI_ERR_MISMATCH,
                                "rank %d (%s) called %s, rank %d (%s) called %s; all ranks must "
                                "make the same calls in the same order",
                                from, peer->name, theirs, x->comm->rank, own->name, ours));
}

enum tutti_result tti_exec_torn(struct tti_executor *x, int from, size_t bytes, size_t element)
{
    char what[TTI_LABEL_BYTES];
    return tti_comm_fail(
        x->comm,
        TTI_FAIL(TUTTI_ERR_PROTOCOL,
                 "%s: rank %d (%s) sent a fragment of %zu bytes, which breaks off within an "
                 "element of %zu; do all ranks run the same version?",
                 tti_label_text(x->label, what, sizeof what), from, x->comm->peers.all[from].name,
                 bytes, element));
}

static void lane_advance(struct tti_exec_lane *lane)
{
    lane->begun = false;
    lane->forward = NULL;
    lane->through = false;
    lane->done = 0;
    lane->step += lane->folds ? 2 : 1;
    lane->folds = false;
    if (lane->step == lane->count) {
        lane->step = 0;
        lane->pass++;
    }
}

/* The next or current step. */
static const struct tti_step *lane_step(const struct tti_exec_lane *lane)
{
    return lane->folds ? &lane->fold : &lane->steps[lane->step];
}

/* The result is passed on and never looked at again. */
static bool step_is_transient(const struct tti_exec_lane *lane)
{
    return lane->traits && lane->traits[lane->step] == TTI_STEP_PASSES;
}

/* A message is received for the step behind this one, which combines it with something here. Where
 * that step may write already, the two are one: the message is combined as it comes, in the cache,
 * and not put down in between. Else it is put down: the peer may wait for it to be taken. */
static bool step_folds(struct tti_executor *x, struct tti_exec_lane *lane)
{
    const struct tti_step *step = &lane->steps[lane->step], *next = step + 1;
    if (!lane->traits || lane->traits[lane->step] != TTI_STEP_FOLDS ||
        !step_may_write(x, lane, next))
        return false;
    bool left = next->src.buffer == TTI_SLOT && next->src.index == step->dst.index;
    lane->fold = *next;
    lane->fold.kind = TTI_RECV_REDUCE;
    lane->fold.from = step->from;
    lane->fold.flags = (uint8_t)((step->flags & TTI_MSG_ACC) | (next->flags & TTI_FINAL) |
                                 (left ? TTI_MSG_LEFT : 0));
    lane->fold.src = left ? next->src2 : next->src;
    return true;
}

/* Should the result be built in the memory of the transport that passes it on? Not where that
 * transport passes on a reference instead. */
static bool step_goes_through(const struct tti_executor *x, const struct tti_exec_lane *lane,
                              const struct tti_step *step)
{
    struct tti_region region;
    size_t run = 0;
    if (!step_receives(step) || !lane->forward->queue->link->ops->reserve)
        return false;
    if (step->kind == TTI_RECV && message_type(x, step) != x->buffers.type[step->dst.buffer])
        return false;
    return step_is_transient(lane) ||
           !tti_region_find(tti_exec_place(x, step->dst, lane->range, lane->pass, 0, &run), 1,
                            &region);
}

/* Range, send record. Returns false when the step must wait for its hazards. */
static enum tutti_result step_begin(struct tti_executor *x, struct tti_exec_lane *lane,
                                    const struct tti_step *step, bool *begun)
{
    *begun = false;
    lane->range = tti_exec_range(x, step, lane->pass);
    if (lane->range.total > 0) {
        lane->folds = step_folds(x, lane);
        if (!lane->folds && !step_may_write(x, lane, step))
            return TUTTI_OK;
        if (step->kind == TTI_SEND || tti_exec_passes_input(x, step))
            TTI_TRY(
                tti_exec_send_begin(x, lane, step, step->src, lane->range.total, &lane->forward));
        else if (step->flags & TTI_FORWARD)
            TTI_TRY(tti_exec_send_begin(x, lane, step, step->dst, 0, &lane->forward));
        lane->through = lane->forward && step_goes_through(x, lane, step);
    }
    lane->done = 0;
    lane->begun = true;
    *begun = true;
    return TUTTI_OK;
}

/* `n` more elements of the step's result are in place: let the forward have them. */
static enum tutti_result step_produced(struct tti_executor *x, struct tti_exec_lane *lane, size_t n,
                                       bool *moved)
{
    lane->done += n;
    *moved = true;
    if (!lane->forward || lane->forward->ready == lane->range.total)
        return TUTTI_OK;
    lane->forward->ready = lane->done;
    return lane->forward->queue->head == lane->forward
               ? tti_exec_queue_pump(x, lane->forward->queue, moved)
               : TUTTI_OK;
}

/* ---- local steps ---- */

static void local_piece(const struct tti_executor *x, const struct tti_step *step,
                        struct tti_range range, size_t pass, size_t done, size_t *n)
{
    size_t run = 0;
    char *dst = tti_exec_place(x, step->dst, range, pass, done, &run);
    size_t most = range.total - done;
    *n = run < most ? run : most;
    char *src = tti_exec_place(x, step->src, range, pass, done, &run);
    *n = run < *n ? run : *n;
    if (step->kind == TTI_REDUCE) {
        char *src2 = tti_exec_place(x, step->src2, range, pass, done, &run);
        *n = run < *n ? run : *n;
        tti_reduce(x->op, dst, x->buffers.type[step->dst.buffer], src,
                   x->buffers.type[step->src.buffer], src2, x->buffers.type[step->src2.buffer], *n,
                   step_finish(x, step));
    } else if (dst != src || step_finish(x, step)) {
        tti_convert(dst, x->buffers.type[step->dst.buffer], src, x->buffers.type[step->src.buffer],
                    *n, step_finish(x, step));
    }
}

static enum tutti_result local_turn(struct tti_executor *x, struct tti_exec_lane *lane,
                                    const struct tti_step *step, bool *moved)
{
    if (lane->forward && lane->forward->ready == lane->range.total &&
        lane->forward->queue->head == lane->forward)
        TTI_TRY(tti_exec_queue_pump(x, lane->forward->queue, moved));
    while (lane->done < lane->range.total) {
        size_t n = 0;
        local_piece(x, step, lane->range, lane->pass, lane->done, &n);
        TTI_TRY(step_produced(x, lane, n, moved));
    }
    return TUTTI_OK;
}

/* ---- receiving steps ---- */

/* Put a piece of the message where the step wants it. */
static void receive_piece(const struct tti_executor *x, const struct tti_exec_lane *lane,
                          const struct tti_step *step, const char *message, size_t *n)
{
    size_t run = 0;
    char *dst = tti_exec_place(x, step->dst, lane->range, lane->pass, lane->done, &run);
    *n = run < *n ? run : *n;
    if (step->kind == TTI_RECV) {
        tti_convert(dst, x->buffers.type[step->dst.buffer], message, message_type(x, step), *n,
                    NULL);
        return;
    }
    char *local = tti_exec_place(x, step->src, lane->range, lane->pass, lane->done, &run);
    *n = run < *n ? run : *n;
    combine(x, step, dst, local, message, *n);
}

/* `n` elements of the message become the step's result in `room` and, unless that is only passed
 * on, in `dst`: block by block, so that the second of the two is filled from the nearest cache. The
 * own memory comes first, since room that a peer's core has read last is slow to get hold of; but
 * not when it shall go around the caches. */
static void through_fill(const struct tti_executor *x, const struct tti_step *step, char *room,
                         char *dst, const char *local, const char *message, size_t n)
{
    size_t size = x->buffers.size[step->dst.buffer];
    size_t local_size = x->buffers.size[step->src.buffer];
    size_t message_size = tutti_type_size(message_type(x, step));
    size_t block = THROUGH_BYTES / size;
    bool own_first = dst && !tti_copy_streams();
    for (size_t at = 0; at < n; at += block) {
        size_t m = n - at < block ? n - at : block;
        char *first = own_first ? dst + at * size : room + at * size;
        if (step->kind == TTI_RECV_REDUCE)
            combine(x, step, first, local + at * local_size, message + at * message_size, m);
        else
            memcpy(first, message + at * size, m * size);
        if (own_first)
            memcpy(room + at * size, first, m * size);
        else if (dst)
            tti_copy_bytes(dst + at * size, first, m * size);
    }
}

/* A result that is passed on is built right in the next transport's memory, if that has room and
 * nothing older waits. *n shrinks to what was done; 0 if this way is closed. */
static enum tutti_result receive_through(struct tti_executor *x, struct tti_exec_lane *lane,
                                         const struct tti_step *step, const char *message,
                                         size_t *n)
{
    struct tti_send_record *forward = lane->forward;
    struct tti_send_queue *queue = forward->queue;
    const struct tutti_transport_ops *ops = queue->link->ops;
    size_t size = x->buffers.size[step->dst.buffer], run = 0, want = *n;
    char *local = NULL, *dst = NULL;
    void *room = NULL;
    *n = 0;
    if (queue->head != forward || forward->sent != lane->done)
        return TUTTI_OK;
    if (step->kind == TTI_RECV_REDUCE) {
        local = tti_exec_place(x, step->src, lane->range, lane->pass, lane->done, &run);
        want = run < want ? run : want;
    }
    if (!step_is_transient(lane)) {
        dst = tti_exec_place(x, step->dst, lane->range, lane->pass, lane->done, &run);
        want = run < want ? run : want;
    }
    want *= size;
    size_t bytes = ops->reserve(queue->link->endpoint, queue->lane, want, &room);
    if (bytes == 0)
        return TUTTI_OK;
    *n = bytes < want ? bytes / TUTTI_FRAGMENT_UNIT * TUTTI_FRAGMENT_UNIT / size : want / size;
    if (*n > 0)
        through_fill(x, step, room, dst, local, message, *n);
    enum tutti_result result = tti_link_intact(&x->comm->links.all[step->from], lane->wire_lane);
    if (result == TUTTI_OK) /* else nothing of it goes on */
        result = ops->commit(queue->link->endpoint, queue->lane, x->tag, *n * size);
    if (result != TUTTI_OK)
        return tti_comm_link_failed(x->comm, result);
    queue->accepted += *n * size;
    forward->sent += *n;
    return TUTTI_OK;
}

/* Straight into place, where nothing is to be combined or converted. */
static enum tutti_result receive_direct(struct tti_executor *x, struct tti_exec_lane *lane,
                                        const struct tti_step *step, uint64_t expected,
                                        size_t *taken)
{
    struct tti_link *link = &x->comm->links.all[step->from];
    size_t run = 0, bytes = 0, size = x->buffers.size[step->dst.buffer];
    char *dst = tti_exec_place(x, step->dst, lane->range, lane->pass, lane->done, &run);
    size_t most = lane->range.total - lane->done;
    uint64_t tag = expected;
    *taken = 0;
    enum tutti_result result = link->ops->receive(link->endpoint, lane->wire_lane, &tag, dst,
                                                  (run < most ? run : most) * size, &bytes);
    if (result != TUTTI_OK)
        return tti_comm_link_failed(x->comm, result);
    if (bytes > 0 && tag != expected)
        return tti_exec_mismatch(x, step->from, expected, tag);
    if (bytes % size != 0)
        return tti_exec_torn(x, step->from, bytes, size);
    *taken = bytes / size;
    return TUTTI_OK;
}

static enum tutti_result receive_peeked(struct tti_executor *x, struct tti_exec_lane *lane,
                                        const struct tti_step *step, uint64_t expected,
                                        size_t *taken)
{
    struct tti_link *link = &x->comm->links.all[step->from];
    const void *message = NULL;
    size_t bytes = 0;
    uint64_t tag = 0;
    *taken = 0;
    enum tutti_result result =
        link->ops->peek(link->endpoint, lane->wire_lane, &tag, &message, &bytes);
    if (result != TUTTI_OK)
        return tti_comm_link_failed(x->comm, result);
    if (bytes == 0)
        return TUTTI_OK;
    if (tag != expected)
        return tti_exec_mismatch(x, step->from, expected, tag);
    size_t size = tutti_type_size(message_type(x, step));
    size_t n = bytes / size, left = lane->range.total - lane->done;
    if (n == 0)
        return tti_exec_torn(x, step->from, bytes, size);
    n = n < PIECE_BYTES / size ? n : PIECE_BYTES / size;
    n = n < left ? n : left;
    size_t through = lane->through ? n : 0;
    if (lane->through)
        TTI_TRY(receive_through(x, lane, step, message, &through));
    if (through == 0) {
        receive_piece(x, lane, step, message, &n);
        result = tti_link_intact(link, lane->wire_lane);
        if (result != TUTTI_OK)
            return tti_comm_link_failed(x->comm, result);
    } else {
        n = through;
        lane->forward->ready = lane->done + n;
    }
    link->ops->consume(link->endpoint, lane->wire_lane, n * size);
    *taken = n;
    return TUTTI_OK;
}

static enum tutti_result receive_turn(struct tti_executor *x, struct tti_exec_lane *lane,
                                      const struct tti_step *step, bool *moved)
{
    const struct tti_link *link = &x->comm->links.all[step->from];
    uint64_t expected = tti_exec_tag(x, step, step->dst);
    bool direct = step->kind == TTI_RECV && !lane->through && link->ops->receive &&
                  message_type(x, step) == x->buffers.type[step->dst.buffer];
    while (lane->done < lane->range.total) {
        size_t taken = 0;
        TTI_TRY(direct ? receive_direct(x, lane, step, expected, &taken)
                       : receive_peeked(x, lane, step, expected, &taken));
        if (taken == 0)
            return TUTTI_OK;
        TTI_TRY(step_produced(x, lane, taken, moved));
    }
    return TUTTI_OK;
}

enum tutti_result tti_exec_lane_turn(struct tti_executor *x, struct tti_exec_lane *lane,
                                     bool *moved)
{
    while (!tti_exec_lane_over(x, lane)) {
        if (!lane->begun) {
            bool begun = false;
            TTI_TRY(step_begin(x, lane, &lane->steps[lane->step], &begun));
            if (!begun)
                return TUTTI_OK;
        }
        const struct tti_step *step = lane_step(lane);
        if (step->kind == TTI_SEND) {
            if (lane->forward && lane->forward->queue->head == lane->forward)
                TTI_TRY(tti_exec_queue_pump(x, lane->forward->queue, moved));
        } else if (step_receives(step)) {
            TTI_TRY(receive_turn(x, lane, step, moved));
            if (lane->done < lane->range.total)
                return TUTTI_OK;
        } else {
            TTI_TRY(local_turn(x, lane, step, moved));
        }
        lane_advance(lane);
        *moved = true;
    }
    return TUTTI_OK;
}
