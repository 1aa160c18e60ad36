/* CUDA C++ for the CPU: what the kernels of cuda/ use of the language, on top of sim_block.h. Code
 * that portable.cuh has for nvcc stands here for the host's compiler; the two go together. Shared
 * memory is thread-local: a block runs on one host thread. */
#ifndef TTI_DEVICE_SIM_CUDA_ON_HOST_CUH
#define TTI_DEVICE_SIM_CUDA_ON_HOST_CUH

#include "device/kernel_args.h"
#include "device/sim/sim_block.h"

#include <stdint.h>

#define TTI_DEVICE static inline __attribute__((unused))
#define TTI_MEMBER inline
#define TTI_EACH(i, n) for (int i = 0; i < (int)(n); i++)
#define TTI_LOOP(k, from, to) for (uint32_t k = (from); k < (to); k++)
#define TTI_KERNEL(name, arguments, a)           \
    static void name##_body(const arguments &a); \
    extern "C" void name(const void *args);      \
    void name(const void *args)                  \
    {                                            \
        name##_body(*(const arguments *)args);   \
    }                                            \
    static void name##_body(const arguments &a)

#define TTI_KERNEL_PAIRED(threads, name, arguments, a) TTI_KERNEL(name, arguments, a)

#define __shared__ static __thread
#define threadIdx tti_sim_thread_index
#define blockIdx tti_sim_block_index
#define blockDim tti_sim_block_size
#define gridDim tti_sim_grid_size

/* ---- Barriers, warps ------------------------------------------------------------------------- */

TTI_DEVICE void __syncthreads(void)
{
    (void)tti_sim_barrier(TTI_SIM_COUNT, 0);
}
TTI_DEVICE int __syncthreads_count(int value)
{
    return tti_sim_barrier(TTI_SIM_COUNT, value);
}
TTI_DEVICE int __syncthreads_or(int value)
{
    return tti_sim_barrier(TTI_SIM_OR, value);
}
TTI_DEVICE int __syncthreads_and(int value)
{
    return tti_sim_barrier(TTI_SIM_AND, value);
}
TTI_DEVICE void __syncwarp(uint32_t mask = 0xffffffffu)
{
    tti_sim_warp_barrier(mask);
}
TTI_DEVICE uint32_t __ballot_sync(uint32_t mask, int value)
{
    return tti_sim_warp_ballot(mask, value != 0);
}
TTI_DEVICE int __any_sync(uint32_t mask, int value)
{
    return tti_sim_warp_ballot(mask, value != 0) != 0;
}
TTI_DEVICE int __all_sync(uint32_t mask, int value)
{
    return tti_sim_warp_ballot(mask, value == 0) == 0;
}

/* Shuffles of up to 8 bytes over whole warps. */
template <class T> TTI_DEVICE T tti_sim_shuffle(uint32_t mask, T value, uint32_t from)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
    union {
        uint64_t bits;
        T value;
    } u;
    u.bits = 0;
    u.value = value;
    u.bits = tti_sim_warp_exchange(mask, u.bits, from);
    return u.value;
}
template <class T> TTI_DEVICE T __shfl_sync(uint32_t mask, T value, int lane)
{
    return tti_sim_shuffle(mask, value, (uint32_t)lane % 32);
}
template <class T> TTI_DEVICE T __shfl_xor_sync(uint32_t mask, T value, int lanes)
{
    return tti_sim_shuffle(mask, value, tti_sim_lane() ^ (uint32_t)lanes);
}
template <class T> TTI_DEVICE T __shfl_down_sync(uint32_t mask, T value, unsigned lanes)
{
    const uint32_t lane = tti_sim_lane();
    return tti_sim_shuffle(mask, value, lane + lanes < 32 ? lane + lanes : lane);
}
template <class T> TTI_DEVICE T __shfl_up_sync(uint32_t mask, T value, unsigned lanes)
{
    const uint32_t lane = tti_sim_lane();
    return tti_sim_shuffle(mask, value, lane >= lanes ? lane - lanes : lane);
}

/* ---- Memory order, atomics --------------------------------------------------------------------
 */

template <class T> TTI_DEVICE T *tti_global(T *pointer)
{
    return pointer;
}
TTI_DEVICE void tti_store_sixteen(void *at, const uint32_t (&quad)[4])
{
    __builtin_memcpy(at, quad, sizeof quad);
}
TTI_DEVICE bool tti_is_near(const void *)
{
    return false; /* there is one way to load */
}
TTI_DEVICE void tti_load_near(const void *at, uint32_t (&quad)[4])
{
    __builtin_memcpy(quad, at, sizeof quad);
}

template <class T> TTI_DEVICE T tti_load_near_one(const T *at)
{
    return *at;
}
TTI_DEVICE uint64_t tti_acquire(const uint64_t *word)
{
    return __atomic_load_n(word, __ATOMIC_SEQ_CST); /* for tti_store_first */
}
TTI_DEVICE void tti_store_first(uint64_t *word, uint64_t value)
{
    tti_sim_point();
    (void)__atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);
    tti_sim_point();
}
template <class W> TTI_DEVICE void tti_release(W *word, W value)
{
    tti_sim_point();
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}
TTI_DEVICE uint32_t tti_glance(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}
TTI_DEVICE uint32_t tti_add_acq_rel(uint32_t *word, uint32_t value)
{
    tti_sim_point();
    return __atomic_fetch_add(word, value, __ATOMIC_ACQ_REL);
}
TTI_DEVICE void tti_add_first(uint32_t *word, uint32_t value)
{
    tti_sim_point();
    (void)__atomic_fetch_add(word, value, __ATOMIC_SEQ_CST);
    tti_sim_point();
}
TTI_DEVICE void tti_add_release(uint32_t *word, uint32_t value)
{
    tti_sim_point();
    (void)__atomic_fetch_add(word, value, __ATOMIC_RELEASE);
}
TTI_DEVICE uint32_t tti_swap_first(uint32_t *word, uint32_t value)
{
    uint32_t expected = 0;
    __atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

/* CUDA's own atomics order nothing. */
TTI_DEVICE uint32_t atomicAdd(uint32_t *word, uint32_t value)
{
    tti_sim_point();
    return __atomic_fetch_add(word, value, __ATOMIC_RELAXED);
}
TTI_DEVICE uint32_t atomicExch(uint32_t *word, uint32_t value)
{
    tti_sim_point();
    return __atomic_exchange_n(word, value, __ATOMIC_RELAXED);
}
TTI_DEVICE uint32_t atomicCAS(uint32_t *word, uint32_t expected, uint32_t value)
{
    tti_sim_point();
    __atomic_compare_exchange_n(word, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
TTI_DEVICE uint32_t atomicMax(uint32_t *word, uint32_t value)
{
    uint32_t before = __atomic_load_n(word, __ATOMIC_RELAXED);
    tti_sim_point();
    while (before < value && !__atomic_compare_exchange_n(word, &before, value, false,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return before;
}
TTI_DEVICE uint32_t atomicMin(uint32_t *word, uint32_t value)
{
    uint32_t before = __atomic_load_n(word, __ATOMIC_RELAXED);
    tti_sim_point();
    while (before > value && !__atomic_compare_exchange_n(word, &before, value, false,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return before;
}

/* ---- Packets: each half is one atomic word --------------------------------------------------- */

struct alignas(16) tti_packet {
    uint32_t data0, flag0, data1, flag1;
};

TTI_DEVICE void tti_packet_store(tti_packet *at, tti_packet p)
{
    uint64_t *half = (uint64_t *)at;
    tti_sim_point();
    __atomic_store_n(half, p.data0 | (uint64_t)p.flag0 << 32, __ATOMIC_RELAXED);
    tti_sim_point();
    __atomic_store_n(half + 1, p.data1 | (uint64_t)p.flag1 << 32, __ATOMIC_RELAXED);
}

TTI_DEVICE tti_packet tti_packet_load(const tti_packet *at)
{
    const uint64_t *half = (const uint64_t *)at;
    const uint64_t first = __atomic_load_n(half, __ATOMIC_RELAXED);
    const uint64_t second = __atomic_load_n(half + 1, __ATOMIC_RELAXED);
    tti_packet p = {(uint32_t)first, (uint32_t)(first >> 32), (uint32_t)second,
                    (uint32_t)(second >> 32)};
    return p;
}

/* ---- Lines of 128 bytes: the flag is stored last, and loaded first ----------------------------
 */

TTI_DEVICE void tti_line_store(uint64_t *at, uint64_t first, uint64_t second, bool flag,
                               uint32_t mask)
{
    tti_sim_point();
    __atomic_store_n(at, first, __ATOMIC_RELAXED);
    if (!flag)
        __atomic_store_n(at + 1, second, __ATOMIC_RELAXED);
    __syncwarp(mask);
    if (flag)
        __atomic_store_n(at + 1, second, __ATOMIC_RELEASE);
}

TTI_DEVICE void tti_line_load(const uint64_t *at, uint64_t *first, uint64_t *second, bool flag,
                              uint32_t mask)
{
    if (flag)
        *second = __atomic_load_n(at + 1, __ATOMIC_ACQUIRE);
    __syncwarp(mask);
    *first = __atomic_load_n(at, __ATOMIC_RELAXED);
    if (!flag)
        *second = __atomic_load_n(at + 1, __ATOMIC_RELAXED);
}

TTI_DEVICE void tti_relax(void)
{
    tti_sim_poll();
}

TTI_DEVICE uint64_t tti_device_ns(void)
{
    return tti_sim_ns();
}

#endif
