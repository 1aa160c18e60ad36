/* The fake CUDA runtime's streams, events and graphs (fake_cudart.c). */
#include "tests/device/fake_cudart.h"

#include <stdio.h>
#include <unistd.h>

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    (void)priority; /* the simulated device has none */
    return DO(cu()->stream_create(stream, flags));
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, 0, 0);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    return DO(cu()->priorities(least, greatest));
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    (void)stream;
    *priority = 0;
    return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    return DO(cu()->stream_wait(stream, event, flags));
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    return DO(cu()->host_call(stream, function, data));
}
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return DO(cu()->stream_destroy(stream));
}
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return DO(cu()->stream_query(stream));
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    return DO(cu()->stream_finish(stream));
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    return DO(cu()->event_create(event, flags));
}
cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return DO(cu()->event_query(event));
}
cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    enum { PATIENCE_SECONDS = 60, NAP_US = 50 };
    unsigned code, naps = 0;
    begin();
    while ((code = cu()->event_query(event)) == cudaErrorNotReady) {
        if (++naps == PATIENCE_SECONDS * 1000000 / NAP_US) {
            fprintf(stderr, "the fake CUDA runtime: an event is not reached; on a GPU "
                            "cudaEventSynchronize would wait for ever\n");
            return told(cudaErrorUnknown);
        }
        usleep(NAP_US);
    }
    return told(code);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    return flags == 0 ? DO(cu()->event_record(event, stream)) : refused(__func__);
}
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *name, cudaEvent_t event)
{
    return DO(cu()->ipc_event(name, event));
}
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t name)
{
    return DO(cu()->ipc_open_event(event, name));
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return DO(cu()->event_destroy(event));
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return DO(cu()->event_record(event, stream));
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    return DO(cu()->event_elapsed(milliseconds, from, to));
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    return DO(cu()->capture_begin(stream, mode));
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    return DO(cu()->capture_mode((unsigned *)mode));
}
/* A graph under capture has a number only, and shows no nodes. */
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **nodes, const cudaGraphEdgeData **edges,
                                     size_t *count)
{
    unsigned long long number = 0;
    const cudaError_t error =
        DO(cu()->capture_info(stream, (unsigned *)status, &number, NULL, NULL, NULL));
    if (id)
        *id = number;
    if (graph)
        *graph = (cudaGraph_t)(uintptr_t)number;
    if (nodes)
        *nodes = NULL;
    if (edges)
        *edges = NULL;
    if (count)
        *count = 0;
    return error;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    return cudaStreamGetCaptureInfo(stream, status, NULL, NULL, NULL, NULL, NULL);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    return DO(cu()->capture_end(stream, graph));
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    return DO(cu()->graph_make(exec, graph, flags));
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return DO(cu()->graph_free(graph));
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    return DO(cu()->graph_launch(exec, stream));
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return DO(cu()->exec_free(exec));
}
/* No graph allocates, so none has anything to free at its launch; no stream goes before others. */
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags)
{
    const unsigned long long without_effect =
        cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUseNodePriority;
    return cudaGraphInstantiate(exec, graph, flags & ~without_effect);
}
/* How many there are nobody counted: not none. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    if (!graph || nodes)
        return refused(__func__);
    *count = 1;
    return cudaSuccess;
}
/* What a graph keeps alive lives for ever here. */
cudaError_t cudaUserObjectCreate(cudaUserObject_t *object, void *data, cudaHostFn_t destroy,
                                 unsigned references, unsigned flags)
{
    (void)destroy;
    (void)references;
    (void)flags;
    *object = (cudaUserObject_t)data;
    return cudaSuccess;
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count)
{
    (void)object;
    (void)count;
    return cudaSuccess;
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count,
                                      unsigned flags)
{
    (void)graph;
    (void)object;
    (void)count;
    (void)flags;
    return cudaSuccess;
}
