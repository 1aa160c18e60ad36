/* The example transformer on the simulated GPU (TUTTI_TEST_GPU=cuda: on a real one), as a whole:
 * in float32 against PyTorch's numbers with the bounds of test_gpt.c, in one small batch and in
 * two, and to the bit when activations are made again; in bfloat16 against the same numbers to its
 * 8 bits; and products against plain loops: those of the own kernel, or (a second argument) of
 * cuBLASLt, of which TUTTI_LIBCUBLASLT may name one for tests, and then less of the rest. */
#include "examples/train/noise.h"
#include "examples/train/together.h"
#include "examples/transformer/gpt_device.h"
#include "tests/examples/check.h"
#include "tests/examples/gpt_reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int start(struct reference *r, tutti_comm *comm, bool thin, bool recompute, bool by_products)
{
    const struct gpt_on on = {&r->side, recompute, thin, false, by_products};
    r->name = thin ? "bfloat16" : "float32";
    CHECK(gpt_create_on(&r->model, &reference_config, TOKENS, &on) == 0);
    return reference_start(r, comm, thin);
}

/* A whole step in one part, beside PyTorch. bfloat16: as far as PyTorch's own bfloat16 is from
 * these numbers (0.042 and 0.027); by products shares of attention are rounded to 8 bits, too. */
static int same(struct reference *r, bool thin, bool by_products, float (*ours)[MOST])
{
    return reference_forward(r, thin ? 2e-3 : 1e-5, thin ? 0.042 : 1e-3) ||
           reference_gradients(r, 1,
                               !thin         ? 1e-5
                               : by_products ? 0.03
                                             : 0.027,
                               ours);
}

/* ---- Products ---------------------------------------------------------------------------------
 */

static float at(const float *x, bool transposed, int ld, int row, int column)
{
    return transposed ? x[column * ld + row] : x[row * ld + column];
}

/* All forms of a product in float32, against sums in double. */
static int products(struct reference *r, const char *maker)
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
    CHECK(!maker || strcmp(gpt_products_name(by), maker) == 0);
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

/* `argument`: the program's arguments. */
static int compare(tutti_comm *comm, void *argument)
{
    static float ours[TENSORS][MOST], again[TENSORS][MOST];
    static struct reference r;
    char **argv = argument;
    const char *maker = argv[2]; /* of products, if that matters */
    r.path = argv[1];
    CHECK(train_gpu_open(&r.side, comm) == 0);
    int failed = reference_open(&r) || products(&r, maker) ||
                 start(&r, comm, false, false, false) ||
                 (!maker && reference_gradients(&r, 2, 1e-5, ours)) || same(&r, false, false, ours);
    reference_stop(&r);
    if (!failed && !maker) {
        failed = start(&r, comm, false, true, false) || reference_gradients(&r, 1, 1e-5, again);
        reference_stop(&r);
        CHECK(failed || memcmp(ours, again, sizeof ours) == 0);
    }
    /* bfloat16; attention by products, in both. */
    for (int more = maker != NULL; more < 3 && !failed; more++) {
        const bool thin = more != 2, by_products = more != 0;
        failed = start(&r, comm, thin, false, by_products) || same(&r, thin, by_products, ours);
        reference_stop(&r);
    }
    reference_close(&r);
    train_gpu_close(&r.side);
    return failed;
}

int main(int argc, char **argv)
{
    const char *device = getenv("TUTTI_TEST_GPU");
    if (argc < 2 || train_gpu_choose(device ? device : "sim", 0))
        return 2;
    return together_run(1, compare, argv);
}
