/* A program that knows nothing but nccl.h: every operation, every type and operator, with results
 * worked out here. Buffers are from ncclMemAlloc (or malloc: --malloc), which is host memory, or
 * memory of the simulated device with TUTTI_DEVICE=sim, whose contents a program may touch.
 *
 *     nccl_program RANKS [--processes] [--malloc] */
#include <nccl.h>

#include "tests/nccl/nccl_check.h"
#include "tests/nccl/nccl_ranks.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { MOST = NCCL_RANKS_MOST, COUNT = 37, GUARD = 64 };

static bool with_malloc;

/* ---- element types: small whole numbers are exact in all of them ---- */

static const struct {
    size_t bytes;
    int exponent_bits, mantissa_bits; /* 0: an integer */
} types[ncclNumTypes] = {{1, 0, 0},  {1, 0, 0},  {4, 0, 0},   {4, 0, 0}, {8, 0, 0}, {8, 0, 0},
                         {2, 5, 10}, {4, 8, 23}, {8, 11, 52}, {2, 8, 7}, {1, 4, 3}, {1, 5, 2}};

static void put(ncclDataType_t type, void *at, size_t index, int value)
{
    uint64_t bits = (uint64_t)value;
    const int mantissa = types[type].mantissa_bits;
    if (types[type].exponent_bits && value) {
        int power = 0;
        while (value >> (power + 1))
            power++;
        const uint64_t bias = (1u << (types[type].exponent_bits - 1)) - 1;
        const uint64_t rest = (uint64_t)value - (1u << power);
        bits = ((uint64_t)power + bias) << mantissa;
        bits |= mantissa >= power ? rest << (mantissa - power) : rest >> (power - mantissa);
    }
    memcpy((char *)at + index * types[type].bytes, &bits, types[type].bytes); /* little endian */
}

static bool has(ncclDataType_t type, const void *at, size_t index, int value)
{
    uint64_t expected = 0;
    put(type, &expected, 0, value);
    return memcmp((const char *)at + index * types[type].bytes, &expected, types[type].bytes) == 0;
}

/* ---- buffers ---- */

static char *buffer(size_t bytes)
{
    void *memory = NULL;
    if (with_malloc)
        memory = malloc(bytes + GUARD);
    else
        OK(ncclMemAlloc(&memory, bytes + GUARD));
    CHECK(memory);
    memset(memory, 0x5a, bytes + GUARD);
    return memory;
}

static void release(char *memory, size_t bytes)
{
    for (size_t i = 0; i < GUARD; i++)
        CHECK(memory[bytes + i] == 0x5a);
    if (with_malloc)
        free(memory);
    else
        OK(ncclMemFree(memory));
}

/* What rank r has in element i of block b. */
static int value(int r, int b, size_t i)
{
    return 1 + (r + b + (int)i) % 2;
}

static int folded(ncclRedOp_t op, int n, int b, size_t i)
{
    int result = value(0, b, i);
    for (int r = 1; r < n; r++) {
        const int v = value(r, b, i);
        if (op == ncclSum || op == ncclAvg)
            result += v;
        else if (op == ncclProd)
            result *= v;
        else if (op == ncclMax ? v > result : v < result)
            result = v;
    }
    return result;
}

/* ---- operations ---- */

struct job {
    int rank, n;
    ncclComm_t comm;
};

/* `blocks` blocks of own values; all ranks the same for avg, so that it is exact. */
static void fill(ncclDataType_t type, char *at, int rank, int blocks, size_t count, bool same)
{
    for (int b = 0; b < blocks; b++)
        for (size_t i = 0; i < count; i++)
            put(type, at, (size_t)b * count + i, value(same ? 0 : rank, b, i));
}

static void reductions(struct job *j, ncclDataType_t type, ncclRedOp_t op, size_t count,
                       bool in_place)
{
    const bool avg = op == ncclAvg;
    const size_t block = count * types[type].bytes, all = block * (size_t)j->n;
    const int root = j->n - 1;
    char *in = buffer(all);
    char *out = in_place ? in : buffer(all);
#define EXPECT(at, b)                  \
    for (size_t i = 0; i < count; i++) \
    CHECK(has(type, (at), i, avg ? value(0, (b), i) : folded(op, j->n, (b), i)))
    fill(type, in, j->rank, 1, count, avg);
    OK(ncclAllReduce(in, out, count, type, op, j->comm, NULL));
    EXPECT(out, 0);
    fill(type, in, j->rank, 1, count, avg);
    OK(ncclReduce(in, j->rank == root ? out : NULL, count, type, op, root, j->comm, NULL));
    if (j->rank == root)
        EXPECT(out, 0);
    fill(type, in, j->rank, j->n, count, avg);
    char *mine = in_place ? in + (size_t)j->rank * block : out;
    OK(ncclReduceScatter(in, mine, count, type, op, j->comm, NULL));
    EXPECT(mine, j->rank);
#undef EXPECT
    if (!in_place)
        release(out, all);
    release(in, all);
}

static void moves(struct job *j, ncclDataType_t type, size_t count, bool in_place)
{
    const size_t block = count * types[type].bytes, all = block * (size_t)j->n;
    const int root = j->n / 2;
    char *in = buffer(all), *out = buffer(all);
    char *own = in_place ? out + (size_t)j->rank * block : in;
    fill(type, own, j->rank, 1, count, false);
    OK(ncclAllGather(own, out, count, type, j->comm, NULL));
    for (int r = 0; r < j->n; r++)
        for (size_t i = 0; i < count; i++)
            CHECK(has(type, out + (size_t)r * block, i, value(r, 0, i)));
    fill(type, in_place ? out : in, j->rank, 1, count, false);
    if (in_place)
        OK(ncclBcast(out, count, type, root, j->comm, NULL));
    else
        OK(ncclBroadcast(j->rank == root ? in : NULL, out, count, type, root, j->comm, NULL));
    for (size_t i = 0; i < count; i++)
        CHECK(has(type, out, i, value(root, 0, i)));
    fill(type, in, j->rank, j->n, count, false);
    char *to = in_place ? in : out;
    OK(ncclAlltoAll(in, to, count, type, j->comm, NULL));
    for (int r = 0; r < j->n; r++)
        for (size_t i = 0; i < count; i++)
            CHECK(has(type, to + (size_t)r * block, i, value(r, j->rank, i)));
    own = in_place && j->rank == root ? out + (size_t)root * block : in;
    fill(type, own, j->rank, 1, count, false);
    OK(ncclGather(own, j->rank == root ? out : NULL, count, type, root, j->comm, NULL));
    for (int r = 0; j->rank == root && r < j->n; r++)
        for (size_t i = 0; i < count; i++)
            CHECK(has(type, out + (size_t)r * block, i, value(r, 0, i)));
    fill(type, in, j->rank, j->n, count, false);
    to = in_place && j->rank == root ? in + (size_t)root * block : out;
    OK(ncclScatter(j->rank == root ? in : NULL, to, count, type, root, j->comm, NULL));
    for (size_t i = 0; i < count; i++)
        CHECK(has(type, to, i, value(root, j->rank, i)));
    release(out, all);
    release(in, all);
}

/* To the next, from the one before, and to oneself, all at once. */
static void sends(struct job *j, size_t count)
{
    const size_t bytes = count * sizeof(int32_t);
    const int next = (j->rank + 1) % j->n, before = (j->rank + j->n - 1) % j->n;
    char *in = buffer(bytes), *out = buffer(bytes), *self = buffer(bytes);
    fill(ncclInt32, in, j->rank, 1, count, false);
    OK(ncclGroupStart());
    OK(ncclSend(in, count, ncclInt32, next, j->comm, NULL));
    OK(ncclRecv(out, count, ncclInt32, before, j->comm, NULL));
    if (j->n > 1) {
        OK(ncclSend(in, count, ncclInt32, j->rank, j->comm, NULL));
        OK(ncclRecv(self, count, ncclInt32, j->rank, j->comm, NULL));
    }
    OK(ncclGroupEnd());
    for (size_t i = 0; i < count; i++) {
        CHECK(has(ncclInt32, out, i, value(before, 0, i)));
        CHECK(j->n == 1 || has(ncclInt32, self, i, value(j->rank, 0, i)));
    }
    release(self, bytes);
    release(out, bytes);
    release(in, bytes);
}

/* A pre-multiplied sum, its factor on the host and in the memory that buffers are of. */
static void factors(struct job *j)
{
    const size_t bytes = COUNT * sizeof(float);
    char *in = buffer(bytes), *out = buffer(bytes), *factor = buffer(sizeof(float));
    for (int residence = 0; residence < 2; residence++) {
        ncclRedOp_t op = ncclSum;
        float own = (float)(j->rank + 1);
        memcpy(factor, &own, sizeof own);
        OK(ncclRedOpCreatePreMulSum(&op, residence ? (void *)&own : factor, ncclFloat32,
                                    residence ? ncclScalarHostImmediate : ncclScalarDevice,
                                    j->comm));
        CHECK(op >= ncclNumOps && op <= ncclMaxRedOp);
        own = -1; /* was copied */
        fill(ncclFloat32, in, j->rank, 1, COUNT, false);
        OK(ncclAllReduce(in, out, COUNT, ncclFloat32, op, j->comm, NULL));
        for (size_t i = 0; i < COUNT; i++) {
            int sum = 0;
            for (int r = 0; r < j->n; r++)
                sum += (r + 1) * value(r, 0, i);
            CHECK(has(ncclFloat32, out, i, sum));
        }
        CHECK(ncclAllReduce(in, out, COUNT, ncclInt32, op, j->comm, NULL) == ncclInvalidArgument);
        OK(ncclRedOpDestroy(op, j->comm));
        CHECK(ncclAllReduce(in, out, COUNT, ncclFloat32, op, j->comm, NULL) == ncclInvalidArgument);
    }
    release(factor, sizeof(float));
    release(out, bytes);
    release(in, bytes);
}

/* Several operations in one group, in the order of the calls. */
static void groups(struct job *j)
{
    const size_t bytes = COUNT * sizeof(int32_t);
    char *a = buffer(bytes), *b = buffer(bytes), *c = buffer(bytes * (size_t)j->n);
    fill(ncclInt32, a, j->rank, 1, COUNT, false);
    OK(ncclGroupStart());
    OK(ncclAllReduce(a, b, COUNT, ncclInt32, ncclSum, j->comm, NULL));
    OK(ncclGroupStart());
    OK(ncclAllGather(b, c, COUNT, ncclInt32, j->comm, NULL));
    OK(ncclGroupEnd());
    OK(ncclGroupEnd());
    for (int r = 0; r < j->n; r++)
        for (size_t i = 0; i < COUNT; i++)
            CHECK(has(ncclInt32, c + (size_t)r * bytes, i, folded(ncclSum, j->n, 0, i)));
    release(c, bytes * (size_t)j->n);
    release(b, bytes);
    release(a, bytes);
}

/* By halves; the last rank of an odd number stays outside. */
static void splits(struct job *j)
{
    ncclComm_t part = NULL;
    const int size = j->n / 2, color = j->rank / (size ? size : 1);
    const bool inside = size > 0 && color < 2;
    OK(ncclCommSplit(j->comm, inside ? color : NCCL_SPLIT_NOCOLOR, -j->rank, &part, NULL));
    CHECK((part != NULL) == inside);
    if (!inside)
        return;
    int rank = -1, count = -1, sum[1] = {0}, own[1] = {j->rank};
    OK(ncclCommUserRank(part, &rank));
    OK(ncclCommCount(part, &count));
    CHECK(count == size && rank == size - 1 - j->rank % size);
    char *in = buffer(sizeof own), *out = buffer(sizeof sum);
    memcpy(in, own, sizeof own);
    OK(ncclAllReduce(in, out, 1, ncclInt32, ncclSum, part, NULL));
    memcpy(sum, out, sizeof sum);
    CHECK(sum[0] == size * (size - 1) / 2 + color * size * size);
    release(out, sizeof sum);
    release(in, sizeof own);
    OK(ncclCommDestroy(part));
}

static void registrations(struct job *j)
{
    enum { BYTES = 1 << 16 };
    char *memory = buffer(BYTES);
    void *handle = NULL;
    ncclWindow_t window = NULL;
    fill(ncclUint8, memory, j->rank, 1, BYTES, false);
    OK(ncclCommRegister(j->comm, memory, BYTES, &handle));
    OK(ncclCommWindowRegister(j->comm, memory, BYTES, &window, NCCL_WIN_COLL_SYMMETRIC));
    OK(ncclAllReduce(memory, memory, BYTES, ncclUint8, ncclSum, j->comm, NULL));
    for (size_t i = 0; i < BYTES; i++)
        CHECK(has(ncclUint8, memory, i, folded(ncclSum, j->n, 0, i)));
    OK(ncclCommWindowDeregister(j->comm, window));
    OK(ncclCommDeregister(j->comm, handle));
    CHECK(ncclCommDeregister(j->comm, memory) == ncclInvalidArgument);
    release(memory, BYTES);
}

/* What is wrong is said, and does no harm. */
static void refusals(struct job *j)
{
    float word[MOST] = {0};
    CHECK(ncclAllReduce(word, word, 1, ncclFloat32, (ncclRedOp_t)99, j->comm, NULL) ==
          ncclInvalidArgument);
    CHECK(strstr(ncclGetLastError(j->comm), "operator"));
    CHECK(ncclBroadcast(word, word, 1, ncclFloat32, j->n, j->comm, NULL) == ncclInvalidArgument);
    CHECK(ncclAllReduce(word, word, 1, ncclNumTypes, ncclSum, j->comm, NULL) ==
          ncclInvalidArgument);
    CHECK(ncclAllReduce(word, word, 1, ncclFloat32, ncclSum, NULL, NULL) == ncclInvalidArgument);
    OK(ncclGroupStart());
    CHECK(ncclSend(word, 1, ncclFloat32, -1, j->comm, NULL) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    ncclResult_t state = ncclInternalError;
    OK(ncclCommGetAsyncError(j->comm, &state));
    CHECK(state == ncclSuccess);
}

static void all(struct job *j)
{
    for (int t = 0; t < ncclNumTypes; t++) {
        for (int op = 0; op < ncclNumOps; op++)
            reductions(j, (ncclDataType_t)t, (ncclRedOp_t)op, COUNT, op % 2);
        moves(j, (ncclDataType_t)t, COUNT, t % 2);
    }
    reductions(j, ncclFloat32, ncclSum, 20000, false);
    moves(j, ncclFloat32, 20000, true);
    OK(ncclAllReduce(NULL, NULL, 0, ncclFloat32, ncclSum, j->comm, NULL));
    sends(j, COUNT);
    sends(j, 50000);
    factors(j);
    groups(j);
    splits(j);
    registrations(j);
    refusals(j);
}

/* ---- ranks ---- */

static ncclUniqueId id;
static int ranks;

static void *rank_main(void *argument)
{
    struct job j = {.rank = *(int *)argument, .n = ranks};
    int count = 0, rank = -1, device = -1;
    OK(ncclCommInitRank(&j.comm, j.n, id, j.rank));
    OK(ncclCommCount(j.comm, &count));
    OK(ncclCommUserRank(j.comm, &rank));
    OK(ncclCommCuDevice(j.comm, &device));
    CHECK(count == j.n && rank == j.rank && device == 0);
    all(&j);
    OK(ncclCommFinalize(j.comm));
    OK(ncclCommDestroy(j.comm));
    return NULL;
}

int main(int argc, char **argv)
{
    bool processes = false;
    int version = 0;
    ranks = argc > 1 ? atoi(argv[1]) : 0;
    for (int i = 2; i < argc; i++) {
        processes = processes || strcmp(argv[i], "--processes") == 0;
        with_malloc = with_malloc || strcmp(argv[i], "--malloc") == 0;
    }
    OK(ncclGetVersion(&version));
    CHECK(version == NCCL_VERSION_CODE);
    OK(ncclGetUniqueId(&id));
    if (nccl_ranks_run(ranks, processes, rank_main) > 0)
        return 1;
    if (!processes)
        puts("all operations are right");
    return 0;
}
