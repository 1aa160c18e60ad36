/* What a lane does with a chunk, or with a bucket: the collectives and the hooks (ddp/ddp_state.h).
 *
 * With a hook of 16 bits, gradients are rounded to it on their way into a collective and widened on
 * their way out; the collective itself sums in float32 and rounds once. Read next: ddp_power.c. */
#include "ddp/ddp_state.h"

#include <string.h>

enum tutti_result tti_ddp_scratch(struct tti_ddp_lane *lane, size_t bytes, void **scratch)
{
    if (lane->ddp->options.on_device && bytes < lane->ddp->options.chunk_bytes)
        bytes = lane->ddp->options.chunk_bytes; /* none is freed while ranks wait for each other */
    if (bytes > lane->scratch_bytes) {
        void *more = NULL;
        TTI_TRY(tti_ddp_alloc(lane->ddp, bytes, &more));
        tti_ddp_free(lane->ddp, lane->scratch);
        lane->scratch = more;
        lane->scratch_bytes = bytes;
    }
    *scratch = lane->scratch;
    return TUTTI_OK;
}

/* The type in which a bucket's gradients travel. */
static enum tutti_type reduce_wire(const struct tutti_ddp *ddp, enum tutti_type type)
{
    if (type != TUTTI_FLOAT32)
        return type;
    if (ddp->options.hook == TUTTI_DDP_HOOK_FLOAT16)
        return TUTTI_FLOAT16;
    return ddp->options.hook == TUTTI_DDP_HOOK_BFLOAT16 ? TUTTI_BFLOAT16 : type;
}

static enum tutti_op reduce_op(const struct tutti_ddp *ddp)
{
    bool later = ddp->options.uneven || ddp->options.divisor != TUTTI_DDP_MEAN;
    return later ? TUTTI_SUM : TUTTI_AVG;
}

/* `data` is the chunk, `own` this rank's block, in it or (to be scattered to) elsewhere. Groups of
 * ranks that share a copy are equally large, so that the mean of their means is the mean. */
static enum tutti_result reduce_data(struct tti_ddp_lane *lane, enum tti_ddp_action action,
                                     char *data, char *own, const struct tti_ddp_chunk *c,
                                     enum tutti_type type)
{
    enum tutti_op op = reduce_op(lane->ddp);
    lane->sent += c->count * tutti_type_size(type);
    if (action == TTI_DDP_REDUCE_SCATTER) {
        TTI_TRY(tti_ddp_reduce_scatter(lane, data, own, c->block, type, op));
        return lane->across ? tti_ddp_all_reduce(lane, own, c->block, type, op, lane->across)
                            : TUTTI_OK;
    }
    if (action == TTI_DDP_ALL_GATHER)
        return tti_ddp_all_gather(lane, own, data, c->block, type);
    return tti_ddp_all_reduce(lane, data, c->count, type, op, lane->comm);
}

static enum tutti_result reduce_chunk(struct tti_ddp_lane *lane, const struct tti_ddp_task *task)
{
    const struct tutti_ddp *ddp = lane->ddp;
    const struct tti_ddp_bucket *b = &ddp->buckets[task->bucket];
    const struct tti_ddp_chunk *c = &b->chunks[task->chunk];
    enum tutti_type wire = reduce_wire(ddp, b->type);
    size_t element = tutti_type_size(b->type), narrow = tutti_type_size(wire);
    size_t before = (size_t)ddp->group_rank * c->block;
    char *data = b->gradient + c->first * element, *own = data + before * element;
    if (b->shard)
        own = b->shard + c->first / (size_t)ddp->group_size * element;
    if (wire == b->type)
        return reduce_data(lane, task->action, data, own, c, wire);
    void *scratch = NULL;
    TTI_TRY(tti_ddp_scratch(lane, c->count * narrow, &scratch));
    char *thin = scratch, *thin_own = thin + before * narrow;
    if (task->action == TTI_DDP_ALL_GATHER)
        TTI_TRY(tti_ddp_convert(lane, thin_own, wire, own, b->type, c->block));
    else
        TTI_TRY(tti_ddp_convert(lane, thin, wire, data, b->type, c->count));
    TTI_TRY(reduce_data(lane, task->action, thin, thin_own, c, wire));
    if (task->action == TTI_DDP_REDUCE_SCATTER)
        TTI_TRY(tti_ddp_convert(lane, own, b->type, thin_own, wire, c->block));
    else
        TTI_TRY(tti_ddp_convert(lane, data, b->type, thin, wire, c->count));
    return tti_ddp_lane_done(lane);
}

static enum tutti_result reduce_values(struct tti_ddp_lane *lane, const struct tti_ddp_task *task)
{
    const struct tutti_ddp *ddp = lane->ddp;
    const struct tti_ddp_bucket *b = &ddp->buckets[task->bucket];
    const struct tti_ddp_chunk *c = &b->chunks[task->chunk];
    size_t element = tutti_type_size(b->type), ranks = (size_t)ddp->group_size;
    char *data = b->value + c->first * element;
    const char *own = data + (size_t)ddp->group_rank * c->block * element;
    if (b->value_shard)
        own = b->value_shard + c->first / ranks * element;
    lane->sent += c->count * element;
    return tti_ddp_all_gather(lane, own, data, c->block, b->type);
}

static enum tutti_result reduce_by_user(struct tti_ddp_lane *lane, const struct tti_ddp_task *task)
{
    const struct tutti_ddp *ddp = lane->ddp;
    const struct tti_ddp_bucket *b = &ddp->buckets[task->bucket];
    const struct tutti_ddp_bucket seen = {
        .index = task->bucket,
        .step = ddp->steps,
        .data = b->gradient,
        .count = b->elements,
        .type = b->type,
        .comm = lane->comm,
        .members = b->members,
        .offsets = b->offsets,
        .member_count = b->member_count,
    };
    lane->sent += b->elements * tutti_type_size(b->type);
    enum tutti_result result = ddp->options.user_hook(&seen, ddp->options.user_context);
    return result == TUTTI_OK ? result : TTI_CONTEXT(result, "in the user's hook");
}

enum tutti_result tti_ddp_reduce(struct tti_ddp_lane *lane, const struct tti_ddp_task *task)
{
    struct tutti_ddp *ddp = lane->ddp;
    struct tti_ddp_bucket *b = &ddp->buckets[task->bucket];
    if (task->action == TTI_DDP_VALUES)
        return reduce_values(lane, task);
    if (task->action != TTI_DDP_HOOK)
        return reduce_chunk(lane, task);
    if (ddp->options.hook == TUTTI_DDP_HOOK_USER)
        return reduce_by_user(lane, task);
    if (b->type == TUTTI_FLOAT32 && ddp->steps >= ddp->options.power_start)
        return tti_ddp_power_reduce(lane, b);
    return reduce_data(lane, TTI_DDP_ALL_REDUCE, b->gradient, NULL, &b->chunks[0], b->type);
}
