/* Pools of memory of the fake CUDA driver (fake_cuda.c): each device has its own alone, whose
 * memory the other devices may not access until it is opened to them. */
#include "tests/device/fake_cuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 16, MOST = 64 };

static unsigned allowed[DEVICES]; /* by owner: devices, a bit each */
static struct {
    void *memory;
    int device;
} taken[MOST];
static pthread_mutex_t pool_lock = PTHREAD_MUTEX_INITIALIZER;

static tti_cu_pool pool_at(int device)
{
    return (tti_cu_pool)(void *)&allowed[device];
}

static int pool_device(tti_cu_pool pool)
{
    return (int)((unsigned *)(void *)pool - allowed);
}

/* Under the lock: the place of the memory, or a free one for NULL; -1: there is none. */
static int pool_find(const void *memory)
{
    for (int i = 0; i < MOST; i++)
        if (taken[i].memory == memory)
            return i;
    return -1;
}

tti_cu_pool fake_pool_of(const void *memory)
{
    pthread_mutex_lock(&pool_lock);
    const int i = memory ? pool_find(memory) : -1;
    tti_cu_pool pool = i >= 0 ? pool_at(taken[i].device) : NULL;
    pthread_mutex_unlock(&pool_lock);
    return pool;
}

void fake_pool_forget(const void *memory)
{
    pthread_mutex_lock(&pool_lock);
    const int i = memory ? pool_find(memory) : -1;
    if (i >= 0)
        taken[i].memory = NULL;
    pthread_mutex_unlock(&pool_lock);
}

bool fake_kept(int owner, int device)
{
    const char *kept = getenv("TUTTI_FAKE_NO_OPEN");
    return owner != device && kept && strcmp(kept, "1") == 0;
}

DRIVER cuMemAllocAsync(tti_cu_ptr *memory, size_t bytes, tti_cu_stream stream)
{
    void *made = NULL;
    (void)stream; /* it is there at once */
    const unsigned result =
        SAFE_IN_CONTEXT(fake_ops()->alloc(fake_now(), TTI_MEMORY_DEVICE, bytes, &made));
    if (result != TTI_CU_OK)
        return result;
    pthread_mutex_lock(&pool_lock);
    const int i = pool_find(NULL);
    if (i >= 0) {
        taken[i].memory = made;
        taken[i].device = fake_now()->device;
        allowed[taken[i].device] |= 1u << taken[i].device;
    }
    pthread_mutex_unlock(&pool_lock);
    *memory = (tti_cu_ptr)(uintptr_t)made;
    return i >= 0 ? TTI_CU_OK : TTI_CU_OUT_OF_MEMORY;
}
DRIVER cuDeviceGetDefaultMemPool(tti_cu_pool *pool, int device)
{
    *pool = pool_at(device);
    return TTI_CU_OK;
}
DRIVER cuMemPoolSetAccess(tti_cu_pool pool, const struct tti_cu_access *access, size_t count)
{
    const int owner = pool_device(pool);
    if (count != 1 || access->flags != TTI_CU_ACCESS_READ_WRITE ||
        access->location.type != TTI_CU_LOCATION_DEVICE)
        return TTI_CU_INVALID_VALUE;
    if (fake_kept(owner, access->location.id))
        return TTI_CU_NOT_SUPPORTED;
    pthread_mutex_lock(&pool_lock);
    allowed[owner] |= 1u << access->location.id;
    pthread_mutex_unlock(&pool_lock);
    return TTI_CU_OK;
}
DRIVER cuMemPoolGetAccess(unsigned *flags, tti_cu_pool pool, struct tti_cu_location *location)
{
    pthread_mutex_lock(&pool_lock);
    *flags = allowed[pool_device(pool)] >> location->id & 1 ? TTI_CU_ACCESS_READ_WRITE : 0;
    pthread_mutex_unlock(&pool_lock);
    return TTI_CU_OK;
}
