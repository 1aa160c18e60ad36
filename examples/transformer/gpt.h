/* A transformer of GPT-2's shape (Radford et al. 2019), forward and backward by hand, in float32.
 *
 * B sequences of T tokens are N = B T rows. With C channels, V tokens, per layer:
 *     a = norm1(x)            [N, C]
 *     q k v = a Wqkv + b      [N, 3C]    heads of C / heads channels side by side
 *     x = x + attention(q, k, v) Wproj + b
 *     x = x + gelu(norm2(x) Wfc + b) Wout + b       [N, 4C] within
 * then logits = normf(x) Wte^T: the embedding of tokens is used twice. Weights are [in, out], and
 * are named as Hugging Face names GPT-2's. Read next: gpt_forward.c, gpt_backward.c, gpt_kernels.h.
 */
#ifndef EXAMPLES_TRANSFORMER_GPT_H
#define EXAMPLES_TRANSFORMER_GPT_H

#include "examples/train/trainer.h"

struct gpt_config {
    int layers, heads, channels, context, vocabulary;
};

/* Tensors: two embeddings, twelve a layer, the last norm. */
/* Units (trainer_acquire): the embeddings are 0, the layers 1 and on, the last norm the last. */
enum { GPT_WTE = 0, GPT_WPE = 1, GPT_FIRST = 2, GPT_PER_LAYER = 12 };
enum gpt_tensor {
    GPT_NORM1_WEIGHT = 0,
    GPT_NORM1_BIAS = 1,
    GPT_QKV_WEIGHT = 2,
    GPT_QKV_BIAS = 3,
    GPT_PROJ_WEIGHT = 4,
    GPT_PROJ_BIAS = 5,
    GPT_NORM2_WEIGHT = 6,
    GPT_NORM2_BIAS = 7,
    GPT_FC_WEIGHT = 8,
    GPT_FC_BIAS = 9,
    GPT_OUT_WEIGHT = 10,
    GPT_OUT_BIAS = 11,
};

/* How a model computes on a GPU. */
struct gpt_on {
    struct train_gpu *side;
    bool recompute;
    bool thin;        /* in bfloat16 */
    bool plain;       /* without cuBLASLt */
    bool by_products; /* attention: with scores in memory, by matrix products */
};

/* What the forward pass of a layer leaves for the backward one. */
struct gpt_layer {
    float *input, *middle; /* [N, C]: x before, and between its two halves */
    float *norm1, *norm2;  /* [N, C] */
    float *attention;      /* [N, C], before its projection */
    float *qkv;            /* [N, 3C] */
    float *fc, *gelu;      /* [N, 4C], before and after */
    float *mean1, *scale1; /* [N]: of the norms */
    float *mean2, *scale2; /* [N] */
};

struct gpt {
    struct gpt_config config;
    int rows;                 /* the most that fit */
    struct gpt_layer *layers; /* one more than there are: the last one has only `input` */
    float *normf, *meanf, *scalef;
    float *logits;          /* [GPT_CHUNK, V] */
    float *scores, *slopes; /* [GPT_BLOCK, T] each: attention, a block of queries at a time */
    float *dx, *da, *dwide, *dqkv; /* slopes: [N, C], [N, C], [N, 4C], [N, 3C] */
    float *memory;                 /* all of the above ... */
    size_t memory_bytes;           /* ... and how much that is */
    struct gpt_device *device; /* the model is on a GPU, and none of the above is used; or NULL */
    bool recompute; /* layers share memory for all but `input`, and the backward pass makes a
                       layer's again: less memory, a third more work, the same bits */
};
enum {
    GPT_CHUNK = 256, /* rows whose logits are in memory at once */
    GPT_BLOCK = 64,
};

/* "tiny", "small", "gpt2" (124M), "gpt2-medium", "gpt2-large", "gpt2-xl" (1.5B): 0, else 1. */
int gpt_size(const char *name, struct gpt_config *config);
size_t gpt_tensor_count(const struct gpt_config *config);
size_t gpt_index(int layer, enum gpt_tensor which);
/* Index of the last norm's weight; its bias is the next. */
size_t gpt_last_norm(const struct gpt_config *config);
/* `tensors` has room for gpt_tensor_count. */
void gpt_tensors(const struct gpt_config *config, struct trainer_tensor *tensors);

/* Memory for `rows` rows. 0, or 1 after a message. */
int gpt_create(struct gpt *g, const struct gpt_config *config, int rows, bool recompute);
/* On a GPU. What follows works alike. */
int gpt_create_on(struct gpt *g, const struct gpt_config *config, int rows,
                  const struct gpt_on *on);
void gpt_destroy(struct gpt *g);
/* GPT-2's beginning: normal with 0.02, narrower where the residual stream is written. */
int gpt_initialise(const struct gpt *g, struct trainer *t, uint64_t seed);
/* From a safetensors file with GPT-2's names (with or without "transformer." before them). */
int gpt_load(const struct gpt *g, struct trainer *t, const char *path);

/* The backward pass is about to use what the forward pass of layer `l` left: make it again if
 * another layer's is there instead. Its parameters are acquired. */
void gpt_again(struct gpt *g, struct trainer *t, int l, int batch, int length);

/* All of these: 0, or 1 after a message. Collective where parameters are sharded.
 * tokens[batch * length], each below the vocabulary; length at most the context. */
int gpt_forward(struct gpt *g, struct trainer *t, const uint16_t *tokens, int batch, int length);
/* After it: adds to *loss the sum over all rows of the cross-entropy with `targets`. With `slope`
 * not 0, each row's gradient times `slope` begins the backward pass: into dx, and the embedding's
 * gradient; on a GPU *loss has its sum when gpt_backward returns, so that nobody waits between. */
int gpt_classify(struct gpt *g, struct trainer *t, const uint16_t *targets, int rows, float slope,
                 double *loss);
/* After gpt_classify with a slope: adds the gradients of all tensors, says which are ready, last
 * layer first. */
int gpt_backward(struct gpt *g, struct trainer *t, const uint16_t *tokens, int batch, int length);
/* After gpt_forward: the logits of one row. */
int gpt_logits(struct gpt *g, struct trainer *t, int row, float *logits);

#endif
