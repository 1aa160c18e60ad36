/* The transformer's kernels for GPUs (gpt_gpu.cu): what each computes, and is given. All tensors
 * are row-major, in device memory. Kernels exist for float32 and for bfloat16 (suffixes _float32
 * and _bfloat16, `void *` below is of that type); statistics and sums are
 * float32, and so is all arithmetic. Nothing is summed by atomics: the same input gives the
 * same bits, run after run.
 *
 * State: they run on the simulated GPU, held to the CPU's kernels by tests/examples/test_gpt_gpu.c,
 * and nvcc compiles them; no GPU has run them yet. The optimizer's are the library's
 * (device/cuda/train.cu). */
#ifndef EXAMPLES_TRANSFORMER_GPT_GPU_H
#define EXAMPLES_TRANSFORMER_GPT_GPU_H

#include <stdint.h>

enum {
    GPT_GPU_THREADS = 128, /* of a block, but for attention */
    GPT_GPU_TILE = 64,     /* queries, or keys, that an attention block has; its threads, or ... */
    GPT_GPU_PAIRS = 2 * GPT_GPU_TILE, /* ... where two share one */
    GPT_GPU_SLICES = 32,              /* into which rows are cut where columns are summed */
    GPT_GPU_STRIP = 8,                /* columns of a product that a thread has */
};

/* gpt_gpu_norm, a block a row: sum = x + y (y may be NULL; sum, then, too: x is normalised), out =
 * (sum - mean) scale weight + bias. */
struct gpt_gpu_norm_args {
    void *sum, *out;
    float *mean, *scale; /* [rows] */
    const void *x, *y, *weight, *bias;
    int channels;
};
/* gpt_gpu_norm_back, a block a row: dx += what dout makes of x, which was normalised. */
struct gpt_gpu_norm_back_args {
    void *dx;
    const void *dout, *x, *weight;
    const float *mean, *scale;
    int channels;
};
/* gpt_gpu_columns, GPT_GPU_THREADS columns by slice: partial sums over the slice's rows of dout,
 * and, with x, of dout (x - mean) scale. Then gpt_gpu_columns_end, a thread a column: dbias += the
 * sum of the first over slices, in their order; dweight += that of the second. Both hold float32.
 */
struct gpt_gpu_columns_args {
    float *biases, *weights; /* [GPT_GPU_SLICES, channels]; weights NULL: a plain bias */
    const void *dout, *x;
    const float *mean, *scale;
    int rows, channels;
};
struct gpt_gpu_columns_end_args {
    float *dbias, *dweight;
    const float *biases, *weights;
    int channels;
};
/* gpt_gpu_gelu: out = gelu(x). gpt_gpu_gelu_back: out *= gelu's slope at x. Any grid. */
struct gpt_gpu_gelu_args {
    void *out;
    const void *x;
    uint64_t count;
};
/* gpt_gpu_classify, a block a row: losses[row] = the cross-entropy of its logits with the target;
 * logits become slope (softmax - one at the target). */
struct gpt_gpu_classify_args {
    void *logits;
    const uint16_t *targets;
    float *losses;
    int width, stride; /* stride: elements between rows */
    float slope;
};
/* gpt_gpu_attend: causal attention, heads of 4, 16, 32 or 64 channels (gpt_gpu_attend_64_float32,
 * ...). A block has GPT_GPU_TILE queries of one head of one sequence: blocks = batch heads tiles,
 * the tiles of a head side by side. Keys and values come by tiles through shared memory, and
 * softmax is made as they come (Dao et al. 2022): no scores are stored. logs[batch, heads, length]:
 * of the sums. gpt_gpu_attend_delta, a thread a query and head: deltas = sum of dout out over the
 * head's channels. gpt_gpu_attend_queries, as gpt_gpu_attend: the queries' part of dqkv.
 * gpt_gpu_attend_keys, the same grid over keys: the keys' and values' parts. The threads
 * of the last two are GPT_GPU_PAIRS. */
struct gpt_gpu_attend_args {
    void *out;        /* [batch, length, heads, size] */
    void *dqkv;       /* [batch, length, 3, heads, size] */
    const void *qkv;  /* the same */
    const void *dout; /* as out */
    float *logs, *deltas;
    int batch, length, heads;
};
/* gpt_gpu_embed, any grid: x[row] = wte[tokens[row]] + wpe[row % length]. gpt_gpu_embed_places, a
 * thread an element of dwpe: dwpe += x over the sequences. gpt_gpu_embed_tokens, a block for each
 * token that there is: dwte of it += x over order[starts[block]] .. order[starts[block + 1] - 1],
 * the rows that have it. All in the order of rows. */
struct gpt_gpu_embed_args {
    void *x; /* [rows, channels] */
    const void *wte, *wpe;
    float *dwte, *dwpe;
    const uint16_t *tokens;
    const uint32_t *order, *starts;
    int rows, length, channels;
};
/* Attention with the scores in memory: squares [heads, length, stride], a block for each row of
 * them. gpt_gpu_shares: shares[q, k] = softmax of scale scores[q, k] over k <= q, 0 behind.
 * gpt_gpu_share_slopes: scores are the slopes of shares; shares become those of what the scores
 * were made of: shares (scores - deltas[q]) scale. */
struct gpt_gpu_shares_args {
    const float *scores;
    void *shares;
    const float *deltas; /* [heads, length] */
    int length, stride;
    float scale;
};
/* gpt_gpu_product_wide (float32), _thin (bfloat16), _mixed (bfloat16 to float32): struct
 * gpt_product of gpt_products.h, a thread for GPT_GPU_STRIP columns of a row. */
struct gpt_gpu_product_args {
    const void *a, *b, *bias;
    void *c;
    int m, n, k, lda, ldb, ldc;
    int transpose_a, transpose_b, add;
    unsigned blocks; /* of one product; as many follow for each further one ... */
    int64_t stride_a, stride_b, stride_c; /* ... whose memory is so many elements on */
};

#endif
