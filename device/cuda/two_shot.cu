/* All-reduce over mapped memory, for large messages: rank r folds part r of all inputs, in rank
 * order, and stores the result into all outputs. Reduce-scatter and all-gather in one pass: each
 * rank reads V and writes V, which is the least. In place is safe, since part r of any buffer is
 * read and written by rank r alone. The plan two_shot_all_reduce moves the same.
 *
 * With one input it is a broadcast (as the plan scatter_gather), with one output a reduce. The
 * others share it out, so that the root's link carries V each way, where in one step it would carry
 * V for each of them.
 *
 * Before it reads, block b waits until block b of every rank has begun (their inputs are final);
 * before it ends, until block b of every rank is through (all that they write here is written). */
#include "device/cuda/couple.cuh"
#include "device/cuda/fold.cuh"
#include "device/cuda/meet.cuh"

/* Where the part of a rank begins. Of more than two a root has none. */
TTI_DEVICE uint64_t tti_two_shot_part(const tti_coupled_args &a, uint32_t rank)
{
    const uint32_t root = a.one_in | a.one_out; /* plus 1; one of them, or none */
    if (root == 0 || a.ranks == 2)
        return tti_part(a.count, a.ranks, rank);
    return tti_part(a.count, a.ranks - 1, rank < root ? rank : rank - 1);
}

template <int TYPE> TTI_DEVICE void tti_two_shot(const tti_coupled_args &a)
{
    typedef typename tti_element<TYPE>::word word;
    __shared__ const void *in[TTI_GPU_RANKS];
    __shared__ void *out[TTI_GPU_RANKS];
    __shared__ uint64_t scale[TTI_GPU_RANKS];
    const tti_watch watch = tti_begin(a);
    tti_publish<word>(a, watch);
    const bool met = tti_meet(a, watch, tti_ready_flag());
    if (met) {
        if (threadIdx.x < a.ranks) {
            const uint32_t peer = threadIdx.x;
            const tti_gpu_control *theirs = a.control[peer];
            in[peer] = a.exchange ? theirs->in[blockIdx.x] : a.in[peer];
            out[peer] = a.exchange ? theirs->out[blockIdx.x] : a.out[peer];
            scale[peer] = theirs->scale[blockIdx.x];
        }
        __syncthreads();
        const tti_fold fold = {a.one_in ? in + a.one_in - 1 : in,
                               a.one_out ? out + a.one_out - 1 : out,
                               a.one_in ? 1 : a.ranks,
                               a.one_out ? 1 : a.ranks,
                               0,
                               0,
                               a.op,
                               a.divisor,
                               a.scaled ? ~0u : 0u,
                               a.one_out ? 0 : a.rank,
                               1,
                               scale};
        tti_fold_grid<TYPE>(fold, tti_two_shot_part(a, a.rank), tti_two_shot_part(a, a.rank + 1));
    }
    tti_leave(a, watch, met);
}

#define TWO_SHOT(type, suffix)                                                               \
    TTI_KERNEL_PAIRED(TTI_PAIRED_THREADS, tti_kernel_two_shot_##suffix, tti_coupled_args, a) \
    {                                                                                        \
        tti_two_shot<type>(a);                                                               \
    }
TTI_FOR_TYPES(TWO_SHOT)
