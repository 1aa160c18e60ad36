/* The order in which gradients become ready, observed once (ddp/ddp_state.h).
 * Read next: ddp_schedule.c.
 *
 * Buckets are first made for the list backwards, a guess. After the first synchronised pass they
 * are made anew in the order that rank 0 saw; ranks that saw another one follow it, since an order
 * is only worth something when it is the same everywhere. Which chunks may pass others depends on
 * how fast they go, which the first passes, with cold caches and connections, do not show: that is
 * decided a few passes later. */
#include "base/memory.h"
#include "ddp/ddp_state.h"

#include <stdlib.h>
#include <string.h>

struct order_entry {
    uint64_t when;
    size_t index;
};

static int order_compare(const void *a, const void *b)
{
    const struct order_entry *x = a, *y = b;
    if (x->when != y->when)
        return x->when < y->when ? -1 : 1;
    return (x->index < y->index) - (x->index > y->index);
}

static enum tutti_result order_observed(const struct tutti_ddp *ddp, size_t *order)
{
    struct order_entry *entries = tti_calloc(ddp->trained_count, sizeof *entries);
    if (!entries)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0, k = 0; i < ddp->tensor_count; i++)
        if (ddp->tensors[i].bucket != TTI_DDP_NONE)
            entries[k++] = (struct order_entry){ddp->tensors[i].ready_ns, i};
    qsort(entries, ddp->trained_count, sizeof *entries, order_compare);
    for (size_t k = 0; k < ddp->trained_count; k++)
        order[k] = entries[k].index;
    free(entries);
    return TUTTI_OK;
}

/* Rank 0's word, but only if it is an order of the trained tensors. */
static bool order_valid(const struct tutti_ddp *ddp, const size_t *order, bool *seen)
{
    for (size_t k = 0; k < ddp->trained_count; k++) {
        if (order[k] >= ddp->tensor_count || ddp->tensors[order[k]].bucket == TTI_DDP_NONE ||
            seen[order[k]])
            return false;
        seen[order[k]] = true;
    }
    return true;
}

/* The order of chunks by this rank's times: when the tensors of the buckets were ready, and how
 * many bytes a second went through in the pass that was observed. They are taken to be faster than
 * they were: who expects a queue where none is keeps back a chunk that is ready, and the wire idle.
 */
static enum tutti_result order_chunks(struct tutti_ddp *ddp)
{
    const double hope = 0.5;
    double per_byte = ddp->last.bytes ? hope * ddp->last.busy_s / (double)ddp->last.bytes : 0;
    struct tti_ddp_load *loads = tti_calloc(ddp->bucket_count, sizeof *loads);
    size_t *done = tti_calloc(ddp->bucket_count, sizeof *done);
    for (size_t i = 0; loads && done && i < ddp->bucket_count; i++) {
        const struct tti_ddp_bucket *b = &ddp->buckets[i];
        size_t bytes = b->chunks[0].count * tutti_type_size(b->type) * (ddp->split ? 2 : 1);
        loads[i] = (struct tti_ddp_load){0, per_byte * (double)bytes, b->chunk_count, b->needed};
        for (size_t m = 0; m < b->member_count; m++) {
            double ready = 1e-9 * (double)ddp->tensors[b->members[m]].ready_ns;
            loads[i].full_s = ready > loads[i].full_s ? ready : loads[i].full_s;
        }
    }
    bool made = loads && done;
    if (made)
        tti_ddp_schedule(loads, ddp->bucket_count, done, ddp->schedule);
    free(loads);
    free(done);
    return made ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

/* Rank 0's word, but only if it has every chunk once, those of a bucket in their order. */
static bool order_chunks_valid(const struct tutti_ddp *ddp, size_t *seen)
{
    for (size_t k = 0; k < ddp->schedule_count; k++) {
        const struct tti_ddp_range *r = &ddp->schedule[k];
        if (r->bucket < 0 || (size_t)r->bucket >= ddp->bucket_count ||
            r->chunk >= ddp->buckets[r->bucket].chunk_count || seen[r->bucket]++ != r->chunk)
            return false;
    }
    return true;
}

static enum tutti_result order_agree_chunks(struct tutti_ddp *ddp)
{
    if (ddp->rank == 0)
        TTI_TRY(order_chunks(ddp));
    TTI_TRY(tutti_broadcast(ddp->schedule, ddp->schedule,
                            ddp->schedule_count * sizeof *ddp->schedule, TUTTI_UINT8, 0,
                            ddp->control));
    size_t *seen = tti_calloc(ddp->bucket_count, sizeof *seen);
    if (!seen)
        return TUTTI_ERR_MEMORY;
    bool valid = order_chunks_valid(ddp, seen);
    free(seen);
    return valid ? TUTTI_OK
                 : TTI_FAIL(TUTTI_ERR_PROTOCOL, "rank 0 sent an order of chunks that is none");
}

static enum tutti_result order_agree(struct tutti_ddp *ddp, size_t *order, bool *seen)
{
    if (ddp->rank == 0)
        TTI_TRY(order_observed(ddp, order));
    TTI_TRY(tutti_broadcast(order, order, ddp->trained_count * sizeof *order, TUTTI_UINT8, 0,
                            ddp->control));
    if (!order_valid(ddp, order, seen))
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "rank 0 sent an order of gradients that is none");
    return tti_ddp_layout(ddp, order);
}

static enum tutti_result order_settle(struct tutti_ddp *ddp)
{
    if (ddp->options.zero > 0) /* shards stay where they are, and the optimizer's state with them */
        return TUTTI_OK;
    size_t *order = tti_calloc(ddp->trained_count, sizeof *order);
    bool *seen = tti_calloc(ddp->tensor_count, sizeof *seen);
    enum tutti_result result = order && seen ? order_agree(ddp, order, seen) : TUTTI_ERR_MEMORY;
    free(order);
    free(seen);
    return result;
}

enum tutti_result tti_ddp_settle(struct tutti_ddp *ddp)
{
    enum { SCHEDULE_AFTER = 4 }; /* passes */
    const bool settle = !ddp->settled && ddp->steps > 0;
    const bool schedule = !ddp->scheduled && ddp->steps >= SCHEDULE_AFTER;
    if (ddp->trained_count == 0)
        return TUTTI_OK;
    enum tutti_result result = settle ? order_settle(ddp) : TUTTI_OK;
    if (result == TUTTI_OK && schedule)
        result = order_agree_chunks(ddp);
    if (result != TUTTI_OK)
        return TTI_CONTEXT(result, "while agreeing on the order of gradients");
    ddp->settled |= settle;
    ddp->scheduled |= schedule;
    return TUTTI_OK;
}

enum tutti_result tutti_ddp_ready_order(tutti_ddp *ddp, size_t *order, size_t capacity,
                                        size_t *count)
{
    if (!ddp || !order || !count)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_ready_order: %s is NULL",
                        !ddp     ? "ddp"
                        : !order ? "order"
                                 : "count");
    size_t *all = tti_calloc(ddp->trained_count, sizeof *all);
    if (!all)
        return TUTTI_ERR_MEMORY;
    enum tutti_result result = order_observed(ddp, all);
    if (result == TUTTI_OK) {
        *count = ddp->trained_count;
        memcpy(order, all, (capacity < *count ? capacity : *count) * sizeof *all);
    }
    free(all);
    return result;
}
