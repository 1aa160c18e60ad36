/* The transformer's element kernels and its attention, on row-major float32. Backward kernels add
 * to what they name "d...": gradients gather over batches and branches. */
#ifndef EXAMPLES_TRANSFORMER_GPT_KERNELS_H
#define EXAMPLES_TRANSFORMER_GPT_KERNELS_H

/* How many threads the loops over rows may use (where OpenMP was there to build with). */
void gpt_threads(int threads);

/* out = (x - mean) * scale * weight + bias, each row alone; scale = 1 / sqrt(variance + 1e-5). */
void gpt_norm(float *out, float *mean, float *scale, const float *x, const float *weight,
              const float *bias, int rows, int channels);
/* dx += what dout makes of x; dweight, dbias likewise. */
void gpt_norm_back(float *dx, float *dweight, float *dbias, const float *dout, const float *x,
                   const float *mean, const float *scale, const float *weight, int rows,
                   int channels);

/* out = x / 2 * (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) */
void gpt_gelu(float *out, const float *x, int rows, int width);
/* dout becomes the slope by x (here it is replaced, not added to). */
void gpt_gelu_back(float *dout, const float *x, int rows, int width);

/* Each row becomes its softmax; returns the sum of the cross-entropies with `targets`. With slope
 * not 0 each row becomes slope * (softmax - one at the target) instead. */
double gpt_softmax(float *logits, const unsigned short *targets, int rows, int width, float slope);

/* out = bias for all rows; dbias += the sum of all rows. */
void gpt_spread(float *out, const float *bias, int rows, int width);
void gpt_collect(float *dbias, const float *dout, int rows, int width);
void gpt_add(float *out, const float *x, int rows, int width); /* out += x */

/* Row r is that of query first + r: its softmax over keys 0 .. first + r, zeros after. */
void gpt_causal_softmax(float *scores, int first, int rows, int width);
/* slopes = scores * (slopes - sum over a row of scores * slopes), the softmax's derivative. */
void gpt_causal_softmax_back(float *slopes, const float *scores, int rows, int width);

struct gpt_attention {
    int batch, length, heads, channels;
    float *scores, *slopes; /* [GPT_BLOCK, length] each, to work in */
};
/* Causal attention: out[b, t, head] = sum over s <= t of softmax_s(q_t k_s / sqrt(size)) v_s. */
void gpt_attend(const struct gpt_attention *a, float *out, const float *qkv);
/* dqkv = what dout makes of it; the scores are worked out again. */
void gpt_attend_back(const struct gpt_attention *a, float *dqkv, const float *dout,
                     const float *qkv);

#endif
