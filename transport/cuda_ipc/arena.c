/* See arena.h. */
#include "transport/cuda_ipc/arena.h"

#include "base/log.h"
#include "base/memory.h"
#include "device/reclaim.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tti_arena {
    struct tti_gpu *gpu; /* opened for it: the owner's may be closed earlier */
    void *base;
    atomic_int holders;
};

static void arena_drop(struct tti_arena *arena)
{
    if (atomic_fetch_sub_explicit(&arena->holders, 1, memory_order_acq_rel) > 1)
        return;
    tti_gpu_retire_memory(arena->gpu, arena->base);
    tti_gpu_retire_device(arena->gpu);
    free(arena);
}

static enum tutti_result arena_clear(struct tti_gpu *gpu, void *base, size_t bytes,
                                     uint64_t deadline)
{
    tutti_stream stream = NULL;
    TTI_TRY(gpu->ops->stream_create(gpu, &stream));
    enum tutti_result result = gpu->ops->fill(gpu, base, 0, bytes, stream);
    if (result == TUTTI_OK)
        result = tti_gpu_stream_wait(gpu, stream, deadline, "clearing memory for peers");
    gpu->ops->stream_destroy(gpu, stream);
    return result;
}

enum tutti_result tti_arena_create(struct tti_gpu *gpu, size_t bytes, bool shared,
                                   uint64_t deadline, struct tti_arena_map *own)
{
    struct tti_arena *arena = tti_calloc(1, sizeof *arena);
    if (!arena)
        return TUTTI_ERR_MEMORY;
    enum tutti_result result = gpu->ops->open(gpu->device, &arena->gpu);
    if (result != TUTTI_OK) {
        free(arena);
        return result;
    }
    atomic_init(&arena->holders, 1);
    result = shared ? gpu->ops->alloc_shared(arena->gpu, bytes, &arena->base)
                    : gpu->ops->alloc(arena->gpu, TTI_MEMORY_DEVICE, bytes, &arena->base);
    if (result == TUTTI_OK)
        result = arena_clear(arena->gpu, arena->base, bytes, deadline);
    if (result != TUTTI_OK) {
        arena_drop(arena);
        return result;
    }
    *own = (struct tti_arena_map){arena->base, arena};
    return TUTTI_OK;
}

enum tutti_result tti_arena_describe(struct tti_gpu *gpu, const struct tti_arena_map *own,
                                     size_t bytes, struct tti_arena_offer *offer, int *fd)
{
    struct tti_arena_offer made;
    memset(&made, 0, sizeof made);
    *fd = -1;
    tti_gpu_process(made.process);
    made.device = gpu->device;
    made.context = gpu->context;
    memcpy(made.uuid, gpu->properties.uuid, sizeof made.uuid);
    if (own->base) {
        made.bytes = bytes;
        made.arena = own->arena;
        made.exported = gpu->ops->memory_export(gpu, own->base, &made.handle, fd) == TUTTI_OK;
        made.by_descriptor = *fd >= 0;
        if (!made.exported)
            TTI_LOG(TTI_LOG_INFO, "memory of device %d is for this process alone: %s", gpu->device,
                    tti_error_text());
    }
    *offer = made;
    return TUTTI_OK;
}

bool tti_arena_same_process(const struct tti_arena_offer *a, const struct tti_arena_offer *b)
{
    return memcmp(a->process, b->process, sizeof a->process) == 0;
}

bool tti_arena_local(const struct tti_arena_offer *offer)
{
    struct tti_arena_offer self;
    tti_gpu_process(self.process);
    return tti_arena_same_process(offer, &self);
}

bool tti_arena_same_device(const struct tti_arena_offer *a, const struct tti_arena_offer *b)
{
    return memcmp(a->uuid, b->uuid, sizeof a->uuid) == 0;
}

enum tutti_result tti_arena_map(struct tti_gpu *gpu, const struct tti_arena_offer *offer, int fd,
                                struct tti_arena_map *map)
{
    if (!tti_arena_local(offer)) {
        void *base = NULL;
        if (!offer->exported)
            return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                            "the driver did not export its memory to other processes");
        TTI_TRY(gpu->ops->memory_import(gpu, &offer->handle, fd, &base));
        *map = (struct tti_arena_map){base, NULL};
        return TUTTI_OK;
    }
    if (offer->device == gpu->device && offer->context != gpu->context)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "ranks of this process work on device %d in contexts of their own, which "
                        "have no memory in common: let all have the same one current "
                        "(cuDevicePrimaryCtxRetain) when they make their communicator",
                        gpu->device);
    if (offer->device != gpu->device) {
        bool can = false;
        TTI_TRY(gpu->ops->peer_can_access(gpu, offer->device, &can));
        if (!can)
            return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                            "device %d cannot reach the memory of device %d (no NVLink or PCIe "
                            "peer access between them)",
                            gpu->device, (int)offer->device);
        TTI_TRY(gpu->ops->peer_enable(gpu, offer->device));
        TTI_TRY(gpu->ops->memory_reach(gpu, offer->arena->base, offer->device));
    }
    atomic_fetch_add_explicit(&offer->arena->holders, 1, memory_order_relaxed);
    *map = (struct tti_arena_map){offer->arena->base, offer->arena};
    return TUTTI_OK;
}

void tti_arena_unmap(struct tti_gpu *gpu, struct tti_arena_map *map)
{
    if (map->arena)
        arena_drop(map->arena);
    else if (map->base)
        tti_gpu_retire_import(gpu, map->base);
    memset(map, 0, sizeof *map);
}
