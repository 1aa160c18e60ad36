/* The example transformer against PyTorch's numbers (make_gpt_reference.py): logits to 1e-3, loss
 * to 1e-5, each gradient to 1e-5 of its largest element; the same in two small batches; and against
 * differences of the loss along random directions. With OpenBLAS, if it is there, and without.
 * Activations that are made again give the same bits; the sizes have their numbers of parameters.
 */
#include "examples/train/blas.h"
#include "examples/train/noise.h"
#include "examples/train/together.h"
#include "tests/examples/check.h"
#include "tests/examples/gpt_reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static float ours[TENSORS][MOST];

/* Less memory, and gradients of the same bits, where activations are made again. */
static int same_again(struct reference *r)
{
    static float before[TENSORS][MOST];
    const size_t kept = r->model.memory_bytes;
    if (reference_backward(r, 1) || reference_copy(r, before))
        return 1;
    gpt_destroy(&r->model);
    CHECK(gpt_create(&r->model, &reference_config, TOKENS, true) == 0);
    CHECK(r->model.memory_bytes < kept - (size_t)TOKENS * 15 * CHANNELS * sizeof(float));
    if (reference_backward(r, 1) || reference_copy(r, ours))
        return 1;
    for (size_t i = 0; i < r->trainer.count; i++)
        CHECK(memcmp(before[i], ours[i],
                     trainer_elements(&r->trainer.tensors[i]) * sizeof(float)) == 0);
    return reference_gradients(r, 2, 1e-5, ours);
}

/* As many parameters as Hugging Face's models of these names, with their vocabulary. */
static int sizes(void)
{
    static const struct {
        const char *name;
        size_t parameters;
    } known[] = {{"gpt2", 124439808},
                 {"gpt2-medium", 354823168},
                 {"gpt2-large", 774030080},
                 {"gpt2-xl", 1557611200}};
    for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
        struct gpt_config size;
        struct trainer_tensor tensors[1024];
        size_t parameters = 0;
        CHECK(gpt_size(known[k].name, &size) == 0);
        size.vocabulary = 50257;
        CHECK(gpt_tensor_count(&size) <= sizeof tensors / sizeof *tensors);
        gpt_tensors(&size, tensors);
        for (size_t i = 0; i < gpt_tensor_count(&size); i++)
            parameters += trainer_elements(&tensors[i]);
        CHECK(parameters == known[k].parameters);
        CHECK(size.channels % size.heads == 0);
    }
    return 0;
}

/* (loss(w + h d) - loss(w - h d)) / 2h against the gradient's product with d, tensor by tensor. */
static int as_differences(struct reference *r)
{
    static float before[MOST], direction[MOST], moved[MOST];
    const float step = 0.01f;
    uint64_t seed = 3;
    if (reference_backward(r, 1))
        return 1;
    for (size_t i = 0; i < r->trainer.count; i++) {
        const size_t count = trainer_elements(&r->trainer.tensors[i]);
        const float *gradient = trainer_gradient(&r->trainer, i);
        double product = 0, norm = 0, losses[2];
        memcpy(before, trainer_weight(&r->trainer, i), count * sizeof *before);
        noise_normal(&seed, 1, direction, count);
        for (size_t k = 0; k < count; k++)
            norm += (double)direction[k] * (double)direction[k];
        for (size_t k = 0; k < count; k++) {
            direction[k] /= (float)sqrt(norm);
            product += (double)direction[k] * (double)gradient[k];
        }
        for (int side = 0; side < 2; side++) {
            for (size_t k = 0; k < count; k++)
                moved[k] = before[k] + (side ? -step : step) * direction[k];
            CHECK(trainer_set(&r->trainer, i, moved) == 0);
            CHECK(reference_loss(r, &losses[side]) == 0);
        }
        CHECK(trainer_set(&r->trainer, i, before) == 0);
        const double difference = (losses[0] - losses[1]) / (2 * (double)step);
        if (fabs(difference - product) > 3e-4)
            fprintf(stderr, "%s: difference %g, gradient %g\n", r->trainer.tensors[i].name,
                    difference, product);
        CHECK(fabs(difference - product) <= 3e-4);
    }
    return 0;
}

static int compare(tutti_comm *comm, void *argument)
{
    struct reference *r = argument;
    r->name = blas_name();
    CHECK(gpt_create(&r->model, &reference_config, TOKENS, false) == 0);
    int failed = reference_open(r) || reference_start(r, comm, false) ||
                 reference_forward(r, 1e-5, 1e-3) || reference_gradients(r, 1, 1e-5, ours) ||
                 reference_gradients(r, 2, 1e-5, ours) || same_again(r) || as_differences(r) ||
                 sizes();
    reference_stop(r);
    reference_close(r);
    return failed;
}

int main(int argc, char **argv)
{
    static struct reference r;
    if (argc < 2)
        return 2;
    r.path = argv[1];
    if (argc > 2)
        blas_start(true);
    return together_run(1, compare, &r);
}
