/* The flight recorder: the ring keeps the last operations, a dump reads back as what was recorded,
 * may be written while operations run, is written on failure, and there is none when it is off.
 * Ranks are threads. */
#include "coll/dump.h"
#include "coll/verdict.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 3, KEPT = 16, CALLS = 100, DUMPS = 30 };

static char folder[] = "/tmp/tutti_recorder_XXXXXX";
static _Atomic int dumping;

static int read_back(const char *name, int rank, struct tti_dump *dump)
{
    char path[200], *text = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/%s.%d", folder, name, rank);
    FILE *file = fopen(path, "re");
    CHECK(file);
    text = calloc(1, 1 << 20);
    bytes = text ? fread(text, 1, 1 << 20, file) : 0;
    fclose(file);
    const enum tutti_result result = tti_dump_read(text, bytes, dump);
    free(text);
    CHECK(result == TUTTI_OK);
    unlink(path);
    return 0;
}

static const char *dump_path(const char *name, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/%s.%%r", folder, name);
    return path;
}

/* More operations than there is room for: the last ones are there, in order. */
static int wraps(tutti_comm *comm, void *argument)
{
    char path[200];
    struct tti_dump dump;
    float x[300] = {0};
    (void)argument;
    for (int i = 0; i < CALLS; i++)
        CHECK(tutti_all_reduce(x, x, (size_t)(1 + i), TUTTI_FLOAT32, TUTTI_MAX, comm) == TUTTI_OK);
    CHECK(tutti_comm_dump(comm, dump_path("wrap", path, sizeof path)) == TUTTI_OK);
    CHECK(read_back("wrap", tutti_comm_rank(comm), &dump) == 0);
    CHECK(dump.rank == tutti_comm_rank(comm) && dump.size == tutti_comm_size(comm));
    CHECK(dump.book.begun[0] == CALLS && dump.book.count == KEPT && !dump.failed);
    for (size_t i = 0; i < KEPT; i++) {
        const struct tti_logged *op = &dump.book.ops[i];
        CHECK(op->index == CALLS - KEPT + i && op->sequence == op->index + 1);
        CHECK(op->count == op->sequence && op->collective == TUTTI_ALL_REDUCE);
        CHECK(op->type == TUTTI_FLOAT32 && op->op == TUTTI_MAX && !tti_logged_runs(op));
    }
    /* Sums of 4 * (1 + ... + 100). */
    CHECK(dump.book.ops[KEPT - 1].bytes == 4 * CALLS * (CALLS + 1) / 2);
    free(dump.book.ops);
    return 0;
}

/* What one rank does alone is there too, numbered for each pair: puts and signals, and waits. */
static int alone(tutti_comm *comm, void *argument)
{
    enum { MADE = 2 }; /* records of the window */
    static const struct tti_logged expected[] = {
        {.sequence = 1, .count = 3, .bytes = 12, .alone = TTI_PUT, .type = TUTTI_FLOAT32},
        {.sequence = 2, .count = 2, .bytes = 20, .alone = TTI_PUT, .type = TUTTI_FLOAT32},
        {.sequence = 3, .bytes = 20, .alone = TTI_SIGNAL, .type = TUTTI_UINT8},
        {.sequence = 1, .count = 1, .bytes = 20, .alone = TTI_WAIT_SIGNAL, .type = TUTTI_UINT8},
        {.sequence = 2, .count = 1, .bytes = 20, .alone = TTI_WAIT_SIGNAL, .type = TUTTI_UINT8}};
    static const int signals[] = {63, TUTTI_NO_SIGNAL, 0, 0, 63};
    char path[200], text[160];
    struct tti_dump dump;
    float x[8] = {0}, in[8] = {0};
    tutti_window *window = NULL;
    const int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    const int next = (rank + 1) % size, last = (rank + size - 1) % size;
    (void)argument;
    CHECK(tutti_window_create(x, sizeof x, comm, &window) == TUTTI_OK);
    CHECK(tutti_put(in, 3, TUTTI_FLOAT32, next, window, 4, 63) == TUTTI_OK);
    CHECK(tutti_put(in, 2, TUTTI_FLOAT32, next, window, 0, TUTTI_NO_SIGNAL) == TUTTI_OK);
    CHECK(tutti_signal(next, 0, comm) == TUTTI_OK);
    CHECK(tutti_wait_signal(last, 0, 1, comm) == TUTTI_OK);
    CHECK(tutti_wait_signal(last, 63, 1, comm) == TUTTI_OK);
    CHECK(tutti_comm_dump(comm, dump_path("alone", path, sizeof path)) == TUTTI_OK);
    CHECK(read_back("alone", rank, &dump) == 0);
    CHECK(dump.book.count == MADE + sizeof signals / sizeof *signals);
    const uint64_t before = dump.book.ops[MADE - 1].bytes;
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        const struct tti_logged *op = &dump.book.ops[MADE + i], *want = &expected[i];
        CHECK(op->collective == TUTTI_SEND_RECV && op->alone == want->alone);
        CHECK(op->sequence == want->sequence && op->count == want->count);
        CHECK(op->type == want->type && op->signal == signals[i] && !op->receives);
        CHECK(op->bytes == before + want->bytes && !tti_logged_runs(op) && !op->failed);
        CHECK(op->root == (op->alone == TTI_WAIT_SIGNAL ? last : next));
    }
    (void)tti_logged_text(&dump.book.ops[MADE], text, sizeof text);
    CHECK(strncmp(text, "put #1 to rank ", 15) == 0 &&
          strstr(text, "(count 3, float32, signal 63)"));
    free(dump.book.ops);
    CHECK(tutti_barrier(comm) == TUTTI_OK); /* all are through */
    tutti_window_destroy(window);
    return 0;
}

/* Blocks of different sizes: a collective by a plan says so, with a checksum of its counts;
 * messages say what they are part of. */
static int uneven(tutti_comm *comm, void *argument)
{
    char path[200], text[160];
    struct tti_dump dump;
    const size_t counts[RANKS] = {1, 0, 2}, others[RANKS] = {0, 1, 2};
    float in[RANKS] = {0}, out[RANKS];
    const int rank = tutti_comm_rank(comm);
    (void)argument;
    CHECK(tutti_reduce_scatter_v(in, out, counts, NULL, TUTTI_FLOAT32, TUTTI_SUM, comm) ==
          TUTTI_OK);
    CHECK(tutti_reduce_scatter_v(in, out, others, NULL, TUTTI_FLOAT32, TUTTI_SUM, comm) ==
          TUTTI_OK);
    CHECK(tutti_gather_v(in, counts[rank], out, counts, NULL, TUTTI_FLOAT32, 1, comm) == TUTTI_OK);
    CHECK(tutti_comm_dump(comm, dump_path("uneven", path, sizeof path)) == TUTTI_OK);
    CHECK(read_back("uneven", rank, &dump) == 0);
    CHECK(dump.book.count ==
          2 + (rank == 1 ? 2 : 1)); /* a message of each other rank at the root */
    const struct tti_logged *a = &dump.book.ops[0], *b = &dump.book.ops[1], *c = b + 1;
    CHECK(a->collective == TUTTI_REDUCE_SCATTER && a->uneven && a->count == 3 && a->sequence == 1);
    CHECK(b->collective == TUTTI_REDUCE_SCATTER && b->uneven && b->count == 3);
    CHECK(!tti_logged_same(a, b) && tti_logged_same(a, a));
    (void)tti_logged_text(a, text, sizeof text);
    CHECK(strncmp(text, "reduce_scatter_v #1 (count 3, float32, sum, checksum of counts ", 63) ==
          0);
    CHECK(c->collective == TUTTI_SEND_RECV && tti_logged_part(c) == TUTTI_GATHER);
    CHECK(c->receives == (rank == 1) && c->root == (rank == 1 ? 2 : 1));
    (void)tti_logged_text(c, text, sizeof text);
    CHECK(strstr(text, rank == 1 ? "recv #1 from rank 2 (count 2, float32, in gather_v)"
                                 : "send #1 to rank 1 (count "));
    free(dump.book.ops);
    return 0;
}

static void *dumps(void *argument)
{
    char path[200];
    for (int i = 0; i < DUMPS; i++)
        if (tutti_comm_dump(argument, dump_path("busy", path, sizeof path)) != TUTTI_OK)
            return argument;
    atomic_fetch_sub(&dumping, 1);
    return NULL;
}

/* Another thread dumps all the while; what is there is whole. */
static int dumps_while_busy(tutti_comm *comm, void *argument)
{
    pthread_t thread;
    void *bad = NULL;
    struct tti_dump dump;
    float x[8] = {0};
    (void)argument;
    CHECK(pthread_create(&thread, NULL, dumps, comm) == 0);
    for (int over = 0; !over;) {
        CHECK(tutti_all_reduce(x, x, 8, TUTTI_FLOAT32, TUTTI_SUM, comm) == TUTTI_OK);
        int32_t left = atomic_load(&dumping);
        CHECK(tutti_all_reduce(&left, &left, 1, TUTTI_INT32, TUTTI_MAX, comm) == TUTTI_OK);
        over = left == 0;
    }
    CHECK(pthread_join(thread, &bad) == 0 && !bad);
    CHECK(read_back("busy", tutti_comm_rank(comm), &dump) == 0);
    for (size_t i = 1; i < dump.book.count; i++)
        CHECK(dump.book.ops[i].index > dump.book.ops[i - 1].index);
    free(dump.book.ops);
    return 0;
}

/* TUTTI_DUMP: a failing communicator leaves what it did. */
static int dumps_on_failure(tutti_comm *comm, void *argument)
{
    float x[8] = {0};
    struct tti_dump dump;
    const int rank = tutti_comm_rank(comm);
    (void)argument;
    const size_t count = rank == 1 ? 5 : 8;
    CHECK(tutti_all_reduce(x, x, count, TUTTI_FLOAT32, TUTTI_SUM, comm) == TUTTI_ERR_MISMATCH);
    CHECK(read_back("failure", rank, &dump) == 0);
    CHECK(dump.failed == TUTTI_ERR_MISMATCH && strstr(dump.error, "called all_reduce #1 (count 5"));
    CHECK(dump.book.count == 1 && dump.book.ops[0].count == count);
    free(dump.book.ops);
    return 0;
}

static int off(tutti_comm *comm, void *argument)
{
    float x = 1;
    (void)argument;
    CHECK(tutti_all_reduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, comm) == TUTTI_OK);
    CHECK(tutti_comm_dump(comm, "/tmp/none") == TUTTI_ERR_USAGE);
    CHECK(tutti_comm_dump(comm, NULL) == TUTTI_ERR_ARGUMENT);
    return 0;
}

int main(void)
{
    struct tti_ranks how = {.ranks = RANKS, .options = TUTTI_OPTIONS_INIT};
    char pattern[200];
    int failed = 0;
    how.options.timeout_s = 60;
    if (!mkdtemp(folder))
        return 1;
    setenv("TUTTI_RECORDER", "16", 1);
    failed += tti_ranks_run(&how, wraps, NULL);
    failed += tti_ranks_run(&how, alone, NULL);
    failed += tti_ranks_run(&how, uneven, NULL);
    atomic_store(&dumping, RANKS);
    failed += tti_ranks_run(&how, dumps_while_busy, NULL);
    setenv("TUTTI_DUMP", dump_path("failure", pattern, sizeof pattern), 1);
    failed += tti_ranks_run(&how, dumps_on_failure, NULL);
    unsetenv("TUTTI_DUMP");
    setenv("TUTTI_RECORDER", "0", 1);
    failed += tti_ranks_run(&how, off, NULL);
    rmdir(folder);
    printf("%s\n", failed ? "FAILED" : "ok");
    return failed ? 1 : 0;
}
