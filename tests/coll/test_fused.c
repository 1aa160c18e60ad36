/* coll/fused.c and the plans that it stands for are the same operations: the same bits for every
 * collective, type, operator, odd count, place and alignment. Where memory cannot be mapped, all
 * ranks take the plan, and stop asking for a while.
 *
 * Contributions are random, so the order of combination shows in the sums. */
#include "coll/algorithms/algorithms.h"
#include "coll/comm.h"
#include "coll/fused.h"
#include "coll/select.h"
#include "tests/integration/host_calls.h"
#include "tests/integration/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COUNT = 5000, MOST_RANKS = 4, SHIFT = 8 };
enum { MOST_BYTES = MOST_COUNT * MOST_RANKS * 8 + SHIFT };
/* Floats of which a rank's part is long enough to go from its end every second time, in place too
 * (coll/fused_again.c: 24 KiB), however many ranks there are; and buffers for them. */
enum { LONG_COUNT = MOST_RANKS * ((24 << 10) / 4 + 33) + 3, MOVED_BYTES = 192 };
enum { LONG_BYTES = LONG_COUNT * MOST_RANKS * 4 + MOVED_BYTES };

/* Each type and operator at all counts; in a sanitizer's build at one, by turns. */
static const size_t counts[] = {1, 7, 64, 1025, MOST_COUNT};
enum { ALL_COUNTS = sizeof counts / sizeof counts[0] };
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { COUNTS_EACH = 1 };
#else
enum { COUNTS_EACH = ALL_COUNTS };
#endif

static const char equals[] = "all_reduce=two_shot,reduce_scatter=direct,all_gather=direct,"
                             "broadcast=scatter_gather,reduce=direct,gather=direct,"
                             "scatter=direct,all_to_all=direct";

struct buffers {
    char *in, *out, *plain;
    bool registered; /* what has no whole page cannot be mapped then */
};

static void allow(tutti_comm *comm, bool fused)
{
    comm->settings.fast = fused;
    comm->settings.fused_from = 0;
    comm->settings.fused_forced = true;
    tti_select_try(comm, NULL); /* forgets what was selected with the old settings */
}

/* One operation by the plan (fused == false) or by hand, as is allowed; its output is at *out,
 * *bytes long. */
static int run(tutti_comm *comm, struct tti_operation o, const struct buffers *b, bool in_place,
               bool fused, const char **out, size_t *bytes)
{
    uint32_t in_blocks = 0, out_blocks = 0, in_at = 0, out_at = 0;
    size_t size = tutti_type_size(o.type), block = o.count * size;
    tti_shape(o.collective, comm->size, comm->rank, o.root, &in_blocks, &out_blocks);
    bool aliased =
        in_place && tti_in_place(o.collective, comm->size, comm->rank, o.root, &in_at, &out_at);
    char *in = aliased ? b->out + out_at * block : b->in;
    char *to = aliased ? b->out + in_at * block : b->out;
    memset(b->out, 0x5a, (in_blocks > out_blocks ? in_blocks : out_blocks) * block);
    test_fill(in, o.type, in_blocks * o.count, (uint32_t)(comm->rank * 7919 + (int)o.count));
    o.in = in;
    o.out = to;
    uint64_t served = comm->fused[o.collective].served;
    if (test_call(&o, comm) != TUTTI_OK)
        return fprintf(stderr, "%s\n", tutti_last_error()), 1;
    served = comm->fused[o.collective].served - served;
    if (fused ? served != 1 && !b->registered : served != 0)
        return fprintf(stderr, "%s: not by the path that was asked for\n",
                       tutti_collective_name(o.collective)),
               1;
    *out = to;
    *bytes = out_blocks * block;
    return 0;
}

/* What the plan makes of it, in b->plain. */
static int by_plan(tutti_comm *comm, const struct tti_operation *o, const struct buffers *b,
                   bool in_place)
{
    const char *out = NULL;
    size_t bytes = 0;
    allow(comm, false);
    if (run(comm, *o, b, in_place, false, &out, &bytes))
        return 1;
    memcpy(b->plain, out, bytes);
    return 0;
}

static int differs(const struct tti_operation *o, const struct buffers *b, bool in_place,
                   const char *out, size_t bytes)
{
    if (memcmp(b->plain, out, bytes) == 0)
        return 0;
    return fprintf(stderr, "%s %s %s count %zu root %d%s: other bits than the plan\n",
                   tutti_collective_name(o->collective), tutti_type_name(o->type),
                   tutti_op_name(o->op), o->count, o->root, in_place ? " in place" : "");
}

static int compare(tutti_comm *comm, const struct tti_operation *o, const struct buffers *b)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        const char *out = NULL;
        size_t bytes = 0;
        if (by_plan(comm, o, b, in_place))
            return 1;
        allow(comm, true);
        if (run(comm, *o, b, in_place, true, &out, &bytes) || differs(o, b, in_place, out, bytes))
            return 1;
    }
    return 0;
}

static int every_operation(tutti_comm *comm, const struct buffers *b)
{
    for (int c = 0; c < TUTTI_BARRIER; c++)
        for (int t = 0; t < TUTTI_TYPE_COUNT; t++)
            for (int op = 0; op < (tti_reduces((enum tutti_collective)c) ? TUTTI_OP_COUNT : 1);
                 op++)
                for (int k = 0; k < COUNTS_EACH; k++) {
                    const int i = (c + t + op + k) % ALL_COUNTS;
                    struct tti_operation o = {.collective = (enum tutti_collective)c,
                                              .count = counts[i],
                                              .type = (enum tutti_type)t,
                                              .op = (enum tutti_op)op,
                                              .root = i % comm->size};
                    if (compare(comm, &o, b))
                        return 1;
                }
    return 0;
}

/* An operator of the program's, which scales the input aside first. */
static int premultiplied(tutti_comm *comm, const struct buffers *b)
{
    const float scalar = 0.37f;
    struct tti_operation o = {
        .collective = TUTTI_ALL_REDUCE, .count = MOST_COUNT, .type = TUTTI_FLOAT32};
    if (tutti_premul_sum_create(comm, TUTTI_FLOAT32, &scalar, &o.op) != TUTTI_OK)
        return fprintf(stderr, "%s\n", tutti_last_error()), 1;
    return compare(comm, &o, b);
}

/* Large enough to be streamed around the caches. */
static int streamed(tutti_comm *comm)
{
    const size_t count = ((size_t)40 << 20) / sizeof(float) + 3;
    float *x = NULL;
    if (tutti_alloc(count * sizeof *x, (void **)&x) != TUTTI_OK)
        return fprintf(stderr, "%s\n", tutti_last_error()), 1;
    for (size_t i = 0; i < count; i++)
        x[i] = (float)(i % 1000 + (size_t)comm->rank);
    allow(comm, true);
    uint64_t served = comm->fused[TUTTI_ALL_REDUCE].served;
    int bad = tutti_all_reduce(x, x, count, TUTTI_FLOAT32, TUTTI_SUM, comm) != TUTTI_OK ||
              comm->fused[TUTTI_ALL_REDUCE].served == served;
    int n = comm->size;
    for (size_t i = 0; i < count && !bad; i++)
        bad = x[i] != (float)((i % 1000) * (size_t)n + (size_t)(n * (n - 1) / 2));
    tutti_free(x);
    return bad ? fprintf(stderr, "streamed: wrong, or not fused\n"), 1 : 0;
}

static int buffers_make(struct buffers *b, size_t bytes)
{
    char **const all[] = {&b->in, &b->out, &b->plain};
    for (int i = 0; i < 3; i++) {
        void *memory = NULL;
        if (tutti_alloc(bytes, &memory) != TUTTI_OK)
            return fprintf(stderr, "%s\n", tutti_last_error()), 1;
        *all[i] = memory;
    }
    return 0;
}

/* Shifted by less than an element: no alignment may be counted on. */
static int mapped(tutti_comm *comm, void *argument)
{
    struct buffers b = {0};
    (void)argument;
    if (buffers_make(&b, MOST_BYTES))
        return 1;
    struct buffers shifted = {b.in + 3, b.out + 5, b.plain, false};
    int bad = every_operation(comm, comm->size == 3 ? &shifted : &b) || premultiplied(comm, &b) ||
              (comm->size == 2 && streamed(comm));
    tutti_free(b.in);
    tutti_free(b.out);
    tutti_free(b.plain);
    return bad;
}

/* Memory of the program's own: the elements before and behind its whole pages go another way. */
static int registered(tutti_comm *comm, void *argument)
{
    struct buffers b = {.registered = true};
    char *all[3];
    (void)argument;
    for (int i = 0; i < 3; i++) {
        all[i] = malloc(MOST_BYTES + 64);
        if (!all[i])
            return 1;
    }
    b.in = all[0] + 3 + 16 * comm->rank; /* edges of other lengths on each rank */
    b.out = all[1] + 40;
    b.plain = all[2];
    if (tutti_register(b.in, MOST_BYTES) != TUTTI_OK ||
        tutti_register(b.out, MOST_BYTES) != TUTTI_OK)
        return fprintf(stderr, "%s\n", tutti_last_error()), 1;
    int bad = every_operation(comm, &b);
    for (int c = 0; c < TUTTI_BARRIER && !bad; c++)
        if (comm->fused[c].served < 4 * COUNTS_EACH) /* the larger counts */
            bad = fprintf(stderr, "%s: %llu operations on registered memory were fused\n",
                          tutti_collective_name((enum tutti_collective)c),
                          (unsigned long long)comm->fused[c].served) > 0;
    bad |= tutti_deregister(b.in) != TUTTI_OK || tutti_deregister(b.out) != TUTTI_OK;
    for (int i = 0; i < 3; i++)
        free(all[i]);
    return bad;
}

/* One rank's memory cannot be mapped by other processes' means: the plan serves, and the question
 * is not asked every time. Then everybody's can be. */
static int not_mapped(tutti_comm *comm, void *argument)
{
    enum { COUNT = 3000, ROUNDS = 520 };
    static const char text[] = "all ranks take the plan when one must";
    float *mappable = NULL, *plain = malloc(COUNT * sizeof *plain);
    const struct tti_fused_record *record = &comm->fused[TUTTI_ALL_REDUCE];
    const struct tti_operation like = {
        .collective = TUTTI_ALL_REDUCE, .count = COUNT, .type = TUTTI_FLOAT32};
    const struct tti_fused_class *class = tti_fused_class(comm, &like);
    (void)argument;
    if (!plain || tutti_alloc(COUNT * sizeof *plain, (void **)&mappable) != TUTTI_OK)
        return 1;
    allow(comm, true);
    int bad = 0;
    for (int k = 0; k < 2 * ROUNDS && !bad; k++) {
        float *x = k < ROUNDS && comm->rank == 1 ? plain : mappable;
        for (int i = 0; i < COUNT; i++)
            x[i] = (float)(i + comm->rank);
        bad = tutti_all_reduce(x, x, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm) != TUTTI_OK;
        for (int i = 0; i < COUNT && !bad; i++)
            bad = x[i] != (float)(comm->size * i + comm->size * (comm->size - 1) / 2);
        if (k == ROUNDS - 1) /* 1 + 2 + 1 + 4 + 1 ... 256 + 1 operations: asked nine times */
            bad = bad || record->served != 0 || class->refused != 8;
    }
    bad = bad || record->served == 0 || class->refused != 0;
    free(plain);
    tutti_free(mappable);
    return bad ? fprintf(stderr, "%s: served %llu, refused %u; %s\n", text,
                         (unsigned long long)record->served, class->refused, tutti_last_error()),
           1   : 0;
}

/* What rank 1 passes in between. */
struct others {
    struct buffers moved, odd, rest; /* `rest`: beside `odd`, not served either */
};

/* The same call over and over takes a shorter way; a call in between with other buffers of one
 * rank, or with memory that cannot be mapped, does not, and all ranks know. */
static int over_and_over(tutti_comm *comm, enum tutti_collective c, const struct buffers *b,
                         const struct others *others, bool in_place)
{
    enum { MOVED = 3, LAST = 6 }; /* calls that are not like the one before */
    const struct tti_operation o = {
        .collective = c, .count = LONG_COUNT, .type = TUTTI_FLOAT32, .root = comm->size - 1};
    const bool process = strcmp(comm->settings.transports, "shm") == 0;
    const bool alters = process && !in_place && c != TUTTI_ALL_GATHER && c != TUTTI_GATHER &&
                        c != TUTTI_ALL_TO_ALL; /* in these nobody reads another's input */
    const uint64_t from_end = comm->repeats_from_end;
    const char *out = NULL;
    size_t bytes = 0;
    uint64_t before = 0;
    if (by_plan(comm, &o, b, in_place))
        return 1;
    allow(comm, true);
    for (int k = 0; k <= LAST; k++) {
        if (k == 1 || k == MOVED + 1)
            before = comm->repeats;
        const struct buffers *now = b;
        if (k == MOVED && comm->rank == 1)
            now = &others->moved;
        if (k == LAST && alters)
            now = comm->rank == 1 ? &others->odd : &others->rest;
        if (run(comm, o, now, in_place, true, &out, &bytes) || differs(&o, b, in_place, out, bytes))
            return 1;
        const bool again = k == MOVED - 1 || k == LAST - 1;
        if (again && c != TUTTI_ALL_TO_ALL && comm->repeats == before)
            return fprintf(stderr, "%s: call %d did not take the short way\n",
                           tutti_collective_name(c), k);
    }
    if (c != TUTTI_ALL_TO_ALL && comm->repeats_from_end == from_end)
        return fprintf(stderr, "%s%s: never from the end\n", tutti_collective_name(c),
                       in_place ? " in place" : "");
    return 0;
}

static int repeated(tutti_comm *comm, void *argument)
{
    struct buffers b = {0};
    char *unmappable = malloc(LONG_BYTES);
    (void)argument;
    if (!unmappable || buffers_make(&b, LONG_BYTES))
        return 1;
    /* Where ranks outnumber the cores nothing goes from its end; here it shall. */
    comm->crowded = false;
    int bad = 0;
    for (int in_place = 1; in_place >= 0; in_place--) { /* last, what all ranks then skip */
        const struct others others = {
            .moved = {b.in + MOVED_BYTES, in_place ? b.out + MOVED_BYTES : b.out, b.plain, false},
            .odd = {unmappable, b.out, b.plain, true},
            .rest = {b.in, b.out, b.plain, true},
        };
        for (int c = 0; c < TUTTI_BARRIER && !bad; c++)
            bad = over_and_over(comm, (enum tutti_collective)c, &b, &others, in_place);
    }
    free(unmappable);
    tutti_free(b.in);
    tutti_free(b.out);
    tutti_free(b.plain);
    return bad;
}

/* On meshes parts of some lengths are taken from the front each time: shorter and longer ones are
 * not, nor any in clusters. Every call has its record. */
static int which_from_end(tutti_comm *comm, void *argument)
{
    static const struct {
        size_t part;
        bool meshed, turns;
    } cases[] = {{64 << 10, true, true},
                 {112 << 10, true, false},
                 {112 << 10, false, true},
                 {160 << 10, true, true}};
    enum { CALLS = 5, LONGEST = 160 << 10 };
    float *x = NULL;
    int bad = 0;
    (void)argument;
    if (tutti_alloc((size_t)comm->size * LONGEST, (void **)&x) != TUTTI_OK)
        return 1;
    memset(x, 0, (size_t)comm->size * LONGEST);
    comm->crowded = false;
    const bool meshed = comm->profile.meshed;
    allow(comm, true);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0] && !bad; i++) {
        const size_t count = (size_t)comm->size * cases[i].part / sizeof *x;
        comm->profile.meshed = cases[i].meshed;
        const uint64_t repeats = comm->repeats, from_end = comm->repeats_from_end;
        const uint64_t records = comm->recorder.ring[0].next;
        for (int k = 0; k < CALLS && !bad; k++)
            bad = tutti_all_reduce(x, x, count, TUTTI_FLOAT32, TUTTI_SUM, comm) != TUTTI_OK ||
                  comm->recorder.ring[0].next != records + (uint64_t)k + 1 ||
                  tti_record_last_path(&comm->recorder.ring[0]) != TTI_RECORD_FUSED;
        bad = bad || comm->repeats == repeats ||
              (comm->repeats_from_end != from_end) != cases[i].turns;
        if (bad)
            fprintf(stderr, "parts of %zu bytes%s: %llu repeats, %llu from the end\n",
                    cases[i].part, cases[i].meshed ? " on a mesh" : "",
                    (unsigned long long)(comm->repeats - repeats),
                    (unsigned long long)(comm->repeats_from_end - from_end));
    }
    comm->profile.meshed = meshed;
    tutti_free(x);
    return bad;
}

/* A rank that makes another call is named; after equal calls, too (`argument`: not NULL), when the
 * record is written behind the first messages. */
static int mismatch(tutti_comm *comm, void *argument)
{
    const bool repeated_before = argument != NULL;
    float *x = NULL;
    if (tutti_alloc(4096, (void **)&x) != TUTTI_OK)
        return 1;
    allow(comm, true);
    int bad = 0;
    for (int k = 0; k < 4 && repeated_before && !bad; k++)
        bad = tutti_all_reduce(x, x, 400, TUTTI_FLOAT32, TUTTI_SUM, comm) != TUTTI_OK;
    const uint64_t records = comm->recorder.ring[0].next;
    enum tutti_result result =
        tutti_all_reduce(x, x, comm->rank == 1 ? 300 : 400, TUTTI_FLOAT32, TUTTI_SUM, comm);
    bad |= result != TUTTI_ERR_MISMATCH || !strstr(tutti_last_error(), "count 300") ||
           comm->recorder.ring[0].next != records + 1 ||
           tti_record_last_path(&comm->recorder.ring[0]) != TTI_RECORD_FUSED;
    if (bad)
        fprintf(stderr, "a mismatch gave %d: %s\n", (int)result, tutti_last_error());
    tutti_free(x);
    return bad;
}

/* Some peers are threads of this process, who map any memory, and some are not. */
static int mixed(void)
{
    struct tti_ranks how = {.ranks = 4, .processes = true, .threads = 2};
    how.options = (struct tutti_options)TUTTI_OPTIONS_INIT;
    how.options.transports = "inproc,shm";
    how.options.algorithms = equals;
    int bad = tti_ranks_run(&how, mapped, NULL) + tti_ranks_run(&how, mismatch, NULL) +
              tti_ranks_run(&how, mismatch, &how) + tti_ranks_run(&how, repeated, NULL) +
              tti_ranks_run(&how, not_mapped, NULL) + tti_ranks_run(&how, registered, NULL);
    printf("4 ranks, 2 in a process: %s\n", bad ? "FAILED" : "ok");
    return bad;
}

/* 2 to 4 ranks that all reach each other by one transport. */
static int alone(const char *transport)
{
    int failed = 0;
    bool shm = strcmp(transport, "shm") == 0;
    for (int ranks = 2; ranks <= MOST_RANKS; ranks++) {
        struct tti_ranks how = {.ranks = ranks, .options = TUTTI_OPTIONS_INIT};
        how.options.transports = transport;
        how.options.algorithms = equals;
        how.processes = shm && ranks == 4;
        int bad = tti_ranks_run(&how, mapped, NULL) + tti_ranks_run(&how, mismatch, NULL) +
                  tti_ranks_run(&how, mismatch, &how) + tti_ranks_run(&how, repeated, NULL) +
                  tti_ranks_run(&how, which_from_end, NULL);
        if (shm)
            bad += tti_ranks_run(&how, not_mapped, NULL) + tti_ranks_run(&how, registered, NULL);
        printf("%d ranks over %s: %s\n", ranks, transport, bad ? "FAILED" : "ok");
        failed += bad;
    }
    return failed;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "mixed") == 0)
        return mixed() ? 1 : 0;
    if (argc == 2 && (strcmp(argv[1], "inproc") == 0 || strcmp(argv[1], "shm") == 0))
        return alone(argv[1]) ? 1 : 0;
    fprintf(stderr, "usage: test_fused inproc | shm | mixed (a process of two threads each)\n");
    return 2;
}
