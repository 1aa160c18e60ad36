/* Every operation, type and operator over odd counts, both placements and unaligned buffers, on
 * real transports; results are compared bit for bit with sums that are exact in the accumulator.
 *
 * Usage: test_operations --ranks N [--processes | --hosts H] [--transport LIST] [--algo LIST]
 * [--lanes L]
 *                        [--malloc | --register | --device] [--big] [--few] [--turns]
 * Contributions are small integers, so that every partial sum is exact in float32: the expected
 * result is the exact one, rounded once to the element type. */
#include "device/reduce.h"
#include "plan/plan.h"
#include "tests/integration/device_calls.h"
#include "tests/integration/host_calls.h"
#include "tests/integration/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, GUARD_BYTE = 0xa5 };

enum memory { MEMORY_LIBRARY, MEMORY_MALLOC, MEMORY_REGISTERED, MEMORY_DEVICE };

struct settings {
    enum memory memory;
    bool big;
    bool few;   /* leave out most counts */
    bool turns; /* each type and operator at one of the counts, not at all */
};

struct buffer {
    char *base; /* as allocated */
    char *data; /* `shift` bytes past a guard */
    size_t bytes;
};

/* The library's memory, and what stands on the host for memory of a device, serves a few cases, as
 * it does in programs: to make and to end a mapping takes several times as long as a small
 * operation. */
enum { SERVES = 8 };
static _Thread_local struct kept {
    void *memory;
    size_t bytes;
    int served;
    bool used;
} kept[2];

static void kept_free(struct kept *k, enum memory kind)
{
    if (k->memory && kind == MEMORY_LIBRARY)
        tutti_free(k->memory);
    else
        free(k->memory);
    k->memory = NULL;
}

static enum tutti_result kept_take(enum memory kind, size_t bytes, void **memory)
{
    struct kept *k = kept[0].used ? &kept[1] : &kept[0];
    if (k->bytes < bytes || k->served == SERVES)
        kept_free(k, kind);
    if (!k->memory) {
        if (kind == MEMORY_LIBRARY)
            TTI_TRY(tutti_alloc(bytes, &k->memory));
        else if (!(k->memory = malloc(bytes)))
            return TUTTI_ERR_MEMORY;
        k->bytes = bytes;
        k->served = 0;
    }
    k->served++;
    k->used = true;
    *memory = k->memory;
    return TUTTI_OK;
}

static void kept_give(const void *memory)
{
    kept[memory == kept[1].memory].used = false;
}

static void kept_end(enum memory kind)
{
    kept_free(&kept[0], kind);
    kept_free(&kept[1], kind);
}

static bool is_kept(enum memory kind)
{
    return kind == MEMORY_LIBRARY || kind == MEMORY_DEVICE;
}

static int buffer_make(struct buffer *b, const struct settings *s, size_t bytes, size_t shift)
{
    size_t all = bytes + 2 * GUARD + 16;
    void *memory = NULL;
    if (is_kept(s->memory)) {
        if (kept_take(s->memory, all, &memory) != TUTTI_OK)
            return 1;
    } else {
        memory = malloc(all);
        if (s->memory == MEMORY_REGISTERED && tutti_register(memory, all) != TUTTI_OK)
            return 1;
    }
    memset(memory, GUARD_BYTE, all);
    b->base = memory;
    b->data = b->base + GUARD + shift;
    b->bytes = bytes;
    return 0;
}

static int buffer_drop(struct buffer *b, const struct settings *s, const char *what)
{
    int bad = 0;
    for (char *at = b->base; at < b->data; at++)
        bad |= (unsigned char)*at != GUARD_BYTE;
    for (char *at = b->data + b->bytes; at < b->data + b->bytes + GUARD; at++)
        bad |= (unsigned char)*at != GUARD_BYTE;
    if (bad)
        fprintf(stderr, "%s: bytes outside the buffer were written\n", what);
    if (is_kept(s->memory)) {
        kept_give(b->base);
        return bad;
    }
    if (s->memory == MEMORY_REGISTERED && tutti_deregister(b->base) != TUTTI_OK)
        bad = 1;
    free(b->base);
    return bad;
}

/* The contribution of `rank` at element `i`: small enough for exact sums and products. */
static int contribution(int rank, size_t i, enum tutti_op op)
{
    if (op == TUTTI_PROD)
        return 1 + (int)((i + (size_t)rank) % 7 == 0);
    return (int)((i * 3 + (size_t)rank * 7 + i / 11) % 9);
}

enum { MOST_STORED = 99 }; /* values at a time */

/* So many values, each rounded to the type. */
static void store(void *to, enum tutti_type type, const double *values, size_t count)
{
    const size_t width = tutti_type_size(type);
    const bool wide = type == TUTTI_FLOAT64, integers = type <= TUTTI_UINT64;
    float rounded[MOST_STORED];
    for (size_t i = 0; i < count; i++) {
        const int64_t integer = (int64_t)values[i];
        rounded[i] = (float)values[i];
        if (integers) /* little-endian: the lowest bytes */
            memcpy((char *)to + i * width, &integer, width);
        else if (wide)
            memcpy((char *)to + i * width, &values[i], width);
    }
    if (integers || wide)
        return;
    tti_convert(to, type, rounded, TUTTI_FLOAT32, count, NULL);
    for (size_t i = 0; i < count; i += 61) { /* as one by one, where no vector kernel is used */
        char one[8];
        tti_convert(one, type, &rounded[i], TUTTI_FLOAT32, 1, NULL);
        if (memcmp(one, (char *)to + i * width, width) != 0) {
            fprintf(stderr, "%s: %g is rounded one way alone, and another among others\n",
                    tutti_type_name(type), (double)rounded[i]);
            abort();
        }
    }
}

static double combine(double a, double b, enum tutti_op op)
{
    switch (op) {
    case TUTTI_PROD:
        return a * b;
    case TUTTI_MAX:
        return a > b ? a : b;
    case TUTTI_MIN:
        return a < b ? a : b;
    default:
        return a + b;
    }
}

static double reduced(int size, size_t i, enum tutti_op op, enum tutti_type type)
{
    double sum = contribution(0, i, op);
    for (int r = 1; r < size; r++)
        sum = combine(sum, contribution(r, i, op), op);
    if (op != TUTTI_AVG)
        return sum;
    if (type == TUTTI_FLOAT64)
        return sum / size;
    if (type == TUTTI_FLOAT16 || type == TUTTI_FLOAT32 || type == TUTTI_BFLOAT16 ||
        type >= TUTTI_FLOAT8_E4M3)
        return (double)((float)sum / (float)size);
    return (double)((int64_t)sum / size);
}

/* What OUT holds at global element `i` (block * count + offset) of rank `rank`. */
static double expected(const struct test_case *c, int size, int rank, size_t i)
{
    size_t block = i / c->count, offset = i % c->count;
    switch (c->collective) {
    case TUTTI_ALL_REDUCE:
    case TUTTI_REDUCE:
        return reduced(size, i, c->op, c->type);
    case TUTTI_REDUCE_SCATTER:
        return reduced(size, (size_t)rank * c->count + i, c->op, c->type);
    case TUTTI_BROADCAST:
        return contribution(c->root, i, c->op);
    case TUTTI_ALL_GATHER:
    case TUTTI_GATHER:
        return contribution((int)block, offset, c->op);
    case TUTTI_ALL_TO_ALL:
        return contribution((int)block, (size_t)rank * c->count + offset, c->op);
    case TUTTI_SCATTER:
        return contribution(c->root, (size_t)rank * c->count + i, c->op);
    default:
        return 0;
    }
}

static enum tutti_result call(const struct test_case *c, const void *in, void *out,
                              tutti_comm *comm)
{
    const struct tti_operation o = test_operation(c, in, out);
    return test_call(&o, comm);
}

/* Contributions, and so all sums of them, repeat after so many elements: enough of them for the
 * vector kernels that round them (factors repeat after 7). */
static size_t period(enum tutti_op op)
{
    return op == TUTTI_PROD ? 98 : 99;
}

/* One block of OUT, whose first element is global element `from`: a period of it is compared with
 * what must be there, and every other element with the one a period before it. */
static int compare_block(const struct test_case *c, const char *got, size_t from, int size,
                         int rank)
{
    const size_t width = tutti_type_size(c->type), repeats = period(c->op);
    const size_t count = c->count < repeats ? c->count : repeats;
    double values[MOST_STORED];
    char want[8 * MOST_STORED];
    for (size_t i = 0; i < count; i++)
        values[i] = expected(c, size, rank, from + i);
    store(want, c->type, values, count);
    if (memcmp(got, want, count * width) == 0 &&
        memcmp(got + count * width, got, (c->count - count) * width) == 0)
        return 0;
    size_t wrong = 0;
    while (memcmp(want + wrong % count * width, got + wrong * width, width) == 0)
        wrong++;
    fprintf(stderr, "rank %d of %d: %s %s %s count %zu root %d%s: element %zu is wrong\n", rank,
            size, tutti_collective_name(c->collective), tutti_type_name(c->type),
            tutti_op_name(c->op), c->count, c->root, c->in_place ? " in place" : "", from + wrong);
    return 1;
}

static int compare(const struct test_case *c, const char *out, uint32_t blocks, int size, int rank)
{
    const size_t block = c->count * tutti_type_size(c->type);
    int bad = 0;
    for (uint32_t b = 0; b < blocks && !bad; b++)
        bad = compare_block(c, out + b * block, b * c->count, size, rank);
    return bad;
}

static void contribute(const struct test_case *c, char *in, size_t elements, int rank)
{
    const size_t width = tutti_type_size(c->type), repeats = period(c->op);
    double values[MOST_STORED];
    size_t made = elements < repeats ? elements : repeats;
    for (size_t i = 0; i < made; i++)
        values[i] = contribution(rank, i, c->op);
    store(in, c->type, values, made);
    for (size_t more = 0; made < elements; made += more) {
        more = made < elements - made ? made : elements - made;
        memcpy(in + made * width, in, more * width);
    }
}

/* The whole of a buffer, guards too, of which a call is given `data`. */
static struct device_shadow buffer_shadow(const struct buffer *b, char *data)
{
    return (struct device_shadow){b->base, data, b->base ? b->bytes + 2 * GUARD + 16 : 0};
}

static int run_case(const struct test_case *c, const struct settings *s, tutti_comm *comm)
{
    int rank = tutti_comm_rank(comm), size = tutti_comm_size(comm);
    size_t width = tutti_type_size(c->type), block = c->count * width;
    uint32_t in_blocks = 0, out_blocks = 0, in_at = 0, out_at = 0;
    tti_shape(c->collective, size, rank, c->root, &in_blocks, &out_blocks);
    bool aliased = c->in_place && tti_in_place(c->collective, size, rank, c->root, &in_at, &out_at);
    struct buffer in = {0}, out = {0};
    uint32_t most = in_blocks > out_blocks ? in_blocks : out_blocks;
    if (buffer_make(&out, s, (aliased ? most : out_blocks) * block, c->shift))
        return 1;
    if (!aliased && buffer_make(&in, s, in_blocks * block, c->shift))
        return 1;
    /* In place, the longer buffer is the whole and the other begins inside it. */
    char *in_data = aliased ? out.data + (size_t)out_at * block : in.data;
    char *out_data = aliased ? out.data + (size_t)in_at * block : out.data;
    contribute(c, in_data, in_blocks * c->count, rank);
    enum tutti_result result = s->memory == MEMORY_DEVICE
                                   ? device_call(c, buffer_shadow(aliased ? &out : &in, in_data),
                                                 buffer_shadow(&out, out_data), comm)
                                   : call(c, in_data, out_data, comm);
    int bad = result != TUTTI_OK;
    if (bad)
        fprintf(stderr, "rank %d: %s: %s\n", rank, tutti_collective_name(c->collective),
                tutti_last_error());
    else
        bad = compare(c, out_data, out_blocks, size, rank);
    bad |= buffer_drop(&out, s, tutti_collective_name(c->collective));
    if (!aliased)
        bad |= buffer_drop(&in, s, tutti_collective_name(c->collective));
    return bad;
}

/* Is every value of the case exact in the accumulator, and in the type where that is not rounded?
 * Integers of 8 bits wrap, which double does not. */
static bool case_is_exact(const struct test_case *c, int size)
{
    if (c->type == TUTTI_INT8 && c->op != TUTTI_PROD)
        return size * 8 < 128;
    if ((c->type == TUTTI_INT8 || c->type == TUTTI_UINT8) && c->op == TUTTI_PROD)
        return size < 8;
    return true;
}

/* At counts[from], and so on up to counts[to - 1]. */
static int sweep_counts(struct test_case c, const struct settings *s, const size_t *counts,
                        size_t from, size_t to, tutti_comm *comm)
{
    int bad = 0;
    for (size_t i = from; i < to && !bad; i++) {
        c.count = counts[i];
        c.root = (int)((i + s->big) % (size_t)tutti_comm_size(comm)); /* the only big one: rank 1 */
        c.shift = i % 3;
        c.in_place = false;
        bad |= run_case(&c, s, comm);
        c.in_place = true;
        bad |= run_case(&c, s, comm);
    }
    return bad;
}

static int all_cases(tutti_comm *comm, void *argument)
{
    static const size_t few[] = {1, 5, 64, 1000};
    static const size_t many[] = {1, 2, 3, 7, 8, 15, 16, 17, 63, 64, 65, 100, 1023, 4099, 70001};
    static const size_t big[] = {3000017};
    static const size_t big_by_turns[] = {1200007}; /* on devices three passes, or five chunks */
    static const size_t least[] = {7, 1000, 70001};
    const struct settings *s = argument;
    int bad = s->memory == MEMORY_DEVICE && device_begin(tutti_comm_rank(comm)) != 0;
    for (int k = 0; k < TUTTI_BARRIER && !bad; k++) {
        struct test_case c = {
            .collective = (enum tutti_collective)k, .op = TUTTI_SUM, .type = TUTTI_FLOAT32};
        if (s->big)
            bad |= sweep_counts(c, s, s->turns && s->memory == MEMORY_DEVICE ? big_by_turns : big,
                                0, 1, comm);
        else if (s->few)
            bad |= sweep_counts(c, s, least, 0, sizeof least / sizeof least[0], comm);
        else
            bad |= sweep_counts(c, s, many, 0, sizeof many / sizeof many[0], comm);
        for (int t = 0; t < TUTTI_TYPE_COUNT && !bad && !s->big; t++) {
            int ops = tti_reduces(c.collective) ? TUTTI_OP_COUNT : 1;
            for (int o = 0; o < ops && !bad; o++) {
                c.type = (enum tutti_type)t;
                c.op = (enum tutti_op)o;
                const size_t all = s->few ? 2 : sizeof few / sizeof few[0];
                const size_t from = s->turns ? (size_t)(k + t + o) % all : 0;
                if (case_is_exact(&c, tutti_comm_size(comm)))
                    bad |= sweep_counts(c, s, few, from, s->turns ? from + 1 : all, comm);
            }
        }
        if (!bad && tutti_barrier(comm) != TUTTI_OK)
            bad = 1;
        if (!bad && tutti_comm_rank(comm) == 0) { /* on a slow device one wants to know how far */
            printf("%s: exact\n", tutti_collective_name(c.collective));
            fflush(stdout);
        }
    }
    if (s->memory == MEMORY_DEVICE)
        bad |= device_end(comm);
    kept_end(s->memory);
    return bad;
}

int main(int argc, char **argv)
{
    struct tti_ranks how = {.ranks = 2, .options = TUTTI_OPTIONS_INIT};
    struct settings s = {.memory = MEMORY_LIBRARY};
    how.options.timeout_s = 60;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--malloc") == 0)
            s.memory = MEMORY_MALLOC;
        else if (strcmp(argv[i], "--register") == 0)
            s.memory = MEMORY_REGISTERED;
        else if (strcmp(argv[i], "--device") == 0)
            s.memory = MEMORY_DEVICE;
        else if (strcmp(argv[i], "--big") == 0)
            s.big = true;
        else if (strcmp(argv[i], "--few") == 0)
            s.few = true;
        else if (strcmp(argv[i], "--turns") == 0)
            s.turns = true;
        else if (strcmp(argv[i], "--plugin") == 0)
            how.options.plugins = value, i++;
        else if (strcmp(argv[i], "--algo") == 0)
            how.options.algorithms = value, i++;
        else if (strcmp(argv[i], "--lanes") == 0)
            how.options.lanes = atoi(value), i++;
        else if (!tti_ranks_flag(&how, argc, argv, &i))
            return fprintf(stderr, "unknown argument %s\n", argv[i]), 2;
    }
    int failed = tti_ranks_run(&how, all_cases, &s);
    printf("%d ranks as %s: %s\n", how.ranks, how.processes ? "processes" : "threads",
           failed ? "FAILED" : "all operations exact");
    return failed ? 1 : 0;
}
