/* Communicators that another thread, or the clean-up after a failure, ends at an awkward moment:
 * while the group that makes them waits for others, or before that group has ended.
 *
 *     nccl_ends CASE        (no CASE: lists them) */
#include <nccl.h>

#include "tests/nccl/nccl_check.h"
#include "tests/nccl/nccl_threads.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

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
    ncclResult_t result = ncclSuccess, state = ncclSuccess;
    ncclComm_t peer = NULL, second_peer = NULL;
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
    while (peer && !destroys && state == ncclSuccess) { /* told at once, not at the group's end */
        nap();
        OK(ncclCommGetAsyncError(peer, &state));
    }
    CHECK(destroys || !peer || strstr(ncclGetLastError(peer), "abort"));
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

static const struct test_named cases[] = {{"in_groups", in_groups}, {"in_own_group", in_own_group}};

int main(int argc, char **argv)
{
    return named_run(argc, argv, cases, sizeof cases / sizeof *cases);
}
