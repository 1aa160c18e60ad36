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
 * host collective's check. Sends and receives: gpu_exchange.c. */
#include "coll/gpu/gpu_stage.h"
#include "base/log.h"
#include "base/memory.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/gpu/gpu_range.h"
#include "coll/gpu/gpu_send.h"
#include "device/memory.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(TTI_SIDE_FLAGS + TTI_GPU_STAGE_FLAGS * TTI_GPU_STAGE_ALIGN <= TTI_PINNED_PIECE,
               "flags fit the piece");

static uint32_t *stage_flag(const struct tti_gpu_stage *stage, int index)
{
    return (uint32_t *)(stage->flags + (size_t)index * TTI_GPU_STAGE_ALIGN);
}

/* ---- memory ---- */

enum tutti_result tti_gpu_stage_memory_make(struct tti_gpu_side *side, size_t bytes,
                                            struct tti_gpu_stage_memory *memory)
{
    void *base = NULL;
    TTI_TRY(tti_region_alloc(bytes, &base));
    enum tutti_result result = side->ops->host_register(side->gpu, base, bytes);
    if (result != TUTTI_OK) {
        (void)tti_region_free(base);
        return TTI_CONTEXT(result, "pinning %zu bytes to stage device memory", bytes);
    }
    *memory = (struct tti_gpu_stage_memory){.base = base, .bytes = bytes};
    return TUTTI_OK;
}

static void memory_end(struct tti_gpu *gpu, void *base)
{
    (void)gpu->ops->host_unregister(gpu, base);
    (void)tti_region_free(base);
}

static void memory_drop(struct tti_gpu_side *side, struct tti_gpu_stage_memory *memory)
{
    while (memory->base) {
        struct tti_gpu_stage_memory *smaller = memory->smaller;
        tti_gpu_retire(side->gpu, memory_end, memory->base);
        memset(memory, 0, sizeof *memory);
        if (smaller)
            *memory = *smaller;
        free(smaller);
    }
}

enum tutti_result tti_gpu_stage_begin(struct tti_gpu_side *side)
{
    if (!side->stage) {
        side->stage = tti_calloc(1, sizeof *side->stage);
        if (!side->stage)
            return TUTTI_ERR_MEMORY;
        side->stage->flags = side->piece + TTI_SIDE_FLAGS;
        memset(side->stage->flags, 0, (size_t)TTI_GPU_STAGE_FLAGS * TTI_GPU_STAGE_ALIGN);
    }
    side->staged = true;
    return TUTTI_OK;
}

static size_t slot_bytes(const struct tti_gpu_side *side)
{
    return tti_gpu_stage_round(side->chunk) + 2 * TTI_GPU_STAGE_ALIGN;
}

enum tutti_result tti_gpu_stage_slots(struct tti_gpu_side *side)
{
    struct tti_gpu_stage_memory *slots = &side->stage->slots;
    return slots->base
               ? TUTTI_OK
               : tti_gpu_stage_memory_make(side, TTI_GPU_STAGE_SLOTS * slot_bytes(side), slots);
}

char *tti_gpu_stage_slot(const struct tti_gpu_side *side, size_t chunk)
{
    return side->stage->slots.base + chunk % TTI_GPU_STAGE_SLOTS * slot_bytes(side);
}

/* One element of each block takes so many bytes. */
static enum tutti_result stage_too_small(const struct tti_gpu_side *side, size_t bytes)
{
    return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                    "TUTTI_DEVICE_CHUNK is %zu; one element of each of the blocks takes %zu bytes, "
                    "so allow at least that on all ranks",
                    side->chunk, bytes);
}

enum tutti_result tti_gpu_stage_length(const struct tti_gpu_side *side, size_t bytes, size_t width,
                                       size_t *length)
{
    *length = side->chunk / bytes;
    if (*length == 0)
        return stage_too_small(side, bytes);
    if (*length * width >= TTI_GPU_STAGE_ALIGN)
        *length = *length * width / TTI_GPU_STAGE_ALIGN * TTI_GPU_STAGE_ALIGN / width;
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
        struct tti_gpu_stage_kept *kept = stage->kept;
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
    for (const struct tti_gpu_stage_memory *m = &stage->exchange; m && m->base; m = m->smaller) {
        memory->pinned += m->bytes;
        memory->descriptors++;
    }
}

/* ---- work for the progress thread ---- */

static void stage_give(void *work)
{
    tti_work_give(work);
}

enum tutti_result tti_gpu_stage_call(struct tutti_comm *comm, const struct tti_operation *ops,
                                     size_t count, int flag, tutti_stream stream, bool capturing)
{
    struct tti_gpu_side *side = comm->gpu;
    struct tti_work *work = NULL;
    struct tti_gpu_stage_kept *kept = NULL;
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

enum tutti_result tti_gpu_stage_await(struct tti_gpu_side *side, int flag, tutti_stream stream)
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
    /* The input is not copied: the network reads it, and of the output the own part is the device's
     * affair (gpu_send.h). */
    bool direct[TTI_GPU_STAGE_SLOTS];
    bool owns;
    uint32_t own_in, own_out;
};

/* Blocks of IN and OUT together at the rank that has most: alike on all ranks. */
static uint32_t cut_blocks(enum tutti_collective collective, int size)
{
    switch (collective) {
    case TUTTI_ALL_TO_ALL:
        return 2 * (uint32_t)size;
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
    case TUTTI_SCATTER:
        return (uint32_t)size + 1;
    default:
        return 2;
    }
}

/* Chunk number `chunk`: in the slot the pieces lie one right after another. */
static struct tti_gpu_range cut_range(const struct cut *c, size_t chunk)
{
    struct tti_gpu_range r = tti_gpu_range_of(c->o, c->comm->rank, 1);
    r.from = chunk * c->length;
    (void)tti_gpu_range_next(&r, c->length);
    return r;
}

static char *cut_slot(const struct cut *c, size_t chunk)
{
    return tti_gpu_stage_slot(c->comm->gpu, chunk);
}

/* What the pieces of the input, or of the output, take in a slot. */
static size_t cut_bytes(const struct tti_gpu_range *r, uint32_t blocks)
{
    return tti_gpu_range_at(r, blocks, blocks);
}

static char *cut_out(const struct cut *c, size_t chunk)
{
    const struct tti_gpu_range r = cut_range(c, chunk);
    return cut_slot(c, chunk) + tti_gpu_stage_round(cut_bytes(&r, c->in_blocks));
}

static enum tutti_result cut_copy_in(const struct cut *c, size_t chunk)
{
    const struct tti_gpu_side *side = c->comm->gpu;
    const struct tti_gpu_range r = cut_range(c, chunk);
    side->stage->copied += cut_bytes(&r, c->in_blocks);
    return tti_gpu_range_pack(&r, side->gpu, c->in_blocks, cut_slot(c, chunk), c->stream);
}

/* Block `b` of the output: out of the slot, or what is the same in the input. */
static enum tutti_result cut_copy_block(const struct cut *c, size_t chunk, uint32_t b)
{
    const struct tti_gpu_side *side = c->comm->gpu;
    const struct tti_gpu_range r = cut_range(c, chunk);
    char *to = tti_gpu_range_out(&r, c->out_blocks, b);
    const char *from = cut_out(c, chunk) + tti_gpu_range_at(&r, c->out_blocks, b);
    if (c->owns && b == c->own_out)
        from = tti_gpu_range_in(&r, c->in_blocks, c->own_in);
    return from == to ? TUTTI_OK
                      : side->ops->copy(side->gpu, to, from, r.length * c->width, c->stream);
}

static enum tutti_result cut_copy_out(const struct cut *c, size_t chunk)
{
    const struct tti_gpu_range r = cut_range(c, chunk);
    if (!c->direct[chunk % TTI_GPU_STAGE_SLOTS])
        return tti_gpu_range_unpack(&r, c->comm->gpu->gpu, c->out_blocks, cut_out(c, chunk),
                                    c->stream);
    for (uint32_t b = 0; b < c->out_blocks; b++)
        TTI_TRY(cut_copy_block(c, chunk, b));
    return TUTTI_OK;
}

/* The chunk as an operation of the host's, with its input in the slot or where the network reads
 * it. */
static enum tutti_result cut_input(struct cut *c, size_t chunk, struct tti_operation *o)
{
    struct tti_gpu_side *side = c->comm->gpu;
    const struct tti_gpu_range r = cut_range(c, chunk);
    const size_t block = c->o->count * c->width;
    bool *direct = &c->direct[chunk % TTI_GPU_STAGE_SLOTS];
    *direct = false;
    o->in = cut_slot(c, chunk);
    o->out = cut_out(c, chunk);
    o->count = r.length;
    o->staged = c->comm->gpu_send != NULL;
    if (c->in_blocks > 0 && !o->blocks)
        TTI_TRY(tti_gpu_send_ready(c->comm, o, c->o->in, c->in_blocks * block, direct));
    if (!*direct)
        return cut_copy_in(c, chunk);
    o->in = NULL;
    o->device = (const char *)c->o->in + r.from * c->width;
    o->device_stride = block;
    side->stage->direct += c->in_blocks * o->count * c->width;
    return TUTTI_OK;
}

/* The blocks of a chunk that differ in size, in the slot. */
static enum tutti_result cut_uneven(const struct cut *c, size_t chunk, struct tti_operation *o)
{
    const struct tti_gpu_range r = cut_range(c, chunk);
    const uint32_t n = (uint32_t)c->o->blocks->n;
    struct tti_blocks *blocks = tti_blocks_make(c->o->blocks->n, false);
    if (!blocks)
        return TUTTI_ERR_MEMORY;
    for (uint32_t k = 0; k < n; k++)
        tti_blocks_put(blocks, (int)k, blocks->total, tti_gpu_range_count(&r, n, k));
    o->count = blocks->total;
    o->blocks = blocks;
    return TUTTI_OK;
}

static enum tutti_result cut_begin(struct cut *c, size_t chunk)
{
    struct tti_operation o = *c->o;
    o.whole = o.whole ? o.whole : o.count;
    if (o.collective != TUTTI_BARRIER)
        TTI_TRY(cut_input(c, chunk, &o));
    if (c->o->blocks)
        TTI_TRY(cut_uneven(c, chunk, &o));
    const enum tutti_result result = tti_gpu_stage_call(
        c->comm, &o, 1, (int)(chunk % TTI_GPU_STAGE_SLOTS), c->stream, c->capturing);
    if (c->o->blocks)
        free((void *)(uintptr_t)o.blocks); /* the call has its own */
    return result;
}

static enum tutti_result cut_end(const struct cut *c, size_t chunk)
{
    TTI_TRY(tti_gpu_stage_await(c->comm->gpu, (int)(chunk % TTI_GPU_STAGE_SLOTS), c->stream));
    return c->o->collective == TUTTI_BARRIER ? TUTTI_OK : cut_copy_out(c, chunk);
}

static enum tutti_result cut_run(struct cut *c)
{
    const size_t chunks = (tti_block_most(c->o) + c->length - 1) / c->length;
    for (size_t k = 0; k < chunks + TTI_GPU_STAGE_LAG; k++) {
        if (k < chunks)
            TTI_TRY(cut_begin(c, k));
        if (k >= TTI_GPU_STAGE_LAG)
            TTI_TRY(cut_end(c, k - TTI_GPU_STAGE_LAG));
        TTI_TRY(tti_gpu_room_between(c->comm, c->stream));
    }
    return TUTTI_OK;
}

static enum tutti_result cut_make(struct tutti_comm *comm, const struct tti_operation *o,
                                  struct cut *c)
{
    struct tti_gpu_side *side = comm->gpu;
    const uint32_t blocks = cut_blocks(o->collective, comm->size);
    c->width = tutti_type_size(o->type);
    const struct tti_gpu_range all = cut_range(c, 0);
    c->length =
        tti_gpu_range_most(&all, blocks - 1, 1, side->chunk, TTI_GPU_STAGE_ALIGN / c->width);
    if (c->length == 0)
        return stage_too_small(side, blocks * c->width);
    tti_shape(o->collective, comm->size, comm->rank, o->root, &c->in_blocks, &c->out_blocks);
    c->owns =
        tti_gpu_send_own(o->collective, comm->size, comm->rank, o->root, &c->own_in, &c->own_out);
    return tti_gpu_stage_slots(side);
}

enum tutti_result tti_gpu_stage_failed(struct tutti_comm *comm, enum tutti_result result)
{
    if (result != TUTTI_OK && result != TUTTI_ERR_USAGE && result != TUTTI_ERR_ARGUMENT)
        return tti_comm_fail(comm, result);
    return result;
}

enum tutti_result tti_gpu_staged(struct tutti_comm *comm, const struct tti_operation *o,
                                 tutti_stream stream, bool capturing)
{
    struct cut c = {.comm = comm, .o = o, .stream = stream, .capturing = capturing};
    if (o->count == 0)
        return TUTTI_OK;
    TTI_TRY(tti_gpu_stage_begin(comm->gpu));
    enum tutti_result result = cut_make(comm, o, &c);
    if (result == TUTTI_OK)
        result = cut_run(&c);
    return tti_gpu_stage_failed(comm, result);
}
