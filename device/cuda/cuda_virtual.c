/* Memory that the driver maps piece by piece (cuMemCreate, cuMemMap), ours and callers': what goes
 * to other processes by descriptor, and what multicast objects are bound to. An allocation and an
 * import are a span of addresses that is noted here, since the driver wants to be told its length
 * when it goes. Not yet run on a GPU. Read next: cuda_multicast.c. */
#include "device/cuda/cuda_state.h"

#include "base/memory.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t virtual_magic = 0x54565431;

/* In a handle whose memory goes by descriptor: what it is, wherever the descriptor ends up. Numbers
 * and sizes are our own: drivers do not promise the number of an allocation for such memory, and
 * some do not find its size. */
struct virtual_ticket {
    uint32_t magic, unused;
    uint64_t process[2];
    uint64_t number, bytes; /* number: of the allocation in its process, never used again */
};
_Static_assert(sizeof(struct virtual_ticket) <= sizeof(struct tti_gpu_handle), "fits a handle");

struct virtual_span {
    struct virtual_span *next;
    const struct tti_cuda_gpu *gpu;
    tti_cu_ptr base;
    size_t bytes;
    int uses;                     /* imports of the same memory */
    struct virtual_ticket ticket; /* made, or imported, under it */
};

static pthread_mutex_t virtual_lock = PTHREAD_MUTEX_INITIALIZER;
static struct virtual_span *virtual_spans;
static _Atomic uint64_t virtual_number;

/* ---- mapping ---- */

static struct tti_cu_memory_prop virtual_prop(const struct tti_cuda_gpu *gpu)
{
    struct tti_cu_memory_prop prop = {
        .type = TTI_CU_MEMORY_PINNED,
        .handles = TTI_CU_HANDLE_FD,
        .location = {.type = TTI_CU_LOCATION_DEVICE, .id = gpu->base.device},
    };
    prop.rdma = gpu->virtual_rdma;
    return prop;
}

static enum tutti_result virtual_allow(const struct tti_cuda_gpu *gpu, tti_cu_ptr base,
                                       size_t bytes)
{
    const struct tti_cu_access access = {
        .location = {.type = TTI_CU_LOCATION_DEVICE, .id = gpu->base.device},
        .flags = TTI_CU_ACCESS_READ_WRITE};
    return tti_cuda_check(gpu->cu->memory_allow(base, bytes, &access, 1), "cuMemSetAccess");
}

enum tutti_result tti_cuda_virtual_map(const struct tti_cuda_gpu *gpu, tti_cu_memory piece,
                                       size_t bytes, tti_cu_ptr *base)
{
    const struct tti_cuda_driver *cu = gpu->cu;
    tti_cu_ptr at = 0;
    TTI_TRY(tti_cuda_check(cu->address_reserve(&at, bytes, 0, 0, 0), "cuMemAddressReserve"));
    enum tutti_result result = tti_cuda_check(cu->memory_map(at, bytes, 0, piece, 0), "cuMemMap");
    if (result == TUTTI_OK) {
        result = virtual_allow(gpu, at, bytes);
        if (result != TUTTI_OK)
            (void)cu->memory_unmap(at, bytes);
    }
    if (result != TUTTI_OK)
        (void)cu->address_free(at, bytes);
    else
        *base = at;
    return result;
}

void tti_cuda_virtual_unmap(const struct tti_cuda_gpu *gpu, tti_cu_ptr base, size_t bytes)
{
    (void)gpu->cu->memory_unmap(base, bytes);
    (void)gpu->cu->address_free(base, bytes);
}

/* ---- spans ---- */

static enum tutti_result span_add(const struct tti_cuda_gpu *gpu, tti_cu_ptr base, size_t bytes,
                                  const struct virtual_ticket *ticket)
{
    struct virtual_span *span = tti_calloc(1, sizeof *span);
    if (!span)
        return TUTTI_ERR_MEMORY;
    span->gpu = gpu;
    span->base = base;
    span->bytes = bytes;
    span->uses = 1;
    span->ticket = *ticket;
    pthread_mutex_lock(&virtual_lock);
    span->next = virtual_spans;
    virtual_spans = span;
    pthread_mutex_unlock(&virtual_lock);
    return TUTTI_OK;
}

/* Map a piece and note it; the piece lives as long as its mapping, or not at all. */
static enum tutti_result span_make(const struct tti_cuda_gpu *gpu, tti_cu_memory piece,
                                   size_t bytes, const struct virtual_ticket *ticket,
                                   tti_cu_ptr *base)
{
    enum tutti_result result = tti_cuda_virtual_map(gpu, piece, bytes, base);
    (void)gpu->cu->memory_release(piece);
    TTI_TRY(result);
    result = span_add(gpu, *base, bytes, ticket);
    if (result != TUTTI_OK)
        tti_cuda_virtual_unmap(gpu, *base, bytes);
    return result;
}

/* Under the lock: one more use of what was imported for this device under this ticket. */
static bool span_again(const struct tti_cuda_gpu *gpu, const struct virtual_ticket *ticket,
                       tti_cu_ptr *base)
{
    for (struct virtual_span *span = virtual_spans; span; span = span->next) {
        if (span->gpu == gpu && memcmp(&span->ticket, ticket, sizeof *ticket) == 0) {
            span->uses++;
            *base = span->base;
            return true;
        }
    }
    return false;
}

/* Freeing plain memory waits for all that is queued on the device, and whoever frees counts on
 * that; unmapping need not (cuda.h says of it that it does "for most use cases"), and takes the
 * addresses away under what still runs. So some plain memory is freed first. In a capture, too,
 * where cuCtxSynchronize is refused. */
static void virtual_wait(const struct tti_cuda_gpu *gpu)
{
    tti_cu_ptr plain = 0;
    if (gpu->cu->memory_alloc(&plain, 1) == TTI_CU_OK)
        (void)gpu->cu->memory_free(plain);
}

bool tti_cuda_virtual_free(struct tti_cuda_gpu *gpu, void *memory)
{
    const tti_cu_ptr base = (tti_cu_ptr)(uintptr_t)memory;
    pthread_mutex_lock(&virtual_lock);
    struct virtual_span **link = &virtual_spans;
    while (*link && (*link)->base != base)
        link = &(*link)->next;
    struct virtual_span *span = *link;
    const bool last = span && --span->uses == 0;
    if (last)
        *link = span->next;
    pthread_mutex_unlock(&virtual_lock);
    struct tti_cuda_visit visit;
    if (last && tti_cuda_enter(gpu, &visit) == TUTTI_OK) {
        virtual_wait(gpu);
        tti_cuda_virtual_unmap(gpu, base, span->bytes);
        tti_cuda_leave(gpu, &visit);
    }
    if (last)
        free(span);
    return span != NULL;
}

/* ---- making ---- */

static struct virtual_ticket ticket_new(size_t bytes)
{
    struct virtual_ticket ticket = {
        .magic = virtual_magic, .number = ++virtual_number, .bytes = bytes};
    tti_gpu_process(ticket.process);
    return ticket;
}

static enum tutti_result virtual_alloc(struct tti_cuda_gpu *gpu, size_t bytes, tti_cu_ptr *base)
{
    const struct tti_cuda_driver *cu = gpu->cu;
    const struct tti_cu_memory_prop prop = virtual_prop(gpu);
    size_t page = 0, multicast = 0;
    tti_cu_memory piece = 0;
    TTI_TRY(tti_cuda_check(cu->memory_page(&page, &prop, TTI_CU_PAGE_MINIMUM),
                           "cuMemGetAllocationGranularity"));
    TTI_TRY(tti_cuda_multicast_page(gpu, bytes, &multicast));
    page = multicast > page ? multicast : page;
    bytes = (bytes + page - 1) / page * page;
    TTI_TRY(tti_cuda_check(cu->memory_create(&piece, bytes, &prop, 0), "cuMemCreate"));
    const struct virtual_ticket ticket = ticket_new(bytes);
    return span_make(gpu, piece, bytes, &ticket, base);
}

enum tutti_result tti_cuda_alloc_shared(struct tti_gpu *base, size_t bytes, void **memory)
{
    struct tti_cuda_gpu *gpu = tti_cuda_of(base);
    struct tti_cuda_visit visit;
    tti_cu_ptr made = 0;
    if (!gpu->virtual_fd || bytes == 0)
        return base->ops->alloc(base, TTI_MEMORY_DEVICE, bytes, memory);
    TTI_TRY(tti_cuda_enter(gpu, &visit));
    const enum tutti_result result = virtual_alloc(gpu, bytes, &made);
    tti_cuda_leave(gpu, &visit);
    if (result != TUTTI_OK)
        return TTI_CONTEXT(result, "allocating %zu bytes on device %d", bytes, base->device);
    *memory = (void *)(uintptr_t)made;
    return TUTTI_OK;
}

/* ---- other processes ---- */

/* Of memory that was made here, or imported. */
static bool ticket_find(const void *memory, struct virtual_ticket *ticket)
{
    bool found = false;
    pthread_mutex_lock(&virtual_lock);
    for (const struct virtual_span *span = virtual_spans; span && !found; span = span->next) {
        found = span->base == (tti_cu_ptr)(uintptr_t)memory;
        if (found)
            *ticket = span->ticket;
    }
    pthread_mutex_unlock(&virtual_lock);
    return found;
}

static enum tutti_result virtual_describe(const struct tti_cuda_gpu *gpu, const void *memory,
                                          tti_cu_memory piece, int *fd)
{
    const struct tti_cuda_driver *cu = gpu->cu;
    struct tti_cu_memory_prop prop;
    TTI_TRY(
        tti_cuda_check(cu->memory_prop(&prop, piece), "cuMemGetAllocationPropertiesFromHandle"));
    if (!(prop.handles & TTI_CU_HANDLE_FD))
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "device memory at %p cannot be given to another process by descriptor: it "
                        "was made for %s; make it with CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, "
                        "as ncclMemAlloc does",
                        memory,
                        prop.handles & TTI_CU_HANDLE_FABRIC ? "fabric handles alone"
                                                            : "this process alone");
    return tti_cuda_check(cu->memory_export(fd, piece, TTI_CU_HANDLE_FD, 0),
                          "cuMemExportToShareableHandle");
}

enum tutti_result tti_cuda_virtual_export(struct tti_cuda_gpu *gpu, const void *memory,
                                          struct tti_gpu_handle *handle, int *fd, bool *is)
{
    tti_cu_memory piece = 0;
    *is = gpu->virtual_fd && gpu->cu->memory_retain(&piece, (void *)(uintptr_t)memory) == TTI_CU_OK;
    if (!*is)
        return TUTTI_OK;
    enum tutti_result result = virtual_describe(gpu, memory, piece, fd);
    (void)gpu->cu->memory_release(piece);
    TTI_TRY(result);
    struct virtual_ticket ticket;
    if (!ticket_find(memory, &ticket)) { /* a caller's: each time under another number */
        tti_cu_ptr base = 0;
        size_t bytes = 0;
        tti_cuda_virtual_mapped(gpu, (tti_cu_ptr)(uintptr_t)memory, &base, &bytes);
        ticket = ticket_new(bytes);
    }
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &ticket, sizeof ticket);
    return TUTTI_OK;
}

enum tutti_result tti_cuda_virtual_import(struct tti_cuda_gpu *gpu,
                                          const struct tti_gpu_handle *handle, int fd,
                                          tti_cu_ptr *base)
{
    struct virtual_ticket ticket;
    uint64_t process[2];
    tti_cu_memory piece = 0;
    memcpy(&ticket, handle, sizeof ticket);
    tti_gpu_process(process);
    if (ticket.magic != virtual_magic || ticket.bytes == 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "these bytes are no handle of device memory that goes by descriptor");
    if (memcmp(process, ticket.process, sizeof process) == 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "a handle is for other processes, not for the one that made it");
    pthread_mutex_lock(&virtual_lock);
    const bool again = span_again(gpu, &ticket, base);
    pthread_mutex_unlock(&virtual_lock);
    if (again)
        return TUTTI_OK;
    TTI_TRY(tti_cuda_check(gpu->cu->memory_import(&piece, (void *)(uintptr_t)fd, TTI_CU_HANDLE_FD),
                           "cuMemImportFromShareableHandle"));
    return span_make(gpu, piece, ticket.bytes, &ticket, base);
}

/* ---- other devices of this process ---- */

void tti_cuda_virtual_mapped(const struct tti_cuda_gpu *gpu, tti_cu_ptr at, tti_cu_ptr *base,
                             size_t *bytes)
{
    const struct tti_cuda_driver *cu = gpu->cu;
    *bytes = 0;
    pthread_mutex_lock(&virtual_lock);
    for (const struct virtual_span *span = virtual_spans; span; span = span->next) {
        if (at - span->base < span->bytes) {
            *base = span->base;
            *bytes = span->bytes;
        }
    }
    pthread_mutex_unlock(&virtual_lock);
    if (*bytes > 0)
        return;
    /* Not cuPointerGetAttributes, whose list of attributes has neither; nor its RANGE_SIZE, which
     * is that of the addresses that were reserved. */
    if (cu->pointer_one(base, TTI_CU_POINTER_MAPPED_AT, at) == TTI_CU_OK &&
        cu->pointer_one(bytes, TTI_CU_POINTER_MAPPED_BYTES, at) == TTI_CU_OK && *bytes > 0 &&
        at - *base < *bytes)
        return;
    if (cu->address_range(base, bytes, at) != TTI_CU_OK || at - *base >= *bytes)
        *bytes = 0;
}

enum tutti_result tti_cuda_virtual_reach(struct tti_cuda_gpu *gpu, const void *memory, bool *is)
{
    tti_cu_memory piece = 0;
    tti_cu_ptr base = 0;
    size_t bytes = 0;
    *is = gpu->virtual_fd && gpu->cu->memory_retain(&piece, (void *)(uintptr_t)memory) == TTI_CU_OK;
    if (!*is)
        return TUTTI_OK;
    (void)gpu->cu->memory_release(piece);
    tti_cuda_virtual_mapped(gpu, (tti_cu_ptr)(uintptr_t)memory, &base, &bytes);
    return virtual_allow(gpu, base, bytes);
}
