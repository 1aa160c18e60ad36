/* Kernels that try the device: mapped memory between two sides, used before a mapping is trusted,
 * and what warps and blocks do, for tests of the simulated device and of a real one; and small ones
 * that tell: the host how far a stream has come, other ranks where buffers are. */
#include "device/cuda/couple.cuh"

TTI_DEVICE uint32_t tti_probe_word(uint32_t seed, uint64_t i)
{
    return (seed ^ (uint32_t)i) * 2654435761u + (uint32_t)(i >> 32);
}

/* Block-wide: tell the other side, wait for it. */
TTI_DEVICE bool tti_probe_meet(const tti_peer_probe_args &a, uint64_t mark)
{
    __syncthreads();
    bool met = true;
    if (threadIdx.x == 0) {
        tti_release(a.their_flag, mark);
        met = tti_await(tti_watch_begin(a.status, 0, a.timeout_ns, mark), a.my_flag, mark, 1);
    }
    return !__syncthreads_or(!met);
}

TTI_KERNEL(tti_kernel_peer_probe, tti_peer_probe_args, a)
{
    uint32_t wrong = 0;
    for (uint64_t i = threadIdx.x; i < a.words; i += blockDim.x)
        a.theirs[i] = tti_probe_word(a.seed, i);
    if (!tti_probe_meet(a, a.seed))
        return;
    for (uint64_t i = threadIdx.x; i < a.words; i += blockDim.x) {
        wrong += a.mine[i] != tti_probe_word(a.seed, i);
        wrong += a.theirs[i] != tti_probe_word(a.seed, i);
    }
    if (wrong)
        atomicAdd(a.wrong, wrong);
    (void)tti_probe_meet(a, a.seed + 1);
}

TTI_KERNEL(tti_kernel_warp_probe, tti_warp_probe_args, a)
{
    __shared__ uint32_t sums[1024];
    const uint32_t all = 0xffffffffu, thread = threadIdx.x, lane = thread % 32;
    uint32_t *results = a.results + thread;
    const uint32_t stride = blockDim.x;
    results[0 * stride] = __shfl_sync(all, thread, (int)((lane + 1) % 32));
    results[1 * stride] = __shfl_xor_sync(all, thread, 5);
    results[2 * stride] = __shfl_down_sync(all, thread, 3);
    results[3 * stride] = __shfl_up_sync(all, thread, 2);
    results[4 * stride] = __ballot_sync(all, thread % 3 == 0);
    results[5 * stride] = (uint32_t)(__any_sync(all, lane == 7) != 0) |
                          (uint32_t)(__all_sync(all, lane == 7) != 0) << 1;
    results[6 * stride] = (uint32_t)__syncthreads_count((int)(thread & 1));
    results[7 * stride] = atomicAdd(&a.counters[0], 1u);
    if (lane % 2 == 0) /* half a warp, while the other half is elsewhere */
        results[8 * stride] = __shfl_sync(0x55555555u, thread, (int)((lane + 2) % 32));
    else
        results[8 * stride] = __shfl_sync(0xaaaaaaaau, thread, (int)((lane + 4) % 32));
    sums[thread] = thread;
    for (uint32_t half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (thread < half)
            sums[thread] += sums[thread + half];
    }
    __syncthreads();
    results[9 * stride] = sums[0];
    atomicMax(&a.counters[1], thread);
    atomicMin(&a.counters[2], thread);
    atomicExch(&a.counters[3], 77u);
}

TTI_KERNEL(tti_kernel_tell, tti_tell_args, a)
{
    if (tti_thread_of_grid() != 0)
        return;
    const uint32_t count = *a.count + 1;
    *a.count = count;
    tti_release(a.told_poison, tti_glance(a.poison));
    tti_release(a.told_progress, count);
    tti_release(a.told_inside, 0u);
}

TTI_KERNEL(tti_kernel_place, tti_place_args, a)
{
    const uint32_t rank = tti_thread_of_grid();
    if (rank < a.ranks && a.at[rank])
        *a.at[rank] = a.place[rank];
}
