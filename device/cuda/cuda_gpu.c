/* NVIDIA GPUs (device/gpu.h): devices and contexts on the CUDA driver, and the table. Read next:
 * cuda_driver.h (what we call), cuda_memory.c, cuda_kernel.c, cuda_stream.c. */
#include "device/cuda/cuda_state.h"

#include "base/memory.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- Contexts ---------------------------------------------------------------------------------
 */

enum tutti_result tti_cuda_enter(struct tti_cuda_gpu *gpu, struct tti_cuda_visit *visit)
{
    const struct tti_cuda_driver *cu = gpu->cu;
    tti_cu_context now = NULL;
    visit->mode = TTI_CU_CAPTURE_RELAXED;
    TTI_TRY(tti_cuda_check(cu->context_current(&now), "cuCtxGetCurrent"));
    visit->pushed = now != gpu->context;
    if (visit->pushed)
        TTI_TRY(tti_cuda_check(cu->context_push(gpu->context), "cuCtxPushCurrent"));
    const enum tutti_result result =
        tti_cuda_check(cu->capture_mode(&visit->mode), "cuThreadExchangeStreamCaptureMode");
    if (result != TUTTI_OK && visit->pushed)
        (void)cu->context_pop(&now);
    return result;
}

void tti_cuda_leave(struct tti_cuda_gpu *gpu, const struct tti_cuda_visit *visit)
{
    tti_cu_context popped;
    unsigned mode = visit->mode;
    (void)gpu->cu->capture_mode(&mode);
    if (visit->pushed)
        (void)gpu->cu->context_pop(&popped);
}

/* Who shares the primary context holds it, so that it stays until both are through, whoever
 * releases it first. (cuDevicePrimaryCtxReset ends it under all who hold it, and nothing holds a
 * context of cuCtxCreate's: whoever ends those ends them under the communicators that use them.) */
static bool cuda_hold_primary(const struct tti_cuda_gpu *gpu, tti_cu_context now)
{
    const struct tti_cuda_driver *cu = gpu->cu;
    tti_cu_context primary = NULL;
    unsigned flags = 0;
    int active = 0;
    if (cu->primary_state(gpu->base.device, &flags, &active) != TTI_CU_OK || !active ||
        cu->primary_retain(&primary, gpu->base.device) != TTI_CU_OK)
        return false;
    if (primary != now)
        (void)cu->primary_release(gpu->base.device);
    return primary == now;
}

static enum tutti_result cuda_context(struct tti_cuda_gpu *gpu)
{
    const struct tti_cuda_driver *cu = gpu->cu;
    tti_cu_context now = NULL;
    int device = -1;
    if (cu->context_current(&now) == TTI_CU_OK && now && cu->context_device(&device) == TTI_CU_OK &&
        device == gpu->base.device) {
        gpu->context = now;
        gpu->retained = cuda_hold_primary(gpu, now);
        return TUTTI_OK;
    }
    TTI_TRY(tti_cuda_check(cu->primary_retain(&gpu->context, gpu->base.device),
                           "cuDevicePrimaryCtxRetain"));
    gpu->retained = true;
    return TUTTI_OK;
}

/* Never the same again, where the driver numbers them (since CUDA 12). */
static uint64_t cuda_context_id(const struct tti_cuda_gpu *gpu)
{
    unsigned long long id = 0;
    if (gpu->cu->context_id && gpu->context && gpu->cu->context_id(gpu->context, &id) == TTI_CU_OK)
        return id;
    return (uintptr_t)gpu->context;
}

/* ---- Devices ----------------------------------------------------------------------------------
 */

static enum tutti_result cuda_count(int *devices)
{
    const struct tti_cuda_driver *cu;
    int count = 0;
    TTI_TRY(tti_cuda_driver_load(&cu));
    if (cu)
        TTI_TRY(tti_cuda_check(cu->device_count(&count), "cuDeviceGetCount"));
    *devices = count;
    return TUTTI_OK;
}

/* An attribute that is 0 where the driver does not know it. */
static int cuda_attribute(const struct tti_cuda_gpu *gpu, unsigned attribute)
{
    int value = 0;
    if (gpu->cu->device_attribute(&value, attribute, gpu->base.device) != TTI_CU_OK)
        return 0;
    return value;
}

static enum tutti_result cuda_pci(const struct tti_cuda_driver *cu, int device,
                                  char pci[TTI_GPU_PCI_BYTES])
{
    TTI_TRY(tti_cuda_check(cu->device_pci(pci, TTI_GPU_PCI_BYTES, device), "cuDeviceGetPCIBusId"));
    for (char *c = pci; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return TUTTI_OK;
}

enum { CUDA_NO_DEVICE = -1, CUDA_SEVERAL = -2 };

/* The device that this process works on: see `here`. A driver that is loaded says nothing; a
 * context does, since the runtime makes one for whoever touches a device. */
static int cuda_in_use(const struct tti_cuda_driver *cu)
{
    tti_cu_context now = NULL;
    int device = 0, count = 0, found = CUDA_NO_DEVICE;
    if (cu->context_current(&now) == TTI_CU_OK && now && cu->context_device(&device) == TTI_CU_OK)
        return device;
    if (cu->device_count(&count) != TTI_CU_OK)
        return CUDA_NO_DEVICE;
    for (int d = 0; d < count; d++) {
        unsigned flags = 0;
        int active = 0;
        if (cu->primary_state(d, &flags, &active) == TTI_CU_OK && active)
            found = found == CUDA_NO_DEVICE ? d : CUDA_SEVERAL;
    }
    if (found == CUDA_NO_DEVICE && count == 1 && getenv("CUDA_VISIBLE_DEVICES"))
        return 0; /* the launcher dealt it to this process */
    return found;
}

static void cuda_here(int device, char pci[TTI_GPU_PCI_BYTES])
{
    const struct tti_cuda_driver *cu = tti_cuda_driver_now();
    if (cu && device < 0)
        device = cuda_in_use(cu);
    if (cu && device == CUDA_SEVERAL)
        memcpy(pci, "?", 2);
    else if (!cu || device < 0 || cuda_pci(cu, device, pci) != TUTTI_OK)
        pci[0] = '\0';
}

static enum tutti_result cuda_describe(struct tti_cuda_gpu *gpu)
{
    const struct tti_cuda_driver *cu = gpu->cu;
    struct tti_gpu_properties *p = &gpu->base.properties;
    const int device = gpu->base.device;
    TTI_TRY(
        tti_cuda_check(cu->device_name(p->name, (int)sizeof p->name, device), "cuDeviceGetName"));
    TTI_TRY(cuda_pci(cu, device, p->pci));
    TTI_TRY(tti_cuda_check(cu->device_uuid(&p->uuid, device), "cuDeviceGetUuid"));
    TTI_TRY(tti_cuda_check(cu->device_memory(&p->memory_bytes, device), "cuDeviceTotalMem"));
    p->sms = cuda_attribute(gpu, TTI_CU_DEVICE_SMS);
    p->threads_per_sm = cuda_attribute(gpu, TTI_CU_DEVICE_THREADS);
    p->shared_per_block = (size_t)cuda_attribute(gpu, TTI_CU_DEVICE_SHARED);
    p->l2_bytes = (size_t)cuda_attribute(gpu, TTI_CU_DEVICE_L2);
    p->compute_major = cuda_attribute(gpu, TTI_CU_DEVICE_MAJOR);
    p->compute_minor = cuda_attribute(gpu, TTI_CU_DEVICE_MINOR);
    gpu->virtual_fd = cuda_attribute(gpu, TTI_CU_DEVICE_VIRTUAL) != 0 &&
                      cuda_attribute(gpu, TTI_CU_DEVICE_VIRTUAL_FD) != 0;
    gpu->virtual_rdma = cuda_attribute(gpu, TTI_CU_DEVICE_VIRTUAL_RDMA) != 0;
    gpu->dmabuf = cuda_attribute(gpu, TTI_CU_DEVICE_DMABUF) != 0;
    p->multicast = gpu->virtual_fd && cu->multicast_create &&
                   tti_cuda_toolkit() >= TTI_CU_SINCE_MULTICAST &&
                   cuda_attribute(gpu, TTI_CU_DEVICE_MULTICAST) != 0;
    p->registered = cuda_attribute(gpu, TTI_CU_DEVICE_REGISTERED) != 0;
    tti_cuda_software(p->software);
    p->stream_values = true; /* of every device, by the functions' second version */
    return TUTTI_OK;
}

static void cuda_close(struct tti_gpu *base)
{
    if (!base)
        return;
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    struct tti_cuda_visit visit;
    const bool entered = gpu->context && tti_cuda_enter(gpu, &visit) == TUTTI_OK;
    tti_cuda_code_leave(gpu, entered);
    if (entered)
        tti_cuda_leave(gpu, &visit);
    if (gpu->retained)
        (void)gpu->cu->primary_release(base->device);
    free(gpu);
}

static enum tutti_result cuda_open(int device, struct tti_gpu **opened)
{
    int count;
    TTI_TRY(cuda_count(&count));
    if (device < 0 || device >= count)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "CUDA device %d: there are %d here", device, count);
    struct tti_cuda_gpu *gpu = tti_calloc(1, sizeof *gpu);
    if (!gpu)
        return TUTTI_ERR_MEMORY;
    gpu->base.ops = tti_gpu_cuda();
    gpu->base.device = device;
    gpu->cu = tti_cuda_driver_now();
    enum tutti_result result = cuda_context(gpu);
    gpu->base.context = cuda_context_id(gpu);
    if (result == TUTTI_OK)
        result = tti_cuda_code_take(gpu);
    if (result == TUTTI_OK)
        result = cuda_describe(gpu);
    if (result != TUTTI_OK) {
        cuda_close(&gpu->base);
        return TTI_CONTEXT(result, "opening CUDA device %d", device);
    }
    *opened = &gpu->base;
    return TUTTI_OK;
}

static enum tutti_result cuda_peer_can_access(struct tti_gpu *base, int peer, bool *can)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    int yes = 0;
    TTI_TRY(tti_cuda_check(gpu->cu->device_can_peer(&yes, base->device, peer),
                           "cuDeviceCanAccessPeer"));
    *can = yes != 0;
    return TUTTI_OK;
}

/* The peer's memory lies in its primary context, unless its owner made another, which only the
 * owner could tell us. */
static enum tutti_result cuda_peer_enable(struct tti_gpu *base, int peer)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    tti_cu_context context = NULL;
    enum tutti_result result;
    if (peer == base->device)
        return TUTTI_OK;
    TTI_TRY(tti_cuda_check(gpu->cu->primary_retain(&context, peer), "cuDevicePrimaryCtxRetain"));
    unsigned code = TTI_CU_OK;
    TTI_CUDA_IN(gpu, result, "cuCtxEnablePeerAccess",
                (code = gpu->cu->context_peer(context, 0)) == TTI_CU_PEER_ALREADY ? TTI_CU_OK
                                                                                  : code);
    (void)gpu->cu->primary_release(peer);
    return result;
}

/* Atomic operations reach a peer's memory over NVLink, all of them, and that is how it is told from
 * PCIe, over which a few may; older drivers do not know the latter question, and say no. */
static enum tutti_result cuda_whole_lines(struct tti_gpu *base, const unsigned char uuid[16],
                                          bool *whole)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    unsigned char found[16];
    int count = 0, atomics = 0, some = 0;
    *whole = memcmp(uuid, base->properties.uuid, sizeof found) == 0;
    if (*whole)
        return TUTTI_OK;
    TTI_TRY(tti_cuda_check(gpu->cu->device_count(&count), "cuDeviceGetCount"));
    for (int d = 0; d < count; d++) {
        TTI_TRY(tti_cuda_check(gpu->cu->device_uuid(&found, d), "cuDeviceGetUuid"));
        if (d == base->device || memcmp(uuid, found, sizeof found) != 0)
            continue;
        TTI_TRY(tti_cuda_check(gpu->cu->device_peer(&atomics, TTI_CU_PEER_ATOMICS, base->device, d),
                               "cuDeviceGetP2PAttribute"));
        if (gpu->cu->device_peer(&some, TTI_CU_PEER_SOME_ATOMICS, base->device, d) != TTI_CU_OK)
            some = 0;
        *whole = atomics != 0 && some == 0;
    }
    return TUTTI_OK;
}

const struct tti_gpu_ops *tti_gpu_cuda(void)
{
    static const struct tti_gpu_ops ops = {
        .name = "cuda",
        .count = cuda_count,
        .open = cuda_open,
        .close = cuda_close,
        .peer_can_access = cuda_peer_can_access,
        .peer_enable = cuda_peer_enable,
        .whole_lines = cuda_whole_lines,
        .alloc = tti_cuda_alloc,
        .alloc_shared = tti_cuda_alloc_shared,
        .memory_reach = tti_cuda_memory_reach,
        .memory_open = tti_cuda_memory_open,
        .multicast_create = tti_cuda_multicast_create,
        .multicast_import = tti_cuda_multicast_import,
        .multicast_bind = tti_cuda_multicast_bind,
        .multicast_destroy = tti_cuda_multicast_destroy,
        .free = tti_cuda_free,
        .host_register = tti_cuda_host_register,
        .host_unregister = tti_cuda_host_unregister,
        .pointer = tti_cuda_pointer,
        .memory_export = tti_cuda_memory_export,
        .memory_import = tti_cuda_memory_import,
        .memory_release = tti_cuda_memory_release,
        .memory_dmabuf = tti_cuda_memory_dmabuf,
        .event_export = tti_cuda_event_export,
        .event_import = tti_cuda_event_import,
        .stream_create = tti_cuda_stream_create,
        .stream_destroy = tti_cuda_stream_destroy,
        .stream_query = tti_cuda_stream_query,
        .stream_rest = NULL, /* the driver's own waits have no deadline */
        .stream_device = tti_cuda_stream_device,
        .stream_id = tti_cuda_stream_id,
        .here = cuda_here,
        .copy = tti_cuda_copy,
        .fill = tti_cuda_fill,
        .launch = tti_cuda_launch,
        .host_call = tti_cuda_host_call,
        .stream_write = tti_cuda_stream_write,
        .stream_wait = tti_cuda_stream_wait,
        .prepare = tti_cuda_prepare,
        .resident = tti_cuda_resident,
        .event_create = tti_cuda_event_create,
        .event_destroy = tti_cuda_event_destroy,
        .event_record = tti_cuda_event_record,
        .event_hold = tti_cuda_event_hold,
        .event_query = tti_cuda_event_query,
        .event_rest = NULL,
        .event_elapsed = tti_cuda_event_elapsed,
        .capture_begin = tti_cuda_capture_begin,
        .capture_end = tti_cuda_capture_end,
        .capture_id = tti_cuda_capture_id,
        .graph_launch = tti_cuda_graph_launch,
        .graph_destroy = tti_cuda_graph_destroy,
    };
    return &ops;
}
