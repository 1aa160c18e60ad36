/* What tutti-tune prints (tools/tune.h). */
#include "tools/tune.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void tune_progress(const char *text)
{
    if (!isatty(STDERR_FILENO))
        return;
    fprintf(stderr, text ? "\r\033[K%s ..." : "\r\033[K", text);
    fflush(stderr);
}

static void report_way(const struct tti_selection *way, char *text, size_t bytes)
{
    if (way->path == TTI_PATH_FUSED)
        snprintf(text, bytes, "%s, fused", way->algorithm->name);
    else if (way->path == TTI_PATH_STAGED)
        snprintf(text, bytes, "%s, staged", way->algorithm->name);
    else
        snprintf(text, bytes, "%s, %d lane%s", way->algorithm->name, way->spec.lanes,
                 way->spec.lanes == 1 ? "" : "s");
}

static void report_row(const struct tune_row *row)
{
    const struct tune_result *fastest = &row->result[0], *of_model = fastest;
    char winner[64], other[64];
    for (int w = 0; w < row->count; w++) {
        fastest = row->result[w].seconds < fastest->seconds ? &row->result[w] : fastest;
        of_model = row->result[w].of_model ? &row->result[w] : of_model;
    }
    report_way(&fastest->way, winner, sizeof winner);
    report_way(&of_model->way, other, sizeof other);
    printf("%12.0f  %-28s %11.2f  %-28s %11.2f  %5.2f\n", row->whole, winner,
           fastest->seconds * 1e6, other, of_model->seconds * 1e6,
           of_model->seconds / fastest->seconds);
}

void tune_report(const struct tune_rows *rows, int ranks)
{
    const struct tune_row *last = NULL;
    for (size_t i = 0; i < rows->count; i++) {
        const struct tune_row *row = &rows->row[i];
        if (!last || last->collective != row->collective || last->medium != row->medium)
            printf("\n# %s, %d ranks, %s\n# %10s  %-28s %11s  %-28s %11s  %5s\n",
                   tutti_collective_name(row->collective), ranks, tti_medium_names[row->medium],
                   "bytes", "fastest", "us", "the model alone", "us", "gain");
        report_row(row);
        last = row;
    }
    fflush(stdout);
}

void tune_report_constants(const struct tti_tuning *tuning)
{
    for (int medium = 0; medium < TTI_MEDIA; medium++) {
        if (!tuning->fitted[medium])
            continue;
        printf("\n# constants of %s, seconds\n", tti_medium_names[medium]);
        for (int c = 0; c < TTI_COSTS; c++)
            printf("#   %-14s %.3g\n", tti_constant_names[c], tuning->cost[medium][c]);
    }
}
