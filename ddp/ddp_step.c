/* One pass: begin, ready, wait (tutti/ddp.h).
 *
 * Who forgets to mark a gradient would leave the other ranks waiting for a bucket that never fills.
 * So at the end of a pass a rank hands in what it forgot, all buckets go their way, and a word on
 * the side tells everybody that the step is lost, and why. Read next: ddp_lane.c, ddp_order.c. */
#include "base/clock.h"
#include "ddp/ddp_state.h"

#include <stdio.h>
#include <string.h>

static enum tutti_result step_tensor(const tutti_ddp *ddp, size_t index, const char *what)
{
    if (!ddp)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: ddp is NULL", what);
    if (index >= ddp->tensor_count)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: there is no tensor %zu among %zu", what, index,
                        ddp->tensor_count);
    return TUTTI_OK;
}

static enum tutti_result step_trained(const tutti_ddp *ddp, size_t index, const char *what)
{
    TTI_TRY(step_tensor(ddp, index, what));
    if (ddp->tensors[index].bucket == TTI_DDP_NONE)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "%s: %s has no gradient, it was not registered as trained", what,
                        ddp->tensors[index].name);
    return TUTTI_OK;
}

enum tutti_result tutti_ddp_value(tutti_ddp *ddp, size_t index, void **value)
{
    TTI_TRY(step_tensor(ddp, index, "tutti_ddp_value"));
    if (!value)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_value: value is NULL");
    *value = ddp->tensors[index].value;
    return TUTTI_OK;
}

enum tutti_result tutti_ddp_gradient(tutti_ddp *ddp, size_t index, void **gradient)
{
    TTI_TRY(step_trained(ddp, index, "tutti_ddp_gradient"));
    if (!gradient)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_gradient: gradient is NULL");
    const struct tti_ddp_tensor *t = &ddp->tensors[index];
    *gradient = ddp->buckets[t->bucket].gradient + t->offset * tutti_type_size(t->type);
    return TUTTI_OK;
}

enum tutti_result tutti_ddp_pieces(tutti_ddp *ddp, const struct tutti_ddp_piece **pieces,
                                   size_t *count, size_t *elements)
{
    if (!ddp || !pieces || !count)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_pieces: %s is NULL",
                        !ddp      ? "ddp"
                        : !pieces ? "pieces"
                                  : "count");
    *pieces = ddp->pieces;
    *count = ddp->piece_count;
    if (elements)
        *elements = ddp->piece_elements;
    return TUTTI_OK;
}

enum tutti_result tutti_ddp_publish(tutti_ddp *ddp)
{
    if (!ddp)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_publish: ddp is NULL");
    return TUTTI_OK;
}

/* ---- begin ---- */

static enum tutti_result begin_buffers(struct tutti_ddp *ddp)
{
    for (size_t i = 0; i < ddp->tensor_count; i++) {
        const struct tti_ddp_tensor *t = &ddp->tensors[i];
        if (t->kind != TUTTI_DDP_BUFFER)
            continue;
        enum tutti_result result =
            tutti_broadcast(t->value, t->value, t->elements, t->type, 0, ddp->control);
        if (result != TUTTI_OK)
            return TTI_CONTEXT(result, "while giving rank 0's buffer %s to all", t->name);
    }
    return TUTTI_OK;
}

static void begin_zero(struct tutti_ddp *ddp)
{
    for (size_t b = 0; b < ddp->bucket_count; b++) {
        const struct tti_ddp_bucket *bucket = &ddp->buckets[b];
        memset(bucket->gradient, 0, bucket->elements * tutti_type_size(bucket->type));
    }
}

static void begin_marks(struct tutti_ddp *ddp)
{
    pthread_mutex_lock(&ddp->lock);
    for (size_t i = 0; i < ddp->tensor_count; i++)
        ddp->tensors[i].marked = false;
    for (size_t b = 0; b < ddp->bucket_count; b++)
        ddp->buckets[b].pending = ddp->buckets[b].member_count;
    pthread_mutex_unlock(&ddp->lock);
}

enum tutti_result tutti_ddp_begin(tutti_ddp *ddp, bool synchronise)
{
    if (!ddp)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_begin: ddp is NULL");
    if (ddp->open)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "tutti_ddp_begin: the pass before is not over; call tutti_ddp_wait");
    TTI_TRY(tti_ddp_lanes_wait(ddp));
    if (!ddp->broadcast_done)
        TTI_TRY(tutti_ddp_broadcast(ddp));
    if (ddp->stale) {
        TTI_TRY(tti_ddp_settle(ddp));
        if (!ddp->options.overwrite)
            begin_zero(ddp);
        ddp->stale = false;
    }
    if (synchronise)
        TTI_TRY(begin_buffers(ddp));
    begin_marks(ddp);
    ddp->synchronise = synchronise;
    ddp->open = true;
    return synchronise ? tti_ddp_lanes_give(ddp) : TUTTI_OK;
}

/* ---- ready ---- */

/* Under the lock. */
static void step_mark(struct tutti_ddp *ddp, struct tti_ddp_tensor *t)
{
    struct tti_ddp_bucket *b = &ddp->buckets[t->bucket];
    t->marked = true;
    t->ready_ns = tti_now_ns();
    if (ddp->synchronise && --b->pending == 0) {
        b->full_ns = t->ready_ns;
        pthread_cond_broadcast(&ddp->changed);
    }
}

enum tutti_result tutti_ddp_ready(tutti_ddp *ddp, size_t index)
{
    TTI_TRY(step_trained(ddp, index, "tutti_ddp_ready"));
    struct tti_ddp_tensor *t = &ddp->tensors[index];
    if (!ddp->open)
        return TTI_FAIL(TUTTI_ERR_USAGE, "tutti_ddp_ready: %s: no pass has begun (tutti_ddp_begin)",
                        t->name);
    pthread_mutex_lock(&ddp->lock);
    bool twice = t->marked;
    if (!twice)
        step_mark(ddp, t);
    pthread_mutex_unlock(&ddp->lock);
    if (twice)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "tutti_ddp_ready: %s was ready before in this pass; if it is used several "
                        "times, call when its whole gradient is there",
                        t->name);
    return TUTTI_OK;
}

/* ---- wait ---- */

/* The names of what was not marked, and how many they are. Marks them. */
static size_t wait_missing(struct tutti_ddp *ddp, char *text, size_t bytes)
{
    size_t missing = 0, used = 0;
    text[0] = '\0';
    pthread_mutex_lock(&ddp->lock);
    for (size_t i = 0; i < ddp->tensor_count; i++) {
        struct tti_ddp_tensor *t = &ddp->tensors[i];
        if (t->bucket == TTI_DDP_NONE || t->marked)
            continue;
        if (used < bytes)
            used +=
                (size_t)snprintf(text + used, bytes - used, "%s%s", missing ? ", " : "", t->name);
        missing++;
        step_mark(ddp, t);
    }
    pthread_mutex_unlock(&ddp->lock);
    if (used >= bytes)
        memcpy(text + bytes - 4, "...", 4);
    return missing;
}

static enum tutti_result wait_explain(struct tutti_ddp *ddp, size_t missing, struct tti_error *told)
{
    int culprit = 0;
    TTI_TRY(tti_ddp_tell(ddp, missing > 0, told, &culprit));
    return TTI_FAIL(
        TUTTI_ERR_USAGE,
        "the step is lost: on rank %d no gradient was ready for %.800s (tutti_ddp_ready "
        "was not called)",
        culprit, told->text);
}

static enum tutti_result wait_synchronised(struct tutti_ddp *ddp)
{
    struct tti_error told = {0};
    size_t missing = wait_missing(ddp, told.text, 800);
    int64_t sum = (int64_t)missing;
    TTI_TRY(tutti_all_reduce(&sum, &sum, 1, TUTTI_INT64, TUTTI_SUM, ddp->control));
    TTI_TRY(tti_ddp_lanes_wait(ddp));
    if (sum > 0)
        return wait_explain(ddp, missing, &told);
    ddp->steps++;
    return TUTTI_OK;
}

enum tutti_result tutti_ddp_wait(tutti_ddp *ddp)
{
    if (!ddp)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_wait: ddp is NULL");
    if (!ddp->open)
        return TTI_FAIL(TUTTI_ERR_USAGE, "tutti_ddp_wait: no pass has begun (tutti_ddp_begin)");
    ddp->open = false;
    if (!ddp->synchronise)
        return TUTTI_OK;
    ddp->stale = true;
    return wait_synchronised(ddp);
}
