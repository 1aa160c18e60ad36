/* Meetings of blocks of the same number on all ranks, and what they tell each other before the
 * first: where a rank's buffers are, and its factor. For kernels of several ranks (couple.cuh) that
 * reach into each other's buffers. Next: two_shot.cu, direct.cu. */
#ifndef TTI_DEVICE_CUDA_MEET_CUH
#define TTI_DEVICE_CUDA_MEET_CUH

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

/* Before the first meeting: what the peers' blocks of this number will read. */
template <class W> TTI_DEVICE void tti_publish(const tti_coupled_args &a)
{
    if (threadIdx.x != 0)
        return;
    tti_gpu_control *own = a.control[a.rank];
    if (a.scaled) {
        union {
            uint64_t bits;
            W element;
        } factor;
        factor.bits = a.scale;
        if (a.scale_at)
            factor.element = tti_load_any<W>(a.scale_at);
        own->scale[blockIdx.x] = factor.bits;
    }
    own->in[blockIdx.x] = a.in[a.rank];
    own->out[blockIdx.x] = a.out[a.rank];
}

/* Fold elements first to end by all threads of the grid. */
template <int TYPE>
TTI_DEVICE void tti_fold_grid(const tti_fold &fold, uint64_t first, uint64_t end)
{
    tti_fold_range<TYPE>(fold, first, end, tti_thread_of_grid(), tti_threads_of_grid());
}

/* All threads, last; `met`: whether the first meeting was. Nobody leaves while others still read
 * or write what is this rank's; then the epoch ends. */
TTI_DEVICE void tti_leave(const tti_coupled_args &a, const tti_watch &watch, bool met)
{
    if (met)
        (void)tti_meet(a, watch, tti_done_flag());
    if (tti_leaves_last(a.control[a.rank]))
        tti_end_epoch(a.control[a.rank], watch.epoch);
}

#endif
