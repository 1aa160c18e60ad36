/* What of an asynchronous all-reduce is hidden behind computation: each rank computes for as long
 * as the operation alone takes, alone and while the operation is under way. Ranks come from a
 * launcher or the environment; run it with other settings of TUTTI_PROGRESS_CORE.
 *
 *     tuttirun -n 2 build/bin/overlap_bench [--background] [--rounds N] SIZE ...
 *
 * "hidden" is the part of the operation's time that the two together did not take: 100% of it when
 * they take as long as the computation, 0 when they take as long as one after the other. Medians
 * over the rounds, of rank 0. */
#include "base/clock.h"
#include "base/config.h"
#include "base/median.h"
#include "tutti/tutti.h"

#include <stdio.h>
#include <string.h>

enum { ROUNDS_MOST = 1001 };

static volatile double sink;

/* So many turns of arithmetic in registers: no memory that an all-reduce could fight for. */
static void compute(uint64_t turns)
{
    double a = 1, b = 2, c = 3, d = 4;
    for (uint64_t i = 0; i < turns; i++) {
        a = a * 1.0000001 + 1e-9;
        b = b * 1.0000001 + 1e-9;
        c = c * 1.0000001 + 1e-9;
        d = d * 1.0000001 + 1e-9;
    }
    sink = a + b + c + d;
}

/* Nanoseconds of the operation, of the computation and of both, or < 0. */
static double timed(tutti_comm *comm, float *memory, size_t bytes, bool reduces, uint64_t turns)
{
    tutti_request *request = NULL;
    if (tutti_barrier(comm) != TUTTI_OK)
        return -1;
    const uint64_t begin = tti_now_ns();
    if (reduces && tutti_all_reduce_async(memory, memory, bytes / sizeof *memory, TUTTI_FLOAT32,
                                          TUTTI_MAX, comm, NULL, &request) != TUTTI_OK)
        return -1;
    if (turns > 0)
        compute(turns);
    if (reduces && tutti_wait(request) != TUTTI_OK)
        return -1;
    return (double)(tti_now_ns() - begin);
}

static double turns_in(double nanoseconds)
{
    enum { TRIED = 200000 };
    const uint64_t begin = tti_now_ns();
    compute(TRIED);
    return nanoseconds * TRIED / (double)(tti_now_ns() - begin);
}

static int measure(tutti_comm *comm, int rank, size_t bytes, int rounds)
{
    double alone[ROUNDS_MOST], computed[ROUNDS_MOST], both[ROUNDS_MOST];
    float *memory = NULL;
    if (tutti_alloc(bytes, (void **)&memory) != TUTTI_OK)
        return 1;
    memset(memory, 0, bytes);
    for (int i = 0; i < rounds; i++)
        if ((alone[i] = timed(comm, memory, bytes, true, 0)) < 0)
            return 1;
    double turns = turns_in(tti_median(alone, (size_t)rounds));
    /* Alike on all ranks: the longest. */
    if (tutti_all_reduce(&turns, &turns, 1, TUTTI_FLOAT64, TUTTI_MAX, comm) != TUTTI_OK)
        return 1;
    for (int i = 0; i < rounds; i++) {
        alone[i] = timed(comm, memory, bytes, true, 0);
        computed[i] = timed(comm, memory, bytes, false, (uint64_t)turns);
        both[i] = timed(comm, memory, bytes, true, (uint64_t)turns);
        if (alone[i] < 0 || computed[i] < 0 || both[i] < 0)
            return 1;
    }
    const double a = tti_median(alone, (size_t)rounds), c = tti_median(computed, (size_t)rounds),
                 b = tti_median(both, (size_t)rounds);
    if (rank == 0)
        printf("| %zu | %.1f | %.1f | %.1f | %.0f%% |\n", bytes, a / 1e3, c / 1e3, b / 1e3,
               100 * (a + c - b) / a);
    tutti_free(memory);
    return 0;
}

static int failed(void)
{
    fprintf(stderr, "overlap_bench: %s\n", tutti_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    tutti_comm *comm = NULL;
    long rounds = 101;
    int i = 1;
    bool background = false;
    for (; i < argc && argv[i][0] == '-'; i++) {
        if (strcmp(argv[i], "--background") == 0)
            background = true;
        else if (strcmp(argv[i], "--rounds") != 0 || ++i == argc ||
                 tti_parse_int("--rounds", argv[i], 1, ROUNDS_MOST, &rounds) != TUTTI_OK)
            break;
    }
    if (i >= argc || argv[i][0] == '-') {
        fprintf(stderr, "usage: overlap_bench [--background] [--rounds N] SIZE ...\n");
        return 2;
    }
    if (tutti_comm_create_from_env(NULL, &comm) != TUTTI_OK ||
        tutti_comm_background(comm, background) != TUTTI_OK)
        return failed();
    const int rank = tutti_comm_rank(comm);
    if (rank == 0)
        printf("| bytes | all-reduce, us | computation, us | both, us | hidden |\n"
               "|---:|---:|---:|---:|---:|\n");
    for (; i < argc; i++) {
        size_t bytes = 0;
        if (tti_parse_bytes("SIZE", argv[i], &bytes) != TUTTI_OK || bytes < sizeof(float) ||
            measure(comm, rank, bytes, (int)rounds) != 0)
            return failed();
    }
    tutti_comm_destroy(comm);
    return 0;
}
