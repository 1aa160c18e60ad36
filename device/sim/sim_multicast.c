/* Multicast objects of the simulated device: a memfd that says whose memory is bound, and in each
 * process an address range without memory behind it. What stands at an address of it is looked up
 * when a kernel asks (cuda_on_host.cuh): the same place in the memory of each member, in the order
 * of devices. Members map each other's memory when they first need it. */
#include "device/sim/sim_state.h"

#include "base/memory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MULTICAST_PAGE = 4096 };
static const uint32_t multicast_magic = 0x544d4331;

/* Shared by all processes. Written by each member in its place, once; `bound` last. */
struct multicast_page {
    uint32_t magic, members;
    uint64_t bytes;
    _Atomic uint32_t joined[TTI_SIM_MOST_DEVICES], bound[TTI_SIM_MOST_DEVICES];
    struct tti_gpu_handle memory[TTI_SIM_MOST_DEVICES];
};
_Static_assert(sizeof(struct multicast_page) <= MULTICAST_PAGE, "fits a page");

struct tti_gpu_multicast {
    struct tti_gpu_multicast *next;
    int device;
    struct multicast_page *page;
    char *address;
    bool reserved; /* the range is ours */
    size_t bytes;
    char *memory[TTI_SIM_MOST_DEVICES]; /* of each member, as it is mapped in this process ... */
    bool mapped[TTI_SIM_MOST_DEVICES];  /* ... by this object */
};

static pthread_mutex_t multicast_lock = PTHREAD_MUTEX_INITIALIZER;
static struct tti_gpu_multicast *multicasts;

static size_t multicast_round(size_t bytes)
{
    return (bytes + MULTICAST_PAGE - 1) / MULTICAST_PAGE * MULTICAST_PAGE;
}

enum tutti_result tti_sim_multicast_join(struct tti_gpu *gpu, int fd, size_t bytes,
                                         struct tti_gpu_multicast **multicast)
{
    struct tti_gpu_multicast *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    void *page = mmap(NULL, MULTICAST_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        free(made);
        return TTI_FAIL_ERRNO("simulated device: mapping a multicast object");
    }
    made->page = page;
    made->device = gpu->device;
    made->bytes = bytes;
    if (made->page->magic != multicast_magic || made->page->bytes != bytes ||
        atomic_exchange(&made->page->joined[gpu->device], 1)) {
        munmap(page, MULTICAST_PAGE);
        free(made);
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "simulated device %d: this is no multicast object of %zu bytes, or the "
                        "device is part of it already",
                        gpu->device, bytes);
    }
    *multicast = made;
    return TUTTI_OK;
}

enum tutti_result tti_sim_multicast_make(int members, size_t bytes, int *fd)
{
    const struct multicast_page page = {
        .magic = multicast_magic, .members = (uint32_t)members, .bytes = bytes};
    if (members < 1 || members > TTI_SIM_MOST_DEVICES)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "a multicast object of %d devices", members);
    const int made = memfd_create("tutti-sim-multicast", MFD_CLOEXEC);
    if (made < 0 || ftruncate(made, MULTICAST_PAGE) != 0 ||
        pwrite(made, &page, sizeof page, 0) != (ssize_t)sizeof page) {
        const enum tutti_result result =
            TTI_FAIL_ERRNO("simulated device: making a multicast object");
        if (made >= 0)
            close(made);
        return result;
    }
    *fd = made;
    return TUTTI_OK;
}

bool tti_sim_multicast_is(int fd, uint32_t *members, size_t *bytes)
{
    struct multicast_page page;
    if (pread(fd, &page, sizeof page, 0) != (ssize_t)sizeof page || page.magic != multicast_magic)
        return false;
    *members = page.members;
    *bytes = page.bytes;
    return true;
}

enum tutti_result tti_sim_multicast_create(struct tti_gpu *gpu, int members, size_t bytes, int *fd,
                                           struct tti_gpu_multicast **multicast)
{
    int made = -1;
    bytes = multicast_round(bytes);
    TTI_TRY(tti_sim_multicast_make(members, bytes, &made));
    const enum tutti_result result = tti_sim_multicast_join(gpu, made, bytes, multicast);
    if (result == TUTTI_OK)
        *fd = made;
    else
        close(made);
    return result;
}

enum tutti_result tti_sim_multicast_import(struct tti_gpu *gpu, int fd, size_t bytes,
                                           struct tti_gpu_multicast **multicast)
{
    struct stat status;
    if (fstat(fd, &status) != 0 || status.st_size != MULTICAST_PAGE)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "simulated device: descriptor %d is no multicast object", fd);
    return tti_sim_multicast_join(gpu, fd, multicast_round(bytes), multicast);
}

/* Where the driver would wait for ever for a device that does not come, this one refuses. */
enum tutti_result tti_sim_multicast_bind_at(struct tti_gpu_multicast *m, void *memory,
                                            char *address)
{
    struct tti_gpu_pointer info;
    uint32_t joined = 0;
    for (int d = 0; d < TTI_SIM_MOST_DEVICES; d++)
        joined += atomic_load(&m->page->joined[d]);
    TTI_TRY(tti_sim_pointer(memory, &info));
    if (joined != m->page->members || m->address || info.base != memory ||
        info.device != m->device || multicast_round(info.bytes) < m->bytes)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "simulated device %d: %u of %u devices have joined the multicast object of "
                        "%zu bytes, to which %zu bytes at %p of device %d shall be bound",
                        m->device, joined, m->page->members, m->bytes, info.bytes, memory,
                        info.device);
    TTI_TRY(tti_sim_memory_ticket(memory, &m->page->memory[m->device]));
    m->address = address;
    m->memory[m->device] = memory;
    pthread_mutex_lock(&multicast_lock);
    m->next = multicasts;
    multicasts = m;
    pthread_mutex_unlock(&multicast_lock);
    atomic_store_explicit(&m->page->bound[m->device], 1, memory_order_release);
    return TUTTI_OK;
}

enum tutti_result tti_sim_multicast_bind(struct tti_gpu_multicast *m, void *memory, void **address)
{
    void *range =
        mmap(NULL, m->bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
        return TTI_FAIL_ERRNO("simulated device: an address range for a multicast object");
    const enum tutti_result result = tti_sim_multicast_bind_at(m, memory, range);
    if (result != TUTTI_OK) {
        munmap(range, m->bytes);
        return result;
    }
    m->reserved = true;
    *address = range;
    return TUTTI_OK;
}

void tti_sim_multicast_destroy(struct tti_gpu_multicast *m)
{
    if (!m)
        return;
    pthread_mutex_lock(&multicast_lock);
    struct tti_gpu_multicast **link = &multicasts;
    while (*link && *link != m)
        link = &(*link)->next;
    if (*link)
        *link = m->next;
    pthread_mutex_unlock(&multicast_lock);
    for (int d = 0; d < TTI_SIM_MOST_DEVICES; d++)
        if (m->mapped[d])
            munmap(m->memory[d], m->bytes);
    if (m->reserved)
        munmap(m->address, m->bytes);
    munmap(m->page, MULTICAST_PAGE);
    free(m);
}

/* Under the lock. */
static char *multicast_memory(struct tti_gpu_multicast *m, int device)
{
    if (!m->memory[device] && atomic_load_explicit(&m->page->bound[device], memory_order_acquire)) {
        void *memory = NULL;
        const int fd = tti_sim_memory_open(&m->page->memory[device], &memory);
        if (fd >= 0) {
            memory = mmap(NULL, m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            close(fd);
            m->mapped[device] = memory != MAP_FAILED;
            memory = memory != MAP_FAILED ? memory : NULL;
        }
        m->memory[device] = memory;
    }
    return m->memory[device];
}

unsigned tti_sim_multicast_at(const void *address, void *where[], unsigned most)
{
    unsigned found = 0;
    pthread_mutex_lock(&multicast_lock);
    struct tti_gpu_multicast *m = multicasts;
    while (m && (uintptr_t)address - (uintptr_t)m->address >= m->bytes)
        m = m->next;
    for (int d = 0; m && d < TTI_SIM_MOST_DEVICES && found < most; d++) {
        char *memory = multicast_memory(m, d);
        if (memory)
            where[found++] = memory + ((const char *)address - m->address);
    }
    pthread_mutex_unlock(&multicast_lock);
    return found;
}
