/* Loading hwloc (hwloc_library.h). */
#include "topology/hwloc_library.h"

#include "base/config.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { HWLOC_LEAST_API = 0x00020100, HWLOC_NEXT_ABI = 0x00030000 };

static pthread_once_t hwloc_once = PTHREAD_ONCE_INIT;
static struct tti_hwloc hwloc_table;
static char hwloc_problem[400]; /* "": it is loaded */

static void *hwloc_find(void *library, const char *name)
{
    void *found = dlsym(library, name);
    if (!found && !*hwloc_problem)
        snprintf(hwloc_problem, sizeof hwloc_problem, "libhwloc has no %s", name);
    return found;
}

/* Never unloaded: hwloc keeps its own plugins open. */
static void hwloc_open(void)
{
    const char *path = tti_config_text("TUTTI_LIBHWLOC");
    void *library = dlopen(path ? path : "libhwloc.so.15", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        snprintf(hwloc_problem, sizeof hwloc_problem, "%.300s", why ? why : "unknown reason");
        return;
    }
    /* A function pointer out of a void pointer: POSIX allows it, C needs the detour. */
#define HWLOC_FIND(name, result, arguments)              \
    do {                                                 \
        void *found = hwloc_find(library, #name);        \
        memcpy(&hwloc_table.name, &found, sizeof found); \
    } while (0);
    TTI_HWLOC_FUNCTIONS(HWLOC_FIND)
#undef HWLOC_FIND
    if (*hwloc_problem)
        return;
    unsigned version = hwloc_table.hwloc_get_api_version();
    if (version < HWLOC_LEAST_API || version >= HWLOC_NEXT_ABI)
        snprintf(hwloc_problem, sizeof hwloc_problem, "libhwloc has API %u.%u; expected 2.1 to 2.x",
                 version >> 16, version >> 8 & 0xff);
}

enum tutti_result tti_hwloc_load(const struct tti_hwloc **hwloc)
{
    (void)pthread_once(&hwloc_once, hwloc_open);
    if (*hwloc_problem)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "cannot use hwloc: %s; install libhwloc15 (or hwloc-libs), or name the "
                        "library in TUTTI_LIBHWLOC",
                        hwloc_problem);
    *hwloc = &hwloc_table;
    return TUTTI_OK;
}
