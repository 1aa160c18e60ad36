/* Fitting the constants of the cost model to measured times (tools/tune.h).
 *
 * One constant after the other is moved up or down by a factor while that makes the predictions
 * better; the factors shrink until nothing is gained. What counts is the square of the logarithm of
 * predicted over measured, weighted towards the fastest ways of each size: those are chosen, and
 * their times are told. Constants that no measured time depends on stay as they were. */
#include "tools/tune.h"

#include "base/median.h"
#include "base/memory.h"
#include "coll/algorithms/algorithms.h"
#include "coll/cost_model.h"
#include "coll/select.h"
#include "coll/small_plan.h"
#include "coll/staged.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_POINTS = 40 };
static const double MAIN_JOB = 4; /* the weight of all-reduces: one model, many patterns */

struct fit_point {
    const struct tti_series *series;
    struct tti_cost_way way;
    struct tti_cost_place place;
    double bytes, seconds, weight;
    bool fastest; /* of all ways at this size */
};

struct fit {
    struct fit_point *point;
    size_t count;
    struct tti_profile profile;
    enum tti_medium medium;
    bool reads; /* as in struct tti_cost_place */
};

static double fit_log_ratio(const struct fit *fit, const struct fit_point *p)
{
    double model = tti_cost_seconds(&fit->profile, &p->place, &p->way, p->bytes);
    return log((model > 1e-12 ? model : 1e-12) / p->seconds);
}

/* Gross errors count less than by their squares: no constant repairs them. */
static double fit_loss(const struct fit *fit)
{
    static const double GROSS = 0.7;
    double sum = 0;
    for (size_t i = 0; i < fit->count; i++) {
        double error = fabs(fit_log_ratio(fit, &fit->point[i]));
        double loss = error < GROSS ? error * error : 2 * GROSS * error - GROSS * GROSS;
        sum += fit->point[i].weight * loss;
    }
    return sum;
}

static bool fit_same_operation(const struct tti_series *a, const struct tti_series *b)
{
    return a->collective == b->collective && a->ranks == b->ranks && a->medium == b->medium;
}

/* The fastest of all ways at the same operation and size. */
static double fit_fastest(const struct fit *fit, const struct fit_point *p)
{
    double fastest = p->seconds;
    for (size_t i = 0; i < fit->count; i++)
        if (fit->point[i].bytes == p->bytes && fit->point[i].seconds < fastest &&
            fit_same_operation(fit->point[i].series, p->series))
            fastest = fit->point[i].seconds;
    return fastest;
}

static enum tutti_result fit_add_series(struct fit *fit, const struct tti_series *series)
{
    const struct tti_algorithm *algorithm = tti_algorithm_at(series->collective, series->algorithm);
    struct tti_cost_way way = {.algorithm = algorithm,
                               .path = series->path,
                               .spec = {.collective = series->collective,
                                        .nranks = series->ranks,
                                        .lanes = series->lanes,
                                        .slices = 1,
                                        .layout = {.nhosts = 1}}};
    if (algorithm->applicable && !algorithm->applicable(&way.spec))
        return TUTTI_OK;
    TTI_TRY(tti_work_model_of(algorithm, &way.spec, &way.work));
    way.small =
        fit->medium != TTI_LOOPBACK && series->lanes == 1 && way.work.steps <= TTI_SMALL_STEPS;
    for (int i = 0; i < series->count; i++) {
        struct fit_point *p = &fit->point[fit->count++];
        way.spec.slices = tti_select_slices(algorithm, series->point[i].bytes);
        *p = (struct fit_point){.series = series,
                                .way = way,
                                .place = {.medium = fit->medium,
                                          .most_local = series->ranks,
                                          .reads = fit->reads,
                                          .ahead = TTI_STAGED_AHEAD}, /* as measured */
                                .bytes = series->point[i].bytes,
                                .seconds = series->point[i].seconds};
    }
    return TUTTI_OK;
}

static void fit_search(struct fit *fit)
{
    double *cost = fit->profile.cost[fit->medium];
    double best = fit_loss(fit);
    for (int halved = 0; halved < 7; halved++) {
        const double step = 1 + ldexp(0.6, -halved);
        for (bool gained = true; gained;) {
            double before = best;
            for (int c = 0; c < TTI_COSTS; c++)
                for (int up = 0; up < 2; up++) {
                    double old = cost[c];
                    cost[c] = up ? old * step : old / step;
                    double loss = old > 0 ? fit_loss(fit) : best;
                    if (loss < best)
                        best = loss;
                    else
                        cost[c] = old;
                }
            gained = best < before * 0.999;
        }
    }
}

/* The middle error of the fastest ways. */
static enum tutti_result fit_error(const struct fit *fit, double *error)
{
    double *errors = tti_calloc(fit->count, sizeof *errors);
    size_t used = 0;
    if (!errors)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < fit->count; i++)
        if (fit->point[i].fastest)
            errors[used++] = fabs(fit_log_ratio(fit, &fit->point[i]));
    *error = used ? exp(tti_median(errors, used)) : 0;
    free(errors);
    return TUTTI_OK;
}

static enum tutti_result fit_medium(struct fit *fit, struct tti_tuning *tuning, double *error)
{
    for (size_t i = 0; i < tuning->count; i++)
        if (tuning->series[i].medium == fit->medium && tuning->series[i].hosts == 1)
            TTI_TRY(fit_add_series(fit, &tuning->series[i]));
    if (fit->count < LEAST_POINTS)
        return TUTTI_OK;
    for (size_t i = 0; i < fit->count; i++) {
        double ratio = fit_fastest(fit, &fit->point[i]) / fit->point[i].seconds;
        double main_job = fit->point[i].series->collective == TUTTI_ALL_REDUCE ? MAIN_JOB : 1;
        fit->point[i].fastest = ratio == 1;
        fit->point[i].weight = main_job * ratio * ratio;
    }
    fit_search(fit);
    memcpy(tuning->cost[fit->medium], fit->profile.cost[fit->medium],
           sizeof tuning->cost[fit->medium]);
    tuning->fitted[fit->medium] = true;
    return fit_error(fit, error);
}

enum tutti_result tune_fit(struct tti_tuning *tuning, const struct tti_profile *profile, bool reads,
                           double error[TTI_MEDIA])
{
    enum tutti_result result = TUTTI_OK;
    size_t points = 0;
    for (size_t i = 0; i < tuning->count; i++)
        points += (size_t)tuning->series[i].count;
    for (int medium = 0; medium < TTI_NETWORK && result == TUTTI_OK; medium++) {
        struct fit fit = {.profile = *profile, .medium = (enum tti_medium)medium, .reads = reads};
        error[medium] = 0;
        fit.point = tti_calloc(points, sizeof *fit.point);
        result = fit.point ? fit_medium(&fit, tuning, &error[medium]) : TUTTI_ERR_MEMORY;
        free(fit.point);
    }
    return result;
}
