/* Opening memory to other devices of this process (gpu.h's memory_open). Peer access, once enabled,
 * covers what cuMemAlloc gave; what a program took from a pool (cudaMallocAsync) or mapped piece by
 * piece (cuMemMap, ncclMemAlloc, PyTorch's expandable segments) lets in nobody but its own device,
 * and a kernel elsewhere that reads it ends with an illegal address. Not yet run on several GPUs.
 */
#include "device/cuda/cuda_state.h"

/* For whom. */
struct visitors {
    const int *devices; /* NULL: all that can access the device */
    int count;
};

/* Who is next, after `last` of the list; -1: nobody. */
static int visitor_next(struct tti_cuda_gpu *gpu, const struct visitors *visitors, int *last)
{
    while (++*last < visitors->count) {
        const int device = visitors->devices ? visitors->devices[*last] : *last;
        int can = visitors->devices != NULL;
        if (device == gpu->base.device)
            continue;
        if (!can && gpu->cu->device_can_peer(&can, device, gpu->base.device) != TTI_CU_OK)
            can = 0;
        if (can)
            return device;
    }
    return -1;
}

static struct tti_cu_access access_of(int device)
{
    return (struct tti_cu_access){.location = {.type = TTI_CU_LOCATION_DEVICE, .id = device},
                                  .flags = TTI_CU_ACCESS_READ_WRITE};
}

/* What to do about it, which is the same for all. */
static enum tutti_result open_failed(const struct tti_cuda_gpu *gpu, enum tutti_result result,
                                     const void *memory, const char *from, int device)
{
    return TTI_CONTEXT(result,
                       "memory at %p of device %d comes from %s and cannot be opened to device %d, "
                       "which has to read and write it where it lies: open it when you make it, or "
                       "set TUTTI_DEVICE_BUFFERS=window",
                       memory, gpu->base.device, from, device);
}

/* ---- from a pool ---- */

static enum tutti_result pool_open(struct tti_cuda_gpu *gpu, tti_cu_pool pool, const void *memory,
                                   const struct visitors *visitors)
{
    for (int last = -1, device; (device = visitor_next(gpu, visitors, &last)) >= 0;) {
        struct tti_cu_access access = access_of(device);
        unsigned allowed = 0;
        if (gpu->cu->pool_allowed(&allowed, pool, &access.location) == TTI_CU_OK &&
            allowed == TTI_CU_ACCESS_READ_WRITE)
            continue;
        const enum tutti_result result =
            tti_cuda_check(gpu->cu->pool_allow(pool, &access, 1), "cuMemPoolSetAccess");
        if (result != TUTTI_OK)
            return open_failed(gpu, result, memory, "a pool (cudaMallocAsync)", device);
    }
    return TUTTI_OK;
}

/* ---- mapped piece by piece ---- */

static enum tutti_result piece_open(struct tti_cuda_gpu *gpu, tti_cu_ptr at, tti_cu_ptr base,
                                    size_t bytes, const struct visitors *visitors)
{
    for (int last = -1, device; (device = visitor_next(gpu, visitors, &last)) >= 0;) {
        const struct tti_cu_access access = access_of(device);
        unsigned long long allowed = 0;
        if (gpu->cu->memory_allowed(&allowed, &access.location, at) == TTI_CU_OK &&
            allowed == TTI_CU_ACCESS_READ_WRITE)
            continue;
        const enum tutti_result result =
            tti_cuda_check(gpu->cu->memory_allow(base, bytes, &access, 1), "cuMemSetAccess");
        if (result != TUTTI_OK)
            return open_failed(gpu, result, (const void *)(uintptr_t)at, "cuMemMap", device);
    }
    return TUTTI_OK;
}

static enum tutti_result pieces_open(struct tti_cuda_gpu *gpu, const void *memory, size_t bytes,
                                     const struct visitors *visitors)
{
    const tti_cu_ptr end = (tti_cu_ptr)(uintptr_t)memory + bytes;
    tti_cu_ptr at = (tti_cu_ptr)(uintptr_t)memory;
    while (at < end) {
        tti_cu_ptr base = at;
        size_t length = 0;
        tti_cuda_virtual_mapped(gpu, at, &base, &length);
        if (length == 0) { /* nobody knows: what is there at the least */
            base = at;
            length = end - at;
        }
        TTI_TRY(piece_open(gpu, at, base, length, visitors));
        at = base + length;
    }
    return TUTTI_OK;
}

/* ---- which of them ---- */

static enum tutti_result memory_open(struct tti_cuda_gpu *gpu, const void *memory, size_t bytes,
                                     const struct visitors *visitors)
{
    const struct tti_cuda_driver *cu = gpu->cu;
    unsigned type = 0, managed = 0, legacy = 0;
    tti_cu_pool pool = NULL;
    tti_cu_memory piece = 0;
    unsigned attributes[] = {TTI_CU_POINTER_TYPE, TTI_CU_POINTER_MANAGED, TTI_CU_POINTER_LEGACY,
                             TTI_CU_POINTER_POOL};
    void *values[] = {&type, &managed, &legacy, &pool};
    if (cu->pointer(4, attributes, values, (tti_cu_ptr)(uintptr_t)memory) != TTI_CU_OK ||
        type != TTI_CU_TYPE_DEVICE || managed)
        return TUTTI_OK;
    if (pool)
        return pool_open(gpu, pool, memory, visitors);
    if (legacy || cu->memory_retain(&piece, (void *)(uintptr_t)memory) != TTI_CU_OK)
        return TUTTI_OK;
    (void)cu->memory_release(piece);
    return pieces_open(gpu, memory, bytes, visitors);
}

enum tutti_result tti_cuda_memory_open(struct tti_gpu *base, const void *memory, size_t bytes,
                                       const int *devices, int count)
{
    struct visitors visitors = {.devices = devices, .count = count};
    struct tti_cuda_visit visit;
    if (!devices)
        TTI_TRY(base->ops->count(&visitors.count));
    TTI_TRY(tti_cuda_enter(tti_cuda_of(base), &visit));
    const enum tutti_result result = memory_open(tti_cuda_of(base), memory, bytes, &visitors);
    tti_cuda_leave(tti_cuda_of(base), &visit);
    return result;
}
