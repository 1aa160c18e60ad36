/* Communicators that set device memory up, which needs all ranks: one has no device, or they are
 * given up meanwhile, which takes as long as the other ranks let it. There rank 1 is a process that
 * is part of everything but that: it uses what libnccl.so.2 is made of, where both are calls of
 * their own.
 *
 *     nccl_setup CASE        (no CASE: lists them) */
#include <nccl.h>

#include "coll/comm.h"
#include "coll/door.h"
#include "tests/nccl/nccl_check.h"
#include "tests/nccl/nccl_threads.h"

#include <sys/wait.h>
#include <unistd.h>

enum { MADE = 'm', RANKS = 2 };

static int to_peer[2], from_peer[2]; /* pipes */

static void say(const int pipe[2], const void *what, size_t bytes)
{
    CHECK(write(pipe[1], what, bytes) == (ssize_t)bytes);
}

static void hear(const int pipe[2], void *what, size_t bytes)
{
    CHECK(read(pipe[0], what, bytes) == (ssize_t)bytes);
}

static tutti_comm *peer_comm(void)
{
    struct tutti_id own = {.text = ""};
    tutti_comm *comm = NULL;
    hear(to_peer, &id, sizeof id);
    memcpy(own.text, id.internal, strnlen(id.internal, sizeof own.text - 1));
    CHECK(tutti_comm_create(&own, 1, RANKS, NULL, &comm) == TUTTI_OK);
    return comm;
}

/* Everybody has made it, and this rank does no more. Why it ends is heard from rank 0. */
static void peer_waits(tutti_comm *comm, const char *reason)
{
    const char word = MADE;
    say(from_peer, &word, 1);
    while (tutti_comm_error(comm) == TUTTI_OK)
        nap();
    CHECK(tutti_comm_error(comm) == TUTTI_ERR_ABORTED);
    CHECK(strstr(tti_error_text(), reason));
}

static void as_peer(const char *reason, bool child)
{
    tutti_comm *comm = peer_comm(), *part = NULL;
    if (child) {
        CHECK(tti_comm_prepare_device(comm, 0) == TUTTI_OK);
        CHECK(tutti_comm_split(comm, 0, 1, &part) == TUTTI_OK);
    }
    peer_waits(child ? part : comm, reason);
    tutti_comm_destroy(part);
    tutti_comm_destroy(comm);
}

/* Before anything of ours runs, which a child would have only a copy of. */
static pid_t with_peer(const char *reason, bool child)
{
    CHECK(pipe(to_peer) == 0 && pipe(from_peer) == 0);
    const pid_t peer = fork();
    CHECK(peer >= 0);
    if (peer == 0) {
        as_peer(reason, child);
        _exit(0);
    }
    OK(ncclGetUniqueId(&id));
    say(to_peer, &id, sizeof id);
    return peer;
}

static void peer_ends(pid_t peer)
{
    int status = -1;
    CHECK(waitpid(peer, &status, 0) == peer && status == 0);
}

static ncclComm_t begin(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    config.blocking = 0;
    CHECK(ncclCommInitRankConfig(&comm, RANKS, id, 0, &config) == ncclInProgress);
    return comm;
}

/* The other rank has nothing left to do; so has this one but for its memory, soon. */
static void await_setup(ncclComm_t comm)
{
    char word = 0;
    ncclResult_t state = ncclInProgress;
    hear(from_peer, &word, 1);
    CHECK(word == MADE);
    for (int i = 0; i < 100; i++)
        nap();
    OK(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclInProgress);
}

static void aborts(void)
{
    const pid_t peer = with_peer("ncclCommAbort", false);
    const ncclComm_t comm = begin();
    await_setup(comm);
    OK(ncclCommAbort(comm));
    peer_ends(peer);
}

static void revokes(void)
{
    const pid_t peer = with_peer("ncclCommRevoke", false);
    const ncclComm_t comm = begin();
    await_setup(comm);
    OK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    CHECK(settle(comm) == ncclRemoteError);
    CHECK(strstr(ncclGetLastError(comm), "ncclCommRevoke"));
    peer_ends(peer);
    OK(ncclCommDestroy(comm));
}

static ncclComm_t begin_part(ncclComm_t comm)
{
    ncclComm_t part = NULL;
    OK(settle(comm));
    CHECK(ncclCommSplit(comm, 0, 0, &part, NULL) == ncclInProgress);
    await_setup(part);
    return part;
}

static void aborts_parent(void)
{
    const pid_t peer = with_peer("ncclCommAbort", true);
    const ncclComm_t comm = begin(), part = begin_part(comm);
    OK(ncclCommAbort(comm));
    CHECK(settle(part) == ncclRemoteError);
    peer_ends(peer);
    OK(ncclCommAbort(part));
}

static void revokes_parent(void)
{
    const pid_t peer = with_peer("ncclCommRevoke", true);
    const ncclComm_t comm = begin(), part = begin_part(comm);
    OK(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    CHECK(settle(part) == ncclRemoteError);
    peer_ends(peer);
    OK(ncclCommAbort(part));
    OK(ncclCommDestroy(comm));
}

/* ---- a rank without a device ---- */

static int sum_on_host(ncclComm_t comm)
{
    int word = 1;
    OK(ncclAllReduce(&word, &word, 1, ncclInt32, ncclSum, comm, NULL));
    return word;
}

static void as_peer_on_host(void)
{
    ncclComm_t comm = NULL;
    CHECK(setenv("TUTTI_DEVICE", "host", 1) == 0);
    hear(to_peer, &id, sizeof id);
    OK(ncclCommInitRank(&comm, RANKS, id, 1));
    CHECK(sum_on_host(comm) == RANKS);
    CHECK(sum_on_host(comm) == RANKS);
    OK(ncclCommDestroy(comm));
}

/* What needs no device works; what does is refused, and by whose doing is told. */
static void mixed(void)
{
    void *memory = NULL;
    ncclComm_t comm = NULL;
    CHECK(pipe(to_peer) == 0);
    const pid_t peer = fork();
    CHECK(peer >= 0);
    if (peer == 0) {
        as_peer_on_host();
        _exit(0);
    }
    OK(ncclGetUniqueId(&id));
    say(to_peer, &id, sizeof id);
    OK(ncclCommInitRank(&comm, RANKS, id, 0));
    CHECK(sum_on_host(comm) == RANKS);
    OK(ncclMemAlloc(&memory, sizeof(int)));
    CHECK(ncclAllReduce(memory, memory, 1, ncclInt32, ncclSum, comm, NULL) == ncclInvalidUsage);
    CHECK(strstr(ncclGetLastError(comm), "rank 1 ("));
    OK(ncclMemFree(memory));
    CHECK(sum_on_host(comm) == RANKS);
    OK(ncclCommDestroy(comm));
    peer_ends(peer);
}

static const struct test_named cases[] = {{"mixed", mixed},
                                          {"aborts", aborts},
                                          {"revokes", revokes},
                                          {"aborts_parent", aborts_parent},
                                          {"revokes_parent", revokes_parent}};

int main(int argc, char **argv)
{
    return named_run(argc, argv, cases, sizeof cases / sizeof *cases);
}
