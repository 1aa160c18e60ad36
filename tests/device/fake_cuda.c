/* A CUDA driver made of the simulated device, so that the code on top of the driver (device/cuda)
 * runs where there is no GPU: a libcuda.so.1 with the functions of device/cuda/cuda_driver.h and
 * two more that fake_cudart.c takes. TUTTI_LIBCUDA names it. It refuses, and waits for, what CUDA's
 * documentation says that the real one does; what it cannot show is what is not written down.
 *
 * There are two, which differ in what runs when a kernel of the real images is launched: fake_cuda
 * has what the CPU's compiler made of the same source, as the simulated device has
 * (fake_simulated.c); fake_cuda_ptx has the PTX in the images, translated (ptx/ptx_to_c).
 * Read next: fake_stream.c, fake_memory.c. */
#include "tests/device/fake_cuda.h"

#include <pthread.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    DEVICES = 16,
    FUNCTIONS = 64,
    MODULE_MAGIC = 0x4d4f44,
    NOT_INITIALIZED = 3,
    NOT_FOUND = 500,
    OUT_OF_RESOURCES = 701,
    NOT_PERMITTED = 800
};

struct CUctx_st {
    struct tti_gpu *gpu;
    int holders;
    unsigned made; /* how often: another one each time */
};
struct CUfunc_st {
    char name[64];
    struct fake_kernel kernel;
    _Atomic bool loaded;
};
struct CUmod_st {
    int magic, count;
    struct CUfunc_st functions[FUNCTIONS]; /* that were asked for */
};

static struct CUctx_st contexts[DEVICES];
static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static __thread tti_cu_context context_stack[8];
static __thread int context_depth;

unsigned fake_code(enum tutti_result result)
{
    switch (result) {
    case TUTTI_OK:
        return TTI_CU_OK;
    case TUTTI_IN_PROGRESS:
        return TTI_CU_NOT_READY;
    case TUTTI_ERR_ARGUMENT:
        return TTI_CU_INVALID_VALUE;
    case TUTTI_ERR_MEMORY:
        return TTI_CU_OUT_OF_MEMORY;
    case TUTTI_ERR_UNSUPPORTED:
        return TTI_CU_NOT_SUPPORTED;
    case TUTTI_ERR_USAGE:
        return TTI_CU_CAPTURE_FIRST + 1;
    default:
        return FAKE_UNKNOWN;
    }
}

const struct tti_gpu_ops *fake_ops(void)
{
    return tti_gpu_sim();
}

tti_cu_context fake_context(int device)
{
    return &contexts[device];
}

struct tti_gpu *fake_now(void)
{
    return context_depth ? context_stack[context_depth - 1]->gpu : NULL;
}

/* The driver of a process is of no use to its children, unless they execute a program. */
static _Atomic bool begun, forked;
static void fork_child(void)
{
    forked = begun;
}
static void forks_watch(void)
{
    (void)pthread_atfork(NULL, NULL, fork_child);
}
bool fake_forked(void)
{
    return forked;
}

/* TUTTI_FAKE_INIT: it does not start, and gives that error. */
/* TUTTI_FAKE_ENDS=1: at the end of the process the driver is shut down a moment before the process
 * is gone. */
static _Atomic bool ended;

static void end_of_process(void)
{
    const struct timespec moment = {.tv_nsec = 200000000};
    ended = true;
    nanosleep(&moment, NULL);
}

bool fake_ended(void)
{
    return ended;
}

static void ends_later(void)
{
    (void)atexit(end_of_process);
}

DRIVER cuInit(unsigned flags)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT, watch = PTHREAD_ONCE_INIT;
    const char *set = getenv("TUTTI_FAKE_INIT");
    int count;
    if (set)
        return (unsigned)atoi(set);
    if (fake_forked())
        return NOT_INITIALIZED;
    pthread_once(&watch, forks_watch);
    begun = true;
    if (getenv("TUTTI_FAKE_ENDS"))
        pthread_once(&once, ends_later);
    if (flags != 0 || fake_ops()->count(&count) != TUTTI_OK)
        return TTI_CU_INVALID_VALUE;
    return count > 0 ? TTI_CU_OK : TTI_CU_NO_DEVICE;
}
/* TUTTI_FAKE_VERSION: as if the driver were of that CUDA; it does not take images of newer ones. */
static int fake_version(void)
{
    const char *set = getenv("TUTTI_FAKE_VERSION");
    return set ? atoi(set) : tti_cuda_toolkit();
}
DRIVER cuDriverGetVersion(int *version)
{
    *version = fake_version();
    return TTI_CU_OK;
}
DRIVER cuGetErrorName(unsigned error, const char **text)
{
    *text = error == TTI_CU_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
    return TTI_CU_OK;
}
DRIVER cuGetErrorString(unsigned error, const char **text)
{
    (void)error;
    *text = tti_error_text();
    return TTI_CU_OK;
}

/* ---- Devices and contexts ---------------------------------------------------------------------
 */

DRIVER cuDeviceGetCount(int *count)
{
    if (fake_forked())
        return NOT_INITIALIZED;
    return fake_code(fake_ops()->count(count));
}
DRIVER cuDeviceGet(int *device, int number)
{
    int count = 0;
    const unsigned result = cuDeviceGetCount(&count);
    *device = number;
    return result == TTI_CU_OK && (number < 0 || number >= count) ? TTI_CU_INVALID_VALUE : result;
}
DRIVER cuDeviceGetName(char *name, int bytes, int device)
{
    strncpy(name, "Fake GPU", (size_t)bytes);
    return device < DEVICES ? TTI_CU_OK : TTI_CU_INVALID_VALUE;
}
DRIVER cuDeviceGetPCIBusId(char *name, int bytes, int device)
{
    snprintf(name, (size_t)bytes, "0000:%02X:00.0", 0x3b + (unsigned)device);
    return device < DEVICES ? TTI_CU_OK : TTI_CU_INVALID_VALUE;
}
DRIVER cuDeviceGetUuid_v2(unsigned char (*uuid)[16], int device)
{
    memset(uuid, device, 16);
    return TTI_CU_OK;
}
DRIVER cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    *bytes = (size_t)1 << 30;
    return TTI_CU_OK;
}
/* Not for us, but for programs that are tested on us (fake_cudart.c): as if all were left. */
DRIVER cuMemGetInfo_v2(size_t *left, size_t *all)
{
    *left = *all = (size_t)1 << 30;
    return fake_now() ? TTI_CU_OK : TTI_CU_NO_CONTEXT;
}
DRIVER cuDeviceGetAttribute(int *value, unsigned attribute, int device)
{
    (void)device;
    switch (attribute) {
    case TTI_CU_DEVICE_SMS:
        *value = 16;
        return TTI_CU_OK;
    case TTI_CU_DEVICE_THREADS:
        *value = 2048;
        return TTI_CU_OK;
    case TTI_CU_DEVICE_MAJOR:
        *value = 9;
        return TTI_CU_OK;
    case TTI_CU_DEVICE_VIRTUAL:
    case TTI_CU_DEVICE_VIRTUAL_FD:
    case TTI_CU_DEVICE_MULTICAST:
        *value = 1;
        return TTI_CU_OK;
    case TTI_CU_DEVICE_REGISTERED:
        *value = getenv("TUTTI_FAKE_NO_REGISTERED") == NULL;
        return TTI_CU_OK;
    case TTI_CU_DEVICE_DMABUF:
        *value = getenv("TUTTI_FAKE_NO_DMABUF") == NULL;
        return TTI_CU_OK;
    default:
        *value = 0;
        return attribute < 200 ? TTI_CU_OK : TTI_CU_INVALID_VALUE;
    }
}
DRIVER cuDeviceCanAccessPeer(int *yes, int device, int peer)
{
    *yes = device != peer;
    return TTI_CU_OK;
}
DRIVER cuDeviceGetP2PAttribute(int *value, unsigned attribute, int from, int to)
{
    *value = attribute == TTI_CU_PEER_ATOMICS;
    return from != to ? TTI_CU_OK : TTI_CU_INVALID_VALUE;
}
DRIVER cuDevicePrimaryCtxRetain(tti_cu_context *context, int device)
{
    unsigned result = TTI_CU_OK;
    pthread_mutex_lock(&context_lock);
    if (contexts[device].holders == 0)
        contexts[device].made++;
    if (contexts[device].holders == 0)
        result = fake_code(fake_ops()->open(device, &contexts[device].gpu));
    if (result == TTI_CU_OK) {
        contexts[device].holders++;
        *context = &contexts[device];
    }
    pthread_mutex_unlock(&context_lock);
    return result;
}
DRIVER cuDevicePrimaryCtxRelease_v2(int device)
{
    pthread_mutex_lock(&context_lock);
    if (--contexts[device].holders == 0)
        fake_ops()->close(contexts[device].gpu);
    pthread_mutex_unlock(&context_lock);
    return TTI_CU_OK;
}
DRIVER cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    pthread_mutex_lock(&context_lock);
    *flags = 0;
    *active = contexts[device].holders > 0;
    pthread_mutex_unlock(&context_lock);
    return TTI_CU_OK;
}
DRIVER cuCtxGetCurrent(tti_cu_context *context)
{
    *context = context_depth ? context_stack[context_depth - 1] : NULL;
    return fake_forked() ? (unsigned)NOT_INITIALIZED : TTI_CU_OK;
}
DRIVER cuCtxGetDevice(int *device)
{
    if (!fake_now())
        return TTI_CU_NO_CONTEXT;
    *device = fake_now()->device;
    return TTI_CU_OK;
}
DRIVER cuCtxPushCurrent_v2(tti_cu_context context)
{
    if (fake_in_call()) /* cuLaunchHostFunc: "must not make any CUDA API calls" */
        return NOT_PERMITTED;
    if (context_depth == 8 || context->holders == 0)
        return FAKE_UNKNOWN;
    context_stack[context_depth++] = context;
    return TTI_CU_OK;
}
DRIVER cuCtxGetId(tti_cu_context context, unsigned long long *id)
{
    pthread_mutex_lock(&context_lock);
    *id =
        (unsigned long long)context->made * DEVICES + (unsigned long long)(context - contexts) + 1;
    pthread_mutex_unlock(&context_lock);
    return TTI_CU_OK;
}
DRIVER cuCtxPopCurrent_v2(tti_cu_context *context)
{
    if (context_depth == 0)
        return FAKE_UNKNOWN;
    *context = context_stack[--context_depth];
    return TTI_CU_OK;
}
DRIVER cuCtxSetCurrent(tti_cu_context context)
{
    if (context_depth > 0)
        context_depth--;
    return context ? cuCtxPushCurrent_v2(context) : TTI_CU_OK;
}
DRIVER cuCtxEnablePeerAccess(tti_cu_context peer, unsigned flags)
{
    return fake_now() && flags == 0 && peer->gpu != fake_now() ? TTI_CU_PEER_ALREADY
                                                               : TTI_CU_INVALID_VALUE;
}

/* ---- Kernels ----------------------------------------------------------------------------------
 */

DRIVER cuModuleLoadData(tti_cu_module *module, const void *image)
{
    const uint32_t magic = 0xba55ed50; /* of a fatbin */
    if (fake_refused())
        return TTI_CU_CAPTURE_FIRST;
    if (!fake_now() || memcmp(image, &magic, sizeof magic) != 0)
        return TTI_CU_BAD_IMAGE;
    if (fake_version() < tti_cuda_toolkit())
        return TTI_CU_NEWER_PTX;
    /* Not written down as harmless; nor are loads of a function, which are said to wait. */
    const unsigned result = fake_drain("loading a module");
    if (result != TTI_CU_OK)
        return result;
    *module = calloc(1, sizeof **module);
    (*module)->magic = MODULE_MAGIC;
    return TTI_CU_OK;
}
DRIVER cuModuleUnload(tti_cu_module module)
{
    if (module->magic != MODULE_MAGIC)
        return TTI_CU_INVALID_HANDLE;
    const unsigned result = fake_drain("unloading a module");
    free(module);
    return result;
}
/* Lazy loading, which is the default: "might require context synchronization". */
DRIVER cuFuncLoad(tti_cu_function function)
{
    if (function->loaded)
        return TTI_CU_OK;
    const unsigned result = fake_drain("loading a kernel");
    function->loaded = result == TTI_CU_OK;
    return result;
}
/* The same name has the same handle. */
DRIVER cuModuleGetFunction(tti_cu_function *function, tti_cu_module module, const char *name)
{
    if (module->magic != MODULE_MAGIC)
        return TTI_CU_INVALID_HANDLE;
    unsigned result = NOT_FOUND;
    pthread_mutex_lock(&context_lock);
    struct CUfunc_st *f = module->functions, *end = f + module->count;
    while (f < end && strcmp(f->name, name) != 0)
        f++;
    if (f < end || (module->count < FUNCTIONS && strlen(name) < sizeof f->name &&
                    fake_kernel_find(name, &f->kernel))) {
        strcpy(f->name, name);
        module->count += f == end;
        *function = f;
        result = TTI_CU_OK;
    }
    pthread_mutex_unlock(&context_lock);
    return result;
}
DRIVER cuFuncSetAttribute(tti_cu_function function, unsigned attribute, int value)
{
    (void)function;
    return (attribute == TTI_CU_FUNCTION_SHARED && value > 0) ||
                   (attribute == TTI_CU_FUNCTION_CARVEOUT && value >= -1 && value <= 100)
               ? TTI_CU_OK
               : TTI_CU_INVALID_VALUE;
}
/* On a multiprocessor as large as an H100's (registers, which warps take by 256; shared memory;
 * threads), but no more than the two that the simulated device holds. */
static int kernel_blocks(const struct fake_kernel *kernel, unsigned threads, size_t shared)
{
    enum { REGISTERS = 64 << 10, SHARED = 227 << 10, SHARED_EACH = 1 << 10 };
    const unsigned warps = (threads + 31) / 32;
    const unsigned warp = (kernel->registers * 32 + 255) / 256 * 256;
    const size_t bytes = kernel->shared_bytes + shared + SHARED_EACH;
    size_t blocks = 2; /* of 1024 threads at most */
    if (warp > 0 && blocks > REGISTERS / (warp * warps))
        blocks = REGISTERS / (warp * warps);
    return (int)(blocks < SHARED / bytes ? blocks : SHARED / bytes);
}
DRIVER cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, tti_cu_function function,
                                                   int threads, size_t shared)
{
    if (threads <= 0)
        return TTI_CU_INVALID_VALUE;
    *blocks = kernel_blocks(&function->kernel, (unsigned)threads, shared);
    return TTI_CU_OK;
}

/* TUTTI_FAKE_IDLE: kernels whose names begin so do nothing. */
static bool fake_idle(tti_cu_function function)
{
    const char *idle = getenv("TUTTI_FAKE_IDLE");
    return idle && strncmp(function->name, idle, strlen(idle)) == 0;
}
DRIVER cuLaunchKernel(tti_cu_function function, unsigned x, unsigned y, unsigned z,
                      unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared,
                      tti_cu_stream stream, void **parameters, void **extra)
{
    const struct fake_kernel *kernel = &function->kernel;
    if (y != 1 || z != 1 || threads_y != 1 || threads_z != 1 || extra ||
        threads_x > kernel->most_threads)
        return TTI_CU_INVALID_VALUE;
    if (kernel_blocks(kernel, threads_x, shared) == 0)
        return OUT_OF_RESOURCES;
    const struct tti_gpu_launch launch = {.kernel = kernel->number,
                                          .type = kernel->type,
                                          .own = kernel->own,
                                          .blocks = x,
                                          .threads = threads_x,
                                          .shared_bytes = shared,
                                          .args = parameters[0],
                                          .args_bytes = kernel->args_bytes};
    unsigned result = cuFuncLoad(function);
    if (result != TTI_CU_OK || fake_idle(function))
        return result;
    QUEUED(result, stream, fake_ops()->launch(fake_now(), &launch, stream));
    const char *blocking = getenv("CUDA_LAUNCH_BLOCKING");
    return result == TTI_CU_OK && blocking && strcmp(blocking, "1") == 0
               ? fake_finish(stream, "a launch (CUDA_LAUNCH_BLOCKING)")
               : result;
}
