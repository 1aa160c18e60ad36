/* The transformer's GPU kernels (examples/transformer/gpt_gpu.cu) on the simulated GPU, against the
 * CPU's kernels, which are held to PyTorch by test_gpt.c: in float32 to rounding, in bfloat16 to
 * the rounding of its 8 bits on the same, rounded, input. Each runs twice, with threads turned in
 * another order, and must give the same bits. */
#include "device/sim/sim_block.h"
#include "examples/train/noise.h"
#include "examples/transformer/gpt.h"
#include "examples/transformer/gpt_gpu.h"
#include "examples/transformer/gpt_kernels.h"
#include "tests/examples/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 70, CHANNELS = 96, WIDTH = 200, BATCH = 2, LENGTH = 70, HEADS = 2, MOST = 1 << 16 };

#define TYPED(name) tti_sim_kernel name##_float32, name##_bfloat16
TYPED(gpt_gpu_norm);
TYPED(gpt_gpu_norm_back);
TYPED(gpt_gpu_columns);
TYPED(gpt_gpu_gelu);
TYPED(gpt_gpu_gelu_back);
TYPED(gpt_gpu_classify);
#define SIZED(name) \
    TYPED(name##_16), name##_32_float32, name##_32_bfloat16, name##_64_float32, name##_64_bfloat16
SIZED(gpt_gpu_attend);
SIZED(gpt_gpu_attend_delta);
SIZED(gpt_gpu_attend_queries);
SIZED(gpt_gpu_attend_keys);
tti_sim_kernel gpt_gpu_columns_end;

/* ---- Tensors of either type -------------------------------------------------------------------
 */

static uint64_t noise = 1;

static uint16_t narrow(float value)
{
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float widen(uint16_t brain)
{
    const uint32_t bits = (uint32_t)brain << 16;
    float value = 0;
    memcpy(&value, &bits, sizeof bits);
    return value;
}

/* What both sides begin from: `host` for the CPU's kernel, `device` the same in the type. */
struct tensor {
    float host[MOST];
    union {
        float wide[MOST];
        uint16_t thin[MOST];
    } device;
};

static void put(struct tensor *t, size_t count, bool thin)
{
    for (size_t i = 0; i < count; i++) {
        if (thin) {
            t->device.thin[i] = narrow(t->host[i]);
            t->host[i] = widen(t->device.thin[i]);
        } else {
            t->device.wide[i] = t->host[i];
        }
    }
}

static void fill(struct tensor *t, size_t count, float deviation, bool thin)
{
    noise_normal(&noise, deviation, t->host, count);
    put(t, count, thin);
}

/* The largest difference of the two sides, as a share of the largest element. */
static double apart(const struct tensor *t, size_t count, bool thin)
{
    double largest = 0, furthest = 0;
    for (size_t i = 0; i < count; i++) {
        const double device = thin ? widen(t->device.thin[i]) : t->device.wide[i];
        largest = fmax(largest, fabs((double)t->host[i]));
        furthest = fmax(furthest, fabs((double)t->host[i] - device));
        if (isnan(device))
            return INFINITY;
    }
    return furthest / largest;
}

static double allowed(bool thin)
{
    return thin ? 0.01 : 2e-6;
}

/* ---- Launches ---------------------------------------------------------------------------------
 */

static int launch(tti_sim_kernel *kernel, const void *args, unsigned blocks, unsigned threads,
                  uint64_t seed)
{
    struct tti_sim_crew *crew = tti_sim_crew_create();
    CHECK(crew);
    for (unsigned b = 0; b < blocks; b++) {
        unsigned stuck = 0;
        const struct tti_sim_work work = {.kernel = kernel,
                                          .args = args,
                                          .block = b,
                                          .blocks = blocks,
                                          .threads = threads,
                                          .seed = seed + b};
        CHECK(tti_sim_crew_run(crew, &work, &stuck) && stuck == 0);
    }
    tti_sim_crew_destroy(crew);
    return 0;
}

/* Twice from the same state of what it writes: `bytes` at `out`. */
static int launch_twice(tti_sim_kernel *kernel, const void *args, unsigned blocks, unsigned threads,
                        void *out, size_t bytes)
{
    void *before = malloc(bytes), *once = malloc(bytes);
    int failed = !before || !once;
    if (!failed) {
        memcpy(before, out, bytes);
        failed = launch(kernel, args, blocks, threads, 1);
        memcpy(once, out, bytes);
        memcpy(out, before, bytes);
        failed = failed || launch(kernel, args, blocks, threads, 1000);
    }
    const bool same = !failed && memcmp(once, out, bytes) == 0;
    free(before);
    free(once);
    CHECK(same);
    return 0;
}

static unsigned blocks_for(size_t count, size_t each)
{
    return (unsigned)((count + each - 1) / each);
}

/* ---- Cases ------------------------------------------------------------------------------------
 */

static struct tensor t[8];

static int norms(bool thin)
{
    static float mean[ROWS], scale[ROWS], means[ROWS], scales[ROWS],
        sums[2][GPT_GPU_SLICES * CHANNELS];
    static float dweight[CHANNELS], dbias[CHANNELS], dweights[CHANNELS], dbiases[CHANNELS];
    const size_t n = (size_t)ROWS * CHANNELS;
    struct tensor *x = &t[0], *y = &t[1], *sum = &t[2], *out = &t[3], *weight = &t[4],
                  *bias = &t[5];
    struct tensor *dout = &t[6], *dx = &t[7];
    fill(x, n, 1, thin);
    fill(y, n, 1, thin);
    fill(weight, CHANNELS, 1, thin);
    fill(bias, CHANNELS, 1, thin);
    for (size_t i = 0; i < n; i++)
        sum->host[i] = x->host[i] + y->host[i];
    put(sum, n, thin);
    memset(&sum->device, 0, sizeof sum->device);
    gpt_norm(out->host, means, scales, sum->host, weight->host, bias->host, ROWS, CHANNELS);
    const struct gpt_gpu_norm_args forward = {&sum->device,    &out->device,  mean,
                                              scale,           &x->device,    &y->device,
                                              &weight->device, &bias->device, CHANNELS};
    if (launch_twice(thin ? gpt_gpu_norm_bfloat16 : gpt_gpu_norm_float32, &forward, ROWS,
                     GPT_GPU_THREADS, &out->device, sizeof out->device))
        return 1;
    CHECK(apart(sum, n, thin) == 0 && apart(out, n, thin) < allowed(thin));
    fill(dout, n, 1, thin);
    fill(dx, n, 1, thin);
    memset(dweights, 0, sizeof dweights);
    memset(dbiases, 0, sizeof dbiases);
    gpt_norm_back(dx->host, dweights, dbiases, dout->host, sum->host, means, scales, weight->host,
                  ROWS, CHANNELS);
    const struct gpt_gpu_norm_back_args back = {
        &dx->device, &dout->device, &sum->device, &weight->device, mean, scale, CHANNELS};
    if (launch_twice(thin ? gpt_gpu_norm_back_bfloat16 : gpt_gpu_norm_back_float32, &back, ROWS,
                     GPT_GPU_THREADS, &dx->device, sizeof dx->device))
        return 1;
    CHECK(apart(dx, n, thin) < allowed(thin));
    const struct gpt_gpu_columns_args columns = {sums[0], sums[1], &dout->device, &sum->device,
                                                 mean,    scale,   ROWS,          CHANNELS};
    const unsigned groups = blocks_for(CHANNELS, GPT_GPU_THREADS);
    if (launch_twice(thin ? gpt_gpu_columns_bfloat16 : gpt_gpu_columns_float32, &columns,
                     groups * GPT_GPU_SLICES, GPT_GPU_THREADS, sums, sizeof sums))
        return 1;
    memset(dweight, 0, sizeof dweight);
    memset(dbias, 0, sizeof dbias);
    const struct gpt_gpu_columns_end_args end = {dbias, dweight, sums[0], sums[1], CHANNELS};
    if (launch(gpt_gpu_columns_end, &end, groups, GPT_GPU_THREADS, 7))
        return 1;
    for (int c = 0; c < CHANNELS; c++) /* sums of rows, in another order */
        CHECK(fabsf(dbias[c] - dbiases[c]) < 1e-4f && fabsf(dweight[c] - dweights[c]) < 1e-4f);
    return 0;
}

static int gelus(bool thin)
{
    const size_t n = (size_t)ROWS * CHANNELS;
    struct tensor *x = &t[0], *out = &t[1], *dout = &t[2];
    fill(x, n, 2, thin);
    fill(dout, n, 1, thin);
    gpt_gelu(out->host, x->host, ROWS, CHANNELS);
    gpt_gelu_back(dout->host, x->host, ROWS, CHANNELS);
    const struct gpt_gpu_gelu_args forward = {&out->device, &x->device, n};
    const struct gpt_gpu_gelu_args back = {&dout->device, &x->device, n};
    if (launch_twice(thin ? gpt_gpu_gelu_bfloat16 : gpt_gpu_gelu_float32, &forward, 5,
                     GPT_GPU_THREADS, &out->device, sizeof out->device) ||
        launch_twice(thin ? gpt_gpu_gelu_back_bfloat16 : gpt_gpu_gelu_back_float32, &back, 5,
                     GPT_GPU_THREADS, &dout->device, sizeof dout->device))
        return 1;
    CHECK(apart(out, n, thin) < allowed(thin) && apart(dout, n, thin) < allowed(thin));
    return 0;
}

static int classifier(bool thin)
{
    static uint16_t targets[ROWS];
    static float losses[ROWS];
    const size_t n = (size_t)ROWS * WIDTH;
    struct tensor *logits = &t[0];
    double all = 0;
    fill(logits, n, 3, thin);
    for (int r = 0; r < ROWS; r++)
        targets[r] = (uint16_t)(r * 31 % WIDTH);
    const double wanted = gpt_softmax(logits->host, targets, ROWS, WIDTH, 0.25f);
    const struct gpt_gpu_classify_args args = {&logits->device, targets, losses,
                                               WIDTH,           WIDTH,   0.25f};
    if (launch_twice(thin ? gpt_gpu_classify_bfloat16 : gpt_gpu_classify_float32, &args, ROWS,
                     GPT_GPU_THREADS, &logits->device, sizeof logits->device))
        return 1;
    for (int r = 0; r < ROWS; r++)
        all += (double)losses[r];
    CHECK(fabs(all - wanted) < 1e-5 * wanted && apart(logits, n, thin) < allowed(thin));
    return 0;
}

/* By head size, then type: forward, delta, queries, keys. */
static tti_sim_kernel *const attention[3][2][4] = {
    {{gpt_gpu_attend_16_float32, gpt_gpu_attend_delta_16_float32, gpt_gpu_attend_queries_16_float32,
      gpt_gpu_attend_keys_16_float32},
     {gpt_gpu_attend_16_bfloat16, gpt_gpu_attend_delta_16_bfloat16,
      gpt_gpu_attend_queries_16_bfloat16, gpt_gpu_attend_keys_16_bfloat16}},
    {{gpt_gpu_attend_32_float32, gpt_gpu_attend_delta_32_float32, gpt_gpu_attend_queries_32_float32,
      gpt_gpu_attend_keys_32_float32},
     {gpt_gpu_attend_32_bfloat16, gpt_gpu_attend_delta_32_bfloat16,
      gpt_gpu_attend_queries_32_bfloat16, gpt_gpu_attend_keys_32_bfloat16}},
    {{gpt_gpu_attend_64_float32, gpt_gpu_attend_delta_64_float32, gpt_gpu_attend_queries_64_float32,
      gpt_gpu_attend_keys_64_float32},
     {gpt_gpu_attend_64_bfloat16, gpt_gpu_attend_delta_64_bfloat16,
      gpt_gpu_attend_queries_64_bfloat16, gpt_gpu_attend_keys_64_bfloat16}}};

static int attends(bool thin)
{
    static float scores[GPT_BLOCK * LENGTH], slopes[GPT_BLOCK * LENGTH];
    static float logs[BATCH * HEADS * LENGTH], deltas[BATCH * HEADS * LENGTH];
    struct tensor *qkv = &t[0], *out = &t[1], *dout = &t[2], *dqkv = &t[3];
    for (int s = 0; s < 3; s++) {
        const int channels = HEADS * (16 << s);
        const size_t n = (size_t)BATCH * LENGTH * (size_t)channels;
        const struct gpt_attention a = {BATCH, LENGTH, HEADS, channels, scores, slopes};
        const struct gpt_gpu_attend_args args = {&out->device,  &dqkv->device, &qkv->device,
                                                 &dout->device, logs,          deltas,
                                                 BATCH,         LENGTH,        HEADS};
        const unsigned blocks = BATCH * HEADS * blocks_for(LENGTH, GPT_GPU_TILE);
        void *const written[] = {&out->device, deltas, &dqkv->device, &dqkv->device};
        const size_t bytes[] = {sizeof out->device, sizeof deltas, sizeof dqkv->device,
                                sizeof dqkv->device};
        CHECK(3 * n <= MOST);
        fill(qkv, 3 * n, 1, thin);
        fill(dout, n, 1, thin);
        gpt_attend(&a, out->host, qkv->host);
        gpt_attend_back(&a, dqkv->host, dout->host, qkv->host);
        for (int k = 0; k < 4; k++)
            if (launch_twice(attention[s][thin][k], &args, blocks,
                             k < 2 ? GPT_GPU_TILE : GPT_GPU_PAIRS, written[k], bytes[k]))
                return 1;
        CHECK(apart(out, n, thin) < allowed(thin) && apart(dqkv, 3 * n, thin) < 2 * allowed(thin));
    }
    return 0;
}

int main(void)
{
    static const struct {
        const char *name;
        int (*run)(bool thin);
    } cases[] = {
        {"norms", norms}, {"gelus", gelus}, {"classifier", classifier}, {"attends", attends}};
    int failed = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int thin = 0; thin < 2; thin++) {
            const int bad = cases[i].run(thin);
            printf("%-12s %-9s %s\n", cases[i].name, thin ? "bfloat16" : "float32",
                   bad ? "FAILED" : "ok");
            failed |= bad;
        }
    return failed;
}
