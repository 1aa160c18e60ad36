/* CUDA's runtime made of the driver that TUTTI_LIBCUDA names, which is the one made of the
 * simulated device (fake_cuda.c): a libcudart.so.13 with what programs that only move memory,
 * record streams and call NCCL need, so that they run where there is no GPU, as they were compiled.
 * Kernels of theirs it cannot run: cudaLaunchKernel is not here, and such a program does not load.
 * Next: tests/nccl/nccl_runtime.c. */
#include <cuda_runtime_api.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    X(stream_create, cuStreamCreate, (cudaStream_t *, unsigned))                                \
    X(stream_destroy, cuStreamDestroy_v2, (handle))                                             \
    X(stream_query, cuStreamQuery, (handle))                                                    \
    X(stream_finish, cuStreamSynchronize, (handle))                                             \
    X(event_create, cuEventCreate, (cudaEvent_t *, unsigned))                                   \
    X(event_destroy, cuEventDestroy_v2, (handle))                                               \
    X(event_record, cuEventRecord, (handle, handle))                                            \
    X(event_elapsed, cuEventElapsedTime, (float *, handle, handle))                             \
    X(capture_begin, cuStreamBeginCapture_v2, (handle, unsigned))                               \
    X(capture_end, cuStreamEndCapture, (handle, cudaGraph_t *))                                 \
    X(graph_make, cuGraphInstantiateWithFlags, (cudaGraphExec_t *, handle, unsigned long long)) \
    X(graph_free, cuGraphDestroy, (handle))                                                     \
    X(graph_launch, cuGraphLaunch, (handle, handle))                                            \
    X(exec_free, cuGraphExecDestroy, (handle))
#define FIELD(name, symbol, parameters) unsigned(*name) parameters;
static struct driver {
    DRIVER(FIELD)
} cu_loaded;

static void refuse(const char *what)
{
    fprintf(stderr, "the fake CUDA runtime: %s (TUTTI_LIBCUDA names the fake driver)\n", what);
    exit(1);
}

static void load(void)
{
    const char *path = getenv("TUTTI_LIBCUDA");
    void *driver = path ? dlopen(path, RTLD_NOW) : NULL;
    if (!driver)
        refuse(path ? dlerror() : "there is no driver");
#define LOAD(name, symbol, parameters)                         \
    {                                                          \
        void *found = dlsym(driver, #symbol);                  \
        if (!found)                                            \
            refuse("the driver lacks " #symbol);               \
        memcpy((void *)&cu_loaded.name, &found, sizeof found); \
    }
    DRIVER(LOAD)
    if (cu_loaded.init(0) != 0)
        refuse("there is no device");
}

/* At the first call, as NVIDIA's. */
static const struct driver *cu(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return &cu_loaded;
}

static __thread cudaError_t last_error;
static __thread int device_now;

static cudaError_t told(unsigned code)
{
    if (code != 0 && code != cudaErrorNotReady)
        last_error = (cudaError_t)code;
    return (cudaError_t)code;
}

/* A thread that named no device uses device 0, from its first call on. */
static cudaError_t use(int device)
{
    handle context = NULL, before = NULL;
    const unsigned code = cu()->retain(&context, device); /* for ever, as the runtime does */
    if (code != 0)
        return told(code);
    cu()->current(&before);
    if (before)
        cu()->pop(&before);
    device_now = device;
    return told(cu()->push(context));
}

static void begin(void)
{
    handle context = NULL;
    cu()->current(&context);
    if (!context)
        (void)use(device_now);
}

#define DO(call) (begin(), told(call))

static address at(const void *memory)
{
    return (address)(uintptr_t)memory;
}

/* ---- Devices ----------------------------------------------------------------------------------
 */

cudaError_t cudaGetDeviceCount(int *count)
{
    return told(cu()->device_count(count));
}
/* TUTTI_FAKE_LAZY: the context comes with the first call that needs one, as before CUDA 12. */
static cudaError_t use_later(int device)
{
    handle before = NULL;
    cu()->current(&before);
    if (before)
        cu()->pop(&before);
    device_now = device;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device)
{
    int count = 0;
    cu()->device_count(&count);
    if (device < 0 || device >= count)
        return told(cudaErrorInvalidDevice);
    return getenv("TUTTI_FAKE_LAZY") ? use_later(device) : use(device);
}
cudaError_t cudaGetDevice(int *device)
{
    *device = device_now;
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    memset(prop, 0, sizeof *prop);
    prop->major = 9;
    prop->multiProcessorCount = 16;
    const unsigned code = cu()->device_total(&prop->totalGlobalMem, device);
    return told(code ? code : cu()->device_name(prop->name, sizeof prop->name, device));
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    return told(cu()->device_attribute(value, attribute, device));
}
cudaError_t cudaDeviceSynchronize(void)
{
    return DO(cu()->finish());
}
cudaError_t cudaDeviceReset(void)
{
    return DO(cu()->finish());
}
const char *cudaGetErrorString(cudaError_t error)
{
    static __thread char text[64];
    snprintf(text, sizeof text, "error %d of the fake CUDA", error);
    return error == cudaSuccess ? "no error" : text;
}
cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

/* Code for devices that the program brings: kept for nobody, since it cannot run. */
void **__cudaRegisterFatBinary(const void *binary);
void **__cudaRegisterFatBinary(const void *binary)
{
    static void *none[1];
    (void)binary;
    return none;
}
void __cudaRegisterFatBinaryEnd(void **binary);
void __cudaRegisterFatBinaryEnd(void **binary)
{
    (void)binary;
}
void __cudaUnregisterFatBinary(void **binary);
void __cudaUnregisterFatBinary(void **binary)
{
    (void)binary;
}

/* ---- Memory -----------------------------------------------------------------------------------
 */

cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
    return DO(cu()->memory_left(left, all));
}
cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    address made = 0;
    const cudaError_t error = DO(cu()->alloc(&made, bytes));
    *memory = (void *)(uintptr_t)made;
    return error;
}
cudaError_t cudaFree(void *memory)
{
    return memory ? DO(cu()->free(at(memory))) : cudaSuccess;
}
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    return DO(cu()->alloc_host(memory, bytes, flags));
}
cudaError_t cudaFreeHost(void *memory)
{
    return memory ? DO(cu()->free_host(memory)) : cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    return DO(cu()->copy(at(dst), at(src), bytes, stream));
}
cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    const cudaError_t error = cudaMemcpyAsync(dst, src, bytes, kind, NULL);
    return error ? error : told(cu()->stream_finish(NULL));
}
cudaError_t cudaMemset(void *dst, int byte, size_t bytes)
{
    const cudaError_t error = DO(cu()->fill(at(dst), (unsigned char)byte, bytes, NULL));
    return error ? error : told(cu()->stream_finish(NULL));
}

/* ---- Streams, events, graphs ------------------------------------------------------------------
 */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    return DO(cu()->stream_create(stream, flags));
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
cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return DO(cu()->event_create(event, 0));
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
