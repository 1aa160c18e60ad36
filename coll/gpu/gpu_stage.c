/* Operations on device memory through pinned host memory and the host's collectives: for ranks of
 * several hosts, and wherever devices cannot reach each other's memory.
 *
 * A big operation goes in chunks (ranges of elements of every block), which take turns in a few
 * slots of pinned memory. On the stream, for each chunk: copy to the slot; a host call that queues
 * the host collective for the progress thread; a wait for a word that says it is done; reset the
 * word; copy from the slot. The copies and calls of the next chunks stand before the wait, so
 * copies overlap with collectives. Nobody waits on the host, and a graph of all this can be
 * replayed: the word is back at 0 when the graph ends, and its host calls queue the same work.
 *
 * The ranks cut alike, so TUTTI_DEVICE_CHUNK must be the same on all; a difference shows in the
 * host collective's check. Sends and receives are not cut: the two ends may be batched
 * differently. */
#include "base/log.h"
#include "base/memory.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/gpu/gpu_send.h"
#include "coll/gpu/gpu_side.h"
#include "device/memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    SLOTS = 3,
    LAG = 2,    /* chunks under way on the host before the stream waits for the first */
    ALIGN = 64, /* of what lies in a slot, and between words */
    FLAG_P2P = SLOTS,
    FLAGS,
};
_Static_assert(TTI_SIDE_FLAGS + FLAGS * ALIGN <= TTI_PINNED_PIECE, "flags fit the piece");

struct stage_memory { /* pinned, and mapped by ranks of this host */
    char *base;
    size_t bytes;
    struct stage_memory *smaller; /* used before, and still by what is queued or captured */
};

struct kept {
    struct kept *next;
    struct tti_work *work;
};

struct tti_gpu_stage {
    uint64_t copied, direct;             /* bytes of inputs */
    struct stage_memory slots, exchange; /* the latter for sends and receives: grows */
    char *flags;                         /* FLAGS words, ALIGN apart, in the side's piece */
    struct kept *kept;                   /* work of captured calls, for replays */
};

static size_t stage_round(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static uint32_t *stage_flag(const struct tti_gpu_stage *stage, int index)
{
    return (uint32_t *)(stage->flags + (size_t)index * ALIGN);
}

/* ---- memory ---- */

static enum tutti_result memory_make(struct tti_gpu_side *side, size_t bytes,
                                     struct stage_memory *memory)
{
    void *base = NULL;
    TTI_TRY(tti_region_alloc(bytes, &base));
    enum tutti_result result = side->ops->host_register(side->gpu, base, bytes);
    if (result != TUTTI_OK) {
        (void)tti_region_free(base);
        return TTI_CONTEXT(result, "pinning %zu bytes to stage device memory", bytes);
    }
    *memory = (struct stage_memory){.base = base, .bytes = bytes};
    return TUTTI_OK;
}

static void memory_end(struct tti_gpu *gpu, void *base)
{
    (void)gpu->ops->host_unregister(gpu, base);
    (void)tti_region_free(base);
}

static void memory_drop(struct tti_gpu_side *side, struct stage_memory *memory)
{
    while (memory->base) {
        struct stage_memory *smaller = memory->smaller;
        tti_gpu_retire(side->gpu, memory_end, memory->base);
        memset(memory, 0, sizeof *memory);
        if (smaller)
            *memory = *smaller;
        free(smaller);
    }
}

static enum tutti_result stage_begin(struct tti_gpu_side *side)
{
    if (side->stage)
        return TUTTI_OK;
    side->stage = tti_calloc(1, sizeof *side->stage);
    if (!side->stage)
        return TUTTI_ERR_MEMORY;
    side->stage->flags = side->piece + TTI_SIDE_FLAGS;
    memset(side->stage->flags, 0, (size_t)FLAGS * ALIGN);
    return TUTTI_OK;
}

void tti_gpu_stage_destroy(struct tti_gpu_side *side)
{
    struct tti_gpu_stage *stage = side->stage;
    if (!stage)
        return;
    TTI_LOG(TTI_LOG_INFO,
            "inputs in device memory: %llu bytes copied to the host first, %llu sent from where "
            "they lay",
            (unsigned long long)stage->copied, (unsigned long long)stage->direct);
    while (stage->kept) {
        struct kept *kept = stage->kept;
        stage->kept = kept->next;
        tti_work_release(kept->work);
        free(kept);
    }
    memory_drop(side, &stage->slots);
    memory_drop(side, &stage->exchange);
    free(stage);
    side->stage = NULL;
}

void tti_gpu_stage_counts(const struct tti_gpu_side *side, uint64_t *copied, uint64_t *direct)
{
    *copied = side->stage ? side->stage->copied : 0;
    *direct = side->stage ? side->stage->direct : 0;
}

void tti_gpu_stage_memory(const struct tti_gpu_side *side, struct tutti_memory *memory)
{
    const struct tti_gpu_stage *stage = side->stage;
    if (!stage)
        return;
    memory->host += tti_heap_bytes(stage);
    memory->pinned += stage->slots.bytes;
    memory->descriptors += stage->slots.base != NULL;
    for (const struct stage_memory *m = &stage->exchange; m && m->base; m = m->smaller) {
        memory->pinned += m->bytes;
        memory->descriptors++;
    }
}

/* ---- work for the progress thread ---- */

static void stage_give(void *work)
{
    tti_work_give(work);
}

/* A host call that queues `ops`, to raise the word `flag` when they are done. */
static enum tutti_result stage_call(struct tutti_comm *comm, const struct tti_operation *ops,
                                    size_t count, int flag, tutti_stream stream, bool capturing)
{
    struct tti_gpu_side *side = comm->gpu;
    struct tti_work *work = NULL;
    struct kept *kept = NULL;
    if (capturing) {
        kept = tti_calloc(1, sizeof *kept);
        if (!kept)
            return TUTTI_ERR_MEMORY;
    }
    enum tutti_result result =
        tti_work_make(comm, ops, count, stage_flag(side->stage, flag), capturing, &work);
    if (result != TUTTI_OK) {
        free(kept);
        return result;
    }
    result = side->ops->host_call(side->gpu, stage_give, work, stream);
    if (result != TUTTI_OK) {
        tti_work_release(work);
        free(kept);
        return result;
    }
    if (kept) {
        kept->work = work;
        kept->next = side->stage->kept;
        side->stage->kept = kept;
    }
    return TUTTI_OK;
}

static enum tutti_result stage_await(struct tti_gpu_side *side, int flag, tutti_stream stream)
{
    uint32_t *word = stage_flag(side->stage, flag);
    TTI_TRY(side->ops->stream_wait(side->gpu, word, 1, stream));
    return side->ops->stream_write(side->gpu, word, 0, stream);
}

/* ---- collectives ---- */

struct cut { /* one operation, cut into chunks */
    struct tutti_comm *comm;
    const struct tti_operation *o;
    tutti_stream stream;
    bool capturing;
    uint32_t in_blocks, out_blocks;
    size_t width, length; /* bytes of an element; elements of a block in a chunk */
    size_t slot_bytes;
    /* The input is not copied: the network reads it, and of the output the own part is the device's
     * affair (gpu_send.h). */
    bool direct[SLOTS];
    bool owns;
    uint32_t own_in, own_out;
};

/* Blocks of IN and OUT together at the rank that has most: alike on all ranks. */
static size_t cut_blocks(enum tutti_collective collective, int size)
{
    switch (collective) {
    case TUTTI_ALL_TO_ALL:
        return 2 * (size_t)size;
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
    case TUTTI_SCATTER:
        return (size_t)size + 1;
    default:
        return 2;
    }
}

static size_t cut_count(const struct cut *c, size_t chunk)
{
    const size_t left = c->o->count - chunk * c->length;
    return left < c->length ? left : c->length;
}

static char *cut_slot(const struct cut *c, size_t chunk)
{
    return c->comm->gpu->stage->slots.base + chunk % SLOTS * c->slot_bytes;
}

static char *cut_out(const struct cut *c, size_t chunk)
{
    return cut_slot(c, chunk) + stage_round(c->in_blocks * cut_count(c, chunk) * c->width);
}

/* A range of every block of the input to the slot, where they lie one after another. */
static enum tutti_result cut_copy_in(const struct cut *c, size_t chunk)
{
    const struct tti_gpu_side *side = c->comm->gpu;
    const size_t bytes = cut_count(c, chunk) * c->width, block = c->o->count * c->width;
    const char *from = (const char *)c->o->in + chunk * c->length * c->width;
    side->stage->copied += c->in_blocks * bytes;
    if (bytes == block && c->in_blocks > 0) /* one piece */
        return side->ops->copy(side->gpu, cut_slot(c, chunk), from, c->in_blocks * bytes,
                               c->stream);
    for (uint32_t b = 0; b < c->in_blocks; b++)
        TTI_TRY(side->ops->copy(side->gpu, cut_slot(c, chunk) + b * bytes, from + b * block, bytes,
                                c->stream));
    return TUTTI_OK;
}

/* Block `b` of the output: out of the slot, or what is the same in the input. */
static enum tutti_result cut_copy_block(const struct cut *c, size_t chunk, uint32_t b)
{
    const struct tti_gpu_side *side = c->comm->gpu;
    const size_t bytes = cut_count(c, chunk) * c->width, block = c->o->count * c->width;
    const size_t at = chunk * c->length * c->width;
    char *to = (char *)c->o->out + b * block + at;
    const char *from = cut_out(c, chunk) + b * bytes;
    if (c->direct[chunk % SLOTS] && c->owns && b == c->own_out)
        from = (const char *)c->o->in + c->own_in * block + at;
    return from == to ? TUTTI_OK : side->ops->copy(side->gpu, to, from, bytes, c->stream);
}

static enum tutti_result cut_copy_out(const struct cut *c, size_t chunk)
{
    const struct tti_gpu_side *side = c->comm->gpu;
    const bool whole = cut_count(c, chunk) == c->o->count && c->out_blocks > 0;
    if (whole && !c->direct[chunk % SLOTS])
        return side->ops->copy(side->gpu, c->o->out, cut_out(c, chunk),
                               c->out_blocks * c->o->count * c->width, c->stream);
    for (uint32_t b = 0; b < c->out_blocks; b++)
        TTI_TRY(cut_copy_block(c, chunk, b));
    return TUTTI_OK;
}

/* The chunk as an operation of the host's, with its input in the slot or where the network reads
 * it. */
static enum tutti_result cut_input(struct cut *c, size_t chunk, struct tti_operation *o)
{
    struct tti_gpu_side *side = c->comm->gpu;
    const size_t block = c->o->count * c->width;
    bool *direct = &c->direct[chunk % SLOTS];
    *direct = false;
    o->in = cut_slot(c, chunk);
    o->out = cut_out(c, chunk);
    o->count = cut_count(c, chunk);
    o->staged = c->comm->gpu_send != NULL;
    if (c->in_blocks > 0)
        TTI_TRY(tti_gpu_send_ready(c->comm, o, c->o->in, c->in_blocks * block, direct));
    if (!*direct)
        return cut_copy_in(c, chunk);
    o->in = NULL;
    o->device = (const char *)c->o->in + chunk * c->length * c->width;
    o->device_stride = block;
    side->stage->direct += c->in_blocks * o->count * c->width;
    return TUTTI_OK;
}

static enum tutti_result cut_begin(struct cut *c, size_t chunk)
{
    struct tti_operation o = *c->o;
    if (o.collective != TUTTI_BARRIER)
        TTI_TRY(cut_input(c, chunk, &o));
    return stage_call(c->comm, &o, 1, (int)(chunk % SLOTS), c->stream, c->capturing);
}

static enum tutti_result cut_end(const struct cut *c, size_t chunk)
{
    TTI_TRY(stage_await(c->comm->gpu, (int)(chunk % SLOTS), c->stream));
    return c->o->collective == TUTTI_BARRIER ? TUTTI_OK : cut_copy_out(c, chunk);
}

static enum tutti_result cut_run(struct cut *c)
{
    const size_t chunks = (c->o->count + c->length - 1) / c->length;
    for (size_t k = 0; k < chunks + LAG; k++) {
        if (k < chunks)
            TTI_TRY(cut_begin(c, k));
        if (k >= LAG)
            TTI_TRY(cut_end(c, k - LAG));
        TTI_TRY(tti_gpu_room_between(c->comm, c->stream));
    }
    return TUTTI_OK;
}

static enum tutti_result cut_make(struct tutti_comm *comm, const struct tti_operation *o,
                                  struct cut *c)
{
    struct tti_gpu_side *side = comm->gpu;
    const size_t blocks = cut_blocks(o->collective, comm->size);
    c->width = tutti_type_size(o->type);
    c->slot_bytes = stage_round(side->chunk) + 2 * ALIGN;
    c->length = side->chunk / (blocks * c->width);
    if (c->length == 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "TUTTI_DEVICE_CHUNK is %zu; one element of each of the %zu blocks takes "
                        "%zu bytes, so allow at least that on all ranks",
                        side->chunk, blocks, blocks * c->width);
    /* Whole lines, where there are any. */
    if (c->length * c->width >= ALIGN)
        c->length = c->length * c->width / ALIGN * ALIGN / c->width;
    tti_shape(o->collective, comm->size, comm->rank, o->root, &c->in_blocks, &c->out_blocks);
    c->owns =
        tti_gpu_send_own(o->collective, comm->size, comm->rank, o->root, &c->own_in, &c->own_out);
    if (!side->stage->slots.base)
        TTI_TRY(memory_make(side, SLOTS * c->slot_bytes, &side->stage->slots));
    return TUTTI_OK;
}

/* ---- sends and receives ---- */

static size_t exchange_bytes(const struct tti_operation *o)
{
    return stage_round(o->count * tutti_type_size(o->type));
}

/* Twice as much each time, and what there was is kept: replays of captured work use it. */
static enum tutti_result exchange_room(struct tutti_comm *comm, size_t bytes)
{
    struct tti_gpu_side *side = comm->gpu;
    if (bytes <= side->stage->exchange.bytes)
        return TUTTI_OK;
    struct stage_memory *smaller = NULL;
    struct stage_memory made = {.base = NULL};
    const size_t twice = 2 * side->stage->exchange.bytes;
    if (side->stage->exchange.base) {
        smaller = tti_calloc(1, sizeof *smaller);
        if (!smaller)
            return TUTTI_ERR_MEMORY;
        *smaller = side->stage->exchange;
    }
    enum tutti_result result = memory_make(side, bytes > twice ? bytes : twice, &made);
    if (result != TUTTI_OK) {
        free(smaller);
        return result;
    }
    made.smaller = smaller;
    side->stage->exchange = made;
    return TUTTI_OK;
}

static enum tutti_result exchange_copy(struct tti_gpu_side *side, const struct tti_operation *o,
                                       char *at, tutti_stream stream)
{
    const size_t bytes = o->count * tutti_type_size(o->type);
    if (bytes == 0) /* a signal, say */
        return TUTTI_OK;
    return o->receives ? side->ops->copy(side->gpu, o->out, at, bytes, stream)
                       : side->ops->copy(side->gpu, at, o->in, bytes, stream);
}

/* The message as the host sends or receives it: not staged, where the network reads the device's
 * memory. */
static enum tutti_result exchange_plan(struct tutti_comm *comm, const struct tti_operation *o,
                                       struct tti_operation *staged)
{
    const size_t bytes = o->count * tutti_type_size(o->type);
    bool direct = false;
    *staged = *o;
    staged->staged = true;
    staged->in = staged->out = NULL;
    if (!o->receives)
        TTI_TRY(tti_gpu_send_ready(comm, o, o->in, bytes, &direct));
    if (direct)
        staged->device = o->in;
    comm->gpu->stage->direct += direct ? bytes : 0;
    comm->gpu->stage->copied += direct || o->receives ? 0 : bytes;
    return TUTTI_OK;
}

static enum tutti_result exchange_run(struct tutti_comm *comm, const struct tti_operation *ops,
                                      struct tti_operation *staged, size_t count,
                                      tutti_stream stream, bool capturing)
{
    struct tti_gpu_side *side = comm->gpu;
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        TTI_TRY(exchange_plan(comm, &ops[i], &staged[i]));
        bytes += staged[i].device ? 0 : exchange_bytes(&ops[i]);
    }
    TTI_TRY(exchange_room(comm, bytes ? bytes : ALIGN));
    char *at = side->stage->exchange.base;
    for (size_t i = 0; i < count; i++) {
        if (staged[i].device)
            continue;
        staged[i].in = ops[i].receives ? NULL : at;
        staged[i].out = ops[i].receives ? at : NULL;
        if (!ops[i].receives)
            TTI_TRY(exchange_copy(side, &ops[i], at, stream));
        at += exchange_bytes(&ops[i]);
    }
    TTI_TRY(stage_call(comm, staged, count, FLAG_P2P, stream, capturing));
    TTI_TRY(stage_await(side, FLAG_P2P, stream));
    for (size_t i = 0; i < count; i++)
        if (ops[i].receives)
            TTI_TRY(exchange_copy(side, &ops[i], staged[i].out, stream));
    return TUTTI_OK;
}

/* ---- both ---- */

static enum tutti_result stage_run(struct tutti_comm *comm, const struct tti_operation *ops,
                                   size_t count, tutti_stream stream, bool capturing)
{
    if (ops[0].collective == TUTTI_SEND_RECV) {
        struct tti_operation *staged = tti_calloc(count, sizeof *staged);
        if (!staged)
            return TUTTI_ERR_MEMORY;
        enum tutti_result result = exchange_run(comm, ops, staged, count, stream, capturing);
        free(staged);
        return result;
    }
    struct cut c = {.comm = comm, .o = ops, .stream = stream, .capturing = capturing};
    TTI_TRY(cut_make(comm, ops, &c));
    return cut_run(&c);
}

enum tutti_result tti_gpu_staged(struct tutti_comm *comm, const struct tti_operation *ops,
                                 size_t count, tutti_stream stream, bool capturing)
{
    if (ops[0].count == 0 && (ops[0].collective != TUTTI_SEND_RECV || tti_gpu_drops(comm, ops)))
        return TUTTI_OK; /* a message of nothing is never part of a group */
    TTI_TRY(stage_begin(comm->gpu));
    comm->gpu->staged = true;
    enum tutti_result result = stage_run(comm, ops, count, stream, capturing);
    /* What of it is queued cannot be taken back, and the others may count on the rest. */
    if (result != TUTTI_OK && result != TUTTI_ERR_USAGE && result != TUTTI_ERR_ARGUMENT)
        return tti_comm_fail(comm, result);
    return result;
}
