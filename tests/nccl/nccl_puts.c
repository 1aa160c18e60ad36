/* A program that knows nothing but nccl.h: puts into windows, signals, waits. As nccl_program, on
 * host memory or, with TUTTI_DEVICE=sim, on memory of the simulated device.
 *
 *     nccl_puts CASE RANKS [--processes] [--malloc] */
#include <nccl.h>

#include "tests/nccl/nccl_check.h"
#include "tests/nccl/nccl_ranks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST = NCCL_RANKS_MOST, WORDS = 1 << 20, ROUNDS = 50, SOME = 3000 };

struct job {
    int rank, n;
    ncclComm_t comm;
    uint32_t *in, *out; /* WORDS each */
    ncclWindow_t window;
};

/* What the ranks share beside the library, in processes too. */
static struct shared {
    _Atomic int puts, over;
} * shared;

static bool with_malloc;
static ncclUniqueId id;
static int ranks;

static void *memory_new(size_t bytes)
{
    void *memory = NULL;
    if (with_malloc)
        memory = malloc(bytes);
    else
        OK(ncclMemAlloc(&memory, bytes));
    CHECK(memory);
    return memory;
}

static void memory_free(void *memory)
{
    if (with_malloc)
        free(memory);
    else
        OK(ncclMemFree(memory));
}

static uint32_t word(int from, int to, int round, size_t i)
{
    return (uint32_t)(((from * 8 + to) * 1000 + round) * 7919 + (int)(i & 0xffff)) + (uint32_t)i;
}

static void fill(uint32_t *at, int from, int to, int round, size_t count)
{
    for (size_t i = 0; i < count; i++)
        at[i] = word(from, to, round, i);
}

static void check(const uint32_t *at, int from, int to, int round, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (at[i] != word(from, to, round, i)) {
            fprintf(stderr, "rank %d: word %zu of round %d from rank %d is 0x%x, not 0x%x\n", to, i,
                    round, from, at[i], word(from, to, round, i));
            exit(1);
        }
}

static void await(struct job *j, int peer, int index, int count)
{
    ncclWaitSignalDesc_t wait = {.opCnt = count, .peer = peer, .sigIdx = index};
    OK(ncclWaitSignal(1, &wait, j->comm, NULL));
}

static void put_words(struct job *j, const uint32_t *from, size_t count, int peer,
                      ncclWindow_t window, size_t at)
{
    OK(ncclPutSignal(from, count, ncclUint32, peer, window, at * sizeof *from, 0, 0, 0, j->comm,
                     NULL));
}

/* ---- cases ---- */

/* Around the ring, many times: what a round left is read before its sender may put again. */
static void rounds(struct job *j)
{
    const int next = (j->rank + 1) % j->n, last = (j->rank + j->n - 1) % j->n;
    for (int round = 0; round < ROUNDS; round++) {
        const size_t count = round % 10 == 9 ? WORDS : (size_t)round * 97 + 1;
        fill(j->in, j->rank, next, round, count);
        put_words(j, j->in, count, next, j->window, 0);
        memset(j->in, 0xee, count * sizeof *j->in); /* it is the caller's again */
        await(j, last, 0, 1);
        check(j->out, last, j->rank, round, count);
        OK(ncclSignal(last, 1, 0, 0, j->comm, NULL)); /* read */
        await(j, next, 1, 1);
    }
}

/* One after the other to the same place: the signal of the last tells that it is the last. */
static void orders(struct job *j)
{
    const int next = (j->rank + 1) % j->n, last = (j->rank + j->n - 1) % j->n;
    const size_t sizes[] = {WORDS / 2, 5, 40000, 1, 3000, WORDS / 4, 100};
    const int many = (int)(sizeof sizes / sizeof *sizes);
    for (int k = 0; k < many; k++) {
        fill(j->in, j->rank, next, k, sizes[k]);
        put_words(j, j->in, sizes[k], next, j->window, 0);
    }
    await(j, last, 0, many);
    check(j->out, last, j->rank, many - 1, sizes[many - 1]);
    OK(ncclSignal(last, 1, 0, 0, j->comm, NULL));
    await(j, next, 1, 1);
}

/* Thousands of signals of several numbers, waited for in another order and in portions. */
static void signals(struct job *j)
{
    ncclWaitSignalDesc_t waits[MOST];
    for (int k = 0; k < SOME; k++)
        for (int p = 0; p < j->n; p++)
            OK(ncclSignal(p, k % 3, 0, 0, j->comm, NULL));
    for (int index = 2; index >= 0; index--)
        for (int part = 0; part < 4; part++) {
            for (int p = 0; p < j->n; p++)
                waits[p] = (ncclWaitSignalDesc_t){
                    .opCnt = SOME / 12, .peer = j->n - 1 - p, .sigIdx = index};
            OK(ncclWaitSignal(j->n, waits, j->comm, NULL));
        }
}

/* Several windows, of other sizes at other ranks; to the own rank too; without bytes. */
static void windows(struct job *j)
{
    enum { MORE = 6 };
    ncclWindow_t all[MORE];
    uint32_t *memory[MORE];
    for (int w = 0; w < MORE; w++) {
        const size_t bytes = (size_t)(1000 * (w + 1) + 100 * j->rank) * sizeof(uint32_t);
        memory[w] = memory_new(bytes);
        OK(ncclCommWindowRegister(j->comm, memory[w], bytes, &all[w], NCCL_WIN_COLL_SYMMETRIC));
    }
    for (int w = 0; w < MORE; w++)
        for (int p = 0; p < j->n; p++) {
            fill(j->in, j->rank, p, w, 100);
            put_words(j, j->in, 100, p, all[w], 100 * (size_t)j->rank);
        }
    for (int p = 0; p < j->n; p++) {
        OK(ncclPutSignal(NULL, 0, ncclUint32, p, all[0], 0, 2, 0, 0, j->comm, NULL));
        await(j, p, 2, 1);
        await(j, p, 0, MORE);
        for (int w = 0; w < MORE; w++)
            check(memory[w] + 100 * p, p, j->rank, w, 100);
    }
    /* The last word of the last rank's, and one more. */
    const int p = j->n - 1;
    const size_t end = (size_t)(1000 + 100 * p);
    if (j->rank == 0) {
        put_words(j, j->in, 1, p, all[0], end - 1);
        CHECK(ncclPutSignal(j->in, 2, ncclUint32, p, all[0], (end - 1) * 4, 0, 0, 0, j->comm,
                            NULL) == ncclInvalidArgument);
        CHECK(strstr(ncclGetLastError(j->comm), "beyond the end of the window"));
    }
    if (j->rank == p)
        await(j, 0, 0, 1);
    for (int w = 0; w < MORE; w++) {
        OK(ncclAllReduce(j->in, j->in, 1, ncclUint32, ncclSum, j->comm,
                         NULL)); /* all are through */
        OK(ncclCommWindowDeregister(j->comm, all[w]));
        memory_free(memory[w]);
    }
}

/* All at once with collectives, sends and receives, in one group. */
static void groups(struct job *j)
{
    const int next = (j->rank + 1) % j->n, last = (j->rank + j->n - 1) % j->n;
    const size_t part = 5000;
    uint32_t *sum = memory_new(16), *got = memory_new(16);
    ncclWaitSignalDesc_t waits[MOST];
    for (int round = 0; round < 20; round++) {
        for (int p = 0; p < j->n; p++) {
            fill(j->in + (size_t)p * part, j->rank, p, round, part);
            waits[p] = (ncclWaitSignalDesc_t){.opCnt = 1, .peer = p, .sigIdx = 3};
        }
        sum[0] = 1;
        OK(ncclGroupStart());
        for (int p = 0; p < j->n; p++)
            OK(ncclPutSignal(j->in + (size_t)p * part, part, ncclUint32, p, j->window,
                             (size_t)j->rank * part * 4, 3, 0, 0, j->comm, NULL));
        OK(ncclSend(j->in, 4, ncclUint32, next, j->comm, NULL));
        OK(ncclRecv(got, 4, ncclUint32, last, j->comm, NULL));
        OK(ncclWaitSignal(j->n, waits, j->comm, NULL));
        OK(ncclAllReduce(sum, sum, 1, ncclUint32, ncclSum, j->comm, NULL));
        OK(ncclGroupEnd());
        CHECK(sum[0] == (uint32_t)j->n);
        check(got, last, 0, round, 4);
        for (int p = 0; p < j->n; p++)
            check(j->out + (size_t)p * part, p, j->rank, round, part);
        OK(ncclAllReduce(sum, sum, 1, ncclUint32, ncclSum, j->comm, NULL)); /* all have read */
    }
    memory_free(sum);
    memory_free(got);
}

/* Puts end, and are in place, while their target is in no call at all. */
static void absent(struct job *j)
{
    if (j->rank > 0) {
        fill(j->in, j->rank, 0, 1, WORDS / 4);
        put_words(j, j->in, WORDS / 4, 0, j->window, (size_t)(j->rank - 1) * (WORDS / 4));
        atomic_fetch_add(&shared->puts, 1);
        return;
    }
    while (atomic_load(&shared->puts) < j->n - 1) /* no call of the library */
        usleep(1000);
    for (int p = 1; p < j->n; p++) {
        await(j, p, 0, 1);
        check(j->out + (size_t)(p - 1) * (WORDS / 4), p, 0, 1, WORDS / 4);
    }
}

static void refusals(struct job *j)
{
    ncclWaitSignalDesc_t wait = {.opCnt = 1};
    ncclWindow_t wrong = (ncclWindow_t)(void *)j->in;
    ncclComm_t c = j->comm;
#define NOT(call, text)                                   \
    do {                                                  \
        CHECK((call) == ncclInvalidArgument);             \
        CHECK(strstr(ncclGetLastError(j->comm), (text))); \
    } while (0)
    NOT(ncclPutSignal(j->in, 1, ncclUint32, 0, NULL, 0, 0, 0, 0, c, NULL), "no window");
    NOT(ncclPutSignal(j->in, 1, ncclUint32, 0, wrong, 0, 0, 0, 0, c, NULL), "no window");
    NOT(ncclPutSignal(j->in, 1, ncclUint32, j->n, j->window, 0, 0, 0, 0, c, NULL), "peer");
    NOT(ncclPutSignal(j->in, 1, ncclUint32, -1, j->window, 0, 0, 0, 0, c, NULL), "peer");
    NOT(ncclPutSignal(NULL, 1, ncclUint32, 0, j->window, 0, 0, 0, 0, c, NULL), "NULL");
    NOT(ncclPutSignal(j->in, 1, ncclNumTypes, 0, j->window, 0, 0, 0, 0, c, NULL), "type");
    NOT(ncclPutSignal(j->in, WORDS, ncclUint32, 0, j->window, 4, 0, 0, 0, c, NULL), "beyond");
    NOT(ncclPutSignal(j->in, 1, ncclUint32, 0, j->window, SIZE_MAX, 0, 0, 0, c, NULL), "beyond");
    NOT(ncclPutSignal(j->in, SIZE_MAX, ncclUint32, 0, j->window, 0, 0, 0, 0, c, NULL), "beyond");
    NOT(ncclPutSignal(j->in, 1, ncclUint32, 0, j->window, 0, -1, 0, 0, c, NULL), "signal -1");
    NOT(ncclPutSignal(j->in, 1, ncclUint32, 0, j->window, 0, 0, 1, 0, c, NULL), "context 1");
    NOT(ncclPutSignal(j->in, 1, ncclUint32, 0, j->window, 0, 0, 0, 1, c, NULL), "flags");
    NOT(ncclSignal(j->n, 0, 0, 0, c, NULL), "peer");
    NOT(ncclSignal(0, 8, 0, 0, c, NULL), "signal 8");
    NOT(ncclSignal(0, 0, 0, 2, c, NULL), "flags");
    NOT(ncclWaitSignal(0, &wait, c, NULL), "0 descriptions");
    NOT(ncclWaitSignal(1, NULL, c, NULL), "descriptions");
    wait.opCnt = 0;
    NOT(ncclWaitSignal(1, &wait, c, NULL), "0 signals");
    wait.opCnt = 1;
    wait.peer = j->n;
    NOT(ncclWaitSignal(1, &wait, c, NULL), "from rank");
    OK(ncclGroupStart());
    NOT(ncclSignal(-1, 0, 0, 0, c, NULL), "peer");
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    ncclResult_t state = ncclInternalError;
    OK(ncclCommGetAsyncError(c, &state));
    CHECK(state == ncclSuccess);
}

/* No window was there, ever. */
static void unprepared(struct job *j)
{
    ncclWaitSignalDesc_t wait = {.opCnt = 1};
    CHECK(ncclSignal(0, 0, 0, 0, j->comm, NULL) == ncclInvalidUsage);
    CHECK(strstr(ncclGetLastError(j->comm), "no window yet"));
    CHECK(ncclWaitSignal(1, &wait, j->comm, NULL) == ncclInvalidUsage);
}

/* What the kernel has at this address: "" for the program's own memory. */
static void mapped_there(const void *at, char name[64])
{
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "r");
    CHECK(maps);
    name[0] = 0;
    while (fgets(line, sizeof line, maps)) {
        unsigned long first = 0, end = 0;
        CHECK(sscanf(line, "%lx-%lx", &first, &end) == 2);
        if ((unsigned long)at >= first && (unsigned long)at < end)
            (void)sscanf(line, "%*s %*s %*s %*s %*s %63s", name);
    }
    fclose(maps);
}

/* Windows of a group that fails are not made, and their memory is the program's again. */
static void dropped(struct job *j)
{
    const size_t bytes = 1 << 20;
    ncclWindow_t window = NULL, other = NULL;
    char name[64];
    void *memory =
        mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memset(memory, j->rank + 1, 2 * bytes);
    OK(ncclGroupStart());
    OK(ncclCommWindowRegister(j->comm, memory, bytes, &window, NCCL_WIN_DEFAULT));
    OK(ncclCommWindowRegister(j->comm, (char *)memory + bytes, bytes, &other, NCCL_WIN_DEFAULT));
    mapped_there(memory, name);
    CHECK(name[0]); /* registered: where peers can map it, or this would show nothing */
    CHECK(ncclSignal(0, -1, 0, 0, j->comm, NULL) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    CHECK(!window && !other);
    for (size_t at = 0; at < 2 * bytes; at += bytes) {
        mapped_there((char *)memory + at, name);
        if (name[0]) {
            fprintf(stderr, "rank %d: %s is where the program's memory was\n", j->rank, name);
            exit(1);
        }
        CHECK(((char *)memory)[at + bytes / 2] == j->rank + 1);
    }
    munmap(memory, 2 * bytes);
}

static void everything(struct job *j)
{
    rounds(j);
    orders(j);
    signals(j);
    windows(j);
    groups(j);
    absent(j);
    refusals(j);
}

/* Nobody ends the communicator while another one still looks at its result. */
static void all_over(int n)
{
    atomic_fetch_add(&shared->over, 1);
    while (atomic_load(&shared->over) < n)
        usleep(1000);
}

/* The last rank dies without having signalled: who waits for it hears who it was. */
static void dies(struct job *j)
{
    ncclWaitSignalDesc_t wait = {.opCnt = 2, .peer = j->n - 1};
    char name[32];
    snprintf(name, sizeof name, "rank %d", j->n - 1);
    if (j->rank == j->n - 1) {
        for (int p = 0; p < j->n - 1; p++)
            OK(ncclSignal(p, 0, 0, 0, j->comm, NULL));
        for (int p = 0; p < j->n - 1; p++)
            await(j, p, 1, 1);
        _exit(0);
    }
    await(j, j->n - 1, 0, 1);
    OK(ncclSignal(j->n - 1, 1, 0, 0, j->comm, NULL));
    const ncclResult_t result = ncclWaitSignal(1, &wait, j->comm, NULL);
    if (result != ncclRemoteError || !strstr(ncclGetLastError(j->comm), name)) {
        fprintf(stderr, "rank %d: %d: %s\n", j->rank, (int)result, ncclGetLastError(j->comm));
        exit(1);
    }
    CHECK(ncclSignal(0, 0, 0, 0, j->comm, NULL) == ncclRemoteError);
    all_over(j->n - 1);
    OK(ncclCommAbort(j->comm));
    exit(0);
}

/* Signals that never come (TUTTI_TIMEOUT is short); the others learn it, too. */
static void late(struct job *j)
{
    ncclWaitSignalDesc_t wait = {.opCnt = 3, .peer = j->n - 1};
    if (j->rank == j->n - 1)
        OK(ncclSignal(0, 0, 0, 0, j->comm, NULL));
    ncclResult_t result = ncclSuccess;
    if (j->rank == 0)
        result = ncclWaitSignal(1, &wait, j->comm, NULL);
    while (j->rank > 0 && result == ncclSuccess) {
        usleep(10000);
        OK(ncclCommGetAsyncError(j->comm, &result));
    }
    if (result != ncclTimeout ||
        !strstr(ncclGetLastError(j->comm), "has not sent all of the 3 signals 0") ||
        (j->rank == 0 && !strstr(ncclGetLastError(j->comm), "of 3 signals 0 from rank"))) {
        fprintf(stderr, "rank %d: %d: %s\n", j->rank, (int)result, ncclGetLastError(j->comm));
        exit(1);
    }
}

/* The ranks call different things: a window here, an all-reduce there. */
static void mismatch(struct job *j)
{
    ncclWindow_t window = NULL;
    ncclResult_t result =
        j->rank == 0
            ? ncclCommWindowRegister(j->comm, j->in, 4096, &window, NCCL_WIN_COLL_SYMMETRIC)
            : ncclAllReduce(j->in, j->out, 12, ncclFloat32, ncclSum, j->comm, NULL);
    if (result != ncclInvalidUsage || !strstr(ncclGetLastError(j->comm), "all_reduce")) {
        fprintf(stderr, "rank %d: %d: %s\n", j->rank, (int)result, ncclGetLastError(j->comm));
        exit(1);
    }
    CHECK(!window);
}

static const struct {
    const char *name;
    void (*run)(struct job *);
    bool without_window, fails;
} cases[] = {{"everything", everything, false, false},
             {"unprepared", unprepared, true, false},
             {"dies", dies, false, true},
             {"late", late, false, true},
             {"mismatch", mismatch, false, true},
             {"absent", absent, false, false},
             {"dropped", dropped, true, false},
             {"groups", groups, false, false}};
static int chosen = -1;

/* ---- ranks ---- */

static void *rank_main(void *argument)
{
    struct job j = {.rank = *(int *)argument, .n = ranks};
    OK(ncclCommInitRank(&j.comm, j.n, id, j.rank));
    j.in = memory_new((size_t)WORDS * sizeof *j.in);
    j.out = memory_new((size_t)WORDS * sizeof *j.out);
    memset(j.in, 0, (size_t)WORDS * sizeof *j.in);
    if (!cases[chosen].without_window)
        OK(ncclCommWindowRegister(j.comm, j.out, (size_t)WORDS * sizeof *j.out, &j.window,
                                  NCCL_WIN_COLL_SYMMETRIC));
    cases[chosen].run(&j);
    if (j.window && !cases[chosen].fails) {
        OK(ncclAllReduce(j.in, j.in, 1, ncclUint32, ncclSum, j.comm, NULL)); /* all are through */
        OK(ncclCommWindowDeregister(j.comm, j.window));
    }
    if (cases[chosen].fails)
        all_over(j.n);
    OK(cases[chosen].fails ? ncclCommAbort(j.comm) : ncclCommDestroy(j.comm));
    memory_free(j.in);
    memory_free(j.out);
    return NULL;
}

int main(int argc, char **argv)
{
    bool processes = false;
    for (size_t c = 0; argc > 2 && c < sizeof cases / sizeof *cases; c++)
        if (strcmp(argv[1], cases[c].name) == 0)
            chosen = (int)c;
    ranks = argc > 2 ? atoi(argv[2]) : 0;
    for (int i = 3; i < argc; i++) {
        processes = processes || strcmp(argv[i], "--processes") == 0;
        with_malloc = with_malloc || strcmp(argv[i], "--malloc") == 0;
    }
    CHECK(chosen >= 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    OK(ncclGetUniqueId(&id));
    if (nccl_ranks_run(ranks, processes, rank_main) > 0)
        return 1;
    if (!processes)
        puts("everything is in place");
    return 0;
}
