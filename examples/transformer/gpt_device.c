/* The transformer's forward pass on a GPU, and its losses (gpt_device.h). The same steps as
 * gpt_forward.c; what a half layer adds to the residual stream is added by the norm that follows.
 */
#include "examples/transformer/gpt_device.h"

#include "examples/transformer/gpt_gpu.h"

#include <stdio.h>
#include <string.h>

enum { EACH = 8, MOST_BLOCKS = 4096 }; /* elements of a thread, where any grid does */

int gpt_device_run(struct gpt_device *g, enum gpt_own kernel, unsigned blocks, unsigned threads,
                   const void *args, size_t bytes)
{
    return train_gpu_launch(g->side, gpt_own_kernel(kernel, g->thin), blocks, threads, args, bytes);
}

static unsigned device_grid(uint64_t count)
{
    const uint64_t blocks = (count + GPT_GPU_THREADS * EACH - 1) / (GPT_GPU_THREADS * EACH);
    return blocks < MOST_BLOCKS ? (unsigned)blocks : MOST_BLOCKS;
}

/* out = x W + b: [rows, in] -> [rows, columns] */
static int device_linear(struct gpt_device *g, struct trainer *t, size_t weight, void *out,
                         const void *x, int rows, int in, int columns)
{
    struct gpt_product p = gpt_product_of(false, false, rows, columns, in, g->thin, g->thin);
    p.a = x;
    p.b = trainer_value(t, weight);
    p.c = out;
    p.bias = trainer_value(t, weight + 1);
    return !p.b || !p.bias || gpt_product(g->products, &p);
}

/* out = norm(sum = x + y); y NULL: of x. */
static int device_norm(struct gpt_device *g, struct trainer *t, size_t weight, void *out,
                       float *mean, float *scale, void *sum, const void *x, const void *y, int rows)
{
    const struct gpt_gpu_norm_args args = {.sum = y ? sum : NULL,
                                           .out = out,
                                           .mean = mean,
                                           .scale = scale,
                                           .x = x,
                                           .y = y,
                                           .weight = trainer_value(t, weight),
                                           .bias = trainer_value(t, weight + 1),
                                           .channels = g->config.channels};
    return !args.weight || !args.bias ||
           gpt_device_run(g, GPT_OWN_NORM, (unsigned)rows, GPT_GPU_THREADS, &args, sizeof args);
}

int gpt_device_gelu(struct gpt_device *g, enum gpt_own kernel, void *out, const void *x, int rows)
{
    const struct gpt_gpu_gelu_args args = {
        .out = out, .x = x, .count = (uint64_t)rows * 4 * (uint64_t)g->config.channels};
    return gpt_device_run(g, kernel, device_grid(args.count), GPT_GPU_THREADS, &args, sizeof args);
}

/* From its first norm on, which is there. */
static int device_most(struct gpt_device *g, struct trainer *t, int l, int batch, int length)
{
    const int n = batch * length, c = g->config.channels;
    struct gpt_device_layer *y = &g->layers[l];
    return device_linear(g, t, gpt_index(l, GPT_QKV_WEIGHT), y->qkv, y->norm1, n, c, 3 * c) ||
           gpt_device_attend(g, l, batch, length) ||
           device_linear(g, t, gpt_index(l, GPT_PROJ_WEIGHT), g->branch, y->attention, n, c, c) ||
           device_norm(g, t, gpt_index(l, GPT_NORM2_WEIGHT), y->norm2, y->mean2, y->scale2,
                       y->middle, y->input, g->branch, n) ||
           device_linear(g, t, gpt_index(l, GPT_FC_WEIGHT), y->fc, y->norm2, n, c, 4 * c) ||
           gpt_device_gelu(g, GPT_OWN_GELU, y->gelu, y->fc, n);
}

static int device_layer(struct gpt_device *g, struct trainer *t, int l, int batch, int length)
{
    const int n = batch * length, c = g->config.channels;
    struct gpt_device_layer *y = &g->layers[l];
    const void *before = l == 0 ? y->input : g->layers[l - 1].middle;
    return device_norm(g, t, gpt_index(l, GPT_NORM1_WEIGHT), y->norm1, y->mean1, y->scale1,
                       y->input, before, l == 0 ? NULL : g->branch, n) ||
           device_most(g, t, l, batch, length) ||
           device_linear(g, t, gpt_index(l, GPT_OUT_WEIGHT), g->branch, y->gelu, n, 4 * c, c);
}

int gpt_device_again(struct gpt_device *g, struct trainer *t, int l, int batch, int length)
{
    struct gpt_device_layer *y = &g->layers[l];
    if (!g->recompute || l == g->config.layers - 1) /* the last layer's is there still */
        return 0;
    return device_norm(g, t, gpt_index(l, GPT_NORM1_WEIGHT), y->norm1, y->mean1, y->scale1, NULL,
                       y->input, NULL, batch * length) ||
           device_most(g, t, l, batch, length);
}

/* Rows by token, those of a token in their order; how many tokens there are. */
static int device_sort(struct gpt_device *g, int rows)
{
    uint32_t *starts = g->starts_here; /* first a count for each token, then where its rows begin */
    const uint16_t *tokens = g->tokens_here;
    const int v = g->config.vocabulary;
    int kinds = 0;
    memset(starts, 0, ((size_t)v + 1) * sizeof *starts);
    for (int i = 0; i < rows; i++)
        starts[tokens[i] + 1]++;
    for (int k = 0; k < v; k++)
        starts[k + 1] += starts[k];
    for (int i = 0; i < rows; i++)
        g->order_here[starts[tokens[i]]++] = (uint32_t)i; /* now where the token's rows end */
    for (int k = 0; k < v; k++)
        if (starts[k] > (kinds == 0 ? 0 : starts[kinds - 1]))
            starts[kinds++] = starts[k];
    memmove(starts + 1, starts, (size_t)kinds * sizeof *starts);
    starts[0] = 0;
    return kinds;
}

/* What the passes read of a small batch: copied while the stream still has other work, so that it
 * does not run dry. */
static int device_stage(struct gpt_device *g, const uint16_t *tokens, int rows)
{
    const size_t n = (size_t)rows;
    if (g->staged && train_gpu_wait(g->side))
        return 1;
    g->staged = true;
    memcpy(g->tokens_here, tokens, n * sizeof *tokens);
    g->kinds = device_sort(g, rows);
    return train_gpu_copy(g->side, g->tokens, g->tokens_here, n * sizeof *tokens) ||
           train_gpu_copy(g->side, g->order, g->order_here, n * sizeof *g->order) ||
           train_gpu_copy(g->side, g->starts, g->starts_here,
                          ((size_t)g->kinds + 1) * sizeof *g->starts);
}

static int device_embed(struct gpt_device *g, struct trainer *t, const uint16_t *tokens, int rows,
                        int length)
{
    const struct gpt_gpu_embed_args args = {.x = g->layers[0].input,
                                            .wte = trainer_value(t, GPT_WTE),
                                            .wpe = trainer_value(t, GPT_WPE),
                                            .tokens = g->tokens,
                                            .rows = rows,
                                            .length = length,
                                            .channels = g->config.channels};
    return !args.wte || !args.wpe || device_stage(g, tokens, rows) ||
           gpt_device_run(g, GPT_OWN_EMBED,
                          device_grid((uint64_t)rows * (uint64_t)g->config.channels),
                          GPT_GPU_THREADS, &args, sizeof args);
}

static int device_end(struct gpt_device *g, struct trainer *t, int rows)
{
    const int layers = g->config.layers;
    return device_norm(g, t, gpt_last_norm(&g->config), g->normf, g->meanf, g->scalef,
                       g->layers[layers].input, g->layers[layers - 1].middle, g->branch, rows);
}

int gpt_device_forward(struct gpt_device *g, struct trainer *t, const uint16_t *tokens, int batch,
                       int length)
{
    for (int unit = 0; unit <= g->config.layers + 1; unit++) {
        if (trainer_acquire(t, unit))
            return 1;
        if (unit == 0                  ? device_embed(g, t, tokens, batch * length, length)
            : unit <= g->config.layers ? device_layer(g, t, unit - 1, batch, length)
                                       : device_end(g, t, batch * length))
            return 1;
        if (trainer_release(t, unit))
            return 1;
    }
    return 0;
}

/* ---- Losses -----------------------------------------------------------------------------------
 */

static const char *device_row(const struct gpt_device *g, const void *rows, int row)
{
    return (const char *)rows + (size_t)row * (size_t)g->config.channels * (g->thin ? 2 : 4);
}

/* Logits of `some` rows from row `from` on. */
static int device_logits(struct gpt_device *g, const void *wte, int from, int some)
{
    const int c = g->config.channels, v = g->config.vocabulary;
    struct gpt_product p = gpt_product_of(false, true, some, v, c, g->thin, g->thin);
    p.a = device_row(g, g->normf, from);
    p.b = wte;
    p.c = g->logits;
    p.ldc = g->stride;
    return gpt_product(g->products, &p);
}

/* What the slopes of logits make of the last norm's output, and of the embedding. */
static int device_slopes(struct gpt_device *g, const void *wte, float *dwte, int from, int some)
{
    const int c = g->config.channels, v = g->config.vocabulary;
    struct gpt_product to_rows = gpt_product_of(false, false, some, c, v, g->thin, g->thin);
    struct gpt_product to_wte = gpt_product_of(true, false, v, c, some, g->thin, false);
    to_rows.a = to_wte.a = g->logits;
    to_rows.lda = to_wte.lda = g->stride;
    to_rows.b = wte;
    to_rows.c = (void *)(uintptr_t)device_row(g, g->da, from);
    to_wte.b = device_row(g, g->normf, from);
    to_wte.c = dwte;
    to_wte.add = true;
    return gpt_product(g->products, &to_rows) || gpt_product(g->products, &to_wte);
}

int gpt_device_collect(struct gpt_device *g)
{
    double sum = 0;
    if (!g->loss)
        return 0;
    if (train_gpu_reach(g->side, g->classified))
        return 1;
    for (int i = 0; i < g->loss_rows; i++)
        sum += (double)g->losses_here[i];
    *g->loss += sum;
    g->loss = NULL;
    g->staged = false;
    return 0;
}

int gpt_device_classify(struct gpt_device *g, struct trainer *t, const uint16_t *targets, int rows,
                        float slope, double *loss)
{
    if (trainer_acquire(t, 0))
        return 1;
    const void *wte = trainer_value(t, GPT_WTE);
    float *dwte = slope != 0 ? trainer_gradient(t, GPT_WTE) : NULL;
    memcpy(g->targets_here, targets, (size_t)rows * sizeof *targets);
    int failed =
        !wte || (slope != 0 && !dwte) ||
        train_gpu_copy(g->side, g->targets, g->targets_here, (size_t)rows * sizeof *targets);
    for (int from = 0; from < rows && !failed; from += g->chunk) {
        const int some = rows - from < g->chunk ? rows - from : g->chunk;
        const struct gpt_gpu_classify_args args = {.logits = g->logits,
                                                   .targets = g->targets + from,
                                                   .losses = g->losses + from,
                                                   .width = g->config.vocabulary,
                                                   .stride = g->stride,
                                                   .slope = slope};
        failed = device_logits(g, wte, from, some) ||
                 gpt_device_run(g, GPT_OWN_CLASSIFY, (unsigned)some, GPT_GPU_THREADS, &args,
                                sizeof args) ||
                 (dwte && device_slopes(g, wte, dwte, from, some));
    }
    failed =
        failed ||
        train_gpu_copy(g->side, g->losses_here, g->losses, (size_t)rows * sizeof *g->losses_here) ||
        train_gpu_set(g->side, g->classified);
    g->loss = failed ? NULL : loss;
    g->loss_rows = rows;
    return trainer_release(t, 0) || failed || (slope == 0 && gpt_device_collect(g));
}

int gpt_device_logits(struct gpt_device *g, struct trainer *t, int row, float *logits)
{
    const size_t v = (size_t)g->config.vocabulary;
    uint16_t *thin = (uint16_t *)logits + v; /* the upper half: widened from the front */
    if (trainer_acquire(t, 0))
        return 1;
    const void *wte = trainer_value(t, GPT_WTE);
    const int failed = !wte || device_logits(g, wte, row, 1) ||
                       train_gpu_get(g->side, g->thin ? (void *)thin : (void *)logits, g->logits,
                                     v * (g->thin ? 2 : 4));
    for (size_t i = 0; i < v && g->thin && !failed; i++) {
        const uint32_t bits = (uint32_t)thin[i] << 16;
        memcpy(&logits[i], &bits, sizeof bits);
    }
    return trainer_release(t, 0) || failed;
}
