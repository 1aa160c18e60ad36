/* Element kernels that work alone: copies, and folding n sources into m destinations
 * (kernel_args.h). Memory-bound: every thread has several 16-byte accesses under way. Launch with
 * enough threads to fill the device; any number of blocks is correct. */
#include "device/cuda/fold.cuh"

template <int TYPE> TTI_DEVICE void tti_reduce_copy(const tti_reduce_copy_args &a)
{
    const tti_fold fold = {a.src, a.dst,     a.srcs,   a.dsts, a.src_wide, a.dst_wide,
                           a.op,  a.divisor, a.scaled, 0,      0,          &a.scale};
    tti_fold_range<TYPE>(fold, 0, a.count, tti_thread_of_grid(), tti_threads_of_grid());
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
