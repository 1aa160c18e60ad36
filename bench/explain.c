/* --explain: for each size what was chosen, what it was predicted to take and what it took. */
#include "bench/bench.h"

#include "base/median.h"

#include <math.h>
#include <stdlib.h>

static const double GOOD = 1.25; /* a prediction within 25%, either way */

void bench_explain_header(tutti_comm *comm)
{
    printf("# Tuning: %s\n", tutti_comm_tuning(comm));
    printf(
        "# predicted: by the cost model, corrected by tutti-tune's times near that size (*);\n"
        "# measured: out of place, median of the sweeps (-N); model: by the cost model alone\n#\n");
    printf("# %10s  %-22s %-5s %5s %10s  %10s  %10s  %5s  %-22s %-5s %10s\n", "size", "chosen",
           "path", "lanes", "model", "predicted", "measured", "ratio", "runner-up", "path",
           "predicted");
    printf("# %10s  %-22s %-5s %5s %10s  %10s  %10s\n", "(B)", "", "", "", "(us)", "(us)", "(us)");
    fflush(stdout);
}

/* The median over the cycles, whose rows are `stride` apart. */
static double explain_median(const struct bench_row *row, size_t stride, int cycles, double *times)
{
    for (int c = 0; c < cycles; c++)
        times[c] = row[(size_t)c * stride].out_of_place.time_us;
    return tti_median(times, (size_t)cycles);
}

static void explain_row(const struct bench_row *row, double us)
{
    const struct tutti_choice *c = &row->choice;
    printf("%12zu  %-22s %-5s %5d %10.2f  %10.2f%s %10.2f  %5.2f", row->bytes, c->algorithm,
           c->path, c->lanes, c->modelled_us, c->predicted_us, c->measured ? "*" : " ", us,
           us / c->predicted_us);
    if (row->has_next)
        printf("  %-22s %-5s %10.2f%s", row->next.algorithm, row->next.path, row->next.predicted_us,
               row->next.measured ? "*" : "");
    printf("\n");
}

static bool explain_is_good(double measured, double predicted)
{
    return fabs(log(measured / predicted)) <= log(GOOD);
}

void bench_explain(const struct bench_result *result, int cycles)
{
    size_t sizes = result->count / (size_t)cycles, told = 0, good = 0, of_model = 0;
    double *times = calloc((size_t)cycles, sizeof *times);
    for (size_t i = 0; i < sizes && times; i++) {
        const struct bench_row *row = &result->rows[i];
        if (row->bytes == 0) /* fewer elements than ranks: nothing is moved, nobody waits */
            continue;
        double us = explain_median(row, sizes, cycles, times);
        told++;
        explain_row(row, us);
        good += explain_is_good(us, row->choice.predicted_us);
        of_model += explain_is_good(us, row->choice.modelled_us);
    }
    free(times);
    printf("# %zu of %zu sizes within 25%% of the prediction; %zu of the model alone\n", good, told,
           of_model);
}
