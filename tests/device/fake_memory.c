/* Memory of the fake CUDA driver (fake_cuda.c): allocations are the simulated device's; memory that
 * is mapped piece by piece is made here, of memfds, and made known to it. */
#include "tests/device/fake_cuda.h"

#include "device/sim/sim_state.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void *at(tti_cu_ptr address)
{
    return (void *)(uintptr_t)address;
}

/* ---- What is mapped piece by piece --------------------------------------------------------------
 */

enum { PAGE = 2 << 20, MOST_MAPPED = 1024 };

/* A handle is the address of one. */
struct fake_piece {
    int holders, fd;
    struct tti_cu_memory_prop prop;
    size_t bytes;
    int members;                             /* of a multicast object; 0: memory */
    struct tti_gpu_multicast *multicast[16]; /* by device */
    void *bound[16];
};

static struct {
    char *base;
    size_t bytes;
    struct fake_piece *piece;
    struct tti_gpu_multicast *multicast;
    unsigned allowed; /* devices, a bit each */
} mapped[MOST_MAPPED];
static pthread_mutex_t mapped_lock = PTHREAD_MUTEX_INITIALIZER;

/* Under the lock: the mapping that holds the address, or a free place for NULL; -1: there is none.
 */
static int mapped_find(const void *address)
{
    for (int i = 0; i < MOST_MAPPED; i++)
        if (address
                ? mapped[i].base && (uintptr_t)address - (uintptr_t)mapped[i].base < mapped[i].bytes
                : !mapped[i].base)
            return i;
    return -1;
}

static bool mapped_has(const void *address)
{
    pthread_mutex_lock(&mapped_lock);
    const bool has = mapped_find(address) >= 0;
    pthread_mutex_unlock(&mapped_lock);
    return has;
}

/* ---- Plain memory -------------------------------------------------------------------------------
 */

/* "Page-locked host memory allocation" and "device memory allocation" are in the list of what keeps
 * streams apart ("Implicit Synchronization") of CUDA's programming guide up to version 11; newer
 * ones have no such list. TUTTI_FAKE_ALLOC_WAITS=1: they wait for the device.
 * TUTTI_FAKE_LOCKING_WAITS=1: so does locking pages where they lie, of which no text says so. */
static unsigned drain_if(const char *variable, const char *what)
{
    const char *waits = getenv(variable);
    return waits && strcmp(waits, "1") == 0 && fake_now() && !fake_refused() ? fake_drain(what)
                                                                             : TTI_CU_OK;
}

DRIVER cuMemAlloc_v2(tti_cu_ptr *memory, size_t bytes)
{
    void *made = NULL;
    unsigned result = drain_if("TUTTI_FAKE_ALLOC_WAITS", "allocating memory");
    if (result == TTI_CU_OK)
        result = SAFE_IN_CONTEXT(fake_ops()->alloc(fake_now(), TTI_MEMORY_DEVICE, bytes, &made));
    *memory = (tti_cu_ptr)(uintptr_t)made;
    return result;
}
DRIVER cuMemFree_v2(tti_cu_ptr memory)
{
    if (fake_refused())
        return TTI_CU_CAPTURE_FIRST;
    fake_pool_forget(at(memory));
    const unsigned result = fake_drain("freeing memory");
    if (result ==
        TTI_CU_OK) /* else a kernel may still be at it: the real driver would not return */
        fake_ops()->free(fake_now(), at(memory));
    return result;
}
DRIVER cuMemAllocManaged(tti_cu_ptr *memory, size_t bytes, unsigned flags)
{
    void *made = NULL;
    const unsigned result =
        SAFE_IN_CONTEXT(fake_ops()->alloc(fake_now(), TTI_MEMORY_MANAGED, bytes, &made));
    *memory = (tti_cu_ptr)(uintptr_t)made;
    return flags == TTI_CU_ATTACH_GLOBAL ? result : TTI_CU_INVALID_VALUE;
}
DRIVER cuMemHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    const unsigned result = drain_if("TUTTI_FAKE_ALLOC_WAITS", "allocating page-locked memory");
    return result != TTI_CU_OK
               ? result
               : SAFE_IN_CONTEXT(fake_ops()->alloc(fake_now(), TTI_MEMORY_PINNED, bytes, memory));
}
DRIVER cuMemFreeHost(void *memory)
{
    if (fake_refused())
        return TTI_CU_CAPTURE_FIRST;
    const unsigned result = fake_drain("freeing page-locked memory");
    if (result == TTI_CU_OK)
        fake_ops()->free(fake_now(), memory);
    return result;
}
DRIVER cuMemHostRegister_v2(void *memory, size_t bytes, unsigned flags)
{
    (void)flags;
    const unsigned result = drain_if("TUTTI_FAKE_LOCKING_WAITS", "locking pages");
    if (result != TTI_CU_OK)
        return result;
    return SAFE_IN_CONTEXT(fake_ops()->host_register(fake_now(), memory, bytes));
}
DRIVER cuMemHostUnregister(void *memory)
{
    const unsigned result = fake_drain("unlocking pages");
    if (result != TTI_CU_OK)
        return result;
    return SAFE_IN_CONTEXT(fake_ops()->host_unregister(fake_now(), memory));
}
DRIVER cuPointerGetAttributes(unsigned count, unsigned *attributes, void **values,
                              tti_cu_ptr pointer)
{
    struct tti_gpu_pointer info;
    if (!fake_now())
        return TTI_CU_NO_CONTEXT;
    (void)fake_ops()->pointer(at(pointer), &info);
    const unsigned type = info.kind == TTI_MEMORY_HOST     ? 0
                          : info.kind == TTI_MEMORY_PINNED ? TTI_CU_TYPE_HOST
                                                           : TTI_CU_TYPE_DEVICE;
    const unsigned managed = info.kind == TTI_MEMORY_MANAGED;
    /* Of memory that is mapped piece by piece neither is promised, and drivers were seen that do
     * not find the range. */
    const bool piece_by_piece = mapped_has(at(pointer));
    const unsigned long long id = piece_by_piece ? 0 : info.id;
    const size_t bytes = piece_by_piece ? 0 : info.bytes;
    const tti_cu_ptr start = piece_by_piece ? 0 : (tti_cu_ptr)(uintptr_t)info.base;
    const tti_cu_pool pool = fake_pool_of(info.base);
    const unsigned legacy = info.kind == TTI_MEMORY_DEVICE && !piece_by_piece && !pool;
    for (unsigned i = 0; i < count; i++) {
        switch (attributes[i]) {
        case TTI_CU_POINTER_TYPE:
            memcpy(values[i], &type, sizeof type);
            break;
        case TTI_CU_POINTER_MANAGED:
            memcpy(values[i], &managed, sizeof(char)); /* a C++ bool */
            break;
        case TTI_CU_POINTER_DEVICE:
            memcpy(values[i], &info.device, sizeof info.device);
            break;
        case TTI_CU_POINTER_START:
            memcpy(values[i], &start, sizeof start);
            break;
        case TTI_CU_POINTER_SIZE:
            memcpy(values[i], &bytes, sizeof bytes);
            break;
        case TTI_CU_POINTER_ID:
            memcpy(values[i], &id, sizeof id);
            break;
        case TTI_CU_POINTER_LEGACY:
            memcpy(values[i], &legacy, sizeof legacy);
            break;
        case TTI_CU_POINTER_POOL:
            memcpy(values[i], &pool, sizeof pool);
            break;
        default:
            return TTI_CU_INVALID_VALUE;
        }
    }
    return TTI_CU_OK;
}
/* Of these two alone; TUTTI_FAKE_NO_MAPPING=1: a driver that does not know them. */
DRIVER cuPointerGetAttribute(void *value, unsigned attribute, tti_cu_ptr pointer)
{
    struct tti_gpu_pointer info;
    if (getenv("TUTTI_FAKE_NO_MAPPING") || !mapped_has(at(pointer)))
        return TTI_CU_INVALID_VALUE;
    (void)fake_ops()->pointer(at(pointer), &info);
    if (attribute == TTI_CU_POINTER_MAPPED_AT)
        memcpy(value, &info.base, sizeof info.base);
    else if (attribute == TTI_CU_POINTER_MAPPED_BYTES)
        memcpy(value, &info.bytes, sizeof info.bytes);
    else
        return TTI_CU_INVALID_VALUE;
    return TTI_CU_OK;
}
DRIVER cuMemGetAddressRange_v2(tti_cu_ptr *base, size_t *bytes, tti_cu_ptr pointer)
{
    struct tti_gpu_pointer info;
    (void)fake_ops()->pointer(at(pointer), &info);
    *base = (tti_cu_ptr)(uintptr_t)info.base;
    *bytes = info.bytes;
    return info.kind == TTI_MEMORY_DEVICE ? TTI_CU_OK : TTI_CU_INVALID_VALUE;
}
DRIVER cuIpcGetMemHandle(tti_cu_handle *handle, tti_cu_ptr memory)
{
    int fd = -1;
    if (getenv("TUTTI_FAKE_NO_EXPORT"))
        return TTI_CU_NOT_SUPPORTED;
    if (mapped_has(at(memory)) || fake_pool_of(at(memory))) /* of cuMemAlloc's alone */
        return TTI_CU_INVALID_VALUE;
    return IN_CONTEXT(fake_ops()->memory_export(fake_now(), at(memory), handle, &fd));
}
DRIVER cuIpcOpenMemHandle_v2(tti_cu_ptr *memory, tti_cu_handle handle, unsigned flags)
{
    void *found = NULL;
    struct tti_sim_ticket ticket;
    memcpy(&ticket, &handle, sizeof ticket);
    if (ticket.pid == (int32_t)getpid()) /* the process that made it */
        return TTI_CU_NO_CONTEXT;
    const unsigned result =
        SAFE_IN_CONTEXT(fake_ops()->memory_import(fake_now(), &handle, -1, &found));
    *memory = (tti_cu_ptr)(uintptr_t)found;
    return flags == TTI_CU_IPC_LAZY_PEER ? result : TTI_CU_INVALID_VALUE;
}
DRIVER cuIpcCloseMemHandle(tti_cu_ptr memory)
{
    const unsigned result = fake_drain("closing a handle of memory");
    if (result == TTI_CU_OK)
        fake_ops()->memory_release(fake_now(), at(memory));
    return result;
}
/* Whole pages, from the first of an allocation on. */
DRIVER cuMemGetHandleForAddressRange(void *handle, tti_cu_ptr memory, size_t bytes, unsigned kind,
                                     unsigned long long flags)
{
    struct tti_gpu_pointer info;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t offset = 0;
    int fd = -1;
    if (!fake_now())
        return TTI_CU_NO_CONTEXT;
    (void)fake_ops()->pointer(at(memory), &info);
    if (kind != TTI_CU_RANGE_DMABUF || flags || memory % page || bytes == 0 || bytes % page ||
        info.kind != TTI_MEMORY_DEVICE || info.base != at(memory) ||
        bytes > (info.bytes + page - 1) / page * page)
        return TTI_CU_INVALID_VALUE;
    const unsigned result =
        SAFE_IN_CONTEXT(fake_ops()->memory_dmabuf(fake_now(), at(memory), 1, &fd, &offset));
    memcpy(handle, &fd, sizeof fd);
    return result;
}

/* ---- Memory that is mapped piece by piece -----------------------------------------------------
 */

static struct fake_piece *piece_of(tti_cu_memory memory)
{
    return (struct fake_piece *)(uintptr_t)memory;
}

static unsigned piece_new(int fd, size_t bytes, tti_cu_memory *memory)
{
    struct fake_piece *piece = calloc(1, sizeof *piece);
    if (!piece || fd < 0)
        return TTI_CU_OUT_OF_MEMORY;
    piece->holders = 1;
    piece->fd = fd;
    piece->bytes = bytes;
    piece->prop.handles = TTI_CU_HANDLE_FD;
    *memory = (tti_cu_memory)(uintptr_t)piece;
    return TTI_CU_OK;
}

DRIVER cuMemGetAllocationGranularity(size_t *bytes, const struct tti_cu_memory_prop *prop,
                                     unsigned kind)
{
    *bytes = PAGE;
    return prop->type == TTI_CU_MEMORY_PINNED && kind == TTI_CU_PAGE_MINIMUM ? TTI_CU_OK
                                                                             : TTI_CU_INVALID_VALUE;
}
DRIVER cuMemCreate(tti_cu_memory *memory, size_t bytes, const struct tti_cu_memory_prop *prop,
                   unsigned long long flags)
{
    if (fake_refused())
        return TTI_CU_CAPTURE_FIRST;
    if (bytes % PAGE || flags || prop->location.type != TTI_CU_LOCATION_DEVICE)
        return TTI_CU_INVALID_VALUE;
    const int fd = memfd_create("tutti-fake-memory", MFD_CLOEXEC);
    if (fd >= 0 && ftruncate(fd, (off_t)bytes) != 0)
        return FAKE_UNKNOWN;
    const unsigned result = piece_new(fd, bytes, memory);
    if (result == TTI_CU_OK)
        piece_of(*memory)->prop = *prop;
    return result;
}
DRIVER cuMemRelease(tti_cu_memory memory)
{
    struct fake_piece *piece = piece_of(memory);
    pthread_mutex_lock(&mapped_lock);
    const int left = --piece->holders;
    pthread_mutex_unlock(&mapped_lock);
    if (left > 0)
        return TTI_CU_OK;
    for (int d = 0; d < 16; d++)
        tti_sim_multicast_destroy(piece->multicast[d]);
    close(piece->fd);
    free(piece);
    return TTI_CU_OK;
}
DRIVER cuMemRetainAllocationHandle(tti_cu_memory *memory, void *address)
{
    unsigned result = TTI_CU_INVALID_VALUE;
    pthread_mutex_lock(&mapped_lock);
    const int i = address ? mapped_find(address) : -1;
    if (i >= 0) {
        mapped[i].piece->holders++;
        *memory = (tti_cu_memory)(uintptr_t)mapped[i].piece;
        result = TTI_CU_OK;
    }
    pthread_mutex_unlock(&mapped_lock);
    return result;
}
DRIVER cuMemGetAllocationPropertiesFromHandle(struct tti_cu_memory_prop *prop, tti_cu_memory memory)
{
    *prop = piece_of(memory)->prop;
    return TTI_CU_OK;
}
DRIVER cuMemAddressReserve(tti_cu_ptr *base, size_t bytes, size_t alignment, tti_cu_ptr wish,
                           unsigned long long flags)
{
    if (bytes % PAGE || alignment || wish || flags)
        return TTI_CU_INVALID_VALUE;
    void *range = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    *base = (tti_cu_ptr)(uintptr_t)range;
    return range == MAP_FAILED ? TTI_CU_OUT_OF_MEMORY : TTI_CU_OK;
}
DRIVER cuMemAddressFree(tti_cu_ptr base, size_t bytes)
{
    return munmap(at(base), bytes) == 0 ? TTI_CU_OK : TTI_CU_INVALID_VALUE;
}
DRIVER cuMemMap(tti_cu_ptr base, size_t bytes, size_t offset, tti_cu_memory memory,
                unsigned long long flags)
{
    struct fake_piece *piece = piece_of(memory);
    if (offset || flags || bytes > piece->bytes || !fake_now())
        return TTI_CU_INVALID_VALUE;
    const int device = fake_now()->device;
    if (piece->members) {
        if (!piece->multicast[device] ||
            tti_sim_multicast_bind_at(piece->multicast[device], piece->bound[device], at(base)) !=
                TUTTI_OK)
            return TTI_CU_INVALID_VALUE;
    } else if (mmap(at(base), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, piece->fd, 0) ==
               MAP_FAILED) {
        return FAKE_UNKNOWN;
    }
    pthread_mutex_lock(&mapped_lock);
    const int i = mapped_find(NULL);
    if (i >= 0) {
        mapped[i].base = at(base);
        mapped[i].bytes = bytes;
        mapped[i].piece = piece;
        mapped[i].allowed = 0;
        piece->holders++;
    }
    pthread_mutex_unlock(&mapped_lock);
    return i >= 0 ? TTI_CU_OK : TTI_CU_OUT_OF_MEMORY;
}
DRIVER cuMemUnmap(tti_cu_ptr base, size_t bytes)
{
    pthread_mutex_lock(&mapped_lock);
    const int i = mapped_find(at(base));
    struct fake_piece *piece = i >= 0 ? mapped[i].piece : NULL;
    if (i >= 0)
        mapped[i].base = NULL;
    pthread_mutex_unlock(&mapped_lock);
    if (!piece)
        return TTI_CU_INVALID_VALUE;
    if (!piece->members) {
        tti_sim_memory_abandon(at(base));
        (void)mmap(at(base), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    }
    return cuMemRelease((tti_cu_memory)(uintptr_t)piece);
}
/* All of one mapping. Memory is known as the device's that may use it first. */
static unsigned access_piece(char *base, size_t bytes, const struct fake_piece *piece)
{
    struct tti_gpu_pointer info;
    if (piece->members)
        return TTI_CU_OK;
    if (mprotect(base, bytes, PROT_READ | PROT_WRITE) != 0)
        return FAKE_UNKNOWN;
    (void)fake_ops()->pointer(base, &info);
    return info.kind == TTI_MEMORY_DEVICE
               ? TTI_CU_OK
               : fake_code(tti_sim_memory_adopt(fake_now(), base, bytes, piece->fd));
}
/* Of whole mappings, one behind the other. */
DRIVER cuMemSetAccess(tti_cu_ptr base, size_t bytes, const struct tti_cu_access *access,
                      size_t count)
{
    if (bytes == 0 || count != 1 || access->flags != TTI_CU_ACCESS_READ_WRITE)
        return TTI_CU_INVALID_VALUE;
    while (bytes > 0) {
        pthread_mutex_lock(&mapped_lock);
        const int i = mapped_find(at(base));
        const size_t here = i >= 0 && mapped[i].base == at(base) ? mapped[i].bytes : 0;
        struct fake_piece *piece = here > 0 && here <= bytes ? mapped[i].piece : NULL;
        const bool kept = piece && fake_kept(piece->prop.location.id, access->location.id);
        if (piece && !kept)
            mapped[i].allowed |= 1u << access->location.id;
        pthread_mutex_unlock(&mapped_lock);
        if (!piece)
            return TTI_CU_INVALID_VALUE;
        if (kept)
            return TTI_CU_NOT_SUPPORTED;
        const unsigned result = access_piece(at(base), here, piece);
        if (result != TTI_CU_OK)
            return result;
        base += here;
        bytes -= here;
    }
    return TTI_CU_OK;
}
DRIVER cuMemGetAccess(unsigned long long *flags, const struct tti_cu_location *location,
                      tti_cu_ptr pointer)
{
    pthread_mutex_lock(&mapped_lock);
    const int i = mapped_find(at(pointer));
    *flags = i >= 0 && mapped[i].allowed >> location->id & 1 ? TTI_CU_ACCESS_READ_WRITE : 0;
    pthread_mutex_unlock(&mapped_lock);
    return i >= 0 ? TTI_CU_OK : TTI_CU_INVALID_VALUE;
}
DRIVER cuMemExportToShareableHandle(void *handle, tti_cu_memory memory, unsigned kind,
                                    unsigned long long flags)
{
    const struct fake_piece *piece = piece_of(memory);
    if (kind != TTI_CU_HANDLE_FD || flags || !(piece->prop.handles & TTI_CU_HANDLE_FD))
        return TTI_CU_INVALID_VALUE;
    if (getenv("TUTTI_FAKE_NO_EXPORT")) /* as in a sandbox */
        return TTI_CU_NOT_SUPPORTED;
    const int fd = fcntl(piece->fd, F_DUPFD_CLOEXEC, 0);
    memcpy(handle, &fd, sizeof fd);
    return fd >= 0 ? TTI_CU_OK : FAKE_UNKNOWN;
}
DRIVER cuMemImportFromShareableHandle(tti_cu_memory *memory, void *handle, unsigned kind)
{
    struct stat status;
    const int fd = (int)(uintptr_t)handle;
    uint32_t members = 0;
    if (kind != TTI_CU_HANDLE_FD || fstat(fd, &status) != 0)
        return TTI_CU_INVALID_VALUE;
    const unsigned result =
        piece_new(fcntl(fd, F_DUPFD_CLOEXEC, 0), (size_t)status.st_size, memory);
    /* A multicast object says what it is. */
    if (result == TTI_CU_OK && tti_sim_multicast_is(fd, &members, &piece_of(*memory)->bytes))
        piece_of(*memory)->members = (int)members;
    return result;
}

/* ---- Multicast objects ------------------------------------------------------------------------
 */

DRIVER cuMulticastGetGranularity(size_t *bytes, const struct tti_cu_multicast_prop *prop,
                                 unsigned kind)
{
    if (getenv("TUTTI_FAKE_NO_SWITCH")) /* GPUs whose switches are not set up say what they are */
        return TTI_CU_SYSTEM_NOT_READY;
    *bytes = 2 * PAGE;
    return prop->devices > 0 && kind == TTI_CU_PAGE_MINIMUM ? TTI_CU_OK : TTI_CU_INVALID_VALUE;
}
DRIVER cuMulticastCreate(tti_cu_memory *memory, const struct tti_cu_multicast_prop *prop)
{
    int fd = -1;
    if (prop->bytes % (2 * PAGE) || prop->handles != TTI_CU_HANDLE_FD || prop->flags ||
        tti_sim_multicast_make((int)prop->devices, prop->bytes, &fd) != TUTTI_OK)
        return TTI_CU_INVALID_VALUE;
    const unsigned result = piece_new(fd, prop->bytes, memory);
    if (result == TTI_CU_OK)
        piece_of(*memory)->members = (int)prop->devices;
    return result;
}
DRIVER cuMulticastAddDevice(tti_cu_memory memory, int device)
{
    struct fake_piece *piece = piece_of(memory);
    if (!fake_now() || fake_now()->device != device || !piece->members)
        return TTI_CU_INVALID_VALUE;
    return fake_code(
        tti_sim_multicast_join(fake_now(), piece->fd, piece->bytes, &piece->multicast[device]));
}
DRIVER cuMulticastBindMem(tti_cu_memory object, size_t offset, tti_cu_memory memory,
                          size_t memory_offset, size_t bytes, unsigned long long flags)
{
    struct fake_piece *piece = piece_of(object);
    if (offset || memory_offset || flags || bytes != piece->bytes || !fake_now())
        return TTI_CU_INVALID_VALUE;
    pthread_mutex_lock(&mapped_lock);
    for (int i = 0; i < MOST_MAPPED; i++)
        if (mapped[i].base && mapped[i].piece == piece_of(memory))
            piece->bound[fake_now()->device] = mapped[i].base;
    pthread_mutex_unlock(&mapped_lock);
    return piece->bound[fake_now()->device] ? TTI_CU_OK : TTI_CU_INVALID_VALUE;
}
DRIVER cuMulticastUnbind(tti_cu_memory object, int device, size_t offset, size_t bytes)
{
    struct fake_piece *piece = piece_of(object);
    if (offset || bytes != piece->bytes || !piece->bound[device])
        return TTI_CU_INVALID_VALUE;
    piece->bound[device] = NULL;
    return TTI_CU_OK;
}
