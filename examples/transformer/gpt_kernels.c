/* Element kernels (gpt_kernels.h). Plain loops for the compiler to vectorise (-fopenmp-simd lets it
 * reorder the sums that are marked); rows are shared out among threads where there is OpenMP. The
 * same program gives the same bits for any number of threads: a sum never crosses rows that
 * different threads have. */
#include "examples/transformer/gpt_kernels.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

void gpt_threads(int threads)
{
#ifdef _OPENMP
    omp_set_num_threads(threads);
#else
    (void)threads;
#endif
}

/* e^x to about one unit in the last place, as straight code that vectorises: 2^n times a polynomial
 * on half an octave around 1 (the coefficients of Cephes, S. Moshier). */
static inline float kernel_exp(float x)
{
    x = x > 88.0f ? 88.0f : x;
    x = x < -87.0f ? -87.0f : x;
    const float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* to the nearest integer */
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const int32_t bits = ((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

static inline float kernel_tanh(float x)
{
    return 1.0f - 2.0f / (kernel_exp(2.0f * x) + 1.0f);
}

/* ---- Layer norm -------------------------------------------------------------------------------
 */

void gpt_norm(float *out, float *mean, float *scale, const float *x, const float *weight,
              const float *bias, int rows, int channels)
{
#pragma omp parallel for schedule(static)
    for (int i = 0; i < rows; i++) {
        const float *row = x + (size_t)i * (size_t)channels;
        float *to = out + (size_t)i * (size_t)channels;
        float sum = 0, square = 0;
#pragma omp simd reduction(+ : sum)
        for (int c = 0; c < channels; c++)
            sum += row[c];
        const float middle = sum / (float)channels;
#pragma omp simd reduction(+ : square)
        for (int c = 0; c < channels; c++)
            square += (row[c] - middle) * (row[c] - middle);
        const float factor = 1.0f / sqrtf(square / (float)channels + 1e-5f);
        for (int c = 0; c < channels; c++)
            to[c] = (row[c] - middle) * factor * weight[c] + bias[c];
        mean[i] = middle;
        scale[i] = factor;
    }
}

/* With n = (x - mean) scale and g = dout weight: dx = scale (g - mean(g) - n mean(g n)). */
void gpt_norm_back(float *dx, float *dweight, float *dbias, const float *dout, const float *x,
                   const float *mean, const float *scale, const float *weight, int rows,
                   int channels)
{
#pragma omp parallel for schedule(static)
    for (int i = 0; i < rows; i++) {
        const float *row = x + (size_t)i * (size_t)channels;
        const float *d = dout + (size_t)i * (size_t)channels;
        float *to = dx + (size_t)i * (size_t)channels;
        const float middle = mean[i], factor = scale[i];
        float sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
        for (int c = 0; c < channels; c++) {
            const float g = d[c] * weight[c];
            sum += g;
            product += g * (row[c] - middle) * factor;
        }
        sum /= (float)channels;
        product /= (float)channels;
        for (int c = 0; c < channels; c++)
            to[c] += factor * (d[c] * weight[c] - sum - (row[c] - middle) * factor * product);
    }
    for (int i = 0; i < rows; i++) { /* the order of rows is kept, by all threads or one */
        const float *restrict row = x + (size_t)i * (size_t)channels;
        const float *restrict d = dout + (size_t)i * (size_t)channels;
        const float middle = mean[i], factor = scale[i];
        for (int c = 0; c < channels; c++) {
            dbias[c] += d[c];
            dweight[c] += d[c] * (row[c] - middle) * factor;
        }
    }
}

/* ---- GELU -------------------------------------------------------------------------------------
 */

static const float kernel_root = 0.7978845608f; /* sqrt(2 / pi) */

void gpt_gelu(float *out, const float *x, int rows, int width)
{
#pragma omp parallel for schedule(static)
    for (int i = 0; i < rows; i++) {
        const float *restrict row = x + (size_t)i * (size_t)width;
        float *restrict to = out + (size_t)i * (size_t)width;
        for (int c = 0; c < width; c++) {
            const float v = row[c];
            to[c] = 0.5f * v * (1.0f + kernel_tanh(kernel_root * (v + 0.044715f * v * v * v)));
        }
    }
}

void gpt_gelu_back(float *dout, const float *x, int rows, int width)
{
#pragma omp parallel for schedule(static)
    for (int i = 0; i < rows; i++) {
        const float *restrict row = x + (size_t)i * (size_t)width;
        float *restrict d = dout + (size_t)i * (size_t)width;
        for (int c = 0; c < width; c++) {
            const float v = row[c];
            const float t = kernel_tanh(kernel_root * (v + 0.044715f * v * v * v));
            const float inner = kernel_root * (1.0f + 3.0f * 0.044715f * v * v);
            d[c] *= 0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * inner;
        }
    }
}

/* ---- Softmax and cross-entropy ----------------------------------------------------------------
 */

/* In eight lanes, which are compared at once. */
static float kernel_most(const float *row, int width)
{
    float lanes[8], most = row[0];
    for (int k = 0; k < 8; k++)
        lanes[k] = most;
    int v = 0;
    for (; v + 8 <= width; v += 8)
        for (int k = 0; k < 8; k++)
            lanes[k] = row[v + k] > lanes[k] ? row[v + k] : lanes[k];
    for (; v < width; v++)
        most = row[v] > most ? row[v] : most;
    for (int k = 0; k < 8; k++)
        most = lanes[k] > most ? lanes[k] : most;
    return most;
}

/* Returns the logarithm of what the target's share is divided by, less the target's logit. */
static double kernel_softmax_row(float *row, int width, int target, float slope)
{
    const float most = kernel_most(row, width);
    float sum = 0;
    const double loss = (double)most - (double)row[target];
#pragma omp simd reduction(+ : sum)
    for (int v = 0; v < width; v++) {
        row[v] = kernel_exp(row[v] - most);
        sum += row[v];
    }
    const float share = (slope != 0 ? slope : 1.0f) / sum;
    for (int v = 0; v < width; v++)
        row[v] *= share;
    row[target] -= slope;
    return loss + log((double)sum);
}

double gpt_softmax(float *logits, const unsigned short *targets, int rows, int width, float slope)
{
    double losses[256], all = 0;
    for (int from = 0; from < rows; from += 256) {
        const int to = rows - from < 256 ? rows - from : 256;
#pragma omp parallel for schedule(static)
        for (int i = 0; i < to; i++)
            losses[i] = kernel_softmax_row(logits + (size_t)(from + i) * (size_t)width, width,
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
    for (int i = 0; i < rows; i++) {
        const float *restrict d = dout + (size_t)i * (size_t)width;
        for (int c = 0; c < width; c++)
            dbias[c] += d[c];
    }
}

void gpt_add(float *out, const float *x, int rows, int width)
{
    const size_t count = (size_t)rows * (size_t)width;
    for (size_t i = 0; i < count; i++)
        out[i] += x[i];
}

/* ---- For attention (gpt_attention.c) ----------------------------------------------------------
 */

void gpt_causal_softmax(float *scores, int first, int rows, int width)
{
    for (int r = 0; r < rows; r++) {
        float *row = scores + (size_t)r * (size_t)width;
        const int keys = first + r + 1;
        (void)kernel_softmax_row(row, keys, 0, 0);
        memset(row + keys, 0, (size_t)(width - keys) * sizeof *row);
    }
}
