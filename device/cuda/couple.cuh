/* Kernels of several ranks that run at the same time: epochs, flags between blocks of the same
 * number, and waits that end. A wait ends when the flag is there, when the host or another block
 * asks to abort, or when the kernel has run for its time; then the status says who was waited for,
 * and the whole kernel ends soon. Structures: kernel_args.h. Next: two_shot.cu, one_shot_ll.cu. */
#ifndef TTI_DEVICE_CUDA_COUPLE_CUH
#define TTI_DEVICE_CUDA_COUPLE_CUH

#include "device/cuda/portable.cuh"

/* Polls between two looks at the clock and at the host's memory, which is far. */
enum { TTI_POLLS_PER_LOOK = 256 };

/* One thread's watch over its waits. */
struct tti_watch {
    tti_gpu_status *status;
    uint64_t began_ns, timeout_ns;
    uint64_t epoch;
};

TTI_DEVICE tti_watch tti_watch_begin(tti_gpu_status *status, uint64_t timeout_ns, uint64_t epoch)
{
    tti_watch watch = {status, tti_device_ns(), timeout_ns, epoch};
    return watch;
}

/* Every so many polls: whether to go on waiting for `rank`. */
TTI_DEVICE bool tti_watch_look(const tti_watch &watch, uint32_t rank)
{
    if (tti_glance(&watch.status->abort))
        return false;
    if (tti_device_ns() - watch.began_ns < watch.timeout_ns)
        return true;
    if (tti_swap_first(&watch.status->failed, TUTTI_ERR_TIMEOUT) == 0) {
        watch.status->rank = rank;
        watch.status->block = blockIdx.x;
        watch.status->epoch = watch.epoch;
    }
    tti_release(&watch.status->abort, 1u); /* after what it is about; looked at by the host, too */
    return false;
}

/* Wait until *flag, which `rank` raises, has reached the epoch; false: give up. */
TTI_DEVICE bool tti_await(const tti_watch &watch, const uint64_t *flag, uint32_t rank)
{
    for (uint32_t polls = 1; tti_acquire(flag) < watch.epoch; polls++) {
        if (polls % TTI_POLLS_PER_LOOK == 0 && !tti_watch_look(watch, rank))
            return false;
        tti_relax();
    }
    return true;
}

/* Every block, first: the number of this launch. Packets carry its low half, in which 0 is what
 * zeroed memory holds; an epoch is left out for that, so two are, and odd and even take turns. */
TTI_DEVICE uint64_t tti_enter(const tti_gpu_control *own)
{
    const uint64_t next = tti_acquire(&own->epoch) + 1;
    return (uint32_t)next == 0 ? next + 2 : next;
}

/* Every block, last: true in one thread of the block that leaves last, when all have read what is
 * this rank's own. That thread writes such words, then ends the epoch. */
TTI_DEVICE bool tti_leaves_last(tti_gpu_control *own)
{
    __syncthreads();
    return threadIdx.x == 0 && tti_add_acq_rel(&own->leaving, 1) == gridDim.x - 1;
}

TTI_DEVICE void tti_end_epoch(tti_gpu_control *own, uint64_t epoch)
{
    own->leaving = 0;
    tti_release(&own->epoch, epoch);
}

#endif
