/* Values by unit: acquire, release, and what is gathered ahead (tutti/ddp.h).
 *
 * With zero 3 a unit's values have memory while somebody holds it, or while it is expected. What is
 * gathered, and when, follows from the order of the calls alone, never from time: so all ranks give
 * the value lane the same work in the same order. */
#include "base/memory.h"
#include "ddp/ddp_state.h"

#include <stdlib.h>
#include <string.h>

enum tutti_result tti_ddp_units_make(struct tutti_ddp *ddp)
{
    ddp->units = tti_calloc(ddp->tensor_count, sizeof *ddp->units);
    if (!ddp->units)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < ddp->tensor_count; i++) {
        size_t u = 0;
        while (u < ddp->unit_count && ddp->units[u] != ddp->tensors[i].unit)
            u++;
        if (u == ddp->unit_count)
            ddp->units[ddp->unit_count++] = ddp->tensors[i].unit;
    }
    return TUTTI_OK;
}

static enum tutti_result units_find(const struct tutti_ddp *ddp, int unit, const char *what,
                                    size_t *found)
{
    for (size_t u = 0; u < ddp->unit_count; u++)
        if (ddp->units[u] == unit) {
            *found = u;
            return TUTTI_OK;
        }
    return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: no tensor belongs to unit %d", what, unit);
}

/* ---- memory of a bucket's values (zero 3) ---- */

static void units_point(struct tutti_ddp *ddp, const struct tti_ddp_bucket *b)
{
    for (size_t m = 0; m < b->member_count; m++)
        ddp->tensors[b->members[m]].value =
            b->value ? b->value + b->offsets[m] * tutti_type_size(b->type) : NULL;
}

/* Have the values of a bucket gathered, unless they are there or on their way. */
static enum tutti_result units_gather(struct tutti_ddp *ddp, size_t bucket)
{
    struct tti_ddp_bucket *b = &ddp->buckets[bucket];
    if (b->value)
        return TUTTI_OK;
    pthread_mutex_lock(&ddp->lock);
    enum tutti_result result = tti_ddp_pool_fill(&ddp->value_pool);
    if (result == TUTTI_OK) {
        b->value = tti_ddp_pool_take(&ddp->value_pool);
        result = tti_ddp_lanes_gather(ddp, (int)bucket);
    }
    pthread_mutex_unlock(&ddp->lock);
    return result;
}

static enum tutti_result units_drop(struct tutti_ddp *ddp, size_t bucket)
{
    struct tti_ddp_bucket *b = &ddp->buckets[bucket];
    TTI_TRY(tti_ddp_lanes_gathered(ddp, (int)bucket));
    pthread_mutex_lock(&ddp->lock);
    tti_ddp_pool_give(&ddp->value_pool, b->value);
    b->value = NULL;
    pthread_mutex_unlock(&ddp->lock);
    units_point(ddp, b);
    return TUTTI_OK;
}

/* Place `ahead` units further in the present direction; unit_count: there is none. */
static size_t units_ahead(const struct tutti_ddp *ddp, size_t ahead)
{
    if (ddp->backwards)
        return ahead <= ddp->unit_at ? ddp->unit_at - ahead : ddp->unit_count;
    return ahead < ddp->unit_count - ddp->unit_at ? ddp->unit_at + ahead : ddp->unit_count;
}

/* Is the unit the one at hand, or one of those expected? */
static bool units_expected(const struct tutti_ddp *ddp, int unit)
{
    for (size_t ahead = 0; ahead <= (size_t)ddp->options.prefetch; ahead++) {
        size_t place = units_ahead(ddp, ahead);
        if (place < ddp->unit_count && ddp->units[place] == unit)
            return true;
    }
    return false;
}

/* Gather the unit at hand and those expected, in this order; forget what is not expected any
 * more. */
static enum tutti_result units_follow(struct tutti_ddp *ddp)
{
    for (size_t b = 0; b < ddp->bucket_count; b++)
        if (ddp->buckets[b].value && ddp->buckets[b].holders == 0 &&
            !units_expected(ddp, ddp->buckets[b].unit))
            TTI_TRY(units_drop(ddp, b));
    for (size_t ahead = 0; ahead <= (size_t)ddp->options.prefetch; ahead++) {
        size_t place = units_ahead(ddp, ahead);
        for (size_t b = 0; b < ddp->bucket_count && place < ddp->unit_count; b++)
            if (ddp->buckets[b].unit == ddp->units[place])
                TTI_TRY(units_gather(ddp, b));
    }
    return TUTTI_OK;
}

enum tutti_result tti_ddp_units_forget(struct tutti_ddp *ddp)
{
    for (size_t b = 0; b < ddp->bucket_count; b++) {
        if (ddp->buckets[b].holders > 0)
            return TTI_FAIL(TUTTI_ERR_USAGE,
                            "tutti_ddp_publish: unit %d is held, and its values are about to "
                            "change; call tutti_ddp_release first",
                            ddp->buckets[b].unit);
        if (ddp->buckets[b].value)
            TTI_TRY(units_drop(ddp, b));
    }
    return TUTTI_OK;
}

/* ---- acquire ---- */

static enum tutti_result units_acquire(struct tutti_ddp *ddp, size_t place)
{
    if (place != ddp->unit_at)
        ddp->backwards = place < ddp->unit_at;
    ddp->unit_at = place;
    TTI_TRY(units_follow(ddp));
    for (size_t i = 0; i < ddp->bucket_count; i++) {
        struct tti_ddp_bucket *b = &ddp->buckets[i];
        if (b->unit != ddp->units[place])
            continue;
        TTI_TRY(tti_ddp_lanes_gathered(ddp, (int)i));
        units_point(ddp, b);
        b->holders++;
    }
    return TUTTI_OK;
}

enum tutti_result tutti_ddp_acquire(tutti_ddp *ddp, int unit)
{
    size_t place = 0;
    if (!ddp)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_acquire: ddp is NULL");
    TTI_TRY(units_find(ddp, unit, "tutti_ddp_acquire", &place));
    TTI_TRY(tti_ddp_note_call(ddp, TTI_DDP_ACQUIRE, unit));
    if (ddp->options.zero == 3)
        return units_acquire(ddp, place);
    for (size_t i = 0; i < ddp->tensor_count; i++)
        if (ddp->tensors[i].unit == unit && ddp->tensors[i].bucket != TTI_DDP_NONE)
            TTI_TRY(tti_ddp_lanes_gathered(ddp, ddp->tensors[i].bucket));
    return TUTTI_OK;
}

/* ---- release ---- */

/* Rank 0's values are everybody's. */
static enum tutti_result units_spread(struct tutti_ddp *ddp, int unit)
{
    for (size_t i = 0; i < ddp->tensor_count; i++)
        if (ddp->tensors[i].unit == unit)
            TTI_TRY(tti_ddp_spread(ddp, &ddp->tensors[i], 0));
    return TUTTI_OK;
}

/* Out of whole values, what this rank keeps. */
static enum tutti_result units_keep(const struct tutti_ddp *ddp, const struct tti_ddp_bucket *b)
{
    size_t element = tutti_type_size(b->type), ranks = (size_t)ddp->group_size;
    for (size_t i = 0; i < b->chunk_count; i++) {
        const struct tti_ddp_chunk *c = &b->chunks[i];
        size_t own = c->first + (size_t)ddp->group_rank * c->block;
        TTI_TRY(tti_ddp_copy(ddp, b->value_shard + c->first / ranks * element,
                             b->value + own * element, c->block * element));
    }
    return TUTTI_OK;
}

static enum tutti_result units_release(struct tutti_ddp *ddp, int unit, bool changed)
{
    for (size_t i = 0; i < ddp->bucket_count; i++) {
        struct tti_ddp_bucket *b = &ddp->buckets[i];
        if (b->unit != unit)
            continue;
        if (changed)
            TTI_TRY(units_keep(ddp, b));
        b->holders--;
        if (b->holders == 0)
            TTI_TRY(units_drop(ddp, i));
    }
    return TUTTI_OK;
}

enum tutti_result tutti_ddp_release(tutti_ddp *ddp, int unit, bool changed)
{
    size_t place = 0;
    if (!ddp)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_release: ddp is NULL");
    TTI_TRY(units_find(ddp, unit, "tutti_ddp_release", &place));
    if (changed && ddp->open)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "tutti_ddp_release: unit %d: values change outside a pass only", unit);
    for (size_t b = 0; b < ddp->bucket_count && ddp->options.zero == 3; b++)
        if (ddp->buckets[b].unit == unit && ddp->buckets[b].holders == 0)
            return TTI_FAIL(TUTTI_ERR_USAGE, "tutti_ddp_release: unit %d is not held", unit);
    TTI_TRY(tti_ddp_note_call(ddp, TTI_DDP_RELEASE, unit));
    if (changed)
        TTI_TRY(units_spread(ddp, unit));
    return ddp->options.zero == 3 ? units_release(ddp, unit, changed) : TUTTI_OK;
}
