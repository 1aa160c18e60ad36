/* A small program (coll/small_plan.c) and the executor run one and the same operation: ranks that
 * take the one and ranks that take the other work together, and give the same bits as the executor
 * alone. Every collective by every algorithm.
 *
 * Ranks are threads with random contributions (sums are not exact, so the order of combination
 * shows). In round m of a case, rank r runs the program if bit r of m is set: all mixtures. */
#include "coll/algorithms/algorithms.h"
#include "coll/comm.h"
#include "coll/plan_cache.h"
#include "coll/select.h"
#include "coll/small_plan.h"
#include "device/reduce.h"
#include "tests/integration/host_calls.h"
#include "tests/integration/ranks.h"

#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every operation takes several times as long under a sanitizer. */
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
enum { RANKS = 3 };
#else
enum { RANKS = 4 };
#endif
enum { MOST_RANKS = 4, MOST_BYTES = 16384, MOST_ALGORITHMS = 16 };

/* The memory of one rank: IN and OUT, or both in one where the collective has a place for it. */
struct memory {
    char apart[2][MOST_RANKS * MOST_BYTES];
    char together[2 * MOST_RANKS * MOST_BYTES];
    char given[MOST_RANKS * MOST_BYTES]; /* what IN is in every mixture ... */
    char plain[MOST_RANKS * MOST_BYTES]; /* ... and OUT after the executor alone */
};

/* Operations that had to be run by a program; none: nothing was tested. */
static atomic_uint demanded;

/* All links are alike; a plan for memory that is mapped may have used others than this one. */
static const struct tti_link *any_link(const tutti_comm *comm)
{
    for (int p = 0; p < comm->size; p++)
        if (comm->links.all[p].connected)
            return &comm->links.all[p];
    return NULL;
}

/* Must this operation, which is over, have been run by a program? (One message may hold the blocks
 * of all.) */
static bool is_small(tutti_comm *comm, const struct tti_operation *o)
{
    struct tti_selection selection;
    const struct tti_plan_entry *entry = NULL;
    const struct tti_link *link = any_link(comm);
    if (!link ||
        tti_select_plan(comm, o->collective, o->count, o->type, o->root, &selection) != TUTTI_OK ||
        tti_plan_cache_get(&comm->plans, selection.algorithm, &selection.spec, &entry) != TUTTI_OK)
        return true;
    if (selection.path != TTI_PATH_PLAN) /* where ranks outnumber cores, it may go staged */
        return false;
    const size_t most = tti_link_in_memory(link) ? TTI_SMALL_BYTES : TTI_SMALL_NETWORK_BYTES;
    return entry->plan->nlanes == 1 && tti_acc_type(o->type) == o->type &&
           o->count * tutti_type_size(o->type) <= most / MOST_RANKS;
}

/* Was there one, if there had to be? */
static bool program_made(tutti_comm *comm, const struct tti_operation *o)
{
    if (!is_small(comm, o))
        return true;
    atomic_fetch_add(&demanded, 1);
    return any_link(comm) && tti_small_find(comm, o, false);
}

/* One operation in one mixture. */
static int one_mixture(tutti_comm *comm, struct memory *memory, struct tti_operation o,
                       bool in_place, unsigned mixture)
{
    uint32_t in_blocks = 0, out_blocks = 0, in_block = 0, out_block = 0;
    size_t bytes = o.count * tutti_type_size(o.type);
    if (o.collective != TUTTI_BARRIER)
        tti_shape(o.collective, comm->size, comm->rank, o.root, &in_blocks, &out_blocks);
    char *in = memory->apart[0], *out = memory->apart[1];
    if (in_place &&
        tti_in_place(o.collective, comm->size, comm->rank, o.root, &in_block, &out_block)) {
        in = memory->together + (out_block > in_block ? out_block - in_block : 0) * bytes;
        out = memory->together + (in_block > out_block ? in_block - out_block : 0) * bytes;
    }
    memset(out, 0x5a, out_blocks * bytes);
    memcpy(in, memory->given, in_blocks * bytes);
    o.in = in;
    o.out = out;
    comm->settings.fast = mixture >> comm->rank & 1;
    if (test_call(&o, comm) != TUTTI_OK)
        return fprintf(stderr, "%s\n", tutti_last_error()), 1;
    if (mixture == 0 && !in_place)
        memcpy(memory->plain, out, out_blocks * bytes);
    if (memcmp(memory->plain, out, out_blocks * bytes) != 0)
        return fprintf(stderr, "%s %s %s count %zu, mixture %u%s: other bits than the executor\n",
                       tutti_collective_name(o.collective), tutti_type_name(o.type),
                       tutti_op_name(o.op), o.count, mixture, in_place ? " in place" : ""),
               1;
    if (comm->settings.fast && o.collective != TUTTI_BARRIER && !program_made(comm, &o))
        return fprintf(stderr, "%s count %zu: no program was made\n",
                       tutti_collective_name(o.collective), o.count),
               1;
    return 0;
}

static int mixtures(tutti_comm *comm, struct memory *memory, const struct tti_operation *o)
{
    test_fill(memory->given, o->type, (size_t)comm->size * o->count,
              (uint32_t)(comm->rank * 7919 + (int)o->count));
    for (unsigned mixture = 0; mixture < 1u << comm->size; mixture++)
        for (int in_place = 0; in_place < 2; in_place++)
            if (one_mixture(comm, memory, *o, in_place == 1, mixture))
                return 1;
    return 0;
}

static int all_counts(tutti_comm *comm, struct memory *memory, enum tutti_collective collective,
                      enum tutti_type type, enum tutti_op op)
{
#ifdef __SANITIZE_THREAD__
    static const size_t bytes[] = {8, 200};
#elif defined __SANITIZE_ADDRESS__ /* the ends of what is copied, and one between */
    static const size_t bytes[] = {1, 49, 200, MOST_BYTES};
#else
    static const size_t bytes[] = {1, 8, 48, 49, 64, 200, 1000, 2048, MOST_BYTES};
#endif
    for (size_t b = 0; b < sizeof bytes / sizeof bytes[0]; b++) {
        struct tti_operation o = {.collective = collective,
                                  .count = bytes[b] / tutti_type_size(type),
                                  .type = type,
                                  .op = op,
                                  .root = (int)b % comm->size};
        if (collective == TUTTI_ALL_REDUCE || collective == TUTTI_REDUCE_SCATTER ||
            collective == TUTTI_ALL_GATHER || collective == TUTTI_ALL_TO_ALL)
            o.root = 0;
        if (o.count > 0 && mixtures(comm, memory, &o))
            return 1;
    }
    return 0;
}

static int all_operations(tutti_comm *comm, void *argument)
{
    static const enum tutti_type types[] = {TUTTI_FLOAT32, TUTTI_BFLOAT16};
    static const enum tutti_op ops[] = {TUTTI_SUM, TUTTI_AVG};
    struct memory *memory = calloc(1, sizeof *memory);
    int bad = !memory;
    (void)argument;
    for (int c = 0; c < (int)TUTTI_SEND_RECV && !bad; c++) {
        enum tutti_collective collective = (enum tutti_collective)c;
        bool reduces = tti_reduces(collective) && collective != TUTTI_BARRIER;
        for (size_t t = 0; t < sizeof types / sizeof types[0] && !bad; t++)
            for (size_t op = 0; op < (reduces ? sizeof ops / sizeof ops[0] : 1) && !bad; op++)
                bad = all_counts(comm, memory, collective, types[t], ops[op]);
    }
    free(memory);
    return bad;
}

/* Every type and operator, by what is chosen for all-reduce. */
static int all_types(tutti_comm *comm, void *argument)
{
    struct memory *memory = calloc(1, sizeof *memory);
    int bad = !memory;
    (void)argument;
    for (int t = 0; t < TUTTI_TYPE_COUNT && !bad; t++)
        for (int op = 0; op < TUTTI_OP_COUNT && !bad; op++)
            bad = all_counts(comm, memory, TUTTI_ALL_REDUCE, (enum tutti_type)t, (enum tutti_op)op);
    free(memory);
    return bad;
}

/* A rank that makes another call is named, by programs too. */
static int mismatch(tutti_comm *comm, void *argument)
{
    float x[4] = {1, 2, 3, 4};
    (void)argument;
    struct tti_operation o = {.collective = TUTTI_ALL_REDUCE, .count = 4, .type = TUTTI_FLOAT32};
    for (int i = 0; i < 2; i++)
        if (tutti_all_reduce(x, x, 4, TUTTI_FLOAT32, TUTTI_SUM, comm) != TUTTI_OK)
            return 1;
    if (!tti_small_find(comm, &o, false))
        return fprintf(stderr, "mismatch: no program was made\n"), 1;
    enum tutti_result result =
        tutti_all_reduce(x, x, comm->rank == 1 ? 3 : 4, TUTTI_FLOAT32, TUTTI_SUM, comm);
    return result != TUTTI_ERR_MISMATCH || !strstr(tutti_last_error(), "count 3");
}

/* Calls like one that has a program, but for one argument: refused as if there were none. */
static int wrong_calls(tutti_comm *comm, void *argument)
{
    float x[8] = {1, 2, 3, 4}, y[8] = {0};
    const struct {
        const float *in;
        float *out;
        enum tutti_type type;
        enum tutti_op op;
    } calls[] = {{NULL, y, TUTTI_FLOAT32, TUTTI_SUM},
                 {x, NULL, TUTTI_FLOAT32, TUTTI_SUM},
                 {x, x + 1, TUTTI_FLOAT32, TUTTI_SUM}, /* overlap */
                 {x, y, (enum tutti_type)(TUTTI_FLOAT32 + 16), TUTTI_SUM},
                 {x, y, TUTTI_FLOAT32, (enum tutti_op)16},
                 {x, y, TUTTI_FLOAT32, TUTTI_OP_USER}};
    (void)argument;
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < 2; i++)
            if (tutti_all_reduce(x, y, 4, TUTTI_FLOAT32, TUTTI_SUM, comm) != TUTTI_OK ||
                y[3] != 4.0f * (float)comm->size)
                return fprintf(stderr, "wrong_calls: a right one failed\n"), 1;
        for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++)
            if (tutti_all_reduce(calls[i].in, calls[i].out, 4, calls[i].type, calls[i].op, comm) !=
                TUTTI_ERR_ARGUMENT)
                return fprintf(stderr, "wrong_calls: number %zu was taken\n", i), 1;
    }
    return 0;
}

/* The root may write to its buffer as soon as a call has returned, whatever way the bytes went: the
 * others come late, and its calls run ahead of them. */
static int overwritten(tutti_comm *comm, void *argument)
{
    enum { CALLS = 40, COUNT = 64 };
    float *x = NULL;
    int bad = 0;
    (void)argument;
    if (tutti_alloc(COUNT * sizeof *x, (void **)&x) != TUTTI_OK)
        return fprintf(stderr, "%s\n", tutti_last_error()), 1;
    for (int round = 0; round < 3 && !bad; round++) {
        bad = tutti_barrier(comm) != TUTTI_OK;
        if (comm->rank > 0)
            (void)poll(NULL, 0, 20);
        for (int k = 0; k < CALLS && !bad; k++) {
            for (int i = 0; i < COUNT; i++)
                x[i] = comm->rank == 0 ? (float)(round * CALLS + k) : -1;
            bad = tutti_broadcast(x, x, COUNT, TUTTI_FLOAT32, 0, comm) != TUTTI_OK;
            for (int i = 0; i < COUNT && !bad; i++)
                bad = x[i] != (float)(round * CALLS + k);
            if (bad)
                fprintf(stderr, "broadcast %d: %g; %s\n", round * CALLS + k, (double)x[0],
                        tutti_last_error());
        }
    }
    tutti_free(x);
    return bad;
}

/* "all_reduce=A,broadcast=B,...": algorithm number `k` of each collective, or the first that serves
 * `ranks` after it. False when no collective has that many. */
static bool algorithms_text(int k, int ranks, char *text, size_t bytes)
{
    size_t used = 0;
    bool any = false;
    for (int c = 0; c < (int)TUTTI_SEND_RECV; c++) {
        enum tutti_collective collective = (enum tutti_collective)c;
        const struct tti_algorithm *algorithm = tti_algorithm_at(collective, k);
        struct tti_plan_spec spec = {.collective = collective,
                                     .nranks = ranks,
                                     .lanes = 1,
                                     .slices = 1,
                                     .layout = {.nhosts = 1}};
        any = any || algorithm;
        if (!algorithm || (algorithm->applicable && !algorithm->applicable(&spec)))
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s=%s", used ? "," : "",
                                 tutti_collective_name(collective), algorithm->name);
    }
    return any;
}

/* What an operation larger than the caches told its copies does not hold for the next one. */
static int after_a_large_one(tutti_comm *comm, void *argument)
{
    enum { COUNT = 8192 };
    float *x = calloc(COUNT, sizeof *x);
    int bad = !x;
    (void)argument;
    for (int i = 0; i < 3 && !bad; i++) {
        tti_copy_expect((size_t)1 << 30);
        bad = tutti_all_reduce(x, x, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm) != TUTTI_OK ||
              tti_copy_streams();
    }
    free(x);
    return bad;
}

int main(void)
{
    static const struct {
        const char *name;
        int least, most; /* ranks */
    } transports[] = {{"inproc", 2, RANKS}, {"shm", 2, RANKS}, {"tcp", 2, 2}};
    int failed = 0;
    setenv("TUTTI_FUSED_FROM", "1G", 1); /* what all ranks take or none is not for mixtures */
    setenv("TUTTI_SHM_SLOTS", "2", 1);   /* rings that are soon full */
    setenv("TUTTI_SHM_SLOT_BYTES", "4096", 1);
    for (int t = 0; t < 3; t++)
        for (int ranks = transports[t].least; ranks <= transports[t].most; ranks++) {
            struct tti_ranks how = {.ranks = ranks, .options = TUTTI_OPTIONS_INIT};
            how.options.transports = transports[t].name;
            how.options.timeout_s = 60;
            int bad = tti_ranks_run(&how, all_types, NULL) + tti_ranks_run(&how, mismatch, NULL) +
                      tti_ranks_run(&how, wrong_calls, NULL);
            char algorithms[1000];
            for (int k = 0; k < MOST_ALGORITHMS; k++) {
                algorithms[0] = '\0';
                if (!algorithms_text(k, ranks, algorithms, sizeof algorithms))
                    break;
                how.options.algorithms = algorithms;
                bad += tti_ranks_run(&how, all_operations, NULL);
            }
            const unsigned programs = atomic_exchange(&demanded, 0);
            bad += programs == 0;
            printf("%d ranks over %s, %u operations by programs: %s\n", ranks, transports[t].name,
                   programs, bad ? "FAILED" : "ok");
            failed += bad;
        }
    setenv("TUTTI_SHM_REGION_FROM", "64", 1); /* what finds no room goes by reference */
    struct tti_ranks how = {.ranks = 2, .options = TUTTI_OPTIONS_INIT};
    how.options.transports = "shm";
    int bad = tti_ranks_run(&how, overwritten, NULL);
    printf("overwritten while others come late: %s\n", bad ? "FAILED" : "ok");
    how.options.transports = "inproc";
    const int around = tti_ranks_run(&how, after_a_large_one, NULL);
    printf("after an operation larger than the caches: %s\n", around ? "FAILED" : "ok");
    bad += around;
    return failed || bad ? 1 : 0;
}
