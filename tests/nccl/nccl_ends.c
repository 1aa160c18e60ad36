/* Communicators that another thread, or the clean-up after a failure, ends at an awkward moment:
 * while the group that makes them waits for others, or before that group has ended.
 *
 *     nccl_ends CASE        (no CASE: lists them) */
#include <nccl.h>

#include "tests/nccl/nccl_check.h"
#include "tests/nccl/nccl_threads.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- in a group that still makes others ---- */

/* One thread makes `first`, which is soon over, and `second`, whose other rank comes when told. */
static ncclComm_t first, second;
static ncclUniqueId second_id;
static bool first_fails;
static _Atomic int begun;

static void *group_of_two(void *result)
{
    OK(ncclGroupStart());
    OK(ncclCommInitRank(&first, 2, id, 1));
    OK(ncclCommInitRank(&second, 2, second_id, 1));
    begun = 1;
    *(ncclResult_t *)result = ncclGroupEnd();
    CHECK(*(ncclResult_t *)result == ncclSuccess || strlen(ncclGetLastError(NULL)) > 3);
    return NULL;
}

static void *destroy(void *comm)
{
    OK(ncclCommDestroy(comm));
    return NULL;
}

/* Until somebody has begun to end it. */
static void await_ending(ncclComm_t comm)
{
    int word = 0;
    do {
        nap();
        CHECK(ncclAllReduce(&word, &word, 1, ncclInt32, ncclSum, comm, NULL) != ncclSuccess);
    } while (!strstr(ncclGetLastError(NULL), "destroyed"));
}

/* Where the making of a communicator tells when it is over, it is waited for; else a while. */
static void await_made(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    for (int i = 0; i < 200 && state == ncclInProgress; i++) {
        nap();
        OK(ncclCommGetAsyncError(comm, &state));
    }
}

/* `first` is ended when its part of the group is over; then the rest succeeds. */
static void end_in_group(bool destroys)
{
    pthread_t maker, destroyer;
    ncclResult_t result = ncclSuccess;
    ncclComm_t peer = NULL, second_peer = NULL;
    int word = 0;
    begun = 0;
    OK(ncclGetUniqueId(&id));
    OK(ncclGetUniqueId(&second_id));
    CHECK(pthread_create(&maker, NULL, group_of_two, &result) == 0);
    while (!begun)
        nap();
    const ncclComm_t handle = first;
    const ncclResult_t met = ncclCommInitRank(&peer, first_fails ? 3 : 2, id, 0);
    CHECK((met == ncclSuccess) == !first_fails);
    await_made(handle);
    if (destroys) {
        CHECK(pthread_create(&destroyer, NULL, destroy, handle) == 0);
        await_ending(handle);
    } else {
        OK(ncclCommAbort(handle));
    }
    if (peer && !destroys) { /* told at once, not at the group's end */
        CHECK(ncclAllReduce(&word, &word, 1, ncclInt32, ncclSum, peer, NULL) == ncclRemoteError);
        CHECK(strstr(ncclGetLastError(peer), "abort"));
    }
    OK(ncclCommInitRank(&second_peer, 2, second_id, 0));
    pthread_join(maker, NULL);
    if (destroys)
        pthread_join(destroyer, NULL);
    CHECK(result != ncclSuccess && result != ncclInProgress);
    CHECK(!first && second);
    OK(ncclCommAbort(second_peer));
    OK(ncclCommAbort(second));
    OK(ncclCommAbort(peer));
}

static void in_groups(void)
{
    for (int round = 0; round < 4; round++) {
        first_fails = round % 2;
        end_in_group(round / 2);
    }
}

/* ---- in the own group ---- */

/* The clean-up after a call that failed, before the group's end or without one that runs it. */
static void in_own_group(void)
{
    ncclComm_t one = NULL, two = NULL;
    OK(ncclGetUniqueId(&id));
    OK(ncclGroupStart());
    OK(ncclCommInitRank(&one, 2, id, 0));
    CHECK(ncclCommInitRank(&two, 2, id, 5) == ncclInvalidArgument && !two);
    OK(ncclCommDestroy(one));
    CHECK(ncclGroupEnd() == ncclInvalidArgument && !one);
    CHECK(strstr(ncclGetLastError(NULL), "rank 5"));
    OK(ncclGetUniqueId(&id));
    OK(ncclGroupStart());
    OK(ncclCommInitRank(&one, 2, id, 0));
    OK(ncclCommDestroy(one));
    CHECK(ncclGroupEnd() == ncclRemoteError && !one);
}

/* ---- with something under way ---- */

static ncclResult_t make(struct rank *r, int blocking)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking;
    const ncclResult_t result = ncclCommInitRankConfig(&r->comm, ranks, id, r->rank, &config);
    return result == ncclSuccess || result == ncclInProgress ? settle(r->comm) : result;
}

/* Rank 2 takes no part in the split; rank 0 has enough, and both who wait hear of it. */
static void revoke_split(struct rank *r)
{
    ncclComm_t part = NULL;
    ncclResult_t state = ncclSuccess;
    OK(make(r, 0));
    if (r->rank < 2) {
        CHECK(ncclCommSplit(r->comm, 0, 0, &part, NULL) == ncclInProgress);
        OK(ncclCommGetAsyncError(r->comm, &state));
        CHECK(state == ncclInProgress);
    }
    pthread_barrier_wait(&all_there);
    if (r->rank == 0)
        OK(ncclCommRevoke(r->comm, NCCL_REVOKE_DEFAULT));
    if (r->rank < 2) {
        CHECK(settle(part) == ncclRemoteError);
        CHECK(strstr(ncclGetLastError(part), "ncclCommRevoke"));
        OK(ncclCommAbort(part));
    }
    CHECK(r->rank != 0 || settle(r->comm) == ncclSuccess);
    pthread_barrier_wait(&all_there);
    OK(ncclCommAbort(r->comm));
}

/* Both ranks wait for a third one, with which they would be more. */
static void end_grow(struct rank *r, bool aborts)
{
    ncclUniqueId unique;
    ncclComm_t grown = NULL;
    ncclResult_t state = ncclSuccess;
    OK(make(r, 0));
    if (r->rank == 0)
        OK(ncclCommGetUniqueId(r->comm, &unique));
    CHECK(ncclCommGrow(r->comm, ranks + 1, r->rank == 0 ? &unique : NULL, -1, &grown, NULL) ==
          ncclInProgress);
    for (int i = 0; i < 100; i++)
        nap();
    OK(ncclCommGetAsyncError(grown, &state));
    CHECK(state == ncclInProgress);
    pthread_barrier_wait(&all_there);
    if (aborts)
        OK(ncclCommAbort(r->comm));
    else
        OK(ncclCommRevoke(r->comm, NCCL_REVOKE_DEFAULT));
    CHECK(settle(grown) != ncclSuccess);
    OK(ncclCommAbort(grown));
    CHECK(aborts || ncclCommDestroy(r->comm) == ncclSuccess);
}

static void revoke_grow(struct rank *r)
{
    end_grow(r, false);
}

static void abort_grow(struct rank *r)
{
    end_grow(r, true);
}

/* Nobody else comes. */
static void revoke_while_made(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    config.blocking = 0;
    OK(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress);
    OK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    CHECK(settle(comm) == ncclRemoteError);
    CHECK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT) == ncclInvalidUsage); /* nothing was made */
    OK(ncclCommDestroy(comm));
}

static void under_way(void)
{
    as_threads(3, revoke_split);
    as_threads(2, revoke_grow);
    as_threads(2, abort_grow);
    revoke_while_made();
}

/* ---- a parent that is ended while it is entered for a child ---- */

/* libnccl.so.2 comes here when it makes a communicator, the parent's handle checked and the job not
 * made yet. */
static _Thread_local ncclComm_t ends_here;
static ncclComm_t _Atomic to_be_ended;

static int (*mutex_real)(pthread_mutex_t *, const pthread_mutexattr_t *);
static pthread_once_t mutex_once = PTHREAD_ONCE_INIT;

static void mutex_find(void)
{
    void *found = dlsym(RTLD_NEXT, "pthread_mutex_init");
    CHECK(found);
    memcpy((void *)&mutex_real, &found, sizeof found);
}

__attribute__((visibility("default"))) int pthread_mutex_init(pthread_mutex_t *mutex,
                                                              const pthread_mutexattr_t *attributes)
{
    const ncclComm_t comm = ends_here;
    pthread_once(&mutex_once, mutex_find);
    ends_here = NULL;
    if (comm) {
        to_be_ended = comm;
        await_ending(comm);
    }
    return mutex_real(mutex, attributes);
}

static void *abort_when_told(void *unused)
{
    (void)unused;
    while (!to_be_ended)
        nap();
    OK(ncclCommAbort(to_be_ended));
    return NULL;
}

/* Rank 1 does not come to the shrink, and rank 0 hears that nobody wants it any more. */
static void shrink_aborted(struct rank *r)
{
    pthread_t thread;
    ncclComm_t rest = NULL;
    int without = 2;
    OK(make(r, 1));
    pthread_barrier_wait(&all_there);
    if (r->rank == 0) {
        to_be_ended = NULL;
        CHECK(pthread_create(&thread, NULL, abort_when_told, NULL) == 0);
        ends_here = r->comm;
        CHECK(ncclCommShrink(r->comm, &without, 1, &rest, NULL, NCCL_SHRINK_DEFAULT) !=
              ncclSuccess);
        CHECK(!rest);
        pthread_join(thread, NULL);
    }
    pthread_barrier_wait(&all_there);
    if (r->rank > 0)
        OK(ncclCommAbort(r->comm));
}

static void entered(void)
{
    as_threads(3, shrink_aborted);
}

/* ---- a child of which only the parent is asked ---- */

/* As the parent is ready, so is the child. */
static void asks_parent(struct rank *r)
{
    enum { ROUNDS = 400 };
    OK(make(r, 0));
    for (int i = 0; i < ROUNDS; i++) {
        ncclComm_t part = NULL;
        ncclResult_t state = ncclInProgress;
        int word = i;
        CHECK(ncclCommSplit(r->comm, 0, 0, &part, NULL) == ncclInProgress);
        while (state == ncclInProgress)
            OK(ncclCommGetAsyncError(r->comm, &state));
        OK(state);
        state = ncclAllReduce(&word, &word, 1, ncclInt32, ncclSum, part, NULL);
        if (state != ncclInProgress)
            OK(state);
        OK(settle(part));
        CHECK(word == i);
        OK(ncclCommDestroy(part));
    }
    OK(ncclCommDestroy(r->comm));
}

static void parent_alone(void)
{
    as_threads(1, asks_parent);
}

/* ---- others that end while this one is idle ---- */

static bool goes_on;

/* Rank 1 aborts when all is over. Rank 0 has nothing under way, so that nothing of its has failed;
 * only what it calls then does, and says so from there on. */
static void hears_when_it_calls(struct rank *r)
{
    enum { NAPS = 300 };
    ncclResult_t state = ncclSuccess;
    int *word = NULL;
    OK(make(r, 1));
    OK(ncclMemAlloc((void **)&word, sizeof *word));
    *word = 1;
    check_sum(r->comm, ranks, (1 << ranks) - 1);
    pthread_barrier_wait(&all_there);
    if (r->rank == 0) {
        for (int i = 0; i < NAPS; i++) {
            nap();
            OK(ncclCommGetAsyncError(r->comm, &state));
            OK(state);
        }
    }
    if (r->rank == 0 && goes_on) {
        CHECK(ncclAllReduce(word, word, 1, ncclInt32, ncclSum, r->comm, NULL) == ncclRemoteError);
        OK(ncclCommGetAsyncError(r->comm, &state));
        CHECK(state == ncclRemoteError && strstr(ncclGetLastError(r->comm), "abort"));
        OK(ncclCommAbort(r->comm));
    } else if (r->rank == 0) {
        OK(ncclCommFinalize(r->comm));
        OK(ncclCommDestroy(r->comm));
    } else {
        OK(ncclCommAbort(r->comm));
    }
    OK(ncclMemFree(word));
}

static void idle(void)
{
    for (int i = 0; i < 2; i++) {
        goes_on = i == 1;
        as_threads(2, hears_when_it_calls);
    }
}

/* Processes that are through with their work end without destroying anything, as many programs do;
 * a driver that is shut down by then is no failed device. Rank 0 is idle and hears of no failure.
 */
static void leaver(int rank)
{
    enum { NAPS = 700 };
    ncclResult_t state = ncclSuccess;
    ncclComm_t comm = NULL;
    int *word = NULL;
    OK(ncclCommInitRank(&comm, 2, id, rank));
    OK(ncclMemAlloc((void **)&word, sizeof *word));
    OK(ncclAllReduce(word, word, 1, ncclInt32, ncclSum, comm, NULL));
    for (int i = 0; i < NAPS; i++) {
        if (rank == 1 && i == NAPS / 4)
            exit(0);
        nap();
        OK(ncclCommGetAsyncError(comm, &state));
        OK(state);
    }
    OK(ncclCommAbort(comm));
}

static void leaves(void)
{
    pid_t pids[2];
    int status = 0, failed = 0;
    OK(ncclGetUniqueId(&id));
    for (int r = 0; r < 2; r++)
        if ((pids[r] = fork()) == 0) {
            leaver(r);
            exit(0);
        }
    for (int r = 0; r < 2; r++)
        failed += waitpid(pids[r], &status, 0) != pids[r] || status != 0;
    CHECK(failed == 0);
}

/* ---- one after the other, with work under way ---- */

enum { HURRY_S = 40 }; /* before the deadlines */

static bool grouped;

/* Rank 1 does not call what rank 0's second communicator waits for on the device, and hears of the
 * aborts when both have returned. Freeing the first one's memory would wait for the second's work.
 */
static void aborter(int rank, const ncclUniqueId *ids, int pipe_end)
{
    ncclComm_t comms[2] = {NULL, NULL};
    ncclResult_t state = ncclSuccess;
    int *word = NULL;
    char done = 0;
    for (int k = 0; k < 2; k++)
        OK(ncclCommInitRank(&comms[k], 2, ids[k], rank));
    OK(ncclMemAlloc((void **)&word, sizeof *word));
    for (int k = 0; k < 2; k++)
        OK(ncclAllReduce(word, word, 1, ncclInt32, ncclSum, comms[k], NULL));
    if (rank == 1) {
        CHECK(read(pipe_end, &done, 1) == 1);
        for (int k = 0; k < 2; k++)
            OK(ncclCommAbort(comms[k]));
        return;
    }
    alarm(HURRY_S);
    OK(ncclAllReduce(word, word, 1, ncclInt32, ncclSum, comms[1], NULL));
    OK(ncclCommGetAsyncError(comms[1], &state));
    OK(state);
    if (grouped)
        OK(ncclGroupStart());
    for (int k = 0; k < 2; k++)
        OK(ncclCommAbort(comms[k]));
    if (grouped)
        OK(ncclGroupEnd());
    alarm(0);
    CHECK(write(pipe_end, &done, 1) == 1);
}

static void aborts_both(void)
{
    ncclUniqueId ids[2];
    int ends[2], status = 0, failed = 0;
    pid_t pids[2];
    CHECK(pipe(ends) == 0);
    for (int k = 0; k < 2; k++)
        OK(ncclGetUniqueId(&ids[k]));
    for (int r = 0; r < 2; r++)
        if ((pids[r] = fork()) == 0) {
            close(ends[r != 0]);
            aborter(r, ids, ends[r == 0]);
            exit(0);
        }
    close(ends[0]);
    close(ends[1]);
    for (int r = 0; r < 2; r++)
        failed += waitpid(pids[r], &status, 0) != pids[r] || status != 0;
    CHECK(failed == 0);
}

static void aborts(void)
{
    aborts_both();
}

static void aborts_in_group(void)
{
    grouped = true;
    aborts_both();
}

/* ---- nothing to end ---- */

/* Whoever got no communicator by a split ends it like all others. */
static void no_colour(struct rank *r)
{
    ncclComm_t part = NULL;
    OK(make(r, 1));
    OK(ncclCommSplit(r->comm, r->rank == 0 ? NCCL_SPLIT_NOCOLOR : 0, 0, &part, NULL));
    CHECK(!part == (r->rank == 0));
    OK(ncclCommFinalize(part));
    OK(ncclCommDestroy(part));
    OK(ncclCommRevoke(NULL, NCCL_REVOKE_DEFAULT));
    OK(ncclCommAbort(NULL));
    OK(ncclCommDestroy(r->comm));
}

static void none(void)
{
    as_threads(2, no_colour);
}

static const struct test_named cases[] = {{"in_groups", in_groups},
                                          {"in_own_group", in_own_group},
                                          {"under_way", under_way},
                                          {"entered", entered},
                                          {"parent_alone", parent_alone},
                                          {"idle", idle},
                                          {"leaves", leaves},
                                          {"aborts", aborts},
                                          {"aborts_in_group", aborts_in_group},
                                          {"none", none}};

int main(int argc, char **argv)
{
    return named_run(argc, argv, cases, sizeof cases / sizeof *cases);
}
