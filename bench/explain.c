/* --explain: for each size what was chosen, what it was predicted to take and what it took. */
#include "bench/bench.h"

#include <math.h>

static const double GOOD = 1.25; /* a prediction within 25%, either way */

void bench_explain_header(tutti_comm *comm)
{
    printf("# Tuning: %s\n", tutti_comm_tuning(comm));
    printf("# predicted: by the cost model, corrected by tutti-tune's times near that size (*);\n"
           "# ratio: measured / predicted, out of place; model: by the cost model alone\n#\n");
    printf("# %10s  %-22s %-5s %5s %10s  %10s  %10s  %5s  %-22s %-5s %10s\n", "size", "chosen",
           "path", "lanes", "model", "predicted", "measured", "ratio", "runner-up", "path",
           "predicted");
    printf("# %10s  %-22s %-5s %5s %10s  %10s  %10s\n", "(B)", "", "", "", "(us)", "(us)", "(us)");
    fflush(stdout);
}

static double explain_ratio(const struct bench_row *row)
{
    return row->out_of_place.time_us / row->choice.predicted_us;
}

void bench_explain_row(const struct bench_row *row)
{
    const struct tutti_choice *c = &row->choice;
    printf("%12zu  %-22s %-5s %5d %10.2f  %10.2f%s %10.2f  %5.2f", row->bytes, c->algorithm,
           c->path, c->lanes, c->modelled_us, c->predicted_us, c->measured ? "*" : " ",
           row->out_of_place.time_us, explain_ratio(row));
    if (row->has_next)
        printf("  %-22s %-5s %10.2f%s", row->next.algorithm, row->next.path, row->next.predicted_us,
               row->next.measured ? "*" : "");
    printf("\n");
    fflush(stdout);
}

void bench_explain_end(const struct bench_result *result)
{
    size_t good = 0, good_alone = 0;
    for (size_t i = 0; i < result->count; i++) {
        const struct bench_row *row = &result->rows[i];
        good += fabs(log(explain_ratio(row))) <= log(GOOD);
        good_alone += fabs(log(row->out_of_place.time_us / row->choice.modelled_us)) <= log(GOOD);
    }
    printf("# %zu of %zu sizes within 25%% of the prediction; %zu of the model alone\n", good,
           result->count, good_alone);
}
