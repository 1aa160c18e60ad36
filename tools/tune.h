/* tutti-tune: what its files share. Read tutti_tune.c first, then tune_measure.c. */
#ifndef TTI_TOOLS_TUNE_H
#define TTI_TOOLS_TUNE_H

#include "coll/comm.h"
#include "coll/tuning.h"

struct tune_options {
    double seconds;   /* for this job */
    size_t max_bytes; /* of an operation's larger buffer */
    bool collective[TUTTI_COLLECTIVE_COUNT];
    bool quiet;
};

enum { TUNE_PASSES = 5, TUNE_SHORT_PASSES = 2 }; /* the first of them have short batches */

/* One way at one size. */
struct tune_result {
    struct tti_selection way;
    /* All in seconds. */
    double looked;            /* roughly, before the passes */
    double pass[TUNE_PASSES]; /* each the median of a few batches; a long one is one batch */
    double quicker;           /* of the short passes; 0 before tune_choose_finalists */
    double seconds;           /* what comes of it all; 0 before tune_conclude */
    bool finalist;            /* about as fast as the best, so timed in long batches too */
    bool of_model; /* the model alone, with its built-in constants, would have taken this one */
};

/* All ways at one size. */
struct tune_row {
    enum tutti_collective collective;
    enum tti_medium medium;
    double block, whole; /* bytes */
    int passes;          /* done: all, or fewer of what takes long */
    bool settles;        /* short enough for long batches after the short ones */
    int count;
    struct tune_result result[TTI_MOST_WAYS];
};

struct tune_rows {
    struct tune_row *row;
    size_t count, capacity;
};

/* Collective: measure every way of every collective asked for, at sizes a factor of 4 apart, on
 * memory that all ranks map and on other memory. The rows are the same on all ranks. */
enum tutti_result tune_measure(const struct tune_options *options, struct tutti_comm *comm,
                               struct tune_rows *rows);

/* Put the rows in the place of what `tuning` says about the same operations. */
enum tutti_result tune_merge(struct tti_tuning *tuning, const struct tutti_comm *comm,
                             const struct tune_rows *rows);

/* Fit the constants of every medium with enough series to them, from those of `profile` on.
 * `reads` (peers.h) is of the jobs that were measured. error[medium] is the middle error of the
 * fastest ways, as a factor (1.1: 10%); 0: not fitted. */
enum tutti_result tune_fit(struct tti_tuning *tuning, const struct tti_profile *profile, bool reads,
                           double error[TTI_MEDIA]);

/* ---- from what was timed to what counts: tune_choose.c ---- */

/* Times the best: perhaps one of the fastest, when what other ways left in the caches is gone,
 * which is worth up to a third, and more to one way than to another. */
#define TUNE_NEARLY 1.35

/* What an operation will take, for who plans batches: the best that is known so far. */
double tune_expected(const struct tune_result *result);
/* Of the way that is expected to be the fastest. */
double tune_best(const struct tune_row *row);
/* Which ways are about as fast as the best, and not too many, by the short passes, of which the
 * quicker counts: what disturbs the machine only adds. Returns how many. */
int tune_choose_finalists(struct tune_row *row);
/* All passes of a size together: their median, of finalists that of the long ones. A way that is
 * none is behind them by as much as it was by the short ones. */
void tune_conclude(struct tune_row *row);

/* ---- what people read: tune_report.c ---- */

/* A line about what is being measured, on a terminal only; NULL removes it. */
void tune_progress(const char *text);
void tune_report(const struct tune_rows *rows, int ranks);
/* The constants as the table in coll/profile.c. */
void tune_report_constants(const struct tti_tuning *tuning);

#endif
