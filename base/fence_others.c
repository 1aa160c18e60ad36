/* Fences for other threads (base/fence_others.h), by membarrier of Linux 4.14. */
#include "base/fence_others.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FENCE_UNKNOWN, FENCE_WORKS, FENCE_REFUSED };
static _Atomic int fence_state;

static bool fence_call(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) == 0;
}

static bool fence_register(void)
{
#if defined(__SANITIZE_THREAD__)
    return false;
#else
    return fence_call(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) &&
           fence_call(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
#endif
}

bool tti_fence_others_works(void)
{
    int state = atomic_load_explicit(&fence_state, memory_order_relaxed);
    if (state == FENCE_UNKNOWN) {
        state = fence_register() ? FENCE_WORKS : FENCE_REFUSED; /* twice does no harm */
        atomic_store_explicit(&fence_state, state, memory_order_relaxed);
    }
    return state == FENCE_WORKS;
}

void tti_fence_others(void)
{
    if (fence_call(MEMBARRIER_CMD_PRIVATE_EXPEDITED) || fence_register())
        return;
    struct timespec long_since = {.tv_nsec = 20000000};
    atomic_store_explicit(&fence_state, FENCE_REFUSED, memory_order_relaxed);
    while (nanosleep(&long_since, &long_since) != 0 && errno == EINTR)
        continue;
    atomic_thread_fence(memory_order_seq_cst);
}
