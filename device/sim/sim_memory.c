/* Memory of the simulated device: a list of what addresses are, and memfds behind device memory so
 * that other processes can map it. Handles name a descriptor of the exporter in /proc; the importer
 * opens it there, which the kernel allows to the same user. */
#include "device/sim/sim_state.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { POISON = 0xcb, POISON_BYTES = 1 << 20 };
static const uint32_t memory_magic = 0x54474d31;

struct piece {
    struct piece *next;
    struct tti_gpu_pointer info;
    size_t mapped;
    int fd;         /* DEVICE memory made here; else -1 */
    bool shared;    /* goes to others by descriptor */
    bool ours;      /* made here, or mapped; not so what the caller registered */
    uint64_t inode; /* imported: whose it is */
    int32_t pid;    /* imported: from there; 0: not imported */
    int uses;       /* imported: how often */
};

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static struct piece *memory_pieces;
static uint64_t memory_ids;

/* Under the lock: the piece that holds the address. */
static struct piece *memory_find(const void *address)
{
    const uintptr_t at = (uintptr_t)address;
    for (struct piece *piece = memory_pieces; piece; piece = piece->next)
        if (at - (uintptr_t)piece->info.base < piece->info.bytes)
            return piece;
    return NULL;
}

static void memory_add(struct piece *piece)
{
    pthread_mutex_lock(&memory_lock);
    piece->info.id = ++memory_ids;
    piece->next = memory_pieces;
    memory_pieces = piece;
    pthread_mutex_unlock(&memory_lock);
}

/* Take the piece that begins there, and is of one's own making or not, out of the list. */
static struct piece *memory_take(const void *base, bool ours)
{
    pthread_mutex_lock(&memory_lock);
    struct piece **link = &memory_pieces;
    while (*link && ((*link)->info.base != base || (*link)->ours != ours))
        link = &(*link)->next;
    struct piece *piece = *link;
    if (piece && piece->pid && --piece->uses > 0)
        piece = NULL;
    if (piece)
        *link = piece->next;
    pthread_mutex_unlock(&memory_lock);
    return piece;
}

static void piece_free(struct piece *piece)
{
    if (!piece)
        return;
    if (piece->ours)
        munmap(piece->info.base, piece->mapped);
    if (piece->fd >= 0)
        close(piece->fd);
    free(piece);
}

static struct piece *piece_new(enum tti_memory_kind kind, int device, size_t bytes)
{
    struct piece *piece = tti_calloc(1, sizeof *piece);
    if (!piece)
        return NULL;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    piece->info.kind = kind;
    piece->info.device = device;
    piece->info.bytes = bytes;
    piece->mapped = (bytes + page - 1) / page * page;
    piece->fd = -1;
    return piece;
}

enum tutti_result tti_sim_alloc(struct tti_gpu *gpu, enum tti_memory_kind kind, size_t bytes,
                                void **memory)
{
    if (bytes == 0 || kind == TTI_MEMORY_HOST)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "simulated device: cannot allocate %zu bytes of kind %d", bytes, (int)kind);
    struct piece *piece = piece_new(kind, gpu->device, bytes);
    if (!piece)
        return TUTTI_ERR_MEMORY;
    if (kind == TTI_MEMORY_DEVICE) {
        piece->fd = memfd_create("tutti-sim-memory", MFD_CLOEXEC);
        if (piece->fd < 0 || ftruncate(piece->fd, (off_t)piece->mapped) != 0) {
            const enum tutti_result result =
                TTI_FAIL_ERRNO("simulated device: making a memfd of %zu bytes", bytes);
            piece_free(piece);
            return result;
        }
    }
    void *base = mmap(NULL, piece->mapped, PROT_READ | PROT_WRITE,
                      piece->fd >= 0 ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, piece->fd, 0);
    if (base == MAP_FAILED) {
        piece_free(piece);
        return TTI_FAIL(TUTTI_ERR_MEMORY, "simulated device: cannot map %zu bytes: %s", bytes,
                        strerror(errno));
    }
    piece->info.base = base;
    piece->ours = true;
    memset(base, POISON, bytes < POISON_BYTES ? bytes : POISON_BYTES);
    memory_add(piece);
    *memory = base;
    return TUTTI_OK;
}

/* As a real one, rounded up. */
enum tutti_result tti_sim_alloc_shared(struct tti_gpu *gpu, size_t bytes, void **memory)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    TTI_TRY(tti_sim_alloc(gpu, TTI_MEMORY_DEVICE, (bytes + page - 1) / page * page, memory));
    pthread_mutex_lock(&memory_lock);
    memory_find(*memory)->shared = true;
    pthread_mutex_unlock(&memory_lock);
    return TUTTI_OK;
}

void tti_sim_free(struct tti_gpu *gpu, void *memory)
{
    (void)gpu;
    if (memory)
        piece_free(memory_take(memory, true));
}

enum tutti_result tti_sim_host_register(struct tti_gpu *gpu, void *memory, size_t bytes)
{
    struct tti_gpu_pointer info;
    TTI_TRY(tti_sim_pointer(memory, &info));
    if (info.kind != TTI_MEMORY_HOST || bytes == 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "simulated device: %p (%zu bytes) cannot be registered: it is empty, or "
                        "known already",
                        memory, bytes);
    struct piece *piece = piece_new(TTI_MEMORY_PINNED, gpu->device, bytes);
    if (!piece)
        return TUTTI_ERR_MEMORY;
    piece->info.base = memory;
    memory_add(piece);
    return TUTTI_OK;
}

enum tutti_result tti_sim_host_unregister(struct tti_gpu *gpu, void *memory)
{
    (void)gpu;
    struct piece *piece = memory_take(memory, false);
    if (!piece)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "simulated device: %p is not registered", memory);
    piece_free(piece);
    return TUTTI_OK;
}

enum tutti_result tti_sim_pointer(const void *address, struct tti_gpu_pointer *info)
{
    struct tti_gpu_pointer found = {.kind = TTI_MEMORY_HOST, .device = -1};
    pthread_mutex_lock(&memory_lock);
    const struct piece *piece = memory_find(address);
    if (piece)
        found = piece->info;
    pthread_mutex_unlock(&memory_lock);
    *info = found;
    return TUTTI_OK;
}

enum tutti_result tti_sim_memory_adopt(struct tti_gpu *gpu, void *base, size_t bytes, int fd)
{
    struct piece *piece = piece_new(TTI_MEMORY_DEVICE, gpu->device, bytes);
    if (!piece)
        return TUTTI_ERR_MEMORY;
    piece->info.base = base;
    piece->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    memory_add(piece);
    return TUTTI_OK;
}

void tti_sim_memory_abandon(void *base)
{
    piece_free(memory_take(base, false));
}

/* ---- Other processes --------------------------------------------------------------------------
 */

enum tutti_result tti_sim_ticket_make(uint32_t magic, int fd, int device, uint64_t bytes,
                                      struct tti_gpu_handle *handle)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return TTI_FAIL_ERRNO("simulated device: looking at memfd %d", fd);
    const struct tti_sim_ticket ticket = {
        .magic = magic,
        .pid = (int32_t)getpid(),
        .fd = fd,
        .device = device,
        .inode = (uint64_t)status.st_ino,
        .bytes = bytes,
    };
    _Static_assert(sizeof ticket <= sizeof *handle, "a ticket fits a handle");
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &ticket, sizeof ticket);
    return TUTTI_OK;
}

int tti_sim_ticket_open(const struct tti_sim_ticket *ticket, uint32_t magic,
                        enum tutti_result *result)
{
    if (ticket->magic != magic) {
        *result = TTI_FAIL(TUTTI_ERR_ARGUMENT,
                           "simulated device: these bytes are no handle of the kind asked for");
        return -1;
    }
    if (ticket->pid == (int32_t)getpid()) {
        *result = TTI_FAIL(TUTTI_ERR_ARGUMENT,
                           "simulated device: a handle is for other processes, not for the one "
                           "that made it");
        return -1;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)ticket->pid, (int)ticket->fd);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    struct stat status;
    if (fd < 0 || fstat(fd, &status) != 0) {
        *result = TTI_FAIL_ERRNO("simulated device: opening %s for a handle", path);
    } else if ((uint64_t)status.st_ino != ticket->inode) {
        *result = TTI_FAIL(TUTTI_ERR_ARGUMENT,
                           "simulated device: what the handle named in process %d is gone",
                           (int)ticket->pid);
    } else {
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* The descriptor behind device memory made here that holds the address; -1: there is none. */
static int memory_descriptor(const void *address, struct tti_gpu_pointer *info, bool *shared)
{
    int fd = -1;
    *shared = false;
    pthread_mutex_lock(&memory_lock);
    const struct piece *piece = memory_find(address);
    if (piece) {
        fd = piece->fd;
        *info = piece->info;
        *shared = piece->shared;
    }
    pthread_mutex_unlock(&memory_lock);
    return fd;
}

enum tutti_result tti_sim_memory_dmabuf(struct tti_gpu *gpu, const void *memory, size_t bytes,
                                        int *fd, uint64_t *offset)
{
    struct tti_gpu_pointer info = {.base = NULL};
    bool shared;
    const int own = memory_descriptor(memory, &info, &shared);
    const size_t at = (size_t)((const char *)memory - (const char *)info.base);
    (void)gpu;
    if (own < 0 || bytes > info.bytes - at)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "simulated device: %p (%zu bytes) is not within device memory made in this "
                        "process",
                        memory, bytes);
    const int out = fcntl(own, F_DUPFD_CLOEXEC, 0);
    if (out < 0)
        return TTI_FAIL_ERRNO("simulated device: a descriptor of memory for an adapter");
    *fd = out;
    *offset = at;
    return TUTTI_OK;
}

static enum tutti_result memory_name(const void *base, struct tti_gpu_handle *handle, int *own,
                                     bool *shared)
{
    struct tti_gpu_pointer info = {.base = NULL};
    *own = memory_descriptor(base, &info, shared);
    if (*own < 0 || info.base != base)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "simulated device: %p is not the base of device memory made in this "
                        "process",
                        base);
    return tti_sim_ticket_make(memory_magic, *own, info.device, info.bytes, handle);
}

enum tutti_result tti_sim_memory_ticket(const void *base, struct tti_gpu_handle *handle)
{
    bool shared;
    int own;
    return memory_name(base, handle, &own, &shared);
}

enum tutti_result tti_sim_memory_export(struct tti_gpu *gpu, const void *base,
                                        struct tti_gpu_handle *handle, int *fd)
{
    bool shared;
    int own, out = -1;
    (void)gpu;
    TTI_TRY(memory_name(base, handle, &own, &shared));
    if (shared && (out = fcntl(own, F_DUPFD_CLOEXEC, 0)) < 0)
        return TTI_FAIL_ERRNO("simulated device: a descriptor of memory for another process");
    *fd = out;
    return TUTTI_OK;
}

int tti_sim_memory_open(const struct tti_gpu_handle *handle, void **ours)
{
    struct tti_sim_ticket ticket;
    enum tutti_result result = TUTTI_OK;
    memcpy(&ticket, handle, sizeof ticket);
    if (ticket.pid != (int32_t)getpid())
        return tti_sim_ticket_open(&ticket, memory_magic, &result);
    pthread_mutex_lock(&memory_lock);
    for (const struct piece *piece = memory_pieces; piece; piece = piece->next)
        if (piece->fd == ticket.fd)
            *ours = piece->info.base;
    pthread_mutex_unlock(&memory_lock);
    return -1;
}

/* Under the lock: what was imported under this ticket already. */
static struct piece *memory_imported(const struct tti_sim_ticket *ticket)
{
    for (struct piece *piece = memory_pieces; piece; piece = piece->next)
        if (piece->pid == ticket->pid && piece->inode == ticket->inode)
            return piece;
    return NULL;
}

/* A descriptor to map by: the one that came with the handle, or one found by it. */
static int memory_arrived(const struct tti_sim_ticket *ticket, int came, enum tutti_result *result)
{
    struct stat status;
    if (came < 0)
        return tti_sim_ticket_open(ticket, memory_magic, result);
    if (ticket->magic != memory_magic || ticket->pid == (int32_t)getpid() ||
        fstat(came, &status) != 0 || (uint64_t)status.st_ino != ticket->inode) {
        *result = TTI_FAIL(TUTTI_ERR_ARGUMENT,
                           "simulated device: the handle is this process's own, or not that of "
                           "descriptor %d",
                           came);
        return -1;
    }
    const int fd = fcntl(came, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        *result = TTI_FAIL_ERRNO("simulated device: a descriptor of another process's memory");
    return fd;
}

enum tutti_result tti_sim_memory_import(struct tti_gpu *gpu, const struct tti_gpu_handle *handle,
                                        int came, void **base)
{
    struct tti_sim_ticket ticket;
    memcpy(&ticket, handle, sizeof ticket);
    (void)gpu;
    enum tutti_result result = TUTTI_OK;
    const int fd = memory_arrived(&ticket, came, &result);
    if (fd < 0)
        return result;
    struct piece *piece = piece_new(TTI_MEMORY_DEVICE, ticket.device, ticket.bytes);
    if (!piece) {
        close(fd);
        return TUTTI_ERR_MEMORY;
    }
    pthread_mutex_lock(&memory_lock);
    struct piece *known = memory_imported(&ticket);
    if (known) {
        known->uses++;
        *base = known->info.base;
    }
    pthread_mutex_unlock(&memory_lock);
    if (known) {
        free(piece);
        close(fd);
        return TUTTI_OK;
    }
    void *memory = mmap(NULL, piece->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED) {
        free(piece);
        return TTI_FAIL(TUTTI_ERR_MEMORY,
                        "simulated device: cannot map %llu bytes of process %d: %s",
                        (unsigned long long)ticket.bytes, (int)ticket.pid, strerror(errno));
    }
    piece->info.base = memory;
    piece->ours = true;
    piece->inode = ticket.inode;
    piece->pid = ticket.pid;
    piece->uses = 1;
    memory_add(piece);
    *base = memory;
    return TUTTI_OK;
}

void tti_sim_memory_release(struct tti_gpu *gpu, void *base)
{
    (void)gpu;
    piece_free(memory_take(base, true));
}
