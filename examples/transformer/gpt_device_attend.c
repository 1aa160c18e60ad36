/* Attention on a GPU, in two ways (gpt_device.h): by a kernel that stores no scores (gpt_gpu.cu),
 * in float32 outside of the tensor cores; or by matrix products, a sequence at a time with the
 * scores of all its heads in memory, on the tensor cores where there are. Which is faster a GPU has
 * to say. */
#include "examples/transformer/gpt_device.h"

#include "examples/transformer/gpt_gpu.h"

#include <math.h>

/* ---- By one kernel ----------------------------------------------------------------------------
 */

static unsigned attend_tiles(const struct gpt_device *g, int batch, int length)
{
    return (unsigned)(batch * g->config.heads) *
           (unsigned)((length + GPT_GPU_TILE - 1) / GPT_GPU_TILE);
}

/* Kernels `from` to `to` of: attend, delta, queries, keys. */
static int attend_kernels(struct gpt_device *g, int l, int batch, int length, int from, int to)
{
    const struct gpt_device_layer *y = &g->layers[l];
    const struct gpt_gpu_attend_args args = {.out = y->attention,
                                             .dqkv = g->dqkv,
                                             .qkv = y->qkv,
                                             .dout = g->da,
                                             .logs = y->logs,
                                             .deltas = g->deltas,
                                             .batch = batch,
                                             .length = length,
                                             .heads = g->config.heads};
    for (int k = from; k <= to; k++) {
        const enum gpt_own kernel = (enum gpt_own)(GPT_OWN_ATTEND + 4 * g->head + k);
        const unsigned threads = k < 2 ? GPT_GPU_TILE : GPT_GPU_PAIRS;
        if (gpt_device_run(g, kernel, attend_tiles(g, batch, length), threads, &args, sizeof args))
            return 1;
    }
    return 0;
}

/* ---- By products ------------------------------------------------------------------------------
 */

/* One of the operands: a part of [length, parts, heads, size], or a head's square of scores. */
struct operand {
    const void *data;
    int ld;
    int64_t stride; /* from head to head */
};

/* Part `part` of sequence `s` in memory with `parts` parts a row. */
static struct operand attend_part(const struct gpt_device *g, const void *data, int s, int length,
                                  int parts, int part)
{
    const size_t c = (size_t)g->config.channels;
    const size_t at = ((size_t)s * (size_t)length * (size_t)parts + (size_t)part) * c;
    return (struct operand){(const char *)data + at * (g->thin ? 2 : 4), parts * (int)c,
                            (int64_t)c / g->config.heads};
}

static int attend_stride(int length)
{
    return (length + 63) / 64 * 64;
}

static struct operand attend_square(const void *data, int length)
{
    const int ld = attend_stride(length);
    return (struct operand){data, ld, (int64_t)length * ld};
}

/* c = op(a) op(b) for all heads: [m, k] by [k, n]. */
static int attend_product(struct gpt_device *g, bool transpose_a, bool transpose_b, int m, int n,
                          int k, struct operand a, struct operand b, struct operand c, bool thin)
{
    struct gpt_product p = gpt_product_of(transpose_a, transpose_b, m, n, k, g->thin, thin);
    p.a = a.data;
    p.b = b.data;
    p.c = (void *)(uintptr_t)c.data;
    p.lda = a.ld;
    p.ldb = b.ld;
    p.ldc = c.ld;
    p.batch = g->config.heads;
    p.stride_a = a.stride;
    p.stride_b = b.stride;
    p.stride_c = c.stride;
    return gpt_product(g->products, &p);
}

static int attend_rows(struct gpt_device *g, enum gpt_own kernel, int s, int length)
{
    const int heads = g->config.heads;
    const struct gpt_gpu_shares_args args = {
        .scores = g->scores,
        .shares = g->shares,
        .deltas = g->deltas + (size_t)s * (size_t)heads * (size_t)length,
        .length = length,
        .stride = attend_stride(length),
        .scale = 1.0f / sqrtf((float)(g->config.channels / heads))};
    return gpt_device_run(g, kernel, (unsigned)(heads * length), GPT_GPU_THREADS, &args,
                          sizeof args);
}

/* g->shares = softmax of the scores of sequence `s`. */
static int attend_shares(struct gpt_device *g, const void *qkv, int s, int length)
{
    const int size = g->config.channels / g->config.heads;
    return attend_product(
               g, false, true, length, length, size, attend_part(g, qkv, s, length, 3, 0),
               attend_part(g, qkv, s, length, 3, 1), attend_square(g->scores, length), false) ||
           attend_rows(g, GPT_OWN_SHARES, s, length);
}

static int attend_sequence_back(struct gpt_device *g, const void *qkv, int s, int length)
{
    const int size = g->config.channels / g->config.heads;
    const struct operand q = attend_part(g, qkv, s, length, 3, 0);
    const struct operand k = attend_part(g, qkv, s, length, 3, 1);
    const struct operand v = attend_part(g, qkv, s, length, 3, 2);
    const struct operand dq = attend_part(g, g->dqkv, s, length, 3, 0);
    const struct operand dk = attend_part(g, g->dqkv, s, length, 3, 1);
    const struct operand dv = attend_part(g, g->dqkv, s, length, 3, 2);
    const struct operand dout = attend_part(g, g->da, s, length, 1, 0);
    const struct operand scores = attend_square(g->scores, length);
    const struct operand shares = attend_square(g->shares, length);
    return attend_shares(g, qkv, s, length) ||
           attend_product(g, true, false, length, size, length, shares, dout, dv, g->thin) ||
           attend_product(g, false, true, length, length, size, dout, v, scores, false) ||
           attend_rows(g, GPT_OWN_SHARE_SLOPES, s, length) ||
           attend_product(g, false, false, length, size, length, shares, k, dq, g->thin) ||
           attend_product(g, true, false, length, size, length, shares, q, dk, g->thin);
}

int gpt_device_attend(struct gpt_device *g, int l, int batch, int length)
{
    const struct gpt_device_layer *y = &g->layers[l];
    const int size = g->config.channels / g->config.heads;
    if (!g->by_products)
        return attend_kernels(g, l, batch, length, 0, 0);
    for (int s = 0; s < batch; s++)
        if (attend_shares(g, y->qkv, s, length) ||
            attend_product(g, false, false, length, size, length, attend_square(g->shares, length),
                           attend_part(g, y->qkv, s, length, 3, 2),
                           attend_part(g, y->attention, s, length, 1, 0), g->thin))
            return 1;
    return 0;
}

int gpt_device_attend_back(struct gpt_device *g, int l, int batch, int length)
{
    if (!g->by_products)
        return attend_kernels(g, l, batch, length, 1, 3);
    if (attend_kernels(g, l, batch, length, 1, 1))
        return 1;
    for (int s = 0; s < batch; s++)
        if (attend_sequence_back(g, g->layers[l].qkv, s, length))
            return 1;
    return 0;
}
