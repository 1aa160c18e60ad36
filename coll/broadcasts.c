/* Broadcasts of several roots as messages (coll/broadcasts.h). */
#include "coll/broadcasts.h"

#include "base/types.h"
#include "coll/comm.h"
#include "coll/gpu/gpu_calls.h"

enum {
    MOST_ROOTS = 64,
    SMALL_BYTES = 64 << 10, /* up to here the number of kernels is what counts */
    OUTWEIGHS = 4,          /* times the average */
};

bool tti_broadcasts_take(struct tti_broadcasts *b, const struct tti_operation *o)
{
    if (o->collective != TUTTI_BROADCAST || o->root >= MOST_ROOTS || (b->roots >> o->root & 1))
        return false;
    b->calls++;
    if (o->count == 0)
        return true;
    const size_t bytes = o->count * tti_type_bytes(o->type);
    b->roots |= UINT64_C(1) << o->root;
    b->bytes += bytes;
    b->most = bytes > b->most ? bytes : b->most;
    b->count++;
    return true;
}

bool tti_broadcasts_suit(const struct tti_broadcasts *b)
{
    return b->count > 1 && b->comm->peers.nhosts == 1 &&
           (b->most <= SMALL_BYTES || b->most / OUTWEIGHS <= b->bytes / b->count) &&
           tti_gpu_messages_reach(b->comm);
}

size_t tti_broadcasts_room(const struct tti_broadcasts *b)
{
    return (size_t)b->comm->size + 1; /* to each other rank, and two for the own */
}

static struct tti_operation broadcasts_message(const struct tti_operation *o, int peer,
                                               bool receives)
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

size_t tti_broadcasts_messages(const struct tutti_comm *comm, const struct tti_operation *o,
                               struct tti_operation *messages)
{
    size_t count = 0;
    if (o->count == 0)
        return 0;
    if (comm->rank != o->root) {
        messages[0] = broadcasts_message(o, o->root, true);
        return 1;
    }
    for (int k = 1; k < comm->size; k++)
        messages[count++] = broadcasts_message(o, (comm->rank + k) % comm->size, false);
    if (o->in != o->out) {
        messages[count++] = broadcasts_message(o, comm->rank, false);
        messages[count++] = broadcasts_message(o, comm->rank, true);
    }
    return count;
}
