/* What counts of the times that were measured (tools/tune.h): which ways are timed for longer, and
 * what comes of all passes. Pure functions of a row. */
#include "tools/tune.h"

#include "base/median.h"

enum { MOST_FINALISTS = 6 }; /* more would not run a hundred times before they are timed */

double tune_expected(const struct tune_result *result)
{
    return result->quicker > 0 ? result->quicker : result->looked;
}

double tune_best(const struct tune_row *row)
{
    double best = tune_expected(&row->result[0]);
    for (int w = 1; w < row->count; w++) {
        const double seconds = tune_expected(&row->result[w]);
        best = seconds < best ? seconds : best;
    }
    return best;
}

static double tune_quicker(const struct tune_result *r)
{
    double quicker = r->pass[0];
    for (int p = 1; p < TUNE_SHORT_PASSES; p++)
        quicker = r->pass[p] < quicker ? r->pass[p] : quicker;
    return quicker;
}

int tune_choose_finalists(struct tune_row *row)
{
    int finalists = 0;
    for (int w = 0; w < row->count; w++)
        row->result[w].quicker = tune_quicker(&row->result[w]);
    const double best = tune_best(row);
    for (int w = 0; w < row->count; w++) {
        struct tune_result *r = &row->result[w];
        int before = 0;
        for (int v = 0; v < row->count; v++)
            before += row->result[v].quicker < r->quicker;
        r->finalist = before < MOST_FINALISTS && r->quicker <= TUNE_NEARLY * best;
        finalists += r->finalist;
    }
    return finalists;
}

void tune_conclude(struct tune_row *row)
{
    const int more = row->passes - TUNE_SHORT_PASSES;
    double best = 0, was = 0; /* of the finalists: by the long passes, and by the short ones */
    if (!row->settles || more < 1) {
        for (int w = 0; w < row->count; w++)
            row->result[w].seconds = tti_median(row->result[w].pass, (size_t)row->passes);
        return;
    }
    (void)tune_choose_finalists(row);
    for (int w = 0; w < row->count; w++) {
        struct tune_result *r = &row->result[w];
        if (!r->finalist)
            continue;
        was = was > 0 && was < r->quicker ? was : r->quicker;
        r->seconds = tti_median(r->pass + TUNE_SHORT_PASSES, (size_t)more);
        best = best > 0 && best < r->seconds ? best : r->seconds;
    }
    for (int w = 0; w < row->count; w++)
        if (!row->result[w].finalist)
            row->result[w].seconds = row->result[w].quicker * best / was;
}
