/* Broadcasts and reduces of several roots in a group whose calls have no order (coll/roots.h): all
 * at once where that pays, else one after another; the results are the same.
 *     test_gpu_roots threads | processes
 */
#include "coll/comm.h"
#include "coll/door.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/gpu/gpu_side.h"
#include "coll/group.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 60000, LARGE_AT = 64, RANKS = 4, ROUNDS = 12 };

/* Elements of the block of rank k: some have none. */
static size_t count_of(int round, int k)
{
    static const size_t counts[] = {1000, 0, 37, 4096, 1, 900, 0, 20000};
    return counts[(round * 3 + k * 5) % 8];
}

struct seat {
    tutti_comm *comm;
    int rank, size;
    int32_t *in, *out, *host; /* MOST each */
};

static int seat_begin(tutti_comm *comm, struct seat *s)
{
    *s = (struct seat){.comm = comm, .rank = tutti_comm_rank(comm), .size = tutti_comm_size(comm)};
    CHECK(device_begin(s->rank) == 0);
    s->in = device_memory(MOST * sizeof(int32_t));
    s->out = device_memory(MOST * sizeof(int32_t));
    s->host = calloc(MOST, sizeof(int32_t));
    CHECK(s->in && s->out && s->host);
    CHECK_OK(tutti_barrier_async(comm, device_stream(), NULL)); /* memory is mapped from here on */
    CHECK_OK(device_settle());
    return 0;
}

static int seat_end(struct seat *s)
{
    device_free(s->in);
    device_free(s->out);
    free(s->host);
    return device_end(s->comm);
}

static int value_of(int round, int k, size_t i)
{
    return round * 100000 + k * 1009 + (int)(i % 997);
}

/* The own block at the beginning of `in`, and where it comes to lie if it is in place. */
static int seat_fill(struct seat *s, int round, size_t at)
{
    for (size_t i = 0; i < count_of(round, s->rank); i++)
        s->host[i] = value_of(round, s->rank, i);
    CHECK_OK(device_gpu()->ops->fill(device_gpu(), s->out, 0x5a, MOST * sizeof(int32_t),
                                     device_stream()));
    CHECK_OK(device_copy(s->in, s->host, MOST * sizeof(int32_t)));
    CHECK_OK(device_copy(s->out + at, s->host, count_of(round, s->rank) * sizeof(int32_t)));
    CHECK_OK(device_settle());
    return 0;
}

static int seat_check(struct seat *s, int round)
{
    size_t at = 0;
    CHECK_OK(device_copy(s->host, s->out, MOST * sizeof(int32_t)));
    CHECK_OK(device_settle());
    for (int k = 0; k < s->size; k++)
        for (size_t i = 0; i < count_of(round, k); i++)
            CHECK(s->host[at++] == value_of(round, k, i));
    CHECK(s->host[at] == 0x5a5a5a5a);
    return 0;
}

static size_t before(int round, int rank)
{
    size_t at = 0;
    for (int k = 0; k < rank; k++)
        at += count_of(round, k);
    return at;
}

/* An all-gather of blocks that differ in size, as users of NCCL write it: from the last root to the
 * first, some with requests, in place every second round. */
static int gather_once(struct seat *s, int round, bool any_order)
{
    tutti_request *requests[RANKS] = {NULL};
    const bool in_place = round % 2;
    CHECK(seat_fill(s, round, before(round, s->rank)) == 0);
    CHECK_OK(tutti_group_start());
    if (any_order)
        tti_group_any_order();
    for (int k = s->size; k-- > 0;) {
        int32_t *out = s->out + before(round, k);
        CHECK_OK(tutti_broadcast_async(in_place ? out : s->in, out, count_of(round, k), TUTTI_INT32,
                                       k, s->comm, device_stream(), k % 2 ? &requests[k] : NULL));
    }
    CHECK_OK(tutti_group_end());
    for (int k = 0; k < s->size; k++)
        CHECK_OK(tutti_wait(requests[k]));
    return seat_check(s, round);
}

static int gathers(tutti_comm *comm, void *argument)
{
    const bool threads = *(bool *)argument;
    struct seat s;
    CHECK(seat_begin(comm, &s) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        int some = 0;
        for (int k = 0; k < s.size; k++)
            some += count_of(round, k) > 0;
        CHECK(gather_once(&s, round, true) == 0);
        /* Processes that share a GPU go by windows. */
        CHECK(!threads || (strcmp(tti_comm_device_way(comm), "messages") == 0) == (some > 1));
        CHECK(gather_once(&s, round, false) == 0);
        CHECK(strcmp(tti_comm_device_way(comm), "messages") != 0);
    }
    return seat_end(&s);
}

/* ---- reduces ---- */

/* What rank r gives for the block of rank k: small, so that no sum of 8 bits is cut off. */
static int given(int round, int r, int k, size_t i)
{
    return (round + 3 * r + 5 * k + (int)(i % 7)) % 13;
}

/* Where block k lies at this rank: each has another order, and other gaps between. */
static size_t lies(const struct seat *s, int round, int k)
{
    size_t at = 0;
    for (int i = 0; i < s->size; i++) {
        const int block = (i + s->rank + round) % s->size;
        if (block == k)
            return at;
        at += count_of(round, block) + (size_t)((s->rank + i) % 3);
    }
    return at;
}

/* A reduce-scatter of blocks that differ in size, as users of NCCL write it; as elements of four
 * bytes, or of one. */
static int scatter_once(struct seat *s, int round, bool any_order, bool bytes)
{
    tutti_request *requests[RANKS] = {NULL};
    const enum tutti_type type = bytes ? TUTTI_UINT8 : TUTTI_INT32;
    const size_t size = tutti_type_size(type), own = count_of(round, s->rank);
    const bool in_place = round % 2;
    char *host = (char *)s->host, *in = (char *)s->in, *out = (char *)s->out;
    memset(host, 0x77, MOST * sizeof(int32_t));
    for (int k = 0; k < s->size; k++)
        for (size_t i = 0; i < count_of(round, k); i++) {
            const int value = given(round, s->rank, k, i);
            memcpy(host + (lies(s, round, k) + i) * size, &value, size); /* little-endian */
        }
    CHECK_OK(device_copy(in, host, MOST * sizeof(int32_t)));
    CHECK_OK(
        device_gpu()->ops->fill(device_gpu(), out, 0x77, MOST * sizeof(int32_t), device_stream()));
    char *into = in_place ? in + lies(s, round, s->rank) * size : out;
    CHECK_OK(tutti_group_start());
    if (any_order)
        tti_group_any_order();
    for (int i = 0; i < s->size; i++) {
        const int k = (i + round) % s->size;
        CHECK_OK(tutti_reduce_async(in + lies(s, round, k) * size, k == s->rank ? into : NULL,
                                    count_of(round, k), type, TUTTI_SUM, k, s->comm,
                                    device_stream(), k % 2 ? &requests[k] : NULL));
    }
    CHECK_OK(tutti_group_end());
    for (int k = 0; k < s->size; k++)
        CHECK_OK(tutti_wait(requests[k]));
    CHECK_OK(device_copy(host, into, (own + 1) * size));
    CHECK_OK(device_settle());
    for (size_t i = 0; i < own; i++) {
        int sum = 0, value = 0;
        for (int r = 0; r < s->size; r++)
            sum += given(round, r, s->rank, i);
        memcpy(&value, host + i * size, size);
        CHECK(value == sum);
    }
    CHECK(in_place || own == 0 || host[own * size] == 0x77);
    return 0;
}

static int scatters(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct seat s;
    CHECK(seat_begin(comm, &s) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t some = 0, before = comm->gpu->sequence;
        for (int k = 0; k < s.size; k++)
            some += count_of(round, k) > 0;
        CHECK(scatter_once(&s, round, true, round % 3 == 0) == 0);
        const bool together = some > 1 && tti_gpu_reaches(comm, false);
        CHECK(comm->gpu->sequence - before == (together ? 1 : some));
        before = comm->gpu->sequence;
        CHECK(scatter_once(&s, round, false, round % 3 == 0) == 0);
        CHECK(comm->gpu->sequence - before == some);
    }
    return seat_end(&s);
}

/* Reduces of other types or operators go by themselves; those with the same one together, whatever
 * it is. */
static int mixed(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct seat s;
    float given[4], taken[4], factor = 2;
    enum tutti_op twice;
    CHECK(seat_begin(comm, &s) == 0);
    CHECK_OK(tutti_premul_sum_create(comm, TUTTI_FLOAT32, &factor, &twice));
    const tutti_stream stream = device_stream();
    const int n = s.size;
    for (int i = 0; i < 4; i++)
        given[i] = (float)(10 * (s.rank + 1) + i);
    CHECK_OK(device_copy(s.in, given, sizeof given));
    float *in = (float *)s.in, *out = (float *)s.out;
    const struct {
        enum tutti_op ops[2];
        enum tutti_type second;
        uint64_t kernels;
    } cases[] = {{{TUTTI_SUM, TUTTI_MAX}, TUTTI_FLOAT32, 2},
                 {{TUTTI_MAX, TUTTI_MAX}, TUTTI_INT32, 2},
                 {{TUTTI_MAX, TUTTI_MAX}, TUTTI_FLOAT32, 1},
                 {{TUTTI_AVG, TUTTI_AVG}, TUTTI_FLOAT32, 1},
                 {{twice, twice}, TUTTI_FLOAT32, 1}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const uint64_t before = comm->gpu->sequence;
        CHECK_OK(tutti_group_start());
        tti_group_any_order();
        CHECK_OK(tutti_reduce_async(in + 2, out + 2, 2, cases[c].second, cases[c].ops[1], 1, comm,
                                    stream, NULL));
        CHECK_OK(
            tutti_reduce_async(in, out, 1, TUTTI_FLOAT32, cases[c].ops[0], 0, comm, stream, NULL));
        CHECK_OK(tutti_group_end());
        CHECK(comm->gpu->sequence - before ==
              (tti_gpu_reaches(comm, false) ? cases[c].kernels : 2));
        CHECK_OK(device_copy(taken, out, sizeof taken));
        CHECK_OK(device_settle());
        for (int i = 0; i < 4 && s.rank < 2; i++) {
            const enum tutti_op op = cases[c].ops[s.rank];
            const float sum = (float)(10 * n * (n + 1) / 2 + n * i);
            /* Of floats that are positive the bits have the same order. */
            const float expected = op == TUTTI_MAX   ? (float)(10 * n + i)
                                   : op == TUTTI_AVG ? sum / (float)n
                                   : op == twice     ? 2 * sum
                                                     : sum;
            if (s.rank == 0 ? i == 0 : i >= 2)
                CHECK(taken[i] == expected);
        }
    }
    CHECK_OK(tutti_op_destroy(comm, twice));
    return seat_end(&s);
}

/* The counts of the last rank differ from the others', their sum does not: nobody hangs, and the
 * sums would be wrong. All hear of it, in the name of what was called. */
static int differ(tutti_comm *comm, void *argument)
{
    enum { PATIENCE = 1000 };
    const bool uneven = *(bool *)argument;
    struct seat s;
    CHECK(seat_begin(comm, &s) == 0);
    const size_t more = s.rank == s.size - 1 ? 3 : 0;
    size_t counts[RANKS] = {10 + more, 20 - more};
    const tutti_stream stream = device_stream();
    enum tutti_result result = TUTTI_OK;
    for (int i = 0; i < PATIENCE && result == TUTTI_OK; i++) {
        (void)tutti_group_start();
        tti_group_any_order();
        if (uneven)
            result = tutti_reduce_scatter_v_async(s.in, s.out, counts, NULL, TUTTI_INT32, TUTTI_SUM,
                                                  comm, stream, NULL);
        for (int k = 0; k < 2 && !uneven && result == TUTTI_OK; k++)
            result = tutti_reduce_async(s.in + 100 * k, s.out, counts[k], TUTTI_INT32, TUTTI_SUM, k,
                                        comm, stream, NULL);
        const enum tutti_result ended = tutti_group_end();
        result = result == TUTTI_OK ? ended : result;
        usleep(10000);
    }
    CHECK(result == TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), uneven ? "called reduce_scatter_v #" : "called reduces #") &&
          strstr(tutti_last_error(), "(count 30, int32, sum, checksum of counts "));
    CHECK_OK(device_settle());
    CHECK(seat_end(&s) != 0); /* its barrier fails, too */
    return 0;
}

/* What breaks a run: a root's second broadcast, another collective. And one that outweighs the
 * others is better by itself. */
static int broken(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct seat s;
    int32_t host[8];
    CHECK(seat_begin(comm, &s) == 0);
    for (int i = 0; i < 8; i++)
        s.host[i] = 10 * s.rank + i;
    CHECK_OK(device_copy(s.in, s.host, 8 * sizeof(int32_t)));
    CHECK_OK(tutti_group_start());
    tti_group_any_order();
    const tutti_stream stream = device_stream();
    CHECK_OK(tutti_broadcast_async(s.in, s.out, 1, TUTTI_INT32, 0, comm, stream, NULL));
    CHECK_OK(tutti_broadcast_async(s.in + 1, s.out + 1, 1, TUTTI_INT32, 1, comm, stream, NULL));
    CHECK_OK(tutti_broadcast_async(s.in + 2, s.out + 2, 2, TUTTI_INT32, 0, comm, stream, NULL));
    CHECK_OK(
        tutti_all_reduce_async(s.in, s.out + 4, 1, TUTTI_INT32, TUTTI_SUM, comm, stream, NULL));
    CHECK_OK(tutti_broadcast_async(s.in + 5, s.out + 5, 1, TUTTI_INT32, 1, comm, stream, NULL));
    CHECK_OK(tutti_group_end());
    CHECK_OK(device_copy(host, s.out, sizeof host));
    CHECK_OK(device_settle());
    CHECK(host[0] == 0 && host[1] == 11 && host[2] == 2 && host[3] == 3 && host[5] == 15);
    CHECK(host[4] == 10 * s.size * (s.size - 1) / 2);
    CHECK_OK(tutti_group_start());
    tti_group_any_order();
    for (int k = 0; k < s.size; k++) { /* to places of their own, as there is no order */
        const size_t at = k == 1 ? LARGE_AT : (size_t)k;
        CHECK_OK(tutti_broadcast_async(s.in, s.out + at, k == 1 ? MOST - LARGE_AT : 1, TUTTI_INT32,
                                       k, comm, stream, NULL));
    }
    CHECK_OK(tutti_group_end());
    CHECK_OK(device_settle());
    if (s.size > 4)
        CHECK(strcmp(tti_comm_device_way(comm), "messages") != 0);
    return seat_end(&s);
}

static int run(const char *name, struct tti_ranks how, tti_rank_function *function, void *argument)
{
    const int bad = tti_ranks_run(&how, function, argument);
    printf("%s, %d %s: %s\n", name, how.ranks, how.processes ? "processes" : "threads",
           bad ? "FAILED" : "ok");
    fflush(stdout);
    return bad != 0;
}

int main(int argc, char **argv)
{
    bool threads = argc == 2 && strcmp(argv[1], "threads") == 0;
    struct tti_ranks how = {.options = TUTTI_OPTIONS_INIT};
    int failed = 0;
    if (!threads && (argc != 2 || strcmp(argv[1], "processes") != 0))
        return fprintf(stderr, "usage: test_gpu_roots threads | processes\n"), 2;
    how.processes = !threads;
    how.options.timeout_s = 60;
    for (how.ranks = 2; how.ranks <= RANKS; how.ranks++)
        failed += run("all-gathers", how, gathers, &threads) +
                  run("reduce-scatters", how, scatters, &threads) +
                  run("reduces of several kinds", how, mixed, &threads);
    how.ranks = 3;
    failed += run("counts that differ", how, differ, &(bool){true});
    failed += run("counts of reduces that differ", how, differ, &(bool){false});
    failed += run("runs that break", how, broken, &threads);
    how.ranks = 6;
    failed += threads ? run("one outweighs", how, broken, &threads) : 0;
    return failed ? 1 : 0;
}
