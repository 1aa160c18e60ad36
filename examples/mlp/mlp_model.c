/* The perceptron (mlp_model.h). Matrices are row-major: an image a row. */
#include "examples/mlp/mlp_model.h"

#include "examples/train/blas.h"
#include "examples/train/noise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int mlp_create(struct mlp *m, int pixels, int hidden, int batch)
{
    *m = (struct mlp){.sizes = {pixels, hidden, hidden, MLP_CLASSES}, .batch = batch};
    const size_t widest = (size_t)(hidden > MLP_CLASSES ? hidden : MLP_CLASSES);
    bool failed = false;
    for (int l = 0; l <= MLP_LAYERS; l++)
        failed |= !(m->outputs[l] = calloc((size_t)batch * (size_t)m->sizes[l], sizeof(float)));
    for (int i = 0; i < 2; i++)
        failed |= !(m->slopes[i] = calloc((size_t)batch * widest, sizeof(float)));
    if (failed) {
        fprintf(stderr, "no memory for batches of %d\n", batch);
        mlp_destroy(m);
    }
    return failed;
}

void mlp_destroy(struct mlp *m)
{
    for (int l = 0; l <= MLP_LAYERS; l++)
        free(m->outputs[l]);
    free(m->slopes[0]);
    free(m->slopes[1]);
    *m = (struct mlp){0};
}

void mlp_tensors(const struct mlp *m, struct trainer_tensor tensors[MLP_TENSORS])
{
    for (int l = 0; l < MLP_LAYERS; l++) {
        tensors[2 * l] = (struct trainer_tensor){
            .dims = 2, .shape = {(size_t)m->sizes[l], (size_t)m->sizes[l + 1]}, .decays = true};
        tensors[2 * l + 1] = (struct trainer_tensor){.dims = 1, .shape = {(size_t)m->sizes[l + 1]}};
        snprintf(tensors[2 * l].name, sizeof tensors->name, "layer%d.weight", l);
        snprintf(tensors[2 * l + 1].name, sizeof tensors->name, "layer%d.bias", l);
    }
}

/* Weights as He et al. 2015 (arXiv 1502.01852) for ReLU; biases are zero already. */
int mlp_initialise(const struct mlp *m, struct trainer *t, uint64_t seed)
{
    for (size_t l = 0; l < MLP_LAYERS; l++) {
        const size_t count = trainer_elements(&t->tensors[2 * l]);
        float *values = malloc(count * sizeof *values);
        if (!values) {
            fprintf(stderr, "no memory for %zu weights\n", count);
            return 1;
        }
        noise_normal(&seed, sqrtf(2.0f / (float)m->sizes[l]), values, count);
        const int failed = trainer_set(t, 2 * l, values);
        free(values);
        if (failed)
            return 1;
    }
    return 0;
}

static void mlp_softmax(float *row)
{
    float most = row[0], sum = 0;
    for (int c = 1; c < MLP_CLASSES; c++)
        most = fmaxf(most, row[c]);
    for (int c = 0; c < MLP_CLASSES; c++)
        sum += row[c] = expf(row[c] - most);
    for (int c = 0; c < MLP_CLASSES; c++)
        row[c] /= sum;
}

void mlp_forward(struct mlp *m, struct trainer *t, int count)
{
    for (int l = 0; l < MLP_LAYERS; l++) {
        const int in = m->sizes[l], out = m->sizes[l + 1];
        const float *bias = trainer_weight(t, (size_t)(2 * l + 1));
        float *result = m->outputs[l + 1];
        for (int i = 0; i < count; i++)
            memcpy(result + (size_t)i * (size_t)out, bias, (size_t)out * sizeof *bias);
        blas_matmul(false, false, count, out, in, 1, m->outputs[l], in,
                    trainer_weight(t, (size_t)(2 * l)), out, 1, result, out);
        for (int i = 0; i < count * out && l + 1 < MLP_LAYERS; i++)
            result[i] = fmaxf(result[i], 0);
    }
    for (int i = 0; i < count; i++)
        mlp_softmax(m->outputs[MLP_LAYERS] + i * MLP_CLASSES);
}

double mlp_loss(const struct mlp *m, const uint8_t *labels, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++)
        sum -= log(fmax((double)m->outputs[MLP_LAYERS][i * MLP_CLASSES + labels[i]], 1e-30));
    return sum / count;
}

/* Gradients of one layer from the slopes of its output; then the slopes of its input. */
static int mlp_layer_backward(struct mlp *m, struct trainer *t, int l, const float *slope,
                              float *before, int count)
{
    const int in = m->sizes[l], out = m->sizes[l + 1];
    const size_t weight = (size_t)(2 * l), bias = weight + 1;
    float *bias_gradient = trainer_gradient(t, bias), *gradient = trainer_gradient(t, weight);
    if (!gradient || !bias_gradient)
        return 1;
    for (int i = 0; i < count; i++)
        for (int o = 0; o < out; o++)
            bias_gradient[o] += slope[(size_t)i * (size_t)out + (size_t)o];
    blas_matmul(true, false, in, out, count, 1, m->outputs[l], in, slope, out, 1, gradient, out);
    if (trainer_ready(t, bias) || trainer_ready(t, weight))
        return 1;
    if (l == 0)
        return 0;
    blas_matmul(false, true, count, in, out, 1, slope, out, trainer_weight(t, weight), out, 0,
                before, in);
    for (int i = 0; i < count * in; i++)
        before[i] = m->outputs[l][i] > 0 ? before[i] : 0;
    return 0;
}

int mlp_backward(struct mlp *m, struct trainer *t, const uint8_t *labels, int count)
{
    float *slope = m->slopes[0];
    for (int i = 0; i < count; i++)
        for (int c = 0; c < MLP_CLASSES; c++)
            slope[i * MLP_CLASSES + c] =
                (m->outputs[MLP_LAYERS][i * MLP_CLASSES + c] - (c == labels[i])) / (float)count;
    for (int l = MLP_LAYERS - 1; l >= 0; l--) {
        float *before = slope == m->slopes[0] ? m->slopes[1] : m->slopes[0];
        if (mlp_layer_backward(m, t, l, slope, before, count))
            return 1;
        slope = before;
    }
    return 0;
}
