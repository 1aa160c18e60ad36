/* Broadcasts of several roots in a group whose calls have no order (coll/broadcasts.h): as
 * messages, all at once, where that pays, else one after another; the results are the same.
 *     test_gpu_broadcasts threads | processes
 */
#include "coll/comm.h"
#include "coll/door.h"
#include "coll/group.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static int run(const char *name, struct tti_ranks how, tti_rank_function *function, bool *threads)
{
    const int bad = tti_ranks_run(&how, function, threads);
    printf("%s, %d %s: %s\n", name, how.ranks, *threads ? "threads" : "processes",
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
        return fprintf(stderr, "usage: test_gpu_broadcasts threads | processes\n"), 2;
    how.processes = !threads;
    how.options.timeout_s = 60;
    for (how.ranks = 2; how.ranks <= RANKS; how.ranks++)
        failed += run("all-gathers", how, gathers, &threads);
    how.ranks = 3;
    failed += run("runs that break", how, broken, &threads);
    how.ranks = 6;
    failed += threads ? run("one outweighs", how, broken, &threads) : 0;
    return failed ? 1 : 0;
}
