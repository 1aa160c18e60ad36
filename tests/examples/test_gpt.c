/* The example transformer against PyTorch's numbers (make_gpt_reference.py): logits to 1e-3, loss
 * to 1e-5, each gradient to 1e-5 of its largest element; the same in two small batches; and against
 * differences of the loss along random directions. With OpenBLAS, if it is there, and without.
 * Activations that are made again give the same bits; the sizes have their numbers of parameters.
 */
#include "examples/train/blas.h"
#include "examples/train/noise.h"
#include "examples/train/together.h"
#include "examples/transformer/gpt.h"
#include "tests/examples/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, HEADS = 2, CHANNELS = 8, CONTEXT = 70, VOCABULARY = 40, BATCH = 4, ROWS = 20 };
enum { TOKENS = BATCH * CONTEXT };

struct reference {
    const char *path;
    tutti_tensor_file *file;
    struct gpt model;
    struct trainer trainer;
    uint16_t inputs[TOKENS], targets[TOKENS];
};

static int read_floats(const struct reference *r, const char *name, float *out, size_t count)
{
    const struct tutti_tensor *t = tutti_tensors_find(r->file, name);
    CHECK(t && tutti_tensor_elements(t) == count);
    CHECK(tutti_tensors_read(r->file, t, 0, count, TUTTI_FLOAT32, out) == TUTTI_OK);
    return 0;
}

static int start(struct reference *r, tutti_comm *comm)
{
    static const struct gpt_config config = {LAYERS, HEADS, CHANNELS, CONTEXT, VOCABULARY};
    struct trainer_tensor tensors[GPT_FIRST + LAYERS * GPT_PER_LAYER + 2];
    struct trainer_options options = {.optimizer = TUTTI_SGD_INIT, .ddp = TUTTI_DDP_OPTIONS_INIT};
    int32_t tokens[BATCH * (CONTEXT + 1)];
    CHECK(gpt_tensor_count(&config) == sizeof tensors / sizeof *tensors);
    gpt_tensors(&config, tensors);
    CHECK(gpt_create(&r->model, &config, TOKENS, false) == 0);
    CHECK(trainer_create(&r->trainer, comm, tensors, gpt_tensor_count(&config), &options) == 0);
    CHECK(gpt_load(&r->model, &r->trainer, r->path) == 0);
    CHECK(tutti_tensors_open(r->path, &r->file) == TUTTI_OK);
    const struct tutti_tensor *t = tutti_tensors_find(r->file, "tokens");
    CHECK(t && tutti_tensor_elements(t) == BATCH * (CONTEXT + 1));
    CHECK(tutti_tensors_read(r->file, t, 0, BATCH * (CONTEXT + 1), TUTTI_INT32, tokens) ==
          TUTTI_OK);
    for (int b = 0; b < BATCH; b++)
        for (int i = 0; i < CONTEXT; i++) {
            r->inputs[b * CONTEXT + i] = (uint16_t)tokens[b * (CONTEXT + 1) + i];
            r->targets[b * CONTEXT + i] = (uint16_t)tokens[b * (CONTEXT + 1) + i + 1];
        }
    return 0;
}

static double loss_now(struct reference *r)
{
    double loss = 0;
    if (gpt_forward(&r->model, &r->trainer, r->inputs, BATCH, CONTEXT) ||
        gpt_classify(&r->model, &r->trainer, r->targets, TOKENS, 0, &loss))
        return NAN;
    return loss / TOKENS;
}

static int same_forward(struct reference *r)
{
    float wanted[2 * ROWS * VOCABULARY], loss = 0, logits[VOCABULARY];
    if (read_floats(r, "logits", wanted, 2 * ROWS * VOCABULARY) || read_floats(r, "loss", &loss, 1))
        return 1;
    const double ours = loss_now(r);
    double furthest = 0;
    for (int row = 0; row < 2 * ROWS; row++) {
        CHECK(gpt_logits(&r->model, &r->trainer, row < ROWS ? row : TOKENS - 2 * ROWS + row,
                         logits) == 0);
        for (int v = 0; v < VOCABULARY; v++)
            furthest = fmax(furthest, fabs((double)logits[v] - wanted[row * VOCABULARY + v]));
    }
    printf("%s: loss %.7f, PyTorch %.7f; logits differ by up to %.1e\n", blas_name(), ours,
           (double)loss, furthest);
    CHECK(fabs(ours - (double)loss) < 1e-5 && furthest < 1e-3);
    return 0;
}

/* A step's passes, in `parts` small batches. */
static int backward(struct reference *r, int parts)
{
    const int some = BATCH / parts, rows = some * CONTEXT;
    for (int p = 0; p < parts; p++) {
        const uint16_t *inputs = r->inputs + p * rows;
        CHECK(trainer_begin(&r->trainer, p == parts - 1) == 0);
        double loss = 0;
        CHECK(gpt_forward(&r->model, &r->trainer, inputs, some, CONTEXT) == 0);
        CHECK(gpt_classify(&r->model, &r->trainer, r->targets + p * rows, rows, 1.0f / TOKENS,
                           &loss) == 0);
        CHECK(gpt_backward(&r->model, &r->trainer, inputs, some, CONTEXT) == 0);
    }
    CHECK(trainer_wait(&r->trainer) == 0);
    return 0;
}

static int same_gradients(struct reference *r, int parts)
{
    static float wanted[4096];
    double worst = 0;
    if (backward(r, parts))
        return 1;
    for (size_t i = 0; i < r->trainer.count; i++) {
        const size_t count = trainer_elements(&r->trainer.tensors[i]);
        const float *ours = trainer_gradient(&r->trainer, i);
        char name[64];
        double largest = 0, furthest = 0;
        CHECK(count <= sizeof wanted / sizeof *wanted && ours);
        snprintf(name, sizeof name, "gradient.%s", r->trainer.tensors[i].name);
        if (read_floats(r, name, wanted, count))
            return 1;
        for (size_t k = 0; k < count; k++) {
            largest = fmax(largest, fabs((double)wanted[k]));
            furthest = fmax(furthest, fabs((double)ours[k] - (double)wanted[k]));
        }
        if (furthest > 1e-5 * largest)
            fprintf(stderr, "%s: %g of %g\n", name, furthest, largest);
        CHECK(furthest <= 1e-5 * largest);
        worst = fmax(worst, furthest / largest);
    }
    printf("%s: %zu gradients in %d part%s differ by up to %.1e of the largest element\n",
           blas_name(), r->trainer.count, parts, parts == 1 ? "" : "s", worst);
    return 0;
}

/* Less memory, and gradients of the same bits, where activations are made again. */
static int same_again(struct reference *r)
{
    static float before[GPT_FIRST + LAYERS * GPT_PER_LAYER + 2][4096];
    const struct gpt_config config = r->model.config;
    const size_t kept = r->model.memory_bytes;
    if (backward(r, 1))
        return 1;
    for (size_t i = 0; i < r->trainer.count; i++)
        memcpy(before[i], trainer_gradient(&r->trainer, i),
               trainer_elements(&r->trainer.tensors[i]) * sizeof(float));
    gpt_destroy(&r->model);
    CHECK(gpt_create(&r->model, &config, TOKENS, true) == 0);
    CHECK(r->model.memory_bytes < kept - (size_t)TOKENS * 15 * CHANNELS * sizeof(float));
    for (int parts = 1; parts <= 2; parts++) {
        if (backward(r, parts))
            return 1;
        for (size_t i = 0; i < r->trainer.count && parts == 1; i++)
            CHECK(memcmp(before[i], trainer_gradient(&r->trainer, i),
                         trainer_elements(&r->trainer.tensors[i]) * sizeof(float)) == 0);
    }
    return same_gradients(r, 2);
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
        struct gpt_config config;
        struct trainer_tensor tensors[1024];
        size_t parameters = 0;
        CHECK(gpt_size(known[k].name, &config) == 0);
        config.vocabulary = 50257;
        CHECK(gpt_tensor_count(&config) <= sizeof tensors / sizeof *tensors);
        gpt_tensors(&config, tensors);
        for (size_t i = 0; i < gpt_tensor_count(&config); i++)
            parameters += trainer_elements(&tensors[i]);
        CHECK(parameters == known[k].parameters);
        CHECK(config.channels % config.heads == 0);
    }
    return 0;
}

/* (loss(w + h d) - loss(w - h d)) / 2h against the gradient's product with d, tensor by tensor. */
static int as_differences(struct reference *r)
{
    static float before[4096], direction[4096], moved[4096];
    const float step = 0.01f;
    uint64_t seed = 3;
    if (backward(r, 1))
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
            losses[side] = loss_now(r);
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
    int failed = start(r, comm) || same_forward(r) || same_gradients(r, 1) ||
                 same_gradients(r, 2) || same_again(r) || as_differences(r) || sizes();
    tutti_tensors_close(r->file);
    trainer_destroy(&r->trainer);
    gpt_destroy(&r->model);
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
