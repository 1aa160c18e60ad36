/* Element kernels (gpt_kernels.h): rows are shared out among threads where there is OpenMP; what is
 * done to a row is gpt_rows.c's. The same program gives the same bits for any number of threads: a
 * sum never crosses rows that different threads have. */
#include "examples/transformer/gpt_kernels.h"

#include "examples/transformer/gpt_rows.h"

#include <stddef.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

extern const struct gpt_rows gpt_rows_baseline;
#ifdef GPT_ROWS_X86
extern const struct gpt_rows gpt_rows_avx2, gpt_rows_avx512;
#endif

const struct gpt_rows *gpt_rows_now(void)
{
#ifdef GPT_ROWS_X86
    __builtin_cpu_init();
    const int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return &gpt_rows_avx512;
    if (avx2)
        return &gpt_rows_avx2;
#endif
    return &gpt_rows_baseline;
}

void gpt_threads(int threads)
{
#ifdef _OPENMP
    omp_set_num_threads(threads);
#else
    (void)threads;
#endif
}

void gpt_norm(float *out, float *mean, float *scale, const float *x, const float *weight,
              const float *bias, int rows, int channels)
{
    const struct gpt_rows *k = gpt_rows_now();
#pragma omp parallel for schedule(static)
    for (int i = 0; i < rows; i++) {
        const size_t at = (size_t)i * (size_t)channels;
        k->norm(out + at, &mean[i], &scale[i], x + at, weight, bias, channels);
    }
}

void gpt_norm_back(float *dx, float *dweight, float *dbias, const float *dout, const float *x,
                   const float *mean, const float *scale, const float *weight, int rows,
                   int channels)
{
    const struct gpt_rows *k = gpt_rows_now();
#pragma omp parallel for schedule(static)
    for (int i = 0; i < rows; i++) {
        const size_t at = (size_t)i * (size_t)channels;
        k->norm_back(dx + at, dout + at, x + at, mean[i], scale[i], weight, channels);
    }
    for (int i = 0; i < rows; i++) { /* the order of rows is kept, by all threads or one */
        const size_t at = (size_t)i * (size_t)channels;
        k->norm_collect(dweight, dbias, dout + at, x + at, mean[i], scale[i], channels);
    }
}

void gpt_gelu(float *out, const float *x, int rows, int width)
{
    const struct gpt_rows *k = gpt_rows_now();
#pragma omp parallel for schedule(static)
    for (int i = 0; i < rows; i++)
        k->gelu(out + (size_t)i * (size_t)width, x + (size_t)i * (size_t)width, width);
}

void gpt_gelu_back(float *dout, const float *x, int rows, int width)
{
    const struct gpt_rows *k = gpt_rows_now();
#pragma omp parallel for schedule(static)
    for (int i = 0; i < rows; i++)
        k->gelu_back(dout + (size_t)i * (size_t)width, x + (size_t)i * (size_t)width, width);
}

double gpt_softmax(float *logits, const unsigned short *targets, int rows, int width, float slope)
{
    const struct gpt_rows *k = gpt_rows_now();
    double losses[256], all = 0;
    for (int from = 0; from < rows; from += 256) {
        const int to = rows - from < 256 ? rows - from : 256;
#pragma omp parallel for schedule(static)
        for (int i = 0; i < to; i++)
            losses[i] = k->softmax(logits + (size_t)(from + i) * (size_t)width, width,
                                   targets[from + i], slope);
        for (int i = 0; i < to; i++)
            all += losses[i];
    }
    return all;
}

/* ---- Rows -------------------------------------------------------------------------------------
 */

void gpt_spread(float *out, const float *bias, int rows, int width)
{
    for (int i = 0; i < rows; i++)
        memcpy(out + (size_t)i * (size_t)width, bias, (size_t)width * sizeof *bias);
}

void gpt_collect(float *dbias, const float *dout, int rows, int width)
{
    const struct gpt_rows *k = gpt_rows_now();
    for (int i = 0; i < rows; i++)
        k->add(dbias, dout + (size_t)i * (size_t)width, width);
}

void gpt_add(float *out, const float *x, int rows, int width)
{
    const struct gpt_rows *k = gpt_rows_now();
    for (int i = 0; i < rows; i++)
        k->add(out + (size_t)i * (size_t)width, x + (size_t)i * (size_t)width, width);
}

/* ---- For attention (gpt_attention.c) ----------------------------------------------------------
 */

void gpt_causal_softmax(float *scores, int first, int rows, int width)
{
    const struct gpt_rows *k = gpt_rows_now();
    for (int r = 0; r < rows; r++) {
        float *row = scores + (size_t)r * (size_t)width;
        const int keys = first + r + 1;
        (void)k->softmax(row, keys, 0, 0);
        memset(row + keys, 0, (size_t)(width - keys) * sizeof *row);
    }
}

void gpt_causal_softmax_back(float *slopes, const float *scores, int rows, int width)
{
    const struct gpt_rows *k = gpt_rows_now();
    for (int r = 0; r < rows; r++)
        k->softmax_back(slopes + (size_t)r * (size_t)width, scores + (size_t)r * (size_t)width,
                        width);
}
