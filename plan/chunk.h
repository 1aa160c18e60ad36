/* The one rule by which blocks are cut into chunks (plan.h), for host code and device code. */
#ifndef TTI_PLAN_CHUNK_H
#define TTI_PLAN_CHUNK_H

#include <stddef.h>
#include <stdint.h>

#if defined(__CUDACC__)
#define TTI_HOST_AND_DEVICE static __host__ __device__ __forceinline__
#else
#define TTI_HOST_AND_DEVICE static inline
#endif

/* First element of chunk c of a block of `count` elements of `type_size` bytes cut into `chunks`;
 * chunk c ends where c + 1 begins; c == chunks gives `count`. Whole 64-byte units are dealt out
 * evenly, the first chunks getting one more, so chunks of large blocks start on cache lines. */
TTI_HOST_AND_DEVICE size_t tti_chunk_begin(size_t count, size_t type_size, uint32_t chunks,
                                           uint32_t c)
{
    size_t unit = 64 / type_size;
    size_t units = count / unit + (count % unit != 0);
    size_t each = units / chunks, more = units % chunks;
    size_t begin = (each * c + (c < more ? c : more)) * unit;
    return begin < count ? begin : count;
}

#endif
