/* Inputs whose results are known exactly, and the check.
 *
 * Element i of rank r depends on i through i mod PERIOD only, so both filling and checking work
 * with one period of values: a table is made once a case, then copied or compared in bulk.
 * Contributions are small integers: sums are exact in float32, so the expected result is the exact
 * one rounded once to the type, and the tolerance is zero. */
#include "base/memory.h"
#include "bench/bench.h"
#include "device/reduce.h"

#include <stdlib.h>
#include <string.h>

enum { PERIOD = 1009, PERIODS = 8 };

struct bench_shape bench_shape(enum tutti_collective collective, size_t bytes, enum tutti_type type,
                               int rank, int size, int root)
{
    size_t n = (size_t)size, elements = bytes / tutti_type_size(type);
    struct bench_shape s = {0};
    switch (collective) {
    case TUTTI_REDUCE_SCATTER:
        s.count = elements / n;
        s.in_elements = s.count * n;
        s.out_elements = s.count;
        s.out_offset = (size_t)rank * s.count;
        break;
    case TUTTI_ALL_GATHER:
        s.count = elements / n;
        s.in_elements = s.count;
        s.out_elements = s.count * n;
        s.in_offset = (size_t)rank * s.count;
        break;
    case TUTTI_ALL_TO_ALL:
        s.count = elements / n;
        s.in_elements = s.out_elements = s.count * n;
        break;
    case TUTTI_GATHER:
        s.count = elements / n;
        s.in_elements = s.count;
        s.out_elements = rank == root ? s.count * n : 0;
        s.in_offset = rank == root ? (size_t)rank * s.count : 0;
        break;
    case TUTTI_SCATTER:
        s.count = elements / n;
        s.in_elements = rank == root ? s.count * n : 0;
        s.out_elements = s.count;
        s.out_offset = rank == root ? (size_t)rank * s.count : 0;
        break;
    default:
        s.count = elements;
        s.in_elements = s.out_elements = elements;
        if (collective == TUTTI_BROADCAST && rank != root)
            s.in_elements = 0;
        if (collective == TUTTI_REDUCE && rank != root)
            s.out_elements = 0;
        break;
    }
    bool whole = collective == TUTTI_REDUCE_SCATTER || collective == TUTTI_ALL_GATHER ||
                 collective == TUTTI_ALL_TO_ALL || collective == TUTTI_GATHER ||
                 collective == TUTTI_SCATTER;
    s.bytes = s.count * (whole ? n : 1) * tutti_type_size(type);
    return s;
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
    size_t width = tutti_type_size(c->type), count = c->shape.count, bad = 0;
    bool blocks = c->collective == TUTTI_ALL_GATHER || c->collective == TUTTI_GATHER ||
                  c->collective == TUTTI_ALL_TO_ALL;
    size_t first = 0; /* global index of OUT's element 0 in its source */
    if (c->collective == TUTTI_REDUCE_SCATTER || c->collective == TUTTI_SCATTER ||
        c->collective == TUTTI_ALL_TO_ALL)
        first = (size_t)rank * count;
    if (c->shape.out_elements == 0)
        return 0;
    for (int block = 0; block < (blocks ? size : 1); block++) {
        int source = reduces(c->collective)             ? -1
                     : blocks                           ? block
                     : c->collective == TUTTI_SEND_RECV ? (rank + size - 1) % size
                                                        : c->root;
        char *table = make_table(c, source, size);
        if (!table)
            return c->shape.out_elements;
        bad += count_wrong((const char *)out + (size_t)block * count * width, table, first % PERIOD,
                           count, width);
        free(table);
    }
    return bad;
}
