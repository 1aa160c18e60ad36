/* Element kernels that work alone: copies, and folding n sources into m destinations
 * (kernel_args.h). Memory-bound: every thread has several 16-byte accesses under way. Launch with
 * enough threads to fill the device; any number of blocks is correct. */
#include "device/cuda/fold.cuh"

/* Where operand k is: as given, or where its rank says. */
TTI_DEVICE void tti_find_operand(const tti_reduce_copy_args &a, uint32_t k, const void **src,
                                 void **dst)
{
    *src = a.src[k];
    *dst = a.dst[k];
    if (!a.places || a.far_first + k >= TTI_GPU_RANKS)
        return;
    const tti_gpu_place &place = a.places->of[a.far_first + k];
    if (k < a.srcs && place.in)
        *src = (const char *)place.in + a.in_at;
    if (k < a.dsts && a.far_out && place.out)
        *dst = (char *)place.out + a.out_at;
}

template <int TYPE> TTI_DEVICE void tti_reduce_copy(const tti_reduce_copy_args &a)
{
    __shared__ const void *src[TTI_GPU_OPERANDS];
    __shared__ void *dst[TTI_GPU_OPERANDS];
    __shared__ uint32_t keep_off;
    if (threadIdx.x == 0) {
        keep_off = 0;
        if (a.places) {
            tti_add_first(&a.places->inside, 1);
            keep_off = tti_glance(&a.places->gave_up);
        }
    }
    if (threadIdx.x < TTI_GPU_OPERANDS)
        tti_find_operand(a, threadIdx.x, &src[threadIdx.x], &dst[threadIdx.x]);
    __syncthreads();
    if (!keep_off) {
        const tti_fold fold = {src,  dst,       a.srcs,   a.dsts, a.src_wide, a.dst_wide,
                               a.op, a.divisor, a.scaled, 0,      0,          &a.scale};
        tti_fold_range<TYPE>(fold, 0, a.count, tti_thread_of_grid(), tti_threads_of_grid());
    }
    if (!a.places)
        return;
    __syncthreads();
    if (threadIdx.x == 0)
        tti_add_release(&a.places->inside, ~0u);
}

#define REDUCE_COPY(type, suffix)                                        \
    TTI_KERNEL(tti_kernel_reduce_copy_##suffix, tti_reduce_copy_args, a) \
    {                                                                    \
        tti_reduce_copy<type>(a);                                        \
    }
TTI_FOR_TYPES(REDUCE_COPY)

TTI_KERNEL(tti_kernel_copy, tti_copy_args, a)
{
    const tti_fold fold = {&a.src, a.dst, 1, a.dsts, 0, 0, TUTTI_SUM, 0, 0, 0, 0, 0};
    tti_fold_range<TUTTI_UINT8>(fold, 0, a.bytes, tti_thread_of_grid(), tti_threads_of_grid());
}
