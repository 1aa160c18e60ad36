/* CUDA's driver by its symbols, for programs that know nothing but nccl.h. */
#ifndef TTI_TESTS_NCCL_DRIVER_H
#define TTI_TESTS_NCCL_DRIVER_H

#include <nccl.h>

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long device_pointer;

/* As cuda.h has them, version 12. */
struct driver_property {
    int type, handles, location[2];
    void *unused;
    unsigned char flags[8];
};
struct driver_access {
    int location[2], flags;
};

/* X(name here, symbol, parameters) */
#define NCCL_DRIVER(X)                                                                         \
    X(init, cuInit, (unsigned))                                                                \
    X(devices, cuDeviceGetCount, (int *))                                                      \
    X(retain, cuDevicePrimaryCtxRetain, (void **, int))                                        \
    X(state, cuDevicePrimaryCtxGetState, (int, unsigned *, int *))                             \
    X(release, cuDevicePrimaryCtxRelease_v2, (int))                                            \
    X(push, cuCtxPushCurrent_v2, (void *))                                                     \
    X(pop, cuCtxPopCurrent_v2, (void **))                                                      \
    X(current, cuCtxSetCurrent, (void *))                                                      \
    X(alloc, cuMemAlloc_v2, (device_pointer *, size_t))                                        \
    X(alloc_managed, cuMemAllocManaged, (device_pointer *, size_t, unsigned))                  \
    X(free, cuMemFree_v2, (device_pointer))                                                    \
    X(alloc_host, cuMemHostAlloc, (void **, size_t, unsigned))                                 \
    X(free_host, cuMemFreeHost, (void *))                                                      \
    X(copy, cuMemcpyAsync, (device_pointer, device_pointer, size_t, cudaStream_t))             \
    X(hold, cuStreamWaitValue32_v2, (cudaStream_t, device_pointer, uint32_t, unsigned))        \
    X(allowed, cuMemGetAccess, (unsigned long long *, const int *, device_pointer))            \
    X(take, cuMemAllocAsync, (device_pointer *, size_t, cudaStream_t))                         \
    X(pool, cuDeviceGetDefaultMemPool, (void **, int))                                         \
    X(pool_allowed, cuMemPoolGetAccess, (unsigned *, void *, int *))                           \
    X(reserve, cuMemAddressReserve,                                                            \
      (device_pointer *, size_t, size_t, device_pointer, unsigned long long))                  \
    X(create, cuMemCreate,                                                                     \
      (unsigned long long *, size_t, const struct driver_property *, unsigned long long))      \
    X(map, cuMemMap, (device_pointer, size_t, size_t, unsigned long long, unsigned long long)) \
    X(allow, cuMemSetAccess, (device_pointer, size_t, const struct driver_access *, size_t))   \
    X(unmap, cuMemUnmap, (device_pointer, size_t))                                             \
    X(drop, cuMemRelease, (unsigned long long))                                                \
    X(unreserve, cuMemAddressFree, (device_pointer, size_t))                                   \
    X(stream_create, cuStreamCreate, (cudaStream_t *, unsigned))                               \
    X(stream_destroy, cuStreamDestroy_v2, (cudaStream_t))                                      \
    X(finish, cuStreamSynchronize, (cudaStream_t))                                             \
    X(capture_begin, cuStreamBeginCapture_v2, (cudaStream_t, unsigned))                        \
    X(capture_end, cuStreamEndCapture, (cudaStream_t, void **))                                \
    X(make, cuGraphInstantiateWithFlags, (void **, void *, unsigned long long))                \
    X(graph_free, cuGraphDestroy, (void *))                                                    \
    X(launch, cuGraphLaunch, (void *, cudaStream_t))                                           \
    X(exec_free, cuGraphExecDestroy, (void *))

#define NCCL_DRIVER_FIELD(name, symbol, parameters) unsigned(*name) parameters;
struct nccl_driver {
    NCCL_DRIVER(NCCL_DRIVER_FIELD)
};

static inline void *nccl_driver_symbol(void *driver, const char *path, const char *symbol)
{
    void *found = dlsym(driver, symbol);
    if (!found) {
        fprintf(stderr, "%s has no %s\n", path, symbol);
        exit(1);
    }
    return found;
}

/* From TUTTI_LIBCUDA, which may be the one made of the simulated device (tests/device/fake_cuda.c),
 * or CUDA's. Ends the program if it is not there. */
static inline void nccl_driver_load(struct nccl_driver *cu)
{
    const char *set = getenv("TUTTI_LIBCUDA"), *path = set ? set : "libcuda.so.1";
    void *driver = dlopen(path, RTLD_NOW);
    if (!driver) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
#define NCCL_DRIVER_LOAD(name, symbol, parameters)               \
    {                                                            \
        void *found = nccl_driver_symbol(driver, path, #symbol); \
        memcpy((void *)&cu->name, &found, sizeof found);         \
    }
    NCCL_DRIVER(NCCL_DRIVER_LOAD)
}

#endif
