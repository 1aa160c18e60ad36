/* Kernels on the CUDA driver: modules are loaded when a kernel of theirs is first asked for, once
 * for all who have the device open, and stay until the last of them closes it. */
#include "device/cuda/cuda_state.h"

#include "base/memory.h"
#include "base/process_lock.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { SHARED_ASK_FROM = 48 << 10 }; /* more must be allowed for each function */

/* ---- what is loaded ---- */

static struct tti_cuda_code *codes;

/* A child of fork has none of the parent's contexts. */
static void codes_forget(void)
{
    codes = NULL;
}

static struct tti_process_lock codes_lock = TTI_PROCESS_LOCK(codes_forget);

enum tutti_result tti_cuda_code_take(struct tti_cuda_gpu *gpu)
{
    tti_process_lock(&codes_lock);
    struct tti_cuda_code *code = codes;
    while (code && (code->context != gpu->context || code->id != gpu->base.context))
        code = code->next;
    if (!code && (code = tti_calloc(1, sizeof *code))) {
        code->context = gpu->context;
        code->id = gpu->base.context;
        pthread_mutex_init(&code->loading, NULL);
        code->next = codes;
        codes = code;
    }
    if (code)
        code->users++;
    gpu->code = code;
    tti_process_unlock(&codes_lock);
    return code ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static void code_unload(const struct tti_cuda_driver *cu, struct tti_cuda_code *code)
{
    for (int i = 0; i < code->own_count; i++) {
        bool first = true;
        for (int k = 0; k < i; k++)
            first = first && code->own[k].module != code->own[i].module;
        if (first)
            (void)cu->module_unload(code->own[i].module);
    }
    for (int i = 0; i < TTI_KERNEL_COUNT; i++)
        if (code->modules[i])
            (void)cu->module_unload(code->modules[i]);
}

void tti_cuda_code_leave(struct tti_cuda_gpu *gpu, bool entered)
{
    struct tti_cuda_code *code = gpu->code, **link = &codes;
    if (!code)
        return;
    tti_process_lock(&codes_lock);
    const bool last = --code->users == 0;
    while (last && *link != code)
        link = &(*link)->next;
    if (last)
        *link = code->next;
    tti_process_unlock(&codes_lock);
    if (!last)
        return;
    if (entered) /* else they went with the context */
        code_unload(gpu->cu, code);
    pthread_mutex_destroy(&code->loading);
    free(code);
}

/* ---- the library's kernels, and the program's ---- */

/* Kernels of one image share a module: that of the first of them. */
static tti_cu_module *kernel_module(const struct tti_cuda_gpu *gpu, enum tti_gpu_kernel kernel)
{
    size_t bytes;
    int first = 0;
    while (tti_cuda_image((enum tti_gpu_kernel)first, &bytes) != tti_cuda_image(kernel, &bytes))
        first++;
    return &gpu->code->modules[first];
}

/* An image that the driver does not take: it is older than what made it, or the device is. */
static enum tutti_result kernel_image(struct tti_cuda_gpu *gpu, tti_cu_module *module,
                                      const void *image, const char *whose)
{
    const unsigned code = gpu->cu->module_load(module, image);
    const struct tti_gpu_properties *p = &gpu->base.properties;
    char software[96];
    int driver = 0;
    if (code != TTI_CU_BAD_IMAGE && code != TTI_CU_NO_BINARY && code != TTI_CU_BAD_PTX &&
        code != TTI_CU_NEWER_PTX)
        return tti_cuda_check(code, whose);
    const enum tutti_result result = tti_cuda_check(code, whose);
    tti_cuda_software(software);
    if (gpu->cu->version(&driver) == TTI_CU_OK && driver < tti_cuda_toolkit())
        return TTI_CONTEXT(result,
                           "the driver is older than the kernels (%s): install the driver of that "
                           "CUDA (13 needs 580 or newer), or build with an older toolkit",
                           software);
    return TTI_CONTEXT(result,
                       "device %d (%s) has compute capability %d.%d; kernels were built for %s and "
                       "newer (TUTTI_CUDA_ARCHITECTURES), %s",
                       gpu->base.device, p->name, p->compute_major, p->compute_minor,
                       tti_cuda_architectures(), software);
}

/* Have it on the device. The driver puts that off until the first launch, and may wait for the
 * device then, on which a kernel may wait for this one. One that cannot be told to (before CUDA
 * 12.4) does it, as far as is known, when someone wants to know something of the function. */
static enum tutti_result function_load(const struct tti_cuda_gpu *gpu, tti_cu_function function,
                                       const char *symbol)
{
    int blocks = 0;
    return tti_cuda_check(gpu->cu->function_load
                              ? gpu->cu->function_load(function)
                              : gpu->cu->function_resident(&blocks, function, 32, 0),
                          symbol);
}

/* A multiprocessor divides its memory anew, into cache and what blocks share, only when nothing
 * runs on it: a kernel that wants another division waits there for one that may wait for it. All of
 * ours want the same. */
static void kernel_divide(const struct tti_cuda_gpu *gpu, tti_cu_function function)
{
    enum { ALL_SHARED = 100 };
    (void)gpu->cu->function_set(function, TTI_CU_FUNCTION_CARVEOUT, ALL_SHARED); /* a wish */
}

/* Under the lock, in the device's context. */
static enum tutti_result kernel_load(struct tti_cuda_gpu *gpu, enum tti_gpu_kernel kernel,
                                     const char *symbol, tti_cu_function *function)
{
    const struct tti_cuda_driver *cu = gpu->cu;
    enum tutti_result result = TUTTI_OK;
    tti_cu_module *module = kernel_module(gpu, kernel);
    if (!*module) {
        size_t bytes;
        result = kernel_image(gpu, module, tti_cuda_image(kernel, &bytes),
                              "cuModuleLoadData of Tutti's kernels");
    }
    if (result == TUTTI_OK)
        result = tti_cuda_check(cu->module_function(function, *module, symbol), symbol);
    if (result == TUTTI_OK)
        kernel_divide(gpu, *function);
    return result == TUTTI_OK ? function_load(gpu, *function, symbol) : result;
}

static enum tutti_result kernel_find(struct tti_cuda_gpu *gpu, enum tti_gpu_kernel kernel,
                                     enum tutti_type type, tti_cu_function *function)
{
    const enum tutti_type index = tti_gpu_kernel_typed(kernel) ? type : TUTTI_INT8;
    if ((unsigned)kernel >= TTI_KERNEL_COUNT || (unsigned)index >= TUTTI_TYPE_COUNT)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "there is no GPU kernel %d for type %d", (int)kernel,
                        (int)type);
    _Atomic(tti_cu_function) *known = &gpu->code->functions[kernel][index];
    *function = atomic_load_explicit(known, memory_order_acquire);
    if (*function)
        return TUTTI_OK;
    size_t bytes;
    if (!tti_cuda_image(kernel, &bytes))
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "this build of Tutti has no GPU kernels: there was no nvcc; build it with "
                        "the CUDA toolkit (TUTTI_NVCC names nvcc to CMake)");
    char symbol[64];
    tti_gpu_kernel_symbol(kernel, index, symbol);
    struct tti_cuda_visit visit;
    TTI_TRY(tti_cuda_enter(gpu, &visit));
    pthread_mutex_lock(&gpu->code->loading);
    const enum tutti_result result = kernel_load(gpu, kernel, symbol, function);
    if (result == TUTTI_OK)
        atomic_store_explicit(known, *function, memory_order_release);
    pthread_mutex_unlock(&gpu->code->loading);
    tti_cuda_leave(gpu, &visit);
    return result;
}

/* Under the lock: load it, if it is the first of its image. */
static enum tutti_result own_load(struct tti_cuda_gpu *gpu, struct tti_cuda_own *place)
{
    const struct tti_cuda_code *code = gpu->code;
    for (int i = 0; i < code->own_count; i++)
        if (code->own[i].own->image == place->own->image)
            place->module = code->own[i].module;
    if (!place->module)
        TTI_TRY(kernel_image(gpu, &place->module, place->own->image,
                             "cuModuleLoadData of the program's kernels"));
    const char *symbol = place->own->symbol;
    TTI_TRY(
        tti_cuda_check(gpu->cu->module_function(&place->function, place->module, symbol), symbol));
    return function_load(gpu, place->function, symbol);
}

/* Without the lock, which a thread holds that loads and waits for the device, and the device
 * perhaps for this launch. */
static bool own_known(const struct tti_cuda_code *code, const struct tti_gpu_own *own,
                      tti_cu_function *function)
{
    const int count = atomic_load_explicit(&code->own_count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        if (code->own[i].own == own) {
            *function = code->own[i].function;
            return true;
        }
    return false;
}

/* Under the lock. */
static enum tutti_result own_look(struct tti_cuda_gpu *gpu, const struct tti_gpu_own *own,
                                  tti_cu_function *function)
{
    struct tti_cuda_code *code = gpu->code;
    if (own_known(code, own, function))
        return TUTTI_OK;
    struct tti_cuda_own *place = &code->own[code->own_count];
    if (!own->image || code->own_count == TTI_CUDA_OWN)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "kernel %s: %s", own->symbol,
                        own->image ? "a program has at most 128 of its own"
                                   : "this build had no nvcc; build it with the CUDA toolkit");
    *place = (struct tti_cuda_own){.own = own};
    TTI_TRY(own_load(gpu, place));
    atomic_fetch_add_explicit(&code->own_count, 1, memory_order_release);
    *function = place->function;
    return TUTTI_OK;
}

static enum tutti_result own_find(struct tti_cuda_gpu *gpu, const struct tti_gpu_own *own,
                                  tti_cu_function *function)
{
    struct tti_cuda_visit visit;
    if (own_known(gpu->code, own, function))
        return TUTTI_OK;
    TTI_TRY(tti_cuda_enter(gpu, &visit));
    pthread_mutex_lock(&gpu->code->loading);
    const enum tutti_result result = own_look(gpu, own, function);
    pthread_mutex_unlock(&gpu->code->loading);
    tti_cuda_leave(gpu, &visit);
    return result;
}

static enum tutti_result launch_find(struct tti_cuda_gpu *gpu, const struct tti_gpu_launch *launch,
                                     tti_cu_function *function)
{
    return launch->own ? own_find(gpu, launch->own, function)
                       : kernel_find(gpu, launch->kernel, launch->type, function);
}

enum tutti_result tti_cuda_prepare(struct tti_gpu *base, enum tti_gpu_kernel kernel,
                                   enum tutti_type type)
{
    tti_cu_function function = NULL;
    return kernel_find(tti_cuda_of(base), kernel, type, &function);
}

static enum tutti_result kernel_shared(struct tti_cuda_gpu *gpu, tti_cu_function function,
                                       size_t bytes)
{
    if (bytes <= SHARED_ASK_FROM)
        return TUTTI_OK;
    return tti_cuda_check(gpu->cu->function_set(function, TTI_CU_FUNCTION_SHARED, (int)bytes),
                          "cuFuncSetAttribute (dynamic shared memory)");
}

enum tutti_result tti_cuda_launch(struct tti_gpu *base, const struct tti_gpu_launch *launch,
                                  tutti_stream stream)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    tti_cu_function function = NULL;
    TTI_TRY(launch_find(gpu, launch, &function));
    if (launch->blocks == 0 || launch->threads == 0 || launch->threads % 32 ||
        launch->threads > 1024)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "kernel %s: cannot launch %u blocks of %u threads",
                        tti_gpu_launch_name(launch), launch->blocks, launch->threads);
    TTI_TRY(kernel_shared(gpu, function, launch->shared_bytes));
    void *parameters[] = {(void *)(uintptr_t)launch->args};
    TTI_CUDA_QUEUE(gpu, tti_gpu_launch_name(launch),
                   gpu->cu->launch(function, launch->blocks, 1, 1, launch->threads, 1, 1,
                                   (unsigned)launch->shared_bytes, (tti_cu_stream)stream,
                                   parameters, NULL));
}

enum tutti_result tti_cuda_resident(struct tti_gpu *base, const struct tti_gpu_launch *launch,
                                    int *blocks)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    tti_cu_function function = NULL;
    TTI_TRY(launch_find(gpu, launch, &function));
    TTI_TRY(kernel_shared(gpu, function, launch->shared_bytes));
    int per_sm = 0;
    enum tutti_result result;
    TTI_CUDA_IN(
        gpu, result, "cuOccupancyMaxActiveBlocksPerMultiprocessor",
        gpu->cu->function_resident(&per_sm, function, (int)launch->threads, launch->shared_bytes));
    if (result == TUTTI_OK)
        *blocks = per_sm * base->properties.sms;
    return result;
}
