/* NCCL on streams, by a program that knows nothing but nccl.h and the CUDA driver (by its symbols):
 * operations are queued and ordered, and can be captured. TUTTI_LIBCUDA names the driver, which may
 * be the one made of the simulated device (tests/device/fake_cuda.c). Two ranks, threads of one
 * process.
 */
#include <nccl.h>

#include "tests/nccl/nccl_check.h"
#include "tests/nccl/nccl_driver.h"

#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

enum { RANKS = 2, COUNT = 5000, MANY = 400000, REPLAYS = 3 };

static struct nccl_driver cu;

#define CU(call)                                                                            \
    do {                                                                                    \
        const unsigned cu_code_ = (call);                                                   \
        if (cu_code_ != 0) {                                                                \
            fprintf(stderr, "%s:%d: %s: error %u of CUDA; %s\n", __FILE__, __LINE__, #call, \
                    cu_code_, ncclGetLastError(NULL));                                      \
            exit(1);                                                                        \
        }                                                                                   \
    } while (0)

struct rank {
    int rank;
    ncclComm_t comm;
    cudaStream_t stream, other;
    device_pointer in, out;
    int32_t *host; /* page-locked: to copy other memory holds up who shares the process */
};

enum { BYTES = COUNT * sizeof(int32_t) };

static ncclUniqueId id;

static void write_in(struct rank *r, int value, cudaStream_t stream)
{
    for (int i = 0; i < COUNT; i++)
        r->host[i] = value;
    CU(cu.copy(r->in, (device_pointer)(uintptr_t)r->host, BYTES, stream));
    CU(cu.finish(stream));
}

static void expect(struct rank *r, int value, cudaStream_t stream)
{
    memset(r->host, 0x77, BYTES);
    CU(cu.copy((device_pointer)(uintptr_t)r->host, r->out, BYTES, stream));
    CU(cu.finish(stream));
    for (int i = 0; i < COUNT; i++)
        CHECK(r->host[i] == value);
}

static void *in(const struct rank *r)
{
    return (void *)(uintptr_t)r->in;
}

static void *out(const struct rank *r)
{
    return (void *)(uintptr_t)r->out;
}

/* One after the other, on one stream and across two. */
static void order(struct rank *r)
{
    write_in(r, r->rank + 1, r->stream);
    OK(ncclAllReduce(in(r), out(r), COUNT, ncclInt32, ncclSum, r->comm, r->stream)); /* 3 */
    OK(ncclAllReduce(out(r), in(r), COUNT, ncclInt32, ncclSum, r->comm, r->stream)); /* 6 */
    OK(ncclAllReduce(in(r), out(r), COUNT, ncclInt32, ncclProd, r->comm, r->other)); /* 36 */
    expect(r, 36, r->other);
    OK(ncclGroupStart());
    OK(ncclSend(out(r), COUNT, ncclInt32, 1 - r->rank, r->comm, r->other));
    OK(ncclRecv(in(r), COUNT, ncclInt32, 1 - r->rank, r->comm, r->other));
    OK(ncclGroupEnd());
    OK(ncclBroadcast(in(r), out(r), COUNT, ncclInt32, 1, r->comm, r->other));
    expect(r, 36, r->other);
}

/* What this stream does from here on, once, is to be done again. The stand-in driver refuses to
 * wait for a stream while anybody captures, so all ranks capture at the same time. */
static pthread_barrier_t all_there;

static void begin(struct rank *r)
{
    enum { THREAD_LOCAL = 1 };
    pthread_barrier_wait(&all_there);
    CU(cu.capture_begin(r->stream, THREAD_LOCAL));
}

static void *recorded(struct rank *r)
{
    void *graph = NULL, *exec = NULL;
    CU(cu.capture_end(r->stream, &graph));
    pthread_barrier_wait(&all_there);
    CU(cu.make(&exec, graph, 0));
    CU(cu.graph_free(graph));
    return exec;
}

/* Captured before it ever ran here, and replayed with new contents. */
static void capture(struct rank *r)
{
    begin(r);
    OK(ncclAllReduce(in(r), out(r), COUNT, ncclInt32, ncclSum, r->comm, r->stream));
    OK(ncclAllReduce(out(r), out(r), COUNT, ncclInt32, ncclMax, r->comm, r->stream));
    void *exec = recorded(r);
    for (int k = 0; k < REPLAYS; k++) {
        write_in(r, (k + 1) * (r->rank + 1), r->stream);
        CU(cu.launch(exec, r->stream));
        expect(r, 3 * (k + 1), r->stream);
    }
    CU(cu.exec_free(exec));
}

/* A message each way, and then the half of it that is for each. */
static void moves(struct rank *r)
{
    OK(ncclGroupStart());
    OK(ncclSend(in(r), COUNT, ncclInt32, 1 - r->rank, r->comm, r->stream));
    OK(ncclRecv(out(r), COUNT, ncclInt32, 1 - r->rank, r->comm, r->stream));
    OK(ncclGroupEnd());
    OK(ncclAlltoAll(out(r), in(r), COUNT / RANKS, ncclInt32, r->comm, r->stream));
    OK(ncclGather(in(r), out(r), COUNT / RANKS, ncclInt32, 0, r->comm, r->stream));
    OK(ncclBroadcast(out(r), out(r), COUNT, ncclInt32, 0, r->comm, r->stream));
    OK(ncclReduce(out(r), out(r), COUNT, ncclInt32, ncclSum, 1, r->comm, r->stream));
}

/* An all-gather of blocks that differ in size, as programs write it: a group of broadcasts, which
 * may have a stream each. */
enum { FIRST = COUNT / 5 };

static void gather(struct rank *r, cudaStream_t second)
{
    OK(ncclGroupStart());
    OK(ncclBroadcast(in(r), out(r), FIRST, ncclInt32, 0, r->comm, r->stream));
    OK(ncclBroadcast(in(r), (int32_t *)out(r) + FIRST, COUNT - FIRST, ncclInt32, 1, r->comm,
                     second));
    OK(ncclGroupEnd());
}

static void expect_gathered(struct rank *r, int value, cudaStream_t stream)
{
    memset(r->host, 0x77, BYTES);
    CU(cu.copy((device_pointer)(uintptr_t)r->host, r->out, BYTES, stream));
    CU(cu.finish(stream));
    for (int i = 0; i < COUNT; i++)
        CHECK(r->host[i] == value + (i >= FIRST));
}

/* Captured and replayed, and called, with new contents each time: `fill` writes what follows from a
 * value and the rank, of which `check` expects the result. */
static void uneven(struct rank *r, void (*call)(struct rank *, cudaStream_t),
                   void (*fill)(struct rank *, int, cudaStream_t),
                   void (*check)(struct rank *, int, cudaStream_t))
{
    begin(r);
    call(r, r->stream);
    void *exec = recorded(r);
    for (int k = 0; k < REPLAYS; k++) {
        fill(r, 10 * k + r->rank, r->stream);
        CU(cu.launch(exec, r->stream));
        check(r, 10 * k, r->stream);
        fill(r, 20 * k + 5 + r->rank, r->stream);
        call(r, r->other);
        check(r, 20 * k + 5, k % 2 ? r->stream : r->other);
    }
    CU(cu.exec_free(exec));
}

/* A reduce-scatter of such blocks, the second of them first in memory: a group of reduces. What is
 * not of the own block stays as it was. */
static void scatter(struct rank *r, cudaStream_t second)
{
    int32_t *blocks = in(r);
    OK(ncclGroupStart());
    OK(ncclReduce(blocks + COUNT - FIRST, out(r), FIRST, ncclInt32, ncclSum, 0, r->comm,
                  r->stream));
    OK(ncclReduce(blocks, out(r), COUNT - FIRST, ncclInt32, ncclSum, 1, r->comm, second));
    OK(ncclGroupEnd());
}

static void expect_scattered(struct rank *r, int value, cudaStream_t stream)
{
    const int own = r->rank == 0 ? FIRST : COUNT - FIRST;
    CU(cu.copy((device_pointer)(uintptr_t)r->host, r->out, BYTES, stream));
    CU(cu.finish(stream));
    for (int i = 0; i < COUNT; i++)
        CHECK(r->host[i] == (i < own ? 2 * value + 1 : -1));
}

/* All of `out` is -1; then `in` is filled. */
static void scatter_from(struct rank *r, int value, cudaStream_t stream)
{
    write_in(r, -1, stream);
    CU(cu.copy(r->out, r->in, BYTES, stream));
    CU(cu.finish(stream));
    write_in(r, value, stream);
}

static void captured_moves(struct rank *r)
{
    begin(r);
    moves(r);
    void *exec = recorded(r);
    for (int k = 0; k < REPLAYS; k++) {
        write_in(r, 5 + k, r->stream);
        CU(cu.launch(exec, r->stream));
        expect(r, (r->rank + 1) * (5 + k), r->stream);
        write_in(r, 7 + k, r->stream);
        moves(r);
        expect(r, (r->rank + 1) * (7 + k), r->stream);
    }
    CU(cu.exec_free(exec));
}

/* Into the other's window; what lands there is what the stream had made before. Then once more
 * backwards, so that nobody puts again into what has not been read. */
static void put(struct rank *r, ncclWindow_t window)
{
    ncclWaitSignalDesc_t told = {.opCnt = 1, .peer = 1 - r->rank, .sigIdx = 3};
    ncclWaitSignalDesc_t read = {.opCnt = 1, .peer = 1 - r->rank, .sigIdx = 4};
    OK(ncclAllReduce(in(r), in(r), COUNT, ncclInt32, ncclSum, r->comm, r->stream));
    OK(ncclPutSignal(in(r), COUNT, ncclInt32, 1 - r->rank, window, 0, 3, 0, 0, r->comm, r->stream));
    OK(ncclWaitSignal(1, &told, r->comm, r->stream));
    OK(ncclAllReduce(out(r), out(r), COUNT, ncclInt32, ncclSum, r->comm, r->stream));
    OK(ncclSignal(1 - r->rank, 4, 0, 0, r->comm, r->stream));
    OK(ncclWaitSignal(1, &read, r->comm, r->stream));
}

static void puts_in_order(struct rank *r)
{
    ncclWindow_t window = NULL;
    OK(ncclCommWindowRegister(r->comm, out(r), BYTES, &window, NCCL_WIN_DEFAULT));
    begin(r);
    put(r, window);
    void *exec = recorded(r);
    for (int k = 0; k < REPLAYS; k++) {
        write_in(r, k + r->rank, r->stream);
        CU(cu.launch(exec, r->stream));
        expect(r, 2 * (2 * k + 1), r->stream);
        write_in(r, 100 * k + r->rank, r->stream);
        put(r, window);
        expect(r, 2 * (200 * k + 1), r->stream);
    }
    CU(cu.exec_free(exec));
    OK(ncclCommWindowDeregister(r->comm, window));
}

/* A group whose send and receive have streams of their own: they need each other at both ends, so
 * they are one, which comes after what both streams have; and both wait for it. The message is more
 * than what goes without its receiver. */
static void exchange_across(struct rank *r, void *from, void *to, cudaStream_t first)
{
    const cudaStream_t second = first == r->stream ? r->other : r->stream;
    OK(ncclGroupStart());
    OK(ncclSend(from, MANY, ncclInt32, 1 - r->rank, r->comm, first));
    OK(ncclRecv(to, MANY, ncclInt32, 1 - r->rank, r->comm, second));
    OK(ncclGroupEnd());
}

static void several_streams(struct rank *r)
{
    enum { GEQ = 0 };
    int32_t *late = NULL;
    uint32_t *word = NULL;
    device_pointer from = 0, to = 0;
    CU(cu.alloc_host((void **)&late, MANY * sizeof *late, 0));
    CU(cu.alloc_host((void **)&word, sizeof *word, 0));
    CU(cu.alloc(&from, MANY * sizeof *late));
    CU(cu.alloc(&to, MANY * sizeof *late));
    for (int k = 0; k < REPLAYS; k++) {
        const cudaStream_t first = k % 2 ? r->other : r->stream;
        const cudaStream_t second = k % 2 ? r->stream : r->other;
        for (int i = 0; i < MANY; i++)
            late[i] = 1000 * k + r->rank + i;
        __atomic_store_n(word, 0, __ATOMIC_RELEASE);
        /* What is sent is written on the receive's stream, and after the group was queued. */
        CU(cu.hold(second, (device_pointer)(uintptr_t)word, 1, GEQ));
        CU(cu.copy(from, (device_pointer)(uintptr_t)late, MANY * sizeof *late, second));
        exchange_across(r, (void *)(uintptr_t)from, (void *)(uintptr_t)to, first);
        __atomic_store_n(word, 1, __ATOMIC_RELEASE);
        CU(cu.finish(second));
        CU(cu.copy((device_pointer)(uintptr_t)late, to, MANY * sizeof *late, second));
        CU(cu.finish(second));
        for (int i = 0; i < MANY; i++)
            CHECK(late[i] == 1000 * k + 1 - r->rank + i);
        CU(cu.finish(first));
    }
    begin(r); /* the other stream is in no capture */
    OK(ncclGroupStart());
    OK(ncclSend(in(r), COUNT, ncclInt32, 1 - r->rank, r->comm, r->stream));
    OK(ncclRecv(out(r), COUNT, ncclInt32, 1 - r->rank, r->comm, r->other));
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
    CHECK(strstr(ncclGetLastError(r->comm), "same capture"));
    CU(cu.exec_free(recorded(r)));
    CU(cu.free(from));
    CU(cu.free(to));
    CU(cu.free_host(late));
    CU(cu.free_host(word));
}

/* The factor is what earlier work on the stream leaves there. */
static void factor(struct rank *r)
{
    ncclRedOp_t op = ncclSum;
    device_pointer scalar = 0;
    CU(cu.alloc(&scalar, sizeof *r->host));
    write_in(r, 2, r->stream);
    r->host[0] = 10 + r->rank;
    OK(ncclRedOpCreatePreMulSum(&op, (void *)(uintptr_t)scalar, ncclInt32, ncclScalarDevice,
                                r->comm));
    CU(cu.copy(scalar, (device_pointer)(uintptr_t)r->host, sizeof *r->host, r->stream));
    OK(ncclAllReduce(in(r), out(r), COUNT, ncclInt32, op, r->comm, r->stream));
    OK(ncclRedOpDestroy(op, r->comm));
    expect(r, 42, r->stream);
    CU(cu.free(scalar));
}

/* Rank 1 aborts when all that was queued and all graphs that were launched are over. That is no
 * failure of what rank 0 had done, though graphs of it are left. */
static void leave(struct rank *r)
{
    const struct timespec until_heard = {.tv_nsec = 400000000};
    if (r->rank == 1)
        OK(ncclCommAbort(r->comm));
    pthread_barrier_wait(&all_there);
    if (r->rank == 1)
        return;
    nanosleep(&until_heard, NULL);
    OK(ncclCommFinalize(r->comm));
    OK(ncclCommDestroy(r->comm));
}

static void *rank_main(void *argument)
{
    static struct rank all[RANKS];
    struct rank *r = &all[*(int *)argument];
    void *context = NULL;
    int device = -1;
    r->rank = *(int *)argument;
    CU(cu.retain(&context, 0));
    CU(cu.push(context));
    CU(cu.stream_create(&r->stream, 1));
    CU(cu.stream_create(&r->other, 1));
    CU(cu.alloc_host((void **)&r->host, BYTES, 0));
    CU(cu.alloc(&r->in, BYTES));
    CU(cu.alloc(&r->out, BYTES));
    OK(ncclCommInitRank(&r->comm, RANKS, id, r->rank));
    OK(ncclCommCuDevice(r->comm, &device));
    CHECK(device == 0);
    capture(r); /* first: making the communicator has set up all that it takes */
    order(r);
    several_streams(r);
    captured_moves(r);
    uneven(r, gather, write_in, expect_gathered);
    uneven(r, scatter, scatter_from, expect_scattered);
    puts_in_order(r);
    factor(r);
    /* Graphs may have the addresses of its memory. */
    CHECK(ncclCommSuspend(r->comm, NCCL_SUSPEND_MEM) == ncclInvalidArgument);
    CHECK(strstr(ncclGetLastError(NULL), "captured"));
    ncclResult_t state = ncclInProgress;
    OK(ncclCommGetAsyncError(r->comm, &state));
    CHECK(state == ncclSuccess);
    pthread_barrier_wait(&all_there);
    leave(r);
    CU(cu.free_host(r->host));
    CU(cu.free(r->in));
    CU(cu.free(r->out));
    CU(cu.stream_destroy(r->stream));
    CU(cu.stream_destroy(r->other));
    CU(cu.pop(&context));
    CU(cu.release(0));
    return NULL;
}

int main(void)
{
    static int numbers[RANKS] = {0, 1};
    pthread_t threads[RANKS];
    nccl_driver_load(&cu);
    CU(cu.init(0));
    CHECK(pthread_barrier_init(&all_there, NULL, RANKS) == 0);
    OK(ncclGetUniqueId(&id));
    for (int r = 0; r < RANKS; r++)
        CHECK(pthread_create(&threads[r], NULL, rank_main, &numbers[r]) == 0);
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    puts("streams and captured graphs are right");
    return 0;
}
