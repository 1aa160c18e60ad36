/* Collectives on device memory of ranks on several hosts, which are pretended here: two, of two
 * ranks each (coll/gpu/gpu_levels.h). That they are right test_operations shows; here: that they go
 * in levels at all, what passes the host, how often sums are rounded, and how they end when a rank
 * gives up, dies or does not come, with results that are right or errors everywhere.
 *     test_gpu_levels threads | processes      the ranks of a host: threads of one process, or not
 */
#include "coll/comm.h"
#include "coll/door.h"
#include "coll/gpu/gpu_levels.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 4, EACH = 2, COUNT = 20000 /* whole lines */, LARGE = 600000 };

static int close_device(void)
{
    device_settle();
    device_gpu()->ops->stream_destroy(device_gpu(), device_stream());
    device_gpu()->ops->close(device_gpu());
    return 0;
}

/* ---- which way ---- */

/* Bytes of inputs that were copied to the host whole. */
static uint64_t copied(tutti_comm *comm)
{
    uint64_t bytes = 0, direct = 0;
    tti_gpu_stage_counts(comm->gpu, &bytes, &direct);
    return bytes;
}

/* Did the last call go so? */
static bool went(tutti_comm *comm, const char *way)
{
    return strcmp(tti_comm_device_way(comm), way) == 0;
}

/* Large ones go in levels, and nothing of their inputs is copied to the host whole; small ones are
 * staged, and so is what there are no levels for. */
static int ways(tutti_comm *comm, void *argument)
{
    (void)argument;
    const size_t bytes = (size_t)RANKS * COUNT * 4;
    CHECK(device_begin(tutti_comm_rank(comm)) == 0);
    float *in = device_memory(bytes), *out = device_memory(bytes);
    tutti_stream stream = device_stream();
    CHECK(in && out);
    CHECK_OK(tutti_all_reduce_async(in, out, COUNT, TUTTI_FLOAT32, TUTTI_AVG, comm, stream, NULL));
    CHECK(went(comm, "levels"));
    CHECK_OK(tutti_reduce_async(in, out, COUNT, TUTTI_FLOAT32, TUTTI_MAX, 2, comm, stream, NULL));
    CHECK(went(comm, "levels"));
    CHECK_OK(tutti_broadcast_async(in, out, COUNT, TUTTI_FLOAT32, 3, comm, stream, NULL));
    CHECK_OK(
        tutti_reduce_scatter_async(in, out, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm, stream, NULL));
    CHECK(went(comm, "levels"));
    CHECK_OK(tutti_all_gather_async(in, out, COUNT, TUTTI_FLOAT32, comm, stream, NULL));
    CHECK_OK(device_settle());
    CHECK(went(comm, "levels") && copied(comm) == 0);
    /* Only what cannot be shared out. */
    CHECK_OK(
        tutti_all_reduce_async(in, out, COUNT + 1, TUTTI_FLOAT32, TUTTI_SUM, comm, stream, NULL));
    CHECK_OK(device_settle());
    CHECK(went(comm, "levels") && copied(comm) == 4);
    CHECK_OK(tutti_all_reduce_async(in, out, 100, TUTTI_FLOAT32, TUTTI_SUM, comm, stream, NULL));
    CHECK(went(comm, "staged"));
    CHECK_OK(tutti_all_to_all_async(in, out, COUNT, TUTTI_FLOAT32, comm, stream, NULL));
    CHECK_OK(device_settle());
    CHECK(went(comm, "staged") && copied(comm) == 4 + 400 + bytes);
    device_free(in);
    device_free(out);
    return device_end(comm);
}

/* Three ranks on two hosts: not as many on each. */
static int unlike_hosts(tutti_comm *comm, void *argument)
{
    (void)argument;
    CHECK(device_begin(tutti_comm_rank(comm)) == 0);
    float *in = device_memory(COUNT * 4), *out = device_memory(COUNT * 4);
    CHECK(in && out);
    CHECK_OK(tutti_all_reduce_async(in, out, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm, device_stream(),
                                    NULL));
    CHECK_OK(device_settle());
    CHECK(went(comm, "staged") && copied(comm) == COUNT * 4);
    device_free(in);
    device_free(out);
    return device_end(comm);
}

/* ---- messages: those of a host stay there, also in a group with others ---- */

static int messages(tutti_comm *comm, void *argument)
{
    (void)argument;
    const int rank = tutti_comm_rank(comm);
    CHECK(device_begin(rank) == 0);
    int32_t *in = device_memory(RANKS * COUNT * 4), *out = device_memory(RANKS * COUNT * 4);
    int32_t *host = calloc(RANKS * COUNT, 4);
    tutti_stream stream = device_stream();
    CHECK(in && out && host);
    CHECK_OK(tutti_all_reduce_async(in, out, COUNT, TUTTI_INT32, TUTTI_SUM, comm, stream, NULL));
    const uint64_t before = copied(comm);
    for (int i = 0; i < RANKS * COUNT; i++)
        host[i] = rank * RANKS * COUNT + i;
    CHECK_OK(device_copy(in, host, RANKS * COUNT * 4));
    for (int turn = 0; turn < 3; turn++) {
        CHECK_OK(device_gpu()->ops->fill(device_gpu(), out, 0x5a, RANKS * COUNT * 4, stream));
        CHECK_OK(tutti_group_start());
        for (int k = 0; k < 2 * RANKS; k++) {
            const int j = rank % 2 ? 2 * RANKS - 1 - k : k, p = j / 2;
            CHECK_OK(
                j % 2
                    ? tutti_send_async(in + p * COUNT, COUNT, TUTTI_INT32, p, comm, stream, NULL)
                    : tutti_recv_async(out + p * COUNT, COUNT, TUTTI_INT32, p, comm, stream, NULL));
        }
        CHECK_OK(tutti_group_end());
        CHECK_OK(device_copy(host, out, RANKS * COUNT * 4));
        CHECK_OK(device_settle());
        for (int i = 0; i < RANKS * COUNT; i++)
            CHECK(host[i] == (i / COUNT) * RANKS * COUNT + rank * COUNT + i % COUNT);
    }
    const uint64_t after = copied(comm);
    CHECK(after - before == (uint64_t)3 * (RANKS - EACH) * COUNT * 4);
    /* What is refused of one kind goes neither of the other. */
    CHECK_OK(tutti_group_start());
    CHECK_OK(tutti_send_async(in, COUNT, TUTTI_INT32, (rank + EACH) % RANKS, comm, stream, NULL));
    CHECK_OK(tutti_send_async(in, COUNT, TUTTI_INT32, rank, comm, stream, NULL));
    CHECK(tutti_group_end() == TUTTI_ERR_USAGE);
    CHECK_OK(tutti_all_reduce_async(in, out, COUNT, TUTTI_INT32, TUTTI_SUM, comm, stream, NULL));
    CHECK_OK(device_settle());
    CHECK(copied(comm) == after);
    device_free(in);
    device_free(out);
    free(host);
    return device_end(comm);
}

/* ---- sums of small floats ---- */

/* 256 + 1 + 1 + 1 is 259, in bfloat16 260. Rounded on the hosts, too, it would be 256 + 2. */
static int rounded_once(tutti_comm *comm, void *argument)
{
    (void)argument;
    enum { WHOLE = 0x4380, ONE = 0x3f80, DUE = 0x4382 };
    const int rank = tutti_comm_rank(comm);
    const size_t all = (size_t)RANKS * COUNT;
    CHECK(device_begin(rank) == 0);
    uint16_t *in = device_memory(all * 2), *out = device_memory(all * 2), *host = calloc(all, 2);
    tutti_stream stream = device_stream();
    CHECK(in && out && host);
    for (int way = 0; way < 3; way++) {
        for (size_t i = 0; i < all; i++)
            host[i] = rank == 0 ? WHOLE : ONE;
        CHECK_OK(device_copy(in, host, all * 2));
        CHECK_OK(way == 0   ? tutti_all_reduce_async(in, out, all, TUTTI_BFLOAT16, TUTTI_SUM, comm,
                                                     stream, NULL)
                 : way == 1 ? tutti_reduce_async(in, out, all, TUTTI_BFLOAT16, TUTTI_SUM, 3, comm,
                                                 stream, NULL)
                            : tutti_reduce_scatter_async(in, out, COUNT, TUTTI_BFLOAT16, TUTTI_SUM,
                                                         comm, stream, NULL));
        CHECK(went(comm, "levels"));
        CHECK_OK(device_copy(host, out, all * 2));
        CHECK_OK(device_settle());
        for (size_t i = 0; i < (way == 2 ? COUNT : all) && (way != 1 || rank == 3); i++)
            if (host[i] != DUE)
                return fprintf(stderr, "rank %d, way %d: element %zu is %04x\n", rank, way, i,
                               host[i]);
    }
    device_free(in);
    device_free(out);
    free(host);
    return device_end(comm);
}

/* A factor of each rank's own: 1 + 2 + 3 + 4, of float32 and of bfloat16, which leaves the devices
 * wide. */
static int multiplied(tutti_comm *comm, void *argument)
{
    (void)argument;
    static const uint16_t small[RANKS] = {0x3f80, 0x4000, 0x4040, 0x4080};
    enum { SMALL_DUE = 0x4120 };
    const int rank = tutti_comm_rank(comm);
    const float factor = (float)(rank + 1);
    const size_t all = (size_t)RANKS * COUNT;
    enum tutti_op op = TUTTI_SUM, small_op = TUTTI_SUM;
    CHECK(device_begin(rank) == 0);
    float *in = device_memory(all * 4), *out = device_memory(all * 4), *host = calloc(all, 4);
    tutti_stream stream = device_stream();
    CHECK(in && out && host);
    CHECK_OK(tutti_premul_sum_create(comm, TUTTI_FLOAT32, &factor, &op));
    CHECK_OK(tutti_premul_sum_create(comm, TUTTI_BFLOAT16, &small[rank], &small_op));
    for (size_t i = 0; i < all; i++)
        host[i] = (float)(i % 50);
    CHECK_OK(device_copy(in, host, all * 4));
    CHECK_OK(tutti_all_reduce_async(in, out, all, TUTTI_FLOAT32, op, comm, stream, NULL));
    CHECK(went(comm, "levels"));
    CHECK_OK(device_copy(host, out, all * 4));
    CHECK_OK(device_settle());
    for (size_t i = 0; i < all; i++)
        CHECK(host[i] == (float)(10 * (i % 50)));
    uint16_t *words = (uint16_t *)(void *)host;
    for (size_t i = 0; i < all; i++)
        words[i] = small[0];
    CHECK_OK(device_copy(in, words, all * 2));
    CHECK_OK(
        tutti_reduce_scatter_async(in, out, COUNT, TUTTI_BFLOAT16, small_op, comm, stream, NULL));
    CHECK(went(comm, "levels"));
    CHECK_OK(device_copy(words, out, COUNT * 2));
    CHECK_OK(device_settle());
    for (size_t i = 0; i < COUNT; i++)
        CHECK(words[i] == SMALL_DUE);
    CHECK_OK(tutti_op_destroy(comm, op));
    CHECK_OK(tutti_op_destroy(comm, small_op));
    device_free(in);
    device_free(out);
    free(host);
    return device_end(comm);
}

/* ---- what ends badly ---- */

struct large {
    float *in, *out; /* LARGE each */
};

/* All are set up, and about to call the next. */
static int large_begin(tutti_comm *comm, struct large *l)
{
    CHECK(device_begin(tutti_comm_rank(comm)) == 0);
    *l = (struct large){device_memory(LARGE * 4), device_memory(LARGE * 4)};
    CHECK(l->in && l->out);
    CHECK_OK(tutti_all_reduce_async(l->in, l->out, LARGE, TUTTI_FLOAT32, TUTTI_SUM, comm,
                                    device_stream(), NULL));
    CHECK_OK(device_settle());
    CHECK_OK(tutti_barrier(comm));
    return 0;
}

/* What an all-reduce of so many comes to, also if that is known when it is called. */
static enum tutti_result large_call(tutti_comm *comm, const struct large *l, size_t elements)
{
    tutti_request *request = NULL;
    TTI_TRY(tutti_all_reduce_async(l->in, l->out, elements, TUTTI_FLOAT32, TUTTI_SUM, comm,
                                   device_stream(), &request));
    return tutti_wait(request);
}

static int large_end(const struct large *l)
{
    device_settle();
    device_free(l->in);
    device_free(l->out);
    return close_device();
}

enum absence { STAYS_AWAY, DIES, ABORTS };
static const int gone = RANKS - 1;

/* The last rank does not call, or dies, or gives up, and all others hear that it was this one. */
static int absent(tutti_comm *comm, void *argument)
{
    const enum absence how = *(const enum absence *)argument;
    const int rank = tutti_comm_rank(comm);
    struct large l;
    char name[32];
    CHECK(large_begin(comm, &l) == 0);
    CHECK(tti_ranks_together());
    snprintf(name, sizeof name, "rank %d (", gone);
    if (rank == gone && how == DIES)
        _exit(0);
    if (rank == gone && how == ABORTS)
        tutti_comm_abort(comm, "the test says so");
    if (rank != gone) {
        const enum tutti_result result = large_call(comm, &l, LARGE);
        if (result != (how == STAYS_AWAY ? TUTTI_ERR_TIMEOUT
                       : how == DIES     ? TUTTI_ERR_PEER
                                         : TUTTI_ERR_ABORTED) ||
            !strstr(tutti_last_error(), name))
            return fprintf(stderr, "rank %d: %s\n", rank, tutti_last_error());
    }
    while (tutti_comm_error(comm) == TUTTI_OK)
        usleep(1000);
    return large_end(&l);
}

/* A rank gives up at any moment. What its kernels and streams have let through then is worthless,
 * also on hosts where nobody heard of it yet: whoever is told that all went well has the right sum.
 */
static int gives_up(tutti_comm *comm, void *argument)
{
    const useconds_t after = *(const useconds_t *)argument;
    enum { CALLS = 4 };
    const int rank = tutti_comm_rank(comm);
    tutti_request *request[CALLS] = {NULL};
    CHECK(device_begin(rank) == 0);
    float *in = device_memory(LARGE * 4), *out[CALLS], *host = calloc(LARGE, 4);
    CHECK(in && host);
    for (int k = 0; k < CALLS; k++)
        CHECK((out[k] = device_memory(LARGE * 4)));
    for (int i = 0; i < LARGE; i++)
        host[i] = (float)(rank + i % 100);
    CHECK_OK(device_copy(in, host, LARGE * 4));
    CHECK_OK(tutti_all_reduce_async(in, out[0], LARGE, TUTTI_FLOAT32, TUTTI_SUM, comm,
                                    device_stream(), NULL));
    CHECK_OK(device_settle());
    CHECK_OK(tutti_barrier(comm));
    CHECK(tti_ranks_together());
    int calls = 0;
    while (calls < CALLS &&
           tutti_all_reduce_async(in, out[calls], LARGE, TUTTI_FLOAT32, TUTTI_SUM, comm,
                                  device_stream(), &request[calls]) == TUTTI_OK)
        calls++;
    if (rank == 1) {
        usleep(after);
        tutti_comm_abort(comm, "the test says so");
    }
    for (int k = 0; k < calls; k++) {
        if (tutti_wait(request[k]) != TUTTI_OK)
            continue;
        CHECK_OK(device_copy(host, out[k], LARGE * 4));
        device_settle();
        for (int i = 0; i < LARGE; i++)
            if (host[i] != (float)(6 + RANKS * (i % 100)))
                return fprintf(stderr, "rank %d, call %d: element %d is %g and all is well\n", rank,
                               k, i, (double)host[i]);
    }
    device_settle();
    for (int k = 0; k < CALLS; k++)
        device_free(out[k]);
    device_free(in);
    free(host);
    return close_device();
}

/* Rank 1 is told by its device that rank 0 gave up and that this let it through: what it has then
 * goes to no other host. */
static int let_through(tutti_comm *comm, void *argument)
{
    (void)argument;
    const int rank = tutti_comm_rank(comm);
    struct large l;
    CHECK(large_begin(comm, &l) == 0);
    struct tti_gpu *gpu = device_gpu();
    const struct tti_gpu_map *map = comm->gpu->map;
    if (rank == 1)
        CHECK_OK(gpu->ops->stream_write(
            gpu, (uint32_t *)(void *)tti_gpu_at(map, map->rank, TTI_ARENA_POISON), 1,
            device_stream()));
    CHECK(large_call(comm, &l, LARGE) == TUTTI_ERR_PEER);
    CHECK(strstr(tutti_last_error(), "rank 0 (") && strstr(tutti_last_error(), "gave up"));
    return large_end(&l);
}

/* The last rank calls another all-reduce than the others, which both sides of the error show. */
static int differ(tutti_comm *comm, void *argument)
{
    (void)argument;
    const int rank = tutti_comm_rank(comm);
    struct large l;
    CHECK(large_begin(comm, &l) == 0);
    const enum tutti_result result = large_call(comm, &l, rank == gone ? COUNT : LARGE);
    CHECK(result == TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "count 600000") && strstr(tutti_last_error(), "count 20000"));
    return large_end(&l);
}

/* ---- one host: which of its ways ---- */

static int by_kernel(tutti_comm *comm, void *argument)
{
    const bool *one_process = argument;
    static const struct {
        enum tutti_collective collective;
        size_t count; /* of float32 */
        const char *threads, *processes;
    } expected[] = {
        {TUTTI_ALL_REDUCE, 2, "one_shot_ll", "one_shot_ll"},
        {TUTTI_ALL_REDUCE, LARGE, "two_shot", "two_shot"},
        {TUTTI_BROADCAST, 100, "direct", "tree"},
        {TUTTI_BROADCAST, LARGE, "two_shot", "two_shot"},
        {TUTTI_REDUCE, 100, "direct", "direct"},
        {TUTTI_REDUCE, LARGE, "two_shot", "two_shot"},
        {TUTTI_ALL_GATHER, COUNT, "direct", "direct"},
        {TUTTI_REDUCE_SCATTER, COUNT, "direct", "direct"},
        {TUTTI_ALL_TO_ALL, COUNT, "direct", "direct"},
    };
    CHECK(device_begin(tutti_comm_rank(comm)) == 0);
    float *in = device_memory(LARGE * 4), *out = device_memory(LARGE * 4);
    CHECK(in && out);
    for (size_t k = 0; k < sizeof expected / sizeof *expected; k++) {
        const struct test_case c = {.collective = expected[k].collective,
                                    .type = TUTTI_FLOAT32,
                                    .op = TUTTI_SUM,
                                    .count = expected[k].count,
                                    .root = 1};
        CHECK_OK(device_start(&c, in, out, comm, NULL));
        const char *way = *one_process ? expected[k].threads : expected[k].processes;
        if (strcmp(tti_comm_device_way(comm), way) != 0)
            return fprintf(stderr, "%s of %zu: by %s, not %s\n",
                           tutti_collective_name(c.collective), c.count, tti_comm_device_way(comm),
                           way);
    }
    CHECK_OK(device_settle());
    device_free(in);
    device_free(out);
    return device_end(comm);
}

/* ---- all of it ---- */

int main(int argc, char **argv)
{
    static const char *const paths[] = {"window", "coupled"};
    struct tti_ranks how = {
        .ranks = RANKS, .processes = true, .hosts = 2, .options = TUTTI_OPTIONS_INIT};
    enum absence away = STAYS_AWAY, dies = DIES, aborts = ABORTS;
    int bad = 0;
    how.threads = argc > 1 && strcmp(argv[1], "threads") == 0 ? EACH : 1;
    for (int p = 0; p < 2; p++) {
        how.options.timeout_s = 60;
        bad |= device_ranks("ways", paths[p], how, ways, NULL);
        bad |= device_ranks("messages", paths[p], how, messages, NULL);
        bad |= device_ranks("rounded once", paths[p], how, rounded_once, NULL);
        bad |= device_ranks("multiplied", paths[p], how, multiplied, NULL);
        bad |= device_ranks("a rank aborts", paths[p], how, absent, &aborts);
        for (useconds_t after = 0; after < 12000; after += 2000)
            bad |= device_ranks("a rank gives up", paths[p], how, gives_up, &after);
        if (how.threads == 1)
            bad |= device_ranks("a rank dies", paths[p], how, absent, &dies);
        bad |= device_ranks("calls differ", paths[p], how, differ, NULL);
        how.options.timeout_s = 4;
        bad |= device_ranks("a rank does not come", paths[p], how, absent, &away);
    }
    how.options.timeout_s = 60;
    bad |= device_ranks("let through", "window", how, let_through, NULL);
    how.ranks = 3;
    bad |= device_ranks("unlike hosts", "coupled", how, unlike_hosts, NULL);
    how.hosts = 1;
    how.ranks = EACH;
    bool one_process = how.threads > 1;
    setenv("TUTTI_SIM_DEVICES", "2", 1); /* processes that share one take turns */
    bad |= device_ranks("one host", "coupled", how, by_kernel, &one_process);
    return bad;
}
