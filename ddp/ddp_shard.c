/* Sharding: what of gradients and values a rank keeps, and how new values get to the others
 * (ddp/ddp_state.h; ZeRO, arXiv 1910.02054).
 *
 * Of each chunk a rank has one block: so a shard is made of as many parts as there are chunks, and
 * reduce-scatter and all-gather work in place. Cuts never move, since the optimizer's state lies by
 * them; what is observed changes the order of chunks only. Read next: ddp_units.c. */
#include "base/memory.h"
#include "ddp/ddp_state.h"

#include <stdlib.h>
#include <string.h>

static size_t shard_bytes(const struct tti_ddp_bucket *b)
{
    return b->elements * tutti_type_size(b->type);
}

/* The largest bucket: what buffers of pools hold. */
static size_t shard_most(const struct tutti_ddp *ddp)
{
    size_t most = 0;
    for (size_t b = 0; b < ddp->bucket_count; b++)
        most = shard_bytes(&ddp->buckets[b]) > most ? shard_bytes(&ddp->buckets[b]) : most;
    return most;
}

enum tutti_result tti_ddp_shard_values(struct tutti_ddp *ddp)
{
    bool whole = ddp->options.zero < 3;
    size_t bytes = 0, parts = whole ? 1 : (size_t)ddp->group_size;
    for (size_t b = 0; b < ddp->bucket_count; b++)
        bytes += shard_bytes(&ddp->buckets[b]) / parts;
    TTI_TRY(tti_ddp_alloc(ddp, bytes, &ddp->sharded_values));
    char *at = ddp->sharded_values;
    for (size_t i = 0; i < ddp->bucket_count; i++) {
        struct tti_ddp_bucket *b = &ddp->buckets[i];
        if (whole)
            b->value = at;
        else
            b->value_shard = at;
        at += shard_bytes(b) / parts;
        for (size_t m = 0; m < b->member_count && whole; m++)
            ddp->tensors[b->members[m]].value = b->value + b->offsets[m] * tutti_type_size(b->type);
    }
    ddp->value_bytes += bytes;
    ddp->value_bytes_most = ddp->value_bytes;
    ddp->gradient_pool.bytes = ddp->value_pool.bytes = shard_most(ddp);
    tti_ddp_shard_pieces(ddp);
    return TUTTI_OK;
}

/* What of a tensor lies in this rank's block of a chunk. */
static void shard_piece(struct tutti_ddp *ddp, const struct tti_ddp_bucket *b, size_t member,
                        const struct tti_ddp_chunk *c)
{
    const size_t index = b->members[member], begin = b->offsets[member];
    const size_t element = tutti_type_size(b->type);
    const size_t own = c->first + (size_t)ddp->group_rank * c->block;
    size_t end = begin + ddp->tensors[index].elements;
    size_t from = begin > own ? begin : own, to = end < own + c->block ? end : own + c->block;
    if (from >= to)
        return;
    size_t kept = c->first / (size_t)ddp->group_size + from - own; /* in memory of shards */
    ddp->pieces[ddp->piece_count++] = (struct tutti_ddp_piece){
        .index = index,
        .first = from - begin,
        .count = to - from,
        .value = b->value_shard ? b->value_shard + kept * element : b->value + from * element,
        .gradient = b->shard ? b->shard + kept * element : b->gradient + from * element,
        .state = ddp->piece_elements,
    };
    ddp->piece_elements += to - from;
}

void tti_ddp_shard_pieces(struct tutti_ddp *ddp)
{
    ddp->piece_count = ddp->piece_elements = 0;
    for (size_t i = 0; i < ddp->bucket_count; i++) {
        const struct tti_ddp_bucket *b = &ddp->buckets[i];
        for (size_t c = 0; c < b->chunk_count; c++)
            for (size_t m = 0; m < b->member_count; m++)
                shard_piece(ddp, b, m, &b->chunks[c]);
    }
}

/* ---- whole gradients for a while ---- */

/* Under the lock: is a lane about to give a buffer back? */
static bool shard_coming(const struct tutti_ddp *ddp)
{
    for (size_t i = 0; i < ddp->bucket_count; i++) {
        const struct tti_ddp_bucket *b = &ddp->buckets[i];
        if (b->gradient && b->pending == 0 && b->unfinished > 0)
            return true;
    }
    return false;
}

/* Waiting for a lane bounds memory: it does not grow because computation is faster. But a lane may
 * depend on a bucket that the caller is about to fill, and, since a lane that works waits for the
 * same lane on other ranks, so may theirs. So nobody waits while a lane of its own starves: of all
 * that wait the one whose lane is furthest behind has then what that lane needs, and goes on. */
static bool shard_waits(const struct tutti_ddp *ddp)
{
    size_t out = ddp->gradient_pool.count - ddp->gradient_pool.idle_count;
    return ddp->gradient_pool.idle_count == 0 && out >= 2 && ddp->clock.working > 0 &&
           shard_coming(ddp) && !tti_ddp_lanes_starve(ddp) && ddp->error.code == TUTTI_OK;
}

void tti_ddp_gradient_room(struct tutti_ddp *ddp)
{
    while (shard_waits(ddp))
        pthread_cond_wait(&ddp->changed, &ddp->lock);
}

enum tutti_result tti_ddp_gradient_take(struct tutti_ddp *ddp, struct tti_ddp_bucket *bucket,
                                        bool zero, tutti_stream stream)
{
    bucket->gradient = tti_ddp_pool_take(&ddp->gradient_pool);
    return zero ? tti_ddp_zero(ddp, bucket->gradient, shard_bytes(bucket), stream) : TUTTI_OK;
}

void tti_ddp_gradient_give(struct tutti_ddp *ddp, struct tti_ddp_bucket *bucket)
{
    tti_ddp_pool_give(&ddp->gradient_pool, bucket->gradient);
    bucket->gradient = NULL;
}

/* ---- publish ---- */

/* The bucket that is needed first of those that are needed after `after` (SIZE_MAX: of all). */
static int shard_next(const struct tutti_ddp *ddp, size_t after)
{
    int next = TTI_DDP_NONE;
    for (size_t b = 0; b < ddp->bucket_count; b++)
        if ((after == SIZE_MAX || ddp->buckets[b].needed > after) &&
            (next == TTI_DDP_NONE || ddp->buckets[b].needed < ddp->buckets[next].needed))
            next = (int)b;
    return next;
}

enum tutti_result tutti_ddp_publish(tutti_ddp *ddp)
{
    if (!ddp)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_publish: ddp is NULL");
    if (ddp->open)
        return TTI_FAIL(TUTTI_ERR_USAGE, "tutti_ddp_publish: a pass is open; call tutti_ddp_wait");
    if (ddp->options.zero == 0)
        return TUTTI_OK;
    if (ddp->options.zero == 3)
        return tti_ddp_units_forget(ddp);
    TTI_TRY(tti_ddp_lanes_gathered(ddp, TTI_DDP_NONE));
    enum tutti_result result = TUTTI_OK;
    pthread_mutex_lock(&ddp->lock);
    for (int b = shard_next(ddp, SIZE_MAX); b != TTI_DDP_NONE && result == TUTTI_OK;
         b = shard_next(ddp, ddp->buckets[b].needed))
        result = tti_ddp_lanes_gather(ddp, b);
    pthread_mutex_unlock(&ddp->lock);
    TTI_TRY(result);
    return ddp->options.by_unit ? TUTTI_OK : tti_ddp_lanes_gathered(ddp, TTI_DDP_NONE);
}
