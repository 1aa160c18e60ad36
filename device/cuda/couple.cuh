/* Kernels of several ranks that run at the same time: epochs, flags between blocks of the same
 * number, and waits that end. A wait ends when the flag is there, when the host or another block
 * asks to abort, when another rank gave up, or when the kernel has run for its time; then the
 * status says who was waited for, and the whole kernel ends soon. Structures: kernel_args.h. Next:
 * meet.cuh, two_shot.cu, one_shot_ll.cu. */
#ifndef TTI_DEVICE_CUDA_COUPLE_CUH
#define TTI_DEVICE_CUDA_COUPLE_CUH

#include "device/cuda/portable.cuh"

/* Polls between two looks at the clock and at the host's memory, which is far. */
enum { TTI_POLLS_PER_LOOK = 256 };

/* One thread's watch over its waits. */
struct tti_watch {
    tti_gpu_status *status;
    const tti_gpu_control *own; /* where others say that they gave up; may be 0 */
    uint32_t left;              /* who had given up before this launch, plus 1; 0: nobody */
    uint64_t began_ns, timeout_ns;
    uint64_t epoch;
};

TTI_DEVICE tti_watch tti_watch_begin(tti_gpu_status *status, const tti_gpu_control *own,
                                     uint64_t timeout_ns, uint64_t epoch)
{
    tti_watch watch = {status, own, 0, tti_device_ns(), timeout_ns, epoch};
    return watch;
}

/* The first failure is kept; the host and the other blocks hear of any. */
TTI_DEVICE void tti_watch_fail(const tti_watch &watch, tutti_result result, uint32_t rank)
{
    if (tti_swap_first(&watch.status->claimed, 1) == 0) {
        watch.status->rank = rank;
        watch.status->block = blockIdx.x;
        watch.status->epoch = watch.epoch;
        tti_release(&watch.status->failed, (uint32_t)result);
    }
    tti_release(&watch.status->abort, 1u); /* after what it is about; looked at by the host, too */
}

/* Every so many polls: whether to go on waiting for `rank`. */
TTI_DEVICE bool tti_watch_look(const tti_watch &watch, uint32_t rank)
{
    if (tti_glance(&watch.status->abort))
        return false;
    const uint32_t left = watch.own ? tti_glance(&watch.own->withdrawn) : 0;
    if (left)
        tti_watch_fail(watch, TUTTI_ERR_PEER, left - 1);
    else if (tti_device_ns() - watch.began_ns < watch.timeout_ns)
        return true;
    else
        tti_watch_fail(watch, TUTTI_ERR_TIMEOUT, rank);
    return false;
}

/* Wait until *flag, which `rank` raises, has reached `value`; false: give up. */
TTI_DEVICE bool tti_await(const tti_watch &watch, const uint64_t *flag, uint64_t value,
                          uint32_t rank)
{
    for (uint32_t polls = 1;; polls++) {
        const uint64_t now = tti_acquire(flag);
        if (now == TTI_WITHDRAWN) {
            tti_watch_fail(watch, TUTTI_ERR_PEER, rank);
            return false;
        }
        if (now >= value)
            return true;
        if (polls % TTI_POLLS_PER_LOOK == 0 && !tti_watch_look(watch, rank))
            return false;
        tti_relax();
    }
}

/* Every block, first: the number of this launch. Packets carry its low half, in which 0 is what
 * zeroed memory holds; an epoch is left out for that, so two are, and odd and even take turns. */
TTI_DEVICE uint64_t tti_enter(const tti_gpu_control *own)
{
    const uint64_t next = tti_acquire(&own->epoch) + 1;
    return (uint32_t)next == 0 ? next + 2 : next;
}

/* Every block, last: true in one thread of the block that leaves last, when all have read what is
 * this rank's own. That thread writes such words, then ends the epoch. Only this
 * rank's next launch reads the epoch, which begins when this one is over: no fence. */
TTI_DEVICE bool tti_leaves_last(tti_gpu_control *own)
{
    __syncthreads();
    return threadIdx.x == 0 && tti_add_acq_rel(&own->leaving, 1) == gridDim.x - 1;
}

TTI_DEVICE void tti_end_epoch(tti_gpu_control *own, uint64_t epoch)
{
    own->leaving = 0;
    own->epoch = epoch;
}

#endif
