/* Loading libibverbs (verbs.h). */
#include "transport/rdma/verbs.h"

#include "base/config.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_once_t verbs_once = PTHREAD_ONCE_INIT;
static struct tti_verbs verbs_table;
static char verbs_problem[400]; /* "": it is loaded */

/* Never unloaded: the devices' drivers do not promise to stand it. */
static void verbs_open(void)
{
    const char *path = tti_config_text("TUTTI_LIBIBVERBS");
    void *library = dlopen(path ? path : "libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    void *found = NULL;
    if (!library) {
        const char *why = dlerror();
        snprintf(verbs_problem, sizeof verbs_problem, "%.300s", why ? why : "unknown reason");
        return;
    }
    /* A function pointer out of a void pointer: POSIX allows it, C needs the detour. */
#define VERBS_NEED(name)                             \
    found = dlsym(library, "ibv_" #name);            \
    memcpy(&verbs_table.name, &found, sizeof found); \
    if (!found)                                      \
        snprintf(verbs_problem, sizeof verbs_problem, "the library has no ibv_" #name);
    TTI_VERBS_FUNCTIONS(VERBS_NEED)
#undef VERBS_NEED
    found = dlsym(library, "ibv_reg_dmabuf_mr");
    memcpy(&verbs_table.reg_dmabuf_mr, &found, sizeof found);
    /* A child of fork must not lose the parent's registered pages; kernels from 5.12 on see to it
     * themselves, and then this does nothing. It has to come before the first registration. */
    if (!*verbs_problem)
        (void)verbs_table.fork_init();
}

/* The kernel lists each RDMA device in this folder. UNSUPPORTED: there is none, or nobody can tell.
 */
static enum tutti_result verbs_any_device(void)
{
    DIR *folder = opendir("/sys/class/infiniband");
    bool any = false;
    if (!folder && errno != ENOENT)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "rdma: cannot look for devices in /sys/class/infiniband: %s%s",
                        strerror(errno), errno == EMFILE ? " (raise 'ulimit -n')" : "");
    for (struct dirent *entry; folder && !any && (entry = readdir(folder)) != NULL;)
        any = entry->d_name[0] != '.';
    if (folder)
        closedir(folder);
    return any ? TUTTI_OK
               : TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                          "rdma: this machine has no RDMA device (/sys/class/infiniband is empty)");
}

enum tutti_result tti_verbs_load(const struct tti_verbs **verbs)
{
    TTI_TRY(verbs_any_device());
    (void)pthread_once(&verbs_once, verbs_open);
    if (*verbs_problem)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "rdma: cannot load libibverbs: %s; install rdma-core (Debian, Ubuntu: "
                        "libibverbs1 ibverbs-providers), name the library in TUTTI_LIBIBVERBS, or "
                        "raise the limits on memory and files if they keep it out (ulimit -v, -n)",
                        verbs_problem);
    *verbs = &verbs_table;
    return TUTTI_OK;
}
