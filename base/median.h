/* The middle of measured values, for programs that measure. */
#ifndef TTI_BASE_MEDIAN_H
#define TTI_BASE_MEDIAN_H

#include <stddef.h>

/* The middle one, of an even number the upper of the two; sorts them. `count` is at least 1. */
double tti_median(double *values, size_t count);

#endif
