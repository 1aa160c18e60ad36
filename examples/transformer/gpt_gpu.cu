/* The transformer's kernels for GPUs (gpt_gpu.h says what each computes), one source for float32
 * and bfloat16 (gpt_element.cuh). Read next: gpt_more.cu. Not yet run on a GPU. */
#include "examples/transformer/gpt_element.cuh"

/* ---- Layer norm -------------------------------------------------------------------------------
 */

template <class T> GPT_DEVICE void gpt_norm(const gpt_gpu_norm_args &a)
{
    const int c = a.channels;
    const uint64_t row = (uint64_t)blockIdx.x * (uint64_t)c;
    const T *x = (const T *)a.x + row, *y = a.y ? (const T *)a.y + row : nullptr;
    const T *weight = (const T *)a.weight, *bias = (const T *)a.bias;
    T *sum = a.sum ? (T *)a.sum + row : nullptr, *out = (T *)a.out + row;
    float total = 0, square = 0;
    for (int i = (int)threadIdx.x; i < c; i += (int)blockDim.x) {
        float v = gpt_load(&x[i]) + (y ? gpt_load(&y[i]) : 0.0f);
        if (sum) {
            gpt_store(&sum[i], v);
            v = gpt_load(&sum[i]); /* what the backward pass will see */
        }
        total += v;
    }
    const T *values = sum ? sum : x; /* each thread reads again what it wrote itself */
    const float mean = gpt_block<false>(total) / (float)c;
    for (int i = (int)threadIdx.x; i < c; i += (int)blockDim.x) {
        const float d = gpt_load(&values[i]) - mean;
        square += d * d;
    }
    const float scale = 1.0f / sqrtf(gpt_block<false>(square) / (float)c + 1e-5f);
    for (int i = (int)threadIdx.x; i < c; i += (int)blockDim.x)
        gpt_store(&out[i], (gpt_load(&values[i]) - mean) * scale * gpt_load(&weight[i]) +
                               gpt_load(&bias[i]));
    if (threadIdx.x == 0) {
        a.mean[blockIdx.x] = mean;
        a.scale[blockIdx.x] = scale;
    }
}

template <class T> GPT_DEVICE void gpt_norm_back(const gpt_gpu_norm_back_args &a)
{
    const int c = a.channels;
    const uint64_t row = (uint64_t)blockIdx.x * (uint64_t)c;
    const T *dout = (const T *)a.dout + row, *x = (const T *)a.x + row;
    const T *weight = (const T *)a.weight;
    T *dx = (T *)a.dx + row;
    const float mean = a.mean[blockIdx.x], scale = a.scale[blockIdx.x];
    float sum = 0, product = 0;
    for (int i = (int)threadIdx.x; i < c; i += (int)blockDim.x) {
        const float g = gpt_load(&dout[i]) * gpt_load(&weight[i]);
        sum += g;
        product += g * (gpt_load(&x[i]) - mean) * scale;
    }
    sum = gpt_block<false>(sum) / (float)c;
    product = gpt_block<false>(product) / (float)c;
    for (int i = (int)threadIdx.x; i < c; i += (int)blockDim.x) {
        const float g = gpt_load(&dout[i]) * gpt_load(&weight[i]);
        const float n = (gpt_load(&x[i]) - mean) * scale;
        gpt_store(&dx[i], gpt_load(&dx[i]) + scale * (g - sum - n * product));
    }
}

template <class T> GPT_DEVICE void gpt_columns(const gpt_gpu_columns_args &a)
{
    const int groups = (a.channels + (int)blockDim.x - 1) / (int)blockDim.x;
    const int column = (int)blockIdx.x % groups * (int)blockDim.x + (int)threadIdx.x;
    const int slice = (int)blockIdx.x / groups;
    const int first = (int)((int64_t)a.rows * slice / GPT_GPU_SLICES);
    const int end = (int)((int64_t)a.rows * (slice + 1) / GPT_GPU_SLICES);
    if (column >= a.channels)
        return;
    float bias = 0, weight = 0;
    for (int r = first; r < end; r++) {
        const uint64_t at = (uint64_t)r * (uint64_t)a.channels + (uint64_t)column;
        const float d = gpt_load((const T *)a.dout + at);
        bias += d;
        if (a.weights)
            weight += d * (gpt_load((const T *)a.x + at) - a.mean[r]) * a.scale[r];
    }
    a.biases[slice * a.channels + column] = bias;
    if (a.weights)
        a.weights[slice * a.channels + column] = weight;
}

GPT_KERNEL(gpt_gpu_columns_end, gpt_gpu_columns_end_args, a)
{
    const int column = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (column >= a.channels)
        return;
    float bias = 0, weight = 0;
    for (int s = 0; s < GPT_GPU_SLICES; s++) {
        bias += a.biases[s * a.channels + column];
        if (a.dweight)
            weight += a.weights[s * a.channels + column];
    }
    a.dbias[column] += bias;
    if (a.dweight)
        a.dweight[column] += weight;
}

/* ---- GELU -------------------------------------------------------------------------------------
 */

GPT_DEVICE float gpt_inner(float v)
{
    return 0.7978845608f * (v + 0.044715f * v * v * v); /* sqrt(2 / pi) */
}

template <class T> GPT_DEVICE void gpt_gelu(const gpt_gpu_gelu_args &a, bool back)
{
    const uint64_t threads = (uint64_t)gridDim.x * blockDim.x;
    T *out = (T *)a.out;
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < a.count; i += threads) {
        const float v = gpt_load((const T *)a.x + i), t = tanhf(gpt_inner(v));
        if (!back) {
            gpt_store(&out[i], 0.5f * v * (1.0f + t));
            continue;
        }
        const float slope = 0.7978845608f * (1.0f + 3.0f * 0.044715f * v * v);
        gpt_store(&out[i],
                  gpt_load(&out[i]) * (0.5f * (1.0f + t) + 0.5f * v * (1.0f - t * t) * slope));
    }
}

/* ---- Classifier -------------------------------------------------------------------------------
 */

/* One pass finds the largest, one the sum of exponentials, one writes: softmax, loss and slopes
 * without a row of probabilities in between. */
template <class T> GPT_DEVICE void gpt_classify(const gpt_gpu_classify_args &a)
{
    T *row = (T *)a.logits + (uint64_t)blockIdx.x * (uint64_t)a.stride;
    const int target = a.targets[blockIdx.x];
    float most = -INFINITY, sum = 0;
    for (int v = (int)threadIdx.x; v < a.width; v += (int)blockDim.x)
        most = fmaxf(most, gpt_load(&row[v]));
    most = gpt_block<true>(most);
    for (int v = (int)threadIdx.x; v < a.width; v += (int)blockDim.x)
        sum += expf(gpt_load(&row[v]) - most);
    sum = gpt_block<false>(sum);
    if (threadIdx.x == 0)
        a.losses[blockIdx.x] = most - gpt_load(&row[target]) + logf(sum);
    __syncthreads(); /* the target's logit is read above, and written below */
    for (int v = (int)threadIdx.x; v < a.width; v += (int)blockDim.x)
        gpt_store(&row[v],
                  a.slope * (expf(gpt_load(&row[v]) - most) / sum - (v == target ? 1.0f : 0.0f)));
}

/* ---- Attention --------------------------------------------------------------------------------
 */

/* Where a block's tile is: a thread has, or two of them share, query or key number `place`. */
struct gpt_place {
    int place;       /* in the sequence; may be past its end */
    uint64_t narrow; /* of the sequence's first row and this head in [batch, length, heads, size] */
    uint64_t wide;   /* the same in [batch, length, 3, heads, size] */
    uint64_t logs;   /* in [batch, heads, length] */
    int first;       /* of the tile */
    int stride;      /* elements between rows of the narrow one */
    float scale;
};

template <int D> GPT_DEVICE gpt_place gpt_where(const gpt_gpu_attend_args &a, int own)
{
    const int tiles = (a.length + GPT_GPU_TILE - 1) / GPT_GPU_TILE;
    const int tile = (int)blockIdx.x % tiles, head = (int)blockIdx.x / tiles % a.heads;
    const int sequence = (int)blockIdx.x / tiles / a.heads;
    gpt_place p;
    p.first = tile * GPT_GPU_TILE;
    p.place = p.first + own;
    p.stride = a.heads * D;
    const uint64_t row = (uint64_t)sequence * (uint64_t)a.length;
    p.narrow = row * (uint64_t)p.stride + (uint64_t)(head * D);
    p.wide = row * 3 * (uint64_t)p.stride + (uint64_t)(head * D);
    p.logs = ((uint64_t)sequence * (uint64_t)a.heads + (uint64_t)head) * (uint64_t)a.length;
    p.scale = 1.0f / sqrtf((float)D);
    return p;
}

/* Rows first .. first+TILE-1 of a head, of two kinds: keys and values, or queries and slopes. The
 * same place of both is in different banks of shared memory. */
template <int D> struct gpt_rows {
    float of[2][GPT_GPU_TILE * D + 4];
};

/* Into shared memory, by all threads; past the end: zeros. */
template <class T, int D>
GPT_DEVICE void gpt_tile(float *tile, const T *from, int stride, int first, int length)
{
    for (int i = (int)threadIdx.x; i < GPT_GPU_TILE * D; i += (int)blockDim.x) {
        const int r = i / D, d = i % D;
        tile[i] = first + r < length
                      ? gpt_load(from + (uint64_t)(first + r) * (uint64_t)stride + (uint64_t)d)
                      : 0.0f;
    }
}

/* Keys and values of the tile that begins at `first`; returns how many of them the thread's query
 * sees. `q`: of the head's first row. */
template <class T, int D>
GPT_DEVICE int gpt_keys(gpt_rows<D> *rows, const T *q, const gpt_place &p, int first, int length)
{
    const int seen = p.place - first + 1;
    __syncthreads();
    gpt_tile<T, D>(rows->of[0], q + p.stride, 3 * p.stride, first, length);
    gpt_tile<T, D>(rows->of[1], q + 2 * p.stride, 3 * p.stride, first, length);
    __syncthreads();
    return seen < GPT_GPU_TILE ? seen : GPT_GPU_TILE;
}

template <class T, int D> GPT_DEVICE void gpt_attend(const gpt_gpu_attend_args &a)
{
    __shared__ gpt_rows<D> rows;
    const gpt_place p = gpt_where<D>(a, (int)threadIdx.x);
    const T *q = (const T *)a.qkv + p.wide;
    const bool mine = p.place < a.length;
    float query[D], sum[D], most = -INFINITY, total = 0;
    for (int d = 0; d < D; d++) {
        sum[d] = 0;
        query[d] =
            mine ? gpt_load(q + (uint64_t)p.place * 3 * (uint64_t)p.stride + (uint64_t)d) * p.scale
                 : 0.0f;
    }
    for (int first = 0; first <= p.first; first += GPT_GPU_TILE) {
        const int end = gpt_keys<T, D>(&rows, q, p, first, a.length);
        for (int k = 0; mine && k < end; k++) {
            const float *key = &rows.of[0][k * D], *value = &rows.of[1][k * D];
            float score = 0;
            for (int d = 0; d < D; d++)
                score += query[d] * key[d];
            const float larger = score > most ? score : most;
            const float before = expf(most - larger), now = expf(score - larger);
            most = larger;
            total = total * before + now;
            for (int d = 0; d < D; d++)
                sum[d] = sum[d] * before + now * value[d];
        }
    }
    if (!mine)
        return;
    T *out = (T *)a.out + p.narrow + (uint64_t)p.place * (uint64_t)p.stride;
    for (int d = 0; d < D; d++)
        gpt_store(&out[d], sum[d] / total);
    a.logs[p.logs + (uint64_t)p.place] = most + logf(total);
}

template <class T, int D> GPT_DEVICE void gpt_attend_delta(const gpt_gpu_attend_args &a)
{
    const gpt_place p = gpt_where<D>(a, (int)threadIdx.x);
    if (p.place >= a.length)
        return;
    const uint64_t at = p.narrow + (uint64_t)p.place * (uint64_t)p.stride;
    float delta = 0;
    for (int d = 0; d < D; d++)
        delta += gpt_load((const T *)a.dout + at + (uint64_t)d) *
                 gpt_load((const T *)a.out + at + (uint64_t)d);
    a.deltas[p.logs + (uint64_t)p.place] = delta;
}

/* Two threads share a query, or a key, so that what they keep of it fits their registers. Of a pair
 * of rows each multiplies one with its own, and tells the other the product. */
GPT_DEVICE int gpt_part(void)
{
    return (int)threadIdx.x % 2;
}

/* Of all channels each has half: element e is channel .. */
template <int D> GPT_DEVICE int gpt_half(int part, int e)
{
    const int run = D < 8 ? D / 2 : 4;
    return e / run * 2 * run + part * run + e % run;
}

template <class T, int D> GPT_DEVICE void gpt_attend_queries(const gpt_gpu_attend_args &a)
{
    __shared__ gpt_rows<D> rows;
    const int part = gpt_part();
    const gpt_place p = gpt_where<D>(a, (int)threadIdx.x / 2);
    const T *q = (const T *)a.qkv + p.wide;
    const bool mine = p.place < a.length;
    const uint64_t row = (uint64_t)(mine ? p.place : 0);
    const float log = a.logs[p.logs + row], delta = a.deltas[p.logs + row];
    const T *from = part ? (const T *)a.dout + p.narrow + row * (uint64_t)p.stride
                         : q + row * 3 * (uint64_t)p.stride;
    const float scale = part ? 1.0f : p.scale;
    float own[D], sum[D / 2]; /* the slope, or the query */
    for (int d = 0; d < D; d++)
        own[d] = gpt_load(from + d) * scale;
    for (int e = 0; e < D / 2; e++)
        sum[e] = 0;
    for (int first = 0; first <= p.first; first += GPT_GPU_TILE) {
        const int seen = gpt_keys<T, D>(&rows, q, p, first, a.length);
        const int end = a.length - first < GPT_GPU_TILE ? a.length - first : GPT_GPU_TILE;
        for (int k = 0; k < end; k++) { /* all threads, for the exchange */
            const float *at = &rows.of[part][k * D];
            float product = 0;
            for (int d = 0; d < D; d++)
                product += own[d] * at[d];
            const float other = __shfl_xor_sync(0xffffffffu, product, 1);
            if (!mine || k >= seen)
                continue;
            const float score = part ? other : product, along = part ? product : other;
            const float ds = expf(score - log) * (along - delta) * p.scale;
            for (int e = 0; e < D / 2; e++)
                sum[e] += ds * rows.of[0][k * D + gpt_half<D>(part, e)];
        }
    }
    T *out = (T *)a.dqkv + p.wide + row * 3 * (uint64_t)p.stride;
    for (int e = 0; mine && e < D / 2; e++)
        gpt_store(&out[gpt_half<D>(part, e)], sum[e]);
}

/* Queries from the tile of the keys on: earlier ones do not see them. */
template <class T, int D> GPT_DEVICE void gpt_attend_keys(const gpt_gpu_attend_args &a)
{
    __shared__ gpt_rows<D> rows;
    __shared__ float logs[GPT_GPU_TILE], deltas[GPT_GPU_TILE];
    const int part = gpt_part();
    const gpt_place p = gpt_where<D>(a, (int)threadIdx.x / 2);
    const T *q = (const T *)a.qkv + p.wide;
    const bool mine = p.place < a.length;
    const uint64_t row = (uint64_t)(mine ? p.place : 0);
    const uint64_t at_own =
        row * 3 * (uint64_t)p.stride + (uint64_t)(1 + part) * (uint64_t)p.stride;
    float own[D], sum[D]; /* the key, or the value */
    for (int d = 0; d < D; d++) {
        own[d] = gpt_load(q + at_own + d);
        sum[d] = 0;
    }
    for (int first = p.first; first < a.length; first += GPT_GPU_TILE) {
        const int end = a.length - first < GPT_GPU_TILE ? a.length - first : GPT_GPU_TILE;
        __syncthreads();
        gpt_tile<T, D>(rows.of[0], q, 3 * p.stride, first, a.length);
        gpt_tile<T, D>(rows.of[1], (const T *)a.dout + p.narrow, p.stride, first, a.length);
        if ((int)threadIdx.x < end) {
            logs[threadIdx.x] = a.logs[p.logs + (uint64_t)first + threadIdx.x];
            deltas[threadIdx.x] = a.deltas[p.logs + (uint64_t)first + threadIdx.x];
        }
        __syncthreads();
        for (int r = 0; r < end; r++) { /* all threads, for the exchange */
            const float *at = &rows.of[part][r * D];
            float product = 0;
            for (int d = 0; d < D; d++)
                product += at[d] * own[d];
            const float other = __shfl_xor_sync(0xffffffffu, product, 1);
            if (!mine || first + r < p.place)
                continue;
            const float score = part ? other : product, along = part ? product : other;
            const float share = expf(score * p.scale - logs[r]);
            const float ds = share * (along - deltas[r]) * p.scale;
            const float factor = part ? share : ds;
            for (int d = 0; d < D; d++)
                sum[d] += factor * at[d];
        }
    }
    T *out = (T *)a.dqkv + p.wide + at_own;
    for (int d = 0; mine && d < D; d++)
        gpt_store(&out[d], sum[d]);
}

/* ---- Each for its types ------------------------------------------------------------------------
 */

GPT_TYPES(gpt_gpu_norm, gpt_gpu_norm_args, gpt_norm<element>(a))
GPT_TYPES(gpt_gpu_norm_back, gpt_gpu_norm_back_args, gpt_norm_back<element>(a))
GPT_TYPES(gpt_gpu_columns, gpt_gpu_columns_args, gpt_columns<element>(a))
GPT_TYPES(gpt_gpu_gelu, gpt_gpu_gelu_args, gpt_gelu<element>(a, false))
GPT_TYPES(gpt_gpu_gelu_back, gpt_gpu_gelu_args, gpt_gelu<element>(a, true))
GPT_TYPES(gpt_gpu_classify, gpt_gpu_classify_args, gpt_classify<element>(a))
#define GPT_SIZE(name, function, size) \
    GPT_TYPES(name##_##size, gpt_gpu_attend_args, function<element, size>(a))
#define GPT_SIZES(name, function) \
    GPT_SIZE(name, function, 4)   \
    GPT_SIZE(name, function, 16)  \
    GPT_SIZE(name, function, 32)  \
    GPT_SIZE(name, function, 64)
GPT_SIZES(gpt_gpu_attend, gpt_attend)
GPT_SIZES(gpt_gpu_attend_delta, gpt_attend_delta)
GPT_SIZES(gpt_gpu_attend_queries, gpt_attend_queries)
GPT_SIZES(gpt_gpu_attend_keys, gpt_attend_keys)
