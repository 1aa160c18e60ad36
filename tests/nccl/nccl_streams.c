/* NCCL on streams, by a program that knows nothing but nccl.h and the CUDA driver (by its symbols):
 * operations are queued and ordered, and can be captured. TUTTI_LIBCUDA names the driver, which may
 * be the one made of the simulated device (tests/device/fake_cuda.c). Two ranks, threads of one
 * process.
 */
#include <nccl.h>

#include "tests/nccl/nccl_check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

enum { RANKS = 2, COUNT = 5000, REPLAYS = 3 };

typedef unsigned long long device_pointer;

/* X(name here, symbol, parameters) */
#define DRIVER(X)                                                                  \
    X(init, cuInit, (unsigned))                                                    \
    X(retain, cuDevicePrimaryCtxRetain, (void **, int))                            \
    X(push, cuCtxPushCurrent_v2, (void *))                                         \
    X(pop, cuCtxPopCurrent_v2, (void **))                                          \
    X(release, cuDevicePrimaryCtxRelease_v2, (int))                                \
    X(alloc, cuMemAlloc_v2, (device_pointer *, size_t))                            \
    X(free, cuMemFree_v2, (device_pointer))                                        \
    X(copy, cuMemcpyAsync, (device_pointer, device_pointer, size_t, cudaStream_t)) \
    X(stream_create, cuStreamCreate, (cudaStream_t *, unsigned))                   \
    X(stream_destroy, cuStreamDestroy_v2, (cudaStream_t))                          \
    X(finish, cuStreamSynchronize, (cudaStream_t))                                 \
    X(capture_begin, cuStreamBeginCapture_v2, (cudaStream_t, unsigned))            \
    X(capture_end, cuStreamEndCapture, (cudaStream_t, void **))                    \
    X(make, cuGraphInstantiateWithFlags, (void **, void *, unsigned long long))    \
    X(graph_free, cuGraphDestroy, (void *))                                        \
    X(launch, cuGraphLaunch, (void *, cudaStream_t))                               \
    X(exec_free, cuGraphExecDestroy, (void *))
#define FIELD(name, symbol, parameters) unsigned(*name) parameters;
static struct {
    DRIVER(FIELD)
} cu;

#define CU(call) CHECK((call) == 0)

static void load(void)
{
    const char *path = getenv("TUTTI_LIBCUDA");
    void *driver = dlopen(path ? path : "libcuda.so.1", RTLD_NOW);
    CHECK(driver);
#define LOAD(name, symbol, parameters)                  \
    {                                                   \
        void *found = dlsym(driver, #symbol);           \
        CHECK(found);                                   \
        memcpy((void *)&cu.name, &found, sizeof found); \
    }
    DRIVER(LOAD)
}

struct rank {
    int rank;
    ncclComm_t comm;
    cudaStream_t stream, other;
    device_pointer in, out;
    int32_t host[COUNT];
};

static ncclUniqueId id;

static void write_in(struct rank *r, int value, cudaStream_t stream)
{
    for (int i = 0; i < COUNT; i++)
        r->host[i] = value;
    CU(cu.copy(r->in, (device_pointer)(uintptr_t)r->host, sizeof r->host, stream));
    CU(cu.finish(stream));
}

static void expect(struct rank *r, int value, cudaStream_t stream)
{
    memset(r->host, 0x77, sizeof r->host);
    CU(cu.copy((device_pointer)(uintptr_t)r->host, r->out, sizeof r->host, stream));
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

/* Captured before it ever ran here, and replayed with new contents. */
static void capture(struct rank *r)
{
    enum { THREAD_LOCAL = 1 };
    void *graph = NULL, *exec = NULL;
    CU(cu.capture_begin(r->stream, THREAD_LOCAL));
    OK(ncclAllReduce(in(r), out(r), COUNT, ncclInt32, ncclSum, r->comm, r->stream));
    OK(ncclAllReduce(out(r), out(r), COUNT, ncclInt32, ncclMax, r->comm, r->stream));
    CU(cu.capture_end(r->stream, &graph));
    CU(cu.make(&exec, graph, 0));
    CU(cu.graph_free(graph));
    for (int k = 0; k < REPLAYS; k++) {
        write_in(r, (k + 1) * (r->rank + 1), r->stream);
        CU(cu.launch(exec, r->stream));
        expect(r, 3 * (k + 1), r->stream);
    }
    CU(cu.exec_free(exec));
}

/* The factor is what earlier work on the stream leaves there. */
static void factor(struct rank *r)
{
    ncclRedOp_t op = ncclSum;
    device_pointer scalar = 0;
    int32_t value = 10 + r->rank;
    CU(cu.alloc(&scalar, sizeof value));
    write_in(r, 2, r->stream);
    OK(ncclRedOpCreatePreMulSum(&op, (void *)(uintptr_t)scalar, ncclInt32, ncclScalarDevice,
                                r->comm));
    CU(cu.copy(scalar, (device_pointer)(uintptr_t)&value, sizeof value, r->stream));
    OK(ncclAllReduce(in(r), out(r), COUNT, ncclInt32, op, r->comm, r->stream));
    OK(ncclRedOpDestroy(op, r->comm));
    expect(r, 42, r->stream);
    CU(cu.free(scalar));
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
    CU(cu.alloc(&r->in, sizeof r->host));
    CU(cu.alloc(&r->out, sizeof r->host));
    OK(ncclCommInitRank(&r->comm, RANKS, id, r->rank));
    OK(ncclCommCuDevice(r->comm, &device));
    CHECK(device == 0);
    capture(r); /* first: making the communicator has set up all that it takes */
    order(r);
    factor(r);
    ncclResult_t state = ncclInProgress;
    OK(ncclCommGetAsyncError(r->comm, &state));
    CHECK(state == ncclSuccess);
    OK(ncclCommFinalize(r->comm));
    OK(ncclCommDestroy(r->comm));
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
    load();
    CU(cu.init(0));
    OK(ncclGetUniqueId(&id));
    for (int r = 0; r < RANKS; r++)
        CHECK(pthread_create(&threads[r], NULL, rank_main, &numbers[r]) == 0);
    for (int r = 0; r < RANKS; r++)
        pthread_join(threads[r], NULL);
    puts("streams and captured graphs are right");
    return 0;
}
