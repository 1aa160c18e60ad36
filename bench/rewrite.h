/* What `--rewrite` does before each iteration, here and in the peers' programs of bench/compare:
 * one function, so that all contenders do the same. */
#ifndef TTI_BENCH_REWRITE_H
#define TTI_BENCH_REWRITE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Store new values into `bytes` of an input with plain stores, as a program that computed them
 * would: the lines are then dirty in this core's cache. The values are small positive numbers in
 * every element type; `turn` makes those of one iteration differ from the last one's. */
void tti_bench_rewrite(void *input, size_t bytes, unsigned turn);

#ifdef __cplusplus
}
#endif
#endif
