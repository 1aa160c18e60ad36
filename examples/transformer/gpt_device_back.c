/* The transformer's backward pass on a GPU (gpt_device.h): the steps of gpt_backward.c. Gradients
 * are added to in float32, in an order that is always the same. */
#include "examples/transformer/gpt_device.h"

#include "examples/transformer/gpt_gpu.h"

static unsigned back_blocks(int count)
{
    return (unsigned)((count + GPT_GPU_THREADS - 1) / GPT_GPU_THREADS);
}

/* Sums over rows: dbias += of dout; with x, dweight += of dout times the normalised x. */
static int back_columns(struct gpt_device *g, float *dbias, float *dweight, const void *dout,
                        const void *x, const float *mean, const float *scale, int rows, int columns)
{
    const struct gpt_gpu_columns_args args = {.biases = g->partial[0],
                                              .weights = x ? g->partial[1] : NULL,
                                              .dout = dout,
                                              .x = x,
                                              .mean = mean,
                                              .scale = scale,
                                              .rows = rows,
                                              .channels = columns};
    const struct gpt_gpu_columns_end_args end = {.dbias = dbias,
                                                 .dweight = dweight,
                                                 .biases = g->partial[0],
                                                 .weights = g->partial[1],
                                                 .channels = columns};
    return gpt_device_run(g, GPT_OWN_COLUMNS, back_blocks(columns) * GPT_GPU_SLICES,
                          GPT_GPU_THREADS, &args, sizeof args) ||
           gpt_device_run(g, GPT_OWN_COLUMNS_END, back_blocks(columns), GPT_GPU_THREADS, &end,
                          sizeof end);
}

/* Of out = x W + b: the gradients of W and b, which are ready then; dx = dout W^T. */
static int back_linear(struct gpt_device *g, struct trainer *t, size_t weight, void *dx,
                       const void *dout, const void *x, int rows, int in, int columns)
{
    float *dw = trainer_gradient(t, weight), *db = trainer_gradient(t, weight + 1);
    struct gpt_product to_weight = gpt_product_of(true, false, in, columns, rows, g->thin, false);
    struct gpt_product to_rows = gpt_product_of(false, true, rows, in, columns, g->thin, g->thin);
    to_weight.a = x;
    to_weight.b = dout;
    to_weight.c = dw;
    to_weight.add = true;
    to_rows.a = dout;
    to_rows.b = trainer_value(t, weight);
    to_rows.c = dx;
    return !dw || !db || !to_rows.b ||
           back_columns(g, db, NULL, dout, NULL, NULL, NULL, rows, columns) ||
           gpt_product(g->products, &to_weight) || trainer_ready(t, weight + 1) ||
           trainer_ready(t, weight) || gpt_product(g->products, &to_rows);
}

/* Adds to g->dx what `dout` makes of the norm's input. */
static int back_norm(struct gpt_device *g, struct trainer *t, size_t weight, const void *dout,
                     const void *x, const float *mean, const float *scale, int rows)
{
    float *dw = trainer_gradient(t, weight), *db = trainer_gradient(t, weight + 1);
    const struct gpt_gpu_norm_back_args args = {.dx = g->dx,
                                                .dout = dout,
                                                .x = x,
                                                .weight = trainer_value(t, weight),
                                                .mean = mean,
                                                .scale = scale,
                                                .channels = g->config.channels};
    return !dw || !db || !args.weight ||
           gpt_device_run(g, GPT_OWN_NORM_BACK, (unsigned)rows, GPT_GPU_THREADS, &args,
                          sizeof args) ||
           back_columns(g, db, dw, dout, x, mean, scale, rows, g->config.channels) ||
           trainer_ready(t, weight + 1) || trainer_ready(t, weight);
}

static int back_layer(struct gpt_device *g, struct trainer *t, int l, int batch, int length)
{
    const int n = batch * length, c = g->config.channels;
    const struct gpt_device_layer *y = &g->layers[l];
    return back_linear(g, t, gpt_index(l, GPT_OUT_WEIGHT), g->dwide, g->dx, y->gelu, n, 4 * c, c) ||
           gpt_device_gelu(g, GPT_OWN_GELU_BACK, g->dwide, y->fc, n) ||
           back_linear(g, t, gpt_index(l, GPT_FC_WEIGHT), g->da, g->dwide, y->norm2, n, c, 4 * c) ||
           back_norm(g, t, gpt_index(l, GPT_NORM2_WEIGHT), g->da, y->middle, y->mean2, y->scale2,
                     n) ||
           back_linear(g, t, gpt_index(l, GPT_PROJ_WEIGHT), g->da, g->dx, y->attention, n, c, c) ||
           gpt_device_attend_back(g, l, batch, length) ||
           back_linear(g, t, gpt_index(l, GPT_QKV_WEIGHT), g->da, g->dqkv, y->norm1, n, c, 3 * c) ||
           back_norm(g, t, gpt_index(l, GPT_NORM1_WEIGHT), g->da, y->input, y->mean1, y->scale1, n);
}

static int back_embed(struct gpt_device *g, struct trainer *t, int rows, int length)
{
    const struct gpt_gpu_embed_args args = {.x = g->dx,
                                            .dwte = trainer_gradient(t, GPT_WTE),
                                            .dwpe = trainer_gradient(t, GPT_WPE),
                                            .tokens = g->tokens,
                                            .order = g->order,
                                            .starts = g->starts,
                                            .rows = rows,
                                            .length = length,
                                            .channels = g->config.channels};
    if (!args.dwte || !args.dwpe)
        return 1;
    return gpt_device_run(g, GPT_OWN_EMBED_PLACES, back_blocks(length * g->config.channels),
                          GPT_GPU_THREADS, &args, sizeof args) ||
           gpt_device_run(g, GPT_OWN_EMBED_TOKENS, (unsigned)g->kinds, GPT_GPU_THREADS, &args,
                          sizeof args) ||
           trainer_ready(t, GPT_WPE) || trainer_ready(t, GPT_WTE);
}

int gpt_device_backward(struct gpt_device *g, struct trainer *t, int batch, int length)
{
    const int n = batch * length, layers = g->config.layers;
    if (train_gpu_zero(g->side, g->dx,
                       (size_t)n * (size_t)g->config.channels * (g->thin ? 2 : 4)) ||
        trainer_acquire(t, layers + 1) ||
        back_norm(g, t, gpt_last_norm(&g->config), g->da, g->layers[layers].input, g->meanf,
                  g->scalef, n) ||
        trainer_release(t, layers + 1))
        return 1;
    for (int l = layers - 1; l >= 0; l--)
        if (trainer_acquire(t, 1 + l) || gpt_device_again(g, t, l, batch, length) ||
            back_layer(g, t, l, batch, length) || trainer_release(t, 1 + l))
            return 1;
    return back_embed(g, t, n, length) || gpt_device_collect(g);
}
