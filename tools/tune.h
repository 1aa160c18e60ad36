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
    /* The median of the passes, of a finalist's long ones; a way that is none is as far behind as
     * by the short ones. Before the passes, of a first look. */
    double seconds;
    double pass[TUNE_PASSES]; /* each the median of a few batches; a long one is one batch */
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

/* ---- what people read: tune_report.c ---- */

/* A line about what is being measured, on a terminal only; NULL removes it. */
void tune_progress(const char *text);
void tune_report(const struct tune_rows *rows, int ranks);
/* The constants as the table in coll/profile.c. */
void tune_report_constants(const struct tti_tuning *tuning);

#endif
