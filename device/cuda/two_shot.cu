/* All-reduce over mapped memory, for large messages: rank r folds part r of all inputs, in rank
 * order, and stores the result into all outputs. Reduce-scatter and all-gather in one pass: each
 * rank reads V and writes V, which is the least. In place is safe, since part r of any buffer is
 * read and written by rank r alone. The plan two_shot_all_reduce moves the same.
 *
 * Before it reads, block b waits until block b of every rank has begun (their inputs are final);
 * before it ends, until block b of every rank is through (all that they write here is written). */
#include "device/cuda/couple.cuh"
#include "device/cuda/fold.cuh"

/* Raise this block's flag at every rank, and wait for theirs. All threads call it; `raised` gives
 * the flag of rank `from` in the control words of rank `at`. False: give up. */
template <class Flag>
TTI_DEVICE bool tti_meet(const tti_coupled_args &a, const tti_watch &watch, Flag raised)
{
    __syncthreads(); /* what all threads did before is behind the flags */
    bool met = true;
    if (threadIdx.x < a.ranks) {
        const uint32_t peer = threadIdx.x;
        tti_release(raised(a.control[peer], a.rank), watch.epoch);
        met = tti_await(watch, raised(a.control[a.rank], peer), peer);
    }
    return !__syncthreads_or(!met);
}

struct tti_ready_flag {
    TTI_MEMBER uint64_t *operator()(tti_gpu_control *at, uint32_t from) const
    {
        return &at->ready[blockIdx.x][from];
    }
};
struct tti_done_flag {
    TTI_MEMBER uint64_t *operator()(tti_gpu_control *at, uint32_t from) const
    {
        return &at->done[blockIdx.x][from];
    }
};

/* Parts end at multiples of 128 elements, so that they keep the alignment of the buffers. */
TTI_DEVICE uint64_t tti_part(const tti_coupled_args &a, uint32_t rank)
{
    const uint64_t lines = (a.count + 127) / 128;
    const uint64_t end = (lines * rank / a.ranks) * 128;
    return end < a.count ? end : a.count;
}

template <int TYPE> TTI_DEVICE void tti_two_shot(const tti_coupled_args &a)
{
    __shared__ uint64_t scale[TTI_GPU_RANKS];
    const uint64_t epoch = tti_enter(a.control[a.rank]);
    const tti_watch watch = tti_watch_begin(a.status, a.timeout_ns, epoch);
    if (a.scaled && threadIdx.x == 0) {
        typedef typename tti_element<TYPE>::word word;
        union {
            uint64_t bits;
            word element;
        } factor;
        factor.bits = a.scale;
        if (a.scale_at)
            factor.element = tti_load_any<word>(a.scale_at);
        a.control[a.rank]->scale[blockIdx.x] = factor.bits;
    }
    if (tti_meet(a, watch, tti_ready_flag())) {
        if (a.scaled && threadIdx.x < a.ranks)
            scale[threadIdx.x] = a.control[threadIdx.x]->scale[blockIdx.x];
        __syncthreads();
        const tti_fold fold = {
            a.in,   a.out, a.ranks, a.ranks, 0, 0, a.op, a.divisor, a.scaled ? ~0u : 0u,
            a.rank, 1,     scale};
        tti_fold_range<TYPE>(fold, tti_part(a, a.rank), tti_part(a, a.rank + 1),
                             tti_thread_of_grid(), tti_threads_of_grid());
        (void)tti_meet(a, watch, tti_done_flag());
    }
    if (tti_leaves_last(a.control[a.rank]))
        tti_end_epoch(a.control[a.rank], epoch);
}

#define TWO_SHOT(type, suffix)                                    \
    TTI_KERNEL(tti_kernel_two_shot_##suffix, tti_coupled_args, a) \
    {                                                             \
        tti_two_shot<type>(a);                                    \
    }
TTI_FOR_TYPES(TWO_SHOT)
