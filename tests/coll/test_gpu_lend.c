/* Calls on buffers that the other ranks have mapped (coll/gpu/gpu_lend.c): that they come to be
 * used, and are right then, also when only some ranks' are, when memory is freed and another's
 * comes, and in replays of graphs; and what holds at their end, after a failure. The window holds a
 * few ranges of a call. How soon a buffer is lent is up to the watching threads; until then calls
 * go through the window, and are checked as well. */
#include "base/clock.h"
#include "coll/comm.h"
#include "coll/gpu/gpu_map.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <pthread.h>
#include <stdatomic.h>
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

/* ---- the end, after a failure ---- */

static struct tti_gpu_places *places_of(const struct seat *s, int rank)
{
    return &tti_gpu_lend_page(s->comm->gpu->map, rank)->places;
}

static int word_put(struct tti_gpu *gpu, tutti_stream stream, uint32_t *word, uint32_t value)
{
    return gpu->ops->stream_write(gpu, word, value, stream) != TUTTI_OK ||
           tti_gpu_stream_wait(gpu, stream, tti_deadline_in(PATIENCE_SECONDS), "a word") !=
               TUTTI_OK;
}

static int word_get(struct tti_gpu *gpu, tutti_stream stream, const uint32_t *word, uint32_t *value)
{
    return gpu->ops->copy(gpu, value, word, sizeof *value, stream) != TUTTI_OK ||
           tti_gpu_stream_wait(gpu, stream, tti_deadline_in(PATIENCE_SECONDS), "a word") !=
               TUTTI_OK;
}

/* A block of rank 1 that is at others' buffers, and leaves when it hears that somebody gave up. */
struct leaver {
    const struct seat *s;
    struct tti_gpu *gpu;
    atomic_bool left;
    bool bad;
};

static void *leave_late(void *argument)
{
    struct leaver *l = argument;
    const uint64_t deadline = tti_deadline_in(PATIENCE_SECONDS);
    tutti_stream stream = NULL;
    uint32_t told = 0;
    l->bad = l->gpu->ops->stream_create(l->gpu, &stream) != TUTTI_OK;
    while (!l->bad && told == 0 && !tti_deadline_passed(deadline))
        l->bad = word_get(l->gpu, stream, &places_of(l->s, 1)->gave_up, &told) != 0;
    atomic_store(&l->left, true);
    l->bad |= told == 0 || word_put(l->gpu, stream, &places_of(l->s, 1)->inside, 0) != 0;
    l->gpu->ops->stream_destroy(l->gpu, stream);
    return NULL;
}

/* Who gives up waits for those that are inside; or names who stays. */
static int end_waits(const struct seat *s)
{
    struct leaver late = {.s = s, .gpu = device_gpu()};
    uint32_t *stuck = &s->comm->gpu->map->told->status.stuck;
    pthread_t thread;
    CHECK(word_put(device_gpu(), device_stream(), &places_of(s, 1)->inside, 1) == 0);
    CHECK(pthread_create(&thread, NULL, leave_late, &late) == 0);
    tti_gpu_lend_end(s->comm);
    const bool left = atomic_load(&late.left);
    CHECK(pthread_join(thread, NULL) == 0 && !late.bad);
    CHECK(*stuck == 0 ? left : *stuck == 2); /* the latter if it took its time */
    *stuck = 0;
    return 0;
}

static int end_names(const struct seat *s)
{
    uint32_t *stuck = &s->comm->gpu->map->told->status.stuck;
    CHECK(word_put(device_gpu(), device_stream(), &places_of(s, 1)->inside, 1) == 0);
    tti_gpu_lend_end(s->comm);
    CHECK(*stuck == 2); /* rank 1, plus 1 */
    *stuck = 0;
    return word_put(device_gpu(), device_stream(), &places_of(s, 1)->inside, 0);
}

/* Kernels that come later keep off: `out` is changed only by one that looks at no places. */
static int end_keeps_off(struct seat *s)
{
    struct tti_gpu *gpu = device_gpu();
    uint32_t inside = 9;
    CHECK(seat_fill(s, s->in, 1) == 0);
    CHECK_OK(gpu->ops->fill(gpu, s->out, 7, COUNT * 4, device_stream()));
    for (int off = 1; off >= 0; off--) {
        const struct tti_reduce_copy_args args = {.src = {s->in},
                                                  .dst = {s->out},
                                                  .count = COUNT,
                                                  .srcs = 1,
                                                  .dsts = 1,
                                                  .places = off ? places_of(s, 0) : NULL,
                                                  .far_first = TTI_GPU_RANKS};
        const struct tti_gpu_launch launch = {.kernel = TTI_KERNEL_REDUCE_COPY,
                                              .type = TUTTI_INT32,
                                              .blocks = 2,
                                              .threads = 64,
                                              .args = &args,
                                              .args_bytes = sizeof args};
        CHECK_OK(gpu->ops->launch(gpu, &launch, device_stream()));
        CHECK(device_copy(s->host, s->out, COUNT * 4) == 0 && device_settle() == 0);
        for (size_t i = 0; i < COUNT; i++)
            CHECK(s->host[i] == (off ? 0x07070707 : element(s->rank, i, s->turn)));
    }
    CHECK(word_get(gpu, device_stream(), &places_of(s, 0)->inside, &inside) == 0 && inside == 0);
    return 0;
}

/* Rank 0 ends what is lent; the others do nothing on the device meanwhile. */
static int seat_end(struct seat *s, bool slow)
{
    CHECK_OK(tutti_barrier(s->comm));
    if (s->rank == 0) {
        uint32_t gave_up = 0;
        CHECK(end_waits(s) == 0);
        for (int r = 0; r < s->ranks; r++) {
            CHECK(word_get(device_gpu(), device_stream(), &places_of(s, r)->gave_up, &gave_up) ==
                  0);
            CHECK(gave_up == 1);
        }
        CHECK(!slow || end_names(s) == 0);
        CHECK(end_keeps_off(s) == 0);
    }
    CHECK_OK(tutti_barrier(s->comm));
    return 0;
}

static int lend(tutti_comm *comm, void *slow)
{
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
    CHECK(seat_end(&s, slow != NULL) == 0);
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
    setenv("TUTTI_DEVICE_MEMORY", "1848K", 1);
    bool slow = true; /* waits for one that stays, once */
    const int bad = tti_ranks_run(&how, lend, processes ? &slow : NULL);
    printf("lent buffers, %s: %s\n", processes ? "processes" : "threads", bad ? "FAILED" : "right");
    return bad;
}
