/* See bench_device.h. */
#include "bench/bench_device.h"

#include "base/clock.h"

#include <string.h>

enum { FINISH_SECONDS = 300 };

enum tutti_result bench_device_open(const struct bench_options *o, int local_rank,
                                    struct bench_device *device)
{
    const struct tti_gpu_ops *ops = NULL;
    memset(device, 0, sizeof *device);
    if (!o->device)
        return TUTTI_OK;
    TTI_TRY(tti_gpu_find(o->device, &ops));
    TTI_TRY(ops->count(&device->count));
    if (device->count == 0)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "--device %s: there is no such device here (TUTTI_LOG=info says why)",
                        o->device);
    device->index = local_rank % device->count;
    TTI_TRY(ops->open(device->index, &device->gpu));
    return ops->stream_create(device->gpu, &device->stream);
}

void bench_device_close(struct bench_device *device)
{
    if (!device->gpu)
        return;
    const struct tti_gpu_ops *ops = device->gpu->ops;
    bench_device_forget(device);
    if (device->stream)
        ops->stream_destroy(device->gpu, device->stream);
    ops->close(device->gpu);
    memset(device, 0, sizeof *device);
}

enum tutti_result bench_device_get(struct bench_device *device, size_t bytes, char **memory)
{
    void *made = NULL;
    TTI_TRY(device->gpu->ops->alloc(device->gpu, TTI_MEMORY_DEVICE, bytes ? bytes : 1, &made));
    *memory = made;
    return TUTTI_OK;
}

void bench_device_put(struct bench_device *device, char *memory)
{
    if (memory)
        device->gpu->ops->free(device->gpu, memory);
}

enum tutti_result bench_device_copy(struct bench_device *device, void *to, const void *from,
                                    size_t bytes)
{
    return device->gpu->ops->copy(device->gpu, to, from, bytes, device->stream);
}

enum tutti_result bench_device_finish(const struct bench_options *o, struct bench_device *device)
{
    if (!device->gpu)
        return TUTTI_OK;
    const double seconds = o->timeout_s > 0 ? o->timeout_s : FINISH_SECONDS;
    return tti_gpu_stream_wait(device->gpu, device->stream, tti_deadline_in(seconds),
                               "waiting for the device");
}

static enum tutti_result device_uneven(tutti_stream stream, const struct bench_case *c,
                                       enum tutti_op op, const void *in, void *out,
                                       tutti_comm *comm)
{
    const size_t *give = c->in_counts, *get = c->out_counts;
    const int rank = tutti_comm_rank(comm);
    switch (c->collective) {
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter_v_async(in, out, give, NULL, c->type, op, comm, stream, NULL);
    case TUTTI_ALL_GATHER:
        return tutti_all_gather_v_async(in, out, get, NULL, c->type, comm, stream, NULL);
    case TUTTI_ALL_TO_ALL:
        return tutti_all_to_all_v_async(in, give, NULL, out, get, NULL, c->type, comm, stream,
                                        NULL);
    case TUTTI_GATHER:
        return tutti_gather_v_async(in, give[rank], out, get, NULL, c->type, c->root, comm, stream,
                                    NULL);
    default:
        return tutti_scatter_v_async(in, give, NULL, out, get[rank], c->type, c->root, comm, stream,
                                     NULL);
    }
}

enum tutti_result bench_device_operate(struct bench_device *device, const struct bench_case *c,
                                       enum tutti_op op, const void *in, void *out,
                                       tutti_comm *comm)
{
    const size_t count = c->shape.count;
    const enum tutti_type type = c->type;
    const int root = c->root, rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    tutti_stream stream = device->stream;
    if (c->uneven)
        return device_uneven(stream, c, op, in, out, comm);
    switch (c->collective) {
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce_async(in, out, count, type, op, comm, stream, NULL);
    case TUTTI_BROADCAST:
        return tutti_broadcast_async(in, out, count, type, root, comm, stream, NULL);
    case TUTTI_REDUCE:
        return tutti_reduce_async(in, out, count, type, op, root, comm, stream, NULL);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter_async(in, out, count, type, op, comm, stream, NULL);
    case TUTTI_ALL_GATHER:
        return tutti_all_gather_async(in, out, count, type, comm, stream, NULL);
    case TUTTI_ALL_TO_ALL:
        return tutti_all_to_all_async(in, out, count, type, comm, stream, NULL);
    case TUTTI_GATHER:
        return tutti_gather_async(in, out, count, type, root, comm, stream, NULL);
    case TUTTI_SCATTER:
        return tutti_scatter_async(in, out, count, type, root, comm, stream, NULL);
    default:
        break;
    }
    enum tutti_result result = tutti_group_start();
    if (result == TUTTI_OK)
        result = tutti_send_async(in, count, type, (rank + 1) % size, comm, stream, NULL);
    if (result == TUTTI_OK)
        result = tutti_recv_async(out, count, type, (rank + size - 1) % size, comm, stream, NULL);
    enum tutti_result end = tutti_group_end();
    return result == TUTTI_OK ? end : result;
}

void bench_device_forget(struct bench_device *device)
{
    if (device->graph)
        device->gpu->ops->graph_destroy(device->graph);
    device->graph = NULL;
}

enum tutti_result bench_device_capture(struct bench_device *device)
{
    bench_device_forget(device);
    return device->gpu->ops->capture_begin(device->gpu, device->stream);
}

enum tutti_result bench_device_captured(struct bench_device *device)
{
    return device->gpu->ops->capture_end(device->gpu, device->stream, &device->graph);
}

enum tutti_result bench_device_replay(struct bench_device *device)
{
    return device->gpu->ops->graph_launch(device->graph, device->stream);
}
