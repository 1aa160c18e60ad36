/* Inputs whose results are known exactly, and the check.
 *
 * Element i of rank r depends on i through i mod PERIOD only, so both filling and checking work
 * with one period of values: a table is made once a case, then copied or compared in bulk.
 * Contributions are small integers: sums are exact in float32, so the expected result is the exact
 * one rounded once to the type, and the tolerance is zero. */
#include "base/memory.h"
#include "bench/bench.h"
#include "bench/spread.h"
#include "device/reduce.h"

#include <stdlib.h>
#include <string.h>

enum { PERIOD = 1009, PERIODS = 8 };

/* Where block k of a rank's buffer begins, and where the last one ends: they lie one after another.
 * What a rank has for rank k in an all-to-all differs from rank to rank. */
static size_t block_begin(const struct bench_case *c, int rank, int size, int k)
{
    const int first = c->collective == TUTTI_ALL_TO_ALL ? rank : 0;
    return c->uneven ? tti_bench_spread_before(c->shape.elements, size, first, k, c->uneven)
                     : (size_t)k * c->shape.count;
}

bool bench_has_blocks(enum tutti_collective collective)
{
    return collective == TUTTI_REDUCE_SCATTER || collective == TUTTI_ALL_GATHER ||
           collective == TUTTI_ALL_TO_ALL || collective == TUTTI_GATHER ||
           collective == TUTTI_SCATTER;
}

static void case_counts(struct bench_case *c, int rank, int size)
{
    for (int k = 0; c->uneven && k < size; k++)
        c->in_counts[k] = c->out_counts[k] =
            block_begin(c, rank, size, k + 1) - block_begin(c, rank, size, k);
}

void bench_case_size(struct bench_case *c, size_t bytes, int rank, int size)
{
    const size_t n = (size_t)size, elements = bytes / tutti_type_size(c->type);
    const bool whole = bench_has_blocks(c->collective), at_root = rank == c->root;
    struct bench_shape *s = &c->shape;
    *s = (struct bench_shape){.count = whole ? elements / n : elements, .elements = elements};
    const size_t begin = block_begin(c, rank, size, rank), all = block_begin(c, rank, size, size);
    const size_t own = block_begin(c, rank, size, rank + 1) - begin;
    s->in_elements = s->out_elements = whole ? all : elements;
    s->bytes = s->in_elements * tutti_type_size(c->type);
    case_counts(c, rank, size);
    switch (c->collective) {
    case TUTTI_REDUCE_SCATTER:
        s->out_elements = own;
        s->out_offset = begin;
        break;
    case TUTTI_ALL_GATHER:
        s->in_elements = own;
        s->in_offset = begin;
        break;
    case TUTTI_GATHER:
        s->in_elements = own;
        s->out_elements = at_root ? all : 0;
        s->in_offset = at_root ? begin : 0;
        break;
    case TUTTI_SCATTER:
        s->in_elements = at_root ? all : 0;
        s->out_elements = own;
        s->out_offset = at_root ? begin : 0;
        break;
    case TUTTI_BROADCAST:
        s->in_elements = at_root ? elements : 0;
        break;
    case TUTTI_REDUCE:
        s->out_elements = at_root ? elements : 0;
        break;
    default:
        break;
    }
}

/* The contribution of `rank` at phase `i`. */
/* A pre-multiplied sum scales rank r by r % 2 + 1. */
static int64_t contribution(int rank, size_t i, int op)
{
    if (op == TUTTI_PROD) /* at most three factors of two: exact in every type */
        return rank < 3 && (i + (size_t)rank) % 7 == 0 ? 2 : 1;
    return (int64_t)((i * 5 + (size_t)rank * 3 + i / 17) % 9);
}

static void store(void *to, enum tutti_type type, int64_t integer, double value)
{
    float f = (float)value;
    switch (type) {
    case TUTTI_FLOAT64:
        memcpy(to, &value, 8);
        return;
    case TUTTI_FLOAT16:
    case TUTTI_FLOAT32:
    case TUTTI_BFLOAT16:
    case TUTTI_FLOAT8_E4M3:
    case TUTTI_FLOAT8_E5M2:
        tti_convert(to, type, &f, TUTTI_FLOAT32, 1, NULL);
        return;
    default: /* integers wrap */
        memcpy(to, &integer, tutti_type_size(type));
        return;
    }
}

static int64_t wrap(int64_t value, enum tutti_type type)
{
    switch (type) {
    case TUTTI_INT8:
        return (int8_t)value;
    case TUTTI_UINT8:
        return (uint8_t)value;
    default:
        return value;
    }
}

/* The result of the reduction at phase `i`, stored in the type. */
static void store_reduced(void *to, const struct bench_case *c, size_t i, int size)
{
    int64_t sum = contribution(0, i, c->op);
    for (int r = 1; r < size; r++) {
        int64_t x = contribution(r, i, c->op);
        if (c->op == TUTTI_PROD)
            sum *= x;
        else if (c->op == TUTTI_MAX)
            sum = sum > x ? sum : x;
        else if (c->op == TUTTI_MIN)
            sum = sum < x ? sum : x;
        else
            sum += c->op == BENCH_MULSUM ? x * (r % 2 + 1) : x;
    }
    if (c->op != TUTTI_AVG)
        store(to, c->type, sum, (double)sum);
    else if (c->type == TUTTI_FLOAT64)
        store(to, c->type, 0, (double)sum / size);
    else
        store(to, c->type, wrap(sum, c->type) / size, (double)((float)sum / (float)size));
}

static bool reduces(enum tutti_collective collective)
{
    return collective == TUTTI_ALL_REDUCE || collective == TUTTI_REDUCE ||
           collective == TUTTI_REDUCE_SCATTER;
}

/* PERIODS periods of what `source` contributes, or of the reduction (source < 0). */
static char *make_table(const struct bench_case *c, int source, int size)
{
    size_t width = tutti_type_size(c->type);
    char *table = tti_calloc(PERIOD * PERIODS, width);
    for (size_t i = 0; table && i < PERIOD; i++) {
        if (source < 0)
            store_reduced(table + i * width, c, i, size);
        else
            store(table + i * width, c->type, contribution(source, i, c->op),
                  (double)contribution(source, i, c->op));
    }
    for (size_t k = 1; table && k < PERIODS; k++)
        memcpy(table + k * PERIOD * width, table, PERIOD * width);
    return table;
}

static size_t piece(size_t phase, size_t left)
{
    size_t room = PERIOD * PERIODS - phase;
    return room < left ? room : left;
}

int bench_data_fill(const struct bench_case *c, int rank, int size, void *in, void *out,
                    bool in_place)
{
    size_t width = tutti_type_size(c->type);
    char *table = make_table(c, rank, size);
    if (!table)
        return 1;
    if (!in_place && c->shape.out_elements)
        memset(out, 0xee, c->shape.out_elements * width);
    for (size_t at = 0; at < c->shape.in_elements;) {
        size_t phase = at % PERIOD, n = piece(phase, c->shape.in_elements - at);
        memcpy((char *)in + at * width, table + phase * width, n * width);
        at += n;
    }
    free(table);
    return 0;
}

/* Elements [at, at + count) of `out` against the table from `phase` on. */
static size_t count_wrong(const char *out, const char *table, size_t phase, size_t count,
                          size_t width)
{
    size_t bad = 0;
    for (size_t at = 0; at < count;) {
        size_t p = (phase + at) % PERIOD, n = piece(p, count - at);
        if (memcmp(out + at * width, table + p * width, n * width) != 0)
            for (size_t i = 0; i < n; i++)
                bad += memcmp(out + (at + i) * width, table + (p + i) * width, width) != 0;
        at += n;
    }
    return bad;
}

size_t bench_data_wrong(const struct bench_case *c, int rank, int size, const void *out)
{
    const size_t width = tutti_type_size(c->type);
    const bool blocks = c->collective == TUTTI_ALL_GATHER || c->collective == TUTTI_GATHER ||
                        c->collective == TUTTI_ALL_TO_ALL;
    size_t bad = 0;
    if (c->shape.out_elements == 0)
        return 0;
    for (int block = 0; block < (blocks ? size : 1); block++) {
        int source = reduces(c->collective)             ? -1
                     : blocks                           ? block
                     : c->collective == TUTTI_SEND_RECV ? (rank + size - 1) % size
                                                        : c->root;
        const size_t begin = blocks ? block_begin(c, rank, size, block) : 0;
        const size_t end = blocks ? block_begin(c, rank, size, block + 1) : c->shape.out_elements;
        size_t first = 0; /* index in its source of the block's first element */
        if (c->collective == TUTTI_REDUCE_SCATTER || c->collective == TUTTI_SCATTER ||
            c->collective == TUTTI_ALL_TO_ALL)
            first = block_begin(c, source < 0 ? rank : source, size, rank);
        char *table = make_table(c, source, size);
        if (!table)
            return c->shape.out_elements;
        bad += count_wrong((const char *)out + begin * width, table, first % PERIOD, end - begin,
                           width);
        free(table);
    }
    return bad;
}
