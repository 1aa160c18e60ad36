/* The transformer on a GPU: what gpt.h's functions do where a model was given one. Everything is
 * queued on the trainer's stream; parameters are read, and gradients written, where the trainer has
 * them, in the GPU's memory. Inside examples/transformer. Read next: gpt_device.c (forward),
 * gpt_device_back.c, gpt_gpu.h (the kernels), gpt_products.h. Not yet run on a GPU. */
#ifndef EXAMPLES_TRANSFORMER_GPT_DEVICE_H
#define EXAMPLES_TRANSFORMER_GPT_DEVICE_H

#include "examples/transformer/gpt.h"
#include "examples/transformer/gpt_own.h"
#include "examples/transformer/gpt_products.h"

/* What the forward pass of a layer leaves; shapes as in struct gpt_layer, elements of the model's
 * type. */
struct gpt_device_layer {
    void *input, *middle, *norm1, *norm2, *attention, *qkv, *fc, *gelu;
    float *mean1, *scale1, *mean2, *scale2;
    float *logs; /* [batch, heads, length] */
};

struct gpt_device {
    struct gpt_config config;
    struct train_gpu *side;
    struct gpt_products *products;
    bool thin, recompute;            /* thin: bfloat16 */
    bool by_products;                /* attention */
    int rows;                        /* the most that fit */
    int chunk, stride;               /* rows of logits at once; elements between them */
    int head;                        /* gpt_own_head */
    struct gpt_device_layer *layers; /* one more than there are: the last one has only `input` */
    void *normf, *logits, *branch;   /* branch: [N, C], what a half layer adds */
    float *meanf, *scalef, *losses;
    void *dx, *da, *dwide, *dqkv;
    float *scores;              /* by_products: [heads, T, T padded] ... */
    void *shares;               /* ... and their softmax, or its slopes */
    float *deltas, *partial[2]; /* partial: [GPT_GPU_SLICES, 4C] */
    uint16_t *tokens, *targets; /* [N] */
    uint32_t *order, *starts;   /* rows by token: see gpt_gpu_embed_tokens */
    int kinds;                  /* of tokens that there are */
    /* Page-locked memory of the host, where these are before they are copied there; and losses,
     * when they have come back. All of a small batch is on its way before `classified`. */
    void *here;
    uint16_t *tokens_here, *targets_here;
    uint32_t *order_here, *starts_here;
    float *losses_here;
    struct tti_gpu_event *classified;
    bool staged;  /* something of `here` may still be read */
    double *loss; /* what losses are to be added to, when they are here; NULL: they are */
    int loss_rows;
    void *memory;
    size_t memory_bytes;
};

/* All: 0, or 1 after a message. */
int gpt_device_create(const struct gpt_config *config, int rows, const struct gpt_on *on,
                      struct gpt_device **device);
void gpt_device_destroy(struct gpt_device *device);
int gpt_device_forward(struct gpt_device *g, struct trainer *t, const uint16_t *tokens, int batch,
                       int length);
int gpt_device_classify(struct gpt_device *g, struct trainer *t, const uint16_t *targets, int rows,
                        float slope, double *loss);
int gpt_device_logits(struct gpt_device *g, struct trainer *t, int row, float *logits);
int gpt_device_backward(struct gpt_device *g, struct trainer *t, int batch, int length);

/* For gpt_device_back.c: a kernel of the model's type; a product; a layer's forward pass but for
 * what it adds in the end, from its input. */
int gpt_device_run(struct gpt_device *g, enum gpt_own kernel, unsigned blocks, unsigned threads,
                   const void *args, size_t bytes);
int gpt_device_again(struct gpt_device *g, struct trainer *t, int l, int batch, int length);
int gpt_device_gelu(struct gpt_device *g, enum gpt_own kernel, void *out, const void *x, int rows);
/* Losses of gpt_device_classify are here: add them up. */
int gpt_device_collect(struct gpt_device *g);
/* ---- gpt_device_attend.c: attention of a layer, and its slopes from g->da to g->dqkv ---- */
int gpt_device_attend(struct gpt_device *g, int l, int batch, int length);
int gpt_device_attend_back(struct gpt_device *g, int l, int batch, int length);

#endif
