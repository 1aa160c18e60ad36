/* Loading NVIDIA's management library (nvml_library.h). */
#include "topology/nvml_library.h"

#include "base/config.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_once_t nvml_once = PTHREAD_ONCE_INIT;
static struct tti_nvml nvml_table;
static char nvml_problem[400]; /* "": it is loaded */

/* Never unloaded: the driver's libraries do not promise to stand it. */
static void nvml_open(void)
{
    const char *path = tti_config_text("TUTTI_LIBNVML");
    void *library = dlopen(path ? path : "libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = NULL;
    if (!library) {
        const char *why = dlerror();
        snprintf(nvml_problem, sizeof nvml_problem, "%.300s", why ? why : "unknown reason");
        return;
    }
    /* A function pointer out of a void pointer: POSIX allows it, C needs the detour. */
#define NVML_FIND(name, arguments) \
    found = dlsym(library, #name); \
    memcpy(&nvml_table.name, &found, sizeof found);
#define NVML_NEED(name, arguments) \
    NVML_FIND(name, arguments)     \
    if (!found)                    \
        snprintf(nvml_problem, sizeof nvml_problem, "the library has no " #name);
    TTI_NVML_FUNCTIONS(NVML_NEED)
    TTI_NVML_OPTIONAL(NVML_FIND)
    NVML_NEED(nvmlErrorString, )
#undef NVML_NEED
#undef NVML_FIND
}

enum tutti_result tti_nvml_load(const struct tti_nvml **nvml)
{
    (void)pthread_once(&nvml_once, nvml_open);
    if (*nvml_problem)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "cannot ask NVIDIA's driver: %s; install the driver, or name its "
                        "libnvidia-ml.so.1 in TUTTI_LIBNVML",
                        nvml_problem);
    *nvml = &nvml_table;
    return TUTTI_OK;
}

enum tutti_result tti_nvml_check(const struct tti_nvml *nvml, int code, const char *function,
                                 int device)
{
    char which[24] = "";
    if (code == TTI_NVML_SUCCESS)
        return TUTTI_OK;
    if (device >= 0)
        snprintf(which, sizeof which, " of device %d", device);
    const char *words = nvml->nvmlErrorString(code);
    return TTI_FAIL(TUTTI_ERR_SYSTEM, "%s%s: %s (NVML error %d)%s", function, which,
                    words ? words : "unknown error", code,
                    code == TTI_NVML_DRIVER_NOT_LOADED ? "; load the nvidia kernel module" : "");
}
