/* Measured times and what they say between the sizes measured (coll/tuning.h). */
#include "coll/tuning.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

const char *const tti_path_names[] = {"plan", "fused", "staged", NULL};

double tti_series_seconds(const struct tti_series *series, const double *modelled, double bytes,
                          double model)
{
    const struct tti_point *point = series->point;
    int above = 0;
    while (above < series->count && point[above].bytes < bytes)
        above++;
    int below = above > 0 ? above - 1 : 0;
    if (above == series->count)
        above = series->count - 1;
    double low = log(point[below].seconds / modelled[below]);
    double high = log(point[above].seconds / modelled[above]);
    double part = above > below ? log(bytes / point[below].bytes) /
                                      log(point[above].bytes / point[below].bytes)
                                : 0;
    return model * exp(low + (part < 1 ? part : 1) * (high - low));
}

enum tutti_result tti_tuning_create(struct tti_tuning **tuning)
{
    struct tti_tuning *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    *tuning = made;
    return TUTTI_OK;
}

void tti_tuning_destroy(struct tti_tuning *tuning)
{
    if (tuning)
        free(tuning->series);
    free(tuning);
}

enum tutti_result tti_tuning_add(struct tti_tuning *tuning, const struct tti_series *series)
{
    void *all = tuning->series;
    if (tuning->count >= TTI_TUNING_SERIES)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "more than %d series", TTI_TUNING_SERIES);
    TTI_TRY(tti_grow(&all, &tuning->capacity, tuning->count + 1, sizeof *series));
    tuning->series = all;
    tuning->series[tuning->count++] = *series;
    return TUTTI_OK;
}
