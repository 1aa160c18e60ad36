/* What tutti_comm_choices says is what runs: beside the record of each operation, in memory that is
 * mapped and in memory that is not.
 *
 *     test_choice RANKS */
#include "coll/algorithms/algorithms.h"
#include "coll/comm.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20, MOST_RANKS = 8, FLOAT = 4, REPEATS = 3 };

static const char *const paths[TTI_RECORD_PATHS] = {
    [TTI_RECORD_NONE] = "none",   [TTI_RECORD_SMALL] = "plan",    [TTI_RECORD_PLAN] = "plan",
    [TTI_RECORD_FUSED] = "fused", [TTI_RECORD_STAGED] = "staged", [TTI_RECORD_DEVICE] = "device"};

static enum tutti_result run(tutti_comm *comm, enum tutti_collective collective, const float *in,
                             float *out, size_t count)
{
    switch (collective) {
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce(in, out, count, TUTTI_FLOAT32, TUTTI_SUM, comm);
    case TUTTI_BROADCAST:
        return tutti_broadcast(in, out, count, TUTTI_FLOAT32, 0, comm);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter(in, out, count, TUTTI_FLOAT32, TUTTI_SUM, comm);
    default:
        return tutti_all_gather(in, out, count, TUTTI_FLOAT32, comm);
    }
}

/* Of what ran last: its path, and its algorithm or "" where that is not recorded. */
static void ran(const tutti_comm *comm, enum tutti_collective collective, const char **path,
                const char **algorithm)
{
    const struct tti_record_ring *ring = &comm->recorder.ring[0];
    const uint32_t kind = atomic_load_explicit(&ring->records[(ring->next - 1) & ring->mask].kind,
                                               memory_order_relaxed);
    const uint32_t index = kind >> TTI_RECORD_ALGORITHM & 31;
    *path = paths[kind >> TTI_RECORD_PATH & 7];
    *algorithm =
        index == TTI_RECORD_NO_ALGORITHM ? "" : tti_algorithm_at(collective, (int)index)->name;
}

static int agree(tutti_comm *comm, enum tutti_collective collective, float *in, float *out,
                 bool mapped, size_t bytes)
{
    const bool blocks = collective == TUTTI_REDUCE_SCATTER || collective == TUTTI_ALL_GATHER;
    const size_t count = bytes / FLOAT / (blocks ? (size_t)tutti_comm_size(comm) : 1);
    for (int i = 0; i < REPEATS; i++) {
        struct tutti_choice choice[2];
        const char *path, *algorithm;
        int found = 0;
        CHECK_OK(
            tutti_comm_choices(comm, collective, count, TUTTI_FLOAT32, mapped, choice, 2, &found));
        CHECK(found >= 1);
        CHECK(found < 2 || strcmp(choice[0].algorithm, choice[1].algorithm) != 0 ||
              strcmp(choice[0].path, choice[1].path) != 0 || choice[0].lanes != choice[1].lanes);
        CHECK_OK(run(comm, collective, in, out, count));
        ran(comm, collective, &path, &algorithm);
        if (strcmp(path, choice[0].path) != 0 ||
            (algorithm[0] && strcmp(algorithm, choice[0].algorithm) != 0)) {
            fprintf(stderr, "%s of %zu bytes, %s: said to run %s (%s), ran %s (%s)\n",
                    tutti_collective_name(collective), bytes, mapped ? "mapped" : "malloc'ed",
                    choice[0].algorithm, choice[0].path, algorithm, path);
            return 1;
        }
    }
    return 0;
}

static int everything(tutti_comm *comm, void *argument)
{
    static const enum tutti_collective all[] = {TUTTI_ALL_REDUCE, TUTTI_BROADCAST,
                                                TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER};
    void *mapped[2] = {NULL, NULL};
    float *plain[2] = {calloc(1, MOST_BYTES), calloc(1, MOST_BYTES)};
    int wrong = 0;
    (void)argument;
    CHECK(plain[0] && plain[1]);
    for (int i = 0; i < 2; i++)
        CHECK_OK(tutti_alloc(MOST_BYTES, &mapped[i]));
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        for (size_t bytes = 64; bytes <= MOST_BYTES; bytes *= 2) {
            wrong += agree(comm, all[k], plain[0], plain[1], false, bytes);
            wrong += agree(comm, all[k], mapped[0], mapped[1], true, bytes);
        }
    for (int i = 0; i < 2; i++) {
        tutti_free(mapped[i]);
        free(plain[i]);
    }
    return wrong != 0;
}

int main(int argc, char **argv)
{
    /* The path for mapped memory from sizes on at which it is not the only one, by cost and by
     * order: then what is best for mapped memory is best for other memory too, or not. */
    static const char *const from[] = {NULL, "64K", "1G"};
    struct tti_ranks how = {.processes = true, .options = TUTTI_OPTIONS_INIT};
    int failed = 0;
    how.ranks = argc > 1 ? atoi(argv[1]) : 0;
    if (how.ranks < 2 || how.ranks > MOST_RANKS)
        return 2;
    how.options.transports = "shm";
    how.options.timeout_s = 60;
    for (size_t i = 0; i < sizeof from / sizeof from[0]; i++) {
        if (from[i])
            setenv("TUTTI_FUSED_FROM", from[i], 1);
        failed += tti_ranks_run(&how, everything, NULL);
    }
    printf("%s\n", failed ? "FAILED" : "ok");
    return failed ? 1 : 0;
}
