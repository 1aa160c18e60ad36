/* Calls on buffers that the other ranks have mapped (coll/gpu/gpu_lend.c): that they come to be
 * used, and are right then, also when only some ranks' are, when memory is freed and another's
 * comes, and in replays of graphs. The window holds a few ranges of a call. How soon a buffer is
 * lent is up to the watching threads; until then calls go through the window, and are checked as
 * well. */
#include "base/clock.h"
#include "coll/comm.h"
#include "coll/gpu/gpu_map.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 50001, PATIENCE_SECONDS = 60 };

struct seat {
    tutti_comm *comm;
    int rank, ranks;
    int32_t *in, *out, *host; /* n blocks each */
    int turn;
};

/* Calls so far whose buffers were all lent. */
static uint64_t seat_count(const struct seat *s)
{
    const struct tti_gpu_map *map = s->comm->gpu->map; /* made by the first call */
    return map ? tti_gpu_lend_direct(map) : 0;
}

static int32_t element(int rank, size_t i, int turn)
{
    return (int32_t)(i % 1000) * (rank + 1) + turn;
}

/* What a call reads, on the device: `blocks` of COUNT. */
static int seat_fill(struct seat *s, int32_t *in, size_t blocks)
{
    s->turn++;
    for (size_t i = 0; i < blocks * COUNT; i++)
        s->host[i] = element(s->rank, i, s->turn);
    CHECK(device_copy(in, s->host, blocks * COUNT * 4) == 0);
    return 0;
}

/* Block 0 of `out` is the sum of all ranks' block b. */
static int seat_sum(struct seat *s, const int32_t *out, size_t b)
{
    const int n = s->ranks;
    CHECK(device_copy(s->host, out, COUNT * 4) == 0 && device_settle() == 0);
    for (size_t i = 0; i < COUNT; i++)
        CHECK(s->host[i] == (int32_t)((b * COUNT + i) % 1000) * (n * (n + 1) / 2) + n * s->turn);
    return 0;
}

/* Block k of `out` is block b of rank `from`. */
static int seat_block(struct seat *s, const int32_t *out, size_t k, int from, size_t b)
{
    CHECK(device_copy(s->host, out + k * COUNT, COUNT * 4) == 0 && device_settle() == 0);
    for (size_t i = 0; i < COUNT; i++)
        CHECK(s->host[i] == element(from, b * COUNT + i, s->turn));
    return 0;
}

static int seat_reduce(struct seat *s, int32_t *in, int32_t *out)
{
    CHECK(seat_fill(s, in, 1) == 0);
    CHECK_OK(tutti_all_reduce_async(in, out, COUNT, TUTTI_INT32, TUTTI_SUM, s->comm,
                                    device_stream(), NULL));
    return seat_sum(s, out, 0);
}

/* All-reduces until all ranks' buffers are lent, all of which leave after the same call. */
static int seat_until_lent(struct seat *s)
{
    const uint64_t deadline = tti_deadline_in(PATIENCE_SECONDS);
    int32_t mine[2], all[2] = {0, 0};
    while (all[0] == 0) {
        const uint64_t before = seat_count(s);
        CHECK(seat_reduce(s, s->in, s->out) == 0);
        mine[0] = seat_count(s) > before;
        mine[1] = !tti_deadline_passed(deadline);
        CHECK_OK(tutti_all_reduce(mine, all, 2, TUTTI_INT32, TUTTI_MIN, s->comm));
        CHECK(all[0] == 1 || all[1] == 1); /* in time */
    }
    return 0;
}

/* Is every call from `before` on one on lent buffers? */
static bool seat_lent(const struct seat *s, uint64_t before, uint64_t calls)
{
    return seat_count(s) == before + calls;
}

static int seat_others(struct seat *s)
{
    const uint64_t before = seat_count(s);
    const int n = s->ranks, root = n - 1;
    const size_t blocks = (size_t)n;
    tutti_stream stream = device_stream();
    CHECK(seat_fill(s, s->in, blocks) == 0);
    CHECK_OK(tutti_reduce_scatter_async(s->in, s->out, COUNT, TUTTI_INT32, TUTTI_SUM, s->comm,
                                        stream, NULL));
    CHECK(seat_sum(s, s->out, (size_t)s->rank) == 0);
    CHECK_OK(tutti_all_gather_async(s->in, s->out, COUNT, TUTTI_INT32, s->comm, stream, NULL));
    for (int r = 0; r < n; r++)
        CHECK(seat_block(s, s->out, (size_t)r, r, 0) == 0);
    CHECK_OK(tutti_broadcast_async(s->in, s->out, COUNT, TUTTI_INT32, root, s->comm, stream, NULL));
    CHECK(seat_block(s, s->out, 0, root, 0) == 0);
    CHECK_OK(tutti_scatter_async(s->in, s->out, COUNT, TUTTI_INT32, root, s->comm, stream, NULL));
    CHECK(seat_block(s, s->out, 0, root, (size_t)s->rank) == 0);
    CHECK_OK(tutti_gather_async(s->in, s->out, COUNT, TUTTI_INT32, root, s->comm, stream, NULL));
    for (int r = 0; r < n && s->rank == root; r++)
        CHECK(seat_block(s, s->out, (size_t)r, r, 0) == 0);
    CHECK_OK(tutti_reduce_async(s->in, s->out, COUNT, TUTTI_INT32, TUTTI_SUM, root, s->comm, stream,
                                NULL));
    if (s->rank == root)
        CHECK(seat_sum(s, s->out, 0) == 0);
    CHECK(device_settle() == 0);
    CHECK(seat_lent(s, before, 6));
    return 0;
}

/* Rank 0 comes with memory that nobody has mapped, the others with what is lent. */
static int seat_mixed(struct seat *s)
{
    int32_t *other = device_memory(COUNT * 4);
    CHECK(other);
    CHECK(seat_reduce(s, s->rank == 0 ? other : s->in, s->out) == 0);
    CHECK(seat_reduce(s, s->in, s->rank == 0 ? other : s->out) == 0);
    CHECK(seat_reduce(s, s->in, s->in) == 0);
    CHECK(seat_reduce(s, s->rank == 0 ? other : s->out, s->rank == 0 ? other : s->out) == 0);
    CHECK_OK(tutti_barrier(s->comm));
    device_free(other);
    return 0;
}

static int seat_again(struct seat *s)
{
    const size_t bytes = (size_t)s->ranks * COUNT * 4;
    CHECK_OK(tutti_barrier(s->comm));
    device_free_now(s->out);
    s->out = device_memory(bytes);
    CHECK(s->out);
    CHECK_OK(tutti_barrier(s->comm));
    return seat_until_lent(s);
}

static int seat_captured(struct seat *s)
{
    const uint64_t before = seat_count(s);
    struct tti_gpu *gpu = device_gpu();
    struct tti_gpu_graph *graph = NULL;
    CHECK_OK(gpu->ops->capture_begin(gpu, device_stream()));
    CHECK_OK(tutti_all_reduce_async(s->in, s->out, COUNT, TUTTI_INT32, TUTTI_SUM, s->comm,
                                    device_stream(), NULL));
    CHECK_OK(gpu->ops->capture_end(gpu, device_stream(), &graph));
    CHECK(seat_lent(s, before, 1));
    for (int k = 0; k < 3; k++) {
        CHECK(seat_fill(s, s->in, 1) == 0);
        CHECK_OK(gpu->ops->graph_launch(graph, device_stream()));
        CHECK(seat_sum(s, s->out, 0) == 0);
        CHECK(seat_reduce(s, s->in, s->out) == 0); /* between replays */
    }
    gpu->ops->graph_destroy(graph);
    return 0;
}

static int lend(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct seat s = {.comm = comm, .rank = tutti_comm_rank(comm), .ranks = tutti_comm_size(comm)};
    const size_t bytes = (size_t)s.ranks * COUNT * 4;
    CHECK(device_begin(s.rank) == 0);
    s.in = device_memory(bytes);
    s.out = device_memory(bytes);
    s.host = calloc(1, bytes);
    CHECK(s.in && s.out && s.host);
    CHECK(seat_until_lent(&s) == 0);
    CHECK(seat_others(&s) == 0);
    CHECK(seat_mixed(&s) == 0);
    CHECK(seat_again(&s) == 0);
    CHECK(seat_captured(&s) == 0);
    CHECK_OK(tutti_barrier(comm));
    device_free(s.in);
    device_free(s.out);
    free(s.host);
    return device_end(comm);
}

int main(int argc, char **argv)
{
    const bool processes = argc > 1 && strcmp(argv[1], "processes") == 0;
    struct tti_ranks how = {.ranks = 3, .options = TUTTI_OPTIONS_INIT, .processes = processes};
    how.options.timeout_s = 60;
    setenv("TUTTI_DEVICE_PATH", "window", 1); /* as of processes that share a GPU */
    setenv("TUTTI_DEVICE_MAP", "64K", 1);
    setenv("TUTTI_DEVICE_MEMORY", "1720K", 1);
    const int bad = tti_ranks_run(&how, lend, NULL);
    printf("lent buffers, %s: %s\n", processes ? "processes" : "threads", bad ? "FAILED" : "right");
    return bad;
}
