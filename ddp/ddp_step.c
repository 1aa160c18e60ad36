/* One pass: begin, ready, wait (tutti/ddp.h).
 *
 * Who forgets to mark a gradient would leave the other ranks waiting for a bucket that never fills.
 * So at the end of a pass a rank hands in what it forgot, all buckets go their way, and a word on
 * the side tells everybody that the step is lost, and why. Read next: ddp_lane.c, ddp_order.c,
 * ddp_join.c. */
#include "base/clock.h"
#include "base/memory.h"
#include "coll/group.h"
#include "ddp/ddp_state.h"

#include <stdio.h>
#include <stdlib.h>
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

enum tutti_result tti_ddp_trained(const struct tutti_ddp *ddp, size_t index, const char *what)
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
    if (!ddp->tensors[index].value)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "tutti_ddp_value: %s has no memory now; it belongs to unit %d, see "
                        "tutti_ddp_acquire",
                        ddp->tensors[index].name, ddp->tensors[index].unit);
    *value = ddp->tensors[index].value;
    return TUTTI_OK;
}

/* Under the lock. */
static void step_zero_tensor(struct tutti_ddp *ddp, const struct tti_ddp_tensor *t)
{
    size_t element = tutti_type_size(t->type);
    char *gradient = ddp->buckets[t->bucket].gradient;
    if (!gradient)
        return;
    enum tutti_result result = tti_ddp_zero(ddp, gradient + t->offset * element,
                                            t->elements * element, ddp->options.stream);
    if (result != TUTTI_OK)
        tti_ddp_lane_failed(ddp, result);
}

/* Under the lock, which may be released: whole gradients of a bucket, to add to. Who overwrites
 * does not so with what it will not mark (static_graph), and the memory has been another bucket's.
 */
static enum tutti_result gradient_begin(struct tutti_ddp *ddp, struct tti_ddp_bucket *b)
{
    const bool overwrite = ddp->options.overwrite;
    TTI_TRY(tti_ddp_pool_fill(&ddp->gradient_pool));
    if (b->gradient) /* a lane took some meanwhile */
        return TUTTI_OK;
    TTI_TRY(tti_ddp_gradient_take(ddp, b, !overwrite, ddp->options.stream));
    for (size_t m = 0; m < b->member_count && overwrite; m++)
        if (ddp->tensors[b->members[m]].expected == 0)
            step_zero_tensor(ddp, &ddp->tensors[b->members[m]]);
    return TUTTI_OK;
}

enum tutti_result tutti_ddp_gradient(tutti_ddp *ddp, size_t index, void **gradient)
{
    TTI_TRY(tti_ddp_trained(ddp, index, "tutti_ddp_gradient"));
    if (!gradient)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_gradient: gradient is NULL");
    const struct tti_ddp_tensor *t = &ddp->tensors[index];
    struct tti_ddp_bucket *b = &ddp->buckets[t->bucket];
    if (b->shard) {
        if (!ddp->open)
            return TTI_FAIL(TUTTI_ERR_USAGE,
                            "tutti_ddp_gradient: %s: whole gradients are there between "
                            "tutti_ddp_begin and tutti_ddp_ready only (zero %d); afterwards see "
                            "tutti_ddp_pieces",
                            t->name, ddp->options.zero);
        pthread_mutex_lock(&ddp->lock);
        if (!b->gradient)
            tti_ddp_gradient_room(ddp);
        enum tutti_result result = b->gradient ? TUTTI_OK : gradient_begin(ddp, b);
        pthread_mutex_unlock(&ddp->lock);
        TTI_TRY(result);
    }
    *gradient = b->gradient + t->offset * tutti_type_size(t->type);
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

/* ---- begin ---- */

static enum tutti_result begin_buffers(struct tutti_ddp *ddp)
{
    for (size_t i = 0; i < ddp->tensor_count; i++)
        if (ddp->tensors[i].kind == TUTTI_DDP_BUFFER)
            TTI_TRY(tti_ddp_spread(ddp, &ddp->tensors[i], ddp->leader));
    return TUTTI_OK;
}

static enum tutti_result begin_zero(struct tutti_ddp *ddp)
{
    for (size_t b = 0; b < ddp->bucket_count; b++) {
        const struct tti_ddp_bucket *bucket = &ddp->buckets[b];
        if (bucket->gradient)
            TTI_TRY(tti_ddp_zero(ddp, bucket->gradient,
                                 bucket->elements * tutti_type_size(bucket->type),
                                 ddp->options.stream));
    }
    return TUTTI_OK;
}

/* Under the lock: all of the bucket is there, by what the caller's stream holds. */
static void step_full(struct tutti_ddp *ddp, struct tti_ddp_bucket *b)
{
    enum tutti_result result = tti_ddp_device_full(ddp, b, ddp->options.stream);
    if (result != TUTTI_OK)
        tti_ddp_lane_failed(ddp, result);
}

/* What will not be marked (static_graph) counts as ready from the start. */
static void begin_marks(struct tutti_ddp *ddp)
{
    pthread_mutex_lock(&ddp->lock);
    tti_ddp_clock_begin(ddp);
    for (size_t b = 0; b < ddp->bucket_count; b++)
        ddp->buckets[b].pending = ddp->buckets[b].member_count;
    for (size_t i = 0; i < ddp->tensor_count; i++) {
        struct tti_ddp_tensor *t = &ddp->tensors[i];
        t->marks = 0;
        if (t->bucket == TTI_DDP_NONE || t->expected > 0)
            continue;
        ddp->buckets[t->bucket].pending--;
        if (ddp->options.overwrite && !t->touched)
            step_zero_tensor(ddp, t);
    }
    for (size_t b = 0; b < ddp->bucket_count; b++)
        if (ddp->buckets[b].pending == 0)
            step_full(ddp, &ddp->buckets[b]);
    pthread_mutex_unlock(&ddp->lock);
}

enum tutti_result tti_ddp_begin_step(struct tutti_ddp *ddp, bool active)
{
    TTI_TRY(tti_ddp_lanes_wait(ddp, TTI_DDP_NONE));
    if (!ddp->broadcast_done)
        TTI_TRY(tutti_ddp_broadcast(ddp));
    if (ddp->stale) {
        TTI_TRY(tti_ddp_settle(ddp));
        if (!ddp->options.overwrite || !active)
            TTI_TRY(begin_zero(ddp));
        ddp->stale = false;
        ddp->tokens = 0;
    }
    return tti_ddp_count(ddp, active);
}

enum tutti_result tti_ddp_begin_pass(struct tutti_ddp *ddp, bool synchronise)
{
    if (synchronise)
        TTI_TRY(begin_buffers(ddp));
    ddp->learning = ddp->options.static_graph && !ddp->learnt;
    begin_marks(ddp);
    ddp->synchronise = synchronise;
    ddp->open = true;
    return synchronise ? tti_ddp_lanes_give(ddp) : TUTTI_OK;
}

enum tutti_result tutti_ddp_begin(tutti_ddp *ddp, bool synchronise)
{
    if (!ddp)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_begin: ddp is NULL");
    if (ddp->open)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "tutti_ddp_begin: the pass before is not over; call tutti_ddp_wait");
    TTI_TRY(tti_group_refuse("tutti_ddp_begin"));
    TTI_TRY(tti_ddp_begin_step(ddp, true));
    if (synchronise)
        TTI_TRY(tti_ddp_note_call(ddp, TTI_DDP_SYNCHRONISE, TTI_DDP_NONE));
    return tti_ddp_begin_pass(ddp, synchronise);
}

/* ---- ready ---- */

void tti_ddp_complete(struct tutti_ddp *ddp, struct tti_ddp_tensor *t)
{
    t->ready_ns = tti_now_ns();
    if (!ddp->synchronise)
        return;
    tti_ddp_record_ready(ddp, (size_t)(t - ddp->tensors));
    if (--ddp->buckets[t->bucket].pending > 0)
        return;
    step_full(ddp, &ddp->buckets[t->bucket]);
    pthread_cond_broadcast(&ddp->changed);
}

enum tutti_result tti_ddp_mark(struct tutti_ddp *ddp, struct tti_ddp_tensor *t, const char *call,
                               bool *complete)
{
    *complete = false;
    if (!ddp->open)
        return TTI_FAIL(TUTTI_ERR_USAGE, "%s: %s: no pass has begun (tutti_ddp_begin)", call,
                        t->name);
    pthread_mutex_lock(&ddp->lock);
    const bool often = !ddp->learning && t->marks == t->expected;
    if (!often) {
        t->touched = true;
        t->marks++;
        if (ddp->learning)
            t->ready_ns = tti_now_ns();
        else
            *complete = t->marks == t->expected;
    }
    pthread_mutex_unlock(&ddp->lock);
    if (often && ddp->options.static_graph)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "%s: %s was ready %d times in the first pass, and is more often now; "
                        "static_graph wants all passes alike",
                        call, t->name, t->expected);
    if (often)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "%s: %s was ready before in this pass; if it is used several times, call "
                        "when its whole gradient is there (or see static_graph)",
                        call, t->name);
    return TUTTI_OK;
}

enum tutti_result tutti_ddp_ready(tutti_ddp *ddp, size_t index)
{
    bool complete = false;
    TTI_TRY(tti_ddp_trained(ddp, index, "tutti_ddp_ready"));
    struct tti_ddp_tensor *t = &ddp->tensors[index];
    TTI_TRY(tti_ddp_mark(ddp, t, "tutti_ddp_ready", &complete));
    if (!complete)
        return TUTTI_OK;
    pthread_mutex_lock(&ddp->lock);
    tti_ddp_complete(ddp, t);
    pthread_mutex_unlock(&ddp->lock);
    return TUTTI_OK;
}

enum tutti_result tutti_ddp_wait_for(tutti_ddp *ddp, size_t index)
{
    TTI_TRY(tti_ddp_trained(ddp, index, "tutti_ddp_wait_for"));
    const struct tti_ddp_tensor *t = &ddp->tensors[index];
    if (ddp->options.uneven || ddp->options.divisor == TUTTI_DDP_TOKENS)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "tutti_ddp_wait_for: %s is divided in tutti_ddp_wait only, as the options "
                        "(uneven, or TUTTI_DDP_TOKENS) want it",
                        t->name);
    pthread_mutex_lock(&ddp->lock);
    size_t pending = ddp->buckets[t->bucket].pending;
    pthread_mutex_unlock(&ddp->lock);
    if (!ddp->open || !ddp->synchronise || pending > 0)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "tutti_ddp_wait_for: %s shares a bucket with %zu gradients that are not "
                        "ready in a synchronised pass; nothing would come",
                        t->name, pending);
    return tti_ddp_lanes_wait(ddp, t->bucket);
}

enum tutti_result tutti_ddp_tokens(tutti_ddp *ddp, double tokens)
{
    if (!ddp || !(tokens >= 0))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_tokens: %s",
                        ddp ? "a number of tokens is at least 0" : "ddp is NULL");
    if (ddp->options.divisor != TUTTI_DDP_TOKENS)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "tutti_ddp_tokens: options.divisor is not TUTTI_DDP_TOKENS");
    if (!ddp->open)
        return TTI_FAIL(TUTTI_ERR_USAGE, "tutti_ddp_tokens: call it between begin and wait");
    ddp->tokens += tokens;
    return TUTTI_OK;
}

/* ---- wait ---- */

/* Under the lock: the first pass of a static graph is over, and told how often each is marked. */
static void wait_learn(struct tutti_ddp *ddp)
{
    for (size_t i = 0; i < ddp->tensor_count; i++) {
        struct tti_ddp_tensor *t = &ddp->tensors[i];
        if (t->bucket == TTI_DDP_NONE)
            continue;
        t->expected = t->marks;
        if (t->marks == 0 && ddp->options.overwrite)
            step_zero_tensor(ddp, t);
        uint64_t when = t->ready_ns;
        tti_ddp_complete(ddp, t);
        if (t->marks > 0)
            t->ready_ns = when;
    }
    ddp->learning = false;
    ddp->learnt = true;
}

/* Hand in what was not marked. Without find_unused: how many, and their names. */
static size_t wait_missing(struct tutti_ddp *ddp, char *text, size_t bytes)
{
    size_t missing = 0, used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < ddp->tensor_count; i++) {
        struct tti_ddp_tensor *t = &ddp->tensors[i];
        if (t->bucket == TTI_DDP_NONE || t->marks >= t->expected)
            continue;
        if (!ddp->options.find_unused || t->marks > 0) {
            if (used < bytes)
                used += (size_t)snprintf(text + used, bytes - used, "%s%s", missing ? ", " : "",
                                         t->name);
            missing++;
        }
        if (ddp->options.overwrite && !t->touched)
            step_zero_tensor(ddp, t);
        tti_ddp_complete(ddp, t);
    }
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
        "the step is lost: on rank %d no gradient was ready for %.700s (tutti_ddp_ready "
        "was not called; if that is meant, set options.find_unused)",
        culprit, told->text);
}

/* Which tensors any rank used in this step. */
static enum tutti_result wait_used(struct tutti_ddp *ddp)
{
    bool wanted = ddp->options.find_unused || (ddp->options.static_graph && !ddp->used_known);
    if (!wanted)
        return TUTTI_OK;
    uint8_t *used = tti_calloc(ddp->tensor_count, 1);
    if (!used)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < ddp->tensor_count; i++)
        used[i] = ddp->tensors[i].touched;
    enum tutti_result result =
        tutti_all_reduce(used, used, ddp->tensor_count, TUTTI_UINT8, TUTTI_MAX, ddp->control);
    for (size_t i = 0; i < ddp->tensor_count && result == TUTTI_OK; i++)
        ddp->tensors[i].used = used[i] || ddp->tensors[i].bucket == TTI_DDP_NONE;
    free(used);
    ddp->used_known = true;
    return result;
}

/* What was summed is divided: by ranks that had data, or by tokens. */
static enum tutti_result wait_divide(struct tutti_ddp *ddp, double tokens)
{
    double divisor = 1;
    if (ddp->options.divisor == TUTTI_DDP_TOKENS)
        divisor = tokens > 0 ? tokens : 1;
    else if (ddp->options.divisor == TUTTI_DDP_MEAN && ddp->options.uneven)
        divisor = ddp->active;
    return divisor == 1 ? TUTTI_OK : tti_ddp_scale(ddp, 1, divisor);
}

static enum tutti_result wait_synchronised(struct tutti_ddp *ddp)
{
    struct tti_error told = {0};
    pthread_mutex_lock(&ddp->lock);
    tti_ddp_clock_backward(ddp);
    pthread_mutex_unlock(&ddp->lock);
    tti_ddp_offload_wait(ddp);
    pthread_mutex_lock(&ddp->lock);
    if (ddp->learning)
        wait_learn(ddp);
    size_t missing = wait_missing(ddp, told.text, 700);
    pthread_mutex_unlock(&ddp->lock);
    double sums[2] = {(double)missing, ddp->tokens};
    TTI_TRY(tutti_all_reduce(sums, sums, 2, TUTTI_FLOAT64, TUTTI_SUM, ddp->control));
    enum tutti_result used = wait_used(ddp);
    TTI_TRY(tti_ddp_lanes_wait(ddp, TTI_DDP_NONE)); /* fails as well if a GPU's did not come */
    TTI_TRY(used);
    if (sums[0] > 0)
        return wait_explain(ddp, missing, &told);
    TTI_TRY(wait_divide(ddp, sums[1]));
    pthread_mutex_lock(&ddp->lock);
    tti_ddp_clock_end(ddp);
    tti_ddp_record_pass(ddp);
    ddp->steps++;
    pthread_mutex_unlock(&ddp->lock);
    return TUTTI_OK;
}

enum tutti_result tutti_ddp_wait(tutti_ddp *ddp)
{
    if (!ddp)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_wait: ddp is NULL");
    if (!ddp->open)
        return TTI_FAIL(TUTTI_ERR_USAGE, "tutti_ddp_wait: no pass has begun (tutti_ddp_begin)");
    TTI_TRY(tti_group_refuse("tutti_ddp_wait"));
    ddp->open = false;
    if (!ddp->synchronise) {
        pthread_mutex_lock(&ddp->lock);
        if (ddp->learning)
            wait_learn(ddp);
        pthread_mutex_unlock(&ddp->lock);
        return TUTTI_OK;
    }
    ddp->stale = true;
    tti_ddp_note_end(ddp);
    enum tutti_result result = wait_synchronised(ddp);
    for (size_t i = 0; i < ddp->tensor_count; i++)
        ddp->tensors[i].touched = false;
    return result;
}

/* ---- for a rank without data, and who was used ---- */

void tti_ddp_mark_all(struct tutti_ddp *ddp)
{
    pthread_mutex_lock(&ddp->lock);
    ddp->learning = false; /* this pass shows nothing */
    for (size_t i = 0; i < ddp->tensor_count; i++) {
        struct tti_ddp_tensor *t = &ddp->tensors[i];
        if (t->bucket == TTI_DDP_NONE || t->marks >= t->expected)
            continue;
        t->marks = t->expected;
        if (ddp->options.overwrite && !t->touched)
            step_zero_tensor(ddp, t);
        tti_ddp_complete(ddp, t);
    }
    pthread_mutex_unlock(&ddp->lock);
}

enum tutti_result tutti_ddp_used(tutti_ddp *ddp, size_t index, bool *used)
{
    TTI_TRY(step_tensor(ddp, index, "tutti_ddp_used"));
    if (!used)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_used: used is NULL");
    *used = ddp->tensors[index].used;
    return TUTTI_OK;
}

const char *tutti_ddp_unused(tutti_ddp *ddp)
{
    size_t bytes = 0;
    char *text = NULL;
    FILE *out = ddp ? open_memstream(&text, &bytes) : NULL;
    if (!out)
        return "";
    for (size_t i = 0; i < ddp->tensor_count; i++)
        if (!ddp->tensors[i].used)
            fprintf(out, "%s%s", ftell(out) > 0 ? ", " : "", ddp->tensors[i].name);
    fclose(out);
    free(ddp->unused);
    ddp->unused = text;
    return text ? text : "";
}
