/* The transformer's other kernels for GPUs (gpt_gpu.h): embeddings, and matrix products for where
 * there is no cuBLASLt. A thread of a product has a strip of one row; no shared memory, no barrier:
 * short, right, and quick on the simulated GPU. Not yet run on a GPU. */
#include "examples/transformer/gpt_element.cuh"

/* ---- Embeddings -------------------------------------------------------------------------------
 */

template <class T> GPT_DEVICE void gpt_embed(const gpt_gpu_embed_args &a)
{
    const uint64_t c = (uint64_t)a.channels, all = (uint64_t)a.rows * c;
    const uint64_t threads = (uint64_t)gridDim.x * blockDim.x;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < all; i += threads) {
        const uint64_t row = i / c, k = i % c;
        const float token = gpt_load((const T *)a.wte + a.tokens[row] * c + k);
        const float place = gpt_load((const T *)a.wpe + row % (uint64_t)a.length * c + k);
        gpt_store((T *)a.x + i, token + place);
    }
}

template <class T> GPT_DEVICE void gpt_embed_places(const gpt_gpu_embed_args &a)
{
    const uint64_t one = (uint64_t)a.length * (uint64_t)a.channels;
    const uint64_t all = (uint64_t)a.rows * (uint64_t)a.channels;
    const uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= one)
        return;
    float sum = a.dwpe[i];
    for (uint64_t at = i; at < all; at += one) /* the same place of each sequence */
        sum += gpt_load((const T *)a.x + at);
    a.dwpe[i] = sum;
}

template <class T> GPT_DEVICE void gpt_embed_tokens(const gpt_gpu_embed_args &a)
{
    const uint64_t c = (uint64_t)a.channels;
    const uint32_t first = a.starts[blockIdx.x], end = a.starts[blockIdx.x + 1];
    float *slope = a.dwte + a.tokens[a.order[first]] * c;
    for (uint64_t k = threadIdx.x; k < c; k += blockDim.x) {
        float sum = slope[k];
        for (uint32_t i = first; i < end; i++)
            sum += gpt_load((const T *)a.x + a.order[i] * c + k);
        slope[k] = sum;
    }
}

/* ---- Shares of attention ------------------------------------------------------------------------
 */

template <class T> GPT_DEVICE void gpt_shares(const gpt_gpu_shares_args &a)
{
    const int query = (int)blockIdx.x % a.length;
    const uint64_t at = (uint64_t)blockIdx.x * (uint64_t)a.stride;
    const float *scores = a.scores + at;
    T *shares = (T *)a.shares + at;
    float most = -INFINITY, sum = 0;
    for (int k = (int)threadIdx.x; k <= query; k += (int)blockDim.x)
        most = fmaxf(most, scores[k]);
    most = gpt_block<true>(most);
    for (int k = (int)threadIdx.x; k <= query; k += (int)blockDim.x)
        sum += expf((scores[k] - most) * a.scale);
    sum = gpt_block<false>(sum);
    for (int k = (int)threadIdx.x; k < a.length; k += (int)blockDim.x)
        gpt_store(&shares[k], k <= query ? expf((scores[k] - most) * a.scale) / sum : 0.0f);
}

template <class T> GPT_DEVICE void gpt_share_slopes(const gpt_gpu_shares_args &a)
{
    const int query = (int)blockIdx.x % a.length;
    const uint64_t at = (uint64_t)blockIdx.x * (uint64_t)a.stride;
    const float *slopes = a.scores + at, delta = a.deltas[blockIdx.x];
    T *shares = (T *)a.shares + at;
    for (int k = (int)threadIdx.x; k <= query; k += (int)blockDim.x)
        gpt_store(&shares[k], gpt_load(&shares[k]) * (slopes[k] - delta) * a.scale);
}

/* ---- Products ---------------------------------------------------------------------------------
 */

template <class IN, bool TRANSPOSED>
GPT_DEVICE void gpt_strip(const gpt_gpu_product_args &a, int64_t row, int64_t first, int columns,
                          float (&sum)[GPT_GPU_STRIP])
{
    const int64_t which = blockIdx.x / a.blocks;
    const IN *left = (const IN *)a.a + which * a.stride_a + (a.transpose_a ? row : row * a.lda);
    const int64_t step = a.transpose_a ? a.lda : 1;
    const IN *right = (const IN *)a.b + which * a.stride_b + (TRANSPOSED ? first * a.ldb : first);
    if (columns == GPT_GPU_STRIP) {
        for (int64_t k = 0; k < a.k; k++) {
            const float value = gpt_load(left + k * step);
            for (int j = 0; j < GPT_GPU_STRIP; j++)
                sum[j] += value * gpt_load(right + (TRANSPOSED ? j * (int64_t)a.ldb + k
                                                               : k * (int64_t)a.ldb + j));
        }
        return;
    }
    for (int64_t k = 0; k < a.k; k++) {
        const float value = gpt_load(left + k * step);
        for (int j = 0; j < columns; j++)
            sum[j] += value * gpt_load(right + (TRANSPOSED ? j * (int64_t)a.ldb + k
                                                           : k * (int64_t)a.ldb + j));
    }
}

template <class IN, class OUT> GPT_DEVICE void gpt_product(const gpt_gpu_product_args &a)
{
    const int64_t strips = (a.n + GPT_GPU_STRIP - 1) / GPT_GPU_STRIP;
    const int64_t strip = (int64_t)(blockIdx.x % a.blocks) * blockDim.x + threadIdx.x;
    const int64_t row = strip / strips, first = strip % strips * GPT_GPU_STRIP;
    if (row >= a.m)
        return;
    const int columns = a.n - first < GPT_GPU_STRIP ? (int)(a.n - first) : GPT_GPU_STRIP;
    float sum[GPT_GPU_STRIP];
    for (int j = 0; j < GPT_GPU_STRIP; j++)
        sum[j] = a.bias && j < columns ? gpt_load((const IN *)a.bias + first + j) : 0.0f;
    if (a.transpose_b)
        gpt_strip<IN, true>(a, row, first, columns, sum);
    else
        gpt_strip<IN, false>(a, row, first, columns, sum);
    OUT *out = (OUT *)a.c + blockIdx.x / a.blocks * a.stride_c + row * a.ldc + first;
    for (int j = 0; j < GPT_GPU_STRIP; j++)
        if (j < columns)
            gpt_store(&out[j], a.add ? gpt_load(&out[j]) + sum[j] : sum[j]);
}

/* ---- Each for its types ------------------------------------------------------------------------
 */

GPT_TYPES(gpt_gpu_embed, gpt_gpu_embed_args, gpt_embed<element>(a))
GPT_TYPES(gpt_gpu_embed_places, gpt_gpu_embed_args, gpt_embed_places<element>(a))
GPT_TYPES(gpt_gpu_embed_tokens, gpt_gpu_embed_args, gpt_embed_tokens<element>(a))
GPT_TYPES(gpt_gpu_shares, gpt_gpu_shares_args, gpt_shares<element>(a))
GPT_TYPES(gpt_gpu_share_slopes, gpt_gpu_shares_args, gpt_share_slopes<element>(a))
GPT_KERNEL(gpt_gpu_product_wide, gpt_gpu_product_args, a)
{
    gpt_product<float, float>(a);
}
GPT_KERNEL(gpt_gpu_product_thin, gpt_gpu_product_args, a)
{
    gpt_product<gpt_bfloat16, gpt_bfloat16>(a);
}
GPT_KERNEL(gpt_gpu_product_mixed, gpt_gpu_product_args, a)
{
    gpt_product<gpt_bfloat16, float>(a);
}
