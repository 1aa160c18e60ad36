/* PyTorch's numbers beside ours (gpt_reference.h). */
#include "tests/examples/gpt_reference.h"

#include "tests/examples/check.h"

#include <math.h>
#include <string.h>

const struct gpt_config reference_config = {LAYERS, HEADS, CHANNELS, CONTEXT, VOCABULARY};

static int reference_floats(const struct reference *r, const char *name, float *out, size_t count)
{
    const struct tutti_tensor *t = tutti_tensors_find(r->file, name);
    CHECK(t && tutti_tensor_elements(t) == count);
    CHECK(tutti_tensors_read(r->file, t, 0, count, TUTTI_FLOAT32, out) == TUTTI_OK);
    return 0;
}

int reference_open(struct reference *r)
{
    int32_t tokens[BATCH * (CONTEXT + 1)];
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

void reference_close(struct reference *r)
{
    tutti_tensors_close(r->file);
    r->file = NULL;
}

int reference_start(struct reference *r, tutti_comm *comm, bool thin)
{
    struct trainer_tensor tensors[TENSORS];
    const struct trainer_options options = {.optimizer = TUTTI_SGD_INIT,
                                            .bf16 = thin,
                                            .ddp = TUTTI_DDP_OPTIONS_INIT,
                                            .gpu = r->side.gpu ? &r->side : NULL};
    CHECK(gpt_tensor_count(&reference_config) == TENSORS);
    gpt_tensors(&reference_config, tensors);
    CHECK(trainer_create(&r->trainer, comm, tensors, TENSORS, &options) == 0);
    CHECK(gpt_load(&r->model, &r->trainer, r->path) == 0);
    return 0;
}

void reference_stop(struct reference *r)
{
    trainer_destroy(&r->trainer);
    gpt_destroy(&r->model);
}

int reference_loss(struct reference *r, double *loss)
{
    *loss = 0;
    CHECK(gpt_forward(&r->model, &r->trainer, r->inputs, BATCH, CONTEXT) == 0);
    CHECK(gpt_classify(&r->model, &r->trainer, r->targets, TOKENS, 0, loss) == 0);
    *loss /= TOKENS;
    return 0;
}

int reference_forward(struct reference *r, double loss_bound, double logits_bound)
{
    float wanted[2 * ROWS * VOCABULARY], loss = 0, logits[VOCABULARY];
    double ours = 0, furthest = 0, largest = 0;
    if (reference_floats(r, "logits", wanted, 2 * ROWS * VOCABULARY) ||
        reference_floats(r, "loss", &loss, 1) || reference_loss(r, &ours))
        return 1;
    for (int row = 0; row < 2 * ROWS; row++) {
        CHECK(gpt_logits(&r->model, &r->trainer, row < ROWS ? row : TOKENS - 2 * ROWS + row,
                         logits) == 0);
        for (int v = 0; v < VOCABULARY; v++) {
            furthest = fmax(furthest, fabs((double)logits[v] - wanted[row * VOCABULARY + v]));
            largest = fmax(largest, fabs((double)wanted[row * VOCABULARY + v]));
        }
    }
    printf("%s: loss %.7f, PyTorch %.7f; logits of up to %.1f differ by up to %.1e\n", r->name,
           ours, (double)loss, largest, furthest);
    CHECK(fabs(ours - (double)loss) < loss_bound);
    CHECK(furthest < logits_bound);
    return 0;
}

int reference_backward(struct reference *r, int parts)
{
    const int some = BATCH / parts, rows = some * CONTEXT;
    for (int p = 0; p < parts; p++) {
        const uint16_t *inputs = r->inputs + p * rows;
        double loss = 0;
        CHECK(trainer_begin(&r->trainer, p == parts - 1) == 0);
        CHECK(gpt_forward(&r->model, &r->trainer, inputs, some, CONTEXT) == 0);
        CHECK(gpt_classify(&r->model, &r->trainer, r->targets + p * rows, rows, 1.0f / TOKENS,
                           &loss) == 0);
        CHECK(gpt_backward(&r->model, &r->trainer, inputs, some, CONTEXT) == 0);
    }
    CHECK(trainer_wait(&r->trainer) == 0);
    return 0;
}

int reference_copy(struct reference *r, float (*out)[MOST])
{
    for (size_t i = 0; i < r->trainer.count; i++) {
        const size_t count = trainer_elements(&r->trainer.tensors[i]);
        const float *ours = trainer_gradient(&r->trainer, i);
        CHECK(count <= MOST && ours);
        if (r->side.gpu)
            CHECK(train_gpu_get(&r->side, out[i], ours, count * sizeof *ours) == 0);
        else
            memcpy(out[i], ours, count * sizeof *ours);
    }
    return 0;
}

int reference_gradients(struct reference *r, int parts, double bound, float (*ours)[MOST])
{
    static float wanted[MOST];
    double worst = 0;
    if (reference_backward(r, parts) || reference_copy(r, ours))
        return 1;
    for (size_t i = 0; i < r->trainer.count; i++) {
        const size_t count = trainer_elements(&r->trainer.tensors[i]);
        char name[64];
        double largest = 0, furthest = 0;
        snprintf(name, sizeof name, "gradient.%s", r->trainer.tensors[i].name);
        if (reference_floats(r, name, wanted, count))
            return 1;
        for (size_t k = 0; k < count; k++) {
            largest = fmax(largest, fabs((double)wanted[k]));
            furthest = fmax(furthest, fabs((double)ours[i][k] - (double)wanted[k]));
        }
        if (!(furthest <= bound * largest))
            fprintf(stderr, "%s: %g of %g\n", name, furthest, largest);
        CHECK(furthest <= bound * largest);
        worst = fmax(worst, furthest / largest);
    }
    printf("%s: %zu gradients in %d part%s differ by up to %.1e of the largest element\n", r->name,
           r->trainer.count, parts, parts == 1 ? "" : "s", worst);
    return 0;
}
