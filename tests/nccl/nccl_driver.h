/* CUDA's driver by its symbols, for programs that know nothing but nccl.h. Who includes this has
 * listed before what it calls: DRIVER(X) is X(name here, symbol, parameters) for each. */
#ifndef TTI_TESTS_NCCL_DRIVER_H
#define TTI_TESTS_NCCL_DRIVER_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long device_pointer;

#define DRIVER_FIELD(name, symbol, parameters) unsigned(*name) parameters;
struct nccl_driver {
    DRIVER(DRIVER_FIELD)
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
#define DRIVER_LOAD(name, symbol, parameters)                    \
    {                                                            \
        void *found = nccl_driver_symbol(driver, path, #symbol); \
        memcpy((void *)&cu->name, &found, sizeof found);         \
    }
    DRIVER(DRIVER_LOAD)
}

#endif
