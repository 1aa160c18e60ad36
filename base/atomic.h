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

/* Both of two words that lie beside each other at a multiple of 16 bytes, as by tti_store_release
 * of each, in any order of the two; on x86 by one store, of which the processor has but so many
 * under way. (Each half is whole for who reads it: an aligned store of 16 bytes falls apart there
 * into two of 8 at most, and stores become seen in their order.) */
static inline void tti_store_pair(_Atomic uint64_t *words, uint64_t first, uint64_t second)
{
#if defined(__x86_64__)
    typedef uint64_t both __attribute__((vector_size(16)));
    const both value = {first, second};
    __asm__ volatile("movaps %1, %0" : "=m"(*(both *)(void *)words) : "x"(value) : "memory");
#else
    tti_store_release(words, first);
    tti_store_release(words + 1, second);
#endif
}

/* Orders every earlier store before every later load, which release and acquire do not: between
 * publishing something and looking whether the other side sleeps. (ThreadSanitizer knows no fences;
 * it needs none here, as both words are atomic.) */
static inline void tti_full_fence(void)
{
#if defined(__SANITIZE_THREAD__) && defined(__x86_64__)
    __asm__ volatile("mfence" ::: "memory");
#elif defined(__SANITIZE_THREAD__) && defined(__aarch64__)
    __asm__ volatile("dmb ish" ::: "memory");
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

/* Orders every earlier load before this one, which acquire does not: is what was read still what it
 * was, after it was read? */
static inline uint64_t tti_load_after_reads(const _Atomic uint64_t *word)
{
#if defined(__x86_64__)
    __asm__ volatile("" ::: "memory"); /* the processor loads in order */
#elif defined(__aarch64__)
    __asm__ volatile("dmb ishld" ::: "memory");
#else
    atomic_thread_fence(memory_order_acquire);
#endif
    return tti_load_acquire(word);
}

/* Ask for a cache line that will be read soon. A hint, and no access. Not the compiler's builtin:
 * GCC takes a function that only prefetches for one without effect, and leaves out calls of it. */
static inline void tti_prefetch_read(const void *line)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetcht0 %0" ::"m"(*(const char *)line));
#elif defined(__aarch64__)
    __asm__ volatile("prfm pldl1keep, %0" ::"Q"(*(const char *)line));
#else
    __builtin_prefetch(line);
#endif
}

/* Ask for a cache line that will be written soon: the store that publishes it then need not first
 * take it from the core that has read it. Likewise. */
static inline void tti_prefetch_write(const void *line)
{
#if defined(__x86_64__)
    /* The builtin means it only with -mprfchw; CPUs without the instruction pass over it. */
    __asm__ volatile("prefetchw %0" ::"m"(*(const char *)line));
#elif defined(__aarch64__)
    __asm__ volatile("prfm pstl1keep, %0" ::"Q"(*(const char *)line));
#else
    __builtin_prefetch(line, 1);
#endif
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
