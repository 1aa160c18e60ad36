/* The language of the device code: CUDA C++ as nvcc takes it, or the same source on the CPU
 * (device/sim/cuda_on_host.cuh). Also memory order, written once: flags between ranks are stored
 * with release and loaded with acquire at the scope of the system, everything else says why. The
 * twin for host code is base/atomic.h. Next: element.cuh. */
#ifndef TTI_DEVICE_CUDA_PORTABLE_CUH
#define TTI_DEVICE_CUDA_PORTABLE_CUH

#include "device/kernel_args.h"
#include "tutti/tutti.h"

#include <stdint.h>

#if defined(__CUDACC__)

#define TTI_DEVICE static __device__ __forceinline__
#define TTI_MEMBER __device__ __forceinline__
/* Loops: over all i < n, unrolled; over k from `from` to `to`, kept a loop. */
#define TTI_EACH(i, n) _Pragma("unroll") for (int i = 0; i < (int)(n); i++)
#define TTI_LOOP(k, from, to) _Pragma("unroll 1") for (uint32_t k = (from); k < (to); k++)
/* A kernel: a C name, one struct by value. Paired: its blocks have up to so many
 * threads, and few enough registers for two of them on a multiprocessor. */
#define TTI_KERNEL(name, arguments, a) \
    extern "C" __global__ void name(const __grid_constant__ arguments a)
#define TTI_KERNEL_PAIRED(threads, name, arguments, a)       \
    extern "C" __global__ void __launch_bounds__(threads, 2) \
        name(const __grid_constant__ arguments a)

/* A pointer to memory that all blocks share, of whichever device or of the host. The compiler,
 * which cannot know that of an address out of shared memory, would ask the address at every access.
 */
template <class T> TTI_DEVICE T *tti_global(T *pointer)
{
    __builtin_assume(__isGlobal(pointer));
    return pointer;
}

/* 16 bytes to global memory at once. Written out, since the compiler makes several stores of a
 * union now and then. */
TTI_DEVICE void tti_store_sixteen(void *at, const uint32_t (&quad)[4])
{
    asm volatile("st.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(at), "r"(quad[0]), "r"(quad[1]),
                 "r"(quad[2]), "r"(quad[3])
                 : "memory");
}

/* Whether an address is of the block's shared memory. */
TTI_DEVICE bool tti_is_near(const void *at)
{
    return __isShared(at);
}

/* 16 bytes of the block's shared memory. Not left to the compiler, which makes one load of this and
 * of one from global memory beside it, and asks for the address again. */
TTI_DEVICE void tti_load_near(const void *at, uint32_t (&quad)[4])
{
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(quad[0]), "=r"(quad[1]), "=r"(quad[2]), "=r"(quad[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(at))
                 : "memory");
}

/* One value of it, of 1, 2, 4 or 8 bytes. Likewise: of CUDA 12.0's compiler both came out of shared
 * memory, whatever the address was. */
template <class T> TTI_DEVICE T tti_load_near_one(const T *at)
{
    const uint32_t address = (uint32_t)__cvta_generic_to_shared(at);
    union {
        uint64_t all;
        uint32_t four;
        uint16_t two;
        T value;
    } u;
    u.all = 0;
    if constexpr (sizeof(T) == 8)
        asm volatile("ld.shared.u64 %0, [%1];" : "=l"(u.all) : "r"(address) : "memory");
    else if constexpr (sizeof(T) == 4)
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(u.four) : "r"(address) : "memory");
    else if constexpr (sizeof(T) == 2)
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(u.two) : "r"(address) : "memory");
    else
        asm volatile("ld.shared.u8 %0, [%1];" : "=r"(u.four) : "r"(address) : "memory");
    return u.value;
}

TTI_DEVICE uint64_t tti_acquire(const uint64_t *word)
{
    uint64_t value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}

TTI_DEVICE void tti_release(uint64_t *word, uint64_t value)
{
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}

TTI_DEVICE void tti_release(uint32_t *word, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

/* Stores; what the thread (and, behind a barrier, its block) loads later, from anywhere, is loaded
 * after the store can be seen by all. Two sides that each do this with a word of their own and then
 * look at the other's: one of them at least sees the other. */
TTI_DEVICE void tti_store_first(uint64_t *word, uint64_t value)
{
    asm volatile("st.relaxed.sys.global.u64 [%0], %1; fence.sc.sys;" ::"l"(word), "l"(value)
                 : "memory");
}

/* Orders nothing; for words that are looked at now and then. */
TTI_DEVICE uint32_t tti_glance(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

/* Adds, with acquire and release among the blocks of one device; gives the value before. */
TTI_DEVICE uint32_t tti_add_acq_rel(uint32_t *word, uint32_t value)
{
    uint32_t before;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;"
                 : "=r"(before)
                 : "l"(word), "r"(value)
                 : "memory");
    return before;
}

/* Adds; what is loaded later is loaded after all can see that (tti_store_first). And: adds, behind
 * all that was done before, for others to see. */
TTI_DEVICE void tti_add_first(uint32_t *word, uint32_t value)
{
    asm volatile("red.relaxed.sys.global.add.u32 [%0], %1; fence.sc.sys;" ::"l"(word), "r"(value)
                 : "memory");
}

TTI_DEVICE void tti_add_release(uint32_t *word, uint32_t value)
{
    asm volatile("red.release.sys.global.add.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

TTI_DEVICE uint32_t tti_swap_first(uint32_t *word, uint32_t value)
{
    return atomicCAS_system(word, 0u, value);
}

/* Two data words, each beside its flag: each half arrives whole, or not at all yet. */
struct tti_packet {
    uint32_t data0, flag0, data1, flag1;
};

TTI_DEVICE void tti_packet_store(tti_packet *at, tti_packet p)
{
    asm volatile("st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(at), "r"(p.data0),
                 "r"(p.flag0), "r"(p.data1), "r"(p.flag1)
                 : "memory");
}

TTI_DEVICE tti_packet tti_packet_load(const tti_packet *at)
{
    tti_packet p;
    asm volatile("ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(p.data0), "=r"(p.flag0), "=r"(p.data1), "=r"(p.flag1)
                 : "l"(at)
                 : "memory");
    return p;
}

/* 16 bytes of a line of 128, by each of the 8 lanes in `mask`; one of them has the flag, as its
 * second word. A store of the warp arrives whole, and so does a load. */
TTI_DEVICE void tti_line_store(uint64_t *at, uint64_t first, uint64_t second, bool, uint32_t mask)
{
    __syncwarp(mask); /* together, as one store */
    asm volatile("st.volatile.global.v2.u64 [%0], {%1,%2};" ::"l"(at), "l"(first), "l"(second)
                 : "memory");
}

TTI_DEVICE void tti_line_load(const uint64_t *at, uint64_t *first, uint64_t *second, bool,
                              uint32_t mask)
{
    __syncwarp(mask);
    asm volatile("ld.volatile.global.v2.u64 {%0,%1}, [%2];"
                 : "=l"(*first), "=l"(*second)
                 : "l"(at)
                 : "memory");
}

/* Inside a loop that polls. */
TTI_DEVICE void tti_relax(void)
{
}

TTI_DEVICE uint64_t tti_device_ns(void)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

#else
#include "device/sim/cuda_on_host.cuh"
#endif

TTI_DEVICE uint32_t tti_thread_of_grid(void)
{
    return blockIdx.x * blockDim.x + threadIdx.x;
}

TTI_DEVICE uint32_t tti_threads_of_grid(void)
{
    return gridDim.x * blockDim.x;
}

#endif
