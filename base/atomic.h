/* Memory order, named once. Shared memory between ranks is written with store-release and read
 * with load-acquire; everything else is an exception that says why. */
#ifndef TTI_BASE_ATOMIC_H
#define TTI_BASE_ATOMIC_H

#include <stdatomic.h>
#include <stdint.h>

#define TTI_CACHE_LINE 64

static inline uint64_t tti_load_acquire(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_acquire);
}

static inline void tti_store_release(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_release);
}

/* Tell the core that this is a spin loop. */
static inline void tti_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
