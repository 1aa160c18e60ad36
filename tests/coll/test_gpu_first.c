/* What a rank's first calls on device memory decide: its device, which is the one of its stream
 * where no buffer is of a device; and that a message of device memory is met by no message of host
 * memory, before the ranks have mapped each other's memory and afterwards alike.
 *     test_gpu_first
 */
#include "coll/comm.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 1000 };

/* Each rank has a device of its own. A barrier, and page-locked memory that rank 0 made, name
 * none. */
static void *shared_words;

static int first_device(tutti_comm *comm, void *argument)
{
    const bool barrier = *(const bool *)argument;
    const int rank = tutti_comm_rank(comm);
    CHECK(device_begin(rank) == 0);
    struct tti_gpu *gpu = device_gpu();
    const size_t bytes = COUNT * sizeof(int32_t);
    if (rank == 0)
        CHECK_OK(gpu->ops->alloc(gpu, TTI_MEMORY_PINNED, 4 * bytes, &shared_words));
    CHECK_OK(tutti_barrier(comm));
    int32_t *words = (int32_t *)shared_words + (size_t)rank * 2 * COUNT;
    for (int i = 0; i < COUNT; i++)
        words[i] = rank + i;
    if (barrier)
        CHECK_OK(tutti_barrier_async(comm, device_stream(), NULL));
    CHECK_OK(tutti_all_reduce_async(words, words + COUNT, COUNT, TUTTI_INT32, TUTTI_SUM, comm,
                                    device_stream(), NULL));
    int32_t *in = device_memory(bytes), *out = device_memory(bytes), *host = calloc(1, bytes);
    CHECK(in && out && host);
    CHECK_OK(device_copy(in, words, bytes));
    CHECK_OK(tutti_all_reduce_async(in, out, COUNT, TUTTI_INT32, TUTTI_SUM, comm, device_stream(),
                                    NULL));
    CHECK_OK(device_copy(host, out, bytes));
    CHECK_OK(device_settle());
    for (int i = 0; i < COUNT; i++)
        CHECK(host[i] == 2 * i + 1 && words[COUNT + i] == 2 * i + 1);
    CHECK_OK(tutti_barrier(comm));
    if (rank == 0)
        gpu->ops->free(gpu, shared_words);
    device_free(in);
    device_free(out);
    free(host);
    return device_end(comm);
}

/* ---- kinds of messages ---- */

struct kinds {
    bool mapped, device_sends;
};

static int leave(void *memory, void *host)
{
    device_settle();
    device_free(memory);
    free(host);
    device_gpu()->ops->stream_destroy(device_gpu(), device_stream());
    device_gpu()->ops->close(device_gpu());
    return 0;
}

/* Rank 0 sends, rank 1 receives, one of them in device memory: an error on both sides, which says
 * so. Once memory is mapped it is an error at the deadline; a receive on host memory then says what
 * has come instead. */
static int kinds_differ(tutti_comm *comm, void *argument)
{
    const struct kinds *k = argument;
    const int rank = tutti_comm_rank(comm);
    CHECK(device_begin(rank) == 0);
    void *memory = device_memory(COUNT * 4), *host = calloc(COUNT, 4);
    CHECK(memory && host);
    if (k->mapped) {
        CHECK_OK(tutti_all_reduce_async(memory, memory, COUNT, TUTTI_INT32, TUTTI_MAX, comm,
                                        device_stream(), NULL));
        CHECK_OK(device_settle());
    }
    const bool device = k->device_sends == (rank == 0);
    const enum tutti_result due = k->mapped ? TUTTI_ERR_TIMEOUT : TUTTI_ERR_MISMATCH;
    enum tutti_result result = TUTTI_OK;
    tutti_request *request = NULL;
    if (rank == 0 && device)
        CHECK_OK(tutti_send_async(memory, COUNT, TUTTI_INT32, 1, comm, device_stream(), NULL));
    else if (rank == 0)
        (void)tutti_send(host, COUNT, TUTTI_INT32, 1, comm);
    else if (!device)
        result = tutti_recv(host, COUNT, TUTTI_INT32, 0, comm);
    else
        CHECK_OK(tutti_recv_async(memory, COUNT, TUTTI_INT32, 0, comm, device_stream(), &request));
    if (request)
        result = tutti_wait(request);
    while (tutti_comm_error(comm) == TUTTI_OK)
        usleep(1000);
    CHECK(tutti_comm_error(comm) == due);
    if (!k->mapped || (rank == 1 && k->device_sends))
        CHECK(strstr(tutti_last_error(), "in device memory"));
    CHECK(rank == 0 || result == due);
    return leave(memory, host);
}

/* Both in device memory; each rank's first message comes before anything collective. */
static int kinds_agree(tutti_comm *comm, void *argument)
{
    (void)argument;
    const int rank = tutti_comm_rank(comm);
    CHECK(device_begin(rank) == 0);
    int32_t *memory = device_memory(COUNT * 4), *host = calloc(COUNT, 4);
    CHECK(memory && host);
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < COUNT; i++)
            host[i] = rank == 0 ? round * 7 + i : -1;
        CHECK_OK(device_copy(memory, host, COUNT * 4));
        CHECK_OK(
            rank == 0
                ? tutti_send_async(memory, COUNT, TUTTI_INT32, 1, comm, device_stream(), NULL)
                : tutti_recv_async(memory, COUNT, TUTTI_INT32, 0, comm, device_stream(), NULL));
        CHECK_OK(device_copy(host, memory, COUNT * 4));
        CHECK_OK(device_settle());
        for (int i = 0; i < COUNT; i++)
            CHECK(host[i] == round * 7 + i);
        /* Messages of the host between them, on the same links. */
        int32_t word = rank == 0 ? round : -1;
        CHECK_OK(rank == 0 ? tutti_send(&word, 1, TUTTI_INT32, 1, comm)
                           : tutti_recv(&word, 1, TUTTI_INT32, 0, comm));
        CHECK(word == round);
        CHECK_OK(tutti_barrier_async(comm, device_stream(), NULL)); /* maps */
    }
    device_free(memory);
    free(host);
    return device_end(comm);
}

static int run(const char *name, struct tti_ranks how, tti_rank_function *function, void *argument)
{
    const int bad = tti_ranks_run(&how, function, argument);
    printf("%s: %s\n", name, bad ? "FAILED" : "ok");
    fflush(stdout);
    return bad;
}

int main(void)
{
    struct tti_ranks how = {.ranks = 2, .options = TUTTI_OPTIONS_INIT};
    bool barrier = true, none = false;
    struct kinds staged[] = {{false, true}, {false, false}},
                 mapped[] = {{true, true}, {true, false}};
    int bad = 0;
    how.options.timeout_s = 60;
    bad |= run("a barrier first", how, first_device, &barrier);
    bad |= run("page-locked memory first", how, first_device, &none);
    bad |= run("messages of device memory", how, kinds_agree, NULL);
    bad |= run("a device send, a host receive", how, kinds_differ, &staged[0]);
    bad |= run("a host send, a device receive", how, kinds_differ, &staged[1]);
    how.options.timeout_s = 6;
    bad |= run("a device send, a host receive, mapped", how, kinds_differ, &mapped[0]);
    bad |= run("a host send, a device receive, mapped", how, kinds_differ, &mapped[1]);
    return bad;
}
