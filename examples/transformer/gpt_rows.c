/* Element kernels (gpt_rows.h). Plain loops for the compiler to vectorise (-fopenmp-simd lets it
 * reorder the sums that are marked). Compiled once for each instruction set, as GPT_ROWS. */
#include "examples/transformer/gpt_rows.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* e^x to about one unit in the last place, as straight code that vectorises: 2^n times a polynomial
 * on half an octave around 1 (the coefficients of Cephes, S. Moshier). */
static inline float rows_exp(float x)
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

static inline float rows_tanh(float x)
{
    return 1.0f - 2.0f / (rows_exp(2.0f * x) + 1.0f);
}

/* ---- Layer norm -------------------------------------------------------------------------------
 */

static void rows_norm(float *restrict out, float *mean, float *scale, const float *restrict x,
                      const float *restrict weight, const float *restrict bias, int channels)
{
    float sum = 0, square = 0;
#pragma omp simd reduction(+ : sum)
    for (int c = 0; c < channels; c++)
        sum += x[c];
    const float middle = sum / (float)channels;
#pragma omp simd reduction(+ : square)
    for (int c = 0; c < channels; c++)
        square += (x[c] - middle) * (x[c] - middle);
    const float factor = 1.0f / sqrtf(square / (float)channels + 1e-5f);
    for (int c = 0; c < channels; c++)
        out[c] = (x[c] - middle) * factor * weight[c] + bias[c];
    *mean = middle;
    *scale = factor;
}

/* With n = (x - mean) scale and g = dout weight: dx = scale (g - mean(g) - n mean(g n)). */
static void rows_norm_back(float *restrict dx, const float *restrict dout, const float *restrict x,
                           float mean, float scale, const float *restrict weight, int channels)
{
    float sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
    for (int c = 0; c < channels; c++) {
        const float g = dout[c] * weight[c];
        sum += g;
        product += g * (x[c] - mean) * scale;
    }
    sum /= (float)channels;
    product /= (float)channels;
    for (int c = 0; c < channels; c++)
        dx[c] += scale * (dout[c] * weight[c] - sum - (x[c] - mean) * scale * product);
}

static void rows_norm_collect(float *restrict dweight, float *restrict dbias,
                              const float *restrict dout, const float *restrict x, float mean,
                              float scale, int channels)
{
    for (int c = 0; c < channels; c++) {
        dbias[c] += dout[c];
        dweight[c] += dout[c] * (x[c] - mean) * scale;
    }
}

/* ---- GELU -------------------------------------------------------------------------------------
 */

static const float rows_root = 0.7978845608f; /* sqrt(2 / pi) */

static void rows_gelu(float *restrict out, const float *restrict x, int width)
{
    for (int c = 0; c < width; c++) {
        const float v = x[c];
        out[c] = 0.5f * v * (1.0f + rows_tanh(rows_root * (v + 0.044715f * v * v * v)));
    }
}

static void rows_gelu_back(float *restrict dout, const float *restrict x, int width)
{
    for (int c = 0; c < width; c++) {
        const float v = x[c];
        const float t = rows_tanh(rows_root * (v + 0.044715f * v * v * v));
        const float inner = rows_root * (1.0f + 3.0f * 0.044715f * v * v);
        dout[c] *= 0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * inner;
    }
}

/* ---- Softmax ----------------------------------------------------------------------------------
 */

/* In lanes, which are compared at once. */
static float rows_most(const float *row, int width)
{
    enum { LANES = 16 };
    float lanes[LANES], most = row[0];
    for (int k = 0; k < LANES; k++)
        lanes[k] = most;
    int v = 0;
    for (; v + LANES <= width; v += LANES)
        for (int k = 0; k < LANES; k++)
            lanes[k] = row[v + k] > lanes[k] ? row[v + k] : lanes[k];
    for (; v < width; v++)
        most = row[v] > most ? row[v] : most;
    for (int k = 0; k < LANES; k++)
        most = lanes[k] > most ? lanes[k] : most;
    return most;
}

static double rows_softmax(float *row, int width, int target, float slope)
{
    const float most = rows_most(row, width);
    float sum = 0;
    const double loss = (double)most - (double)row[target];
#pragma omp simd reduction(+ : sum)
    for (int v = 0; v < width; v++) {
        row[v] = rows_exp(row[v] - most);
        sum += row[v];
    }
    const float share = (slope != 0 ? slope : 1.0f) / sum;
    for (int v = 0; v < width; v++)
        row[v] *= share;
    row[target] -= slope;
    return loss + log((double)sum);
}

static void rows_softmax_back(float *restrict slopes, const float *restrict p, int width)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int s = 0; s < width; s++)
        sum += p[s] * slopes[s];
    for (int s = 0; s < width; s++)
        slopes[s] = p[s] * (slopes[s] - sum);
}

static void rows_add(float *restrict out, const float *restrict x, int width)
{
    for (int c = 0; c < width; c++)
        out[c] += x[c];
}

#define ROWS_TEXT_OF(name) #name
#define ROWS_TEXT(name) ROWS_TEXT_OF(name)

extern const struct gpt_rows GPT_ROWS;
const struct gpt_rows GPT_ROWS = {
    .name = ROWS_TEXT(GPT_ROWS),
    .norm = rows_norm,
    .norm_back = rows_norm_back,
    .norm_collect = rows_norm_collect,
    .gelu = rows_gelu,
    .gelu_back = rows_gelu_back,
    .softmax = rows_softmax,
    .softmax_back = rows_softmax_back,
    .add = rows_add,
};
