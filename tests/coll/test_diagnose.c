/* What ranks are told when they do not fit together: calls that differ in each thing that they must
 * agree on, a rank that does not come, a chain of waits. On every rank, with both sides named.
 *
 * Ranks are threads, over the transport that is given. One rank (the odd one) does something else
 * than the others; whoever gets through looks at tutti_comm_error until the failure comes. */
#include "coll/comm.h"
#include "tests/integration/ranks.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, ODD = 2, SMALL = 2, LARGE = 100000, LIMIT_MS = 100000, WARM_UP = 3 };
/* What only a deadline brings up: one rank has a short one, and calls when those have called whom
 * the others are to know of. Nobody else is in a hurry. */
enum { NOBODY = -1, PATIENCE_S = 60 };
/* There is one, whose making was two calls before the one that counts. */
enum { WINDOW = 1 << RANKS, WINDOW_CALLS = 2 };
#define SHORT_S 0.3

struct scene {
    const char *name;
    int (*act)(tutti_comm *comm, void *memory, size_t count);
    enum tutti_result code;
    const char *words[3]; /* in the text of every rank */
    size_t counts[2];
    int last;        /* the rank of the short deadline, or NOBODY */
    unsigned before; /* bits of ranks that must have called; and WINDOW */
};

static enum tutti_result sum(tutti_comm *comm, void *x, size_t count)
{
    return tutti_all_reduce(x, x, count, TUTTI_FLOAT32, TUTTI_SUM, comm);
}

static bool odd(const tutti_comm *comm)
{
    return tutti_comm_rank(comm) == ODD;
}

/* ---- what the ranks do; the results do not matter, the communicator's failure does ---- */

static int operation_differs(tutti_comm *comm, void *x, size_t count)
{
    return odd(comm) ? tutti_broadcast(x, x, count, TUTTI_FLOAT32, 0, comm) : sum(comm, x, count);
}

static int count_differs(tutti_comm *comm, void *x, size_t count)
{
    return sum(comm, x, count - odd(comm));
}

static int count_is_zero(tutti_comm *comm, void *x, size_t count)
{
    return sum(comm, x, odd(comm) ? 0 : count);
}

/* One call too few, which from then on is one behind. */
static int one_is_skipped(tutti_comm *comm, void *x, size_t count)
{
    enum tutti_result result = sum(comm, x, odd(comm) ? 0 : count);
    return result == TUTTI_OK ? sum(comm, x, count) : result;
}

static int type_differs(tutti_comm *comm, void *x, size_t count)
{
    return tutti_all_reduce(x, x, count, odd(comm) ? TUTTI_INT32 : TUTTI_FLOAT32, TUTTI_SUM, comm);
}

static int operator_differs(tutti_comm *comm, void *x, size_t count)
{
    return tutti_all_reduce(x, x, count, TUTTI_FLOAT32, odd(comm) ? TUTTI_MAX : TUTTI_SUM, comm);
}

static int root_differs(tutti_comm *comm, void *x, size_t count)
{
    return tutti_broadcast(x, x, count, TUTTI_FLOAT32, odd(comm) ? 3 : 1, comm);
}

/* Rank 0 sends to the odd one, which expects something else. */
static int message(tutti_comm *comm, void *x, size_t sent, size_t received, enum tutti_type type)
{
    if (tutti_comm_rank(comm) == 0)
        return tutti_send(x, sent, TUTTI_FLOAT32, ODD, comm);
    return odd(comm) ? tutti_recv(x, received, type, 0, comm) : TUTTI_OK;
}

static int message_count_differs(tutti_comm *comm, void *x, size_t count)
{
    return message(comm, x, count, count + 1, TUTTI_FLOAT32);
}

static int message_type_differs(tutti_comm *comm, void *x, size_t count)
{
    return message(comm, x, count, count, TUTTI_INT32);
}

static int message_is_empty(tutti_comm *comm, void *x, size_t count)
{
    return message(comm, x, 0, count, TUTTI_FLOAT32);
}

/* All to all in a group, where one of the messages is shorter than its receiver expects. */
static int one_of_group(tutti_comm *comm, void *x, size_t count)
{
    float *to = x, *from = to + (size_t)RANKS * count;
    tutti_group_start();
    for (int p = 0; p < RANKS; p++) {
        if (p == tutti_comm_rank(comm))
            continue;
        (void)tutti_send(to, count - (odd(comm) && p == 1), TUTTI_FLOAT32, p, comm);
        (void)tutti_recv(from + (size_t)p * count, count, TUTTI_FLOAT32, p, comm);
    }
    return tutti_group_end();
}

static int message_meets_collective(tutti_comm *comm, void *x, size_t count)
{
    return odd(comm) ? tutti_recv(x, count, TUTTI_FLOAT32, 3, comm) : sum(comm, x, count);
}

static int rank_is_missing(tutti_comm *comm, void *x, size_t count)
{
    return odd(comm) ? TUTTI_OK : sum(comm, x, count);
}

/* 0 waits for 1, 1 for the odd one, which does nothing; 3 has no part in it. */
static int chain(tutti_comm *comm, void *x, size_t count)
{
    const int rank = tutti_comm_rank(comm);
    return rank < ODD ? tutti_recv(x, count, TUTTI_FLOAT32, rank + 1, comm) : TUTTI_OK;
}

/* Two signals where three are waited for. */
static int signal_is_missing(tutti_comm *comm, void *x, size_t count)
{
    (void)x, (void)count;
    if (tutti_comm_rank(comm) == 0)
        return tutti_wait_signal(ODD, 5, 3, comm);
    for (int i = 0; i < 2 && odd(comm); i++)
        (void)tutti_signal(0, 5, comm);
    return TUTTI_OK;
}

/* The signal comes after a call that needs it. */
static int signal_is_late(tutti_comm *comm, void *x, size_t count)
{
    enum tutti_result result =
        tutti_comm_rank(comm) == 0 ? tutti_wait_signal(ODD, 5, 1, comm) : TUTTI_OK;
    return result == TUTTI_OK ? sum(comm, x, count) : result;
}

/* Not all of the others need to have entered it when the first two meet. */
#define ALL_REDUCE_BY_OTHERS "called all_reduce #4 ("
static const struct scene scenes[] = {
    {"operation",
     operation_differs,
     TUTTI_ERR_MISMATCH,
     {"rank 2 (", "called broadcast #4 (", ALL_REDUCE_BY_OTHERS},
     {SMALL, LARGE},
     0, /* over connections that an all-reduce does not make, it is not on the wire */
     1 << 1 | 1 << ODD | 1 << 3},
    {"count",
     count_differs,
     TUTTI_ERR_MISMATCH,
     {"rank 2 (", "called all_reduce #4 (", ALL_REDUCE_BY_OTHERS},
     {SMALL, LARGE},
     NOBODY,
     0},
    {"count of 0",
     count_is_zero,
     TUTTI_ERR_MISMATCH,
     {"rank 2 (", "called all_reduce #4 (count 0,", ALL_REDUCE_BY_OTHERS},
     {SMALL, LARGE},
     0,
     1 << 1 | 1 << ODD | 1 << 3},
    {"one call skipped",
     one_is_skipped,
     TUTTI_ERR_MISMATCH,
     {"rank 2 (", "called all_reduce #4 (count 0,", ALL_REDUCE_BY_OTHERS},
     {SMALL, LARGE},
     NOBODY,
     0},
    {"type",
     type_differs,
     TUTTI_ERR_MISMATCH,
     {"called all_reduce #4 (", ", int32, sum)", ALL_REDUCE_BY_OTHERS},
     {SMALL, LARGE},
     NOBODY,
     0},
    {"operator",
     operator_differs,
     TUTTI_ERR_MISMATCH,
     {"called all_reduce #4 (", ", float32, max)", ALL_REDUCE_BY_OTHERS},
     {SMALL, LARGE},
     NOBODY,
     0},
    {"root",
     root_differs,
     TUTTI_ERR_MISMATCH,
     {"called broadcast #4 (", ", root 3)", ", root 1)"},
     {SMALL, LARGE},
     0,
     1 << 1 | 1 << ODD | 1 << 3},
    {"message's count",
     message_count_differs,
     TUTTI_ERR_MISMATCH,
     {"called send #1 to rank 2 (count 2, float32)", "rank 2 (",
      "called recv #1 from rank 0 (count 3, float32)"},
     {SMALL, 0},
     NOBODY,
     0},
    {"message's type",
     message_type_differs,
     TUTTI_ERR_MISMATCH,
     {"called send #1 to rank 2 (count 2, float32)", "rank 2 (",
      "called recv #1 from rank 0 (count 2, int32)"},
     {SMALL, 0},
     NOBODY,
     0},
    {"empty message",
     message_is_empty,
     TUTTI_ERR_MISMATCH,
     {"called send #1 to rank 2 (count 0, float32)", "rank 2 (",
      "called recv #1 from rank 0 (count 2, float32)"},
     {SMALL, 0},
     ODD,
     1 << 0},
    {"message in a group",
     one_of_group,
     TUTTI_ERR_MISMATCH,
     {"called send #1 to rank 1 (count 1, float32)", "rank 1 (",
      "called recv #1 from rank 2 (count 2, float32)"},
     {SMALL, 0},
     NOBODY,
     0},
    {"message and collective",
     message_meets_collective,
     TUTTI_ERR_MISMATCH,
     {"rank 2 (", "recv", "all_reduce #4 ("},
     {SMALL, 0},
     NOBODY,
     0},
    {"missing rank",
     rank_is_missing,
     TUTTI_ERR_TIMEOUT,
     {"rank 2 (", "has not entered all_reduce #4 (", "last finished all_reduce #3 ("},
     {SMALL, LARGE},
     0,
     1 << 1 | 1 << 3},
    {"chain of waits",
     chain,
     TUTTI_ERR_TIMEOUT,
     {"rank 2 (", "has not called send #1 to rank 1 (", "last finished all_reduce #3 ("},
     {SMALL, 0},
     0,
     1 << 1},
    {"missing signal",
     signal_is_missing,
     TUTTI_ERR_TIMEOUT,
     {"rank 2 (", "has not sent all of the 3 signals 5 for which rank 0 has waited",
      "; last finished signal #2 to rank 0 (signal 5); rank 0 ("},
     {SMALL, 0},
     0,
     1 << ODD | WINDOW},
    {"late signal",
     signal_is_late,
     TUTTI_ERR_TIMEOUT,
     {"a signal is missing, or comes after a call that needs it",
      "wait_signal #1 from rank 2 (1 of signal 5): rank 0 for rank 2", "wait in all_reduce #6 ("},
     {SMALL, LARGE},
     0,
     1 << 1 | 1 << ODD | 1 << 3 | WINDOW},
};

/* ---- running them ---- */

struct play {
    const struct scene *scene;
    size_t count;
    bool mapped;
};

static tutti_comm *comms[RANKS];
static _Atomic int ready;  /* ranks that are through with the warm-up */
static _Atomic int called; /* the last one has seen what it waits for */

/* Has it entered the call after the warm-up, and told whom it waits for there, or left? */
static bool rank_called(const tutti_comm *comm, const struct scene *scene)
{
    const struct tti_record_page *page = comm->recorder.page;
    const unsigned before = WARM_UP + (scene->before & WINDOW ? WINDOW_CALLS : 0);
    const struct tti_record *call = &page->records[before];
    return atomic_load(&page->head[0]) > before &&
           (atomic_load(&call->waits_for) >= 0 || atomic_load(&call->end_ns) != TTI_RECORD_RUNS);
}

/* Until all have warmed up; the last one, until the others are in their calls. */
static void rank_waits(tutti_comm *comm, const struct scene *scene)
{
    const int rank = tutti_comm_rank(comm);
    comms[rank] = comm;
    atomic_fetch_add(&ready, 1);
    while (atomic_load(&ready) < RANKS)
        (void)poll(NULL, 0, 1);
    if (rank != scene->last)
        return;
    comm->settings.timeout_s = SHORT_S;
    for (int r = 0; r < RANKS; r++)
        while (scene->before >> r & 1 && !rank_called(comms[r], scene) &&
               tutti_comm_error(comm) == TUTTI_OK)
            (void)poll(NULL, 0, 1);
    atomic_store(&called, 1);
}

static int rank_plays(tutti_comm *comm, void *argument)
{
    const struct play *play = argument;
    const struct scene *scene = play->scene;
    const size_t bytes = (play->count + 1) * 2 * RANKS * sizeof(float);
    void *memory = NULL, *own = play->mapped ? NULL : calloc(1, bytes);
    int bad = play->mapped && tutti_alloc(bytes, &memory) != TUTTI_OK;
    if (!play->mapped)
        memory = own;
    for (int i = 0; i < WARM_UP && !bad; i++)
        bad = sum(comm, memory, play->count) != TUTTI_OK;
    tutti_window *window = NULL;
    if (scene->before & WINDOW && !bad)
        bad = tutti_window_create(memory, bytes, comm, &window) != TUTTI_OK;
    rank_waits(comm, scene);
    if (!bad)
        (void)scene->act(comm, memory, play->count);
    for (int ms = 0; tutti_comm_error(comm) == TUTTI_OK && ms < LIMIT_MS; ms += 5)
        (void)poll(NULL, 0, 5);
    const enum tutti_result result = tutti_comm_error(comm);
    bad |= result != scene->code;
    for (int w = 0; w < 3; w++)
        bad |= !strstr(tutti_last_error(), scene->words[w]);
    if (bad)
        fprintf(stderr, "%s, count %zu, rank %d: %d: %s\n", scene->name, play->count,
                tutti_comm_rank(comm), (int)result, tutti_last_error());
    else if (tutti_comm_rank(comm) == 3)
        printf("%s: %s\n", scene->name, tutti_last_error());
    while (scene->last != NOBODY && !atomic_load(&called)) /* it looks at all communicators */
        (void)poll(NULL, 0, 1);
    tutti_window_destroy(window);
    if (play->mapped)
        tutti_free(memory);
    free(own);
    return bad;
}

int main(int argc, char **argv)
{
    int failed = 0;
    struct tti_ranks how = {.ranks = RANKS, .options = TUTTI_OPTIONS_INIT};
    how.options.transports = argc > 1 ? argv[1] : NULL;
    how.options.timeout_s = PATIENCE_S;
    for (size_t i = 0; i < sizeof scenes / sizeof scenes[0]; i++) {
        if (argc > 2 && strcmp(argv[2], scenes[i].name) != 0)
            continue;
        for (int k = 0; k < 2 && scenes[i].counts[k] > 0; k++) {
            struct play play = {&scenes[i], scenes[i].counts[k], i % 2 == 0};
            atomic_store(&ready, 0);
            atomic_store(&called, 0);
            failed += tti_ranks_run(&how, rank_plays, &play);
        }
    }
    printf("%s\n", failed ? "FAILED" : "ok");
    return failed ? 1 : 0;
}
