/* The simulated GPU (device/gpu.h): TUTTI_SIM_DEVICES devices (1 by default) on which the kernels
 * of cuda/ run, compiled for the CPU. For tests, and to try things out; slow. Read next:
 * sim_stream.c (what a queue does), sim_launch.c and sim_block.c (what a kernel does),
 * sim_memory.c.
 */
#include "device/sim/sim_state.h"

#include "base/config.h"
#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t gpu_lock = PTHREAD_MUTEX_INITIALIZER;
static int gpu_opened[TTI_SIM_MOST_DEVICES];

static enum tutti_result gpu_count(int *devices)
{
#if defined(TTI_SIM_KERNELS)
    long count;
    TTI_TRY(tti_config_int("TUTTI_SIM_DEVICES", 0, TTI_SIM_MOST_DEVICES, 1, &count));
    *devices = (int)count;
#else
    *devices = 0; /* built without a C++ compiler */
#endif
    return TUTTI_OK;
}

#define PCI_FORMAT "ffff:%02x:00.0"

static void gpu_describe(int device, struct tti_gpu_properties *p)
{
    snprintf(p->name, sizeof p->name, "Tutti simulated device");
    snprintf(p->pci, sizeof p->pci, PCI_FORMAT, (unsigned)device);
    memcpy(p->uuid, "tutti-simulated", 15);
    p->uuid[15] = (unsigned char)device;
    p->sms = TTI_SIM_SMS;
    p->threads_per_sm = TTI_SIM_BLOCKS_PER_SM * 1024;
    p->shared_per_block = 48 << 10;
    p->memory_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    p->l2_bytes = 4 << 20;
    p->compute_major = 9;
    p->compute_minor = 0;
    p->stream_values = true;
    p->registered = true;
    p->multicast = true;
}

/* Threads have no simulated device current; but who asks for one means to use it. */
static void gpu_here(int device, char pci[TTI_GPU_PCI_BYTES])
{
    if (device < 0)
        snprintf(pci, TTI_GPU_PCI_BYTES, "?");
    else
        snprintf(pci, TTI_GPU_PCI_BYTES, PCI_FORMAT, (unsigned)device);
}

static enum tutti_result gpu_open(int device, struct tti_gpu **gpu)
{
    int count;
    TTI_TRY(gpu_count(&count));
    if (device < 0 || device >= count)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "simulated device %d: there are %d (TUTTI_SIM_DEVICES sets how many)",
                        device, count);
    struct tti_gpu *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->ops = tti_gpu_sim();
    made->device = device;
    gpu_describe(device, &made->properties);
    (void)tti_sim_seed();
    pthread_mutex_lock(&gpu_lock);
    gpu_opened[device]++;
    pthread_mutex_unlock(&gpu_lock);
    *gpu = made;
    return TUTTI_OK;
}

static void gpu_close(struct tti_gpu *gpu)
{
    if (!gpu)
        return;
    pthread_mutex_lock(&gpu_lock);
    if (--gpu_opened[gpu->device] == 0) {
        tti_sim_default_stream_end(gpu);
        tti_sim_workers_end(gpu->device);
    }
    pthread_mutex_unlock(&gpu_lock);
    free(gpu);
}

static enum tutti_result gpu_peer_can_access(struct tti_gpu *gpu, int peer, bool *can)
{
    int count;
    TTI_TRY(gpu_count(&count));
    *can = peer >= 0 && peer < count && peer != gpu->device;
    return TUTTI_OK;
}

static enum tutti_result gpu_peer_enable(struct tti_gpu *gpu, int peer)
{
    bool can;
    TTI_TRY(gpu_peer_can_access(gpu, peer, &can));
    if (!can && peer != gpu->device)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "simulated device %d cannot access device %d",
                        gpu->device, peer);
    return TUTTI_OK;
}

static enum tutti_result gpu_memory_reach(struct tti_gpu *gpu, const void *memory, int owner)
{
    (void)memory;
    return gpu_peer_enable(gpu, owner);
}

static enum tutti_result gpu_memory_open(struct tti_gpu *gpu, const void *memory, size_t bytes,
                                         const int *devices, int count)
{
    (void)gpu;
    (void)memory;
    (void)bytes;
    (void)devices;
    (void)count;
    return TUTTI_OK;
}

/* Who destroys a stream waits for its work. */
static enum tutti_result gpu_stream_id(struct tti_gpu *gpu, tutti_stream stream, uint64_t *id)
{
    (void)gpu;
    *id = (uint64_t)(uintptr_t)stream;
    return TUTTI_OK;
}

/* Lines are simulated such that their flag comes last. */
static enum tutti_result gpu_whole_lines(struct tti_gpu *gpu, const unsigned char uuid[16],
                                         bool *whole)
{
    *whole = memcmp(uuid, gpu->properties.uuid, 15) == 0;
    return TUTTI_OK;
}

/* ---- Work -------------------------------------------------------------------------------------
 */

static enum tutti_result gpu_copy(struct tti_gpu *gpu, void *dst, const void *src, size_t bytes,
                                  tutti_stream stream)
{
    const struct tti_sim_op op = {.kind = TTI_SIM_COPY, .dst = dst, .src = src, .bytes = bytes};
    return bytes ? tti_sim_enqueue(gpu, stream, &op) : TUTTI_OK;
}

static enum tutti_result gpu_fill(struct tti_gpu *gpu, void *dst, unsigned char byte, size_t bytes,
                                  tutti_stream stream)
{
    const struct tti_sim_op op = {.kind = TTI_SIM_FILL, .dst = dst, .value = byte, .bytes = bytes};
    return bytes ? tti_sim_enqueue(gpu, stream, &op) : TUTTI_OK;
}

static enum tutti_result gpu_prepare(struct tti_gpu *gpu, enum tti_gpu_kernel kernel,
                                     enum tutti_type type)
{
    if (tti_sim_kernel_of(kernel, type))
        return TUTTI_OK;
    return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "%s has no kernel %s for type %d", gpu->properties.name,
                    tti_gpu_kernel_name(kernel), (int)type);
}

static enum tutti_result gpu_launch(struct tti_gpu *gpu, const struct tti_gpu_launch *launch,
                                    tutti_stream stream)
{
    const struct tti_sim_op op = {.kind = TTI_SIM_LAUNCH, .device = gpu->device, .launch = *launch};
    if (!launch->own)
        TTI_TRY(gpu_prepare(gpu, launch->kernel, launch->type));
    else if (!launch->own->simulated)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "%s has no kernel %s: this build had no C++ compiler for it",
                        gpu->properties.name, launch->own->symbol);
    if (launch->blocks == 0 || launch->threads == 0 || launch->threads % 32 ||
        launch->threads > 1024 || launch->args_bytes > TTI_SIM_MOST_ARGS ||
        launch->shared_bytes > gpu->properties.shared_per_block)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "kernel %s: cannot launch %u blocks of %u threads with %zu bytes of shared "
                        "memory and %zu of arguments",
                        tti_gpu_launch_name(launch), launch->blocks, launch->threads,
                        launch->shared_bytes, launch->args_bytes);
    TTI_TRY(tti_sim_stream_fits(gpu, stream, tti_gpu_launch_name(launch)));
    return tti_sim_enqueue(gpu, stream, &op);
}

static enum tutti_result gpu_resident(struct tti_gpu *gpu, const struct tti_gpu_launch *launch,
                                      int *blocks)
{
    TTI_TRY(gpu_prepare(gpu, launch->kernel, launch->type));
    *blocks = TTI_SIM_SMS * TTI_SIM_BLOCKS_PER_SM;
    return TUTTI_OK;
}

static enum tutti_result gpu_host_call(struct tti_gpu *gpu, void (*function)(void *),
                                       void *argument, tutti_stream stream)
{
    const struct tti_sim_op op = {.kind = TTI_SIM_CALL, .call = function, .dst = argument};
    return tti_sim_enqueue(gpu, stream, &op);
}

static enum tutti_result gpu_stream_write(struct tti_gpu *gpu, uint32_t *word, uint32_t value,
                                          tutti_stream stream)
{
    const struct tti_sim_op op = {.kind = TTI_SIM_WRITE, .dst = word, .value = value};
    return tti_sim_enqueue(gpu, stream, &op);
}

static enum tutti_result gpu_stream_wait(struct tti_gpu *gpu, uint32_t *word, uint32_t value,
                                         tutti_stream stream)
{
    const struct tti_sim_op op = {.kind = TTI_SIM_WAIT, .src = word, .value = value};
    return tti_sim_enqueue(gpu, stream, &op);
}

const struct tti_gpu_ops *tti_gpu_sim(void)
{
    static const struct tti_gpu_ops ops = {
        .name = "sim",
        .count = gpu_count,
        .open = gpu_open,
        .close = gpu_close,
        .peer_can_access = gpu_peer_can_access,
        .peer_enable = gpu_peer_enable,
        .whole_lines = gpu_whole_lines,
        .alloc = tti_sim_alloc,
        .alloc_shared = tti_sim_alloc_shared,
        .memory_reach = gpu_memory_reach,
        .memory_open = gpu_memory_open,
        .multicast_create = tti_sim_multicast_create,
        .multicast_import = tti_sim_multicast_import,
        .multicast_bind = tti_sim_multicast_bind,
        .multicast_destroy = tti_sim_multicast_destroy,
        .free = tti_sim_free,
        .host_register = tti_sim_host_register,
        .host_unregister = tti_sim_host_unregister,
        .pointer = tti_sim_pointer,
        .memory_export = tti_sim_memory_export,
        .memory_import = tti_sim_memory_import,
        .memory_release = tti_sim_memory_release,
        .memory_dmabuf = tti_sim_memory_dmabuf,
        .event_export = tti_sim_event_export,
        .event_import = tti_sim_event_import,
        .stream_create = tti_sim_stream_create,
        .stream_destroy = tti_sim_stream_destroy,
        .stream_query = tti_sim_stream_query,
        .stream_rest = tti_sim_stream_rest,
        .stream_device = tti_sim_stream_device,
        .stream_id = gpu_stream_id,
        .here = gpu_here,
        .copy = gpu_copy,
        .fill = gpu_fill,
        .launch = gpu_launch,
        .host_call = gpu_host_call,
        .stream_write = gpu_stream_write,
        .stream_wait = gpu_stream_wait,
        .prepare = gpu_prepare,
        .resident = gpu_resident,
        .event_create = tti_sim_event_create,
        .event_destroy = tti_sim_event_destroy,
        .event_record = tti_sim_event_record,
        .event_hold = tti_sim_event_hold,
        .event_query = tti_sim_event_query,
        .event_rest = tti_sim_event_rest,
        .event_elapsed = tti_sim_event_elapsed,
        .capture_begin = tti_sim_capture_begin,
        .capture_end = tti_sim_capture_end,
        .capture_id = tti_sim_capture_id,
        .graph_launch = tti_sim_graph_launch,
        .graph_destroy = tti_sim_graph_destroy,
    };
    return &ops;
}
