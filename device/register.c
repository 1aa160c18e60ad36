/* Registered regions (memory.h): the whole pages of a caller's buffer move into a memfd that is
 * mapped at the same addresses, and back.
 *
 * Registrations are kept by the pointer that the caller knows, because the region begins at the
 * next page boundary, and a buffer without a whole page has no region at all. */
#include "base/memory.h"
#include "device/gpu.h"
#include "device/memory.h"
#include "device/process_maps.h"
#include "device/region_table.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct registration {
    const void *memory; /* as registered */
    char *base;         /* whole pages inside; bytes = 0: none */
    size_t bytes;
};

/* Held during a whole register or deregister: they are rare, and exclude each other anyway when
 * they touch the same memory. */
static pthread_mutex_t register_lock = PTHREAD_MUTEX_INITIALIZER;
static struct registration *registrations;
static size_t registration_count, registration_capacity;

static struct registration *register_lookup(const void *memory)
{
    for (size_t i = 0; i < registration_count; i++)
        if (registrations[i].memory == memory)
            return &registrations[i];
    return NULL;
}

static void register_forget(struct registration *registration)
{
    *registration = registrations[--registration_count];
    if (registration_count == 0) {
        free(registrations);
        registrations = NULL;
        registration_capacity = 0;
    }
}

/* ---- Register ---------------------------------------------------------------------------------
 */

static enum tutti_result register_check_one(const struct tti_mapping *at, uintptr_t from)
{
    if (at->low > from)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "nothing is mapped at %p; pass memory that exists",
                        (void *)from);
    if (at->mode[0] != 'r' || at->mode[1] != 'w')
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "the mapping at %p is \"%s\"; it must be readable and writable",
                        (void *)from, at->mode);
    if (at->mode[3] != 'p')
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "the mapping at %p is shared with other processes or a file, which would "
                        "lose sight of it; use private memory, or tutti_alloc",
                        (void *)from);
    if (at->stack)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "%p is on the stack, which a forked child would then share; use malloc, "
                        "mmap or tutti_alloc",
                        (void *)from);
    return TUTTI_OK;
}

/* Only private, readable and writable memory may be replaced. */
static enum tutti_result register_check(const struct registration *wanted)
{
    struct tti_maps maps;
    struct tti_mapping at;
    TTI_TRY(tti_maps_open(&maps));
    enum tutti_result result = TUTTI_OK;
    uintptr_t from = (uintptr_t)wanted->base;
    const uintptr_t end = from + wanted->bytes;
    while (result == TUTTI_OK && from < end && tti_maps_find(&maps, from, &at)) {
        result = register_check_one(&at, from);
        from = at.high;
    }
    tti_maps_close(&maps);
    if (result == TUTTI_OK && from < end)
        result = TTI_FAIL(TUTTI_ERR_ARGUMENT, "nothing is mapped at %p; pass memory that exists",
                          (void *)from);
    return result;
}

enum tutti_result tti_region_fill(int fd, const char *base, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t wrote = pwrite(fd, base + done, bytes - done, (off_t)done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return TTI_FAIL_ERRNO("pwrite of its contents into a memfd%s",
                                  tti_region_advice(errno));
        if (wrote == 0)
            return TTI_FAIL(TUTTI_ERR_SYSTEM, "pwrite into a memfd stopped after %zu of %zu bytes",
                            done, bytes);
        done += (size_t)wrote;
    }
    return TUTTI_OK;
}

/* Put the memfd in the place of the pages. `fd` belongs to the table on success. */
static enum tutti_result register_replace(const struct registration *wanted, int fd)
{
    struct tti_region region = {.base = wanted->base, .bytes = wanted->bytes, .fd = fd};
    TTI_TRY(tti_region_fill(fd, wanted->base, wanted->bytes));
    TTI_TRY(tti_region_table_add(&region, TTI_REGION_REGISTERED));
    if (mmap(region.base, region.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
        MAP_FAILED) {
        enum tutti_result result =
            TTI_FAIL_ERRNO("mmap of a memfd in its place%s", tti_region_advice(errno));
        tti_region_table_remove(region.base, TTI_REGION_REGISTERED, &region);
        return result;
    }
    tti_region_advise(region.base, region.bytes, false);
    return TUTTI_OK;
}

/* What a device has locked it goes on reading and writing where the pages were. */
static enum tutti_result register_unlocked(const struct registration *wanted)
{
    const struct tti_gpu_ops *const known[] = {tti_gpu_cuda(), tti_gpu_sim()};
    const char *const ends[] = {wanted->base, (const char *)wanted->base + wanted->bytes - 1};
    for (int k = 0; k < 4; k++) {
        struct tti_gpu_pointer info;
        if (known[k / 2]->pointer(ends[k % 2], &info) == TUTTI_OK && info.kind == TTI_MEMORY_PINNED)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                            "the memory at %p is page-locked for a device, which would go on with "
                            "the pages that it has now: register it here first, and then page-lock "
                            "it, or take tutti_alloc's",
                            (const void *)ends[k % 2]);
    }
    return TUTTI_OK;
}

static enum tutti_result register_pages(const struct registration *wanted)
{
    int fd = -1;
    TTI_TRY(tti_region_table_check(wanted->base, wanted->bytes));
    TTI_TRY(register_check(wanted));
    TTI_TRY(register_unlocked(wanted));
    TTI_TRY(tti_region_memfd(wanted->bytes, &fd));
    enum tutti_result result = register_replace(wanted, fd);
    if (result != TUTTI_OK)
        close(fd);
    return result;
}

/* Under register_lock. */
static enum tutti_result register_locked(const struct registration *wanted)
{
    if (register_lookup(wanted->memory))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "it is registered already; deregister it first");
    TTI_TRY(tti_grow((void **)&registrations, &registration_capacity, registration_count + 1,
                     sizeof *registrations));
    if (wanted->bytes)
        TTI_TRY(register_pages(wanted));
    registrations[registration_count++] = *wanted;
    return TUTTI_OK;
}

enum tutti_result tti_region_register(void *memory, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)memory;
    if (bytes > UINTPTR_MAX - begin || begin > UINTPTR_MAX - page)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "cannot register %zu bytes at %p: they go past the end of memory; check "
                        "the size",
                        bytes, memory);
    const uintptr_t low = (begin + page - 1) / page * page;
    const uintptr_t high = (begin + bytes) / page * page;
    struct registration wanted = {.memory = memory, .base = (char *)memory + (low - begin)};
    if (high > low)
        wanted.bytes = high - low;
    pthread_mutex_lock(&register_lock);
    enum tutti_result result = register_locked(&wanted);
    pthread_mutex_unlock(&register_lock);
    if (result != TUTTI_OK)
        return TTI_CONTEXT(result, "cannot register %zu bytes at %p", bytes, memory);
    return TUTTI_OK;
}

/* ---- Deregister -------------------------------------------------------------------------------
 */

/* Is the memfd still what is mapped there? Who freed the memory first has nothing to get back, and
 * what has taken the place since must not be touched. */
static bool deregister_there(const struct registration *old, int fd)
{
    struct stat own;
    struct tti_maps maps;
    struct tti_mapping at;
    if (fstat(fd, &own) != 0 || tti_maps_open(&maps) != TUTTI_OK)
        return true; /* as one that does not free too early may expect */
    uintptr_t from = (uintptr_t)old->base;
    const uintptr_t end = from + old->bytes;
    while (from < end && tti_maps_find(&maps, from, &at) && at.low <= from &&
           at.inode == own.st_ino)
        from = at.high;
    tti_maps_close(&maps);
    return from >= end;
}

/* Private pages with the present contents, in the place of the region. The region stays as it is
 * until the last call, which is the one that replaces it. */
static enum tutti_result deregister_replace(const struct registration *old)
{
    void *copy = mmap(NULL, old->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy == MAP_FAILED)
        return TTI_FAIL_ERRNO("mmap of private pages for its contents%s", tti_region_advice(errno));
    memcpy(copy, old->base, old->bytes);
    if (mremap(copy, old->bytes, old->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, old->base) ==
        MAP_FAILED) {
        enum tutti_result result =
            TTI_FAIL_ERRNO("mremap of private pages into its place%s", tti_region_advice(errno));
        munmap(copy, old->bytes);
        return result;
    }
    return TUTTI_OK;
}

/* Under register_lock. *id is the region that is gone; 0 if there was none. */
static enum tutti_result deregister_locked(const void *memory, uint64_t *id)
{
    struct registration *old = register_lookup(memory);
    if (!old)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "it is not registered; pass the pointer that was given to tutti_register");
    if (old->bytes) {
        struct tti_region region;
        if (!tti_region_find(old->base, old->bytes, &region) || deregister_there(old, region.fd))
            TTI_TRY(deregister_replace(old));
        if (tti_region_table_remove(old->base, TTI_REGION_REGISTERED, &region)) {
            close(region.fd);
            *id = region.id;
        }
    }
    register_forget(old);
    return TUTTI_OK;
}

enum tutti_result tti_region_deregister(void *memory)
{
    uint64_t gone = 0;
    pthread_mutex_lock(&register_lock);
    enum tutti_result result = deregister_locked(memory, &gone);
    pthread_mutex_unlock(&register_lock);
    if (result != TUTTI_OK)
        return TTI_CONTEXT(result, "cannot deregister %p", memory);
    if (gone)
        tti_region_gone(gone);
    return TUTTI_OK;
}
