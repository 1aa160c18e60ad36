/* The transformer's forward pass, and its losses (gpt.h). */
#include "examples/train/blas.h"
#include "examples/transformer/gpt.h"
#include "examples/transformer/gpt_device.h"
#include "examples/transformer/gpt_kernels.h"

#include <string.h>

/* out = x W + b: [rows, in] -> [rows, columns] */
static void forward_linear(struct trainer *t, size_t weight, float *out, const float *x, int rows,
                           int in, int columns)
{
    gpt_spread(out, trainer_weight(t, weight + 1), rows, columns);
    blas_matmul(false, false, rows, columns, in, 1, x, in, trainer_weight(t, weight), columns, 1,
                out, columns);
}

static void forward_embed(struct gpt *g, struct trainer *t, const uint16_t *tokens, int batch,
                          int length)
{
    const size_t c = (size_t)g->config.channels;
    const float *wte = trainer_weight(t, GPT_WTE), *wpe = trainer_weight(t, GPT_WPE);
    for (int i = 0; i < batch * length; i++) {
        const float *token = wte + tokens[i] * c, *place = wpe + (size_t)(i % length) * c;
        float *x = g->layers[0].input + (size_t)i * c;
        for (size_t k = 0; k < c; k++)
            x[k] = token[k] + place[k];
    }
}

/* All of a layer that its backward pass uses. */
static void forward_most(struct gpt *g, struct trainer *t, int l, int batch, int length)
{
    const int n = batch * length, c = g->config.channels;
    struct gpt_layer *y = &g->layers[l];
    const struct gpt_attention attention = {batch, length,    g->config.heads,
                                            c,     g->scores, g->slopes};
    gpt_norm(y->norm1, y->mean1, y->scale1, y->input,
             trainer_weight(t, gpt_index(l, GPT_NORM1_WEIGHT)),
             trainer_weight(t, gpt_index(l, GPT_NORM1_BIAS)), n, c);
    forward_linear(t, gpt_index(l, GPT_QKV_WEIGHT), y->qkv, y->norm1, n, c, 3 * c);
    gpt_attend(&attention, y->attention, y->qkv);
    forward_linear(t, gpt_index(l, GPT_PROJ_WEIGHT), y->middle, y->attention, n, c, c);
    gpt_add(y->middle, y->input, n, c);
    gpt_norm(y->norm2, y->mean2, y->scale2, y->middle,
             trainer_weight(t, gpt_index(l, GPT_NORM2_WEIGHT)),
             trainer_weight(t, gpt_index(l, GPT_NORM2_BIAS)), n, c);
    forward_linear(t, gpt_index(l, GPT_FC_WEIGHT), y->fc, y->norm2, n, c, 4 * c);
    gpt_gelu(y->gelu, y->fc, n, 4 * c);
}

static void forward_layer(struct gpt *g, struct trainer *t, int l, int batch, int length)
{
    const int n = batch * length, c = g->config.channels;
    const struct gpt_layer *y = &g->layers[l];
    float *next = g->layers[l + 1].input;
    forward_most(g, t, l, batch, length);
    forward_linear(t, gpt_index(l, GPT_OUT_WEIGHT), next, y->gelu, n, 4 * c, c);
    gpt_add(next, y->middle, n, c);
}

void gpt_again(struct gpt *g, struct trainer *t, int l, int batch, int length)
{
    if (g->recompute && l < g->config.layers - 1) /* the last layer's is there still */
        forward_most(g, t, l, batch, length);
}

static void forward_norm(struct gpt *g, struct trainer *t, int rows)
{
    const size_t last = gpt_last_norm(&g->config);
    gpt_norm(g->normf, g->meanf, g->scalef, g->layers[g->config.layers].input,
             trainer_weight(t, last), trainer_weight(t, last + 1), rows, g->config.channels);
}

int gpt_forward(struct gpt *g, struct trainer *t, const uint16_t *tokens, int batch, int length)
{
    if (g->device)
        return gpt_device_forward(g->device, t, tokens, batch, length);
    for (int unit = 0; unit <= g->config.layers + 1; unit++) {
        if (trainer_acquire(t, unit))
            return 1;
        if (unit == 0)
            forward_embed(g, t, tokens, batch, length);
        else if (unit <= g->config.layers)
            forward_layer(g, t, unit - 1, batch, length);
        else
            forward_norm(g, t, batch * length);
        if (trainer_release(t, unit))
            return 1;
    }
    return 0;
}

/* The logits of some rows at a time: for GPT-2's vocabulary all of them would be gigabytes. */
int gpt_classify(struct gpt *g, struct trainer *t, const uint16_t *targets, int rows, float slope,
                 double *loss)
{
    const int c = g->config.channels, v = g->config.vocabulary;
    if (g->device)
        return gpt_device_classify(g->device, t, targets, rows, slope, loss);
    if (trainer_acquire(t, 0))
        return 1;
    const float *wte = trainer_weight(t, GPT_WTE);
    float *dwte = slope != 0 ? trainer_gradient(t, GPT_WTE) : NULL;
    for (int from = 0; from < rows; from += GPT_CHUNK) {
        const int some = rows - from < GPT_CHUNK ? rows - from : GPT_CHUNK;
        const size_t skip = (size_t)from * (size_t)c;
        blas_matmul(false, true, some, v, c, 1, g->normf + skip, c, wte, c, 0, g->logits, v);
        *loss += gpt_softmax(g->logits, targets + from, some, v, slope);
        if (!dwte)
            continue;
        blas_matmul(false, false, some, c, v, 1, g->logits, v, wte, c, 0, g->da + skip, c);
        blas_matmul(true, false, v, c, some, 1, g->logits, v, g->normf + skip, c, 1, dwte, c);
    }
    return trainer_release(t, 0) || (slope != 0 && !dwte);
}

int gpt_logits(struct gpt *g, struct trainer *t, int row, float *logits)
{
    const int c = g->config.channels, v = g->config.vocabulary;
    if (g->device)
        return gpt_device_logits(g->device, t, row, logits);
    if (trainer_acquire(t, 0))
        return 1;
    blas_matmul(false, true, 1, v, c, 1, g->normf + (size_t)row * (size_t)c, c,
                trainer_weight(t, GPT_WTE), c, 0, logits, v);
    return trainer_release(t, 0);
}
