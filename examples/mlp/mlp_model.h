/* A multi-layer perceptron: pixels -> hidden -> hidden -> 10, ReLU between, softmax and
 * cross-entropy at the end. Forward and backward by hand. */
#ifndef EXAMPLES_MLP_MLP_MODEL_H
#define EXAMPLES_MLP_MLP_MODEL_H

#include "examples/train/trainer.h"

enum { MLP_LAYERS = 3, MLP_TENSORS = 2 * MLP_LAYERS, MLP_CLASSES = 10 };

struct mlp {
    int sizes[MLP_LAYERS + 1];      /* of the input and of each layer's output */
    int batch;                      /* the most images at once */
    float *outputs[MLP_LAYERS + 1]; /* [batch][sizes[l]]; [0]: the images, which the caller fills */
    float *slopes[2];               /* of the loss by a layer's output: of two layers in turn */
};

/* 0, or 1 after a message. */
int mlp_create(struct mlp *m, int pixels, int hidden, int batch);
void mlp_destroy(struct mlp *m);
/* The parameters: weight [in, out] and bias [out] of each layer. */
void mlp_tensors(const struct mlp *m, struct trainer_tensor tensors[MLP_TENSORS]);
int mlp_initialise(const struct mlp *m, struct trainer *t, uint64_t seed);

/* `count` images are in outputs[0]: outputs[MLP_LAYERS] becomes their classes' probabilities. */
void mlp_forward(struct mlp *m, struct trainer *t, int count);
/* The mean of the cross-entropies with the labels. */
double mlp_loss(const struct mlp *m, const uint8_t *labels, int count);
/* After mlp_forward: adds the gradients of that mean and says that they are ready, last layer
 * first. */
int mlp_backward(struct mlp *m, struct trainer *t, const uint8_t *labels, int count);

#endif
