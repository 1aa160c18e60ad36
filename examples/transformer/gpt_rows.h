/* The transformer's element kernels, a row at a time: what gpt_kernels.c shares out among threads.
 * One source, compiled once for each instruction set; the best that runs here is chosen. */
#ifndef EXAMPLES_TRANSFORMER_GPT_ROWS_H
#define EXAMPLES_TRANSFORMER_GPT_ROWS_H

struct gpt_rows {
    const char *name;
    /* out = (x - mean) * scale * weight + bias, with 1 / sqrt(variance + 1e-5) for the scale */
    void (*norm)(float *out, float *mean, float *scale, const float *x, const float *weight,
                 const float *bias, int channels);
    /* dx += what dout makes of x */
    void (*norm_back)(float *dx, const float *dout, const float *x, float mean, float scale,
                      const float *weight, int channels);
    /* dweight and dbias += what dout makes of them */
    void (*norm_collect)(float *dweight, float *dbias, const float *dout, const float *x,
                         float mean, float scale, int channels);
    void (*gelu)(float *out, const float *x, int width);
    void (*gelu_back)(float *dout, const float *x, int width);
    /* The row becomes slope (1 for 0) times its softmax, less `slope` at the target. Returns the
     * logarithm of what the target's share is divided by, less the target's logit. */
    double (*softmax)(float *row, int width, int target, float slope);
    /* slopes = p * (slopes - sum of p * slopes): of a row that softmax made, by what it was made of
     */
    void (*softmax_back)(float *slopes, const float *p, int width);
    void (*add)(float *out, const float *x, int width); /* out += x */
};

const struct gpt_rows *gpt_rows_now(void);

#endif
