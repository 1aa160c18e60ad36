/* What surrounds NCCL's operations, by a program that knows nothing but nccl.h: several
 * communicators in one thread, communicators that do not block, configurations, aborting from
 * another thread, predictions, and what is refused. Those that are made of others:
 * nccl_members.c.
 *
 *     nccl_semantics CASE        (no CASE: lists them) */
#include <nccl.h>

#include "tests/nccl/nccl_check.h"
#include "tests/nccl/nccl_threads.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

enum { COUNT = 1000 };

/* ---- one thread, several communicators ---- */

static void one_thread(void)
{
    enum { DEVICES = 3 };
    const int list[DEVICES] = {0, 0, 0};
    ncclComm_t comms[DEVICES], parts[DEVICES];
    int *memory[DEVICES], *moved[DEVICES];
    OK(ncclCommInitAll(comms, DEVICES, list));
    for (int d = 0; d < DEVICES; d++) {
        OK(ncclMemAlloc((void **)&memory[d], COUNT * sizeof(int)));
        OK(ncclMemAlloc((void **)&moved[d], COUNT * sizeof(int)));
        for (int i = 0; i < COUNT; i++)
            memory[d][i] = d + i;
    }
    for (int round = 0; round < 3; round++) {
        OK(ncclGroupStart());
        for (int d = 0; d < DEVICES; d++) {
            OK(ncclSend(memory[d], COUNT, ncclInt32, (d + 1) % DEVICES, comms[d], NULL));
            OK(ncclRecv(moved[d], COUNT, ncclInt32, (d + 2) % DEVICES, comms[d], NULL));
        }
        for (int d = 0; d < DEVICES; d++)
            OK(ncclAllReduce(moved[d], moved[d], COUNT, ncclInt32, ncclMax, comms[d], NULL));
        OK(ncclGroupEnd());
        for (int d = 0; d < DEVICES; d++)
            for (int i = 0; i < COUNT; i++)
                CHECK(moved[d][i] == DEVICES - 1 + i);
    }
    OK(ncclGroupStart());
    for (int d = 0; d < DEVICES; d++)
        OK(ncclCommSplit(comms[d], d / 2, d, &parts[d], NULL));
    OK(ncclGroupEnd());
    OK(ncclGroupStart());
    for (int d = 0; d < DEVICES; d++)
        OK(ncclAllReduce(memory[d], moved[d], COUNT, ncclInt32, ncclSum, parts[d], NULL));
    OK(ncclGroupEnd());
    CHECK(moved[0][5] == 11 && moved[1][5] == 11 && moved[2][5] == 7);
    for (int d = 0; d < DEVICES; d++) {
        OK(ncclCommDestroy(parts[d]));
        OK(ncclCommDestroy(comms[d]));
        OK(ncclMemFree(memory[d]));
        OK(ncclMemFree(moved[d]));
    }
}

/* ---- without blocking ---- */

static void without_blocking_rank(struct rank *r)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t part = NULL;
    int *memory = NULL;
    config.blocking = 0;
    config.commName = "without blocking";
    ncclResult_t result = ncclCommInitRankConfig(&r->comm, ranks, id, r->rank, &config);
    CHECK(result == ncclInProgress || result == ncclSuccess);
    CHECK(settle(r->comm) == ncclSuccess);
    OK(ncclMemAlloc((void **)&memory, 2 * COUNT * sizeof *memory));
    for (int i = 0; i < COUNT; i++)
        memory[i] = r->rank;
    result = ncclAllReduce(memory, memory, COUNT, ncclInt32, ncclSum, r->comm, NULL);
    CHECK(result == ncclInProgress || result == ncclSuccess);
    result = ncclAllReduce(memory, memory + COUNT, COUNT, ncclInt32, ncclSum, r->comm, NULL);
    CHECK(result == ncclInProgress || result == ncclSuccess);
    CHECK(settle(r->comm) == ncclSuccess);
    CHECK(memory[7] == ranks * (ranks - 1) / 2 && memory[COUNT + 7] == ranks * memory[7]);
    OK(ncclGroupStart());
    (void)ncclAllReduce(memory, memory, COUNT, ncclInt32, ncclMin, r->comm, NULL);
    result = ncclGroupEnd();
    CHECK(result == ncclInProgress || result == ncclSuccess);
    CHECK(settle(r->comm) == ncclSuccess);
    result = ncclCommSplit(r->comm, 0, -r->rank, &part, NULL);
    CHECK(result == ncclInProgress || result == ncclSuccess);
    CHECK(settle(part) == ncclSuccess);
    int rank = -1;
    OK(ncclCommUserRank(part, &rank));
    CHECK(rank == ranks - 1 - r->rank);
    result = ncclCommFinalize(r->comm);
    CHECK(result == ncclInProgress || result == ncclSuccess);
    CHECK(settle(r->comm) == ncclSuccess);
    CHECK(ncclAllReduce(memory, memory, 1, ncclInt32, ncclSum, r->comm, NULL) == ncclInvalidUsage);
    OK(ncclCommDestroy(part));
    OK(ncclCommDestroy(r->comm));
    OK(ncclMemFree(memory));
}

static void without_blocking(void)
{
    as_threads(3, without_blocking_rank);
}

/* ---- abort ---- */

static _Atomic int waits; /* rank 0 is in the call that must be aborted */

static void *abort_later(void *argument)
{
    while (!waits)
        nap();
    for (int i = 0; i < 100; i++)
        nap();
    OK(ncclCommAbort(argument));
    return NULL;
}

/* Rank 0 waits for a rank that does not call all that it must, until another thread of its process
 * has enough. What that rank does call tells that rank 0 is in its group. */
static void abort_rank(struct rank *r)
{
    pthread_t other;
    int word = 1, sent = 7;
    OK(ncclCommInitRank(&r->comm, ranks, id, r->rank));
    if (r->rank != 0) {
        ncclResult_t state = ncclSuccess;
        OK(ncclRecv(&word, 1, ncclInt32, 0, r->comm, NULL));
        CHECK(word == sent);
        waits = 1;
        CHECK(ncclRecv(&word, 1, ncclInt32, 0, r->comm, NULL) == ncclRemoteError); /* is told */
        OK(ncclCommGetAsyncError(r->comm, &state));
        CHECK(state == ncclRemoteError && strstr(ncclGetLastError(r->comm), "abort"));
        OK(ncclCommAbort(r->comm));
        return;
    }
    CHECK(pthread_create(&other, NULL, abort_later, r->comm) == 0);
    OK(ncclGroupStart());
    OK(ncclSend(&sent, 1, ncclInt32, 1, r->comm, NULL));
    OK(ncclRecv(&word, 1, ncclInt32, 1, r->comm, NULL));
    CHECK(ncclGroupEnd() == ncclRemoteError);
    pthread_join(other, NULL);
}

/* Nobody else comes; the abort does not wait for the deadline. */
static void abort_while_made(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclResult_t state = ncclSuccess;
    config.blocking = 0;
    OK(ncclGetUniqueId(&id));
    CHECK(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress);
    OK(ncclCommGetAsyncError(comm, &state));
    CHECK(state == ncclInProgress);
    int word = 0;
    CHECK(ncclAllReduce(&word, &word, 1, ncclInt32, ncclSum, comm, NULL) == ncclInvalidUsage);
    OK(ncclCommAbort(comm));
}

/* The same for a call that blocks: it ends long before its deadline. The group only serves to have
 * the handle before the call that blocks. */
static _Atomic int handed_out;
static ncclComm_t handed;
static int handed_rank;

static void *abort_blocked(void *argument)
{
    (void)argument;
    OK(ncclGroupStart());
    OK(ncclCommInitRank(&handed, 2, id, handed_rank));
    handed_out = 1;
    CHECK(ncclGroupEnd() == ncclRemoteError);
    CHECK(strstr(ncclGetLastError(NULL), "aborted while it"));
    return NULL;
}

static void abort_while_blocked(void)
{
    pthread_t other;
    for (handed_rank = 0; handed_rank < 2; handed_rank++) {
        OK(ncclGetUniqueId(&id));
        handed_out = 0;
        CHECK(pthread_create(&other, NULL, abort_blocked, NULL) == 0);
        while (!handed_out)
            nap();
        for (int i = 0; i < 100; i++)
            nap();
        OK(ncclCommAbort(handed));
        pthread_join(other, NULL);
    }
}

static void aborts(void)
{
    as_threads(2, abort_rank);
    abort_while_made();
    abort_while_blocked();
}

/* ---- predictions ---- */

static float predicted(ncclComm_t comm, int peer, size_t messages, size_t count)
{
    static float words[1 << 16];
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    OK(ncclGroupStart());
    for (size_t m = 0; m < messages; m++) {
        OK(ncclSend(words, count, ncclFloat32, peer, comm, NULL));
        OK(ncclRecv(words, count, ncclFloat32, peer, comm, NULL));
    }
    if (messages == 0)
        OK(ncclAllReduce(words, words, count, ncclFloat32, ncclSum, comm, NULL));
    OK(ncclGroupSimulateEnd(&info));
    return info.estimatedTime;
}

static void predict_rank(struct rank *r)
{
    OK(ncclCommInitRank(&r->comm, ranks, id, r->rank));
    const int peer = 1 - r->rank;
    const float few = predicted(r->comm, peer, 1, 16), many = predicted(r->comm, peer, 1, 1 << 16);
    CHECK(predicted(r->comm, peer, 0, 1 << 16) > 0 && few > 0 && many > 2 * few);
    CHECK(predicted(r->comm, peer, 8, 1 << 16) > 2 * many);
    OK(ncclCommDestroy(r->comm));
}

static void predicts(void)
{
    as_threads(2, predict_rank);
}

/* ---- configurations, refusals, predictions ---- */

struct config_2_14 { /* as programs of that time have it, with something in the padding */
    size_t size;
    unsigned int magic, version;
    int blocking;
    int padding;
};

static void configs(void)
{
    ncclComm_t comm = NULL;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    struct config_2_14 old = {sizeof old, 0xcafebeef, 21400, 1, 12345};
    OK(ncclGetUniqueId(&id));
    config.magic = 1;
    CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInvalidArgument && !comm);
    CHECK(strstr(ncclGetLastError(NULL), "NCCL_CONFIG_INITIALIZER"));
    config = (ncclConfig_t)NCCL_CONFIG_INITIALIZER;
    config.blocking = 2;
    CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInvalidArgument);
    CHECK(strstr(ncclGetLastError(NULL), "blocking"));
    config.blocking = 1;
    config.minCTAs = 8;
    config.maxCTAs = 4;
    CHECK(ncclCommInitRankConfig(&comm, 1, id, 0, &config) == ncclInvalidArgument);
    OK(ncclCommInitRankConfig(&comm, 1, id, 0, (ncclConfig_t *)(void *)&old));
    check_sum(comm, 1, 1);
    OK(ncclCommDestroy(comm));
    ncclUniqueId two[2];
    OK(ncclGetUniqueId(&two[0]));
    OK(ncclGetUniqueId(&two[1]));
    OK(ncclCommInitRankScalable(&comm, 1, 0, 1, two, NULL));
    check_sum(comm, 1, 1);
    OK(ncclCommDestroy(comm));
    CHECK(ncclCommInitRankScalable(&comm, 1, 0, 2, two, NULL) == ncclInvalidArgument);
    memset(&id, 'x', sizeof id);
    CHECK(ncclCommInitRank(&comm, 1, id, 0) == ncclInvalidArgument && !comm);
    CHECK(ncclCommInitRank(&comm, 1, two[1], 1) == ncclInvalidArgument);
}

/* Windows, settings and statistics, on a communicator of one rank. */
static void questions(void)
{
    static char words[256];
    ncclComm_t comm = NULL;
    ncclWindow_t window = NULL;
    ncclParamHandle_t param = NULL;
    ncclWaitSignalDesc_t wait = {.opCnt = 1};
    const char *text = NULL, **keys = NULL;
    void *pointer = NULL;
    uint64_t bytes = 1;
    int8_t small = 0;
    int count = 0;
    OK(ncclGetUniqueId(&id));
    OK(ncclCommInitRank(&comm, 1, id, 0));
    OK(ncclCommWindowRegister(comm, words, sizeof words, &window, NCCL_WIN_COLL_SYMMETRIC));
    OK(ncclWinGetUserPtr(comm, window, &pointer));
    CHECK(pointer == words);
    words[0] = 5;
    OK(ncclPutSignal(words, 1, ncclInt8, 0, window, 9, 0, 0, 0, comm, NULL));
    OK(ncclWaitSignal(1, &wait, comm, NULL));
    CHECK(words[9] == 5);
    OK(ncclCommWindowDeregister(comm, window));
    CHECK(ncclWinGetUserPtr(comm, window, &pointer) == ncclInvalidArgument);
    OK(ncclCommMemStats(comm, ncclStatGpuMemSuspended, &bytes));
    CHECK(bytes == 0 && ncclCommSuspend(comm, 4) == ncclInvalidArgument);
    CHECK(ncclCommResume(comm) == ncclInvalidUsage);
    CHECK(ncclCommMemStats(comm, (ncclCommMemStat_t)4, &bytes) == ncclInvalidArgument);
    OK(ncclCommDestroy(comm));

    setenv("NCCL_NET_PLUGIN", "-12", 1); /* nothing reads it any more */
    OK(ncclParamGetAllParameterKeys(&keys, &count));
    CHECK(count > 2 && ncclParamBind(&param, "NCCL_NOPE") == ncclInvalidArgument);
    for (int k = 0; k < count; k++)
        OK(ncclParamGetParameter(keys[k], &text, &(int){0}));
    OK(ncclParamBind(&param, "NCCL_NET_PLUGIN"));
    OK(ncclParamGetStr(param, &text));
    OK(ncclParamGetI8(param, &small));
    CHECK(strcmp(text, "-12") == 0 && small == -12);
    CHECK(ncclParamGetU64(param, &bytes) == ncclInvalidArgument);
    setenv("NCCL_NET_PLUGIN", "128", 1);
    CHECK(ncclParamGetI8(param, &small) == ncclInvalidArgument);
    OK(ncclParamGetU64(param, &bytes));
    CHECK(bytes == 128 && ncclParamGet(param, words, 3, &count) == ncclInvalidArgument);
    OK(ncclParamGet(param, words, 4, &count));
    CHECK(count == 4 && strcmp(words, "128") == 0);
    CHECK(ncclParamGetStr(NULL, &text) == ncclInvalidArgument);
}

static void refusals(void)
{
    ncclComm_t comm = NULL;
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
    static float words[1 << 16];
    ncclResult_t (*create)(ncclComm_t, const void *, void *) =
        (ncclResult_t(*)(ncclComm_t, const void *, void *))dlsym(RTLD_DEFAULT, "ncclDevCommCreate");
    OK(ncclGetUniqueId(&id));
    OK(ncclCommInitRank(&comm, 1, id, 0));
    CHECK(create && create(comm, NULL, NULL) == ncclInvalidUsage);
    CHECK(strstr(ncclGetLastError(NULL), "not supported"));
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    OK(ncclGroupStart());
    OK(ncclAllReduce(words, words, 1 << 16, ncclFloat32, ncclSum, comm, NULL));
    OK(ncclGroupSimulateEnd(&info));
    CHECK(info.estimatedTime >= 0);
    OK(ncclGroupStart());
    info.magic = 0;
    CHECK(ncclGroupSimulateEnd(&info) == ncclInvalidArgument);
    CHECK(ncclMemFree(words) == ncclInvalidArgument);
    CHECK(ncclCommRevoke(comm, 1) == ncclInvalidArgument);
    CHECK(ncclCommCount(NULL, NULL) == ncclInvalidArgument);
    OK(ncclCommDestroy(comm));
    for (int code = 0; code <= ncclNumResults; code++)
        CHECK(strlen(ncclGetErrorString((ncclResult_t)code)) > 3);
}

/* ---- without memory for a while ---- */

static uint64_t memory_of(ncclComm_t comm, ncclCommMemStat_t stat)
{
    uint64_t value = UINT64_MAX;
    OK(ncclCommMemStats(comm, stat, &value));
    return value;
}

static void suspend_rank(struct rank *r)
{
    int word = 1;
    void *handle = NULL;
    OK(ncclCommInitRank(&r->comm, ranks, id, r->rank));
    const uint64_t held = memory_of(r->comm, ncclStatGpuMemSuspend);
    const char *device = getenv("TUTTI_DEVICE");
    CHECK((held > 0) == (device && strcmp(device, "sim") == 0));
    for (int round = 0; round < 3; round++) {
        check_sum(r->comm, ranks, (1 << ranks) - 1);
        OK(ncclCommSuspend(r->comm, NCCL_SUSPEND_MEM));
        CHECK(memory_of(r->comm, ncclStatGpuMemTotal) == 0);
        CHECK(memory_of(r->comm, ncclStatGpuMemSuspended) == 1);
        CHECK(ncclAllReduce(&word, &word, 1, ncclInt32, ncclSum, r->comm, NULL) ==
              ncclInvalidUsage);
        CHECK(strstr(ncclGetLastError(NULL), "ncclCommResume"));
        CHECK(ncclCommSuspend(r->comm, NCCL_SUSPEND_MEM) == ncclInvalidUsage);
        OK(ncclCommRegister(r->comm, &word, sizeof word, &handle));
        OK(ncclCommDeregister(r->comm, handle));
        OK(ncclGroupStart()); /* which fails, so nobody resumes */
        OK(ncclCommResume(r->comm));
        CHECK(ncclAllReduce(&word, &word, 1, (ncclDataType_t)99, ncclSum, r->comm, NULL) !=
              ncclSuccess);
        CHECK(ncclGroupEnd() != ncclSuccess);
        CHECK(memory_of(r->comm, ncclStatGpuMemSuspended) == 1);
        OK(ncclCommResume(r->comm));
        CHECK(memory_of(r->comm, ncclStatGpuMemSuspended) == 0);
        CHECK(memory_of(r->comm, ncclStatGpuMemTotal) == held);
    }
    check_sum(r->comm, ranks, (1 << ranks) - 1);
    OK(ncclCommSuspend(r->comm, NCCL_SUSPEND_MEM));
    OK(ncclCommDestroy(r->comm)); /* as it is */
}

/* Only rank 0 does what all must: it says so at the deadline, whatever the others do meanwhile, and
 * to them the communicator has failed. */
enum some { OTHERS_REDUCE, OTHERS_WAIT, OTHERS_STAY_SUSPENDED };
static enum some some_do;

static ncclResult_t some_others(struct rank *r, int *word)
{
    ncclResult_t state = ncclSuccess;
    if (some_do == OTHERS_REDUCE)
        return ncclAllReduce(word, word, 1, ncclInt32, ncclSum, r->comm, NULL);
    while (state == ncclSuccess) {
        nap();
        OK(ncclCommGetAsyncError(r->comm, &state));
    }
    return state;
}

static void suspends_some_rank(struct rank *r)
{
    int *word = NULL;
    OK(ncclCommInitRank(&r->comm, ranks, id, r->rank));
    OK(ncclMemAlloc((void **)&word, sizeof *word));
    *word = 1;
    check_sum(r->comm, ranks, (1 << ranks) - 1);
    const int resumes = some_do == OTHERS_STAY_SUSPENDED;
    if (resumes)
        OK(ncclCommSuspend(r->comm, NCCL_SUSPEND_MEM));
    ncclResult_t result;
    if (r->rank == 0 && resumes)
        result = ncclCommResume(r->comm);
    else if (r->rank == 0)
        result = ncclCommSuspend(r->comm, NCCL_SUSPEND_MEM);
    else
        result = some_others(r, word);
    CHECK(result == ncclTimeout || result == ncclRemoteError); /* who is first tells the others */
    CHECK(strstr(ncclGetLastError(r->comm), r->rank == 0 ? "all ranks must" : "rank 0"));
    OK(ncclCommAbort(r->comm));
    OK(ncclMemFree(word));
}

static void suspends_some(void)
{
    setenv("TUTTI_TIMEOUT", "3", 1);
    for (some_do = OTHERS_REDUCE; some_do <= OTHERS_STAY_SUSPENDED; some_do++)
        as_threads(3, suspends_some_rank);
}

/* One thread, several ranks: in a group. */
static void suspends(void)
{
    const int devices[2] = {0, 0};
    ncclComm_t comms[2];
    as_threads(3, suspend_rank);
    OK(ncclCommInitAll(comms, 2, devices));
    OK(ncclGroupStart());
    OK(ncclCommSuspend(comms[0], NCCL_SUSPEND_MEM));
    OK(ncclCommSuspend(comms[1], NCCL_SUSPEND_MEM));
    OK(ncclGroupEnd());
    OK(ncclGroupStart());
    OK(ncclCommResume(comms[0]));
    OK(ncclCommResume(comms[1]));
    OK(ncclGroupEnd());
    OK(ncclCommDestroy(comms[0]));
    OK(ncclCommDestroy(comms[1]));
}

/* Each rank on a device of its own; test_nccl_devices.sh looks at what is said of them. */
static void devices(void)
{
    const int list[2] = {1, 0};
    ncclComm_t comms[2], again[2];
    OK(ncclCommInitAll(comms, 2, list));
    OK(ncclGroupStart());
    for (int d = 0; d < 2; d++)
        OK(ncclCommSplit(comms[d], 0, d, &again[d], NULL));
    OK(ncclGroupEnd());
    for (int d = 0; d < 2; d++) {
        OK(ncclCommDestroy(again[d]));
        OK(ncclCommDestroy(comms[d]));
    }
}

/* ---- what only moves: the bytes count ---- */

enum { WORDS = 24, BYTES = 4 * WORDS };

/* Each rank says what it moves in a type of its own. */
static void moves_bytes(struct rank *r)
{
    static const ncclDataType_t types[] = {ncclInt8, ncclFloat32};
    const ncclDataType_t type = types[r->rank];
    const size_t count = r->rank == 0 ? BYTES : WORDS;
    int8_t *in = NULL, *out = NULL;
    OK(ncclCommInitRank(&r->comm, ranks, id, r->rank));
    OK(ncclMemAlloc((void **)&in, 2 * BYTES));
    OK(ncclMemAlloc((void **)&out, 2 * BYTES));
    for (int i = 0; i < 2 * BYTES; i++)
        in[i] = (int8_t)(r->rank ? -i : i);
    OK(ncclGroupStart());
    OK(ncclSend(in, count, type, 1 - r->rank, r->comm, NULL));
    OK(ncclRecv(out, count, type, 1 - r->rank, r->comm, NULL));
    OK(ncclGroupEnd());
    for (int i = 0; i < BYTES; i++)
        CHECK(out[i] == (int8_t)(r->rank ? i : -i));
    OK(ncclAllGather(in, out, count, type, r->comm, NULL));
    for (int i = 0; i < BYTES; i++)
        CHECK(out[i] == (int8_t)i && out[BYTES + i] == (int8_t)-i);
    OK(ncclAlltoAll(in, out, count, type, r->comm, NULL));
    for (int i = 0, mine = r->rank * BYTES; i < BYTES; i++)
        CHECK(out[i] == (int8_t)(mine + i) && out[BYTES + i] == (int8_t) - (mine + i));
    OK(ncclBroadcast(in, out, count, type, 1, r->comm, NULL));
    for (int i = 0; i < BYTES; i++)
        CHECK(out[i] == (int8_t)-i);
    /* More than there are. */
    CHECK(ncclAllGather(in, out, SIZE_MAX / 2, ncclFloat64, r->comm, NULL) == ncclInvalidArgument);
    OK(ncclCommDestroy(r->comm));
    OK(ncclMemFree(in));
    OK(ncclMemFree(out));
}

static void bytes(void)
{
    as_threads(2, moves_bytes);
}

static const struct test_named cases[] = {{"one_thread", one_thread},
                                          {"without_blocking", without_blocking},
                                          {"aborts", aborts},
                                          {"configs", configs},
                                          {"refusals", refusals},
                                          {"questions", questions},
                                          {"predicts", predicts},
                                          {"suspends", suspends},
                                          {"suspends_some", suspends_some},
                                          {"devices", devices},
                                          {"bytes", bytes}};

int main(int argc, char **argv)
{
    return named_run(argc, argv, cases, sizeof cases / sizeof *cases);
}
