/* CUDA's runtime made of the driver that TUTTI_LIBCUDA names, which is the one made of the
 * simulated device (fake_cuda.c): a libcudart.so.13 with what programs that only move memory,
 * record streams and call NCCL need, so that they run where there is no GPU, as they were compiled.
 * Kernels of theirs it cannot run: a launch is refused by name (fake_cudart_kernels.c), as is all
 * that has nothing behind it here (fake_cudart_refused.c). That is enough for PyTorch to load and
 * to use its devices, streams, events and memory.
 * Next: tests/nccl/nccl_runtime.c. */
#include "tests/device/fake_cudart.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct driver cu_loaded;
static void *cu_library;

static void give_up(const char *what)
{
    fprintf(stderr, "the fake CUDA runtime: %s (TUTTI_LIBCUDA names the fake driver)\n", what);
    exit(1);
}

static void load(void)
{
    const char *path = getenv("TUTTI_LIBCUDA");
    cu_library = path ? dlopen(path, RTLD_NOW) : NULL;
    if (!cu_library)
        give_up(path ? dlerror() : "there is no driver");
#define LOAD(name, symbol, parameters)                         \
    {                                                          \
        void *found = dlsym(cu_library, #symbol);              \
        if (!found)                                            \
            give_up("the driver lacks " #symbol);              \
        memcpy((void *)&cu_loaded.name, &found, sizeof found); \
    }
    DRIVER(LOAD)
    if (cu_loaded.init(0) != 0)
        give_up("there is no device");
}

/* At the first call, as NVIDIA's. */
const struct driver *cu(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    return &cu_loaded;
}

static __thread cudaError_t last_error;
static __thread const char *last_refused;
static __thread int device_now;

cudaError_t told(unsigned code)
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

void begin(void)
{
    handle context = NULL;
    cu()->current(&context);
    if (!context)
        (void)use(device_now);
}

cudaError_t refused(const char *what)
{
    last_refused = what;
    return told(cudaErrorNotSupported);
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
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = prop->maxThreadsPerMultiProcessor = 1024;
    prop->sharedMemPerBlock = prop->sharedMemPerMultiprocessor = 48 << 10;
    (void)cu()->uuid(&prop->uuid, device);
    const unsigned code = cu()->device_total(&prop->totalGlobalMem, device);
    return told(code ? code : cu()->device_name(prop->name, sizeof prop->name, device));
}
cudaError_t cudaDriverGetVersion(int *version)
{
    return told(cu()->version(version));
}
cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    return told(cu()->peer_can(can, device, peer));
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    handle context = NULL;
    const unsigned code = cu()->retain(&context, peer);
    return code ? told(code) : DO(cu()->peer_enable(context, flags));
}
cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    return told(cu()->pci(text, bytes, device));
}
/* A function of the driver's by its name without a version. */
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status)
{
    char name[128];
    (void)version;
    (void)flags;
    (void)cu();
    *function = dlsym(cu_library, symbol);
    for (int v = 3; v >= 2 && !*function; v--) {
        snprintf(name, sizeof name, "%s_v%d", symbol, v);
        *function = dlsym(cu_library, name);
    }
    if (status)
        *status = *function ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return cudaSuccess;
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
    static __thread char text[256];
    if (error == cudaErrorNotSupported && last_refused)
        snprintf(text, sizeof text, "the fake CUDA runtime has nothing behind %s", last_refused);
    else
        snprintf(text, sizeof text, "error %d of the fake CUDA", error);
    return error == cudaSuccess ? "no error" : text;
}
const char *cudaGetErrorName(cudaError_t error)
{
    return error == cudaSuccess ? "cudaSuccess" : "cudaError";
}
cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}
cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
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
cudaError_t cudaMemsetAsync(void *dst, int byte, size_t bytes, cudaStream_t stream)
{
    return DO(cu()->fill(at(dst), (unsigned char)byte, bytes, stream));
}
cudaError_t cudaMemcpyPeerAsync(void *dst, int dst_device, const void *src, int src_device,
                                size_t bytes, cudaStream_t stream)
{
    (void)dst_device;
    (void)src_device;
    return DO(cu()->copy(at(dst), at(src), bytes, stream));
}
cudaError_t cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    for (size_t row = 0; row < height && error == cudaSuccess; row++)
        error = cudaMemcpyAsync((char *)dst + row * dst_pitch, (const char *)src + row * src_pitch,
                                width, kind, stream);
    return error;
}
cudaError_t cudaMallocHost(void **memory, size_t bytes)
{
    return DO(cu()->alloc_host(memory, bytes, 0));
}
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    return DO(cu()->register_host(memory, bytes, flags));
}
cudaError_t cudaHostUnregister(void *memory)
{
    return DO(cu()->unregister_host(memory));
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *found, const void *pointer)
{
    enum { KIND = 2, DEVICE = 9 }; /* CU_POINTER_ATTRIBUTE_... */
    unsigned kind = 0, wanted[] = {KIND, DEVICE};
    int device = 0;
    void *values[] = {&kind, &device};
    memset(found, 0, sizeof *found);
    found->device = cudaInvalidDeviceId;
    found->hostPointer = (void *)(uintptr_t)pointer;
    const unsigned code = (begin(), cu()->of_pointers(2, wanted, values, at(pointer)));
    if (code != 0 || kind == 0)
        return cudaSuccess; /* memory that CUDA does not know */
    found->type = (enum cudaMemoryType)kind;
    found->device = device;
    found->devicePointer = found->hostPointer;
    if (found->type == cudaMemoryTypeDevice)
        found->hostPointer = NULL;
    return cudaSuccess;
}
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *name, void *memory)
{
    return DO(cu()->ipc_memory(name, at(memory)));
}
cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t name, unsigned flags)
{
    address opened = 0;
    const cudaError_t error = DO(cu()->ipc_open(&opened, name, flags));
    *memory = (void *)(uintptr_t)opened;
    return error;
}
cudaError_t cudaIpcCloseMemHandle(void *memory)
{
    return DO(cu()->ipc_close(at(memory)));
}
