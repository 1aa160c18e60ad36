/* Capturing operations on device memory into graphs, and replaying these with other data. By each
 * path, on the simulated device, and on the fake driver, which refuses what may not be done while
 * somebody captures.
 *     test_gpu_capture [processes | hosts]      hosts: two, of two threads each, and in levels */
#include "tests/device/gpu_wait.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 9001, FEW = 100 };

static int capture(tutti_comm *comm, void *argument)
{
    (void)argument;
    enum { TURNS = 2 };
    const int rank = tutti_comm_rank(comm), n = tutti_comm_size(comm);
    const size_t all = (size_t)n * COUNT;
    CHECK(device_begin(rank) == 0);
    struct tti_gpu *gpu = device_gpu();
    struct tti_gpu_graph *graph = NULL;
    int32_t *in = device_memory(COUNT * 4), *sum = device_memory(COUNT * 4);
    int32_t *gathered = device_memory(all * 4), *small = device_memory(FEW * 4);
    int32_t *host = calloc(all, 4);
    tutti_request *request = NULL;
    CHECK(in && sum && gathered && small && host);
    /* What the first operations set up they set up under capture, too. */
    CHECK_OK(gpu->ops->capture_begin(gpu, device_stream()));
    CHECK_OK(tutti_all_reduce_async(in, sum, COUNT, TUTTI_INT32, TUTTI_SUM, comm, device_stream(),
                                    NULL));
    CHECK_OK(tutti_all_reduce_async(in, small, FEW, TUTTI_INT32, TUTTI_SUM, comm, device_stream(),
                                    NULL));
    CHECK_OK(
        tutti_all_gather_async(sum, gathered, COUNT, TUTTI_INT32, comm, device_stream(), NULL));
    CHECK(tutti_barrier_async(comm, device_stream(), &request) == TUTTI_ERR_USAGE || !request);
    CHECK_OK(gpu->ops->capture_end(gpu, device_stream(), &graph));
    for (int turn = 0; turn < TURNS; turn++) {
        for (size_t i = 0; i < COUNT; i++)
            host[i] = (int32_t)i + rank * (turn + 1);
        CHECK(device_copy(in, host, COUNT * 4) == 0);
        CHECK_OK(gpu->ops->graph_launch(graph, device_stream()));
        if (turn == 1) /* between replays, the same operations as usual */
            CHECK_OK(tutti_all_reduce_async(in, small, FEW, TUTTI_INT32, TUTTI_SUM, comm,
                                            device_stream(), NULL));
        CHECK(device_settle() == 0);
        CHECK(device_copy(host, gathered, all * 4) == 0 && device_settle() == 0);
        for (size_t i = 0; i < all; i++)
            CHECK(host[i] == n * (int32_t)(i % COUNT) + (turn + 1) * n * (n - 1) / 2);
        CHECK(device_copy(host, small, FEW * 4) == 0 && device_settle() == 0);
        for (int i = 0; i < FEW; i++)
            CHECK(host[i] == n * i + (turn + 1) * n * (n - 1) / 2);
    }
    gpu->ops->graph_destroy(graph);
    device_free(in);
    device_free(sum);
    device_free(gathered);
    device_free(small);
    free(host);
    return device_end(comm);
}

/* First calls of their kind (a plan that goes on the device, memory to send from), captured on
 * several streams of one capture, and then in another capture on one of these. */
static int captures(tutti_comm *comm, void *argument)
{
    (void)argument;
    const int rank = tutti_comm_rank(comm), n = tutti_comm_size(comm), next = (rank + 1) % n;
    const size_t all = (size_t)n * FEW;
    CHECK(device_begin(rank) == 0);
    struct tti_gpu *gpu = device_gpu();
    const struct tti_gpu_ops *ops = gpu->ops;
    struct tti_gpu_graph *first = NULL, *second = NULL;
    struct tti_gpu_event *fork = NULL, *join = NULL;
    tutti_stream aside = NULL;
    int32_t *in = device_memory(all * 4), *turned = device_memory(all * 4);
    int32_t *got = device_memory(all * 4), *host = calloc(all, 4);
    CHECK(in && turned && got && host);
    CHECK_OK(ops->stream_create(gpu, &aside));
    CHECK_OK(ops->event_create(gpu, 0, &fork));
    CHECK_OK(ops->event_create(gpu, 0, &join));
    CHECK_OK(ops->capture_begin(gpu, device_stream()));
    CHECK_OK(tutti_all_to_all_async(in, turned, FEW, TUTTI_INT32, comm, device_stream(), NULL));
    CHECK_OK(ops->event_record(fork, device_stream()));
    CHECK_OK(ops->event_hold(fork, aside));
    CHECK_OK(tutti_group_start());
    CHECK_OK(tutti_send_async(turned, all, TUTTI_INT32, next, comm, aside, NULL));
    CHECK_OK(tutti_recv_async(got, all, TUTTI_INT32, (rank + n - 1) % n, comm, aside, NULL));
    CHECK_OK(tutti_group_end());
    CHECK_OK(ops->event_record(join, aside));
    CHECK_OK(ops->event_hold(join, device_stream()));
    CHECK_OK(ops->capture_end(gpu, device_stream(), &first));
    CHECK_OK(ops->capture_begin(gpu, aside));
    CHECK_OK(tutti_all_reduce_async(got, in, all, TUTTI_INT32, TUTTI_SUM, comm, aside, NULL));
    CHECK_OK(ops->capture_end(gpu, aside, &second));
    for (int turn = 0; turn < 2; turn++) {
        for (size_t i = 0; i < all; i++)
            host[i] = (int32_t)i + 1000 * (rank + turn);
        CHECK(device_copy(in, host, all * 4) == 0);
        CHECK_OK(ops->graph_launch(first, device_stream()));
        CHECK_OK(ops->graph_launch(second, device_stream()));
        CHECK(device_copy(host, in, all * 4) == 0 && device_settle() == 0);
        /* Element i of block p of rank r was element i of block r of rank p. */
        for (size_t i = 0; i < all; i++)
            CHECK(host[i] == n * ((int32_t)(i % FEW) + 1000 * ((int32_t)(i / FEW) + turn)) +
                                 FEW * n * (n - 1) / 2);
    }
    CHECK_OK(tutti_all_reduce_async(got, in, all, TUTTI_INT32, TUTTI_SUM, comm, aside, NULL));
    CHECK_OK(gpu_wait_or_end(gpu, aside, 60, "test"));
    ops->graph_destroy(first);
    ops->graph_destroy(second);
    ops->event_destroy(fork);
    ops->event_destroy(join);
    ops->stream_destroy(gpu, aside);
    device_free(in);
    device_free(turned);
    device_free(got);
    free(host);
    return device_end(comm);
}

/* The same two calls, one of which is about nothing, wherever that lies. */
static int twice(int32_t *in, int32_t *out, bool there, tutti_comm *comm)
{
    const tutti_stream stream = device_stream();
    CHECK_OK(tutti_all_reduce_async(in, out, FEW, TUTTI_INT32, TUTTI_SUM, comm, stream, NULL));
    if (there)
        CHECK_OK(tutti_all_reduce_async(in, out, 0, TUTTI_INT32, TUTTI_SUM, comm, stream, NULL));
    else
        CHECK_OK(tutti_all_reduce(NULL, NULL, 0, TUTTI_INT32, TUTTI_SUM, comm));
    return 0;
}

/* What rank 0 replays the others call. That ranks' calls differ in number then is not held against
 * them, however often they are looked at. */
static int elsewhere(tutti_comm *comm, void *argument)
{
    (void)argument;
    enum { TURNS = 3, CALLS = 30 };
    const int rank = tutti_comm_rank(comm), n = tutti_comm_size(comm);
    const size_t all = (size_t)n * FEW;
    CHECK(device_begin(rank) == 0);
    struct tti_gpu *gpu = device_gpu();
    struct tti_gpu_graph *graph = NULL;
    int32_t *in = device_memory(FEW * 4), *out = device_memory(all * 4), host[8 * FEW];
    CHECK(in && out && all <= sizeof host / sizeof *host);
    for (int i = 0; i < FEW; i++)
        host[i] = i + rank;
    CHECK_OK(device_copy(in, host, FEW * 4));
    CHECK(twice(in, out, rank != 1, comm) == 0);
    CHECK_OK(device_settle());
    CHECK(tti_ranks_together()); /* the stand-in refuses others to wait meanwhile */
    if (rank == 0) {
        CHECK_OK(gpu->ops->capture_begin(gpu, device_stream()));
        CHECK(twice(in, out, true, comm) == 0);
        CHECK_OK(gpu->ops->capture_end(gpu, device_stream(), &graph));
    }
    CHECK(tti_ranks_together());
    for (int turn = 0; turn < TURNS; turn++) {
        if (rank == 0)
            CHECK_OK(gpu->ops->graph_launch(graph, device_stream()));
        else
            CHECK(twice(in, out, rank != 1, comm) == 0);
    }
    for (int k = 0; k < CALLS; k++) {
        usleep(20000);
        CHECK_OK(tutti_all_reduce_async(in, out, FEW, TUTTI_INT32, (enum tutti_op)(k % 2), comm,
                                        device_stream(), NULL));
        CHECK_OK(tutti_all_gather_async(in, out, FEW, TUTTI_INT32, comm, device_stream(), NULL));
    }
    CHECK_OK(device_copy(host, out, all * 4));
    CHECK_OK(device_settle());
    for (size_t i = 0; i < all; i++)
        CHECK(host[i] == (int32_t)(i % FEW + i / FEW));
    CHECK_OK(tutti_comm_error(comm));
    CHECK(tti_ranks_together());
    if (graph)
        gpu->ops->graph_destroy(graph);
    device_free(in);
    device_free(out);
    return device_end(comm);
}

int main(int argc, char **argv)
{
    static const char *const paths[] = {"staged", "window", "coupled"};
    struct tti_ranks how = {.ranks = 3,
                            .options = TUTTI_OPTIONS_INIT,
                            .processes = argc > 1 && strcmp(argv[1], "processes") == 0};
    int bad = 0;
    how.options.timeout_s = 60;
    if (argc > 1 && strcmp(argv[1], "hosts") == 0) {
        how.ranks = 4;
        how.threads = how.hosts = 2;
        how.processes = true;
        setenv("TUTTI_DEVICE_LEVELS", "1", 1);
    }
    for (int p = 0; p < 3; p++) {
        setenv("TUTTI_DEVICE_PATH", paths[p], 1);
        bad |= tti_ranks_run(&how, capture, NULL);
        bad |= tti_ranks_run(&how, captures, NULL);
        bad |= tti_ranks_run(&how, elsewhere, NULL);
        printf("captured, %s: %s\n", paths[p], bad ? "FAILED" : "replayed right");
    }
    return bad;
}
