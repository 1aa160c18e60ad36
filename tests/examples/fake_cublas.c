/* A cuBLASLt of plain loops, for tests: the functions that examples/transformer/gpt_cublas.c calls,
 * with the meaning that NVIDIA's documentation gives them (columns first), on memory that this
 * process can read. Loaded by TUTTI_LIBCUBLASLT. It refuses what the real one would: descriptions
 * that do not fit together. What it cannot show: the speed, and which algorithms there are. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The real library's functions have their declarations in cublasLt.h. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#define LIBRARY __attribute__((visibility("default"))) int

enum { OK = 0, INVALID = 7, NOT_SUPPORTED = 15, FLOAT32 = 0, BFLOAT16 = 14, COMPUTE_FLOAT32 = 68 };

struct desc {
    int32_t transpose[2], bias_type;
    uint32_t epilogue;
    const void *bias;
};
struct layout {
    int type;
    uint64_t rows, columns;
    int64_t ld;
    int32_t batch;
    int64_t stride;
};
struct heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

/* What algorithms may rely on: bytes that places and rows are multiples of. */
static uint32_t promised = 256;

LIBRARY cublasLtCreate(void **handle)
{
    *handle = malloc(1);
    return *handle ? OK : INVALID;
}
LIBRARY cublasLtDestroy(void *handle)
{
    free(handle);
    return OK;
}
LIBRARY cublasLtMatmulDescCreate(struct desc **desc, int compute, int scale)
{
    if (compute != COMPUTE_FLOAT32 || scale != FLOAT32)
        return NOT_SUPPORTED;
    *desc = calloc(1, sizeof **desc);
    if (*desc)
        (*desc)->epilogue = 1;
    return *desc ? OK : INVALID;
}
LIBRARY cublasLtMatmulDescDestroy(struct desc *desc)
{
    free(desc);
    return OK;
}
LIBRARY cublasLtMatmulDescSetAttribute(struct desc *desc, int attribute, const void *value,
                                       size_t bytes)
{
    void *const places[] = {[3] = &desc->transpose[0],
                            [4] = &desc->transpose[1],
                            [7] = &desc->epilogue,
                            [8] = &desc->bias,
                            [26] = &desc->bias_type};
    const size_t sizes[] = {[3] = 4, [4] = 4, [7] = 4, [8] = 8, [26] = 4};
    if (attribute < 0 || attribute > 26 || !places[attribute] || sizes[attribute] != bytes)
        return INVALID;
    memcpy(places[attribute], value, bytes);
    return OK;
}
LIBRARY cublasLtMatrixLayoutCreate(struct layout **layout, int type, uint64_t rows,
                                   uint64_t columns, int64_t ld)
{
    if ((type != FLOAT32 && type != BFLOAT16) || ld < (int64_t)rows)
        return INVALID;
    *layout = malloc(sizeof **layout);
    if (!*layout)
        return INVALID;
    **layout = (struct layout){type, rows, columns, ld, 1, 0};
    return OK;
}
LIBRARY cublasLtMatrixLayoutDestroy(struct layout *layout)
{
    free(layout);
    return OK;
}
LIBRARY cublasLtMatrixLayoutSetAttribute(struct layout *layout, int attribute, const void *value,
                                         size_t bytes)
{
    if (attribute == 5 && bytes == sizeof layout->batch)
        memcpy(&layout->batch, value, bytes);
    else if (attribute == 6 && bytes == sizeof layout->stride)
        memcpy(&layout->stride, value, bytes);
    else
        return INVALID;
    return OK;
}
LIBRARY cublasLtMatmulPreferenceCreate(void **preference)
{
    *preference = malloc(1);
    return *preference ? OK : INVALID;
}
LIBRARY cublasLtMatmulPreferenceDestroy(void *preference)
{
    free(preference);
    return OK;
}
LIBRARY cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value,
                                             size_t bytes)
{
    (void)preference;
    if (attribute == 1)
        return bytes == 8 ? OK : INVALID;
    if (attribute < 5 || attribute > 8 || bytes != 4)
        return INVALID;
    memcpy(&promised, value, bytes);
    return OK;
}

static int fits(const struct desc *desc, const struct layout *a, const struct layout *b,
                const struct layout *c, const struct layout *d)
{
    const uint64_t m = desc->transpose[0] ? a->columns : a->rows;
    const uint64_t k = desc->transpose[0] ? a->rows : a->columns;
    const uint64_t n = desc->transpose[1] ? b->rows : b->columns;
    const uint64_t other = desc->transpose[1] ? b->columns : b->rows;
    return a->batch == b->batch && a->batch == c->batch && a->batch == d->batch && k == other &&
           a->type == b->type && d->rows == m && d->columns == n && c->rows == m &&
           c->columns == n && c->type == d->type && (a->type == BFLOAT16 || d->type == FLOAT32) &&
           (desc->epilogue == 1 || (desc->epilogue == 4 && desc->bias));
}

LIBRARY cublasLtMatmulAlgoGetHeuristic(void *handle, struct desc *desc, struct layout *a,
                                       struct layout *b, struct layout *c, struct layout *d,
                                       void *preference, int wanted, struct heuristic *found,
                                       int *count)
{
    if (!handle || !preference || wanted < 1 || !fits(desc, a, b, c, d))
        return INVALID;
    memset(found, 0, sizeof *found);
    found->algorithm[0] = 42;
    *count = 1;
    return OK;
}

static float get(const void *data, int type, uint64_t at)
{
    float value = 0;
    if (type == FLOAT32)
        return ((const float *)data)[at];
    const uint32_t bits = (uint32_t)((const uint16_t *)data)[at] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void put(void *data, int type, uint64_t at, float value)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    if (type == FLOAT32)
        ((float *)data)[at] = value;
    else
        ((uint16_t *)data)[at] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Of one product of a batch. */
static uint64_t of_batch(const struct layout *x, int which)
{
    return (uint64_t)(which * x->stride);
}

/* Element (row, column) of op(x), from element `at` on. */
static float of(const void *data, const struct layout *x, uint64_t at, int transposed, uint64_t row,
                uint64_t column)
{
    const uint64_t ld = (uint64_t)x->ld;
    return get(data, x->type, at + (transposed ? column + row * ld : row + column * ld));
}

static int aligned(const void *data, const struct layout *x)
{
    const uint64_t element = x->type == FLOAT32 ? 4 : 2;
    const uint64_t stride = x->batch > 1 ? (uint64_t)x->stride : 0;
    return (((uintptr_t)data | (uint64_t)x->ld * element | stride * element) % promised) == 0;
}

LIBRARY cublasLtMatmul(void *handle, struct desc *desc, const float *alpha, const void *a,
                       struct layout *la, const void *b, struct layout *lb, const float *beta,
                       const void *c, struct layout *lc, void *d, struct layout *ld,
                       const uint64_t *algorithm, void *workspace, size_t bytes, void *stream)
{
    (void)stream;
    if (!handle || !workspace || bytes == 0 || algorithm[0] != 42 || !fits(desc, la, lb, lc, ld))
        return INVALID;
    if (!aligned(a, la) || !aligned(b, lb) || !aligned(c, lc) || !aligned(d, ld))
        return INVALID; /* the real one may read past a vector, or fault */
    const uint64_t depth = desc->transpose[0] ? la->rows : la->columns;
    for (uint64_t every = 0; every < (uint64_t)ld->batch * ld->columns * ld->rows; every++) {
        const uint64_t i = every % ld->rows, j = every / ld->rows % ld->columns;
        const int w = (int)(every / ld->rows / ld->columns);
        {
            float sum = 0;
            for (uint64_t k = 0; k < depth; k++)
                sum += of(a, la, of_batch(la, w), desc->transpose[0], i, k) *
                       of(b, lb, of_batch(lb, w), desc->transpose[1], k, j);
            sum *= *alpha;
            if (*beta != 0)
                sum += *beta * of(c, lc, of_batch(lc, w), 0, i, j);
            if (desc->epilogue == 4)
                sum += get(desc->bias, desc->bias_type, i);
            put(d, ld->type, of_batch(ld, w) + i + j * (uint64_t)ld->ld, sum);
        }
    }
    return OK;
}
