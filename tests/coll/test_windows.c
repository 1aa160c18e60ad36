/* Windows by the library's own calls: what is put is in place when its signal has been waited for,
 * also where some windows are stored to directly and others go by message, and signals of the two
 * must not overtake each other; requests, groups, waits that sleep, windows that are given up.
 *
 *     test_windows TRANSPORT RANKS [--processes] */
#include "coll/comm.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 1 << 18, BYTES = WORDS * 4, ROUNDS = 40, MOST = 4, BOTH = 2 };

static bool near, processes; /* over memory, no network; and how */

static uint32_t word(int from, int round, size_t i)
{
    return (uint32_t)from * 1000003u + (uint32_t)round * 7919u + (uint32_t)i;
}

static void fill(uint32_t *at, int from, int round, size_t count)
{
    for (size_t i = 0; i < count; i++)
        at[i] = word(from, round, i);
}

static bool holds(const uint32_t *at, int from, int round, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (at[i] != word(from, round, i))
            return false;
    return true;
}

struct around {
    int rank, next, last;
};

static struct around around_of(const tutti_comm *comm)
{
    const int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    return (struct around){rank, (rank + 1) % size, (rank + size - 1) % size};
}

/* Two windows, one in memory that neighbours map, one in plain memory: a large put to the second,
 * which processes send by message, and behind it a small one to the first. The signal of the
 * second tells of both. */
static int mixed(tutti_comm *comm, uint32_t **memory, tutti_window **windows)
{
    const struct around a = around_of(comm);
    uint32_t *in = malloc(BYTES);
    CHECK(in);
    for (int round = 0; round < ROUNDS; round++) {
        const size_t count = round % 4 == 3 ? 1 : WORDS;
        fill(in, a.rank, round, WORDS);
        CHECK_OK(tutti_put(in, count, TUTTI_UINT32, a.next, windows[1], 0, TUTTI_NO_SIGNAL));
        CHECK_OK(tutti_put(in, 3, TUTTI_UINT32, a.next, windows[0], 8, round % 2 ? 63 : 0));
        CHECK_OK(tutti_wait_signal(a.last, round % 2 ? 63 : 0, 1, comm));
        CHECK(holds(memory[1], a.last, round, count));
        CHECK(holds(memory[0] + 2, a.last, round, 3));
        CHECK_OK(tutti_signal(a.last, 1, comm)); /* read */
        CHECK_OK(tutti_wait_signal(a.next, 1, 1, comm));
    }
    free(in);
    return 0;
}

/* Asynchronous ones, and in groups: in the order of the calls. */
static int queued(tutti_comm *comm, uint32_t **memory, tutti_window **windows)
{
    const struct around a = around_of(comm);
    uint32_t in[BOTH][100], sum = 1;
    tutti_request *requests[4];
    for (int w = 0; w < BOTH; w++)
        fill(in[w], a.rank, w, 100);
    CHECK_OK(tutti_put_async(in[0], 100, TUTTI_UINT32, a.next, windows[0], 400, TUTTI_NO_SIGNAL,
                             NULL, &requests[0]));
    CHECK_OK(
        tutti_put_async(in[1], 100, TUTTI_UINT32, a.next, windows[1], 400, 7, NULL, &requests[1]));
    CHECK_OK(tutti_signal_async(a.next, 7, comm, NULL, &requests[2]));
    CHECK_OK(tutti_wait_signal_async(a.last, 7, 2, comm, NULL, &requests[3]));
    CHECK_OK(tutti_wait_all(requests, 4));
    for (int w = 0; w < BOTH; w++)
        CHECK(holds(memory[w] + 100, a.last, w, 100));
    CHECK_OK(tutti_group_start());
    CHECK_OK(tutti_put(in[1], 100, TUTTI_UINT32, a.next, windows[0], 800, 8));
    CHECK_OK(tutti_wait_signal(a.last, 8, 1, comm));
    CHECK_OK(tutti_all_reduce(&sum, &sum, 1, TUTTI_UINT32, TUTTI_SUM, comm));
    CHECK_OK(tutti_group_end());
    CHECK(sum == (uint32_t)tutti_comm_size(comm) && holds(memory[0] + 200, a.last, 1, 100));
    return 0;
}

/* Who waits has gone to sleep; more signals than one are counted; the own rank is one as well. */
static int sleeps(tutti_comm *comm)
{
    const struct around a = around_of(comm);
    for (int i = 0; i < 3; i++) {
        if (a.rank == 0)
            (void)poll(NULL, 0, 60);
        CHECK_OK(tutti_signal(a.next, 9, comm));
        CHECK_OK(tutti_wait_signal(a.last, 9, 1, comm));
    }
    CHECK_OK(tutti_signal(a.rank, 10, comm));
    CHECK_OK(tutti_signal(a.rank, 10, comm));
    CHECK(tutti_wait_signal(a.rank, 10, UINT64_MAX, comm) == TUTTI_ERR_ARGUMENT);
    CHECK_OK(tutti_wait_signal(a.rank, 10, 2, comm));
    return 0;
}

/* What is mapped is what neighbours have in regions: their windows and boards; it is let go. */
static int maps(tutti_comm *comm)
{
    struct tutti_memory before, with, after;
    tutti_window *window = NULL;
    void *memory = NULL;
    const size_t peers = (size_t)tutti_comm_size(comm) - 1;
    CHECK_OK(tutti_comm_memory(comm, &before));
    CHECK_OK(tutti_alloc(BYTES, &memory));
    CHECK_OK(tutti_window_create(memory, BYTES, comm, &window));
    CHECK_OK(tutti_comm_memory(comm, &with));
    CHECK(with.mapped - before.mapped == (near && processes ? peers * BYTES : 0));
    CHECK_OK(tutti_barrier(comm));
    tutti_window_destroy(window);
    tutti_free(memory);
    CHECK_OK(tutti_comm_memory(comm, &after));
    CHECK(after.mapped == before.mapped);
    return 0;
}

/* Put by mistake, when the owner has given window and memory up: into pages that are nobody's. */
static int too_late(tutti_comm *comm)
{
    const struct around a = around_of(comm);
    uint32_t in[4] = {1, 2, 3, 4};
    tutti_window *window = NULL;
    void *memory = NULL;
    CHECK_OK(tutti_alloc(BYTES, &memory));
    CHECK_OK(tutti_window_create(memory, BYTES, comm, &window));
    if (a.rank == 0) {
        tutti_window_destroy(window);
        tutti_free(memory);
    }
    CHECK_OK(tutti_barrier(comm));
    if (a.next == 0)
        CHECK_OK(tutti_put(in, 4, TUTTI_UINT32, 0, window, BYTES - 16, TUTTI_NO_SIGNAL));
    CHECK_OK(tutti_barrier(comm));
    if (a.rank != 0) {
        tutti_window_destroy(window);
        tutti_free(memory);
    }
    return 0;
}

static int everything(tutti_comm *comm, void *argument)
{
    tutti_window *windows[BOTH] = {NULL, NULL};
    uint32_t *memory[BOTH] = {NULL, malloc(BYTES)};
    void *mapped = NULL;
    (void)argument;
    CHECK_OK(tutti_alloc(BYTES, &mapped));
    memory[0] = mapped;
    CHECK(memory[1] && tutti_signal(0, 0, comm) == TUTTI_ERR_USAGE);
    for (int w = 0; w < BOTH; w++)
        CHECK_OK(tutti_window_create(memory[w], BYTES, comm, &windows[w]));
    int failed = mixed(comm, memory, windows) || queued(comm, memory, windows) || sleeps(comm) ||
                 maps(comm) || (near && processes && too_late(comm));
    CHECK(!failed);
    CHECK_OK(tutti_barrier(comm)); /* nobody puts any more */
    for (int w = 0; w < BOTH; w++)
        tutti_window_destroy(windows[w]);
    tutti_free(mapped);
    free(memory[1]);
    return 0;
}

int main(int argc, char **argv)
{
    struct tti_ranks how = {.options = TUTTI_OPTIONS_INIT};
    how.ranks = argc > 2 ? atoi(argv[2]) : 0;
    if (how.ranks < 1 || how.ranks > MOST)
        return 2;
    processes = how.processes = argc > 3 && strcmp(argv[3], "--processes") == 0;
    how.options.transports = argv[1];
    how.options.timeout_s = 60;
    near = strcmp(argv[1], "tcp") != 0 && strcmp(argv[1], "rdma") != 0;
    const int failed = tti_ranks_run(&how, everything, NULL);
    printf("%s\n", failed ? "FAILED" : "ok");
    return failed ? 1 : 0;
}
