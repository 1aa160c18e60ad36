/* Communicators whose kernels are on a device at the same time: all of them have room (of the first
 * few, gpu_blocks.c), or some would wait for others that cannot begin. And a kernel that gave up is
 * told of by the next call. test_gpu_pairs CASE (pairs, fours, devices, gives_up) */
#include "base/clock.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 3 };

/* Elements for as many blocks as there are. */
static int count(void)
{
    return device_gpu()->ops == tti_gpu_sim() ? 64 << 10 : 4 << 20;
}

struct how {
    int group;   /* ranks of a communicator; ranks of several share a device */
    int several; /* communicators of all ranks, a device each, in place of groups */
};

struct buffers {
    float *in, *out;
};

static int buffers_make(struct buffers *b)
{
    float *ones = malloc((size_t)count() * sizeof *ones);
    b->in = device_memory((size_t)count() * sizeof *ones);
    b->out = device_memory((size_t)count() * sizeof *ones);
    CHECK(ones && b->in && b->out);
    for (int i = 0; i < count(); i++)
        ones[i] = 1;
    CHECK_OK(device_copy(b->in, ones, (size_t)count() * sizeof *ones));
    CHECK_OK(device_settle());
    free(ones);
    return 0;
}

static int buffers_end(struct buffers *b, int expected)
{
    float *sums = malloc((size_t)count() * sizeof *sums);
    CHECK(sums);
    CHECK_OK(device_copy(sums, b->out, (size_t)count() * sizeof *sums));
    CHECK_OK(device_settle());
    for (int i = 0; i < count(); i++)
        CHECK(sums[i] == (float)expected);
    free(sums);
    device_free(b->in);
    device_free(b->out);
    return 0;
}

static enum tutti_result sum(const struct buffers *b, size_t elements, tutti_comm *comm,
                             tutti_stream stream)
{
    return tutti_all_reduce_async(b->in, b->out, elements, TUTTI_FLOAT32, TUTTI_SUM, comm, stream,
                                  NULL);
}

/* All ranks but the last of each group are at it before the last ones come. */
static int groups(tutti_comm *comm, void *argument)
{
    const struct how *how = argument;
    const int rank = tutti_comm_rank(comm);
    const bool last = rank % how->group == how->group - 1;
    tutti_comm *own = NULL;
    struct buffers b;
    CHECK(device_begin(0) == 0);
    CHECK(buffers_make(&b) == 0);
    CHECK_OK(tutti_comm_split(comm, rank / how->group, rank, &own));
    CHECK_OK(sum(&b, 1, own, device_stream())); /* sets it up */
    CHECK_OK(device_settle());
    CHECK_OK(tutti_barrier(comm));
    if (last) {
        CHECK_OK(tutti_barrier(comm));
        usleep(50000); /* they have begun */
    }
    CHECK_OK(sum(&b, (size_t)count(), own, device_stream()));
    if (!last)
        CHECK_OK(tutti_barrier(comm));
    CHECK_OK(device_settle());
    CHECK_OK(tutti_barrier(own));
    tutti_comm_destroy(own);
    CHECK(buffers_end(&b, how->group) == 0);
    return device_end(comm);
}

/* Each rank calls on the communicators in another order: the first kernels of all ranks, each of
 * another one, are on their devices before the second ones come. */
static int devices(tutti_comm *comm, void *argument)
{
    const struct how *how = argument;
    const int rank = tutti_comm_rank(comm);
    tutti_comm *own[MOST];
    tutti_stream streams[MOST];
    struct buffers b[MOST];
    CHECK(device_begin(rank) == 0);
    struct tti_gpu *gpu = device_gpu();
    for (int k = 0; k < how->several; k++) {
        CHECK(buffers_make(&b[k]) == 0);
        CHECK_OK(gpu->ops->stream_create(gpu, &streams[k]));
        CHECK_OK(tutti_comm_split(comm, 0, rank, &own[k]));
        CHECK_OK(sum(&b[k], 1, own[k], streams[k]));
    }
    for (int k = 0; k < how->several; k++)
        CHECK_OK(tti_gpu_stream_wait(gpu, streams[k], tti_deadline_in(30), "setting up"));
    for (int k = 0; k < how->several; k++) {
        const int next = (rank + k) % how->several;
        CHECK_OK(tutti_barrier(comm));
        CHECK_OK(sum(&b[next], (size_t)count(), own[next], streams[next]));
        usleep(50000); /* it has begun */
    }
    for (int k = 0; k < how->several; k++) {
        CHECK_OK(tti_gpu_stream_wait(gpu, streams[k], tti_deadline_in(60), "a sum"));
        gpu->ops->stream_destroy(gpu, streams[k]);
        CHECK_OK(tutti_barrier(own[k]));
        tutti_comm_destroy(own[k]);
        CHECK(buffers_end(&b[k], tutti_comm_size(comm)) == 0);
    }
    return device_end(comm);
}

/* The last rank does not call, and is in another call when the others' kernels give up, who are
 * told so by their very next one. */
static int gives_up(tutti_comm *comm, void *argument)
{
    const int rank = tutti_comm_rank(comm);
    struct buffers b;
    (void)argument;
    CHECK(device_begin(0) == 0);
    CHECK(buffers_make(&b) == 0);
    CHECK_OK(sum(&b, 1, comm, device_stream()));
    CHECK_OK(device_settle());
    if (rank < tutti_comm_size(comm) - 1) {
        CHECK_OK(sum(&b, (size_t)count(), comm, device_stream()));
        while (device_gpu()->ops->stream_query(device_gpu(), device_stream()) == TUTTI_IN_PROGRESS)
            ;
        CHECK(tutti_barrier(comm) != TUTTI_OK);
        CHECK(strstr(tutti_last_error(), "rank 1"));
    } else {
        usleep(600000);
        (void)tutti_barrier(comm);
    }
    device_free(b.in);
    device_free(b.out);
    (void)device_end(comm);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int ranks;
        tti_rank_function *function;
        struct how how;
    } cases[] = {{"pairs", 8, groups, {.group = 2}},
                 {"fours", 12, groups, {.group = 4}},
                 {"devices", 3, devices, {.several = MOST}},
                 {"gives_up", 2, gives_up, {0}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc != 2 || strcmp(argv[1], cases[i].name) != 0)
            continue;
        struct how how = cases[i].how;
        struct tti_ranks ranks = {.ranks = cases[i].ranks, .options = TUTTI_OPTIONS_INIT};
        ranks.options.timeout_s = cases[i].function == gives_up ? 1 : 20;
        const int failed = tti_ranks_run(&ranks, cases[i].function, &how);
        printf("%s: %s\n", cases[i].name, failed ? "FAILED" : "as expected");
        return failed ? 1 : 0;
    }
    fputs("usage: test_gpu_pairs pairs|fours|devices|gives_up\n", stderr);
    return 2;
}
