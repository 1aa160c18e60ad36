/* What the files of the fake CUDA runtime share (fake_cudart.c): the driver that it is made of. */
#ifndef TTI_TESTS_DEVICE_FAKE_CUDART_H
#define TTI_TESTS_DEVICE_FAKE_CUDART_H

#include <cuda_runtime_api.h>

#include <stdint.h>

typedef unsigned long long address;
typedef void *handle;

/* X(name here, symbol, parameters); codes of the driver are the runtime's, where both have one. */
#define DRIVER(X)                                                                               \
    X(init, cuInit, (unsigned))                                                                 \
    X(device_count, cuDeviceGetCount, (int *))                                                  \
    X(device_name, cuDeviceGetName, (char *, int, int))                                         \
    X(device_attribute, cuDeviceGetAttribute, (int *, unsigned, int))                           \
    X(device_total, cuDeviceTotalMem_v2, (size_t *, int))                                       \
    X(retain, cuDevicePrimaryCtxRetain, (handle *, int))                                        \
    X(current, cuCtxGetCurrent, (handle *))                                                     \
    X(push, cuCtxPushCurrent_v2, (handle))                                                      \
    X(pop, cuCtxPopCurrent_v2, (handle *))                                                      \
    X(finish, cuCtxSynchronize, (void))                                                         \
    X(memory_left, cuMemGetInfo_v2, (size_t *, size_t *))                                       \
    X(alloc, cuMemAlloc_v2, (address *, size_t))                                                \
    X(free, cuMemFree_v2, (address))                                                            \
    X(alloc_host, cuMemHostAlloc, (void **, size_t, unsigned))                                  \
    X(free_host, cuMemFreeHost, (void *))                                                       \
    X(copy, cuMemcpyAsync, (address, address, size_t, handle))                                  \
    X(fill, cuMemsetD8Async, (address, unsigned char, size_t, handle))                          \
    X(register_host, cuMemHostRegister_v2, (void *, size_t, unsigned))                          \
    X(unregister_host, cuMemHostUnregister, (void *))                                           \
    X(of_pointers, cuPointerGetAttributes, (unsigned, unsigned *, void **, address))            \
    X(ipc_memory, cuIpcGetMemHandle, (cudaIpcMemHandle_t *, address))                           \
    X(ipc_open, cuIpcOpenMemHandle_v2, (address *, cudaIpcMemHandle_t, unsigned))               \
    X(ipc_close, cuIpcCloseMemHandle, (address))                                                \
    X(ipc_event, cuIpcGetEventHandle, (cudaIpcEventHandle_t *, handle))                         \
    X(ipc_open_event, cuIpcOpenEventHandle, (cudaEvent_t *, cudaIpcEventHandle_t))              \
    X(peer_can, cuDeviceCanAccessPeer, (int *, int, int))                                       \
    X(peer_enable, cuCtxEnablePeerAccess, (handle, unsigned))                                   \
    X(pci, cuDeviceGetPCIBusId, (char *, int, int))                                             \
    X(uuid, cuDeviceGetUuid_v2, (cudaUUID_t *, int))                                            \
    X(version, cuDriverGetVersion, (int *))                                                     \
    X(priorities, cuCtxGetStreamPriorityRange, (int *, int *))                                  \
    X(stream_create, cuStreamCreate, (cudaStream_t *, unsigned))                                \
    X(stream_wait, cuStreamWaitEvent, (handle, handle, unsigned))                               \
    X(host_call, cuLaunchHostFunc, (handle, void (*)(void *), void *))                          \
    X(stream_destroy, cuStreamDestroy_v2, (handle))                                             \
    X(stream_query, cuStreamQuery, (handle))                                                    \
    X(stream_finish, cuStreamSynchronize, (handle))                                             \
    X(event_create, cuEventCreate, (cudaEvent_t *, unsigned))                                   \
    X(event_destroy, cuEventDestroy_v2, (handle))                                               \
    X(event_record, cuEventRecord, (handle, handle))                                            \
    X(event_query, cuEventQuery, (handle))                                                      \
    X(event_elapsed, cuEventElapsedTime, (float *, handle, handle))                             \
    X(capture_begin, cuStreamBeginCapture_v2, (handle, unsigned))                               \
    X(capture_mode, cuThreadExchangeStreamCaptureMode, (unsigned *))                            \
    X(capture_info, cuStreamGetCaptureInfo_v2,                                                  \
      (handle, unsigned *, unsigned long long *, handle *, const handle **, size_t *))          \
    X(capture_end, cuStreamEndCapture, (handle, cudaGraph_t *))                                 \
    X(graph_make, cuGraphInstantiateWithFlags, (cudaGraphExec_t *, handle, unsigned long long)) \
    X(graph_free, cuGraphDestroy, (handle))                                                     \
    X(graph_launch, cuGraphLaunch, (handle, handle))                                            \
    X(exec_free, cuGraphExecDestroy, (handle))
#define FIELD(name, symbol, parameters) unsigned(*name) parameters;
struct driver {
    DRIVER(FIELD)
};
const struct driver *cu(void);

/* A code of the driver's, kept as the thread's last error. */
cudaError_t told(unsigned code);
/* cudaErrorNotSupported; `what`, which stays, is named by its text. */
cudaError_t refused(const char *what);
/* The calling thread has a context from here on. */
void begin(void);
#define DO(call) (begin(), told(call))

static inline address at(const void *memory)
{
    return (address)(uintptr_t)memory;
}

#endif
