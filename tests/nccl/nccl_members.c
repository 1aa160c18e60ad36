/* Communicators that are made of others, by a program that knows nothing but nccl.h: with more
 * ranks, with fewer, of those that survive, of several kinds in one group, and from several ids.
 *
 *     nccl_members CASE        (no CASE: lists them) */
#include <nccl.h>

#include "tests/nccl/nccl_check.h"
#include "tests/nccl/nccl_threads.h"

#include <dirent.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- one parent, one group, of both kinds ---- */

/* When the group is over, so is what blocks, whatever came before it. */
static void mixed_rank(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t without = NULL, with = NULL;
    config.blocking = 0;
    OK(ncclCommInitRank(&r->comm, ranks, id, r->rank));
    for (int round = 0; round < 2; round++) {
        OK(ncclGroupStart());
        if (round == 0)
            OK(ncclCommSplit(r->comm, 0, 0, &without, &config));
        OK(ncclCommSplit(r->comm, 0, 0, &with, NULL));
        if (round == 1)
            OK(ncclCommSplit(r->comm, 0, 0, &without, &config));
        OK(ncclGroupEnd());
        check_sum(with, ranks, (1 << ranks) - 1);
        CHECK(settle(without) == ncclSuccess);
        OK(ncclCommDestroy(with));
        OK(ncclCommDestroy(without));
    }
    OK(ncclCommDestroy(r->comm));
}

static void mixed_splits(void)
{
    as_threads(3, mixed_rank);
}

static int windows_block;

/* Windows and children in one group, several times over: all of it sends over the one parent. */
static void windows_rank(struct rank *r)
{
    static char words[4][64];
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclWindow_t window = NULL;
    ncclComm_t part = NULL;
    config.blocking = windows_block;
    ncclResult_t result = ncclCommInitRankConfig(&r->comm, ranks, id, r->rank, &config);
    CHECK(result == ncclSuccess || result == ncclInProgress);
    CHECK(settle(r->comm) == ncclSuccess);
    for (int round = 0; round < 40; round++) {
        OK(ncclGroupStart());
        if (round % 2)
            OK(ncclCommSplit(r->comm, 0, 0, &part, NULL));
        OK(ncclCommWindowRegister(r->comm, words[r->rank], sizeof words[0], &window, 0));
        if (!(round % 2))
            OK(ncclCommSplit(r->comm, 0, 0, &part, NULL));
        if (round % 4 > 1)
            OK(ncclCommSuspend(r->comm, NCCL_SUSPEND_MEM));
        if (windows_block)
            OK(ncclGroupEnd());
        else
            CHECK(ncclGroupEnd() == ncclInProgress);
        CHECK(settle(r->comm) == ncclSuccess && window); /* all that goes over it */
        CHECK(settle(part) == ncclSuccess);
        if (round % 4 > 1)
            result = ncclCommResume(r->comm);
        CHECK(result == ncclSuccess || result == ncclInProgress);
        CHECK(settle(r->comm) == ncclSuccess);
        OK(ncclCommWindowDeregister(r->comm, window));
        OK(ncclCommDestroy(part));
    }
    OK(ncclCommDestroy(r->comm));
}

static void windows_and_splits(void)
{
    for (windows_block = 0; windows_block < 2; windows_block++)
        as_threads(3, windows_rank);
}

/* ---- blocking, or not, as parent and child ---- */

/* The communicator does not block. */
static void in_progress(ncclComm_t comm, int *memory)
{
    CHECK(ncclAllReduce(memory, memory, 1, ncclInt32, ncclSum, comm, NULL) == ncclInProgress);
    CHECK(settle(comm) == ncclSuccess);
}

/* The parent says who waits for a child to be made; the child's configuration, if it has one, how
 * the child is then. */
static void blocking_rank(struct rank *r)
{
    ncclConfig_t without = NCCL_CONFIG_INITIALIZER, unset = NCCL_CONFIG_INITIALIZER;
    ncclComm_t child = NULL, other = NULL;
    int *memory = NULL;
    without.blocking = 0;
    OK(ncclMemAlloc((void **)&memory, sizeof *memory));
    const ncclResult_t begun = ncclCommInitRankConfig(&r->comm, ranks, id, r->rank, &without);
    CHECK(begun == ncclInProgress && settle(r->comm) == ncclSuccess);
    CHECK(ncclCommSplit(r->comm, 0, r->rank, &child, &unset) == ncclInProgress);
    CHECK(settle(r->comm) == ncclSuccess && settle(child) == ncclSuccess);
    check_sum(child, ranks, (1 << ranks) - 1); /* each call of it is over when it returns */
    CHECK(ncclCommSplit(r->comm, 0, r->rank, &other, NULL) == ncclInProgress);
    CHECK(settle(r->comm) == ncclSuccess && settle(other) == ncclSuccess);
    in_progress(other, memory);
    OK(ncclCommDestroy(other));
    OK(ncclCommSplit(child, 0, r->rank, &other, &without));
    in_progress(other, memory);
    OK(ncclCommDestroy(other));
    OK(ncclCommDestroy(child));
    OK(ncclCommDestroy(r->comm));
    OK(ncclMemFree(memory));
}

static void blocking(void)
{
    as_threads(3, blocking_rank);
}

/* ---- several ids ---- */

static ncclUniqueId extra;

static int descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    CHECK(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static void scalable_rank(struct rank *r)
{
    ncclUniqueId both[2] = {id, extra};
    OK(ncclCommInitRankScalable(&r->comm, ranks, r->rank, 2, both, NULL));
    check_sum(r->comm, ranks, (1 << ranks) - 1);
    OK(ncclCommDestroy(r->comm));
}

/* What was held for the one that is not used is given back. */
static void scalable(void)
{
    OK(ncclGetUniqueId(&extra));
    as_threads(2, scalable_rank); /* what the process makes once is there from here on */
    const int before = descriptors();
    for (int turn = 0; turn < 3; turn++) {
        OK(ncclGetUniqueId(&extra));
        as_threads(2, scalable_rank);
    }
    while (descriptors() > before)
        nap();
}

/* ---- going on with more ---- */

static ncclUniqueId grow_id;

/* Who of the old ranks passes the id, beside the new ones: programs do all of these. */
enum given { BY_ROOT, BY_NOBODY, BY_ALL, GIVEN };

/* Two ranks, and two that come later, by the id of `root`, which need not be rank 0. */
static void grow_by(struct rank *r, ncclComm_t old, int root, enum given given)
{
    const bool passes = !old || given == BY_ALL || (given == BY_ROOT && r->rank == root);
    ncclComm_t grown = NULL;
    int own = -1;
    if (r->rank == root) {
        OK(ncclCommGetUniqueId(old, &grow_id));
        CHECK(ncclCommGetUniqueId(old, &grow_id) == ncclInvalidUsage);
    }
    pthread_barrier_wait(&all_there); /* stands for the program's way to tell the new ones */
    if (old) {
        CHECK(ncclCommGrow(old, 2, NULL, -1, &grown, NULL) == ncclInvalidArgument);
        CHECK(ncclCommGrow(old, ranks, NULL, r->rank, &grown, NULL) == ncclInvalidArgument);
    } else {
        CHECK(ncclCommGrow(NULL, ranks, NULL, r->rank, &grown, NULL) == ncclInvalidArgument);
    }
    OK(ncclCommGrow(old, ranks, passes ? &grow_id : NULL, old ? -1 : r->rank, &grown, NULL));
    OK(ncclCommUserRank(grown, &own));
    CHECK(own == r->rank);
    check_sum(grown, ranks, (1 << ranks) - 1);
    OK(ncclCommDestroy(grown));
}

static void grow_rank(struct rank *r)
{
    if (r->rank < 2)
        OK(ncclCommInitRank(&r->comm, 2, id, r->rank));
    for (int turn = 0; turn < 2 * GIVEN; turn++)
        grow_by(r, r->comm, turn % 2, (enum given)(turn / 2));
    if (r->comm) { /* nobody has asked for an id */
        ncclComm_t grown = NULL;
        CHECK(ncclCommGrow(r->comm, ranks, NULL, -1, &grown, NULL) == ncclInvalidUsage && !grown);
        CHECK(strstr(ncclGetLastError(NULL), "0 ids"));
    }
    if (r->comm)
        OK(ncclCommDestroy(r->comm));
}

static void grows(void)
{
    as_threads(4, grow_rank);
}

/* ---- going on with fewer ---- */

/* Rank 1 leaves in peace, then rank 0; the others never talk over what they leave. */
static void shrink_rank(struct rank *r)
{
    ncclComm_t fewer = NULL, fewest = NULL;
    int one = 1, two[2] = {0, 1};
    OK(ncclCommInitRank(&r->comm, ranks, id, r->rank));
    check_sum(r->comm, ranks, (1 << ranks) - 1);
    pthread_barrier_wait(&all_there); /* who ends it must not disturb who is still in it */
    if (r->rank != 1) {
        OK(ncclCommShrink(r->comm, &one, 1, &fewer, NULL, NCCL_SHRINK_DEFAULT));
        check_sum(fewer, ranks - 1, (1 << (ranks - 1)) - 1);
    }
    if (r->rank > 1) {
        OK(ncclCommRevoke(r->comm, NCCL_REVOKE_DEFAULT));
        OK(ncclCommShrink(r->comm, two, 2, &fewest, NULL, NCCL_SHRINK_ABORT));
        check_sum(fewest, ranks - 2, (1 << (ranks - 2)) - 1);
        OK(ncclCommDestroy(fewest));
        OK(ncclCommFinalize(r->comm)); /* of what was revoked there is nothing to tell */
    }
    if (fewer)
        OK(ncclCommDestroy(fewer));
    OK(ncclCommAbort(r->comm));
}

/* Rank 0, where all had met, is gone without a word. */
static void survivor(int rank, _Atomic int *done)
{
    ncclResult_t error = ncclSuccess;
    ncclComm_t comm = NULL, fewer = NULL;
    int word = 1, zero = 0;
    OK(ncclCommInitRank(&comm, 3, id, rank));
    check_sum(comm, 3, 7);
    (*done)++;
    if (rank == 0) {
        while (*done < 3)
            nap();
        _exit(0);
    }
    CHECK(ncclAllReduce(&word, &word, 1, ncclInt32, ncclSum, comm, NULL) == ncclRemoteError);
    CHECK(strstr(ncclGetLastError(comm), "rank 0") || strstr(ncclGetLastError(NULL), "rank 0"));
    OK(ncclCommGetAsyncError(comm, &error));
    CHECK(error == ncclRemoteError);
    OK(ncclCommShrink(comm, &zero, 1, &fewer, NULL, NCCL_SHRINK_ABORT));
    /* PyTorch asks the parent, and takes an error for the new one's. */
    OK(ncclCommGetAsyncError(comm, &error));
    CHECK(error == ncclSuccess);
    CHECK(ncclAllReduce(&word, &word, 1, ncclInt32, ncclSum, comm, NULL) != ncclSuccess);
    OK(ncclCommFinalize(comm));
    OK(ncclCommDestroy(comm));
    check_sum(fewer, 2, 3);
    OK(ncclCommDestroy(fewer));
}

static void survivors(void)
{
    pid_t pids[3];
    int status = 0, failed = 0;
    _Atomic int *done =
        mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(done != MAP_FAILED);
    OK(ncclGetUniqueId(&id));
    for (int r = 0; r < 3; r++)
        if ((pids[r] = fork()) == 0) {
            survivor(r, done);
            exit(0);
        }
    for (int r = 0; r < 3; r++)
        failed += waitpid(pids[r], &status, 0) != pids[r] || status != 0;
    CHECK(failed == 0);
    munmap(done, sizeof *done);
}

static void shrinks(void)
{
    as_threads(4, shrink_rank);
}

static const struct test_named cases[] = {{"mixed_splits", mixed_splits},
                                          {"blocking", blocking},
                                          {"scalable", scalable},
                                          {"windows_and_splits", windows_and_splits},
                                          {"grows", grows},
                                          {"shrinks", shrinks},
                                          {"survivors", survivors}};

int main(int argc, char **argv)
{
    return named_run(argc, argv, cases, sizeof cases / sizeof *cases);
}
