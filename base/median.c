/* See base/median.h. */
#include "base/median.h"

#include <stdlib.h>

static int median_compare(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

double tti_median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, median_compare);
    return values[count / 2];
}

size_t tti_percentile_place(size_t count, int percent)
{
    return (count * (size_t)percent + 99) / 100 - 1;
}
