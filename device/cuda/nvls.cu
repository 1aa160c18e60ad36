/* All-reduce by the switch (NVLS), for large sums over memory that is bound to a multicast object:
 * rank r loads part r of the sum of all ranks' memory and stores it to all. Each rank receives and
 * sends V in all, where two_shot.cu moves 2 (n - 1) / n V each way. In place at all ranks, as part
 * r is touched by rank r alone. Meetings as in two_shot.cu; the plan two_shot_all_reduce moves the
 * same, but the switch adds up in an order of its own. Not yet run on a GPU. */
#include "device/cuda/meet.cuh"
#include "device/cuda/multimem.cuh"

/* So many loads of a thread are under way at a time. */
enum { TTI_NVLS_PACKS = 4 };

template <int TYPE> struct tti_nvls {
    typedef tti_group<TYPE> group;
    typedef tti_pack<typename group::word> pack;
    tti_multi<TYPE> multi;
    uint32_t divisor;

    TTI_MEMBER void finish(pack &p) const
    {
        if (divisor == 0)
            return;
        TTI_EACH (i, group::size)
            p.word[i] =
                group::element::narrow(tti_divided(group::element::widen(p.word[i]), divisor));
    }

    /* Packs [at, end), `step` apart. */
    TTI_MEMBER void reduce(uint64_t at, uint64_t end, uint64_t step) const
    {
        for (; at + (TTI_NVLS_PACKS - 1) * step < end; at += TTI_NVLS_PACKS * step) {
            pack p[TTI_NVLS_PACKS];
            TTI_EACH (k, TTI_NVLS_PACKS)
                p[k] = multi.load(at + k * step);
            TTI_EACH (k, TTI_NVLS_PACKS) {
                finish(p[k]);
                multi.store(at + k * step, p[k]);
            }
        }
        for (; at < end; at += step) {
            pack p = multi.load(at);
            finish(p);
            multi.store(at, p);
        }
    }
};

template <int TYPE> TTI_DEVICE void tti_nvls_run(const tti_nvls_args &n)
{
    typedef tti_group<TYPE> group;
    const tti_coupled_args &a = n.coupled;
    const tti_watch watch = tti_begin(a);
    const bool met = tti_meet(a, watch, tti_ready_flag());
    if (met) {
        tti_nvls<TYPE> k;
        k.multi.begin(n.multi);
        k.divisor = a.divisor;
        tti_multi_fence();
        /* Parts begin at whole packs; what the last pack has beyond the end is the window's. */
        const uint64_t begin = tti_part(a.count, a.ranks, a.rank) / group::size;
        const uint64_t end =
            (tti_part(a.count, a.ranks, a.rank + 1) + group::size - 1) / group::size;
        k.reduce(begin + tti_thread_of_grid(), end, tti_threads_of_grid());
        tti_multi_fence();
    }
    tti_leave(a, watch, met);
}

#define NVLS(type, suffix)                                 \
    TTI_KERNEL(tti_kernel_nvls_##suffix, tti_nvls_args, n) \
    {                                                      \
        tti_nvls_run<type>(n);                             \
    }
NVLS(TUTTI_FLOAT16, float16)
NVLS(TUTTI_FLOAT32, float32)
NVLS(TUTTI_BFLOAT16, bfloat16)
