/* One variant's element kernels: a table of functions compiled for one instruction set.
 *
 * kernels.inc is the one source; kernels_<variant>.c compile it with that variant's flags.
 * dispatch.c chooses the table, ../reduce.c calls through it. Kernels compute in one type: the
 * accumulator types themselves, or a low-precision type widened to float32 and narrowed again.
 *
 * `from_end`: the last line first (reduce.h says what for).
 *
 * Every kernel takes pointers of any alignment, but where it says otherwise, and any count. `dst`
 * is exactly a source or disjoint from it. A NaN that arithmetic produces is always the positive
 * quiet NaN without payload, so that no result depends on the order of operands or on the CPU. */
#ifndef TTI_DEVICE_CPU_KERNELS_H
#define TTI_DEVICE_CPU_KERNELS_H

#include "tutti/tutti.h"

#include <stdbool.h>
#include <stddef.h>

enum { TTI_KERNEL_OPS = 4 }; /* SUM, PROD, MAX, MIN */

typedef void tti_combine_kernel(void *dst, const void *a, const void *b, size_t count);
typedef void tti_spread_kernel(void *dst, void *dst2, const void *a, const void *b, size_t count,
                               bool from_end);
typedef void tti_stream_kernel(void *dst, void *dst2, const void *a, const void *b, size_t count);
typedef void tti_convert_kernel(void *dst, const void *src, size_t count);
typedef void tti_divide_kernel(void *dst, const void *src, size_t count, int divisor);
typedef void tti_multiply_kernel(void *dst, const void *src, const void *factor, size_t count);
typedef void tti_copy_kernel(void *dst, const void *src, size_t bytes);
typedef void tti_copy_twice_kernel(void *dst, void *dst2, const void *src, size_t bytes,
                                   bool from_end);

/* NULL where a type has no such kernel: combine, spread, divide and multiply exist for accumulator
 * types, widen (to float32) and narrow (from float32) for the others. */
struct tti_kernels {
    const char *name;
    tti_combine_kernel *combine[TTI_KERNEL_OPS][TUTTI_TYPE_COUNT];
    tti_divide_kernel *divide[TUTTI_TYPE_COUNT];
    tti_multiply_kernel *multiply[TUTTI_TYPE_COUNT];
    tti_spread_kernel *spread_sum[TUTTI_TYPE_COUNT]; /* a sum into two places */
    /* The same, bypassing the caches, without a fence; into places that begin with a cache line,
     * the second of which may be NULL. */
    tti_stream_kernel *stream_sum[TUTTI_TYPE_COUNT];
    tti_convert_kernel *widen[TUTTI_TYPE_COUNT];
    tti_convert_kernel *narrow[TUTTI_TYPE_COUNT];
    /* Into two places, disjoint from each other and from src; or NULL. */
    tti_copy_twice_kernel *copy_twice;
    tti_copy_kernel *copy_around; /* a copy that bypasses the caches */
    tti_copy_kernel *copy_lines;  /* one by vector stores through the caches */
    tti_copy_kernel *copy_stream; /* copy_around without the fence at the end */
    void (*fence)(void);          /* what was stored so comes before what follows */
};

extern const struct tti_kernels tti_kernels_baseline;
#if defined(__x86_64__)
extern const struct tti_kernels tti_kernels_avx2;
extern const struct tti_kernels tti_kernels_avx512;
#elif defined(__aarch64__)
extern const struct tti_kernels tti_kernels_neon;
#endif

/* The table in use. */
const struct tti_kernels *tti_kernels_now(void);

#endif
