/* Multicast objects (NVLS) on the CUDA driver: gpu.h's operations. The driver's rules: all devices
 * are added before memory is bound; sizes are multiples of a granularity; the object's own mapping
 * is like that of memory. Not yet run on a GPU. */
#include "device/cuda/cuda_state.h"

#include "base/log.h"
#include "base/memory.h"

#include <stdlib.h>
#include <unistd.h>

struct tti_gpu_multicast {
    struct tti_cuda_gpu *gpu;
    tti_cu_memory object;
    size_t bytes;       /* of the object */
    tti_cu_ptr address; /* its mapping; 0: none yet */
    bool bound;
};

static struct tti_cu_multicast_prop multicast_prop(int members, size_t bytes)
{
    return (struct tti_cu_multicast_prop){
        .devices = (unsigned)members, .bytes = bytes, .handles = TTI_CU_HANDLE_FD};
}

enum tutti_result tti_cuda_multicast_page(const struct tti_cuda_gpu *gpu, size_t bytes,
                                          size_t *page)
{
    const struct tti_cu_multicast_prop prop = multicast_prop(2, bytes);
    *page = 0;
    if (!gpu->base.properties.multicast)
        return TUTTI_OK;
    /* A device that says that it can, without the switch or the peers that it takes, may refuse to
     * answer, in words that differ; memory is made for it all the same. */
    const unsigned code = gpu->cu->multicast_page(page, &prop, TTI_CU_PAGE_MINIMUM);
    if (code == TTI_CU_OK)
        return TUTTI_OK;
    TTI_LOG(TTI_LOG_INFO, "no multicast objects on device %d: cuMulticastGetGranularity says %u",
            gpu->base.device, code);
    *page = 0;
    return TUTTI_OK;
}

/* Whole pages, on all ranks the same. */
static enum tutti_result multicast_round(const struct tti_cuda_gpu *gpu, size_t *bytes)
{
    size_t page = 0;
    TTI_TRY(tti_cuda_multicast_page(gpu, *bytes, &page));
    if (page == 0)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "device %d (%s) cannot be part of a multicast object: there is no NVSwitch "
                        "with NVLS, or the driver, or what made this library's kernels, is older "
                        "than CUDA 12.1",
                        gpu->base.device, gpu->base.properties.name);
    *bytes = (*bytes + page - 1) / page * page;
    return TUTTI_OK;
}

/* Takes the object. */
static enum tutti_result multicast_join(struct tti_cuda_gpu *gpu, tti_cu_memory object,
                                        size_t bytes, struct tti_gpu_multicast **multicast)
{
    struct tti_gpu_multicast *made = tti_calloc(1, sizeof *made);
    enum tutti_result result =
        made ? tti_cuda_check(gpu->cu->multicast_add(object, gpu->base.device),
                              "cuMulticastAddDevice")
             : TUTTI_ERR_MEMORY;
    if (result != TUTTI_OK) {
        (void)gpu->cu->memory_release(object);
        free(made);
        return result;
    }
    *made = (struct tti_gpu_multicast){.gpu = gpu, .object = object, .bytes = bytes};
    *multicast = made;
    return TUTTI_OK;
}

static enum tutti_result multicast_make(struct tti_cuda_gpu *gpu, int members, size_t bytes,
                                        int *fd, struct tti_gpu_multicast **multicast)
{
    const struct tti_cu_multicast_prop prop = multicast_prop(members, bytes);
    tti_cu_memory object = 0;
    int out = -1;
    TTI_TRY(tti_cuda_check(gpu->cu->multicast_create(&object, &prop), "cuMulticastCreate"));
    enum tutti_result result =
        tti_cuda_check(gpu->cu->memory_export(&out, object, TTI_CU_HANDLE_FD, 0),
                       "cuMemExportToShareableHandle of a multicast object");
    if (result != TUTTI_OK) {
        (void)gpu->cu->memory_release(object);
        return result;
    }
    result = multicast_join(gpu, object, bytes, multicast);
    if (result == TUTTI_OK)
        *fd = out;
    else
        (void)close(out);
    return result;
}

enum tutti_result tti_cuda_multicast_create(struct tti_gpu *base, int members, size_t bytes,
                                            int *fd, struct tti_gpu_multicast **multicast)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    struct tti_cuda_visit visit;
    TTI_TRY(multicast_round(gpu, &bytes));
    TTI_TRY(tti_cuda_enter(gpu, &visit));
    const enum tutti_result result = multicast_make(gpu, members, bytes, fd, multicast);
    tti_cuda_leave(gpu, &visit);
    return result;
}

enum tutti_result tti_cuda_multicast_import(struct tti_gpu *base, int fd, size_t bytes,
                                            struct tti_gpu_multicast **multicast)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    struct tti_cuda_visit visit;
    tti_cu_memory object = 0;
    TTI_TRY(multicast_round(gpu, &bytes));
    TTI_TRY(tti_cuda_enter(gpu, &visit));
    enum tutti_result result =
        tti_cuda_check(gpu->cu->memory_import(&object, (void *)(uintptr_t)fd, TTI_CU_HANDLE_FD),
                       "cuMemImportFromShareableHandle of a multicast object");
    if (result == TUTTI_OK)
        result = multicast_join(gpu, object, bytes, multicast);
    tti_cuda_leave(gpu, &visit);
    return result;
}

static enum tutti_result multicast_bind(struct tti_gpu_multicast *m, void *memory)
{
    const struct tti_cuda_driver *cu = m->gpu->cu;
    tti_cu_memory piece = 0;
    TTI_TRY(tti_cuda_check(cu->memory_retain(&piece, memory), "cuMemRetainAllocationHandle"));
    const enum tutti_result result = tti_cuda_check(
        cu->multicast_bind(m->object, 0, piece, 0, m->bytes, 0), "cuMulticastBindMem");
    (void)cu->memory_release(piece);
    TTI_TRY(result);
    m->bound = true;
    return tti_cuda_virtual_map(m->gpu, m->object, m->bytes, &m->address);
}

enum tutti_result tti_cuda_multicast_bind(struct tti_gpu_multicast *m, void *memory, void **address)
{
    struct tti_cuda_visit visit;
    TTI_TRY(tti_cuda_enter(m->gpu, &visit));
    const enum tutti_result result = multicast_bind(m, memory);
    tti_cuda_leave(m->gpu, &visit);
    if (result == TUTTI_OK)
        *address = (void *)(uintptr_t)m->address;
    return result;
}

void tti_cuda_multicast_destroy(struct tti_gpu_multicast *m)
{
    struct tti_cuda_visit visit;
    if (!m)
        return;
    if (tti_cuda_enter(m->gpu, &visit) == TUTTI_OK) {
        const struct tti_cuda_driver *cu = m->gpu->cu;
        if (m->address)
            tti_cuda_virtual_unmap(m->gpu, m->address, m->bytes);
        if (m->bound)
            (void)cu->multicast_unbind(m->object, m->gpu->base.device, 0, m->bytes);
        (void)cu->memory_release(m->object);
        tti_cuda_leave(m->gpu, &visit);
    }
    free(m);
}
