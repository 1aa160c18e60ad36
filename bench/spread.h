/* Blocks of different sizes, as `--uneven` deals them, here and in the peers' programs of
 * bench/compare: one rule, so that all contenders do the same. */
#ifndef TTI_BENCH_SPREAD_H
#define TTI_BENCH_SPREAD_H

#include <stddef.h>

/* Elements of block k of n, of `elements` in all, rounded down: sizes rise evenly to the last one,
 * which is `factor` times the first (1: all alike). */
static inline size_t tti_bench_spread(size_t elements, int n, int k, int factor)
{
    const size_t steps = (size_t)(n > 1 ? n - 1 : 1), more = (size_t)(factor - 1);
    const size_t twice_all = (size_t)n * (2 * steps + more * (size_t)(n - 1));
    return elements * 2 * (steps + more * (size_t)k) / twice_all;
}

/* Elements of the blocks first, first + 1, ... before the k-th of them, round from the last to the
 * first. What rank r has for rank k in an all-to-all is block (r + k) % n, so that all have, and
 * all get, as much. */
static inline size_t tti_bench_spread_before(size_t elements, int n, int first, int k, int factor)
{
    size_t before = 0;
    for (int i = 0; i < k; i++)
        before += tti_bench_spread(elements, n, (first + i) % n, factor);
    return before;
}

#endif
