/* Causal attention (gpt_kernels.h), a block of queries at a time: their scores with all keys up to
 * the last of them fit into a cache, and keys after it cost nothing. No [T, T] matrix is kept: the
 * backward pass works the scores out again (as flash attention does, Dao et al. 2022). */
#include "examples/train/blas.h"
#include "examples/transformer/gpt.h"
#include "examples/transformer/gpt_kernels.h"

#include <math.h>
#include <string.h>

/* Where one head of one sequence stands in [B, T, 3, heads, size], or in [B, T, heads, size]. */
struct head {
    int size, wide, narrow; /* of a row: channels of the head, floats between rows of each */
    size_t q, k, v, out;
    float scale;
};

static struct head attention_head(const struct gpt_attention *a, int sequence, int head)
{
    const int size = a->channels / a->heads;
    const size_t c = (size_t)a->channels, row = (size_t)sequence * (size_t)a->length;
    const size_t at = row * 3 * c + (size_t)(head * size);
    return (struct head){.size = size,
                         .wide = 3 * a->channels,
                         .narrow = a->channels,
                         .q = at,
                         .k = at + c,
                         .v = at + 2 * c,
                         .out = row * c + (size_t)(head * size),
                         .scale = 1.0f / sqrtf((float)size)};
}

/* The softmax of the scores of queries first .. first+rows-1 with keys 0 .. first+rows-1. */
static void attention_scores(const struct gpt_attention *a, const struct head *h, const float *qkv,
                             int first, int rows)
{
    const int keys = first + rows;
    blas_matmul(false, true, rows, keys, h->size, h->scale,
                qkv + h->q + (size_t)first * (size_t)h->wide, h->wide, qkv + h->k, h->wide, 0,
                a->scores, keys);
    gpt_causal_softmax(a->scores, first, rows, keys);
}

void gpt_attend(const struct gpt_attention *a, float *out, const float *qkv)
{
    for (int which = 0; which < a->batch * a->heads; which++) {
        const struct head h = attention_head(a, which / a->heads, which % a->heads);
        for (int first = 0; first < a->length; first += GPT_BLOCK) {
            const int rows = a->length - first < GPT_BLOCK ? a->length - first : GPT_BLOCK;
            attention_scores(a, &h, qkv, first, rows);
            blas_matmul(false, false, rows, h.size, first + rows, 1, a->scores, first + rows,
                        qkv + h.v, h.wide, 0, out + h.out + (size_t)first * (size_t)h.narrow,
                        h.narrow);
        }
    }
}

void gpt_attend_back(const struct gpt_attention *a, float *dqkv, const float *dout,
                     const float *qkv)
{
    memset(dqkv, 0, (size_t)a->batch * (size_t)a->length * 3 * (size_t)a->channels * sizeof *dqkv);
    for (int which = 0; which < a->batch * a->heads; which++) {
        const struct head h = attention_head(a, which / a->heads, which % a->heads);
        for (int first = 0; first < a->length; first += GPT_BLOCK) {
            const int rows = a->length - first < GPT_BLOCK ? a->length - first : GPT_BLOCK;
            const int keys = first + rows;
            const size_t skip = (size_t)first * (size_t)h.wide;
            const float *d = dout + h.out + (size_t)first * (size_t)h.narrow;
            attention_scores(a, &h, qkv, first, rows);
            blas_matmul(true, false, keys, h.size, rows, 1, a->scores, keys, d, h.narrow, 1,
                        dqkv + h.v, h.wide);
            blas_matmul(false, true, rows, keys, h.size, 1, d, h.narrow, qkv + h.v, h.wide, 0,
                        a->slopes, keys);
            gpt_causal_softmax_back(a->slopes, a->scores, rows, keys);
            blas_matmul(false, false, rows, h.size, keys, h.scale, a->slopes, keys, qkv + h.k,
                        h.wide, 1, dqkv + h.q + skip, h.wide);
            blas_matmul(true, false, keys, h.size, rows, h.scale, a->slopes, keys, qkv + h.q + skip,
                        h.wide, 1, dqkv + h.k, h.wide);
        }
    }
}
