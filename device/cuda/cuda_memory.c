/* Memory on the CUDA driver: gpu.h's operations. What is mapped piece by piece, and goes to other
 * processes by descriptor, is cuda_virtual.c's. */
#include "device/cuda/cuda_state.h"

#include <unistd.h>

enum tutti_result tti_cuda_alloc(struct tti_gpu *base, enum tti_memory_kind kind, size_t bytes,
                                 void **memory)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    tti_cu_ptr device = 0;
    void *host = NULL;
    enum tutti_result result;
    if (bytes == 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "CUDA: cannot allocate 0 bytes");
    switch (kind) {
    case TTI_MEMORY_DEVICE:
        TTI_CUDA_IN(gpu, result, "cuMemAlloc", gpu->cu->memory_alloc(&device, bytes));
        break;
    case TTI_MEMORY_MANAGED:
        TTI_CUDA_IN(gpu, result, "cuMemAllocManaged",
                    gpu->cu->managed_alloc(&device, bytes, TTI_CU_ATTACH_GLOBAL));
        break;
    case TTI_MEMORY_PINNED:
        TTI_CUDA_IN(gpu, result, "cuMemHostAlloc",
                    gpu->cu->host_alloc(&host, bytes, TTI_CU_HOST_PORTABLE | TTI_CU_HOST_MAPPED));
        break;
    default:
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "CUDA: cannot allocate memory of kind %d", (int)kind);
    }
    if (result != TUTTI_OK)
        return TTI_CONTEXT(result, "allocating %zu bytes on device %d", bytes, base->device);
    *memory = host ? host : (void *)(uintptr_t)device;
    return TUTTI_OK;
}

/* What a pointer is does not depend on a context; a driver that wants one all the same is asked in
 * that of a device in use, for the thread may have none. Makes no context: where there is none, the
 * driver knows no pointers. */
static unsigned cuda_ask(const struct tti_cuda_driver *cu, unsigned count, unsigned *attributes,
                         void **values, const void *address)
{
    const tti_cu_ptr pointer = (tti_cu_ptr)(uintptr_t)address;
    tti_cu_context context = NULL, popped;
    int devices = 0, active = 0;
    unsigned flags, code = cu->pointer(count, attributes, values, pointer);
    if (code != TTI_CU_NO_CONTEXT || cu->device_count(&devices) != TTI_CU_OK)
        return code;
    for (int d = 0; d < devices; d++) {
        if (cu->primary_state(d, &flags, &active) != TTI_CU_OK || !active ||
            cu->primary_retain(&context, d) != TTI_CU_OK)
            continue;
        if (cu->context_push(context) == TTI_CU_OK) {
            code = cu->pointer(count, attributes, values, pointer);
            (void)cu->context_pop(&popped);
        }
        (void)cu->primary_release(d);
        if (code != TTI_CU_NO_CONTEXT)
            break;
    }
    return code;
}

enum tutti_result tti_cuda_pointer(const void *address, struct tti_gpu_pointer *info)
{
    const struct tti_cuda_driver *cu = tti_cuda_driver_now();
    struct tti_gpu_pointer found = {.kind = TTI_MEMORY_HOST, .device = -1};
    unsigned type = 0, managed = 0;
    int device = -1;
    tti_cu_ptr start = 0;
    size_t bytes = 0;
    unsigned long long id = 0;
    unsigned attributes[] = {TTI_CU_POINTER_TYPE,  TTI_CU_POINTER_MANAGED, TTI_CU_POINTER_DEVICE,
                             TTI_CU_POINTER_START, TTI_CU_POINTER_SIZE,    TTI_CU_POINTER_ID};
    void *values[] = {&type, &managed, &device, &start, &bytes, &id};
    if (cu && cuda_ask(cu, 6, attributes, values, address) == TTI_CU_OK &&
        (type == TTI_CU_TYPE_HOST || type == TTI_CU_TYPE_DEVICE)) {
        found.kind = managed                      ? TTI_MEMORY_MANAGED
                     : type == TTI_CU_TYPE_DEVICE ? TTI_MEMORY_DEVICE
                                                  : TTI_MEMORY_PINNED;
        found.device = device;
        found.base = (void *)(uintptr_t)start;
        found.bytes = bytes;
        found.id = id;
    }
    *info = found;
    return TUTTI_OK;
}

void tti_cuda_free(struct tti_gpu *base, void *memory)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    struct tti_gpu_pointer info;
    enum tutti_result result = TUTTI_OK;
    if (!memory || tti_cuda_virtual_free(gpu, memory) ||
        tti_cuda_pointer(memory, &info) != TUTTI_OK)
        return;
    if (info.kind == TTI_MEMORY_PINNED)
        TTI_CUDA_IN(gpu, result, "cuMemFreeHost", gpu->cu->host_free(memory));
    else if (info.kind != TTI_MEMORY_HOST)
        TTI_CUDA_IN(gpu, result, "cuMemFree", gpu->cu->memory_free((tti_cu_ptr)(uintptr_t)memory));
    (void)result;
}

enum tutti_result tti_cuda_host_register(struct tti_gpu *base, void *memory, size_t bytes)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    TTI_CUDA_RETURN(
        gpu, "cuMemHostRegister",
        gpu->cu->host_register(memory, bytes, TTI_CU_HOST_PORTABLE | TTI_CU_HOST_MAPPED));
}

enum tutti_result tti_cuda_host_unregister(struct tti_gpu *base, void *memory)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    TTI_CUDA_RETURN(gpu, "cuMemHostUnregister", gpu->cu->host_unregister(memory));
}

enum tutti_result tti_cuda_memory_export(struct tti_gpu *base, const void *memory,
                                         struct tti_gpu_handle *handle, int *fd)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    struct tti_cuda_visit visit;
    bool by_descriptor = false;
    TTI_TRY(tti_cuda_enter(gpu, &visit));
    const enum tutti_result result =
        tti_cuda_virtual_export(gpu, memory, handle, fd, &by_descriptor);
    tti_cuda_leave(gpu, &visit);
    if (by_descriptor || result != TUTTI_OK)
        return result;
    *fd = -1;
    TTI_CUDA_RETURN(gpu, "cuIpcGetMemHandle",
                    gpu->cu->ipc_make(handle, (tti_cu_ptr)(uintptr_t)memory));
}

enum tutti_result tti_cuda_memory_import(struct tti_gpu *base, const struct tti_gpu_handle *handle,
                                         int fd, void **memory)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    tti_cu_ptr mapped = 0;
    enum tutti_result result;
    struct tti_cuda_visit visit;
    if (fd >= 0) {
        TTI_TRY(tti_cuda_enter(gpu, &visit));
        result = tti_cuda_virtual_import(gpu, handle, fd, &mapped);
        tti_cuda_leave(gpu, &visit);
    } else {
        TTI_CUDA_IN(gpu, result, "cuIpcOpenMemHandle",
                    gpu->cu->ipc_open(&mapped, *handle, TTI_CU_IPC_LAZY_PEER));
    }
    if (result == TUTTI_OK)
        *memory = (void *)(uintptr_t)mapped;
    return result;
}

void tti_cuda_memory_release(struct tti_gpu *base, void *memory)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    enum tutti_result result;
    if (tti_cuda_virtual_free(gpu, memory))
        return;
    TTI_CUDA_IN(gpu, result, "cuIpcCloseMemHandle",
                gpu->cu->ipc_close((tti_cu_ptr)(uintptr_t)memory));
    (void)result;
}

/* The driver names whole pages of the host's size; an allocation need not begin or end with one,
 * but the pages around it are the device's as well. */
enum tutti_result tti_cuda_memory_dmabuf(struct tti_gpu *base, const void *memory, size_t bytes,
                                         int *fd, uint64_t *offset)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    const tti_cu_ptr page = (tti_cu_ptr)sysconf(_SC_PAGESIZE);
    const tti_cu_ptr at = (tti_cu_ptr)(uintptr_t)memory, first = at / page * page;
    const tti_cu_ptr end = (at + bytes + page - 1) / page * page;
    int made = -1;
    enum tutti_result result;
    if (!gpu->dmabuf)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "device %d (%s) has no dmabuf of its memory (it takes NVIDIA's open kernel "
                        "modules, and Linux 5.12 or newer)",
                        base->device, base->properties.name);
    TTI_CUDA_IN(gpu, result, "cuMemGetHandleForAddressRange",
                gpu->cu->memory_range(&made, first, end - first, TTI_CU_RANGE_DMABUF, 0));
    if (result == TUTTI_ERR_ARGUMENT) /* some drivers want whole pages of the device's */
        result = TUTTI_ERR_UNSUPPORTED;
    if (result != TUTTI_OK)
        return TTI_CONTEXT(result, "a dmabuf of %zu bytes at %p", bytes, memory);
    *fd = made;
    *offset = at - first;
    return TUTTI_OK;
}

enum tutti_result tti_cuda_memory_reach(struct tti_gpu *base, const void *memory, int owner)
{
    struct tti_cuda_visit visit;
    bool is = false;
    TTI_TRY(tti_cuda_enter(tti_cuda_of(base), &visit));
    const enum tutti_result result = tti_cuda_virtual_reach(tti_cuda_of(base), memory, &is);
    tti_cuda_leave(tti_cuda_of(base), &visit);
    return is || result != TUTTI_OK ? result : base->ops->peer_enable(base, owner);
}
