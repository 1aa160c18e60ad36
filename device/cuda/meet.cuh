/* Meetings of blocks of the same number on all ranks, and what they tell each other before the
 * first: where a rank's buffers are, and its factor. For kernels of several ranks (couple.cuh) that
 * reach into each other's buffers.
 *
 * Who gives up gets its buffers back when its kernel ends, while a peer may still work on them, or
 * come late and begin. So a block says that it is inside before it looks whether the others are
 * ready; who gives up takes back that it is ready, and then waits until no peer's block of that
 * number is inside. One of the two sees the other. Next: two_shot.cu, direct.cu. */
#ifndef TTI_DEVICE_CUDA_MEET_CUH
#define TTI_DEVICE_CUDA_MEET_CUH

#include "device/cuda/couple.cuh"
#include "device/cuda/fold.cuh"

TTI_DEVICE tti_watch tti_begin(const tti_coupled_args &a)
{
    const tti_gpu_control *own = a.control[a.rank];
    const uint32_t left = tti_glance(&own->withdrawn); /* on its way together with the epoch */
    tti_watch watch = tti_watch_begin(a.status, own, a.timeout_ns, tti_enter(own));
    watch.left = left;
    return watch;
}

/* Raise this block's flag at every rank, and wait for theirs. All threads call it; `raised` gives
 * the flag of rank `from` in the control words of rank `at`. False: give up. */
template <class Flag>
TTI_DEVICE bool tti_meet(const tti_coupled_args &a, const tti_watch &watch, Flag raised)
{
    __syncthreads(); /* what all threads did before is behind the flags */
    bool met = true;
    if (threadIdx.x < a.ranks) {
        const uint32_t peer = threadIdx.x;
        tti_gpu_control *own = a.control[a.rank];
        if (watch.left) { /* for good: this rank's word that it withdrew must stay */
            tti_watch_fail(watch, TUTTI_ERR_PEER, watch.left - 1);
            met = false;
        } else {
            tti_release(raised(a.control[peer], a.rank), watch.epoch);
            met = tti_await(watch, raised(own, peer), watch.epoch, peer);
        }
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

/* Before the first meeting: what the peers' blocks of this number will read; and that this one is
 * inside. */
template <class W> TTI_DEVICE void tti_publish(const tti_coupled_args &a, const tti_watch &watch)
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
    tti_store_first(&own->inside[blockIdx.x], watch.epoch);
}

/* A block of `peer` that is inside now leaves soon: it moves what it is at, or sees that somebody
 * withdrew. Bounded all the same. */
TTI_DEVICE void tti_await_outside(const tti_coupled_args &a, const tti_watch &watch, uint32_t peer)
{
    const uint64_t most = 5000000000u, began = tti_device_ns();
    const uint64_t patience = watch.timeout_ns < most ? watch.timeout_ns : most;
    while (tti_acquire(&a.control[peer]->inside[blockIdx.x]) != 0) {
        if (tti_device_ns() - began > patience) {
            (void)tti_swap_first(&a.status->stuck, peer + 1);
            return;
        }
        tti_relax();
    }
}

/* All threads of a block that gives up, and touches no other's buffer any more. */
TTI_DEVICE void tti_withdraw(const tti_coupled_args &a, const tti_watch &watch)
{
    tti_gpu_control *own = a.control[a.rank];
    if (threadIdx.x == 0)
        tti_release(&own->inside[blockIdx.x], (uint64_t)0);
    __syncthreads(); /* before waiting for others who wait for this one */
    if (threadIdx.x < a.ranks) {
        tti_gpu_control *theirs = a.control[threadIdx.x];
        tti_release(&theirs->withdrawn, a.rank + 1);
        tti_store_first(&theirs->ready[blockIdx.x][a.rank], TTI_WITHDRAWN);
        if (a.exchange)
            tti_await_outside(a, watch, threadIdx.x);
    }
}

/* Parts end at multiples of 128 elements, so that they keep the alignment of the buffers. */
TTI_DEVICE uint64_t tti_part(uint64_t count, uint32_t parts, uint32_t part)
{
    const uint64_t lines = (count + 127) / 128;
    const uint64_t end = (lines * part / parts) * 128;
    return end < count ? end : count;
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
    if (met && tti_meet(a, watch, tti_done_flag())) {
        if (threadIdx.x == 0)
            tti_release(&a.control[a.rank]->inside[blockIdx.x], (uint64_t)0);
    } else {
        tti_withdraw(a, watch);
    }
    if (tti_leaves_last(a.control[a.rank]))
        tti_end_epoch(a.control[a.rank], watch.epoch);
}

#endif
