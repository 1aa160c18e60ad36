/* The transformer's backward pass (gpt.h): from the slopes of the last norm's output, in `da`, to
 * the embeddings. `dx` is the slope of the residual stream, which every half layer adds to. */
#include "examples/train/blas.h"
#include "examples/transformer/gpt.h"
#include "examples/transformer/gpt_device.h"
#include "examples/transformer/gpt_kernels.h"

#include <string.h>

/* Of out = x W + b: the gradients of W and b; with dx not NULL, dx = dout W^T. They are ready. */
static int backward_linear(struct trainer *t, size_t weight, float *dx, const float *dout,
                           const float *x, int rows, int in, int columns)
{
    float *dw = trainer_gradient(t, weight), *db = trainer_gradient(t, weight + 1);
    if (!dw || !db)
        return 1;
    gpt_collect(db, dout, rows, columns);
    blas_matmul(true, false, in, columns, rows, 1, x, in, dout, columns, 1, dw, columns);
    if (trainer_ready(t, weight + 1) || trainer_ready(t, weight))
        return 1;
    blas_matmul(false, true, rows, in, columns, 1, dout, columns, trainer_weight(t, weight),
                columns, 0, dx, in);
    return 0;
}

/* Adds to g->dx what `dout` makes of the norm's input. */
static int backward_norm(struct gpt *g, struct trainer *t, size_t weight, const float *dout,
                         const float *x, const float *mean, const float *scale, int rows)
{
    float *dw = trainer_gradient(t, weight), *db = trainer_gradient(t, weight + 1);
    if (!dw || !db)
        return 1;
    gpt_norm_back(g->dx, dw, db, dout, x, mean, scale, trainer_weight(t, weight), rows,
                  g->config.channels);
    return trainer_ready(t, weight + 1) || trainer_ready(t, weight);
}

static int backward_layer(struct gpt *g, struct trainer *t, int l, int batch, int length)
{
    const int n = batch * length, c = g->config.channels;
    const struct gpt_layer *y = &g->layers[l];
    const struct gpt_attention attention = {batch, length,    g->config.heads,
                                            c,     g->scores, g->slopes};
    if (backward_linear(t, gpt_index(l, GPT_OUT_WEIGHT), g->dwide, g->dx, y->gelu, n, 4 * c, c))
        return 1;
    gpt_gelu_back(g->dwide, y->fc, n, 4 * c);
    if (backward_linear(t, gpt_index(l, GPT_FC_WEIGHT), g->da, g->dwide, y->norm2, n, c, 4 * c) ||
        backward_norm(g, t, gpt_index(l, GPT_NORM2_WEIGHT), g->da, y->middle, y->mean2, y->scale2,
                      n) ||
        backward_linear(t, gpt_index(l, GPT_PROJ_WEIGHT), g->da, g->dx, y->attention, n, c, c))
        return 1;
    gpt_attend_back(&attention, g->dqkv, g->da, y->qkv);
    return backward_linear(t, gpt_index(l, GPT_QKV_WEIGHT), g->da, g->dqkv, y->norm1, n, c,
                           3 * c) ||
           backward_norm(g, t, gpt_index(l, GPT_NORM1_WEIGHT), g->da, y->input, y->mean1, y->scale1,
                         n);
}

/* Rows in their order, whoever else adds to the same token's. */
static int backward_embed(struct gpt *g, struct trainer *t, const uint16_t *tokens, int batch,
                          int length)
{
    const size_t c = (size_t)g->config.channels;
    float *dwte = trainer_gradient(t, GPT_WTE), *dwpe = trainer_gradient(t, GPT_WPE);
    if (!dwte || !dwpe)
        return 1;
    for (int i = 0; i < batch * length; i++) {
        float *token = dwte + tokens[i] * c, *place = dwpe + (size_t)(i % length) * c;
        const float *d = g->dx + (size_t)i * c;
        for (size_t k = 0; k < c; k++) {
            token[k] += d[k];
            place[k] += d[k];
        }
    }
    return trainer_ready(t, GPT_WPE) || trainer_ready(t, GPT_WTE);
}

int gpt_backward(struct gpt *g, struct trainer *t, const uint16_t *tokens, int batch, int length)
{
    const int n = batch * length, layers = g->config.layers;
    if (g->device)
        return gpt_device_backward(g->device, t, batch, length);
    memset(g->dx, 0, (size_t)n * (size_t)g->config.channels * sizeof *g->dx);
    if (trainer_acquire(t, layers + 1) ||
        backward_norm(g, t, gpt_last_norm(&g->config), g->da, g->layers[layers].input, g->meanf,
                      g->scalef, n) ||
        trainer_release(t, layers + 1))
        return 1;
    for (int l = layers - 1; l >= 0; l--) {
        if (trainer_acquire(t, 1 + l))
            return 1;
        gpt_again(g, t, l, batch, length);
        if (backward_layer(g, t, l, batch, length) || trainer_release(t, 1 + l))
            return 1;
    }
    return backward_embed(g, t, tokens, batch, length);
}
