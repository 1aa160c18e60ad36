/* Loading the CUDA driver, and its errors in our words (cuda_driver.h). */
#include "device/cuda/cuda_driver.h"

#include "base/config.h"
#include "base/log.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

static struct tti_cuda_driver driver_functions;
static _Atomic(const struct tti_cuda_driver *) driver_loaded;
static struct tti_error driver_error; /* of the one attempt */
static pthread_once_t driver_once = PTHREAD_ONCE_INIT;

/* The function itself, or NULL; ISO C has no cast from an object pointer. `path` NULL: it may be
 * missing. */
static void driver_symbol(void *library, const char *symbol, const char *path, void *field)
{
    void *found = dlsym(library, symbol);
    if (!found && path && driver_error.code == TUTTI_OK)
        tti_error_save(
            &driver_error,
            TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                     "the CUDA driver %s has no %s; Tutti needs that of CUDA 12 or newer", path,
                     symbol));
    *(void **)field = found;
}

/* What to do about an error that people meet on a machine that is not set up, or no more; "". */
static const char *driver_hint(unsigned code)
{
    static const struct {
        unsigned code;
        const char *hint;
    } hints[] = {
        {TTI_CU_OUT_OF_MEMORY, "nvidia-smi shows who holds the device's memory"},
        {TTI_CU_STUB, "this is the toolkit's stub: take its folder out of LD_LIBRARY_PATH"},
        {TTI_CU_DEVICE_UNAVAILABLE,
         "another process has the device for itself alone: start MPS, or "
         "nvidia-smi -c DEFAULT lets processes share it"},
        {TTI_CU_OPERATING_SYSTEM, "the system refused the driver something: ulimit -n, or "
                                  "/dev/nvidia* missing in a container"},
        {TTI_CU_ILLEGAL_ADDRESS, "a kernel failed, and nothing works on the device in this process "
                                 "any more; compute-sanitizer says which"},
        {TTI_CU_LAUNCH_FAILED,
         "a kernel failed, and nothing works on the device in this process any "
         "more; compute-sanitizer says which"},
        {TTI_CU_TOO_MANY_PEERS, "a device can map the memory of 8 others, unless NVSwitches join "
                                "them"},
        {TTI_CU_SYSTEM_NOT_READY, "GPUs behind NVSwitches need NVIDIA's Fabric Manager: systemctl "
                                  "start nvidia-fabricmanager"},
        {TTI_CU_DRIVER_MISMATCH, "libcuda is of another version than the kernel's module: restart "
                                 "after an update, or give the container the host's libcuda"},
        {TTI_CU_COMPAT_UNSUPPORTED,
         "a libcuda for forward compatibility, which this device does not "
         "take: take its folder out of LD_LIBRARY_PATH"},
        {TTI_CU_MPS_CONNECTION, "MPS is asked for and does not answer: see "
                                "CUDA_MPS_PIPE_DIRECTORY"},
        {TTI_CU_UNKNOWN, "nvidia-smi and dmesg (Xid) may tell more"},
    };
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (hints[i].code == code)
            return hints[i].hint;
    return "";
}

/* "13.0" of 13000. */
static void version_text(int version, char text[16])
{
    snprintf(text, 16, "%d.%d", version / 1000, version % 1000 / 10);
}

void tti_cuda_software(char text[96])
{
    const struct tti_cuda_driver *driver = tti_cuda_driver_now();
    char ours[16], theirs[16];
    int version = 0;
    if (!driver || driver->version(&version) != TTI_CU_OK)
        version = 0;
    version_text(version, theirs);
    version_text(tti_cuda_toolkit(), ours);
    snprintf(text, 96, "driver for CUDA %s, kernels by CUDA %s", theirs,
             tti_cuda_toolkit() ? ours : "none");
}

static void driver_open(void)
{
    const char *set = tti_config_text("TUTTI_LIBCUDA");
    const char *path = set ? set : "libcuda.so.1";
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        TTI_LOG(TTI_LOG_INFO, "no CUDA driver: %s", dlerror());
        if (set)
            tti_error_save(&driver_error,
                           TTI_FAIL(TUTTI_ERR_SYSTEM, "TUTTI_LIBCUDA: cannot load %s", set));
        return;
    }
#define DRIVER_SYMBOL(field, function, suffix, parameters) \
    driver_symbol(library, #function suffix, path, &driver_functions.field);
    TTI_CU_FUNCTIONS(DRIVER_SYMBOL)
    TTI_CU_FUNCTIONS_BY_HAND(DRIVER_SYMBOL)
#define DRIVER_NEWER(field, function, suffix, parameters) \
    driver_symbol(library, #function suffix, NULL, &driver_functions.field);
    TTI_CU_FUNCTIONS_NEWER(DRIVER_NEWER)
    if (driver_error.code != TUTTI_OK)
        return;
    const unsigned code = driver_functions.init(0);
    if (code == TTI_CU_NO_DEVICE) {
        TTI_LOG(TTI_LOG_INFO, "the CUDA driver %s finds no device", path);
        return;
    }
    if (code != TTI_CU_OK) {
        const char *name = NULL;
        if (driver_functions.error_name(code, &name) != TTI_CU_OK || !name)
            name = "an unknown error";
        const char *hint = driver_hint(code);
        tti_error_save(&driver_error,
                       TTI_FAIL(TUTTI_ERR_SYSTEM, "the CUDA driver %s does not start: %s (%u); %s",
                                path, name, code, *hint ? hint : "nvidia-smi may tell more"));
        return;
    }
    atomic_store_explicit(&driver_loaded, &driver_functions, memory_order_release);
    char software[96];
    tti_cuda_software(software);
    TTI_LOG(TTI_LOG_INFO, "%s: %s", path, software);
}

enum tutti_result tti_cuda_driver_load(const struct tti_cuda_driver **driver)
{
    pthread_once(&driver_once, driver_open);
    if (driver_error.code != TUTTI_OK)
        return tti_error_restore(&driver_error);
    *driver = tti_cuda_driver_now();
    return TUTTI_OK;
}

const struct tti_cuda_driver *tti_cuda_driver_now(void)
{
    return atomic_load_explicit(&driver_loaded, memory_order_acquire);
}

static enum tutti_result driver_result(unsigned code)
{
    switch (code) {
    case TTI_CU_INVALID_VALUE:
    case TTI_CU_INVALID_HANDLE:
    case TTI_CU_HOST_ALREADY:
    case TTI_CU_HOST_UNKNOWN:
        return TUTTI_ERR_ARGUMENT;
    case TTI_CU_OUT_OF_MEMORY:
        return TUTTI_ERR_MEMORY;
    case TTI_CU_NO_BINARY:
    case TTI_CU_PEER_UNSUPPORTED:
    case TTI_CU_NOT_SUPPORTED:
        return TUTTI_ERR_UNSUPPORTED;
    case TTI_CU_DEINITIALIZED:
        return TUTTI_ERR_ABORTED;
    default:
        return code >= TTI_CU_CAPTURE_FIRST && code <= TTI_CU_CAPTURE_LAST ? TUTTI_ERR_USAGE
                                                                           : TUTTI_ERR_SYSTEM;
    }
}

enum tutti_result tti_cuda_check(unsigned code, const char *what)
{
    if (code == TTI_CU_OK)
        return TUTTI_OK;
    if (code == TTI_CU_NOT_READY)
        return TUTTI_IN_PROGRESS;
    const struct tti_cuda_driver *driver = tti_cuda_driver_now();
    const char *name = NULL, *text = NULL, *hint = driver_hint(code);
    if (!driver || driver->error_name(code, &name) != TTI_CU_OK || !name)
        name = "unknown error";
    if (!driver || driver->error_text(code, &text) != TTI_CU_OK || !text)
        text = "";
    return TTI_FAIL(driver_result(code), "%s: %s (%u) %s%s%s", what, name, code, text,
                    *hint ? "; " : "", hint);
}
