/* What is not a plain collective: sends and receives, groups, asynchronous calls, split, user
 * operators, empty and wrong calls, mismatches, abort, deadlines. Ranks are threads (or processes
 * with --processes); run on the transports named by --transport. */
#include "coll/comm.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"
#include "tutti/windows.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Every rank sends its number to the next one and receives from the one before, in a group. */
static int ring_exchange(tutti_comm *comm, void *argument)
{
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    size_t count = *(size_t *)argument;
    int *in = malloc(count * sizeof *in), *out = calloc(count, sizeof *out);
    for (size_t i = 0; i < count; i++)
        in[i] = rank * 1000 + (int)i % 997;
    CHECK_OK(tutti_group_start());
    CHECK_OK(tutti_send(in, count, TUTTI_INT32, (rank + 1) % size, comm));
    CHECK_OK(tutti_recv(out, count, TUTTI_INT32, (rank + size - 1) % size, comm));
    CHECK_OK(tutti_group_end());
    for (size_t i = 0; i < count; i++)
        CHECK(out[i] == (rank + size - 1) % size * 1000 + (int)i % 997);
    free(in);
    free(out);
    return 0;
}

/* Two messages to each rank, self included, of different sizes, in one group: order is kept. */
static int many_messages(tutti_comm *comm, void *argument)
{
    (void)argument;
    enum { MOST = 16 };
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    int out[MOST][3], in[MOST][3];
    CHECK(size <= MOST);
    CHECK_OK(tutti_group_start());
    for (int p = 0; p < size; p++) {
        for (int k = 0; k < 3; k++)
            in[p][k] = rank * 100 + p * 10 + k;
        CHECK_OK(tutti_send(&in[p][0], 1, TUTTI_INT32, p, comm));
        CHECK_OK(tutti_send(&in[p][1], 2, TUTTI_INT32, p, comm));
    }
    for (int p = 0; p < size; p++) {
        CHECK_OK(tutti_recv(&out[p][0], 1, TUTTI_INT32, p, comm));
        CHECK_OK(tutti_recv(&out[p][1], 2, TUTTI_INT32, p, comm));
    }
    CHECK_OK(tutti_group_end());
    for (int p = 0; p < size; p++)
        for (int k = 0; k < 3; k++)
            CHECK(out[p][k] == p * 100 + rank * 10 + k);
    return 0;
}

/* Exchanges with both neighbours, of sizes that change from round to round: small ones, which run
 * without the executor (coll/message.h), beside such as are too large or too many for that, which
 * one side may have in a group and the other not. */
static int mixed_messages(tutti_comm *comm, void *argument)
{
    const bool mapped = *(size_t *)argument != 0; /* peers read it where it lies */
    enum { ROUNDS = 42, MOST = 6, COUNT = 40000 };
    static const size_t sizes[] = {1, 4096, 30000, 16, COUNT, 1500, 3};
    const int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    const int next = (rank + 1) % size, before = (rank + size - 1) % size;
    const size_t bytes = sizeof(int32_t) * MOST * COUNT;
    void *memory[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        memory[i] = mapped ? NULL : malloc(bytes);
        CHECK(mapped ? tutti_alloc(bytes, &memory[i]) == TUTTI_OK : memory[i] != NULL);
    }
    int32_t *in = memory[0], *out = memory[1];
    for (int round = 0; round < ROUNDS; round++) {
        const int messages = 1 + round % MOST;
        for (int i = 0; i < MOST * COUNT; i++)
            in[i] = rank * 1000003 + round * 101 + i;
        const bool apart = rank == 0 && round % 3 == 0; /* receives in calls of their own */
        CHECK_OK(tutti_group_start());
        for (int m = 0; m < messages; m++)
            CHECK_OK(tutti_send(in + m * COUNT, sizes[(round + m) % 7], TUTTI_INT32, next, comm));
        if (apart)
            CHECK_OK(tutti_group_end());
        for (int m = 0; m < messages; m++)
            CHECK_OK(
                tutti_recv(out + m * COUNT, sizes[(round + m) % 7], TUTTI_INT32, before, comm));
        if (!apart)
            CHECK_OK(tutti_group_end());
        for (int m = 0; m < messages; m++)
            for (size_t i = 0; i < sizes[(round + m) % 7]; i++)
                CHECK(out[m * COUNT + (int)i] ==
                      before * 1000003 + round * 101 + m * COUNT + (int)i);
    }
    for (int i = 0; i < 2; i++)
        (mapped ? tutti_free : free)(memory[i]);
    return 0;
}

/* Rank 0 exchanges with rank 1, which has sent long before it receives: what it then gets is what
 * was sent, whatever rank 0 does with its buffer once its group has ended. */
static int received_late(tutti_comm *comm, void *argument)
{
    (void)argument;
    enum { COUNT = 2048 };
    const int rank = tutti_comm_rank(comm);
    void *memory = NULL;
    CHECK_OK(tutti_alloc(sizeof(int32_t) * 2 * COUNT, &memory));
    int32_t *in = memory, *out = in + COUNT;
    CHECK_OK(tutti_group_start()); /* the first message on a link only makes it */
    if (rank < 2) {
        CHECK_OK(tutti_send(in, 1, TUTTI_INT32, 1 - rank, comm));
        CHECK_OK(tutti_recv(out, 1, TUTTI_INT32, 1 - rank, comm));
    }
    CHECK_OK(tutti_group_end());
    for (int i = 0; i < COUNT; i++)
        in[i] = rank * COUNT + i;
    if (rank == 0) {
        CHECK_OK(tutti_group_start());
        CHECK_OK(tutti_send(in, COUNT, TUTTI_INT32, 1, comm));
        CHECK_OK(tutti_recv(out, COUNT, TUTTI_INT32, 1, comm));
        CHECK_OK(tutti_group_end());
        memset(in, 0xff, sizeof *in * COUNT);
    } else if (rank == 1) {
        CHECK_OK(tutti_send(in, COUNT, TUTTI_INT32, 0, comm));
        usleep(50000);
        CHECK_OK(tutti_recv(out, COUNT, TUTTI_INT32, 0, comm));
    }
    for (int i = 0; i < COUNT && rank < 2; i++)
        CHECK(out[i] == (1 - rank) * COUNT + i);
    CHECK_OK(tutti_barrier(comm));
    tutti_free(memory);
    return 0;
}

static int asynchronous(tutti_comm *comm, void *argument)
{
    (void)argument;
    enum { REQUESTS = 8, COUNT = 5000 };
    int size = tutti_comm_size(comm);
    static _Thread_local double values[REQUESTS][COUNT];
    tutti_request *requests[REQUESTS];
    for (int k = 0; k < REQUESTS; k++) {
        for (int i = 0; i < COUNT; i++)
            values[k][i] = k + i;
        CHECK_OK(tutti_all_reduce_async(values[k], values[k], COUNT, TUTTI_FLOAT64, TUTTI_SUM, comm,
                                        NULL, &requests[k]));
    }
    struct tutti_choice choice; /* a query beside operations in flight */
    CHECK_OK(tutti_comm_choice(comm, TUTTI_ALL_REDUCE, 3 * COUNT, TUTTI_FLOAT64, &choice));
    CHECK(choice.algorithm[0] && choice.lanes >= 1);
    while (tutti_test(requests[0]) == TUTTI_IN_PROGRESS)
        usleep(100);
    CHECK_OK(tutti_test(requests[0]));
    CHECK_OK(tutti_barrier(comm)); /* a blocking call behind asynchronous ones keeps the order */
    CHECK_OK(tutti_wait_all(requests, REQUESTS));
    for (int k = 0; k < REQUESTS; k++)
        for (int i = 0; i < COUNT; i++)
            CHECK(values[k][i] == (double)size * (k + i));
    return 0;
}

static int grouped_collectives(tutti_comm *comm, void *argument)
{
    (void)argument;
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    int32_t a = rank, b = 0, c = rank == 0 ? 7 : 0, d = 0;
    tutti_request *request = NULL;
    CHECK_OK(tutti_group_start());
    CHECK_OK(tutti_group_start());
    CHECK_OK(tutti_all_reduce(&a, &b, 1, TUTTI_INT32, TUTTI_SUM, comm));
    CHECK_OK(tutti_group_end());
    CHECK_OK(tutti_broadcast_async(&c, &d, 1, TUTTI_INT32, 0, comm, NULL, &request));
    CHECK_OK(tutti_group_end());
    CHECK_OK(tutti_wait(request));
    CHECK(b == size * (size - 1) / 2);
    CHECK(d == 7);
    CHECK(tutti_group_end() == TUTTI_ERR_USAGE);
    return 0;
}

/* What waits for the other ranks by operations of its own is not collected: it is refused, and the
 * group is as before. */
static int refused_in_group(tutti_comm *comm, void *argument)
{
    (void)argument;
    tutti_comm *none = NULL;
    tutti_window *window = NULL;
    int32_t one = 1, sum = 0;
    CHECK_OK(tutti_group_start());
    CHECK_OK(tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm));
    CHECK(tutti_comm_split(comm, 0, 0, &none) == TUTTI_ERR_USAGE && !none);
    CHECK(strstr(tutti_last_error(), "tutti_comm_split: not between tutti_group_start"));
    CHECK(tutti_window_create(&one, sizeof one, comm, &window) == TUTTI_ERR_USAGE && !window);
    CHECK(strstr(tutti_last_error(), "tutti_window_create: not between tutti_group_start"));
    CHECK_OK(tutti_group_end());
    CHECK(sum == tutti_comm_size(comm));
    return 0;
}

/* Calls of a communicator that is destroyed before the group ends: none of the group is run. */
static int destroyed_in_group(tutti_comm *comm, void *argument)
{
    (void)argument;
    tutti_comm *aside = NULL;
    tutti_request *request = NULL;
    int32_t one = 1, sums[3] = {0, 0, 0};
    CHECK_OK(tutti_comm_split(comm, 0, tutti_comm_rank(comm), &aside));
    CHECK_OK(tutti_group_start());
    CHECK_OK(tutti_all_reduce(&one, &sums[0], 1, TUTTI_INT32, TUTTI_SUM, comm));
    CHECK_OK(
        tutti_all_reduce_async(&one, &sums[1], 1, TUTTI_INT32, TUTTI_SUM, aside, NULL, &request));
    tutti_comm_destroy(aside);
    CHECK_OK(tutti_all_reduce(&one, &sums[2], 1, TUTTI_INT32, TUTTI_SUM, comm));
    CHECK(tutti_group_end() == TUTTI_ERR_USAGE);
    CHECK(strstr(tutti_last_error(), "destroyed before tutti_group_end"));
    CHECK(!request && sums[0] == 0 && sums[1] == 0 && sums[2] == 0);
    CHECK_OK(tutti_all_reduce(&one, &sums[0], 1, TUTTI_INT32, TUTTI_SUM, comm));
    CHECK(sums[0] == tutti_comm_size(comm));
    return 0;
}

static int splitting(tutti_comm *comm, void *argument)
{
    (void)argument;
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    tutti_comm *half = NULL, *none = (tutti_comm *)comm;
    CHECK_OK(tutti_comm_split(comm, rank % 2, -rank, &half)); /* reversed order */
    int expected_size = (size + 1 - rank % 2) / 2;
    CHECK(tutti_comm_size(half) == expected_size);
    CHECK(tutti_comm_rank(half) == expected_size - 1 - rank / 2);
    int32_t sum = rank, expected = 0;
    for (int r = rank % 2; r < size; r += 2)
        expected += r;
    CHECK_OK(tutti_all_reduce(&sum, &sum, 1, TUTTI_INT32, TUTTI_SUM, half));
    CHECK(sum == expected);
    tutti_comm_destroy(half);
    CHECK_OK(tutti_comm_split(comm, rank == 0 ? 3 : -1, 0, &none));
    CHECK((none != NULL) == (rank == 0));
    tutti_comm_destroy(none);
    return 0;
}

/* A communicator that works is shrunk again and again: whom one list excludes has not called, and
 * is in the next. */
static int shrinking(tutti_comm *comm, void *argument)
{
    (void)argument;
    const int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    for (int turn = 0; turn < 2; turn++)
        for (int out = 0; out < size && size > 1; out++) {
            tutti_comm *left = NULL;
            int32_t sum = rank;
            if (rank == out)
                continue;
            CHECK_OK(tutti_comm_shrink(comm, &out, 1, &left));
            CHECK(tutti_comm_size(left) == size - 1);
            CHECK(tutti_comm_rank(left) == rank - (rank > out));
            CHECK_OK(tutti_all_reduce(&sum, &sum, 1, TUTTI_INT32, TUTTI_SUM, left));
            CHECK(sum == size * (size - 1) / 2 - out);
            tutti_comm_destroy(left);
        }
    CHECK_OK(tutti_barrier(comm));
    return 0;
}

static int user_operator(tutti_comm *comm, void *argument)
{
    (void)argument;
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    float scalar = (float)(rank + 1), values[100], result[100];
    enum tutti_op op;
    CHECK_OK(tutti_premul_sum_create(comm, TUTTI_FLOAT32, &scalar, &op));
    for (int i = 0; i < 100; i++)
        values[i] = (float)i;
    CHECK_OK(tutti_all_reduce(values, result, 100, TUTTI_FLOAT32, op, comm));
    for (int i = 0; i < 100; i++)
        CHECK(result[i] == (float)i * (float)(size * (size + 1) / 2));
    CHECK_OK(tutti_all_reduce(values, values, 100, TUTTI_FLOAT32, op, comm));
    CHECK(memcmp(values, result, sizeof result) == 0);
    CHECK(tutti_all_reduce(values, values, 100, TUTTI_FLOAT64, op, comm) == TUTTI_ERR_ARGUMENT);
    CHECK_OK(tutti_op_destroy(comm, op));
    CHECK(tutti_all_reduce(values, values, 100, TUTTI_FLOAT32, op, comm) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_op_destroy(comm, op) == TUTTI_ERR_ARGUMENT);
    return 0;
}

enum { OPERATORS_AT_ONCE = 4, OPERATORS_EACH = 2000 };
static tutti_comm *operators_of;

/* A thread's operators are its own: as many as it makes, each with its scalar. */
static void *operators_thread(void *argument)
{
    bool *fine = argument;
    enum tutti_op held[OPERATORS_AT_ONCE];
    for (int i = 0; i < OPERATORS_EACH && *fine; i++) {
        const double scalar = 1;
        enum tutti_op *op = &held[i % OPERATORS_AT_ONCE];
        if (i >= OPERATORS_AT_ONCE)
            *fine = tutti_op_destroy(operators_of, *op) == TUTTI_OK;
        *fine =
            *fine && tutti_premul_sum_create(operators_of, TUTTI_FLOAT64, &scalar, op) == TUTTI_OK;
    }
    for (int i = 0; i < OPERATORS_AT_ONCE && *fine; i++)
        *fine = tutti_op_destroy(operators_of, held[i]) == TUTTI_OK;
    return NULL;
}

/* No two threads are given the same one. */
static int operators_by_threads(tutti_comm *comm, void *argument)
{
    (void)argument;
    pthread_t thread;
    bool fine[2] = {true, true};
    CHECK_OK(tutti_barrier(comm));
    if (tutti_comm_rank(comm) > 0)
        return 0;
    operators_of = comm;
    CHECK(pthread_create(&thread, NULL, operators_thread, &fine[0]) == 0);
    operators_thread(&fine[1]);
    pthread_join(thread, NULL);
    CHECK(fine[0] && fine[1]);
    return 0;
}

/* Low-precision sums round once: 256 + 1 + 1 + ... is not 256 in bfloat16, whatever the order. */
static int rounds_once(tutti_comm *comm, void *argument)
{
    (void)argument;
    enum { COUNT = 777 };
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    uint16_t values[COUNT], expected = 0x4380; /* 256 */
    for (int i = 0; i < COUNT; i++)
        values[i] = rank == 0 ? 0x4380 : 0x3f80; /* 256 or 1 */
    /* bfloat16 steps by 2 above 256: ties go to even. */
    int ones = size - 1, steps = ones / 2;
    if (ones % 2 && steps % 2)
        steps++;
    expected = (uint16_t)(expected + steps);
    CHECK_OK(tutti_all_reduce(values, values, COUNT, TUTTI_BFLOAT16, TUTTI_SUM, comm));
    for (int i = 0; i < COUNT; i++)
        CHECK(values[i] == expected);
    return 0;
}

/* Messages of a rank to itself that have no partner. */
static int wrong_to_itself(tutti_comm *comm)
{
    const int rank = tutti_comm_rank(comm);
    int32_t x = 0, y = 0;
    tutti_request *request = NULL;
    CHECK(tutti_send(&x, 1, TUTTI_INT32, rank, comm) == TUTTI_ERR_USAGE);
    CHECK(strstr(tutti_last_error(), "has no receive of the same count"));
    CHECK(tutti_recv_async(&x, 1, TUTTI_INT32, rank, comm, NULL, &request) == TUTTI_ERR_USAGE);
    CHECK_OK(tutti_group_start());
    CHECK_OK(tutti_send(&x, 1, TUTTI_INT32, rank, comm));
    CHECK_OK(tutti_recv(&y, 1, TUTTI_FLOAT32, rank, comm));
    CHECK(tutti_group_end() == TUTTI_ERR_USAGE);
    return 0;
}

static int wrong_calls(tutti_comm *comm, void *argument)
{
    (void)argument;
    int32_t x[8] = {0};
    CHECK(tutti_all_reduce(NULL, x, 1, TUTTI_INT32, TUTTI_SUM, comm) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "in buffer is NULL"));
    CHECK(tutti_all_reduce(x, x, 1, (enum tutti_type)99, TUTTI_SUM, comm) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_all_reduce(x, x, 1, TUTTI_INT32, (enum tutti_op)77, comm) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_broadcast(x, x, 1, TUTTI_INT32, -1, comm) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_broadcast(x, x, 1, TUTTI_INT32, tutti_comm_size(comm), comm) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_all_reduce(x, x + 1, 4, TUTTI_INT32, TUTTI_SUM, comm) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(tutti_last_error(), "overlap"));
    CHECK(tutti_all_reduce(x, x, SIZE_MAX / 2, TUTTI_INT32, TUTTI_SUM, comm) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_all_reduce(x, x, 1, TUTTI_INT32, TUTTI_SUM, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_all_reduce_async(x, x, 1, TUTTI_INT32, TUTTI_SUM, comm, NULL, NULL) ==
          TUTTI_ERR_ARGUMENT);
    CHECK_OK(tutti_all_reduce(NULL, NULL, 0, TUTTI_INT32, TUTTI_SUM, comm)); /* empty is legal */
    if (tutti_comm_rank(comm) == 0 && wrong_to_itself(comm))
        return 1;
    CHECK_OK(tutti_barrier(comm)); /* and the communicator is as before */
    return 0;
}

static int counts_differ(tutti_comm *comm, void *argument)
{
    (void)argument;
    float x[64] = {0};
    enum tutti_result result = tutti_all_reduce(x, x, tutti_comm_rank(comm) == 1 ? 10 : 12,
                                                TUTTI_FLOAT32, TUTTI_SUM, comm);
    CHECK(result == TUTTI_ERR_MISMATCH);
    CHECK(strstr(tutti_last_error(), "count 10") && strstr(tutti_last_error(), "count 12"));
    CHECK(tutti_comm_error(comm) == TUTTI_ERR_MISMATCH);
    CHECK(tutti_barrier(comm) == TUTTI_ERR_MISMATCH);
    return 0;
}

/* All ranks have met in `comm`, and none is in a call there: what befalls it then does not reach
 * one that comes out of a barrier late. They know by a communicator of their own. */
static int all_out(tutti_comm *comm)
{
    tutti_comm *aside = NULL;
    CHECK_OK(tutti_comm_split(comm, 0, tutti_comm_rank(comm), &aside));
    CHECK_OK(tutti_barrier(comm));
    CHECK_OK(tutti_barrier(aside));
    tutti_comm_destroy(aside);
    return 0;
}

static int aborted(tutti_comm *comm, void *argument)
{
    (void)argument;
    float x = 1;
    CHECK(all_out(comm) == 0);
    if (tutti_comm_rank(comm) == 0) {
        usleep(50000);
        tutti_comm_abort(comm, "the test says so");
        CHECK(tutti_comm_error(comm) == TUTTI_ERR_ABORTED);
        return 0;
    }
    CHECK(tutti_all_reduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, comm) == TUTTI_ERR_ABORTED);
    CHECK(strstr(tutti_last_error(), "the test says so"));
    CHECK(strstr(tutti_last_error(), "rank 0"));
    return 0;
}

/* Two communicators by turns, with more on the way than a socket takes: a rank that is through in
 * one of them is in the other next, and nobody looks after the first one then. */
static int by_turns(tutti_comm *comm, void *argument)
{
    enum { ROUNDS = 12 };
    const size_t count = *(size_t *)argument;
    const int size = tutti_comm_size(comm);
    tutti_comm *both[2] = {comm, NULL};
    float *values = malloc(count * sizeof *values);
    CHECK(values);
    CHECK_OK(tutti_comm_split(comm, 0, tutti_comm_rank(comm), &both[1]));
    for (int turn = 0; turn < 2 * ROUNDS; turn++) {
        tutti_comm *one = both[turn % 2];
        for (size_t i = 0; i < count; i++)
            values[i] = (float)(turn + (int)(i % 5));
        CHECK_OK(tutti_barrier(one));
        CHECK_OK(tutti_all_reduce(values, values, count, TUTTI_FLOAT32, TUTTI_SUM, one));
        CHECK_OK(tutti_all_reduce(values, values, count, TUTTI_FLOAT32, TUTTI_MAX, one));
        for (size_t i = 0; i < count; i++)
            CHECK(values[i] == (float)(size * (turn + (int)(i % 5))));
    }
    tutti_comm_destroy(both[1]);
    free(values);
    return 0;
}

/* A rank that never calls: the others end at their deadline and name it. */
static int absent(tutti_comm *comm, void *argument)
{
    (void)argument;
    float x = 1;
    CHECK(all_out(comm) == 0);
    comm->settings.timeout_s = 1;
    if (tutti_comm_rank(comm) == 1) { /* not gone: that would be another error */
        while (tutti_comm_error(comm) == TUTTI_OK)
            usleep(5000);
        return 0;
    }
    enum tutti_result result = tutti_all_reduce(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, comm);
    CHECK(result == TUTTI_ERR_TIMEOUT);
    CHECK(strstr(tutti_last_error(), "rank 1") || tutti_comm_size(comm) > 2);
    return 0;
}

/* A group waits for all that it names, and says so. */
static int absent_in_group(tutti_comm *comm, void *argument)
{
    (void)argument;
    float x = 1, y[2];
    CHECK(all_out(comm) == 0);
    comm->settings.timeout_s = 1;
    if (tutti_comm_rank(comm) != 0) {
        while (tutti_comm_error(comm) == TUTTI_OK)
            usleep(5000);
        return 0;
    }
    CHECK_OK(tutti_group_start());
    CHECK_OK(tutti_recv(&y[0], 1, TUTTI_FLOAT32, 1, comm));
    CHECK_OK(tutti_send(&x, 1, TUTTI_FLOAT32, 1, comm));
    CHECK_OK(tutti_recv(&y[1], 1, TUTTI_FLOAT32, 2, comm));
    CHECK(tutti_group_end() == TUTTI_ERR_TIMEOUT);
    CHECK(strstr(tutti_last_error(), "stuck receiving from rank 1 ("));
    CHECK(strstr(tutti_last_error(), ", receiving from rank 2 ("));
    CHECK(!strstr(tutti_last_error(), "sending to"));
    return 0;
}

static const struct {
    const char *name;
    tti_rank_function *function;
    int least_ranks;
    size_t argument;
} tests[] = {
    {"ring of sends and receives, small", ring_exchange, 1, 10},
    {"ring of sends and receives, 4 MB", ring_exchange, 1, 1000003},
    {"many messages in a group", many_messages, 1, 0},
    {"messages of many sizes in groups", mixed_messages, 2, 0},
    {"messages of many sizes in groups, in tutti_alloc's memory", mixed_messages, 2, 1},
    {"a message received late", received_late, 2, 0},
    {"asynchronous all-reduces", asynchronous, 1, 0},
    {"collectives in a group", grouped_collectives, 1, 0},
    {"calls that a group refuses", refused_in_group, 1, 0},
    {"a communicator destroyed in a group", destroyed_in_group, 1, 0},
    {"split", splitting, 1, 0},
    {"shrunk to several", shrinking, 1, 0},
    {"pre-multiplied sum", user_operator, 1, 0},
    {"operators made by two threads", operators_by_threads, 1, 0},
    {"bfloat16 sums round once", rounds_once, 1, 0},
    {"wrong calls", wrong_calls, 1, 0},
    {"two communicators by turns, 1 MiB", by_turns, 1, 1 << 18},
    {"counts differ", counts_differ, 2, 0},
    {"abort", aborted, 2, 0},
    {"absent rank", absent, 2, 0},
    {"absent ranks in a group", absent_in_group, 3, 0},
};

int main(int argc, char **argv)
{
    struct tti_ranks how = {.ranks = 3, .options = TUTTI_OPTIONS_INIT};
    int failed = 0;
    how.options.timeout_s = 60;
    if (!tti_ranks_flags(&how, argc, argv))
        return 2;
    for (size_t t = 0; t < sizeof tests / sizeof tests[0]; t++) {
        size_t argument = tests[t].argument;
        if (how.ranks >= tests[t].least_ranks)
            failed += tti_ranks_test(&how, tests[t].name, tests[t].function, &argument);
    }
    return failed ? 1 : 0;
}
