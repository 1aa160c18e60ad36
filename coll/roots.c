/* Broadcasts as messages, reduces as a reduce-scatter (coll/roots.h). */
#include "coll/roots.h"

#include "base/types.h"
#include "coll/comm.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/select.h"
#include "plan/plan.h"

#include <stdlib.h>

enum {
    MOST_ROOTS = 64,
    SMALL_BYTES = 64 << 10, /* up to here the number of kernels is what counts */
    OUTWEIGHS = 4,          /* times the average */
};

/* ---- which ---- */

/* Blocks of one reduce-scatter have all in common but where they go. */
static bool roots_alike(const struct tti_operation *a, const struct tti_operation *b)
{
    return !tti_reduces(a->collective) ||
           (a->type == b->type && a->op == b->op && a->factor == b->factor);
}

bool tti_roots_take(struct tti_roots *r, const struct tti_operation *o)
{
    if ((o->collective != TUTTI_BROADCAST && o->collective != TUTTI_REDUCE) ||
        o->root >= MOST_ROOTS || (r->roots >> o->root & 1) ||
        (r->calls > 0 && o->collective != r->like.collective) ||
        (r->count > 0 && o->count > 0 && !roots_alike(&r->like, o)))
        return false;
    r->calls++;
    if (r->count == 0)
        r->like = *o;
    if (o->count == 0)
        return true;
    const size_t bytes = o->count * tti_type_bytes(o->type);
    r->roots |= UINT64_C(1) << o->root;
    r->bytes += bytes;
    r->most = bytes > r->most ? bytes : r->most;
    r->count++;
    return true;
}

bool tti_roots_suit(const struct tti_roots *r)
{
    char name[64];
    return r->count > 1 && r->comm->peers.nhosts == 1 &&
           (r->most <= SMALL_BYTES || r->most / OUTWEIGHS <= r->bytes / r->count) &&
           !tti_select_forced(r->comm, r->like.collective, name, sizeof name) &&
           tti_gpu_reaches(r->comm, !tti_reduces(r->like.collective));
}

/* ---- what they become ---- */

size_t tti_roots_room(const struct tti_roots *r)
{
    /* A broadcast: a message to each other rank, and two for the own. */
    return tti_reduces(r->like.collective) ? 1 : r->calls * ((size_t)r->comm->size + 1);
}

static struct tti_operation roots_message(const struct tti_operation *o, int peer, bool receives)
{
    struct tti_operation message = *o;
    message.collective = TUTTI_SEND_RECV;
    message.part_of = TUTTI_BROADCAST;
    message.root = peer;
    message.receives = receives;
    message.in = receives ? NULL : o->in;
    message.out = receives ? o->out : NULL;
    return message;
}

static void roots_messages(const struct tutti_comm *comm, const struct tti_operation *o,
                           struct tti_operation *ops, size_t *count)
{
    if (comm->rank != o->root) {
        ops[(*count)++] = roots_message(o, o->root, true);
        return;
    }
    for (int k = 1; k < comm->size; k++)
        ops[(*count)++] = roots_message(o, (comm->rank + k) % comm->size, false);
    if (o->in != o->out) {
        ops[(*count)++] = roots_message(o, comm->rank, false);
        ops[(*count)++] = roots_message(o, comm->rank, true);
    }
}

static enum tutti_result roots_block(const struct tutti_comm *comm, const struct tti_operation *o,
                                     struct tti_operation *whole, size_t *count)
{
    struct tti_blocks *blocks =
        *count == 0 ? tti_blocks_make(comm->size, true) : (void *)(uintptr_t)whole->blocks;
    if (!blocks)
        return TUTTI_ERR_MEMORY;
    if (*count == 0) {
        *whole = *o;
        whole->collective = TUTTI_REDUCE_SCATTER;
        whole->part_of = TUTTI_REDUCE;
        whole->root = 0;
        whole->in = whole->out = NULL;
        whole->blocks = blocks;
        *count = 1;
    }
    tti_blocks_put(blocks, o->root, 0, o->count);
    blocks->at[o->root] = o->in;
    whole->count = blocks->total;
    if (o->root == comm->rank)
        whole->out = o->out;
    return TUTTI_OK;
}

enum tutti_result tti_roots_add(const struct tutti_comm *comm, const struct tti_operation *o,
                                struct tti_operation *ops, size_t *count)
{
    if (o->count == 0)
        return TUTTI_OK;
    if (tti_reduces(o->collective))
        return roots_block(comm, o, ops, count);
    roots_messages(comm, o, ops, count);
    return TUTTI_OK;
}

void tti_roots_end(struct tti_operation *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free((void *)(uintptr_t)ops[i].blocks);
}
