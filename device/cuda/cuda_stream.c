/* Streams, events and graphs on the CUDA driver: gpu.h's operations, one call of the driver each.
 */
#include "device/cuda/cuda_state.h"

#include "base/memory.h"

#include <stdlib.h>

static tti_cu_ptr address(const void *pointer)
{
    return (tti_cu_ptr)(uintptr_t)pointer;
}

/* Of the highest priority: others wait for what the library's own streams do. And a stream may
 * share one of the device's queues with one that it has to let through, which programs have many
 * of, as good as all of the usual priority. (That priorities share no queues is not documented.) */
enum tutti_result tti_cuda_stream_create(struct tti_gpu *base, tutti_stream *stream)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    tti_cu_stream made = NULL;
    enum tutti_result result;
    int least = 0, greatest = 0;
    TTI_CUDA_IN(gpu, result, "cuCtxGetStreamPriorityRange",
                gpu->cu->stream_priorities(&least, &greatest));
    TTI_TRY(result);
    TTI_CUDA_IN(gpu, result, "cuStreamCreateWithPriority",
                gpu->cu->stream_create(&made, TTI_CU_STREAM_NON_BLOCKING, greatest));
    if (result == TUTTI_OK)
        *stream = made;
    return result;
}

void tti_cuda_stream_destroy(struct tti_gpu *base, tutti_stream stream)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    enum tutti_result result;
    if (!stream)
        return;
    TTI_CUDA_IN(gpu, result, "cuStreamSynchronize", gpu->cu->stream_finish(stream));
    TTI_CUDA_IN(gpu, result, "cuStreamDestroy", gpu->cu->stream_destroy(stream));
    (void)result;
}

enum tutti_result tti_cuda_stream_query(struct tti_gpu *base, tutti_stream stream)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    TTI_CUDA_RETURN(gpu, "the stream's work", gpu->cu->stream_query(stream));
}

enum tutti_result tti_cuda_stream_device(tutti_stream stream, int *device)
{
    const struct tti_cuda_driver *cu = tti_cuda_driver_now();
    tti_cu_context context = NULL, popped;
    if (stream && stream != TTI_STREAM_LEGACY && stream != TTI_STREAM_PER_THREAD)
        TTI_TRY(tti_cuda_check(cu->stream_context(stream, &context), "cuStreamGetCtx"));
    else
        TTI_TRY(tti_cuda_check(cu->context_current(&context), "cuCtxGetCurrent"));
    int found = 0;
    if (context) {
        TTI_TRY(tti_cuda_check(cu->context_push(context), "cuCtxPushCurrent"));
        const enum tutti_result result =
            tti_cuda_check(cu->context_device(&found), "cuCtxGetDevice");
        (void)cu->context_pop(&popped);
        TTI_TRY(result);
    }
    *device = found;
    return TUTTI_OK;
}

/* A handle may be used again for the next stream as soon as it is destroyed, which does not wait.
 */
enum tutti_result tti_cuda_stream_id(struct tti_gpu *base, tutti_stream stream, uint64_t *id)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    unsigned long long number = (uintptr_t)stream;
    enum tutti_result result = TUTTI_OK;
    if (number > (uintptr_t)TTI_STREAM_PER_THREAD)
        TTI_CUDA_IN(gpu, result, "cuStreamGetId", gpu->cu->stream_id(stream, &number));
    *id = number;
    return result;
}

enum tutti_result tti_cuda_copy(struct tti_gpu *base, void *dst, const void *src, size_t bytes,
                                tutti_stream stream)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    if (bytes == 0)
        return TUTTI_OK;
    TTI_CUDA_QUEUE(gpu, "cuMemcpyAsync", gpu->cu->copy(address(dst), address(src), bytes, stream));
}

enum tutti_result tti_cuda_fill(struct tti_gpu *base, void *dst, unsigned char byte, size_t bytes,
                                tutti_stream stream)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    if (bytes == 0)
        return TUTTI_OK;
    TTI_CUDA_QUEUE(gpu, "cuMemsetD8Async", gpu->cu->fill(address(dst), byte, bytes, stream));
}

enum tutti_result tti_cuda_host_call(struct tti_gpu *base, void (*function)(void *), void *argument,
                                     tutti_stream stream)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    TTI_CUDA_QUEUE(gpu, "cuLaunchHostFunc", gpu->cu->host_call(stream, function, argument));
}

enum tutti_result tti_cuda_stream_write(struct tti_gpu *base, uint32_t *word, uint32_t value,
                                        tutti_stream stream)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    TTI_CUDA_QUEUE(gpu, "cuStreamWriteValue32",
                   gpu->cu->stream_write(stream, address(word), value, TTI_CU_WRITE_DEFAULT));
}

enum tutti_result tti_cuda_stream_wait(struct tti_gpu *base, uint32_t *word, uint32_t value,
                                       tutti_stream stream)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    TTI_CUDA_QUEUE(gpu, "cuStreamWaitValue32",
                   gpu->cu->stream_wait(stream, address(word), value, TTI_CU_WAIT_GEQ));
}

/* ---- Events -----------------------------------------------------------------------------------
 */

struct tti_gpu_event {
    struct tti_cuda_gpu *gpu;
    tti_cu_event event;
};

static enum tutti_result event_wrap(struct tti_cuda_gpu *gpu, tti_cu_event event,
                                    struct tti_gpu_event **wrapped)
{
    struct tti_gpu_event *made = tti_calloc(1, sizeof *made);
    if (!made) {
        (void)gpu->cu->event_destroy(event);
        return TUTTI_ERR_MEMORY;
    }
    made->gpu = gpu;
    made->event = event;
    *wrapped = made;
    return TUTTI_OK;
}

enum tutti_result tti_cuda_event_create(struct tti_gpu *base, int flags,
                                        struct tti_gpu_event **event)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    const bool timing = flags & TTI_EVENT_TIMING, interprocess = flags & TTI_EVENT_INTERPROCESS;
    if (timing && interprocess)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "an event is either for timing or for other processes, not both");
    tti_cu_event made = NULL;
    enum tutti_result result;
    TTI_CUDA_IN(gpu, result, "cuEventCreate",
                gpu->cu->event_create(&made, (timing ? 0 : TTI_CU_EVENT_NO_TIMING) |
                                                 (interprocess ? TTI_CU_EVENT_INTERPROCESS : 0)));
    return result == TUTTI_OK ? event_wrap(gpu, made, event) : result;
}

void tti_cuda_event_destroy(struct tti_gpu_event *event)
{
    enum tutti_result result;
    if (!event)
        return;
    TTI_CUDA_IN(event->gpu, result, "cuEventDestroy", event->gpu->cu->event_destroy(event->event));
    (void)result;
    free(event);
}

enum tutti_result tti_cuda_event_record(struct tti_gpu_event *event, tutti_stream stream)
{
    TTI_CUDA_QUEUE(event->gpu, "cuEventRecord", event->gpu->cu->event_record(event->event, stream));
}

enum tutti_result tti_cuda_event_hold(struct tti_gpu_event *event, tutti_stream stream)
{
    TTI_CUDA_QUEUE(event->gpu, "cuStreamWaitEvent",
                   event->gpu->cu->event_hold(stream, event->event, 0));
}

enum tutti_result tti_cuda_event_query(struct tti_gpu_event *event)
{
    TTI_CUDA_RETURN(event->gpu, "the work before an event",
                    event->gpu->cu->event_query(event->event));
}

enum tutti_result tti_cuda_event_elapsed(struct tti_gpu_event *from, struct tti_gpu_event *to,
                                         double *seconds)
{
    float milliseconds = 0;
    enum tutti_result result;
    TTI_CUDA_IN(from->gpu, result, "cuEventElapsedTime",
                from->gpu->cu->event_elapsed(&milliseconds, from->event, to->event));
    if (result == TUTTI_OK)
        *seconds = (double)milliseconds * 1e-3;
    return result;
}

enum tutti_result tti_cuda_event_export(struct tti_gpu_event *event, struct tti_gpu_handle *handle)
{
    TTI_CUDA_RETURN(event->gpu, "cuIpcGetEventHandle",
                    event->gpu->cu->ipc_event_make(handle, event->event));
}

enum tutti_result tti_cuda_event_import(struct tti_gpu *base, const struct tti_gpu_handle *handle,
                                        struct tti_gpu_event **event)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    tti_cu_event made = NULL;
    enum tutti_result result;
    TTI_CUDA_IN(gpu, result, "cuIpcOpenEventHandle", gpu->cu->ipc_event_open(&made, *handle));
    return result == TUTTI_OK ? event_wrap(gpu, made, event) : result;
}

/* ---- Graphs -----------------------------------------------------------------------------------
 */

struct tti_gpu_graph {
    struct tti_cuda_gpu *gpu;
    tti_cu_exec exec;
};

enum tutti_result tti_cuda_capture_begin(struct tti_gpu *base, tutti_stream stream)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    TTI_CUDA_RETURN(gpu, "cuStreamBeginCapture",
                    gpu->cu->capture_begin(stream, TTI_CU_CAPTURE_THREAD_LOCAL));
}

enum tutti_result tti_cuda_capture_end(struct tti_gpu *base, tutti_stream stream,
                                       struct tti_gpu_graph **graph)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    tti_cu_graph captured = NULL;
    enum tutti_result result;
    TTI_CUDA_IN(gpu, result, "cuStreamEndCapture", gpu->cu->capture_end(stream, &captured));
    if (result != TUTTI_OK)
        return result;
    struct tti_gpu_graph *made = tti_calloc(1, sizeof *made);
    if (!made) {
        (void)gpu->cu->graph_free(captured);
        return TUTTI_ERR_MEMORY;
    }
    made->gpu = gpu;
    TTI_CUDA_IN(gpu, result, "cuGraphInstantiateWithFlags",
                gpu->cu->graph_make(&made->exec, captured, 0));
    (void)gpu->cu->graph_free(captured);
    if (result != TUTTI_OK) {
        free(made);
        return result;
    }
    /* Else the first launch takes it to the device, which may wait for a graph that waits for this
     * one. */
    TTI_CUDA_IN(gpu, result, "cuGraphUpload", gpu->cu->graph_upload(made->exec, stream));
    if (result != TUTTI_OK)
        tti_cuda_graph_destroy(made);
    else
        *graph = made;
    return result;
}

enum tutti_result tti_cuda_capture_id(struct tti_gpu *base, tutti_stream stream, uint64_t *id)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    unsigned status = 0;
    unsigned long long found = 0;
    enum tutti_result result;
    TTI_CUDA_IN(gpu, result, "cuStreamGetCaptureInfo",
                gpu->cu->capturing(stream, &status, &found, NULL, NULL, NULL));
    if (result == TUTTI_OK)
        *id = status != 0 ? found : 0;
    return result;
}

enum tutti_result tti_cuda_graph_launch(struct tti_gpu_graph *graph, tutti_stream stream)
{
    TTI_CUDA_QUEUE(graph->gpu, "cuGraphLaunch", graph->gpu->cu->graph_launch(graph->exec, stream));
}

void tti_cuda_graph_destroy(struct tti_gpu_graph *graph)
{
    enum tutti_result result;
    if (!graph)
        return;
    TTI_CUDA_IN(graph->gpu, result, "cuGraphExecDestroy", graph->gpu->cu->exec_free(graph->exec));
    (void)result;
    free(graph);
}
