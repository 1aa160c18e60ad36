/* Multicast objects as kernels see them (NVLS): a load gives the sum of 16 bytes' elements over all
 * members, made by the switch, a store reaches all members. float32, float16 and bfloat16; 16-bit
 * elements are summed in float32 and rounded once. Not yet run on a GPU. On the simulated device
 * the members are summed up in the order of their devices, so that results are those of a plan.
 * Next: nvls.cu. */
#ifndef TTI_DEVICE_CUDA_MULTIMEM_CUH
#define TTI_DEVICE_CUDA_MULTIMEM_CUH

#include "device/cuda/fold.cuh"

#if defined(__CUDACC__)

/* The same memory is reached by its own addresses too: what was done by one kind is ordered before
 * what comes by the other. Beside the barriers and flags, by each thread. */
TTI_DEVICE void tti_multi_fence(void)
{
    asm volatile("fence.proxy.alias;" ::: "memory");
}

template <int TYPE> struct tti_multi {
    typedef typename tti_group<TYPE>::word word;
    char *base;

    TTI_MEMBER void begin(void *address)
    {
        base = (char *)address;
    }

    TTI_MEMBER tti_pack<word> load(uint64_t at) const
    {
        tti_pack<word> p = {};
#if __CUDA_ARCH__ >= 900
        const void *from = base + at * 16;
        if constexpr (TYPE == TUTTI_FLOAT32)
            asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0,%1,%2,%3}, [%4];"
                         : "=r"(p.quad[0]), "=r"(p.quad[1]), "=r"(p.quad[2]), "=r"(p.quad[3])
                         : "l"(from)
                         : "memory");
        else if constexpr (TYPE == TUTTI_FLOAT16)
            asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.f16x2 "
                         "{%0,%1,%2,%3}, [%4];"
                         : "=r"(p.quad[0]), "=r"(p.quad[1]), "=r"(p.quad[2]), "=r"(p.quad[3])
                         : "l"(from)
                         : "memory");
        else
            asm volatile("multimem.ld_reduce.relaxed.sys.global.add.acc::f32.v4.bf16x2 "
                         "{%0,%1,%2,%3}, [%4];"
                         : "=r"(p.quad[0]), "=r"(p.quad[1]), "=r"(p.quad[2]), "=r"(p.quad[3])
                         : "l"(from)
                         : "memory");
#else
        (void)at;
        __trap(); /* older devices are in no multicast object */
#endif
        return p;
    }

    TTI_MEMBER void store(uint64_t at, const tti_pack<word> &p) const
    {
#if __CUDA_ARCH__ >= 900
        void *to = base + at * 16;
        if constexpr (TYPE == TUTTI_FLOAT32)
            asm volatile("multimem.st.relaxed.sys.global.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to),
                         "r"(p.quad[0]), "r"(p.quad[1]), "r"(p.quad[2]), "r"(p.quad[3])
                         : "memory");
        else if constexpr (TYPE == TUTTI_FLOAT16)
            asm volatile("multimem.st.relaxed.sys.global.v4.f16x2 [%0], {%1,%2,%3,%4};" ::"l"(to),
                         "r"(p.quad[0]), "r"(p.quad[1]), "r"(p.quad[2]), "r"(p.quad[3])
                         : "memory");
        else
            asm volatile("multimem.st.relaxed.sys.global.v4.bf16x2 [%0], {%1,%2,%3,%4};" ::"l"(to),
                         "r"(p.quad[0]), "r"(p.quad[1]), "r"(p.quad[2]), "r"(p.quad[3])
                         : "memory");
#else
        (void)at;
        (void)p;
#endif
    }
};

#else

TTI_DEVICE void tti_multi_fence(void)
{
}

template <int TYPE> struct tti_multi {
    typedef tti_group<TYPE> group;
    typedef typename group::word word;
    void *where[TTI_GPU_RANKS];
    unsigned members;

    void begin(void *address)
    {
        members = tti_sim_multicast_at(address, where, TTI_GPU_RANKS);
    }

    tti_pack<word> load(uint64_t at) const
    {
        tti_pack<word> p = {};
        typename group::acc total[group::size] = {};
        for (unsigned m = 0; m < members; m++) {
            const tti_pack<word> from = ((const tti_pack<word> *)where[m])[at];
            for (int i = 0; i < group::size; i++) {
                const typename group::acc value = group::element::widen(from.word[i]);
                total[i] = m == 0 ? value : total[i] + value;
            }
        }
        for (int i = 0; i < group::size; i++)
            p.word[i] = group::element::narrow(total[i]);
        return p;
    }

    void store(uint64_t at, const tti_pack<word> &p) const
    {
        for (unsigned m = 0; m < members; m++)
            ((tti_pack<word> *)where[m])[at] = p;
    }
};

#endif
#endif
