/* Collectives on blocks of different sizes: every one with random counts (many of them 0), blocks
 * in order, with gaps, and in another order than the ranks', in place and not, blocking,
 * asynchronous and in groups; the same bits as an all-reduce. Ranks as in test_semantics; --device:
 * on memory of TUTTI_DEVICE's device, where reduce-scatters must go by --way NAME; --algo NAME. */
#include "coll/comm.h"
#include "coll/door.h"
#include "coll/small_program.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 16, ROUNDS = 60, GUARD = 0xa5 };

struct options {
    bool device;
    size_t most; /* elements of a block */
    int rounds;
    bool algorithm;  /* one is named */
    bool large;      /* no short blocks, so that most differ in how often a pass has some of them */
    const char *way; /* tti_comm_device_way; NULL: any */
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 31;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 29;
}

/* Elements from rank `from` to rank `to` in a round: alike on all ranks. */
static size_t count_of(const struct options *o, int round, int from, int to)
{
    const uint64_t random =
        mix(mix((uint64_t)round * 1000003 + (uint64_t)from * 997) + (uint64_t)to);
    const size_t kinds[] = {0, 0, 1, 2 + random / 8 % 61, random / 8 % 5000, random / 8 % o->most};
    const size_t count = kinds[o->large ? 5 : random % 6];
    return count < o->most ? count : o->most;
}

/* What element `e` of that is: small integers, which no type and no order of sums rounds. `key` is
 * of the call and of its ends. */
static int value_of(uint64_t key, size_t e)
{
    return (int)((key + e) * UINT64_C(0x9e3779b97f4a7c15) >> 62);
}

/* Add the values of `key` to so many elements. */
static void values_add(char *at, enum tutti_type type, uint64_t key, size_t count)
{
    float *floats = (void *)at;
    int64_t *wide = (void *)at;
    if (type == TUTTI_FLOAT32)
        for (size_t e = 0; e < count; e++)
            floats[e] += (float)value_of(key, e);
    else if (type == TUTTI_INT64)
        for (size_t e = 0; e < count; e++)
            wide[e] += value_of(key, e);
    else
        for (size_t e = 0; e < count; e++)
            at[e] = (char)(at[e] + value_of(key, e));
}

static int value_get(const char *at, enum tutti_type type)
{
    if (type == TUTTI_FLOAT32)
        return (int)*(const float *)(const void *)at;
    return type == TUTTI_INT64 ? (int)*(const int64_t *)(const void *)at : (int)*at;
}

/* ---- one buffer ---- */

/* Blocks in memory; `displs` where they have any. */
struct blocks {
    int n;
    size_t size;
    size_t counts[RANKS], displs[RANKS];
    bool spread; /* displs are passed on */
    size_t bytes;
    char *data;  /* on the host */
    char *where; /* what the call is given */
};

/* How blocks lie: one after another; with gaps; with gaps, the last rank's first. */
static void blocks_lay(struct blocks *b, int how)
{
    size_t next = how ? 3 : 0;
    b->spread = how > 0;
    for (int i = 0; i < b->n; i++) {
        const int k = how == 2 ? b->n - 1 - i : i;
        b->displs[k] = next;
        next += b->counts[k] + (how ? (size_t)(k % 3) : 0);
    }
    b->bytes = (next + 4) * b->size;
}

static int blocks_make(struct blocks *b, const struct options *o)
{
    void *memory = NULL;
    if (o->device)
        CHECK(memory = malloc(b->bytes));
    else
        CHECK_OK(tutti_alloc(b->bytes, &memory));
    b->data = memory;
    memset(b->data, GUARD, b->bytes);
    b->where = o->device ? device_memory(b->bytes) : b->data;
    CHECK(b->where);
    return 0;
}

static void blocks_free(struct blocks *b, const struct options *o)
{
    if (o->device) {
        device_free(b->where);
        free(b->data);
    } else {
        tutti_free(b->data);
    }
}

static char *blocks_at(const struct blocks *b, int k, size_t e)
{
    return b->data + (b->displs[k] + e) * b->size;
}

/* Is what no block covers as it was? */
static int blocks_guarded(const struct blocks *b)
{
    char *guards = malloc(b->bytes);
    CHECK(guards);
    memset(guards, GUARD, b->bytes);
    for (int k = 0; k < b->n; k++)
        memcpy(guards + b->displs[k] * b->size, blocks_at(b, k, 0), b->counts[k] * b->size);
    CHECK(memcmp(guards, b->data, b->bytes) == 0);
    free(guards);
    return 0;
}

/* ---- one call ---- */

struct call {
    enum tutti_collective collective;
    enum tutti_type type;
    int root, round;
    int layout; /* which of several */
    bool in_place;
    struct blocks in, out; /* of a buffer of one piece: block 0 */
};

static const size_t *displs_of(const struct blocks *b)
{
    return b->spread ? b->displs : NULL;
}

static const void *piece_of(const struct blocks *b)
{
    return b->where + b->displs[0] * b->size;
}

/* Blocking, or with a request (and a stream, on a device). */
static enum tutti_result call_start(const struct call *c, bool async, tutti_comm *comm,
                                    tutti_request **request)
{
    const struct blocks *in = &c->in, *out = &c->out;
    const int rank = tutti_comm_rank(comm);
    const size_t *in_displs = displs_of(in), *out_displs = displs_of(out);
    const bool at_root = rank == c->root;
    const void *piece = piece_of(in);
    void *into = (char *)(uintptr_t)piece_of(out);
    const tutti_stream stream = device_gpu() ? device_stream() : NULL;
    if (c->in_place && c->collective == TUTTI_ALL_GATHER)
        piece = out->where + out->displs[rank] * out->size;
    if (c->in_place && c->collective == TUTTI_REDUCE_SCATTER)
        into = in->where + in->displs[rank] * in->size;
    switch ((int)c->collective) {
    case TUTTI_ALL_GATHER:
        return async
                   ? tutti_all_gather_v_async(piece, out->where, out->counts, out_displs, c->type,
                                              comm, stream, request)
                   : tutti_all_gather_v(piece, out->where, out->counts, out_displs, c->type, comm);
    case TUTTI_REDUCE_SCATTER:
        return async ? tutti_reduce_scatter_v_async(in->where, into, in->counts, in_displs, c->type,
                                                    TUTTI_SUM, comm, stream, request)
                     : tutti_reduce_scatter_v(in->where, into, in->counts, in_displs, c->type,
                                              TUTTI_SUM, comm);
    case TUTTI_ALL_TO_ALL:
        return async ? tutti_all_to_all_v_async(in->where, in->counts, in_displs, out->where,
                                                out->counts, out_displs, c->type, comm, stream,
                                                request)
                     : tutti_all_to_all_v(in->where, in->counts, in_displs, out->where, out->counts,
                                          out_displs, c->type, comm);
    case TUTTI_GATHER:
        return async
                   ? tutti_gather_v_async(piece, in->counts[0], at_root ? out->where : NULL,
                                          at_root ? out->counts : NULL, at_root ? out_displs : NULL,
                                          c->type, c->root, comm, stream, request)
                   : tutti_gather_v(piece, in->counts[0], at_root ? out->where : NULL,
                                    at_root ? out->counts : NULL, at_root ? out_displs : NULL,
                                    c->type, c->root, comm);
    default:
        return async
                   ? tutti_scatter_v_async(at_root ? in->where : NULL, at_root ? in->counts : NULL,
                                           at_root ? in_displs : NULL, into, out->counts[0],
                                           c->type, c->root, comm, stream, request)
                   : tutti_scatter_v(at_root ? in->where : NULL, at_root ? in->counts : NULL,
                                     at_root ? in_displs : NULL, into, out->counts[0], c->type,
                                     c->root, comm);
    }
}

/* Elements that go from one rank to another in this call: of a reduce-scatter, of the block of
 * `to`. */
static size_t call_count(const struct call *c, const struct options *o, int from, int to)
{
    switch ((int)c->collective) {
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
        return count_of(o, c->round, from, 0);
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_SCATTER:
        return count_of(o, c->round, 0, to);
    default:
        return count_of(o, c->round, from, to);
    }
}

static uint64_t call_key(const struct call *c, int from, int to)
{
    const bool alike = c->collective == TUTTI_ALL_GATHER || c->collective == TUTTI_GATHER;
    return mix((uint64_t)c->round + 131 * (uint64_t)from + 1009 * (uint64_t)(alike ? 0 : to));
}

/* Which ranks block k of a buffer is between. */
static void call_ends(const struct call *c, bool in, bool many, int rank, int k, int *from, int *to)
{
    const bool gathers = c->collective == TUTTI_GATHER, scatters = c->collective == TUTTI_SCATTER;
    *from = in ? rank : many ? k : scatters ? c->root : rank;
    *to = in ? (many ? k : gathers ? c->root : rank) : rank;
}

static void call_shape(const struct call *c, int rank, bool *in_many, bool *out_many)
{
    *in_many = c->collective == TUTTI_REDUCE_SCATTER || c->collective == TUTTI_ALL_TO_ALL ||
               (c->collective == TUTTI_SCATTER && rank == c->root);
    *out_many = c->collective == TUTTI_ALL_GATHER || c->collective == TUTTI_ALL_TO_ALL ||
                (c->collective == TUTTI_GATHER && rank == c->root);
}

static int call_make(struct call *c, const struct options *o, tutti_comm *comm)
{
    const int size = tutti_comm_size(comm), rank = tutti_comm_rank(comm);
    bool many[2];
    call_shape(c, rank, &many[0], &many[1]);
    for (int side = 0; side < 2; side++) {
        struct blocks *b = side ? &c->out : &c->in;
        *b = (struct blocks){.n = many[side] ? size : 1, .size = tutti_type_size(c->type)};
        for (int k = 0; k < b->n; k++) {
            int from, to;
            call_ends(c, side == 0, many[side], rank, k, &from, &to);
            b->counts[k] = call_count(c, o, from, to);
        }
        if (side == 1 && c->collective == TUTTI_GATHER && rank != c->root)
            b->counts[0] = 0; /* not used */
        if (side == 0 && c->collective == TUTTI_SCATTER && rank != c->root)
            b->counts[0] = 0;
        blocks_lay(b, many[side] ? (c->round + c->layout + side + rank) % 3 : 0);
        CHECK(blocks_make(b, o) == 0);
    }
    for (int k = 0; k < c->in.n; k++) {
        int from, to;
        call_ends(c, true, many[0], rank, k, &from, &to);
        memset(blocks_at(&c->in, k, 0), 0, c->in.counts[k] * c->in.size);
        values_add(blocks_at(&c->in, k, 0), c->type, call_key(c, from, to), c->in.counts[k]);
    }
    if (c->in_place && c->collective == TUTTI_ALL_GATHER)
        memcpy(blocks_at(&c->out, rank, 0), blocks_at(&c->in, 0, 0), c->in.counts[0] * c->in.size);
    if (!o->device)
        return 0;
    CHECK_OK(device_copy(c->in.where, c->in.data, c->in.bytes));
    CHECK_OK(device_copy(c->out.where, c->out.data, c->out.bytes));
    return 0;
}

/* Is block k of OUT what came from its rank, or a reduce-scatter's the sum of all ranks'? */
static int call_check_block(const struct call *c, const char *got, int size, int rank, int k)
{
    const size_t count = c->out.counts[k], width = c->out.size;
    char *want = calloc(count + 1, width);
    bool many[2];
    int from, to;
    CHECK(want);
    call_shape(c, rank, &many[0], &many[1]);
    call_ends(c, false, many[1], rank, k, &from, &to);
    if (c->collective == TUTTI_REDUCE_SCATTER)
        for (int r = 0; r < size; r++)
            values_add(want, c->type, call_key(c, r, rank), count);
    else
        values_add(want, c->type, call_key(c, from, to), count);
    size_t wrong = 0;
    if (memcmp(got, want, count * width) == 0)
        wrong = count;
    while (wrong < count && memcmp(got + wrong * width, want + wrong * width, width) == 0)
        wrong++;
    if (wrong < count)
        fprintf(stderr, "%s, round %d, rank %d: element %zu of block %d is %d, not %d\n",
                tti_uneven_name(c->collective), c->round, rank, wrong, k,
                value_get(got + wrong * width, c->type), value_get(want + wrong * width, c->type));
    free(want);
    CHECK(wrong == count);
    return 0;
}

static int call_check(struct call *c, const struct options *o, tutti_comm *comm)
{
    const int size = tutti_comm_size(comm), rank = tutti_comm_rank(comm);
    const bool own = c->in_place && c->collective == TUTTI_REDUCE_SCATTER;
    if (o->device) {
        CHECK_OK(device_copy(c->in.data, c->in.where, c->in.bytes));
        CHECK_OK(device_copy(c->out.data, c->out.where, c->out.bytes));
        CHECK_OK(device_settle());
    }
    for (int k = 0; k < c->out.n; k++) {
        const char *got = own ? blocks_at(&c->in, rank, 0) : blocks_at(&c->out, k, 0);
        CHECK(call_check_block(c, got, size, rank, k) == 0);
    }
    CHECK(blocks_guarded(&c->in) == 0 && blocks_guarded(&c->out) == 0);
    blocks_free(&c->in, o);
    blocks_free(&c->out, o);
    return 0;
}

static const enum tutti_collective collectives[] = {TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER,
                                                    TUTTI_ALL_TO_ALL, TUTTI_GATHER, TUTTI_SCATTER};
enum { COLLECTIVES = 5 };

static void call_choose(struct call *c, int round, int which, int size)
{
    static const enum tutti_type types[] = {TUTTI_FLOAT32, TUTTI_INT8, TUTTI_INT64};
    *c = (struct call){.collective = collectives[which],
                       .type = types[(round + which) % 3],
                       .root = round % size,
                       .round = round,
                       .in_place = (round + which) / 2 % 2 == 1};
}

static int alone(tutti_comm *comm, const struct options *o, int round, int which)
{
    const bool async = o->device || (round / 3 + which) % 2;
    struct call c;
    tutti_request *request = NULL;
    call_choose(&c, round, which, tutti_comm_size(comm));
    CHECK(call_make(&c, o, comm) == 0);
    CHECK_OK(call_start(&c, async, comm, &request));
    CHECK(!async == !request);
    CHECK_OK(tutti_wait(request));
    size_t total = 0;
    for (int k = 0; k < c.in.n; k++)
        total += c.in.counts[k];
    if (o->way && c.collective == TUTTI_REDUCE_SCATTER && total > 0)
        CHECK(strcmp(tti_comm_device_way(comm), o->way) == 0);
    return call_check(&c, o, comm);
}

/* All five, and an even one between them, in one group; of the requests one is waited for twice as
 * late as the others. */
static int together(tutti_comm *comm, const struct options *o, int round)
{
    struct call calls[COLLECTIVES];
    tutti_request *requests[COLLECTIVES] = {NULL};
    int32_t one = 1, sum = 0;
    for (int i = 0; i < COLLECTIVES; i++) {
        call_choose(&calls[i], round, i, tutti_comm_size(comm));
        CHECK(call_make(&calls[i], o, comm) == 0);
    }
    CHECK_OK(tutti_group_start());
    for (int i = 0; i < COLLECTIVES; i++) {
        const bool async = o->device || (round + i) % 3 != 0;
        CHECK_OK(call_start(&calls[i], async, comm, &requests[i]));
        if (i == 2)
            CHECK_OK(tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm));
    }
    CHECK_OK(tutti_group_end());
    CHECK(sum == tutti_comm_size(comm));
    for (int i = COLLECTIVES; i-- > 0;)
        CHECK_OK(tutti_wait(requests[i]));
    for (int i = 0; i < COLLECTIVES; i++)
        CHECK(call_check(&calls[i], o, comm) == 0);
    return 0;
}

static int exact(tutti_comm *comm, void *argument)
{
    const struct options *o = argument;
    CHECK(tutti_comm_size(comm) <= RANKS);
    if (o->device)
        CHECK(device_begin(tutti_comm_rank(comm)) == 0);
    for (int round = 0; round < o->rounds; round++) {
        for (int which = 0; which < COLLECTIVES; which++)
            CHECK(alone(comm, o, round, which) == 0);
        if (round % 4 == 0)
            CHECK(together(comm, o, round) == 0);
    }
    return o->device ? device_end(comm) : 0;
}

/* Small calls that come again are worked out once (coll/small_plan.h): with the same blocks, with
 * the same counts in other places, and where some ranks do without. */
static int come_again(tutti_comm *comm, void *argument)
{
    const struct options *o = argument;
    const struct options few = {.most = 200};
    enum { TIMES = 9, SAME = 3, CASES = 10 };
    const int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    int programs = 0;
    for (int round = 0; round < CASES; round++)
        for (int time = 0; time < TIMES; time++) {
            struct call c;
            call_choose(&c, round, 1, size);
            c.layout = time / SAME;
            comm->settings.fast = time % SAME != 2 || (rank + round) % 2;
            CHECK(call_make(&c, &few, comm) == 0);
            CHECK_OK(call_start(&c, false, comm, NULL));
            CHECK(call_check(&c, &few, comm) == 0);
        }
    for (int i = 0; i < TTI_SMALL_PROGRAMS; i++)
        programs += comm->small.all[i] && comm->small.all[i]->blocks;
    CHECK(programs > 0 || o->algorithm);
    return 0;
}

/* Memory for a call, and what is in it on the host; the same where there is no device. */
static int same_make(const struct options *o, size_t count, float **where, float **host)
{
    *host = calloc(count + 1, sizeof **host);
    *where = o->device ? device_memory((count + 1) * sizeof **where) : *host;
    CHECK(*host && *where);
    return 0;
}

static void same_free(const struct options *o, float *where, float *host)
{
    if (o->device)
        device_free(where);
    free(host);
}

/* With sum, average or a pre-multiplied sum. */
static int same_op(tutti_comm *comm, const struct options *o, enum tutti_op op)
{
    enum { MOST = 3001 };
    const int size = tutti_comm_size(comm), rank = tutti_comm_rank(comm);
    const tutti_stream stream = o->device ? device_stream() : NULL;
    size_t counts[RANKS], displs[RANKS], total = 0;
    float *in[2], *all[2], *own[2];
    tutti_request *requests[2] = {NULL};
    for (int k = 0; k < size; k++) {
        counts[k] = (size_t)k * 1009 % MOST;
        displs[k] = total;
        total += counts[k];
    }
    CHECK(same_make(o, total, &in[0], &in[1]) == 0 && same_make(o, total, &all[0], &all[1]) == 0 &&
          same_make(o, counts[rank], &own[0], &own[1]) == 0);
    for (size_t i = 0; i < total; i++)
        in[1][i] = (float)(mix(i * 64 + (uint64_t)rank) % 100003) / 7.0F;
    if (o->device)
        CHECK_OK(device_copy(in[0], in[1], total * sizeof(float)));
    CHECK_OK(tutti_all_reduce_async(in[0], all[0], total, TUTTI_FLOAT32, op, comm, stream,
                                    &requests[0]));
    CHECK_OK(tutti_reduce_scatter_v_async(in[0], own[0], counts, NULL, TUTTI_FLOAT32, op, comm,
                                          stream, &requests[1]));
    CHECK_OK(tutti_wait(requests[0]));
    CHECK_OK(tutti_wait(requests[1]));
    if (o->device) {
        CHECK_OK(device_copy(all[1], all[0], total * sizeof(float)));
        CHECK_OK(device_copy(own[1], own[0], counts[rank] * sizeof(float)));
        CHECK_OK(device_settle());
    }
    CHECK(memcmp(own[1], all[1] + displs[rank], counts[rank] * sizeof(float)) == 0);
    same_free(o, in[0], in[1]);
    same_free(o, all[0], all[1]);
    same_free(o, own[0], own[1]);
    return 0;
}

/* The bits of a reduce-scatter on blocks of all sizes are those of an all-reduce, where the order
 * of sums is fixed. */
static int same_bits(tutti_comm *comm, void *argument)
{
    const struct options *o = argument;
    float scalar = 0.3F * (float)(tutti_comm_rank(comm) + 1);
    enum tutti_op scaled;
    if (o->device)
        CHECK(device_begin(tutti_comm_rank(comm)) == 0);
    CHECK_OK(tutti_premul_sum_create(comm, TUTTI_FLOAT32, &scalar, &scaled));
    CHECK(same_op(comm, o, TUTTI_SUM) == 0 && same_op(comm, o, TUTTI_AVG) == 0 &&
          same_op(comm, o, scaled) == 0);
    CHECK_OK(tutti_op_destroy(comm, scaled));
    return o->device ? device_end(comm) : 0;
}

static const struct {
    const char *name;
    tti_rank_function *function;
    bool device, reproducible;
} tests[] = {
    {"every collective, random counts", exact, true, false},
    {"calls that come again", come_again, false, false},
    {"the same bits as an all-reduce", same_bits, true, true},
};

int main(int argc, char **argv)
{
    struct tti_ranks how = {.ranks = 3, .options = TUTTI_OPTIONS_INIT};
    struct options options = {.most = 40000, .rounds = ROUNDS};
    int failed = 0;
    how.options.timeout_s = 60;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--device") == 0)
            options.device = true;
        else if (strcmp(argv[i], "--algo") == 0 && i + 1 < argc)
            how.options.algorithms = argv[++i], options.algorithm = true;
        else if (strcmp(argv[i], "--way") == 0 && i + 1 < argc)
            options.way = argv[++i];
        else if (strcmp(argv[i], "--big") == 0)
            options.most = 3000000, options.rounds = 6;
        else if (strcmp(argv[i], "--large") == 0)
            options.large = true;
        else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            options.rounds = atoi(argv[++i]);
        else if (!tti_ranks_flag(&how, argc, argv, &i))
            return fprintf(stderr, "unknown argument %s\n", argv[i]), 2;
    for (size_t t = 0; t < sizeof tests / sizeof tests[0]; t++) {
        if ((options.device && !tests[t].device) ||
            (how.options.algorithms && tests[t].reproducible))
            continue;
        how.options.reproducible = tests[t].reproducible;
        failed += tti_ranks_test(&how, tests[t].name, tests[t].function, &options);
    }
    return failed ? 1 : 0;
}
