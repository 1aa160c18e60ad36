/* Library-allocated regions (memory.h): a sealed memfd, mapped shared. register.c has the
 * registered ones, region_table.c the table of both. */
#include "device/memory.h"

#include "base/quiet.h"
#include "device/near.h"
#include "device/region_table.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_PAGE = 2 << 20 };

const char *tti_region_advice(int error)
{
    switch (error) {
    case EMFILE:
        return "; each allocation and registration holds a file descriptor: make fewer and larger "
               "ones, or raise the limit (ulimit -n)";
    case ENFILE:
        return "; the whole system is out of file descriptors (sysctl fs.file-max)";
    case ENOMEM:
        return "; ask for less, or look at the limits: free memory, address space (ulimit -v), "
               "mappings (sysctl vm.max_map_count), the container's memory";
    case ENOSPC:
        return "; the memory for shared objects is used up (the container's memory limit)";
    case EINVAL:
    case EFBIG:
        return "; the size is more than a shared object can have here (ulimit -f counts too)";
    case EPERM:
        return "; a security policy forbids it (a seccomp filter or sysctl vm.memfd_noexec): plain "
               "memory works as well, only slower";
    default:
        return "";
    }
}

enum tutti_result tti_region_memfd(size_t bytes, int *fd)
{
    int made = memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made < 0)
        return TTI_FAIL_ERRNO("memfd_create%s", tti_region_advice(errno));
    if (bytes > INT64_MAX || tti_quiet_ftruncate(made, (off_t)bytes) < 0) {
        if (bytes > INT64_MAX)
            errno = EFBIG;
        enum tutti_result result =
            TTI_FAIL_ERRNO("ftruncate of a memfd%s", tti_region_advice(errno));
        close(made);
        return result;
    }
    /* A kernel without seals leaves an object that works as well, only less guarded. */
    (void)fcntl(made, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    *fd = made;
    return TUTTI_OK;
}

/* A wish: refused where the kernel has no huge pages. */
void tti_region_advise(void *base, size_t bytes, bool sparse)
{
    if (sparse)
        (void)madvise(base, bytes, MADV_NOHUGEPAGE);
    else if (bytes >= HUGE_PAGE)
        (void)madvise(base, bytes, MADV_HUGEPAGE);
}

/* Map `fd` shared, at a multiple of the huge page size when a huge page fits, so that peers and
 * this process can have the same huge pages. */
static void *alloc_map(int fd, size_t bytes)
{
    if (bytes < HUGE_PAGE || bytes > SIZE_MAX - HUGE_PAGE)
        return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *room = mmap(NULL, bytes + HUGE_PAGE, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return MAP_FAILED;
    const size_t before = -(uintptr_t)room % HUGE_PAGE;
    char *base = mmap(room + before, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (base == MAP_FAILED) {
        int saved = errno;
        munmap(room, bytes + HUGE_PAGE);
        errno = saved;
        return MAP_FAILED;
    }
    if (before)
        munmap(room, before);
    munmap(base + bytes, HUGE_PAGE - before);
    return base;
}

/* Whole pages, zeroed, entered in the table. */
static enum tutti_result alloc_region(size_t bytes, bool sparse, void **memory)
{
    struct tti_region region = {.bytes = bytes, .fd = -1, .sparse = sparse};
    TTI_TRY(tti_region_memfd(bytes, &region.fd));
    enum tutti_result result;
    void *base = alloc_map(region.fd, bytes);
    if (base == MAP_FAILED) {
        result = TTI_FAIL_ERRNO("mmap of a memfd%s", tti_region_advice(errno));
    } else {
        tti_region_advise(base, bytes, sparse);
        tti_near_place(base, bytes);
        region.base = base;
        result = tti_region_table_add(&region, TTI_REGION_ALLOCATED);
        if (result != TUTTI_OK)
            munmap(base, bytes);
    }
    if (result == TUTTI_OK)
        *memory = base;
    else
        close(region.fd);
    return result;
}

static enum tutti_result alloc_pages(size_t bytes, bool sparse, void **memory)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t wanted = bytes ? bytes : 1;
    if (wanted > SIZE_MAX - page)
        return TTI_FAIL(TUTTI_ERR_MEMORY, "cannot allocate %zu bytes: more than the address space",
                        bytes);
    enum tutti_result result = alloc_region((wanted + page - 1) / page * page, sparse, memory);
    if (result != TUTTI_OK)
        return TTI_CONTEXT(result, "cannot allocate %zu bytes of shared memory", bytes);
    return TUTTI_OK;
}

enum tutti_result tti_region_alloc(size_t bytes, void **memory)
{
    return alloc_pages(bytes, false, memory);
}

enum tutti_result tti_region_alloc_sparse(size_t bytes, void **memory)
{
    return alloc_pages(bytes, true, memory);
}

/* Why tti_region_free refuses `memory`. */
static enum tutti_result free_refused(const void *memory)
{
    struct tti_region region;
    enum tti_region_kind kind;
    if (!tti_region_table_at(memory, &region, &kind))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "cannot free %p: it is not memory from tutti_alloc, or was freed before",
                        memory);
    if (kind == TTI_REGION_REGISTERED)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "cannot free %p: it was registered, not allocated; call tutti_deregister "
                        "and free it the way it was made",
                        memory);
    return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                    "cannot free %p: the allocation that it lies in begins at %p; free that",
                    memory, (void *)region.base);
}

enum tutti_result tti_region_free(void *memory)
{
    struct tti_region region;
    if (!memory)
        return TUTTI_OK;
    if (!tti_region_table_remove(memory, TTI_REGION_ALLOCATED, &region))
        return free_refused(memory);
    munmap(region.base, region.bytes);
    close(region.fd);
    tti_region_gone(region.id);
    return TUTTI_OK;
}
