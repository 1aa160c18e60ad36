/* The CUDA driver's functions that we use, declared by ourselves and looked up at run time, so that
 * every build serves every machine. tests/device/cuda_abi.c holds each line to cuda.h where there
 * is one. Next: cuda_gpu.c. */
#ifndef TTI_DEVICE_CUDA_DRIVER_H
#define TTI_DEVICE_CUDA_DRIVER_H

#include "device/gpu.h"

#include <stddef.h>
#include <stdint.h>

typedef unsigned long long tti_cu_ptr;
typedef struct CUctx_st *tti_cu_context;
typedef struct CUmod_st *tti_cu_module;
typedef struct CUfunc_st *tti_cu_function;
typedef struct CUstream_st *tti_cu_stream;
typedef struct CUevent_st *tti_cu_event;
typedef struct CUgraph_st *tti_cu_graph;
typedef struct CUgraphExec_st *tti_cu_exec;
typedef struct CUmemPoolHandle_st *tti_cu_pool;
typedef unsigned long long tti_cu_memory; /* a piece of memory without an address */
/* Of 64 bytes, passed by value. */
typedef struct tti_gpu_handle tti_cu_handle;

struct tti_cu_location {
    int type, id;
};
struct tti_cu_memory_prop {
    int type, handles;
    struct tti_cu_location location;
    void *unused;
    unsigned char compression, rdma;
    unsigned short usage;
    unsigned char reserved[4];
};
struct tti_cu_access {
    struct tti_cu_location location;
    int flags;
};
struct tti_cu_multicast_prop {
    unsigned devices;
    size_t bytes;
    unsigned long long handles, flags;
};

/* Results and other numbers, as in cuda.h. */
enum {
    TTI_CU_OK = 0,
    TTI_CU_INVALID_VALUE = 1,
    TTI_CU_OUT_OF_MEMORY = 2,
    TTI_CU_DEINITIALIZED = 4, /* the driver is shut down: the process ends */
    TTI_CU_NO_DEVICE = 100,
    TTI_CU_NO_CONTEXT = 201,
    TTI_CU_DEVICE_UNAVAILABLE = 46,
    TTI_CU_STUB = 34,
    TTI_CU_BAD_IMAGE = 200,
    TTI_CU_NO_BINARY = 209,
    TTI_CU_BAD_PTX = 218,
    TTI_CU_NEWER_PTX = 222,
    TTI_CU_OPERATING_SYSTEM = 304,
    TTI_CU_ILLEGAL_ADDRESS = 700,
    TTI_CU_TOO_MANY_PEERS = 711,
    TTI_CU_LAUNCH_FAILED = 719,
    TTI_CU_SYSTEM_NOT_READY = 802,
    TTI_CU_DRIVER_MISMATCH = 803,
    TTI_CU_COMPAT_UNSUPPORTED = 804,
    TTI_CU_MPS_CONNECTION = 805,
    TTI_CU_UNKNOWN = 999,
    TTI_CU_PEER_UNSUPPORTED = 217,
    TTI_CU_INVALID_HANDLE = 400,
    TTI_CU_NOT_READY = 600,
    TTI_CU_PEER_ALREADY = 704,
    TTI_CU_HOST_ALREADY = 712,
    TTI_CU_HOST_UNKNOWN = 713,
    TTI_CU_NOT_PERMITTED = 800,
    TTI_CU_NOT_SUPPORTED = 801,
    TTI_CU_CAPTURE_FIRST = 900, /* 900 to 908: about capture */
    TTI_CU_CAPTURE_LAST = 908,

    TTI_CU_DEVICE_SHARED = 97, /* attributes of a device */
    TTI_CU_DEVICE_SMS = 16,
    TTI_CU_DEVICE_THREADS = 39,
    TTI_CU_DEVICE_L2 = 38,
    TTI_CU_DEVICE_MAJOR = 75,
    TTI_CU_DEVICE_MINOR = 76,
    TTI_CU_DEVICE_MULTICAST = 132,
    TTI_CU_DEVICE_REGISTERED = 91,
    TTI_CU_DEVICE_VIRTUAL = 102,
    TTI_CU_DEVICE_VIRTUAL_FD = 103,
    TTI_CU_DEVICE_VIRTUAL_RDMA = 110,
    TTI_CU_DEVICE_DMABUF = 124,

    TTI_CU_MEMORY_PINNED = 1, /* of memory that is mapped piece by piece */
    TTI_CU_LOCATION_DEVICE = 1,
    TTI_CU_ACCESS_READ_WRITE = 3,
    TTI_CU_PAGE_MINIMUM = 0,
    TTI_CU_HANDLE_FD = 1,
    TTI_CU_HANDLE_FABRIC = 8,
    TTI_CU_RANGE_DMABUF = 1,

    TTI_CU_PEER_ATOMICS = 3, /* attributes of two devices */
    TTI_CU_PEER_SOME_ATOMICS = 5,

    TTI_CU_POINTER_TYPE = 2, /* attributes of a pointer */
    TTI_CU_POINTER_ID = 7,
    TTI_CU_POINTER_MANAGED = 8,
    TTI_CU_POINTER_DEVICE = 9,
    TTI_CU_POINTER_START = 11,
    TTI_CU_POINTER_SIZE = 12,
    TTI_CU_POINTER_LEGACY = 10, /* of cuMemAlloc */
    TTI_CU_POINTER_POOL = 17,
    TTI_CU_POINTER_MAPPED_BYTES = 18, /* of the piece that is mapped there ... */
    TTI_CU_POINTER_MAPPED_AT = 19,    /* ... and where it begins */
    TTI_CU_TYPE_HOST = 1,
    TTI_CU_TYPE_DEVICE = 2,

    TTI_CU_HOST_PORTABLE = 1,
    TTI_CU_HOST_MAPPED = 2,
    TTI_CU_ATTACH_GLOBAL = 1,
    TTI_CU_IPC_LAZY_PEER = 1,
    TTI_CU_STREAM_NON_BLOCKING = 1,
    TTI_CU_EVENT_NO_TIMING = 2,
    TTI_CU_EVENT_INTERPROCESS = 4,
    TTI_CU_WAIT_GEQ = 0,
    TTI_CU_WRITE_DEFAULT = 0,
    TTI_CU_FUNCTION_SHARED = 8,
    TTI_CU_FUNCTION_CARVEOUT = 9, /* percent */
    TTI_CU_CAPTURE_RELAXED = 2,
    TTI_CU_CAPTURE_THREAD_LOCAL = 1,
};

/* X(field, function in cuda.h, version suffix of its symbol, parameters). Numbers of enums are
 * unsigned. */
#define TTI_CU_FUNCTIONS(X)                                                                       \
    X(init, cuInit, "", (unsigned))                                                               \
    X(version, cuDriverGetVersion, "", (int *))                                                   \
    X(error_name, cuGetErrorName, "", (unsigned, const char **))                                  \
    X(error_text, cuGetErrorString, "", (unsigned, const char **))                                \
    X(device_count, cuDeviceGetCount, "", (int *))                                                \
    X(device_name, cuDeviceGetName, "", (char *, int, int))                                       \
    X(device_pci, cuDeviceGetPCIBusId, "", (char *, int, int))                                    \
    X(device_attribute, cuDeviceGetAttribute, "", (int *, unsigned, int))                         \
    X(device_memory, cuDeviceTotalMem, "_v2", (size_t *, int))                                    \
    X(device_can_peer, cuDeviceCanAccessPeer, "", (int *, int, int))                              \
    X(device_peer, cuDeviceGetP2PAttribute, "", (int *, unsigned, int, int))                      \
    X(primary_retain, cuDevicePrimaryCtxRetain, "", (tti_cu_context *, int))                      \
    X(primary_release, cuDevicePrimaryCtxRelease, "_v2", (int))                                   \
    X(primary_state, cuDevicePrimaryCtxGetState, "", (int, unsigned *, int *))                    \
    X(context_current, cuCtxGetCurrent, "", (tti_cu_context *))                                   \
    X(context_device, cuCtxGetDevice, "", (int *))                                                \
    X(context_push, cuCtxPushCurrent, "_v2", (tti_cu_context))                                    \
    X(context_pop, cuCtxPopCurrent, "_v2", (tti_cu_context *))                                    \
    X(context_peer, cuCtxEnablePeerAccess, "", (tti_cu_context, unsigned))                        \
    X(memory_alloc, cuMemAlloc, "_v2", (tti_cu_ptr *, size_t))                                    \
    X(memory_free, cuMemFree, "_v2", (tti_cu_ptr))                                                \
    X(managed_alloc, cuMemAllocManaged, "", (tti_cu_ptr *, size_t, unsigned))                     \
    X(host_alloc, cuMemHostAlloc, "", (void **, size_t, unsigned))                                \
    X(host_free, cuMemFreeHost, "", (void *))                                                     \
    X(host_register, cuMemHostRegister, "_v2", (void *, size_t, unsigned))                        \
    X(host_unregister, cuMemHostUnregister, "", (void *))                                         \
    X(pointer, cuPointerGetAttributes, "", (unsigned, unsigned *, void **, tti_cu_ptr))           \
    X(pointer_one, cuPointerGetAttribute, "", (void *, unsigned, tti_cu_ptr))                     \
    X(address_range, cuMemGetAddressRange, "_v2", (tti_cu_ptr *, size_t *, tti_cu_ptr))           \
    X(ipc_close, cuIpcCloseMemHandle, "", (tti_cu_ptr))                                           \
    X(address_reserve, cuMemAddressReserve, "",                                                   \
      (tti_cu_ptr *, size_t, size_t, tti_cu_ptr, unsigned long long))                             \
    X(address_free, cuMemAddressFree, "", (tti_cu_ptr, size_t))                                   \
    X(memory_map, cuMemMap, "", (tti_cu_ptr, size_t, size_t, tti_cu_memory, unsigned long long))  \
    X(memory_unmap, cuMemUnmap, "", (tti_cu_ptr, size_t))                                         \
    X(memory_release, cuMemRelease, "", (tti_cu_memory))                                          \
    X(memory_retain, cuMemRetainAllocationHandle, "", (tti_cu_memory *, void *))                  \
    X(memory_export, cuMemExportToShareableHandle, "",                                            \
      (void *, tti_cu_memory, unsigned, unsigned long long))                                      \
    X(memory_import, cuMemImportFromShareableHandle, "", (tti_cu_memory *, void *, unsigned))     \
    X(memory_range, cuMemGetHandleForAddressRange, "",                                            \
      (void *, tti_cu_ptr, size_t, unsigned, unsigned long long))                                 \
    X(stream_priorities, cuCtxGetStreamPriorityRange, "", (int *, int *))                         \
    X(stream_create, cuStreamCreateWithPriority, "", (tti_cu_stream *, unsigned, int))            \
    X(stream_destroy, cuStreamDestroy, "_v2", (tti_cu_stream))                                    \
    X(stream_query, cuStreamQuery, "", (tti_cu_stream))                                           \
    X(stream_finish, cuStreamSynchronize, "", (tti_cu_stream))                                    \
    X(stream_context, cuStreamGetCtx, "", (tti_cu_stream, tti_cu_context *))                      \
    X(stream_id, cuStreamGetId, "", (tti_cu_stream, unsigned long long *))                        \
    X(stream_write, cuStreamWriteValue32, "_v2", (tti_cu_stream, tti_cu_ptr, uint32_t, unsigned)) \
    X(stream_wait, cuStreamWaitValue32, "_v2", (tti_cu_stream, tti_cu_ptr, uint32_t, unsigned))   \
    X(copy, cuMemcpyAsync, "", (tti_cu_ptr, tti_cu_ptr, size_t, tti_cu_stream))                   \
    X(fill, cuMemsetD8Async, "", (tti_cu_ptr, unsigned char, size_t, tti_cu_stream))              \
    X(host_call, cuLaunchHostFunc, "", (tti_cu_stream, void (*)(void *), void *))                 \
    X(module_load, cuModuleLoadData, "", (tti_cu_module *, const void *))                         \
    X(module_unload, cuModuleUnload, "", (tti_cu_module))                                         \
    X(module_function, cuModuleGetFunction, "", (tti_cu_function *, tti_cu_module, const char *)) \
    X(function_set, cuFuncSetAttribute, "", (tti_cu_function, unsigned, int))                     \
    X(function_resident, cuOccupancyMaxActiveBlocksPerMultiprocessor, "",                         \
      (int *, tti_cu_function, int, size_t))                                                      \
    X(launch, cuLaunchKernel, "",                                                                 \
      (tti_cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,     \
       tti_cu_stream, void **, void **))                                                          \
    X(event_create, cuEventCreate, "", (tti_cu_event *, unsigned))                                \
    X(event_destroy, cuEventDestroy, "_v2", (tti_cu_event))                                       \
    X(event_record, cuEventRecord, "", (tti_cu_event, tti_cu_stream))                             \
    X(event_query, cuEventQuery, "", (tti_cu_event))                                              \
    X(event_hold, cuStreamWaitEvent, "", (tti_cu_stream, tti_cu_event, unsigned))                 \
    X(capture_begin, cuStreamBeginCapture, "_v2", (tti_cu_stream, unsigned))                      \
    X(capture_end, cuStreamEndCapture, "", (tti_cu_stream, tti_cu_graph *))                       \
    X(capture_mode, cuThreadExchangeStreamCaptureMode, "", (unsigned *))                          \
    X(graph_make, cuGraphInstantiateWithFlags, "",                                                \
      (tti_cu_exec *, tti_cu_graph, unsigned long long))                                          \
    X(graph_upload, cuGraphUpload, "", (tti_cu_exec, tti_cu_stream))                              \
    X(graph_free, cuGraphDestroy, "", (tti_cu_graph))                                             \
    X(graph_launch, cuGraphLaunch, "", (tti_cu_exec, tti_cu_stream))                              \
    X(exec_free, cuGraphExecDestroy, "", (tti_cu_exec))

/* The same, where our parameters differ from cuda.h's in name only (handles, UUIDs); and those
 * whose symbols have newer versions that old drivers lack. */
#define TTI_CU_FUNCTIONS_BY_HAND(X)                                                            \
    X(device_uuid, cuDeviceGetUuid, "_v2", (unsigned char(*)[16], int))                        \
    X(ipc_make, cuIpcGetMemHandle, "", (tti_cu_handle *, tti_cu_ptr))                          \
    X(ipc_open, cuIpcOpenMemHandle, "_v2", (tti_cu_ptr *, tti_cu_handle, unsigned))            \
    X(ipc_event_make, cuIpcGetEventHandle, "", (tti_cu_handle *, tti_cu_event))                \
    X(ipc_event_open, cuIpcOpenEventHandle, "", (tti_cu_event *, tti_cu_handle))               \
    X(event_elapsed, cuEventElapsedTime, "", (float *, tti_cu_event, tti_cu_event))            \
    X(capturing, cuStreamGetCaptureInfo, "_v2",                                                \
      (tti_cu_stream, unsigned *, unsigned long long *, void *, void *, void *))               \
    X(memory_create, cuMemCreate, "",                                                          \
      (tti_cu_memory *, size_t, const struct tti_cu_memory_prop *, unsigned long long))        \
    X(memory_prop, cuMemGetAllocationPropertiesFromHandle, "",                                 \
      (struct tti_cu_memory_prop *, tti_cu_memory))                                            \
    X(memory_page, cuMemGetAllocationGranularity, "",                                          \
      (size_t *, const struct tti_cu_memory_prop *, unsigned))                                 \
    X(memory_allow, cuMemSetAccess, "",                                                        \
      (tti_cu_ptr, size_t, const struct tti_cu_access *, size_t))                              \
    X(memory_allowed, cuMemGetAccess, "",                                                      \
      (unsigned long long *, const struct tti_cu_location *, tti_cu_ptr))                      \
    X(pool_allow, cuMemPoolSetAccess, "", (tti_cu_pool, const struct tti_cu_access *, size_t)) \
    X(pool_allowed, cuMemPoolGetAccess, "", (unsigned *, tti_cu_pool, struct tti_cu_location *))

/* Functions that a driver of CUDA 12.0 lacks: NULL there; of multicast objects all or none. */
#define TTI_CU_FUNCTIONS_NEWER(X)                                                 \
    X(function_load, cuFuncLoad, "", (tti_cu_function))                           \
    X(context_id, cuCtxGetId, "", (tti_cu_context, unsigned long long *))         \
    X(multicast_create, cuMulticastCreate, "",                                    \
      (tti_cu_memory *, const struct tti_cu_multicast_prop *))                    \
    X(multicast_page, cuMulticastGetGranularity, "",                              \
      (size_t *, const struct tti_cu_multicast_prop *, unsigned))                 \
    X(multicast_add, cuMulticastAddDevice, "", (tti_cu_memory, int))              \
    X(multicast_bind, cuMulticastBindMem, "",                                     \
      (tti_cu_memory, size_t, tti_cu_memory, size_t, size_t, unsigned long long)) \
    X(multicast_unbind, cuMulticastUnbind, "", (tti_cu_memory, int, size_t, size_t))

#define TTI_CU_FIELD(field, function, suffix, parameters) unsigned(*field) parameters;
struct tti_cuda_driver {
    TTI_CU_FUNCTIONS(TTI_CU_FIELD)
    TTI_CU_FUNCTIONS_BY_HAND(TTI_CU_FIELD)
    TTI_CU_FUNCTIONS_NEWER(TTI_CU_FIELD)
};

/* The driver, loaded and initialised at the first call: from TUTTI_LIBCUDA, by default
 * libcuda.so.1. NULL: there is none, or no device; with TUTTI_OK. */
enum tutti_result tti_cuda_driver_load(const struct tti_cuda_driver **driver);
/* The driver that was loaded, or NULL; does not load it. */
const struct tti_cuda_driver *tti_cuda_driver_now(void);

/* TUTTI_OK, IN_PROGRESS for NOT_READY, or the failure of `what` with the driver's words. */
enum tutti_result tti_cuda_check(unsigned code, const char *what);

/* Of what CUDA driver and kernels are, for people. */
void tti_cuda_software(char text[96]);

/* Machine code of the file cuda/<name>.cu: an image that nvcc made (fatbin); NULL: not built. */
const void *tti_cuda_image(enum tti_gpu_kernel kernel, size_t *bytes);
/* What nvcc compiles kernels for multicast objects (nvls.cu); an older one makes empty ones. */
enum { TTI_CU_SINCE_MULTICAST = 12010 };
/* The CUDA that nvcc is of, as cuDriverGetVersion counts (13.0 is 13000); 0: not built. */
int tti_cuda_toolkit(void);
/* For what compute capabilities, as the build names them ("80;90;100"). */
const char *tti_cuda_architectures(void);

#endif
