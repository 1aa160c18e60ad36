/* What a strict user of NCCL tries at the edges: empty operations, pointers that do not count,
 * errors inside groups, operators that end before their operation, registrations that outlive what
 * they are of, many communicators, forks, unloading.
 *
 *     nccl_edges CASE        (no CASE: lists them) */
#include <nccl.h>

#include "tests/nccl/nccl_check.h"
#include "tests/nccl/nccl_ranks.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { RANKS = 3, COUNT = 1 << 18 };

static void registered(int rank, ncclComm_t c);

static ncclUniqueId id;
static pthread_barrier_t all_there;
static void (*body)(int rank, ncclComm_t comm);

static void sum_works(ncclComm_t comm)
{
    int one = 1, sum = 0, ranks = 0;
    OK(ncclCommCount(comm, &ranks));
    OK(ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, comm, NULL));
    CHECK(sum == ranks);
}

static void *rank_main(void *number)
{
    const int rank = *(const int *)number;
    ncclComm_t comm = NULL;
    OK(ncclCommInitRank(&comm, RANKS, id, rank));
    body(rank, comm);
    if (body != registered)
        OK(ncclCommDestroy(comm));
    return NULL;
}

/* RANKS threads, each with a communicator. */
static void as_threads(void (*run)(int rank, ncclComm_t comm))
{
    body = run;
    OK(ncclGetUniqueId(&id));
    CHECK(pthread_barrier_init(&all_there, NULL, RANKS) == 0);
    CHECK(nccl_ranks_run(RANKS, false, rank_main) == 0);
    pthread_barrier_destroy(&all_there);
}

/* ---- buffers ---- */

static void empty(int rank, ncclComm_t c)
{
    OK(ncclAllReduce(NULL, NULL, 0, ncclFloat, ncclSum, c, NULL));
    OK(ncclBroadcast(NULL, NULL, 0, ncclFloat, 0, c, NULL));
    OK(ncclReduce(NULL, NULL, 0, ncclFloat, ncclSum, 0, c, NULL));
    OK(ncclAllGather(NULL, NULL, 0, ncclFloat, c, NULL));
    OK(ncclReduceScatter(NULL, NULL, 0, ncclFloat, ncclSum, c, NULL));
    OK(ncclAlltoAll(NULL, NULL, 0, ncclFloat, c, NULL));
    OK(ncclGather(NULL, NULL, 0, ncclFloat, 0, c, NULL));
    OK(ncclScatter(NULL, NULL, 0, ncclFloat, 0, c, NULL));
    OK(ncclGroupStart());
    OK(ncclSend(NULL, 0, ncclFloat, (rank + 1) % RANKS, c, NULL));
    OK(ncclRecv(NULL, 0, ncclFloat, (rank + RANKS - 1) % RANKS, c, NULL));
    OK(ncclGroupEnd());
    OK(ncclGroupStart());
    OK(ncclGroupEnd());
    sum_works(c);
}

/* What counts at the root alone may be anything elsewhere. */
static void off_the_root(int rank, ncclComm_t c)
{
    enum { ROOT = 1 };
    int in[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8] = {0};
    const bool root = rank == ROOT;
    OK(ncclBroadcast(root ? in : NULL, out, 2, ncclInt32, ROOT, c, NULL));
    CHECK(out[1] == 2);
    OK(ncclBroadcast(root ? in : out + 1, out, 4, ncclInt32, ROOT, c, NULL));
    CHECK(out[3] == 4);
    OK(ncclReduce(in, root ? out : NULL, 2, ncclInt32, ncclSum, ROOT, c, NULL));
    CHECK(!root || out[1] == 2 * RANKS);
    OK(ncclReduce(in, root ? out : in + 1, 2, ncclInt32, ncclSum, ROOT, c, NULL));
    CHECK(in[1] == 2 && in[2] == 3);
    OK(ncclGather(in, root ? out : NULL, 2, ncclInt32, ROOT, c, NULL));
    CHECK(!root || out[2 * RANKS - 1] == 2);
    OK(ncclScatter(root ? in : NULL, out, 2, ncclInt32, ROOT, c, NULL));
    CHECK(out[1] == 2 * rank + 2);
}

static void wrong_places(int rank, ncclComm_t c)
{
    int words[64] = {0};
    CHECK(ncclAllReduce(words, words + 1, 8, ncclInt32, ncclSum, c, NULL) == ncclInvalidArgument);
    CHECK(strstr(ncclGetLastError(NULL), "overlap"));
    CHECK(ncclAllGather(words + 8 * rank + 1, words, 8, ncclInt32, c, NULL) == ncclInvalidArgument);
    CHECK(ncclReduceScatter(words, words + 8 * rank + 1, 8, ncclInt32, ncclSum, c, NULL) ==
          ncclInvalidArgument);
    CHECK(ncclAllReduce(NULL, words, 1, ncclInt32, ncclSum, c, NULL) == ncclInvalidArgument);
    sum_works(c);
    CHECK(ncclSend(words, 1, ncclInt32, rank, c, NULL) == ncclInvalidUsage); /* nobody receives */
    sum_works(c);
}

static void buffers(void)
{
    as_threads(empty);
    as_threads(off_the_root);
    as_threads(wrong_places);
}

/* ---- groups and operators ---- */

static void failed_group(int rank, ncclComm_t c)
{
    int word = rank, out = -1;
    OK(ncclGroupStart());
    OK(ncclGroupStart());
    OK(ncclAllReduce(&word, &out, 1, ncclInt32, ncclSum, c, NULL));
    CHECK(ncclBroadcast(&word, &out, 1, ncclInt32, RANKS, c, NULL) == ncclInvalidArgument);
    OK(ncclGroupEnd());
    CHECK(ncclGroupEnd() == ncclInvalidArgument && strstr(ncclGetLastError(NULL), "root is 3"));
    CHECK(out == -1); /* nothing of it ran */
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    ncclResult_t state = ncclInternalError;
    OK(ncclCommGetAsyncError(c, &state));
    CHECK(state == ncclSuccess);
    sum_works(c);
}

/* nccl-tests and PyTorch end an operator right after the call that uses it. */
static void short_operators(int rank, ncclComm_t c)
{
    float one = (float)rank, sum = 0, factor = 2;
    ncclRedOp_t op, ops[70];
    OK(ncclRedOpCreatePreMulSum(&op, &factor, ncclFloat, ncclScalarHostImmediate, c));
    factor = 100;
    OK(ncclGroupStart());
    OK(ncclAllReduce(&one, &sum, 1, ncclFloat, op, c, NULL));
    OK(ncclRedOpDestroy(op, c));
    OK(ncclGroupEnd());
    CHECK(sum == 2 * (0 + 1 + 2));
    CHECK(ncclRedOpDestroy(op, c) == ncclInvalidArgument);
    CHECK(ncclRedOpDestroy(ncclSum, c) == ncclInvalidArgument);
    CHECK(ncclAllReduce(&one, &sum, 1, ncclFloat, op, c, NULL) == ncclInvalidArgument);
    OK(ncclRedOpCreatePreMulSum(&op, &factor, ncclInt32, ncclScalarHostImmediate, c));
    CHECK(ncclAllReduce(&one, &sum, 1, ncclFloat, op, c, NULL) == ncclInvalidArgument);
    int made = 1; /* until there are too many, which is said and does no harm */
    while (made < 70 && ncclRedOpCreatePreMulSum(&ops[made], &factor, ncclFloat,
                                                 ncclScalarHostImmediate, c) == ncclSuccess)
        made++;
    CHECK(made == 64);
    sum_works(c);
}

static void groups(void)
{
    as_threads(failed_group);
    as_threads(short_operators);
}

/* ---- communicators ---- */

static ncclResult_t settle(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        OK(ncclCommGetAsyncError(comm, &state));
    }
    return state;
}

/* One parent, several children in one group: in the order of the calls. */
static void split_twice(int rank, ncclComm_t c)
{
    enum { ROUNDS = 10 };
    for (int round = 0; round < ROUNDS; round++) {
        ncclComm_t all = NULL, pair = NULL, turned = NULL;
        int count = 0, place = -1;
        OK(ncclGroupStart());
        OK(ncclCommSplit(c, 0, rank, &all, NULL));
        OK(ncclCommSplit(c, rank / 2, rank, &pair, NULL));
        OK(ncclCommSplit(c, 0, -rank, &turned, NULL));
        OK(ncclGroupEnd());
        OK(ncclCommCount(all, &count));
        CHECK(count == RANKS);
        OK(ncclCommCount(pair, &count));
        CHECK(count == (rank < 2 ? 2 : 1));
        OK(ncclCommUserRank(turned, &place));
        CHECK(place == RANKS - 1 - rank);
        sum_works(turned);
        sum_works(pair);
        sum_works(all);
        OK(ncclCommDestroy(all));
        OK(ncclCommDestroy(pair));
        OK(ncclCommDestroy(turned));
    }
}

static void split(int rank, ncclComm_t c)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER, waits = NCCL_CONFIG_INITIALIZER;
    ncclComm_t part = c;
    OK(ncclCommSplit(c, rank == 0 ? NCCL_SPLIT_NOCOLOR : 0, rank, &part, NULL));
    CHECK((part == NULL) == (rank == 0));
    if (part)
        sum_works(part);
    OK(ncclCommDestroy(part));
    OK(ncclCommSplit(c, NCCL_SPLIT_NOCOLOR, rank, &part, NULL));
    CHECK(part == NULL);
    config.blocking = 0;
    const ncclResult_t begun =
        ncclCommSplit(c, rank == 0 ? NCCL_SPLIT_NOCOLOR : 0, rank, &part, &config);
    CHECK(begun == ncclInProgress || begun == ncclSuccess);
    CHECK((part == NULL) == (rank == 0));
    CHECK(settle(c) == ncclSuccess && (!part || settle(part) == ncclSuccess));
    OK(ncclCommDestroy(part));
    /* With an operation of the parent in the same group; and with its resources asked for. */
    int one = 1, sum = 0;
    waits.splitShare = 1;
    waits.commName = "beside an operation";
    OK(ncclGroupStart());
    OK(ncclCommSplit(c, 0, -rank, &part, &waits));
    OK(ncclAllReduce(&one, &sum, 1, ncclInt32, ncclSum, c, NULL));
    OK(ncclGroupEnd());
    CHECK(sum == RANKS);
    sum_works(part);
    OK(ncclCommDestroy(part));
    split_twice(rank, c);
    CHECK(ncclCommSplit(c, -2, 0, &part, NULL) == ncclInvalidArgument);
}

static void shrink(int rank, ncclComm_t c)
{
    ncclComm_t fewer = NULL;
    int beyond = RANKS, below = -1, self = rank, twice[2] = {1, 1}, count = 0;
    CHECK(ncclCommShrink(c, &beyond, 1, &fewer, NULL, 0) == ncclInvalidArgument);
    CHECK(ncclCommShrink(c, &below, 1, &fewer, NULL, 0) == ncclInvalidArgument);
    CHECK(ncclCommShrink(c, &self, 1, &fewer, NULL, 0) == ncclInvalidArgument);
    CHECK(ncclCommShrink(c, &self, 0, &fewer, NULL, 0) == ncclInvalidArgument);
    CHECK(ncclCommShrink(c, twice, 2, &fewer, NULL, 4) == ncclInvalidArgument && !fewer);
    if (rank != 1) {
        OK(ncclCommShrink(c, twice, 2, &fewer, NULL, NCCL_SHRINK_DEFAULT));
        OK(ncclCommCount(fewer, &count));
        CHECK(count == RANKS - 1);
        sum_works(fewer);
        OK(ncclCommDestroy(fewer));
    }
    pthread_barrier_wait(&all_there);
}

enum { MANY = 60 };
static ncclUniqueId many_ids[MANY];

static void many(int rank, ncclComm_t c)
{
    ncclComm_t comms[MANY];
    struct rlimit files; /* 1024 is what most users begin with */
    if (rank == 0 && getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    for (int i = 0; i < MANY && rank == 0; i++)
        OK(ncclGetUniqueId(&many_ids[i]));
    pthread_barrier_wait(&all_there);
    for (int i = 0; i < MANY; i++)
        OK(ncclCommInitRank(&comms[i], RANKS, many_ids[i], rank));
    for (int i = MANY - 1; i >= 0; i--)
        sum_works(comms[i]);
    for (int i = 0; i < MANY; i++)
        OK(ncclCommDestroy(comms[i]));
    sum_works(c);
}

static void *one_id(void *unique)
{
    OK(ncclGetUniqueId(unique));
    return NULL;
}

static void ids(void)
{
    enum { THREADS = 16 };
    static ncclUniqueId all[THREADS];
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++)
        CHECK(pthread_create(&threads[t], NULL, one_id, &all[t]) == 0);
    for (int t = 0; t < THREADS; t++)
        CHECK(pthread_join(threads[t], NULL) == 0);
    for (int t = 0; t < THREADS; t++)
        for (int s = 0; s < t; s++)
            CHECK(memcmp(&all[s], &all[t], sizeof all[s]) != 0);
}

static void ends(void)
{
    ncclComm_t c = NULL, pair[2] = {NULL, NULL};
    const int devices[2] = {0, -1};
    OK(ncclGetUniqueId(&id));
    OK(ncclCommInitRank(&c, 1, id, 0));
    char memory[4096];
    void *handles[2] = {NULL, NULL};
    OK(ncclCommRegister(c, memory, sizeof memory, &handles[0]));
    OK(ncclCommFinalize(c));
    CHECK(ncclCommFinalize(c) == ncclInvalidUsage);
    OK(ncclCommRegister(c, memory, sizeof memory, &handles[1])); /* allocators do so at any time */
    OK(ncclCommDeregister(c, handles[0]));
    OK(ncclCommDeregister(c, handles[1]));
    OK(ncclCommAbort(c));
    OK(ncclCommDestroy(NULL));
    /* The variable goes before what the program says. */
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    OK(ncclGetUniqueId(&id));
    CHECK(setenv("NCCL_COMM_BLOCKING", "0", 1) == 0);
    CHECK(ncclCommInitRankConfig(&c, 1, id, 0, &config) == ncclInProgress);
    CHECK(unsetenv("NCCL_COMM_BLOCKING") == 0 && settle(c) == ncclSuccess);
    OK(ncclCommDestroy(c));
    memset(&id, 0, sizeof id);
    CHECK(ncclCommInitRank(&c, 1, id, 0) == ncclInvalidArgument && !c);
    CHECK(ncclCommInitAll(pair, 2, devices) == ncclInvalidArgument);
    CHECK(ncclCommInitAll(pair, 0, NULL) == ncclInvalidArgument);
}

static void communicators(void)
{
    as_threads(split);
    as_threads(shrink);
    as_threads(many);
    ids();
    ends();
}

/* ---- memory ---- */

static void fill(int *words)
{
    for (int i = 0; i < COUNT; i++)
        words[i] = 1;
}

static void check_sums(int *words, ncclComm_t c)
{
    fill(words);
    OK(ncclAllReduce(words, words, COUNT, ncclInt32, ncclSum, c, NULL));
    CHECK(words[0] == RANKS && words[COUNT - 1] == RANKS);
}

static void registered(int rank, ncclComm_t c)
{
    const size_t bytes = COUNT * sizeof(int);
    int *words = aligned_alloc(4096, bytes);
    void *first = NULL, *again = NULL, *part = NULL;
    OK(ncclCommRegister(c, words, bytes, &first));
    OK(ncclCommRegister(c, words, bytes, &again));
    OK(ncclCommRegister(c, (char *)words + 4000, 1 << 10, &part));
    check_sums(words, c);
    OK(ncclCommDeregister(c, first));
    CHECK(ncclCommDeregister(c, first) == ncclInvalidArgument);
    OK(ncclCommDeregister(c, part));
    OK(ncclCommDeregister(c, again));
    OK(ncclCommDeregister(c, NULL));
    check_sums(words, c);
    free(words);
    /* Freed while it is registered: the communicator ends without looking for it, and leaves alone
     * what has come into its place. */
    const int all = MAP_PRIVATE | MAP_ANONYMOUS;
    words = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, all, -1, 0);
    CHECK(words != MAP_FAILED);
    OK(ncclCommRegister(c, words, bytes, &first));
    OK(ncclCommRegister(c, words + COUNT, bytes, &again));
    check_sums(words, c);
    pthread_barrier_wait(&all_there);
    CHECK(munmap(words, 2 * bytes) == 0);
    CHECK(mmap(words, bytes, PROT_READ | PROT_WRITE, all | MAP_FIXED, -1, 0) == words);
    words[7] = rank + 1;
    OK(ncclCommDestroy(c));
    CHECK(words[7] == rank + 1 && words[8] == 0);
    munmap(words, bytes);
}

static void memory(void)
{
    void *some = NULL, *more = NULL;
    as_threads(registered);
    OK(ncclMemAlloc(&some, 1));
    OK(ncclMemAlloc(&more, 4097));
    CHECK((size_t)some % NCCL_WIN_REQUIRED_ALIGNMENT == 0);
    CHECK((size_t)more % NCCL_WIN_REQUIRED_ALIGNMENT == 0);
    OK(ncclMemFree(some));
    CHECK(ncclMemFree(some) == ncclInvalidArgument);
    CHECK(ncclMemFree((char *)more + 4096) == ncclInvalidArgument);
    OK(ncclMemFree(more));
    OK(ncclMemAlloc(&some, 0));
    CHECK(ncclMemAlloc(&some, (size_t)1 << 55) == ncclSystemError && !some);
}

/* ---- processes ---- */

#ifdef __SANITIZE_ADDRESS__
/* A child looks for leaks at its exit, and for its parent's threads, in vain and now and then
 * without end. What it has is its parent's, who looks itself. */
static bool in_child;

int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void)
{
    return in_child;
}
#endif

/* As workers that load data do: forked from a process that has communicators, and ending by
 * themselves, while these go on. */
static void forked_child(ncclComm_t c, int way)
{
    int word = 1;
#ifdef __SANITIZE_ADDRESS__
    in_child = true;
#endif
    if (way == 1)
        OK(ncclCommDestroy(c));
    if (way == 2)
        OK(ncclCommAbort(c));
    if (way == 3) {
        CHECK(ncclAllReduce(&word, &word, 1, ncclInt32, ncclSum, c, NULL) == ncclInvalidUsage);
        CHECK(strstr(ncclGetLastError(NULL), "forked"));
        CHECK(ncclCommFinalize(c) == ncclInvalidUsage);
    }
    if (way == 4) { /* one of its own */
        ncclUniqueId own;
        ncclComm_t alone = NULL;
        OK(ncclGetUniqueId(&own));
        OK(ncclCommInitRank(&alone, 1, own, 0));
        sum_works(alone);
        OK(ncclCommDestroy(alone));
    }
    exit(0);
}

static void *forking_rank(void *number)
{
    ncclComm_t c = NULL;
    int status = 0;
    OK(ncclCommInitRank(&c, 2, id, *(const int *)number));
    sum_works(c);
    for (int way = 0; way < 5; way++) {
        const pid_t child = fork();
        if (child == 0)
            forked_child(c, way);
        CHECK(waitpid(child, &status, 0) == child && status == 0);
        sum_works(c);
    }
    OK(ncclCommDestroy(c));
    return NULL;
}

static void forks(void)
{
    OK(ncclGetUniqueId(&id));
    CHECK(nccl_ranks_run(2, true, forking_rank) == 0);
}

/* Again and again, and the last time with a communicator left. */
static void unloads(const char *library)
{
    for (int round = 0; round < 3; round++) {
        ncclUniqueId own;
        ncclComm_t c = NULL;
        void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
        CHECK(handle);
        ncclResult_t (*get)(ncclUniqueId *) =
            (ncclResult_t(*)(ncclUniqueId *))dlsym(handle, "ncclGetUniqueId");
        ncclResult_t (*make)(ncclComm_t *, int, ncclUniqueId, int) =
            (ncclResult_t(*)(ncclComm_t *, int, ncclUniqueId, int))dlsym(handle,
                                                                         "ncclCommInitRank");
        ncclResult_t (*end)(ncclComm_t) =
            (ncclResult_t(*)(ncclComm_t))dlsym(handle, "ncclCommDestroy");
        CHECK(get && make && end);
        CHECK(get(&own) == ncclSuccess && make(&c, 1, own, 0) == ncclSuccess);
        CHECK(round == 2 || end(c) == ncclSuccess);
        CHECK(dlclose(handle) == 0);
    }
}

/* What was made without blocking is made by a thread, which tells of its end a moment before: the
 * library stays. */
static void stays(const char *library)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId own;
    ncclComm_t c = NULL;
    ncclResult_t state = ncclInProgress;
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    CHECK(handle);
    ncclResult_t (*get)(ncclUniqueId *) =
        (ncclResult_t(*)(ncclUniqueId *))dlsym(handle, "ncclGetUniqueId");
    ncclResult_t (*make)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *) =
        (ncclResult_t(*)(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *))dlsym(
            handle, "ncclCommInitRankConfig");
    ncclResult_t (*ask)(ncclComm_t, ncclResult_t *) =
        (ncclResult_t(*)(ncclComm_t, ncclResult_t *))dlsym(handle, "ncclCommGetAsyncError");
    ncclResult_t (*end)(ncclComm_t) = (ncclResult_t(*)(ncclComm_t))dlsym(handle, "ncclCommDestroy");
    CHECK(get && make && ask && end);
    config.blocking = 0;
    CHECK(get(&own) == ncclSuccess && make(&c, 1, own, 0, &config) == ncclInProgress);
    while (state == ncclInProgress)
        CHECK(ask(c, &state) == ncclSuccess);
    CHECK(state == ncclSuccess && end(c) == ncclSuccess);
    CHECK(dlclose(handle) == 0 && dlopen(library, RTLD_NOW | RTLD_NOLOAD));
}

static const struct test_named cases[] = {{"buffers", buffers},
                                          {"groups", groups},
                                          {"communicators", communicators},
                                          {"memory", memory},
                                          {"forks", forks}};

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "unloads") == 0) {
        unloads(argv[2]);
        stays(argv[2]);
        return 0;
    }
    return named_run(argc, argv, cases, sizeof cases / sizeof *cases);
}
