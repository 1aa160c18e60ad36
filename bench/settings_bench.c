/* What the flight recorder costs: all-reduce of two processes over shared memory, by turns on a
 * communicator that records and on one that does not (TUTTI_RECORDER=0), in memory that both map.
 * A round times a batch on each; the table has medians over the rounds, and the median of each
 * round's ratio, so that what the machine does meanwhile meets both alike. */
#include "base/clock.h"
#include "tutti/tutti.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 2, ROUNDS = 301, WAYS = 2, RECORDED = 0, LEAST_BATCH = 3 };
static const size_t sizes[] = {8, 1 << 10, 8 << 10, 16 << 10, 32 << 10, 256 << 10, 4 << 20};
enum { SIZES = sizeof sizes / sizeof sizes[0], LARGEST = 4 << 20 };
static const double BATCH_SECONDS = 400e-6;

static int failed(const char *what)
{
    fprintf(stderr, "recorder_bench: %s: %s\n", what, tutti_last_error());
    return 1;
}

static int order(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

static double median(double *values)
{
    qsort(values, ROUNDS, sizeof *values, order);
    return values[ROUNDS / 2];
}

static double batch(tutti_comm *comm, void *memory, size_t bytes, int times)
{
    (void)tutti_barrier(comm);
    const uint64_t begin = tti_now_ns();
    for (int i = 0; i < times; i++)
        if (tutti_all_reduce(memory, memory, bytes / 4, TUTTI_FLOAT32, TUTTI_SUM, comm) != TUTTI_OK)
            return -1;
    return (double)(tti_now_ns() - begin) / times;
}

static int measure(tutti_comm **comms, void *memory, size_t bytes)
{
    static double took[WAYS][ROUNDS], ratio[ROUNDS];
    (void)batch(comms[0], memory, bytes, 20); /* the first ones connect and touch */
    const double each = batch(comms[0], memory, bytes, 20);
    int64_t times = each > 0 ? (int64_t)(BATCH_SECONDS * 1e9 / each) : 1;
    times = times < LEAST_BATCH ? LEAST_BATCH : times;
    if (tutti_broadcast(&times, &times, 1, TUTTI_INT64, 0, comms[0]) != TUTTI_OK)
        return failed("broadcast");
    for (int round = 0; round < ROUNDS; round++) {
        for (int k = 0; k < WAYS; k++) {
            const int way = (k + round) % WAYS;
            took[way][round] = batch(comms[way], memory, bytes, (int)times);
            if (took[way][round] < 0)
                return failed("all_reduce");
        }
        ratio[round] = took[RECORDED][round] / took[1 - RECORDED][round];
    }
    if (tutti_comm_rank(comms[0]) == 0)
        printf("| %zu | %.1f | %.1f | %.3f |\n", bytes, median(took[1 - RECORDED]),
               median(took[RECORDED]), median(ratio));
    return 0;
}

static int rank_run(const struct tutti_id *ids, int rank)
{
    tutti_comm *comms[WAYS] = {NULL, NULL};
    void *memory = NULL;
    int bad = 0;
    unsetenv("TUTTI_RECORDER");
    if (tutti_comm_create(&ids[RECORDED], rank, RANKS, NULL, &comms[RECORDED]) != TUTTI_OK)
        return failed("the communicator that records");
    setenv("TUTTI_RECORDER", "0", 1);
    if (tutti_comm_create(&ids[1], rank, RANKS, NULL, &comms[1 - RECORDED]) != TUTTI_OK)
        return failed("the communicator that does not");
    if (tutti_alloc(LARGEST, &memory) != TUTTI_OK)
        return failed("memory");
    if (rank == 0)
        printf("| bytes | off, ns | on, ns | on / off |\n|---:|---:|---:|---:|\n");
    for (int i = 0; i < SIZES && !bad; i++)
        bad = measure(comms, memory, sizes[i]);
    fflush(stdout);
    tutti_comm_destroy(comms[0]);
    tutti_comm_destroy(comms[1]);
    tutti_free(memory);
    return bad;
}

int main(void)
{
    struct tutti_id ids[WAYS];
    int status = 0;
    for (int way = 0; way < WAYS; way++)
        if (tutti_id_create("127.0.0.1", &ids[way]) != TUTTI_OK)
            return failed("id");
    const pid_t child = fork();
    if (child < 0)
        return failed("fork");
    if (child == 0) {
        const int bad = rank_run(ids, 1);
        fflush(NULL);
        _exit(bad);
    }
    const int bad = rank_run(ids, 0);
    if (waitpid(child, &status, 0) != child || status != 0)
        return 1;
    return bad;
}
