/* See pinned.h. */
#include "device/pinned.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/process_lock.h"
#include "device/reclaim.h"

#include <stdlib.h>

struct pinned {
    struct pinned *next;
    struct tti_gpu *gpu; /* opened for it */
    char *base;
    uint32_t used;   /* a bit for each piece */
    uint32_t spoilt; /* given back, but work may be at it: lent no more */
    uint64_t comm[TTI_PINNED_PIECES];
};
_Static_assert(TTI_PINNED_PIECES == 32, "a bit for each");

/* Pieces of a context that ranks of a communicator have yet to take, if they come to it. */
struct promise {
    struct promise *next;
    struct tti_gpu gpu; /* which: its table, device and context */
    uint64_t comm;
    int left;
};

/* A thread that allocates, or is to at the next idle moment. */
struct maker {
    struct maker *next;
    struct tti_gpu *gpu;
    bool later;
};

static struct pinned *blocks;
static struct promise *promises;
static struct maker *makers;

/* The child of a fork has not the parent's device. */
static void blocks_forget(void)
{
    blocks = NULL;
    promises = NULL;
    makers = NULL;
}

static struct tti_process_lock blocks_lock = TTI_PROCESS_LOCK(blocks_forget);

/* ---- what there is: under the lock ---- */

/* Memory goes with the context that it was allocated in, so others are not lent it. */
static bool same_context(const struct tti_gpu *a, const struct tti_gpu *b)
{
    return a->ops == b->ops && a->device == b->device && a->context == b->context;
}

static uint32_t block_free(const struct pinned *block)
{
    return ~(block->used | block->spoilt);
}

/* Pieces that nobody has and nobody was promised; `but`: not counting this allocation's. */
static int spare_of(const struct tti_gpu *gpu, const struct pinned *but)
{
    int spare = 0;
    for (const struct pinned *block = blocks; block; block = block->next)
        if (block != but && same_context(block->gpu, gpu))
            spare += __builtin_popcount(block_free(block));
    for (const struct promise *promise = promises; promise; promise = promise->next)
        if (same_context(&promise->gpu, gpu))
            spare -= promise->left;
    return spare;
}

static bool any_used(const struct tti_gpu *gpu)
{
    for (const struct pinned *block = blocks; block; block = block->next)
        if (block->used && same_context(block->gpu, gpu))
            return true;
    return false;
}

static struct maker *maker_of(const struct tti_gpu *gpu, bool later)
{
    struct maker *maker = makers;
    while (maker && (maker->later != later || !same_context(maker->gpu, gpu)))
        maker = maker->next;
    return maker;
}

static void maker_remove(const struct maker *maker)
{
    struct maker **link = &makers;
    while (*link != maker)
        link = &(*link)->next;
    *link = maker->next;
}

static struct promise **promise_of(const struct tti_gpu *gpu, uint64_t comm)
{
    struct promise **link = &promises;
    while (*link && ((*link)->comm != comm || !same_context(&(*link)->gpu, gpu)))
        link = &(*link)->next;
    return link;
}

static void promise_remove(struct promise **link)
{
    struct promise *promise = *link;
    *link = promise->next;
    free(promise);
}

/* ---- allocating: without the lock, since it may wait for the device ---- */

/* `own`: opened for it. */
static enum tutti_result block_make(struct tti_gpu *own, struct pinned **made)
{
    void *base = NULL;
    struct pinned *block = tti_calloc(1, sizeof *block);
    if (!block)
        return TUTTI_ERR_MEMORY;
    const enum tutti_result result = own->ops->alloc(
        own, TTI_MEMORY_PINNED, (size_t)TTI_PINNED_PIECE * TTI_PINNED_PIECES, &base);
    if (result != TUTTI_OK) {
        free(block);
        return result;
    }
    block->gpu = own;
    block->base = base;
    *made = block;
    return TUTTI_OK;
}

static enum tutti_result block_open(struct tti_gpu *gpu, struct pinned **made)
{
    struct tti_gpu *own = NULL;
    TTI_TRY(gpu->ops->open(gpu->device, &own));
    const enum tutti_result result = block_make(own, made);
    if (result != TUTTI_OK)
        gpu->ops->close(own);
    return result;
}

/* Under the lock, without it meanwhile. Who comes meanwhile waits for it: an allocation of its own
 * would wait in the driver for this thread's work as well. `own`: `gpu` was opened for it, and
 * stays the caller's on an error. */
static enum tutti_result block_add(struct tti_gpu *gpu, bool own, struct pinned **made)
{
    struct maker maker = {.next = makers, .gpu = gpu};
    makers = &maker;
    tti_process_unlock(&blocks_lock);
    const enum tutti_result result = own ? block_make(gpu, made) : block_open(gpu, made);
    tti_process_lock(&blocks_lock);
    maker_remove(&maker);
    if (result == TUTTI_OK) {
        (*made)->next = blocks;
        blocks = *made;
    }
    return result;
}

/* ---- for communicators to come ---- */

/* All devices are idle, or nobody waits for a thread of this process. Whichever context is current
 * here, `gpu` was opened by who is to find the memory. */
static void spare_make(struct tti_gpu *gpu, void *later)
{
    struct pinned *made = NULL;
    tti_process_lock(&blocks_lock);
    maker_remove(later);
    if (any_used(gpu) && spare_of(gpu, NULL) < TTI_PINNED_SPARE && !maker_of(gpu, false) &&
        block_add(gpu, true, &made) != TUTTI_OK)
        TTI_LOG(TTI_LOG_WARN, "page-locked memory for later: %s", tti_error_text());
    tti_process_unlock(&blocks_lock);
    if (!made)
        gpu->ops->close(gpu);
    free(later);
}

/* Have it made at an idle moment, if there is little. No harm if not. */
static void spare_want(struct tti_gpu *gpu)
{
    struct tti_gpu *opened = NULL;
    tti_process_lock(&blocks_lock);
    const bool enough =
        spare_of(gpu, NULL) >= TTI_PINNED_SPARE || maker_of(gpu, true) || maker_of(gpu, false);
    tti_process_unlock(&blocks_lock);
    if (enough)
        return;
    struct maker *later = tti_calloc(1, sizeof *later);
    if (!later || gpu->ops->open(gpu->device, &opened) != TUTTI_OK) {
        free(later);
        return;
    }
    *later = (struct maker){.gpu = opened, .later = true};
    tti_process_lock(&blocks_lock);
    later->next = makers;
    makers = later;
    tti_process_unlock(&blocks_lock);
    tti_gpu_retire(opened, spare_make, later);
}

/* ---- taking: under the lock ---- */

static void *block_lend(struct pinned *block, uint64_t comm)
{
    const int piece = __builtin_ctz(block_free(block));
    block->used |= 1u << piece;
    block->comm[piece] = comm;
    return block->base + (size_t)piece * TTI_PINNED_PIECE;
}

static void *piece_lend(const struct tti_gpu *gpu, uint64_t comm)
{
    struct pinned *block = blocks;
    while (block && (!block_free(block) || !same_context(block->gpu, gpu)))
        block = block->next;
    return block ? block_lend(block, comm) : NULL;
}

/* A rank of the communicator has come, to whichever device: it comes to no other. Who has yet to.
 */
static int promises_come(const struct tti_pinned_want *want)
{
    int left = want->ranks - 1;
    for (struct promise **link = &promises; *link;) {
        struct promise *promise = *link;
        if (promise->comm == want->comm)
            left = --promise->left;
        if (promise->left == 0)
            promise_remove(link);
        else
            link = &promise->next;
    }
    return left;
}

/* Without memory to note it nothing is promised: the others then take what there is. */
static void promise_add(const struct tti_gpu *gpu, uint64_t comm, int left)
{
    struct promise *made = left > 0 ? tti_calloc(1, sizeof *made) : NULL;
    if (!made)
        return;
    made->gpu.ops = gpu->ops;
    made->gpu.device = gpu->device;
    made->gpu.context = gpu->context;
    made->comm = comm;
    made->left = left;
    made->next = promises;
    promises = made;
}

/* This rank, and those that may come to this device: alike in all promises of the communicator. */
static int ranks_to_come(const struct tti_pinned_want *want)
{
    for (const struct promise *promise = promises; promise; promise = promise->next)
        if (promise->comm == want->comm)
            return promise->left;
    return want->ranks;
}

/* A piece that was promised, or one if there are as many as its ranks want. NULL: there are not. */
static void *piece_find(const struct tti_gpu *gpu, const struct tti_pinned_want *want)
{
    struct promise **promise = promise_of(gpu, want->comm);
    const bool promised = *promise != NULL;
    if (!promised && spare_of(gpu, NULL) < ranks_to_come(want))
        return NULL;
    void *piece = piece_lend(gpu, want->comm);
    if (!piece)
        return NULL;
    const int left = promises_come(want);
    if (!promised)
        promise_add(gpu, want->comm, left);
    return piece;
}

/* One look; IN_PROGRESS: another thread is allocating. */
static enum tutti_result piece_take(struct tti_gpu *gpu, const struct tti_pinned_want *want,
                                    void **memory)
{
    struct pinned *made = NULL;
    while (!(*memory = piece_find(gpu, want))) {
        if (maker_of(gpu, false))
            return TUTTI_IN_PROGRESS;
        TTI_TRY(block_add(gpu, false, &made));
        if (same_context(made->gpu, gpu))
            continue;
        *memory = block_lend(made, want->comm); /* another context is current now */
        (void)promises_come(want);
        return TUTTI_OK;
    }
    return TUTTI_OK;
}

enum tutti_result tti_gpu_pinned_take(struct tti_gpu *gpu, const struct tti_pinned_want *want,
                                      void **memory)
{
    void *piece = NULL;
    for (int round = 0;; round++) {
        tti_process_lock(&blocks_lock);
        const enum tutti_result result = piece_take(gpu, want, &piece);
        tti_process_unlock(&blocks_lock);
        if (result == TUTTI_OK)
            break;
        if (result != TUTTI_IN_PROGRESS)
            return result;
        if (want->stop && want->stop(want->argument))
            return TTI_FAIL(TUTTI_ERR_ABORTED, "waiting for page-locked memory was given up");
        if (tti_deadline_passed(want->deadline))
            return TTI_FAIL(TUTTI_ERR_TIMEOUT,
                            "another thread of this process has been allocating page-locked memory "
                            "on device %d all the time; it waits for what is queued there",
                            gpu->device);
        tti_nap(round);
    }
    if (want->ranks > 1 || tti_gpu_waited(gpu->ops))
        spare_want(gpu);
    *memory = piece;
    return TUTTI_OK;
}

/* ---- giving ---- */

/* Under the lock: is it no use any more? A spare one is, while others are lent. */
static bool block_ends(const struct pinned *block)
{
    /* More than makes one: else a communicator that comes and goes would make and free it. */
    const int enough = block->spoilt ? 0 : 2 * TTI_PINNED_SPARE;
    return block->used == 0 && (!any_used(block->gpu) || spare_of(block->gpu, block) >= enough);
}

/* Under the lock. Ranks that have not come yet begin anew, if they do. */
static void promise_end(const struct pinned *block, int piece)
{
    struct promise **promise = promise_of(block->gpu, block->comm[piece]);
    if (*promise)
        promise_remove(promise);
}

/* Under the lock. */
static void piece_back(struct pinned *block, int piece, enum tti_pinned_end how)
{
    if (how != TTI_PINNED_KEPT)
        block->used &= ~(1u << piece);
    if (how == TTI_PINNED_UNSURE)
        block->spoilt |= 1u << piece;
    promise_end(block, piece);
}

static struct pinned *blocks_take_ended(void)
{
    struct pinned *ended = NULL;
    for (struct pinned **link = &blocks; *link;) {
        struct pinned *block = *link;
        if (!block_ends(block)) {
            link = &block->next;
            continue;
        }
        *link = block->next;
        block->next = ended;
        ended = block;
    }
    return ended;
}

void tti_gpu_pinned_give(void *memory, enum tti_pinned_end how)
{
    if (!memory)
        return;
    tti_process_lock(&blocks_lock);
    for (struct pinned *block = blocks; block; block = block->next) {
        const uintptr_t offset = (uintptr_t)memory - (uintptr_t)block->base;
        if (offset < (uintptr_t)TTI_PINNED_PIECE * TTI_PINNED_PIECES)
            piece_back(block, (int)(offset / TTI_PINNED_PIECE), how);
    }
    struct pinned *ended = blocks_take_ended();
    tti_process_unlock(&blocks_lock);
    while (ended) {
        struct pinned *block = ended;
        ended = block->next;
        tti_gpu_retire_memory(block->gpu, block->base);
        tti_gpu_retire_device(block->gpu);
        free(block);
    }
}
