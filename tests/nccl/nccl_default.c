/* Stream 0, by a program that knows nothing but nccl.h and the CUDA driver (by its symbols, as in
 * nccl_streams.c): it is a stream, for all memory that the device reaches. Without TUTTI_LIBCUDA on
 * the simulated device, where operations are over when their call returns. Ranks are threads, each
 * with a device of its own.
 *
 *     nccl_default CASE        (no CASE: lists them) */
#include <nccl.h>

#include "tests/nccl/nccl_check.h"
#include "tests/nccl/nccl_driver.h"
#include "tests/nccl/nccl_threads.h"

#include <stdint.h>

enum { RANKS = 3, COUNT = 3000, BIG = 200000, GEQ = 0 };

enum { DEVICE = 1, READ_WRITE = 3, PINNED = 1, DEVICES = 4 };

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

static void load(void)
{
    nccl_driver_load(&cu);
    CU(cu.init(0));
}

static device_pointer at(const void *memory)
{
    return (device_pointer)(uintptr_t)memory;
}

static void begin(struct rank *r)
{
    void *context = NULL;
    if (cu.init) {
        CU(cu.retain(&context, r->rank));
        CU(cu.push(context));
    }
    OK(ncclCommInitRank(&r->comm, ranks, id, r->rank));
}

static void end(struct rank *r)
{
    void *context = NULL;
    OK(ncclCommDestroy(r->comm));
    pthread_barrier_wait(&all_there); /* the last to come ends rank 0's, too */
    if (cu.init) {
        CU(cu.pop(&context));
        CU(cu.release(r->rank));
    }
}

/* What stream 0 has so far is over. */
static void finish(void)
{
    if (cu.init)
        CU(cu.finish(NULL));
}

/* Only after finish. */
static void move(void *to, const void *from, size_t bytes)
{
    if (cu.init)
        CU(cu.copy(at(to), at(from), bytes, NULL));
    else
        memcpy(to, from, bytes);
    finish();
}

/* ---- messages of nothing ---- */

static size_t count_of(int from, int to)
{
    return (from + 2 * to) % 4 == 2 ? 0 : (size_t)(500 * (from + 1) + to);
}

/* All that it sends, itself included, then all that it receives. */
static void all_to_all(struct rank *r, char *in, char *out)
{
    enum { BLOCK = COUNT * sizeof(int) };
    static _Thread_local int host[COUNT];
    OK(ncclGroupStart());
    for (int step = 0; step < ranks; step++) {
        const int peer = (r->rank + step) % ranks;
        OK(ncclSend(in + peer * BLOCK, count_of(r->rank, peer), ncclInt32, peer, r->comm, NULL));
    }
    for (int step = 0; step < ranks; step++) {
        const int peer = (r->rank + step) % ranks;
        OK(ncclRecv(out + peer * BLOCK, count_of(peer, r->rank), ncclInt32, peer, r->comm, NULL));
    }
    OK(ncclGroupEnd());
    finish();
    for (int from = 0; from < ranks; from++) {
        move(host, out + from * BLOCK, BLOCK);
        for (int i = 0; i < COUNT; i++)
            CHECK(host[i] == ((size_t)i < count_of(from, r->rank) ? 100 * from + r->rank : -1));
    }
}

static void all_to_all_in(struct rank *r, char *in, char *out)
{
    static _Thread_local int host[COUNT];
    for (int to = 0; to < ranks; to++) {
        for (int i = 0; i < COUNT; i++)
            host[i] = 100 * r->rank + to;
        move(in + (size_t)to * sizeof host, host, sizeof host);
        memset(host, 0xff, sizeof host);
        move(out + (size_t)to * sizeof host, host, sizeof host);
    }
    all_to_all(r, in, out);
}

/* Two exchange what does not fit into slots, and between the calls each has nothing for the third.
 */
static void two_of_three(struct rank *r, char *in, char *out)
{
    static _Thread_local int host[BIG];
    const int peer = 1 - r->rank;
    for (int i = 0; i < BIG; i++)
        host[i] = r->rank + i;
    move(in, host, sizeof host);
    OK(ncclGroupStart());
    if (r->rank < 2) {
        OK(ncclSend(in, BIG, ncclInt32, peer, r->comm, NULL));
        OK(ncclSend(in, 0, ncclInt32, 2, r->comm, NULL));
        OK(ncclRecv(out, BIG, ncclInt32, peer, r->comm, NULL));
    } else {
        OK(ncclRecv(out, 0, ncclInt32, 0, r->comm, NULL));
        OK(ncclRecv(NULL, 0, ncclInt32, 1, r->comm, NULL));
    }
    OK(ncclGroupEnd());
    finish();
    move(host, out, sizeof host);
    for (int i = 0; i < BIG && r->rank < 2; i++)
        CHECK(host[i] == peer + i);
}

/* Outside a group, and with no memory at one end. */
static void alone(struct rank *r, void *device)
{
    if (r->rank == 0)
        OK(ncclSend(NULL, 0, ncclInt32, 1, r->comm, NULL));
    if (r->rank == 1)
        OK(ncclRecv(device, 0, ncclInt32, 0, r->comm, NULL));
}

static void empty_rank(struct rank *r)
{
    enum { BYTES = BIG * sizeof(int) };
    char *in = NULL, *out = NULL, *host = calloc(2, BYTES);
    begin(r);
    OK(ncclMemAlloc((void **)&in, BYTES));
    OK(ncclMemAlloc((void **)&out, BYTES));
    CHECK(host);
    alone(r, in);
    all_to_all_in(r, in, out);
    two_of_three(r, in, out);
    all_to_all_in(r, host, host + BYTES);
    OK(ncclMemFree(in));
    OK(ncclMemFree(out));
    free(host);
    end(r);
}

static void empty(void)
{
    if (getenv("TUTTI_LIBCUDA"))
        load();
    as_threads(RANKS, empty_rank);
}

/* ---- page-locked memory ---- */

/* Its contents come when the stream does, after the calls. */
static void pinned_rank(struct rank *r)
{
    enum { BYTES = COUNT * sizeof(int), SUM = RANKS * (RANKS + 1) / 2 };
    int *late = NULL, *in = NULL, *out = NULL;
    uint32_t *word = NULL;
    device_pointer device = 0;
    begin(r);
    CU(cu.alloc_host((void **)&late, BYTES, 0));
    CU(cu.alloc_host((void **)&in, BYTES, 0));
    CU(cu.alloc_host((void **)&out, BYTES, 0));
    CU(cu.alloc_host((void **)&word, sizeof *word, 0));
    CU(cu.alloc(&device, BYTES));
    memset(in, 0, BYTES);
    *word = 0;
    for (int i = 0; i < COUNT; i++)
        late[i] = r->rank + 1;
    CU(cu.hold(NULL, at(word), 1, GEQ));
    CU(cu.copy(at(in), at(late), BYTES, NULL));
    OK(ncclAllReduce(in, out, COUNT, ncclInt32, ncclSum, r->comm, NULL));
    __atomic_store_n(word, 1, __ATOMIC_RELEASE);
    CU(cu.finish(NULL));
    for (int i = 0; i < COUNT; i++)
        CHECK(out[i] == SUM);
    /* In one kernel with what lies on the device. */
    OK(ncclGroupStart());
    OK(ncclSend(out, COUNT, ncclInt32, r->rank, r->comm, NULL));
    OK(ncclRecv((void *)(uintptr_t)device, COUNT, ncclInt32, r->rank, r->comm, NULL));
    OK(ncclGroupEnd());
    CU(cu.copy(at(late), device, BYTES, NULL));
    CU(cu.finish(NULL));
    for (int i = 0; i < COUNT; i++)
        CHECK(late[i] == SUM);
    CU(cu.free(device));
    CU(cu.free_host(late));
    CU(cu.free_host(in));
    CU(cu.free_host(out));
    CU(cu.free_host(word));
    end(r);
}

static void pinned(void)
{
    load();
    as_threads(RANKS, pinned_rank);
}

/* ---- the handles of default streams ---- */

static void sums(struct rank *r, int *host, void *in, void *out, uintptr_t handle)
{
    for (int i = 0; i < COUNT; i++)
        host[i] = r->rank + 1 + i;
    move(in, host, COUNT * sizeof *host);
    OK(ncclAllReduce(in, out, COUNT, ncclInt32, ncclSum, r->comm, (cudaStream_t)handle));
    finish();
    move(host, out, COUNT * sizeof *host);
    for (int i = 0; i < COUNT; i++)
        CHECK(host[i] == RANKS * (RANKS + 1) / 2 + RANKS * i);
}

/* What ranks of one process read and write where it lies: the first so many devices may. */
static void open_to(int devices, const void *memory)
{
    for (int d = 0; d < devices && cu.init; d++) {
        unsigned long long access = 0;
        const int location[2] = {DEVICE, d};
        CU(cu.allowed(&access, location, (device_pointer)(uintptr_t)memory));
        CHECK(access == READ_WRITE);
    }
}

/* cudaStreamLegacy is what NULL is, in one group, too; with no streams cudaStreamPerThread is. */
static void handles_rank(struct rank *r)
{
    enum { BYTES = BIG * sizeof(int) };
    int *host = calloc(1, BYTES);
    void *in = NULL, *out = NULL;
    const cudaStream_t legacy = (cudaStream_t)(uintptr_t)1;
    const int next = (r->rank + 1) % RANKS, last = (r->rank + RANKS - 1) % RANKS;
    begin(r);
    CHECK(host);
    OK(ncclMemAlloc(&in, BYTES));
    OK(ncclMemAlloc(&out, BYTES));
    open_to(DEVICES, in); /* all that there are */
    sums(r, host, in, out, 0);
    sums(r, host, in, out, 1);
    if (!cu.init)
        sums(r, host, in, out, 2);
    for (int i = 0; i < BIG; i++)
        host[i] = r->rank + i;
    move(in, host, BYTES);
    OK(ncclGroupStart());
    OK(ncclSend(in, BIG, ncclInt32, next, r->comm, NULL));
    OK(ncclRecv(out, BIG, ncclInt32, last, r->comm, legacy));
    OK(ncclGroupEnd());
    finish();
    move(host, out, BYTES);
    for (int i = 0; i < BIG; i++)
        CHECK(host[i] == last + i);
    OK(ncclMemFree(in));
    OK(ncclMemFree(out));
    free(host);
    end(r);
}

static void handles(void)
{
    if (getenv("TUTTI_LIBCUDA"))
        load();
    as_threads(RANKS, handles_rank);
}

/* ---- managed memory ---- */

static int *managed_of(int device)
{
    enum { GLOBAL = 1 };
    void *context = NULL;
    device_pointer made = 0;
    CU(cu.retain(&context, device));
    CU(cu.push(context));
    CU(cu.alloc_managed(&made, BIG * sizeof(int), GLOBAL));
    CU(cu.pop(&context));
    CU(cu.release(device));
    return (int *)(uintptr_t)made;
}

/* Which was allocated while another device was current, before the rank's own is in use and after.
 */
static void managed_rank(struct rank *r)
{
    begin(r);
    for (int round = 0; round < 2; round++) {
        int *in = managed_of((r->rank + 1) % RANKS),
            *out = managed_of((r->rank + 1 + round) % RANKS);
        for (int i = 0; i < BIG; i++)
            in[i] = r->rank + 1 + i;
        OK(ncclAllReduce(in, out, BIG, ncclInt32, ncclSum, r->comm, NULL));
        finish();
        for (int i = 0; i < BIG; i++)
            CHECK(out[i] == RANKS * (RANKS + 1) / 2 + RANKS * i);
        pthread_barrier_wait(&all_there);
        CU(cu.free(at(in)));
        CU(cu.free(at(out)));
    }
    end(r);
}

static void managed(void)
{
    load();
    as_threads(RANKS, managed_rank);
}

/* ---- buffers that the program's own devices alone may use ---- */

enum { PIECE = 2 << 20, PIECES = 2 };

/* Two pieces, one after the other, of the rank's device, for it alone. */
static device_pointer map_pieces(int device)
{
    const struct driver_property property = {
        .type = PINNED, .handles = 1, .location = {DEVICE, device}};
    const struct driver_access access = {.location = {DEVICE, device}, .flags = READ_WRITE};
    device_pointer base = 0;
    CU(cu.reserve(&base, PIECES * PIECE, 0, 0, 0));
    for (device_pointer piece = base; piece < base + PIECES * PIECE; piece += PIECE) {
        unsigned long long handle = 0;
        CU(cu.create(&handle, PIECE, &property, 0));
        CU(cu.map(piece, PIECE, 0, handle, 0));
        CU(cu.drop(handle));
        CU(cu.allow(piece, PIECE, &access, 1));
    }
    return base;
}

static void unmap_pieces(device_pointer base)
{
    for (int k = 0; k < PIECES; k++)
        CU(cu.unmap(base + (device_pointer)k * PIECE, PIECE));
    CU(cu.unreserve(base, PIECES * PIECE));
}

static void pool_open_to_ranks(int owner)
{
    void *pool = NULL;
    CU(cu.pool(&pool, owner));
    for (int d = 0; d < RANKS; d++) {
        unsigned access = 0;
        int location[2] = {DEVICE, d};
        CU(cu.pool_allowed(&access, pool, location));
        CHECK(access == READ_WRITE);
    }
}

/* Input of a pool, output over the border of two pieces. */
static void opened_rank(struct rank *r)
{
    enum { BYTES = BIG * sizeof(int) };
    const char *kept = getenv("TUTTI_FAKE_NO_OPEN"), *copied = getenv("NCCL_P2P_DIRECT_DISABLE");
    int *host = calloc(1, BYTES);
    device_pointer in = 0;
    begin(r);
    CHECK(host);
    CU(cu.take(&in, BYTES, NULL));
    const device_pointer pieces = map_pieces(r->rank), out = pieces + PIECE - BYTES / 2;
    for (int i = 0; i < BIG; i++)
        host[i] = r->rank + 1 + i;
    move((void *)(uintptr_t)in, host, BYTES);
    const ncclResult_t result = ncclAllReduce((void *)(uintptr_t)in, (void *)(uintptr_t)out, BIG,
                                              ncclInt32, ncclSum, r->comm, NULL);
    if (kept && !copied) {
        CHECK(result != ncclSuccess);
        CHECK(strstr(ncclGetLastError(r->comm), "cannot be opened to device"));
        CHECK(strstr(ncclGetLastError(r->comm), "TUTTI_DEVICE_BUFFERS=window"));
    } else {
        OK(result);
        finish();
        move(host, (void *)(uintptr_t)out, BYTES);
        for (int i = 0; i < BIG; i++)
            CHECK(host[i] == RANKS * (RANKS + 1) / 2 + RANKS * i);
    }
    for (int k = 0; k < PIECES && !kept; k++)
        open_to(RANKS, (void *)(uintptr_t)(pieces + (device_pointer)k * PIECE));
    if (!kept)
        pool_open_to_ranks(r->rank);
    pthread_barrier_wait(&all_there);
    end(r);
    unmap_pieces(pieces);
    free(host);
}

static void opened(void)
{
    load();
    as_threads(RANKS, opened_rank);
}

/* ---- a context that the program lets go first ---- */

/* It is released before the communicator is, by a thread that does not have it current any more. */
static void released_rank(struct rank *r)
{
    void *context = NULL;
    int word = 1;
    CU(cu.retain(&context, r->rank));
    CU(cu.push(context));
    OK(ncclCommInitRank(&r->comm, ranks, id, r->rank));
    OK(ncclAllReduce(&word, &word, 1, ncclInt32, ncclSum, r->comm, NULL));
    CU(cu.pop(&context));
    CU(cu.release(r->rank));
    int active = -1;
    unsigned flags = 0;
    CU(cu.state(r->rank, &flags, &active));
    CHECK(active); /* it is ours, too */
    pthread_barrier_wait(&all_there);
    OK(ncclCommDestroy(r->comm));
    pthread_barrier_wait(&all_there);
}

static void released(void)
{
    load();
    as_threads(RANKS, released_rank);
}

/* ---- a driver that comes late ---- */

static void late_rank(struct rank *r)
{
    ncclComm_t first = NULL;
    int host[COUNT] = {0};
    void *context = NULL;
    device_pointer device = 0;
    OK(ncclCommInitRank(&first, 1, id, r->rank));
    OK(ncclAllReduce(host, host, COUNT, ncclInt32, ncclSum, first, NULL));
    CHECK(!dlopen(getenv("TUTTI_LIBCUDA"), RTLD_NOW | RTLD_NOLOAD)); /* nobody asked for it */
    load();
    CU(cu.retain(&context, 0));
    CU(cu.push(context));
    CU(cu.alloc(&device, sizeof host));
    void *memory = (void *)(uintptr_t)device;
    CHECK(ncclAllReduce(memory, memory, COUNT, ncclInt32, ncclSum, first, NULL) ==
          ncclInvalidUsage);
    CHECK(strstr(ncclGetLastError(first), "driver was not loaded"));
    OK(ncclAllReduce(host, host, COUNT, ncclInt32, ncclSum, first, NULL));
    OK(ncclGetUniqueId(&id));
    OK(ncclCommInitRank(&r->comm, 1, id, 0));
    OK(ncclAllReduce(memory, memory, COUNT, ncclInt32, ncclSum, r->comm, NULL));
    CU(cu.finish(NULL));
    CU(cu.free(device));
    OK(ncclCommDestroy(first));
    end(r);
}

static void late(void)
{
    as_threads(1, late_rank);
}

int main(int argc, char **argv)
{
    static const struct test_named cases[] = {
        {"empty", empty},   {"pinned", pinned},     {"managed", managed}, {"handles", handles},
        {"opened", opened}, {"released", released}, {"late", late}};
    return named_run(argc, argv, cases, sizeof cases / sizeof *cases);
}
