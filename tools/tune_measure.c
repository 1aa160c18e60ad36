/* Measuring all ways of all operations (tools/tune.h).
 *
 * At one size all ways take turns, in rounds of short batches, so that whatever disturbs the
 * machine disturbs all of them; the median of the rounds counts. A way that the first rounds show
 * to be hopeless keeps the figure it has. Then those that were about the fastest run alone for
 * longer, as in programs, and these times count.
 * All decisions are made from numbers that the ranks have agreed on, so all ranks do the same;
 * which ways are the fastest, and what comes of all passes, is in tune_choose.c. */
#include "tools/tune.h"

#include "base/clock.h"
#include "base/median.h"
#include "base/memory.h"
#include "coll/fused.h"
#include "coll/select.h"
#include "device/memory.h"

#include <stdlib.h>
#include <string.h>

enum {
    ROUNDS = 3, /* of each pass */
    WARMUP = 2,
    LEAST_BATCH = 4, /* the caches are then those of this way, not of the one before it */
    MOST_BATCH = 1000,
    MOST_AHEAD_BATCH = 4000,
    LEAST_BYTES = 8, /* of an operation */
    SIZE_BITS = 2    /* each size is so many bits longer than the one before */
};
static const double AIM_BATCH = 200e-6; /* seconds: long beside the clock and the barrier */
/* The same where ranks take turns and a root runs ahead: of a batch that is not several times what
 * it may be ahead (256 broadcasts), most of what is measured is how fast it gets there. */
static const double AIM_AHEAD_BATCH = 1e-3;
static const double HOPELESS = 4; /* times the best */
/* The same for operations from CHEAP seconds on, which must not take the time of all others. */
static const double HOPELESS_LONG = 1.5;
static const double CHEAP = 1e-3;
static const double DISTURBED = 10e-3; /* seconds that another process may have had the core for */

struct tune {
    const struct tune_options *o;
    struct tutti_comm *comm;
    struct tune_rows *rows;
    struct tti_profile built_in;
    char *in, *out;
    bool mapped;
    int pass;
    size_t at;           /* the row that is next in this pass */
    double size_seconds; /* for all ways at one size, in one pass */
    uint64_t begin;
};

/* ---- one way ---- */

/* As programs call it: a small call, or one like the last, is quicker through the public functions
 * than by what they end in. (A little quicker than in programs where those would ask for mapped
 * memory first and be refused.) */
static enum tutti_result tune_call(struct tune *t, enum tutti_collective collective, size_t count)
{
    struct tutti_comm *comm = t->comm;
    const enum tutti_type type = TUTTI_FLOAT32;
    switch (collective) {
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce(t->in, t->out, count, type, TUTTI_SUM, comm);
    case TUTTI_BROADCAST:
        return tutti_broadcast(t->in, t->out, count, type, 0, comm);
    case TUTTI_REDUCE:
        return tutti_reduce(t->in, t->out, count, type, TUTTI_SUM, 0, comm);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter(t->in, t->out, count, type, TUTTI_SUM, comm);
    case TUTTI_ALL_GATHER:
        return tutti_all_gather(t->in, t->out, count, type, comm);
    case TUTTI_ALL_TO_ALL:
        return tutti_all_to_all(t->in, t->out, count, type, comm);
    case TUTTI_GATHER:
        return tutti_gather(t->in, t->out, count, type, 0, comm);
    case TUTTI_SCATTER:
        return tutti_scatter(t->in, t->out, count, type, 0, comm);
    default:
        return tutti_barrier(comm);
    }
}

static enum tutti_result tune_operate(struct tune *t, const struct tune_row *row, size_t times)
{
    for (size_t i = 0; i < times; i++)
        TTI_TRY(tune_call(t, row->collective, (size_t)row->block / sizeof(float)));
    return TUTTI_OK;
}

static enum tutti_result tune_agree(struct tune *t, double *values, size_t count, enum tutti_op op)
{
    tti_select_try(t->comm, NULL);
    return tutti_all_reduce(values, values, count, TUTTI_FLOAT64, op, t->comm);
}

/* Seconds an operation in a batch of `times` after `before` others, on this rank. */
static enum tutti_result tune_batch(struct tune *t, const struct tune_row *row, int way,
                                    size_t before, size_t times, double *seconds)
{
    tti_select_try(t->comm, NULL);
    TTI_TRY(tutti_barrier(t->comm));
    tti_select_try(t->comm, &row->result[way].way);
    TTI_TRY(tune_operate(t, row, before));
    uint64_t begin = tti_now_ns();
    TTI_TRY(tune_operate(t, row, times));
    *seconds = (double)(tti_now_ns() - begin) / 1e9 / (double)times;
    return TUTTI_OK;
}

/* ---- one size ---- */

/* Is a second look worth its time? Always where the best is quick; else for what would be ruled
 * out, but may have been disturbed. */
static bool tune_look_again(const struct tune_row *row, int w, double best)
{
    const double seconds = row->result[w].looked;
    return best < CHEAP || (seconds > HOPELESS_LONG * best && seconds <= best + DISTURBED);
}

/* A first look at each way: its time, roughly; and a second one. */
static enum tutti_result tune_look(struct tune *t, struct tune_row *row)
{
    double seconds[TTI_MOST_WAYS];
    for (int look = 0; look < 2; look++) {
        const double best = look ? tune_best(row) : 0;
        const size_t times = look && best < CHEAP ? 8 : 1;
        for (int w = 0; w < row->count; w++) {
            seconds[w] = row->result[w].looked;
            if (look == 0 || tune_look_again(row, w, best))
                TTI_TRY(tune_batch(t, row, w, WARMUP, times, &seconds[w]));
        }
        TTI_TRY(tune_agree(t, seconds, (size_t)row->count, TUTTI_AVG));
        for (int w = 0; w < row->count; w++)
            if (look == 0 || seconds[w] < row->result[w].looked)
                row->result[w].looked = seconds[w];
    }
    return TUTTI_OK;
}

/* Does a root run ahead of who takes turns with it? */
static bool tune_runs_ahead(const struct tune *t, const struct tune_row *row)
{
    return t->comm->crowds &&
           (row->collective == TUTTI_BROADCAST || row->collective == TUTTI_REDUCE ||
            row->collective == TUTTI_GATHER || row->collective == TUTTI_SCATTER);
}

/* Operations of each way in a batch, 0 for those that are hopeless; returns the seconds of a round
 * of all batches. */
static double tune_batches(const struct tune *t, const struct tune_row *row, size_t *times)
{
    const bool ahead = tune_runs_ahead(t, row);
    const double aim = ahead ? AIM_AHEAD_BATCH : AIM_BATCH;
    const double most = ahead ? MOST_AHEAD_BATCH : MOST_BATCH;
    const double best = tune_best(row), limit = best < CHEAP ? HOPELESS : HOPELESS_LONG;
    double round_seconds = 0;
    for (int w = 0; w < row->count; w++) {
        double seconds = tune_expected(&row->result[w]), wanted = aim / seconds;
        times[w] = seconds > limit * best ? 0
                   : wanted < LEAST_BATCH ? LEAST_BATCH
                   : wanted > most        ? (size_t)most
                                          : (size_t)wanted;
        round_seconds += ((double)times[w] + WARMUP) * (times[w] ? seconds : 0);
    }
    return round_seconds;
}

/* One pass at one size: all ways by turns, as often as the time allows. A size whose rounds take
 * too long for that leaves out later passes. */
static enum tutti_result tune_rounds(struct tune *t, struct tune_row *row)
{
    double sample[TTI_MOST_WAYS][ROUNDS], all[TTI_MOST_WAYS * ROUNDS];
    size_t times[TTI_MOST_WAYS], used = 0;
    const double seconds = tune_batches(t, row, times), fit = t->size_seconds / seconds;
    const int rounds = fit < 1 ? 1 : fit > ROUNDS ? ROUNDS : (int)fit;
    if (t->pass > 0 && (row->passes + 1) * seconds > TUNE_PASSES * t->size_seconds)
        return TUTTI_OK;
    for (int r = 0; r < rounds; r++)
        for (int w = 0; w < row->count; w++)
            if (times[w])
                TTI_TRY(tune_batch(t, row, w, WARMUP, times[w], &sample[w][r]));
    for (int w = 0; w < row->count; w++)
        for (int r = 0; r < rounds; r++)
            all[used++] = times[w] ? sample[w][r] : tune_expected(&row->result[w]);
    TTI_TRY(tune_agree(t, all, used, TUTTI_AVG));
    for (int w = 0; w < row->count; w++)
        row->result[w].pass[row->passes] = tti_median(&all[w * rounds], (size_t)rounds);
    row->passes++;
    row->settles = row->passes == TUNE_SHORT_PASSES && tune_best(row) < CHEAP;
    return TUTTI_OK;
}

/* ---- the fastest, alone ---- */

/* One pass at one size: one batch of each of the fastest, all in half of the time for a pass. What
 * other ways left in the caches is gone only after a hundred operations or so: until then an
 * all-reduce of 1 MiB takes 19 us where programs see 15. So most of it goes by untimed. */
static enum tutti_result tune_settled(struct tune *t, struct tune_row *row)
{
    static const double SHARE = 0.5, TIMED = 0.3;
    double all[TTI_MOST_WAYS];
    const int finalists = tune_choose_finalists(row);
    const double least = finalists * (WARMUP + LEAST_BATCH) * TUNE_NEARLY * tune_best(row);
    if (least > t->size_seconds) { /* too many, or too slow, for batches that mean something */
        row->settles = false;
        return tune_rounds(t, row);
    }
    for (int w = 0; w < row->count; w++) {
        const double fit = SHARE * t->size_seconds / finalists / row->result[w].quicker;
        const size_t timed = fit * TIMED < LEAST_BATCH ? LEAST_BATCH : (size_t)(fit * TIMED);
        all[w] = 0;
        if (row->result[w].finalist)
            TTI_TRY(tune_batch(t, row, w, WARMUP + (size_t)(fit * (1 - TIMED)), timed, &all[w]));
    }
    TTI_TRY(tune_agree(t, all, (size_t)row->count, TUTTI_AVG));
    for (int w = 0; w < row->count; w++)
        row->result[w].pass[row->passes] = all[w];
    row->passes++;
    return TUTTI_OK;
}

/* What the model alone would take, with the constants that are built in: this communicator has no
 * tuning. */
static enum tutti_result tune_list_ways(struct tune *t, struct tune_row *row)
{
    struct tti_ways ways;
    bool barrier = row->collective == TUTTI_BARRIER;
    TTI_TRY(tti_select_ways(t->comm, row->collective,
                            barrier ? 1 : (size_t)row->block / sizeof(float),
                            barrier ? TUTTI_UINT8 : TUTTI_FLOAT32, t->mapped, &ways));
    row->count = ways.count;
    for (int w = 0; w < ways.count; w++)
        row->result[w] = (struct tune_result){.way = ways.way[w], .of_model = w == 0};
    return TUTTI_OK;
}

/* The first pass makes the row. */
static enum tutti_result tune_row(struct tune *t, enum tutti_collective collective, double block,
                                  double blocks)
{
    void *all = t->rows->row;
    struct tune_row row = {.collective = collective,
                           .medium = tti_select_medium(t->comm, t->mapped),
                           .block = block,
                           .whole = block * blocks};
    TTI_TRY(tune_list_ways(t, &row));
    TTI_TRY(tune_look(t, &row));
    TTI_TRY(tti_grow(&all, &t->rows->capacity, t->rows->count + 1, sizeof row));
    t->rows->row = all;
    t->rows->row[t->rows->count++] = row;
    return TUTTI_OK;
}

static enum tutti_result tune_size(struct tune *t, enum tutti_collective collective, double block,
                                   double blocks)
{
    char text[160];
    snprintf(text, sizeof text, "%3.0f s, pass %d of %d: %d ranks, %s, %s of %.0f bytes",
             (double)(tti_now_ns() - t->begin) / 1e9, t->pass + 1, TUNE_PASSES, t->comm->size,
             tti_medium_names[tti_select_medium(t->comm, t->mapped)],
             tutti_collective_name(collective), block * blocks);
    if (t->comm->rank == 0 && !t->o->quiet)
        tune_progress(text);
    if (t->pass == 0)
        TTI_TRY(tune_row(t, collective, block, blocks));
    struct tune_row *row = &t->rows->row[t->at++];
    if (t->pass < TUNE_SHORT_PASSES || !row->settles)
        return tune_rounds(t, row);
    return tune_settled(t, row);
}

/* ---- all sizes, all collectives, both kinds of memory ---- */

/* The largest is one of them: nothing beyond it is known. At least one. */
static int tune_sizes(const struct tune_options *o)
{
    int sizes = 1;
    while (o->max_bytes >> SIZE_BITS * sizes >= LEAST_BYTES)
        sizes++;
    return sizes;
}

static enum tutti_result tune_collective(struct tune *t, enum tutti_collective collective)
{
    double blocks = tti_fused_blocks(collective, t->comm->size), last = 0;
    if (collective == TUTTI_BARRIER)
        return tune_size(t, collective, 1, 1);
    for (int larger = tune_sizes(t->o) - 1; larger >= 0; larger--) {
        size_t whole = t->o->max_bytes >> SIZE_BITS * larger;
        size_t count = (size_t)((double)whole / blocks) / sizeof(float);
        double block = (double)(count ? count : 1) * sizeof(float);
        if (block > last)
            TTI_TRY(tune_size(t, collective, block, blocks));
        last = block;
    }
    return TUTTI_OK;
}

/* Buffers whose pages are there. */
static enum tutti_result tune_memory(struct tune *t, bool give_back)
{
    size_t bytes = t->o->max_bytes + (size_t)t->comm->size * sizeof(float);
    char **buffers[] = {&t->in, &t->out};
    for (int i = 0; i < 2; i++) {
        void *made = NULL;
        if (give_back && t->mapped)
            tutti_free(*buffers[i]);
        else if (give_back)
            free(*buffers[i]);
        else if (t->mapped)
            TTI_TRY(tutti_alloc(bytes, &made));
        else if (!(made = tti_calloc(bytes, 1)))
            return TUTTI_ERR_MEMORY;
        if (made)
            memset(made, 0x3f, bytes); /* floats of 0.75; zeros may be dealt with faster */
        *buffers[i] = made;
    }
    return TUTTI_OK;
}

static enum tutti_result tune_medium(struct tune *t)
{
    enum tutti_result result = tune_memory(t, false);
    for (int c = 0; c < TUTTI_COLLECTIVE_COUNT && result == TUTTI_OK; c++)
        if (t->o->collective[c])
            result = tune_collective(t, (enum tutti_collective)c);
    tti_select_try(t->comm, NULL);
    struct tti_error error;
    tti_error_save(&error, result);
    (void)tune_memory(t, true);
    return result == TUTTI_OK ? TUTTI_OK : tti_error_restore(&error);
}

enum tutti_result tune_measure(const struct tune_options *options, struct tutti_comm *comm,
                               struct tune_rows *rows)
{
    struct tune t = {.o = options, .comm = comm, .rows = rows, .begin = tti_now_ns()};
    bool two_kinds = tti_select_medium(comm, true) != tti_select_medium(comm, false);
    int collectives = 0;
    for (int c = 0; c < TUTTI_COLLECTIVE_COUNT; c++)
        collectives += options->collective[c] && c != TUTTI_BARRIER;
    t.size_seconds = options->seconds / TUNE_PASSES / (two_kinds ? 2 : 1) /
                     (collectives ? collectives : 1) / tune_sizes(options);
    enum tutti_result result = TUTTI_OK;
    for (t.pass = 0; t.pass < TUNE_PASSES && result == TUTTI_OK; t.pass++) {
        t.at = 0;
        for (int kind = 0; kind < (two_kinds ? 2 : 1) && result == TUTTI_OK; kind++) {
            t.mapped = kind == 0;
            result = tune_medium(&t);
        }
    }
    for (size_t i = 0; i < rows->count && result == TUTTI_OK; i++)
        tune_conclude(&rows->row[i]);
    if (comm->rank == 0 && !options->quiet)
        tune_progress(NULL);
    return result;
}

/* ---- into the tuning ---- */

static bool tune_is_of(const struct tti_series *series, const struct tutti_comm *comm,
                       const struct tune_rows *rows)
{
    if (series->ranks != comm->size || series->hosts != comm->peers.nhosts)
        return false;
    for (size_t i = 0; i < rows->count; i++)
        if (rows->row[i].collective == series->collective && rows->row[i].medium == series->medium)
            return true;
    return false;
}

/* The series that a result belongs to; made where there is none yet. */
static enum tutti_result tune_series(struct tti_tuning *tuning, const struct tutti_comm *comm,
                                     const struct tune_row *row, const struct tti_selection *way,
                                     struct tti_series **series)
{
    struct tti_series made = {.collective = row->collective,
                              .medium = row->medium,
                              .ranks = comm->size,
                              .hosts = comm->peers.nhosts,
                              .algorithm = way->index,
                              .path = way->path,
                              .lanes = way->path == TTI_PATH_PLAN ? way->spec.lanes : 1};
    for (size_t i = 0; i < tuning->count; i++) {
        struct tti_series *s = &tuning->series[i];
        if (s->collective == made.collective && s->medium == made.medium &&
            s->ranks == made.ranks && s->hosts == made.hosts && s->algorithm == made.algorithm &&
            s->path == made.path && s->lanes == made.lanes) {
            *series = s;
            return TUTTI_OK;
        }
    }
    TTI_TRY(tti_tuning_add(tuning, &made));
    *series = &tuning->series[tuning->count - 1];
    return TUTTI_OK;
}

enum tutti_result tune_merge(struct tti_tuning *tuning, const struct tutti_comm *comm,
                             const struct tune_rows *rows)
{
    size_t kept = 0;
    for (size_t i = 0; i < tuning->count; i++)
        if (!tune_is_of(&tuning->series[i], comm, rows))
            tuning->series[kept++] = tuning->series[i];
    tuning->count = kept;
    for (size_t i = 0; i < rows->count; i++) {
        const struct tune_row *row = &rows->row[i];
        for (int w = 0; w < row->count; w++) {
            struct tti_series *series = NULL;
            TTI_TRY(tune_series(tuning, comm, row, &row->result[w].way, &series));
            if (series->count == TTI_TUNING_POINTS)
                return TTI_FAIL(TUTTI_ERR_INTERNAL, "a series of more than %d sizes",
                                TTI_TUNING_POINTS);
            series->point[series->count++] = (struct tti_point){row->block, row->result[w].seconds};
        }
    }
    return TUTTI_OK;
}
