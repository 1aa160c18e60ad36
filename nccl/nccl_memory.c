/* Memory of the NCCL door: allocation, of the current device where there is one, else of the host
 * where peers can map it; and registration. Registration makes host memory as fast as allocated
 * memory where it can (tutti_register); for device memory nothing is left to do. It never fails for
 * a buffer that cannot be moved, since operations work on any. */
#include "nccl/nccl_comm.h"

#include "base/config.h"
#include "base/memory.h"
#include "device/cuda/cuda_driver.h"
#include "device/memory.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- the driver, and the current device ---- */

typedef int (*driver_ask_device)(int *device);

/* CUDA's runtime, as the dynamic linker knows it: not one that is linked statically. */
static int driver_runtime(struct dl_phdr_info *info, size_t bytes, void *found)
{
    const char *slash = strrchr(info->dlpi_name, '/');
    const char *name = slash ? slash + 1 : info->dlpi_name;
    const char **path = found;
    (void)bytes;
    if (strncmp(name, "libcudart", strlen("libcudart")) != 0)
        return 0;
    *path = info->dlpi_name; /* nobody unloads it under a program that uses it */
    return 1;
}

/* Its cudaGetDevice; NULL: the process has none. */
static driver_ask_device driver_runtime_device(void)
{
    const char *path = NULL;
    driver_ask_device ask = NULL;
    void *found = dlsym(RTLD_DEFAULT, "cudaGetDevice");
    if (!found)
        (void)dl_iterate_phdr(driver_runtime, &path);
    void *runtime = path ? dlopen(path, RTLD_NOLOAD | RTLD_LAZY) : NULL;
    if (runtime) {
        found = dlsym(runtime, "cudaGetDevice");
        dlclose(runtime);
    }
    *(void **)&ask = found;
    return ask;
}

static int driver_adds(struct dl_phdr_info *info, size_t bytes, void *adds)
{
    (void)bytes;
    *(unsigned long long *)adds = info->dlpi_adds;
    return 1;
}

/* Libraries are counted first, which is quicker than to look for one. */
bool tti_nccl_late_device(const void *address)
{
    static _Atomic unsigned long long without; /* the driver, when there were so many */
    unsigned long long adds = 0;
    struct tti_gpu_pointer info;
    int count = 0;
    (void)dl_iterate_phdr(driver_adds, &adds);
    if (adds == atomic_load_explicit(&without, memory_order_relaxed))
        return false;
    if (tti_config_text("TUTTI_DEVICE") || !tti_gpu_driver_loaded()) {
        atomic_store_explicit(&without, adds, memory_order_relaxed);
        return false;
    }
    return tti_gpu_cuda()->count(&count) == TUTTI_OK && count > 0 &&
           tti_gpu_cuda()->pointer(address, &info) == TUTTI_OK && info.kind == TTI_MEMORY_DEVICE;
}

/* By the context that is current. */
static int driver_device(void)
{
    const struct tti_cuda_driver *driver = NULL;
    tti_cu_context context = NULL;
    int device = 0;
    if (tti_cuda_driver_load(&driver) != TUTTI_OK || !driver ||
        driver->context_current(&context) != TTI_CU_OK || !context ||
        driver->context_device(&device) != TTI_CU_OK)
        return 0;
    return device;
}

/* A program may come here before it uses CUDA, which loads the driver at its first call: NCCL would
 * itself. One that has no runtime of CUDA has no device memory either, and shall not pay for a
 * driver. (A runtime that is linked statically is not seen: tti_nccl_late_device.) What goes wrong
 * is told where the driver is used.
 *
 * The runtime is asked for the device, for those before CUDA 12 make the context that would tell
 * only at the first call that needs one. */
int tti_nccl_current_device(void)
{
    const driver_ask_device ask = driver_runtime_device();
    const struct tti_gpu_ops *ops = NULL;
    int device = 0;
    if (ask && !tti_config_text("TUTTI_DEVICE"))
        tti_gpu_driver_ask();
    if (tti_gpu_in_use(&ops) != TUTTI_OK || ops != tti_gpu_cuda())
        return 0;
    return ask && ask(&device) == 0 ? device : driver_device();
}

/* ---- allocation ---- */

struct allocation {
    struct allocation *next;
    void *memory;
    struct tti_gpu *gpu; /* opened for it; NULL: host memory */
};

static pthread_mutex_t allocation_lock = PTHREAD_MUTEX_INITIALIZER;
static struct allocation *allocations;

static enum tutti_result allocation_make(size_t bytes, struct allocation *made)
{
    const struct tti_gpu_ops *ops = NULL;
    const int device = tti_nccl_current_device();
    TTI_TRY(tti_gpu_in_use(&ops));
    if (!ops)
        return tutti_alloc(bytes, &made->memory);
    TTI_TRY(ops->open(device, &made->gpu));
    enum tutti_result result = ops->alloc_shared(made->gpu, bytes, &made->memory);
    if (result == TUTTI_OK) {
        /* Ranks of this process may share it. */
        result = ops->memory_open(made->gpu, made->memory, bytes, NULL, 0);
        if (result != TUTTI_OK)
            ops->free(made->gpu, made->memory);
    }
    if (result != TUTTI_OK)
        ops->close(made->gpu);
    return result;
}

ncclResult_t pncclMemAlloc(void **ptr, size_t size)
{
    tti_nccl_settings();
    if (!ptr)
        return tti_nccl_fail(ncclInvalidArgument, "ncclMemAlloc: ptr is NULL");
    *ptr = NULL;
    if (size == 0)
        return ncclSuccess;
    struct allocation *made = tti_calloc(1, sizeof *made);
    enum tutti_result result = made ? allocation_make(size, made) : TUTTI_ERR_MEMORY;
    if (result != TUTTI_OK) {
        free(made);
        return tti_nccl_result(result);
    }
    pthread_mutex_lock(&allocation_lock);
    made->next = allocations;
    allocations = made;
    pthread_mutex_unlock(&allocation_lock);
    *ptr = made->memory;
    return ncclSuccess;
}
TTI_NCCL_ALSO(MemAlloc);

ncclResult_t pncclMemFree(void *ptr)
{
    if (!ptr)
        return ncclSuccess;
    pthread_mutex_lock(&allocation_lock);
    struct allocation **link = &allocations;
    while (*link && (*link)->memory != ptr)
        link = &(*link)->next;
    struct allocation *found = *link;
    if (found)
        *link = found->next;
    pthread_mutex_unlock(&allocation_lock);
    if (!found)
        return tti_nccl_fail(ncclInvalidArgument, "ncclMemFree: %p is not from ncclMemAlloc", ptr);
    if (found->gpu) {
        const struct tti_gpu_ops *ops = found->gpu->ops;
        ops->free(found->gpu, ptr);
        ops->close(found->gpu);
    } else {
        tutti_free(ptr);
    }
    free(found);
    return ncclSuccess;
}
TTI_NCCL_ALSO(MemFree);

/* ---- registration ---- */

static bool buffer_on_host(const struct ncclComm *comm, const void *memory)
{
    struct tti_gpu_pointer info = {.kind = TTI_MEMORY_HOST};
    return !comm->gpu_ops ||
           (comm->gpu_ops->pointer(memory, &info) == TUTTI_OK && info.kind == TTI_MEMORY_HOST);
}

static ncclResult_t buffer_add(ncclComm_t comm, const char *what, void *memory, size_t bytes,
                               struct tti_nccl_buffer **buffer)
{
    struct tti_region region;
    ncclResult_t result = tti_nccl_enter_lists(comm, what);
    if (result != ncclSuccess)
        return result;
    struct tti_nccl_buffer *made = tti_calloc(1, sizeof *made);
    if (!made) {
        tti_nccl_leave(comm);
        return tti_nccl_result(TUTTI_ERR_MEMORY);
    }
    made->memory = memory;
    if (buffer_on_host(comm, memory) && !tti_region_find(memory, bytes, &region)) {
        made->ours = tutti_register(memory, bytes) == TUTTI_OK;
        if (!made->ours)
            TTI_LOG(TTI_LOG_INFO, "%s of %zu bytes at %p has no effect: %s", what, bytes, memory,
                    tti_error_text());
    }
    pthread_mutex_lock(&comm->lock);
    made->next = comm->buffers;
    comm->buffers = made;
    pthread_mutex_unlock(&comm->lock);
    tti_nccl_leave(comm);
    *buffer = made;
    return ncclSuccess;
}

static void buffer_free(struct tti_nccl_buffer *buffer)
{
    tutti_window_destroy(buffer->window);
    if (buffer->ours)
        (void)tutti_deregister(buffer->memory);
    free(buffer);
}

void tti_nccl_buffers_free(struct ncclComm *comm)
{
    while (comm->buffers) {
        struct tti_nccl_buffer *buffer = comm->buffers;
        comm->buffers = buffer->next;
        buffer->window = NULL;
        buffer_free(buffer);
    }
}

/* Out of the communicator's list; NULL: it is not there. */
static struct tti_nccl_buffer *buffer_take(ncclComm_t comm, const void *handle)
{
    pthread_mutex_lock(&comm->lock);
    struct tti_nccl_buffer **link = &comm->buffers;
    while (*link && *link != handle)
        link = &(*link)->next;
    struct tti_nccl_buffer *found = *link;
    if (found)
        *link = found->next;
    pthread_mutex_unlock(&comm->lock);
    return found;
}

static ncclResult_t buffer_remove(ncclComm_t comm, const char *what, const void *handle)
{
    ncclResult_t result = tti_nccl_enter_lists(comm, what);
    if (result != ncclSuccess)
        return result;
    struct tti_nccl_buffer *found = buffer_take(comm, handle);
    if (found)
        buffer_free(found); /* a window, while ours is there */
    tti_nccl_leave(comm);
    if (!found)
        return tti_nccl_fail(ncclInvalidArgument, "%s: %p is not registered with the communicator",
                             what, handle);
    return ncclSuccess;
}

ncclResult_t pncclCommRegister(const ncclComm_t comm, void *buff, size_t size, void **handle)
{
    struct tti_nccl_buffer *made = NULL;
    if (!buff || !handle || size == 0)
        return tti_nccl_fail(ncclInvalidArgument,
                             "ncclCommRegister: %zu bytes at %p, handle at %p; none may be 0", size,
                             buff, (void *)handle);
    ncclResult_t result = buffer_add(comm, "ncclCommRegister", buff, size, &made);
    if (result == ncclSuccess)
        *handle = made;
    return result;
}
TTI_NCCL_ALSO(CommRegister);

ncclResult_t pncclCommDeregister(const ncclComm_t comm, void *handle)
{
    return handle ? buffer_remove(comm, "ncclCommDeregister", handle) : ncclSuccess;
}
TTI_NCCL_ALSO(CommDeregister);

/* ---- windows: registered buffers that the other ranks may put into ---- */

/* Made when all ranks are there: at the end of the group, or in a thread of its own, as a
 * communicator is. Those of one communicator one after another, as on all ranks. */
struct tti_nccl_window_wish {
    struct tti_nccl_window_wish *next;
    struct tti_nccl_buffer *buffer;
    size_t bytes;
    ncclWindow_t *handle; /* where the program has it */
};

void tti_nccl_wishes_free(struct tti_nccl_window_wish *wishes)
{
    while (wishes) {
        struct tti_nccl_window_wish *wish = wishes;
        wishes = wish->next;
        free(wish);
    }
}

/* The registration that was to become a window. */
static void wish_deny(struct ncclComm *comm, struct tti_nccl_window_wish *wish)
{
    (void)buffer_take(comm, wish->buffer);
    buffer_free(wish->buffer);
    wish->buffer = NULL;
}

void tti_nccl_wishes_deny(struct tti_nccl_job *job)
{
    for (struct tti_nccl_window_wish *wish = job->wishes; wish; wish = wish->next)
        wish_deny(job->comm, wish);
}

static ncclResult_t window_run(struct tti_nccl_job *job)
{
    struct ncclComm *comm = job->comm;
    ncclResult_t worst = ncclSuccess;
    for (struct tti_nccl_window_wish *wish = job->wishes; wish; wish = wish->next) {
        tutti_window *window = NULL;
        ncclResult_t result = worst;
        if (result == ncclSuccess)
            result = tti_nccl_result(
                tutti_window_create(wish->buffer->memory, wish->bytes, comm->tutti, &window));
        if (result == ncclSuccess) {
            wish->buffer->window = window;
            *wish->handle = (ncclWindow_t)(void *)wish->buffer;
        } else {
            worst = result;
            wish_deny(comm, wish);
        }
    }
    return worst;
}

static void wish_append(struct tti_nccl_job *job, struct tti_nccl_window_wish *wish)
{
    struct tti_nccl_window_wish **end = &job->wishes;
    while (*end)
        end = &(*end)->next;
    *end = wish;
}

/* Takes the wish; the communicator is entered for it. */
static ncclResult_t window_submit(ncclComm_t comm, struct tti_nccl_window_wish *wish)
{
    struct tti_nccl_job *job = tti_nccl_group_job(comm, window_run);
    if (job) { /* which has entered once, that is enough */
        wish_append(job, wish);
        tti_nccl_leave(comm);
        return ncclSuccess;
    }
    ncclResult_t result = tti_nccl_job_new(comm, NULL, window_run, &job);
    if (result != ncclSuccess) {
        wish_deny(comm, wish);
        free(wish);
        tti_nccl_leave(comm);
        return result;
    }
    wish_append(job, wish);
    return tti_nccl_job_submit_living(job); /* leaves */
}

ncclResult_t pncclCommWindowRegister(ncclComm_t comm, void *buff, size_t size, ncclWindow_t *win,
                                     int winFlags)
{
    if (!buff || !win || size == 0 ||
        (winFlags & ~(NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING)))
        return tti_nccl_group_failed(
            tti_nccl_fail(ncclInvalidArgument,
                          "ncclCommWindowRegister: %zu bytes at %p, window at %p, flags 0x%x", size,
                          buff, (void *)win, (unsigned)winFlags));
    ncclResult_t result = tti_nccl_enter(comm, "ncclCommWindowRegister");
    if (result != ncclSuccess)
        return tti_nccl_group_failed(result);
    struct tti_nccl_window_wish *wish = tti_calloc(1, sizeof *wish);
    if (!wish) {
        tti_nccl_leave(comm);
        return tti_nccl_group_failed(tti_nccl_result(TUTTI_ERR_MEMORY));
    }
    result = buffer_add(comm, "ncclCommWindowRegister", buff, size, &wish->buffer);
    if (result != ncclSuccess) {
        free(wish);
        tti_nccl_leave(comm);
        return tti_nccl_group_failed(result);
    }
    *win = NULL;
    wish->bytes = size;
    wish->handle = win;
    return tti_nccl_group_failed(window_submit(comm, wish));
}
TTI_NCCL_ALSO(CommWindowRegister);

ncclResult_t pncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t win)
{
    return win ? buffer_remove(comm, "ncclCommWindowDeregister", win) : ncclSuccess;
}
TTI_NCCL_ALSO(CommWindowDeregister);

/* Under no lock; NULL: there is none of that handle. */
static struct tti_nccl_buffer *window_find(struct ncclComm *comm, ncclWindow_t handle)
{
    pthread_mutex_lock(&comm->lock);
    struct tti_nccl_buffer *buffer = comm->buffers;
    while (buffer && ((const void *)buffer != (const void *)handle || !buffer->window))
        buffer = buffer->next;
    pthread_mutex_unlock(&comm->lock);
    return buffer;
}

tutti_window *tti_nccl_window(struct ncclComm *comm, ncclWindow_t handle)
{
    const struct tti_nccl_buffer *buffer = window_find(comm, handle);
    return buffer ? buffer->window : NULL;
}

ncclResult_t pncclWinGetUserPtr(ncclComm_t comm, ncclWindow_t win, void **outUserPtr)
{
    if (!outUserPtr)
        return tti_nccl_fail(ncclInvalidArgument, "ncclWinGetUserPtr: outUserPtr is NULL");
    ncclResult_t result = tti_nccl_enter(comm, "ncclWinGetUserPtr");
    if (result != ncclSuccess)
        return result;
    const struct tti_nccl_buffer *buffer = window_find(comm, win);
    void *memory = buffer ? buffer->memory : NULL;
    tti_nccl_leave(comm);
    if (!memory)
        return tti_nccl_fail(ncclInvalidArgument,
                             "ncclWinGetUserPtr: %p is no window of the "
                             "communicator",
                             (void *)win);
    *outUserPtr = memory;
    return ncclSuccess;
}
TTI_NCCL_ALSO(WinGetUserPtr);
