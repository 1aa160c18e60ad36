/* The order in which gradients become ready, observed once (ddp/ddp_state.h).
 *
 * Buckets are first made for the list backwards, a guess. After the first synchronised pass they
 * are made anew in the order that rank 0 saw; ranks that saw another one follow it, since an order
 * is only worth something when it is the same everywhere. */
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

static enum tutti_result order_agree(struct tutti_ddp *ddp, size_t *order, bool *seen)
{
    if (ddp->rank == 0)
        TTI_TRY(order_observed(ddp, order));
    enum tutti_result result = tutti_broadcast(order, order, ddp->trained_count * sizeof *order,
                                               TUTTI_UINT8, 0, ddp->control);
    if (result != TUTTI_OK)
        return TTI_CONTEXT(result, "while agreeing on the order of gradients");
    if (!order_valid(ddp, order, seen))
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "rank 0 sent an order of gradients that is none");
    return tti_ddp_layout(ddp, order);
}

enum tutti_result tti_ddp_settle(struct tutti_ddp *ddp)
{
    if (ddp->settled || ddp->steps == 0)
        return TUTTI_OK;
    size_t *order = tti_calloc(ddp->trained_count, sizeof *order);
    bool *seen = tti_calloc(ddp->tensor_count, sizeof *seen);
    enum tutti_result result = order && seen ? order_agree(ddp, order, seen) : TUTTI_ERR_MEMORY;
    free(order);
    free(seen);
    TTI_TRY(result);
    ddp->settled = true;
    return TUTTI_OK;
}
