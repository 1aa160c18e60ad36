/* Kernels that a program brings: nothing here runs them, and a launch is refused with its name
 * (fake_cudart.c). */
#include "tests/device/fake_cudart.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static struct kernel {
    const void *function; /* of the host's, in its place */
    const char *name;
} * kernels;
static size_t kernel_count, kernel_room;
static pthread_mutex_t kernel_lock = PTHREAD_MUTEX_INITIALIZER;

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
char __cudaInitModule(void **binary);
char __cudaInitModule(void **binary)
{
    (void)binary;
    return 1;
}
void __cudaRegisterVar(void);
void __cudaRegisterVar(void)
{
}

void __cudaRegisterFunction(void **binary, const char *function, char *device, const char *name);
void __cudaRegisterFunction(void **binary, const char *function, char *device, const char *name)
{
    (void)binary;
    (void)device;
    pthread_mutex_lock(&kernel_lock);
    if (kernel_count == kernel_room) {
        kernel_room = kernel_room ? 2 * kernel_room : 1024;
        kernels = realloc(kernels, kernel_room * sizeof *kernels);
        if (!kernels)
            abort();
    }
    kernels[kernel_count++] = (struct kernel){function, name};
    pthread_mutex_unlock(&kernel_lock);
}

static cudaError_t refused_kernel(const void *function)
{
    const char *name = "a kernel that nobody registered";
    pthread_mutex_lock(&kernel_lock);
    for (size_t i = 0; i < kernel_count; i++)
        if (kernels[i].function == function)
            name = kernels[i].name;
    pthread_mutex_unlock(&kernel_lock);
    fprintf(stderr, "the fake CUDA runtime cannot run kernels, and this one is wanted: %s\n", name);
    return refused(name);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
    (void)grid;
    (void)block;
    (void)shared;
    (void)stream;
    return 0;
}
/* What is popped is for a launch, which looks at nothing. */
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
    *grid = *block = (dim3){1, 1, 1};
    *shared = 0;
    *(void **)stream = NULL;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function)
{
    *kernel = (cudaKernel_t)(uintptr_t)function;
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel)
{
    return refused_kernel((const void *)kernel);
}
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **arguments,
                             size_t shared, cudaStream_t stream)
{
    (void)grid;
    (void)block;
    (void)arguments;
    (void)shared;
    (void)stream;
    return refused_kernel(function);
}
cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block,
                                        void **arguments, size_t shared, cudaStream_t stream)
{
    return cudaLaunchKernel(function, grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *how, const void *function,
                                void **arguments)
{
    (void)how;
    (void)arguments;
    return refused_kernel(function);
}
