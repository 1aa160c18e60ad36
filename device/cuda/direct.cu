/* The collectives that move blocks (and fold at most once), over mapped inputs: every rank takes
 * what it needs out of the others' inputs, straight into its output. One kernel a rank, all at the
 * same time; each tells the others where its input is. Equal to the plans direct_all_gather,
 * direct_reduce_scatter and so on.
 *
 * In place is safe as long as nobody reads what another rank's output covers, which the caller sees
 * to: an all-to-all in place is not for this kernel. */
#include "device/cuda/couple.cuh"
#include "device/cuda/fold.cuh"
#include "device/cuda/meet.cuh"

template <int TYPE> TTI_DEVICE void tti_direct(const tti_direct_args &d)
{
    typedef typename tti_element<TYPE>::word word;
    const tti_coupled_args &a = d.coupled;
    __shared__ const void *in[TTI_GPU_RANKS];
    __shared__ void *out[1];
    __shared__ uint64_t scale[TTI_GPU_RANKS];
    const tti_watch watch = tti_begin(a);
    tti_publish<word>(a, watch);
    if (d.spreads && threadIdx.x < a.ranks)
        a.control[a.rank]->spread[blockIdx.x][threadIdx.x] = d.spread[threadIdx.x];
    const bool met = tti_meet(a, watch, tti_ready_flag());
    if (met) {
        if (threadIdx.x < a.ranks) {
            const tti_gpu_control *theirs = a.control[threadIdx.x];
            const void *at = d.spreads    ? theirs->spread[blockIdx.x][a.rank]
                             : a.exchange ? theirs->in[blockIdx.x]
                                          : a.in[threadIdx.x];
            /* A number: a rank that gives nothing may have no buffer, and NULL takes no offset. */
            in[threadIdx.x] = (const void *)((uintptr_t)at + d.from);
            scale[threadIdx.x] = theirs->scale[blockIdx.x];
        }
        __syncthreads();
        TTI_LOOP (k, d.first, d.first + d.blocks) {
            if (threadIdx.x == 0)
                out[0] = (char *)a.out[a.rank] + (d.uneven ? d.places[k] : k * d.stride);
            __syncthreads();
            /* In place, the own block is where it belongs, and others are reading it. */
            if (!d.folds && in[k] == out[0]) {
                __syncthreads();
                continue;
            }
            const tti_fold fold = {d.folds ? in : in + k,
                                   out,
                                   d.folds ? a.ranks : 1,
                                   1,
                                   0,
                                   d.wide,
                                   a.op,
                                   a.divisor,
                                   d.folds && a.scaled ? ~0u : 0u,
                                   0,
                                   1,
                                   scale};
            tti_fold_grid<TYPE>(fold, 0, d.uneven ? d.counts[k] : a.count);
            __syncthreads();
        }
    }
    tti_leave(a, watch, met);
}

#define DIRECT(type, suffix)                                                              \
    TTI_KERNEL_PAIRED(TTI_PAIRED_THREADS, tti_kernel_direct_##suffix, tti_direct_args, d) \
    {                                                                                     \
        tti_direct<type>(d);                                                              \
    }
TTI_FOR_TYPES(DIRECT)
