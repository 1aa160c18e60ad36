/* Work of a communicator that its stream has not come to when the communicator ends: work that the
 * stream comes to later finds nothing that is gone (without a GPU nothing else tells;
 * AddressSanitizer does). A communicator that has failed does not wait for its deadline again, and
 * what is left of it ends though others never come. Or when the process forks: the child has no
 * part in it, and may not use the device, so it is told so at once instead of waiting.
 *     test_gpu_unfinished
 */
#include "base/clock.h"
#include "device/reclaim.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { COUNT = 1000, RANKS = 2, CHILD_SECONDS = 60 };

static struct {
    struct tti_gpu *gpu;
    tutti_stream stream;
    uint32_t *gate; /* the stream is held up before the communicator's work */
    void *memory;
} seats[RANKS];

static int seat_take(int rank)
{
    struct tti_gpu *gpu = device_gpu();
    void *gate = NULL;
    CHECK_OK(gpu->ops->alloc(gpu, TTI_MEMORY_PINNED, sizeof(uint32_t), &gate));
    seats[rank].gpu = gpu;
    seats[rank].stream = device_stream();
    seats[rank].gate = gate;
    seats[rank].memory = device_memory(COUNT);
    CHECK(seats[rank].memory);
    *seats[rank].gate = 0;
    return 0;
}

static int hold_up(tutti_comm *comm, tutti_request **request)
{
    const int rank = tutti_comm_rank(comm);
    struct tti_gpu *gpu = seats[rank].gpu;
    CHECK_OK(gpu->ops->stream_wait(gpu, seats[rank].gate, 1, device_stream()));
    CHECK_OK(tutti_all_reduce_async(seats[rank].memory, seats[rank].memory, COUNT, TUTTI_UINT8,
                                    TUTTI_MAX, comm, device_stream(), request));
    return 0;
}

static int begin_held_up(tutti_comm *comm, tutti_request **request)
{
    CHECK(device_begin(tutti_comm_rank(comm)) == 0);
    CHECK(seat_take(tutti_comm_rank(comm)) == 0);
    return hold_up(comm, request);
}

static int ends(tutti_comm *comm, void *argument)
{
    (void)argument;
    return begin_held_up(comm, NULL);
}

/* It has failed: neither who waits nor who destroys it has the operation's deadline again. */
static int fails(tutti_comm *comm, void *argument)
{
    (void)argument;
    tutti_request *request = NULL;
    CHECK(begin_held_up(comm, &request) == 0);
    if (tutti_comm_rank(comm) == 0)
        tutti_comm_abort(comm, "test");
    CHECK(tutti_wait(request) == TUTTI_ERR_ABORTED);
    CHECK(strstr(tutti_last_error(), "may yet write to its buffers"));
    return 0;
}

/* The other one does not come. When the stream comes to it there are two operations, and flags for
 * one are not enough. */
static int fails_alone(tutti_comm *comm, void *argument)
{
    tutti_request *request = NULL;
    (void)argument;
    CHECK(device_begin(tutti_comm_rank(comm)) == 0);
    CHECK(seat_take(tutti_comm_rank(comm)) == 0);
    CHECK_OK(tutti_barrier_async(comm, device_stream(), NULL));
    CHECK_OK(device_settle());
    if (tutti_comm_rank(comm) != 0)
        return 0;
    CHECK(hold_up(comm, NULL) == 0);
    CHECK_OK(tutti_all_reduce_async(seats[0].memory, seats[0].memory, COUNT, TUTTI_UINT8, TUTTI_MAX,
                                    comm, device_stream(), &request));
    tutti_comm_abort(comm, "test");
    CHECK(tutti_wait(request) == TUTTI_ERR_ABORTED);
    CHECK(strstr(tutti_last_error(), "may yet write to its buffers"));
    return 0;
}

static int refused(tutti_request *request)
{
    alarm(CHILD_SECONDS);
    CHECK(tutti_test(request) == TUTTI_ERR_USAGE);
    CHECK(strstr(tutti_last_error(), "forked"));
    CHECK(tutti_wait(request) == TUTTI_ERR_USAGE);
    return 0;
}

static int forks(tutti_comm *comm, void *argument)
{
    (void)argument;
    tutti_request *request = NULL;
    int status = 0;
    CHECK(begin_held_up(comm, &request) == 0);
    const pid_t pid = fork();
    if (pid == 0)
        _exit(refused(request));
    const bool ended = pid > 0 && waitpid(pid, &status, 0) == pid;
    const enum tutti_result before = tutti_test(request);
    __atomic_store_n(seats[tutti_comm_rank(comm)].gate, 1, __ATOMIC_RELEASE);
    CHECK_OK(tutti_wait(request));
    CHECK(ended && status == 0 && before == TUTTI_IN_PROGRESS);
    return 0;
}

static int let_go(void)
{
    int bad = 0;
    for (int r = 0; r < RANKS; r++) {
        struct tti_gpu *gpu = seats[r].gpu;
        __atomic_store_n(seats[r].gate, 1, __ATOMIC_RELEASE);
        bad |=
            tti_gpu_stream_wait(gpu, seats[r].stream, tti_deadline_in(30), "going on") != TUTTI_OK;
        gpu->ops->free(gpu, seats[r].memory);
        gpu->ops->free(gpu, seats[r].gate);
        gpu->ops->stream_destroy(gpu, seats[r].stream);
        gpu->ops->close(gpu);
    }
    return bad;
}

static int run(const char *name, const char *good, double timeout_s, tti_rank_function *function)
{
    struct tti_ranks how = {.ranks = RANKS, .options = TUTTI_OPTIONS_INIT};
    how.options.timeout_s = timeout_s;
    const int bad = tti_ranks_run(&how, function, NULL) || let_go();
    printf("%s: %s\n", name, bad ? "FAILED" : good);
    return bad;
}

/* All that was left is over, and what it used is the device's again. */
static int all_reclaimed(void)
{
    enum { SECONDS = 30 };
    const struct tti_gpu_ops *ops = NULL;
    const time_t end = time(NULL) + SECONDS;
    CHECK_OK(tti_gpu_find("sim", &ops));
    for (tti_gpu_reclaim(ops); tti_gpu_retired(ops) > 0 && time(NULL) < end; tti_gpu_reclaim(ops))
        usleep(1000);
    CHECK(tti_gpu_retired(ops) == 0);
    return 0;
}

/* Whoever waits and then destroys has 10 s together, and not for each. */
static int run_failed(const char *path, tti_rank_function *function)
{
    enum { LONG = 300, TOGETHER = 18 };
    const time_t from = time(NULL);
    setenv("TUTTI_DEVICE_PATH", path, 1);
    int bad = run("work that a stream has not come to when its communicator fails", "ends", LONG,
                  function);
    if (time(NULL) - from > TOGETHER) {
        printf("%s: waiting and destroying took %d s\n", path, (int)(time(NULL) - from));
        bad = 1;
    }
    return bad | all_reclaimed();
}

int main(void)
{
    setenv("TUTTI_DEVICE_PATH", "staged", 1);
    return run("work that a stream comes to when its process has forked", "is the parent's", 120,
               forks) |
           run("work that a stream comes to when its communicator has ended", "goes on", 1, ends) |
           run_failed("staged", fails) | run_failed("coupled", fails) |
           run_failed("window", fails_alone);
}
