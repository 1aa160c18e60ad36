/* What the transformer has in a GPU's memory (gpt_device.h). */
#include "examples/transformer/gpt_device.h"

#include "examples/transformer/gpt_gpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Deals out g->memory, or only counts where that is NULL. */
static void *memory_take(const struct gpt_device *g, size_t *used, size_t count, size_t element)
{
    char *taken = g->memory ? (char *)g->memory + *used : NULL;
    *used += (count * element + 255) / 256 * 256;
    return taken;
}

static void memory_layer(struct gpt_device *g, struct gpt_device_layer *y, size_t *used)
{
    const size_t n = (size_t)g->rows, c = (size_t)g->config.channels, e = g->thin ? 2 : 4;
    y->middle = memory_take(g, used, n * c, e);
    y->norm1 = memory_take(g, used, n * c, e);
    y->norm2 = memory_take(g, used, n * c, e);
    y->attention = memory_take(g, used, n * c, e);
    y->qkv = memory_take(g, used, n * 3 * c, e);
    y->fc = memory_take(g, used, n * 4 * c, e);
    y->gelu = memory_take(g, used, n * 4 * c, e);
    y->mean1 = memory_take(g, used, n, 4);
    y->scale1 = memory_take(g, used, n, 4);
    y->mean2 = memory_take(g, used, n, 4);
    y->scale2 = memory_take(g, used, n, 4);
    y->logs = memory_take(g, used, n * (size_t)g->config.heads, 4);
}

static size_t memory_arrange(struct gpt_device *g)
{
    const size_t n = (size_t)g->rows, c = (size_t)g->config.channels, e = g->thin ? 2 : 4;
    size_t used = 0;
    for (int l = 0; l <= g->config.layers; l++) {
        struct gpt_device_layer *y = &g->layers[l];
        if (l > 0 && l < g->config.layers && g->recompute)
            *y = g->layers[0];
        y->input = memory_take(g, &used, n * c, e);
        if (l < g->config.layers && (l == 0 || !g->recompute))
            memory_layer(g, y, &used);
    }
    g->normf = memory_take(g, &used, n * c, e);
    g->branch = memory_take(g, &used, n * c, e);
    g->meanf = memory_take(g, &used, n, 4);
    g->scalef = memory_take(g, &used, n, 4);
    g->losses = memory_take(g, &used, n, 4);
    g->logits = memory_take(g, &used, (size_t)g->chunk * (size_t)g->stride, e);
    g->dx = memory_take(g, &used, n * c, e);
    g->da = memory_take(g, &used, n * c, e);
    g->dwide = memory_take(g, &used, n * 4 * c, e);
    g->dqkv = memory_take(g, &used, n * 3 * c, e);
    if (g->by_products) {
        const size_t t = (size_t)g->config.context, square = t * ((t + 63) / 64 * 64);
        g->scores = memory_take(g, &used, (size_t)g->config.heads * square, 4);
        g->shares = memory_take(g, &used, (size_t)g->config.heads * square, e);
    }
    g->deltas = memory_take(g, &used, n * (size_t)g->config.heads, 4);
    for (int i = 0; i < 2; i++)
        g->partial[i] = memory_take(g, &used, GPT_GPU_SLICES * 4 * c, 4);
    g->tokens = memory_take(g, &used, n, 2);
    g->targets = memory_take(g, &used, n, 2);
    g->order = memory_take(g, &used, n, 4);
    g->starts = memory_take(g, &used, n + 1, 4);
    return used;
}

static int memory_here(struct gpt_device *g)
{
    const size_t n = (size_t)g->rows, starts = (size_t)g->config.vocabulary + n + 2;
    uint32_t *here = train_gpu_alloc_here(g->side, (4 * n + starts) * sizeof *here);
    g->here = here;
    if (!here || train_gpu_point(g->side, &g->classified))
        return 1;
    g->starts_here = here;
    g->order_here = here + starts;
    g->losses_here = (float *)(here + starts + n);
    g->tokens_here = (uint16_t *)(here + starts + 2 * n);
    g->targets_here = (uint16_t *)(here + starts + 3 * n);
    return 0;
}

int gpt_device_create(const struct gpt_config *config, int rows, const struct gpt_on *on,
                      struct gpt_device **device)
{
    enum { LOGITS = 1 << 28 }; /* elements at once, at most */
    const int head = gpt_own_head(config->channels / config->heads);
    if (head < 0) {
        fprintf(stderr, "heads of %d channels: on a GPU they have 4, 16, 32 or 64\n",
                config->channels / config->heads);
        return 1;
    }
    struct gpt_device *made = calloc(1, sizeof *made);
    if (!made)
        return 1;
    *made = (struct gpt_device){.config = *config,
                                .side = on->side,
                                .thin = on->thin,
                                .recompute = on->recompute,
                                .by_products = on->by_products,
                                .rows = rows,
                                .stride = (config->vocabulary + 63) / 64 * 64,
                                .head = head};
    made->chunk = rows < LOGITS / made->stride ? rows : LOGITS / made->stride;
    made->layers = calloc((size_t)config->layers + 1, sizeof *made->layers);
    int failed = !made->layers || memory_here(made);
    if (!failed) {
        made->memory_bytes = memory_arrange(made);
        made->memory = train_gpu_alloc(on->side, made->memory_bytes);
        failed = !made->memory;
    }
    if (!failed)
        memory_arrange(made);
    if (failed || gpt_products_create(on->side, on->plain, &made->products)) {
        fprintf(stderr, "no memory on the GPU for %d tokens at once (%.1f GiB)\n", rows,
                (double)made->memory_bytes / (1 << 30));
        gpt_device_destroy(made);
        return 1;
    }
    *device = made;
    return 0;
}

void gpt_device_destroy(struct gpt_device *g)
{
    if (!g)
        return;
    (void)train_gpu_wait(g->side);
    gpt_products_destroy(g->products);
    train_gpu_free(g->side, g->memory);
    train_gpu_free(g->side, g->here);
    g->side->ops->event_destroy(g->classified);
    free(g->layers);
    free(g);
}
