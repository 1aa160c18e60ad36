/* The example transformer on the simulated GPU (TUTTI_TEST_GPU=cuda: on a real one), as a whole:
 * in float32 against PyTorch's numbers with the bounds of test_gpt.c, in one small batch and in
 * two, and to the bit when activations are made again; in bfloat16 against the same numbers to its
 * 8 bits; and products against plain loops: those of the own kernel, or (a second argument) of
 * cuBLASLt, of which TUTTI_LIBCUBLASLT may name one for tests, and then less of the rest. */
#include "examples/train/noise.h"
#include "examples/train/together.h"
#include "examples/transformer/gpt.h"
#include "examples/transformer/gpt_device.h"
#include "tests/examples/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, HEADS = 2, CHANNELS = 8, CONTEXT = 70, VOCABULARY = 40, BATCH = 4, ROWS = 20 };
enum { TOKENS = BATCH * CONTEXT, TENSORS = GPT_FIRST + LAYERS * GPT_PER_LAYER + 2, MOST = 4096 };

static const struct gpt_config config = {LAYERS, HEADS, CHANNELS, CONTEXT, VOCABULARY};

struct reference {
    const char *path;
    const char *products; /* who makes them, if that matters */
    tutti_tensor_file *file;
    struct train_gpu side;
    struct gpt model;
    struct trainer trainer;
    uint16_t inputs[TOKENS], targets[TOKENS];
    double logits, gradients; /* how far they may be apart; gradients: of the largest element */
};

static int read_floats(const struct reference *r, const char *name, float *out, size_t count)
{
    const struct tutti_tensor *t = tutti_tensors_find(r->file, name);
    CHECK(t && tutti_tensor_elements(t) == count);
    CHECK(tutti_tensors_read(r->file, t, 0, count, TUTTI_FLOAT32, out) == TUTTI_OK);
    return 0;
}

static int start(struct reference *r, tutti_comm *comm, bool thin, bool recompute, bool by_products)
{
    const struct gpt_on on = {&r->side, recompute, thin, false, by_products};
    struct trainer_tensor tensors[TENSORS];
    struct trainer_options options = {
        .optimizer = TUTTI_SGD_INIT, .bf16 = thin, .ddp = TUTTI_DDP_OPTIONS_INIT, .gpu = &r->side};
    int32_t tokens[BATCH * (CONTEXT + 1)];
    /* bfloat16: as far as PyTorch's own bfloat16 is from these numbers (0.042 and 0.027); by
     * products shares of attention are rounded to 8 bits, too. */
    r->logits = thin ? 0.042 : 1e-3;
    r->gradients = !thin ? 1e-5 : by_products ? 0.03 : 0.027;
    gpt_tensors(&config, tensors);
    CHECK(gpt_create_on(&r->model, &config, TOKENS, &on) == 0);
    CHECK(trainer_create(&r->trainer, comm, tensors, TENSORS, &options) == 0);
    CHECK(gpt_load(&r->model, &r->trainer, r->path) == 0);
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

static int same_forward(struct reference *r)
{
    float wanted[2 * ROWS * VOCABULARY], loss = 0, logits[VOCABULARY];
    double ours = 0, furthest = 0, largest = 0;
    if (read_floats(r, "logits", wanted, 2 * ROWS * VOCABULARY) || read_floats(r, "loss", &loss, 1))
        return 1;
    CHECK(gpt_forward(&r->model, &r->trainer, r->inputs, BATCH, CONTEXT) == 0 &&
          gpt_classify(&r->model, &r->trainer, r->targets, TOKENS, 0, &ours) == 0);
    ours /= TOKENS;
    for (int row = 0; row < 2 * ROWS; row++) {
        CHECK(gpt_logits(&r->model, &r->trainer, row < ROWS ? row : TOKENS - 2 * ROWS + row,
                         logits) == 0);
        for (int v = 0; v < VOCABULARY; v++) {
            furthest = fmax(furthest, fabs((double)logits[v] - wanted[row * VOCABULARY + v]));
            largest = fmax(largest, fabs((double)wanted[row * VOCABULARY + v]));
        }
    }
    printf("%s: loss %.7f, PyTorch %.7f; logits of up to %.1f differ by up to %.1e\n",
           r->trainer.options.bf16 ? "bfloat16" : "float32", ours, (double)loss, largest, furthest);
    CHECK(fabs(ours - (double)loss) < (r->trainer.options.bf16 ? 2e-3 : 1e-5));
    CHECK(furthest < r->logits);
    return 0;
}

static int backward(struct reference *r, int parts)
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

/* Gradients of all tensors, one after the other; what was made of them: their number of elements.
 */
static int gradients(struct reference *r, int parts, float (*all)[MOST])
{
    if (backward(r, parts))
        return 1;
    for (size_t i = 0; i < r->trainer.count; i++)
        CHECK(train_gpu_get(&r->side, all[i], trainer_gradient(&r->trainer, i),
                            trainer_elements(&r->trainer.tensors[i]) * sizeof(float)) == 0);
    return 0;
}

static int same_gradients(struct reference *r, int parts, float (*ours)[MOST])
{
    static float wanted[MOST];
    double worst = 0;
    if (gradients(r, parts, ours))
        return 1;
    for (size_t i = 0; i < r->trainer.count; i++) {
        const size_t count = trainer_elements(&r->trainer.tensors[i]);
        char name[64];
        double largest = 0, furthest = 0;
        snprintf(name, sizeof name, "gradient.%s", r->trainer.tensors[i].name);
        if (read_floats(r, name, wanted, count))
            return 1;
        for (size_t k = 0; k < count; k++) {
            largest = fmax(largest, fabs((double)wanted[k]));
            furthest = fmax(furthest, fabs((double)ours[i][k] - (double)wanted[k]));
        }
        if (!(furthest <= r->gradients * largest))
            fprintf(stderr, "%s: %g of %g\n", name, furthest, largest);
        CHECK(furthest <= r->gradients * largest);
        worst = fmax(worst, furthest / largest);
    }
    printf("%s: %zu gradients in %d part%s differ by up to %.1e of the largest element\n",
           r->trainer.options.bf16 ? "bfloat16" : "float32", r->trainer.count, parts,
           parts == 1 ? "" : "s", worst);
    return 0;
}

static void stop(struct reference *r)
{
    trainer_destroy(&r->trainer);
    gpt_destroy(&r->model);
}

/* ---- Products ---------------------------------------------------------------------------------
 */

static float at(const float *x, bool transposed, int ld, int row, int column)
{
    return transposed ? x[column * ld + row] : x[row * ld + column];
}

/* All forms of a product in float32, against sums in double. */
static int products(struct reference *r)
{
    enum { M = 5, N = 19, K = 33, LD = 40, ALL = LD * LD };
    static float a[ALL], b[ALL], c[ALL], bias[N], out[ALL];
    struct gpt_products *by = NULL;
    uint64_t seed = 5;
    float *places[4];
    const float *from[] = {a, b, c, bias};
    noise_normal(&seed, 1, a, ALL);
    noise_normal(&seed, 1, b, ALL);
    noise_normal(&seed, 1, c, ALL);
    noise_normal(&seed, 1, bias, N);
    CHECK(gpt_products_create(&r->side, false, &by) == 0);
    CHECK(!r->products || strcmp(gpt_products_name(by), r->products) == 0);
    for (int i = 0; i < 4; i++)
        CHECK((places[i] = train_gpu_alloc(&r->side, i < 3 ? sizeof a : sizeof bias)));
    for (int form = 0; form < 8; form++) {
        const struct gpt_product p = {.transpose_a = form & 1,
                                      .transpose_b = form & 2,
                                      .m = M,
                                      .n = N,
                                      .k = K,
                                      .a = places[0],
                                      .b = places[1],
                                      .c = places[2],
                                      .lda = LD,
                                      .ldb = LD,
                                      .ldc = LD,
                                      .bias = form & 4 ? places[3] : NULL,
                                      .add = form & 4};
        for (int i = 0; i < 4; i++)
            CHECK(train_gpu_put(&r->side, places[i], from[i], i < 3 ? sizeof a : sizeof bias) == 0);
        CHECK(gpt_product(by, &p) == 0 && train_gpu_get(&r->side, out, places[2], sizeof out) == 0);
        for (int i = 0; i < ALL; i++) {
            const int row = i / LD, column = i % LD;
            double sum = p.add ? (double)c[i] + (double)bias[column % N] : 0;
            if (row >= M || column >= N) {
                CHECK(out[i] == c[i]);
                continue;
            }
            for (int k = 0; k < K; k++)
                sum += (double)at(a, p.transpose_a, LD, row, k) *
                       (double)at(b, p.transpose_b, LD, k, column);
            CHECK(fabs(sum - (double)out[i]) < 2e-5);
        }
    }
    for (int i = 0; i < 4; i++)
        train_gpu_free(&r->side, places[i]);
    gpt_products_destroy(by);
    return 0;
}

static int compare(tutti_comm *comm, void *argument)
{
    static float ours[TENSORS][MOST], again[TENSORS][MOST];
    struct reference *r = argument;
    CHECK(train_gpu_open(&r->side, comm) == 0);
    CHECK(tutti_tensors_open(r->path, &r->file) == TUTTI_OK);
    int failed = products(r) || start(r, comm, false, false, false) || same_forward(r) ||
                 (!r->products && same_gradients(r, 2, ours)) || same_gradients(r, 1, ours);
    stop(r);
    if (!failed && !r->products) {
        failed = start(r, comm, false, true, false) || same_gradients(r, 1, again);
        stop(r);
        CHECK(failed || memcmp(ours, again, sizeof ours) == 0);
    }
    for (int more = r->products != NULL; more < 3 && !failed;
         more++) { /* bfloat16; attention by products, in both */
        failed =
            start(r, comm, more<2, false, more> 0) || same_forward(r) || same_gradients(r, 1, ours);
        stop(r);
    }
    tutti_tensors_close(r->file);
    train_gpu_close(&r->side);
    return failed;
}

int main(int argc, char **argv)
{
    static struct reference r;
    const char *device = getenv("TUTTI_TEST_GPU");
    if (argc < 2 || train_gpu_choose(device ? device : "sim"))
        return 2;
    r.path = argv[1];
    r.products = argv[2];
    return together_run(1, compare, &r);
}
