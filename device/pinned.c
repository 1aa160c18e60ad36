/* See pinned.h. */
#include "device/pinned.h"

#include "base/memory.h"
#include "base/process_lock.h"
#include "device/reclaim.h"

#include <stdlib.h>

struct pinned {
    struct pinned *next;
    struct tti_gpu *gpu; /* opened for it */
    char *base;
    uint32_t used; /* a bit for each piece */
    bool shut;     /* work may be at a piece that was given back: none is lent any more */
};
_Static_assert(TTI_PINNED_PIECES == 32, "a bit for each");

static struct pinned *blocks;

/* The child of a fork has not the parent's device. */
static void blocks_forget(void)
{
    blocks = NULL;
}

static struct tti_process_lock blocks_lock = TTI_PROCESS_LOCK(blocks_forget);

static enum tutti_result block_open(struct tti_gpu *gpu, struct pinned *block)
{
    void *base = NULL;
    TTI_TRY(gpu->ops->open(gpu->device, &block->gpu));
    const enum tutti_result result = gpu->ops->alloc(
        block->gpu, TTI_MEMORY_PINNED, (size_t)TTI_PINNED_PIECE * TTI_PINNED_PIECES, &base);
    if (result != TUTTI_OK)
        gpu->ops->close(block->gpu);
    block->base = base;
    return result;
}

/* Without the lock: it may wait for the device, and that for a thread that wants a piece of another
 * block. Who comes meanwhile makes one as well. */
static enum tutti_result block_make(struct tti_gpu *gpu, struct pinned **made)
{
    struct pinned *block = tti_calloc(1, sizeof *block);
    if (!block)
        return TUTTI_ERR_MEMORY;
    const enum tutti_result result = block_open(gpu, block);
    if (result != TUTTI_OK) {
        free(block);
        return result;
    }
    *made = block;
    return TUTTI_OK;
}

/* Under the lock. */
static void *block_lend(struct pinned *block)
{
    const int piece = __builtin_ctz(~block->used);
    block->used |= 1u << piece;
    return block->base + (size_t)piece * TTI_PINNED_PIECE;
}

/* Memory goes with the context that it was allocated in, so others are not lent it. */
static bool block_fits(const struct pinned *block, const struct tti_gpu *gpu)
{
    return block->gpu->ops == gpu->ops && block->gpu->device == gpu->device &&
           block->gpu->context == gpu->context && !block->shut && block->used != UINT32_MAX;
}

enum tutti_result tti_gpu_pinned_take(struct tti_gpu *gpu, size_t bytes, void **memory)
{
    if (bytes > TTI_PINNED_PIECE)
        return TTI_FAIL(TUTTI_ERR_INTERNAL,
                        "%zu bytes of page-locked memory are asked for; %d are "
                        "in a piece",
                        bytes, TTI_PINNED_PIECE);
    tti_process_lock(&blocks_lock);
    struct pinned *block = blocks;
    while (block && !block_fits(block, gpu))
        block = block->next;
    if (block)
        *memory = block_lend(block);
    tti_process_unlock(&blocks_lock);
    if (block)
        return TUTTI_OK;
    TTI_TRY(block_make(gpu, &block));
    *memory = block_lend(block);
    tti_process_lock(&blocks_lock);
    block->next = blocks;
    blocks = block;
    tti_process_unlock(&blocks_lock);
    return TUTTI_OK;
}

void tti_gpu_pinned_give(void *memory, bool over)
{
    if (!memory)
        return;
    struct pinned *empty = NULL;
    tti_process_lock(&blocks_lock);
    for (struct pinned **link = &blocks; *link; link = &(*link)->next) {
        struct pinned *block = *link;
        const uintptr_t offset = (uintptr_t)memory - (uintptr_t)block->base;
        if (offset >= (uintptr_t)TTI_PINNED_PIECE * TTI_PINNED_PIECES)
            continue;
        block->used &= ~(1u << offset / TTI_PINNED_PIECE);
        block->shut = block->shut || !over;
        if (block->used == 0) {
            empty = block;
            *link = block->next;
        }
        break;
    }
    tti_process_unlock(&blocks_lock);
    if (!empty)
        return;
    tti_gpu_retire_memory(empty->gpu, empty->base);
    tti_gpu_retire_device(empty->gpu);
    free(empty);
}
