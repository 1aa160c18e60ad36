/* The reproducible mode: every element has the bits of the sum in the order of ranks, worked out
 * here one by one, whatever the algorithm, lanes, paths, transport, hosts, memory and place in the
 * buffer, and whichever collective gives it. The inputs are such that another order shows; --free
 * shows that it does: without the mode a ring gives other bits.
 *
 * Usage: test_reproducible --ranks N [--processes | --hosts H] [--transport LIST] [--device]
 *                          [--few] [--free] */
#include "coll/algorithms/algorithms.h"
#include "device/reduce.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/host_calls.h"
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SOME = 1000, MANY = 20011, SHIFT = 3, PREMUL = TUTTI_OP_COUNT, OPS };

static struct {
    bool device, few, free;
} flags;

/* One kind of operation: inputs of `length` elements on each rank, and the result of each. What all
 * ranks give, and what it comes to, is worked out once, before there are ranks: threads share it,
 * processes inherit it, and no setting works it out again. */
struct kind {
    enum tutti_type type;
    enum tutti_op op; /* as the call takes it */
    int number;       /* enum tutti_op, or PREMUL */
    size_t length, width;
    char *given; /* by all ranks, in their order */
    char *expected;
    char *in, *out; /* this rank's */
};

static struct kind kinds[48];
static int kind_count;

/* ---- the reference ---- */

/* The factor of a rank: not a power of two, so that products are rounded. */
static void factor_of(int rank, enum tutti_type type, void *factor)
{
    float value = 0.7f + 0.11f * (float)rank;
    double wide = 0.7 + 0.11 * rank;
    if (type == TUTTI_FLOAT64)
        memcpy(factor, &wide, sizeof wide);
    else
        tti_convert(factor, type, &value, TUTTI_FLOAT32, 1, NULL);
}

/* What rank `rank` gives. Now and then a NaN with a payload, an infinity, and zeros of one sign. */
static void fill(const struct kind *k, int rank, int size, void *in)
{
    static const float odd[] = {-NAN, INFINITY, -INFINITY, -0.0f};
    test_fill(in, k->type, k->length, (uint32_t)rank * 7919u + (uint32_t)k->number + 1);
    for (size_t i = 0; i < k->length; i += 41) {
        size_t which = i / 41 % 4;
        float value = odd[which];
        double wide = (double)value;
        char *to = (char *)in + i * k->width;
        if (which < 3 && (i / 164 + (size_t)rank) % (size_t)size > 1)
            continue;
        if (k->type == TUTTI_FLOAT64)
            memcpy(to, &wide, sizeof wide);
        else
            tti_convert(to, k->type, &value, TUTTI_FLOAT32, 1, NULL);
    }
}

#define REFERENCE(real, name)                                                               \
    static real name(real a, real b, int op)                                                \
    {                                                                                       \
        if (op == TUTTI_MAX || op == TUTTI_MIN) {                                           \
            bool first = a < b || (a == b && signbit(a) && !signbit(b));                    \
            return isnan(a) || isnan(b) ? (real)NAN : (first == (op == TUTTI_MIN) ? a : b); \
        }                                                                                   \
        real made = op == TUTTI_PROD ? a * b : a + b;                                       \
        return isnan(made) ? (real)NAN : made;                                              \
    }
REFERENCE(float, combine)
REFERENCE(double, combine_wide)

/* Element by element, in the order of ranks, in the accumulator; divided and rounded at the end. */
static void reference(const struct kind *k, int size, const char *contributions)
{
    const bool wide = k->type == TUTTI_FLOAT64;
    for (size_t i = 0; i < k->length; i++) {
        float sum = 0, next = 0;
        double wide_sum = 0, wide_next = 0;
        for (int r = 0; r < size; r++) {
            const char *from = contributions + ((size_t)r * k->length + i) * k->width;
            tti_convert(wide ? (void *)&wide_next : (void *)&next, tti_acc_type(k->type), from,
                        k->type, 1, NULL);
            sum = r == 0 ? next : combine(sum, next, k->number);
            wide_sum = r == 0 ? wide_next : combine_wide(wide_sum, wide_next, k->number);
        }
        if (k->number == TUTTI_AVG) {
            sum = isnan(sum) ? NAN : sum / (float)size;
            wide_sum = isnan(wide_sum) ? (double)NAN : wide_sum / size;
        }
        tti_convert(k->expected + i * k->width, k->type,
                    wide ? (const void *)&wide_sum : (const void *)&sum, tti_acc_type(k->type), 1,
                    NULL);
    }
}

/* Adds a kind of which each of `size` ranks gives `length` elements. */
static void kind_add(enum tutti_type type, int number, size_t length, int size)
{
    struct kind *k = &kinds[kind_count++];
    *k = (struct kind){.type = type,
                       .op = (enum tutti_op)number,
                       .number = number,
                       .length = length,
                       .width = tutti_type_size(type)};
    const size_t bytes = length * k->width;
    uint8_t factor[8] = {0};
    k->given = malloc((size_t)size * bytes);
    k->expected = malloc(bytes);
    char *scaled = malloc((size_t)size * bytes);
    if (!k->given || !k->expected || !scaled)
        abort();
    for (int r = 0; r < size; r++) {
        char *from = k->given + (size_t)r * bytes, *to = scaled + (size_t)r * bytes;
        fill(k, r, size, from);
        factor_of(r, type, factor);
        if (number == PREMUL)
            tti_scale(to, from, factor, type, length);
        else
            memcpy(to, from, bytes);
    }
    reference(k, size, scaled);
    free(scaled);
}

static void kinds_add(int size)
{
    static const enum tutti_type types[] = {TUTTI_FLOAT32, TUTTI_FLOAT16,     TUTTI_BFLOAT16,
                                            TUTTI_FLOAT64, TUTTI_FLOAT8_E4M3, TUTTI_FLOAT8_E5M2};
    const size_t n = (size_t)size, each = flags.few ? SOME / 3 : SOME;
    if (flags.free) {
        kind_add(TUTTI_FLOAT32, TUTTI_SUM, SOME, size);
        return;
    }
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++)
        for (int number = 0; number < OPS; number++)
            if (!flags.few || (t + (size_t)number) % 3 == 0)
                kind_add(types[t], number, each * n, size);
    kind_add(TUTTI_FLOAT32, TUTTI_SUM, MANY * n, size);
    kind_add(TUTTI_BFLOAT16, TUTTI_AVG, MANY * n, size);
}

static void kinds_drop(void)
{
    while (kind_count > 0) {
        free(kinds[--kind_count].given);
        free(kinds[kind_count].expected);
    }
}

/* This rank's side of `from`. */
static int kind_make(struct kind *k, const struct kind *from, tutti_comm *comm)
{
    const int rank = tutti_comm_rank(comm);
    const size_t bytes = from->length * from->width;
    uint8_t factor[8] = {0};
    *k = *from;
    k->in = malloc(bytes + SHIFT * k->width);
    k->out = malloc(bytes + SHIFT * k->width);
    CHECK(k->in && k->out);
    memcpy(k->in, k->given + (size_t)rank * bytes, bytes);
    factor_of(rank, k->type, factor);
    if (k->number == PREMUL)
        CHECK_OK(tutti_premul_sum_create(comm, k->type, factor, &k->op));
    return 0;
}

static int kind_drop(struct kind *k, tutti_comm *comm)
{
    free(k->in);
    free(k->out);
    return k->number == PREMUL && tutti_op_destroy(comm, k->op) != TUTTI_OK;
}

/* ---- calls ---- */

static int wrong(const struct kind *k, const struct test_case *c, const char *out, size_t at,
                 tutti_comm *comm)
{
    const char *expected = k->expected + at * k->width;
    size_t differ = 0, first = 0;
    if (memcmp(out, expected, c->count * k->width) == 0)
        return 0;
    for (size_t i = c->count; i-- > 0;)
        if (memcmp(out + i * k->width, expected + i * k->width, k->width) != 0) {
            differ++;
            first = i;
        }
    if (differ > 0 && !flags.free)
        fprintf(stderr,
                "rank %d of %d: %s %s %s%s: %zu of %zu elements from %zu on differ, first %zu\n",
                tutti_comm_rank(comm), tutti_comm_size(comm), tutti_collective_name(c->collective),
                tutti_type_name(k->type), k->number == PREMUL ? "premulsum" : tutti_op_name(k->op),
                c->in_place ? " in place" : "", differ, c->count, at, first);
    return differ > 0;
}

/* The call on elements from `from` on; it gives this rank those from `at` on, if any. */
static int call(const struct kind *k, const struct test_case *c, size_t from, size_t at, bool gets,
                tutti_comm *comm)
{
    const size_t whole = (k->length + SHIFT) * k->width;
    char *in = k->in + from * k->width, *out = k->out;
    if (c->in_place) {
        memcpy(k->out, k->in, k->length * k->width);
        in = out = k->out + from * k->width;
    }
    const struct tti_operation o = test_operation(c, in, out);
    if (flags.device)
        CHECK_OK(device_call(c, (struct device_shadow){c->in_place ? k->out : k->in, in, whole},
                             (struct device_shadow){k->out, out, whole}, comm));
    else
        CHECK_OK(test_call(&o, comm));
    return gets && wrong(k, c, out, at, comm);
}

/* The same elements by every collective that combines; whole, and pieces that begin elsewhere. */
static int all_ways(const struct kind *k, tutti_comm *comm)
{
    const size_t n = (size_t)tutti_comm_size(comm), rank = (size_t)tutti_comm_rank(comm);
    const size_t each = k->length / n;
    struct test_case c = {TUTTI_ALL_REDUCE, k->type, k->op, k->length, 0, false, 0};
    int bad = call(k, &c, 0, 0, true, comm);
    c.in_place = true;
    bad |= call(k, &c, 0, 0, true, comm);
    c.in_place = false;
    c.count = each - 1;
    bad |= call(k, &c, 1, 1, true, comm);
    c.count = 7;
    bad |= call(k, &c, k->length - 9, k->length - 9, true, comm);
    c.collective = TUTTI_REDUCE;
    c.count = each;
    for (c.root = 0; c.root<(int)n; c.root += n> 2 && !flags.few ? (int)n / 2 : 1)
        bad |= call(k, &c, 2, 2, (int)rank == c.root, comm);
    c.root = 0;
    c.collective = TUTTI_REDUCE_SCATTER;
    return bad | call(k, &c, 0, rank * each, true, comm);
}

/* Memory that peers can map, too. */
static int all_ways_mapped(const struct kind *k, tutti_comm *comm)
{
    const size_t bytes = (k->length + SHIFT) * k->width;
    struct kind mapped = *k;
    void *in = NULL, *out = NULL;
    CHECK_OK(tutti_alloc(bytes, &in));
    CHECK_OK(tutti_alloc(bytes, &out));
    mapped.in = memcpy(in, k->in, k->length * k->width);
    mapped.out = out;
    int bad = all_ways(&mapped, comm);
    tutti_free(in);
    tutti_free(out);
    return bad;
}

static int one_kind(const struct kind *of, tutti_comm *comm)
{
    struct kind k;
    int bad = kind_make(&k, of, comm);
    bad = bad || all_ways(&k, comm);
    bad = bad || (!flags.device && all_ways_mapped(&k, comm));
    return kind_drop(&k, comm) || bad;
}

/* A communicator that is split off has the mode too. */
static int inherited(tutti_comm *comm)
{
    tutti_comm *child = NULL;
    CHECK_OK(tutti_comm_split(comm, 0, 0, &child));
    const bool on = tutti_comm_reproducible(child);
    tutti_comm_destroy(child);
    CHECK(on);
    return 0;
}

static int all_kinds(tutti_comm *comm, void *argument)
{
    const bool in_mode = *(const bool *)argument;
    CHECK(tutti_comm_reproducible(comm) == in_mode);
    int bad = flags.device && device_begin(tutti_comm_rank(comm)) != 0;
    for (int i = 0; i < kind_count && !bad; i++)
        bad = one_kind(&kinds[i], comm);
    if (flags.device)
        bad |= device_end(comm);
    CHECK_OK(tutti_barrier(comm)); /* combines nothing, so the mode is not its concern */
    return bad || inherited(comm);
}

/* Must be found to differ on every rank, or this program could not fail. */
static int sums_differ(tutti_comm *comm, void *argument)
{
    (void)argument;
    struct kind k;
    CHECK(kind_make(&k, &kinds[0], comm) == 0);
    struct test_case c = {TUTTI_ALL_REDUCE, k.type, TUTTI_SUM, k.length, 0, false, 0};
    CHECK(!tutti_comm_reproducible(comm));
    CHECK(call(&k, &c, 0, 0, true, comm) != 0);
    return kind_drop(&k, comm);
}

/* ---- settings ---- */

static int run(struct tti_ranks *how, const char *algorithm, int lanes, bool fast)
{
    char text[64];
    bool in_mode = true;
    snprintf(text, sizeof text, "all_reduce=%s", algorithm ? algorithm : "");
    how->options.algorithms = algorithm ? text : NULL;
    how->options.lanes = lanes;
    how->options.reproducible = !flags.free;
    setenv("TUTTI_FAST", fast ? "1" : "0", 1);
    int failed = flags.free ? tti_ranks_run(how, sums_differ, NULL)
                            : tti_ranks_run(how, all_kinds, &in_mode);
    printf("%d ranks, %s, %d lanes, fast %d: %s\n", how->ranks, algorithm ? algorithm : "chosen",
           lanes, fast,
           failed       ? "FAILED"
           : flags.free ? "other bits, as expected"
                        : "same bits");
    return failed;
}

static int run_all(struct tti_ranks *how)
{
    int failed = run(how, NULL, 0, true) + run(how, NULL, 0, false) + run(how, NULL, 3, true);
    for (int i = 0; tti_algorithm_at(TUTTI_ALL_REDUCE, i); i++) {
        const struct tti_algorithm *algorithm = tti_algorithm_at(TUTTI_ALL_REDUCE, i);
        if (algorithm->ordered)
            failed += run(how, algorithm->name, flags.few ? 2 : 1 + i % 3, i % 2);
    }
    return failed;
}

int main(int argc, char **argv)
{
    struct tti_ranks how = {.ranks = 2, .options = TUTTI_OPTIONS_INIT};
    how.options.timeout_s = 60;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--device") == 0)
            flags.device = true;
        else if (strcmp(argv[i], "--few") == 0)
            flags.few = true;
        else if (strcmp(argv[i], "--free") == 0)
            flags.free = true;
        else if (!tti_ranks_flag(&how, argc, argv, &i))
            return fprintf(stderr, "unknown argument %s\n", argv[i]), 2;
    }
    kinds_add(how.ranks);
    const int failed = flags.free ? run(&how, "ring", 1, true) : run_all(&how);
    kinds_drop();
    return failed ? 1 : 0;
}
