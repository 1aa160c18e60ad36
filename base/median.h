/* The middle and the upper end of measured values, for programs that measure. */
#ifndef TTI_BASE_MEDIAN_H
#define TTI_BASE_MEDIAN_H

#include <stddef.h>

/* The middle one, of an even number the upper of the two; sorts them. `count` is at least 1. */
double tti_median(double *values, size_t count);
/* Where among `count` sorted values, at least 1, the percentile is, 1 to 100: by nearest rank,
 * which is the first that at least so many of a hundred do not exceed. The 99th of fewer than 100
 * values is the last. */
size_t tti_percentile_place(size_t count, int percent);

#endif
