/* Training on gradients in device memory: scaling, the global norm, optimizers (kernel_args.h;
 * launched by ddp/ddp_device.c). Each computes an element, or a group of 16, as its twin on the
 * host does (ddp/ddp_layout.c, ddp_norm.c, optimizer.c), so that training in device memory has the
 * bits of training in host memory; sums over groups are in fixed point, where order does not
 * matter. Not yet run on a GPU. */
#include "device/cuda/element.cuh"

#include <math.h>

/* Element i of `data` as an accumulator, and back. */
template <int TYPE>
TTI_DEVICE typename tti_element<TYPE>::acc tti_train_load(const void *data, uint64_t i)
{
    typedef tti_element<TYPE> element;
    return element::widen(((const typename element::word *)data)[i]);
}
template <int TYPE>
TTI_DEVICE void tti_train_store(void *data, uint64_t i, typename tti_element<TYPE>::acc value)
{
    typedef tti_element<TYPE> element;
    ((typename element::word *)data)[i] = element::narrow(value);
}

/* ---- Scaling ----------------------------------------------------------------------------------
 */

template <int TYPE> TTI_DEVICE void tti_train_scale(const tti_train_scale_args &a)
{
    typedef typename tti_element<TYPE>::acc acc;
    const acc factor = (acc)a.factor, divisor = (acc)a.divisor;
    for (uint64_t i = tti_thread_of_grid(); i < a.count; i += tti_threads_of_grid())
        tti_train_store<TYPE>(a.data, i, tti_train_load<TYPE>(a.data, i) * factor / divisor);
}

TTI_KERNEL(tti_kernel_train_scale, tti_train_scale_args, a)
{
    if (a.type == TUTTI_FLOAT32)
        tti_train_scale<TUTTI_FLOAT32>(a);
    else if (a.type == TUTTI_FLOAT64)
        tti_train_scale<TUTTI_FLOAT64>(a);
    else if (a.type == TUTTI_FLOAT16)
        tti_train_scale<TUTTI_FLOAT16>(a);
    else
        tti_train_scale<TUTTI_BFLOAT16>(a);
}

/* ---- The norm ---------------------------------------------------------------------------------
 */

TTI_DEVICE void tti_train_add(tti_train_norm_part *sum, uint64_t low, uint64_t high)
{
    sum->low += low;
    sum->high += high + (sum->low < low);
}

template <int TYPE>
TTI_DEVICE void tti_train_group(const tti_train_norm_args &a, uint64_t from,
                                tti_train_norm_part *sum)
{
    const uint64_t end =
        a.count - from < TTI_TRAIN_GROUP ? a.count : from + (uint64_t)TTI_TRAIN_GROUP;
    double group = 0;
    for (uint64_t i = from; i < end; i++) {
        const double g = (double)tti_train_load<TYPE>(a.data, i);
        const double magnitude = fabs(g), v = g * a.scale;
        sum->largest = magnitude > sum->largest ? magnitude : sum->largest;
        sum->odd += g * 0.0;
        group += v * v;
    }
    if (a.squares)
        tti_train_add(sum, (uint64_t)(group * 4503599627370496.0), 0); /* 2^52 */
}

/* The block's threads together: thread 0 writes. */
TTI_DEVICE void tti_train_gather(tti_train_norm_part *part, tti_train_norm_part sum)
{
    __shared__ tti_train_norm_part warps[32];
    const uint32_t all = 0xffffffffu, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int step = 16; step > 0; step /= 2) {
        const double largest = __shfl_xor_sync(all, sum.largest, step);
        sum.largest = largest > sum.largest ? largest : sum.largest;
        sum.odd += __shfl_xor_sync(all, sum.odd, step);
        const uint64_t low = __shfl_xor_sync(all, sum.low, step);
        tti_train_add(&sum, low, __shfl_xor_sync(all, sum.high, step));
    }
    if (lane == 0)
        warps[warp] = sum;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (uint32_t w = 1; w < blockDim.x / 32; w++) {
        sum.largest = warps[w].largest > sum.largest ? warps[w].largest : sum.largest;
        sum.odd += warps[w].odd;
        tti_train_add(&sum, warps[w].low, warps[w].high);
    }
    *part = sum;
}

template <int TYPE> TTI_DEVICE tti_train_norm_part tti_train_norm(const tti_train_norm_args &a)
{
    tti_train_norm_part sum = {0, 0, 0, 0};
    const uint64_t stride = (uint64_t)tti_threads_of_grid() * TTI_TRAIN_GROUP;
    for (uint64_t i = (uint64_t)tti_thread_of_grid() * TTI_TRAIN_GROUP; i < a.count; i += stride)
        tti_train_group<TYPE>(a, i, &sum);
    return sum;
}

TTI_KERNEL(tti_kernel_train_norm, tti_train_norm_args, a)
{
    tti_train_norm_part sum;
    if (a.type == TUTTI_FLOAT32)
        sum = tti_train_norm<TUTTI_FLOAT32>(a);
    else if (a.type == TUTTI_FLOAT64)
        sum = tti_train_norm<TUTTI_FLOAT64>(a);
    else if (a.type == TUTTI_FLOAT16)
        sum = tti_train_norm<TUTTI_FLOAT16>(a);
    else
        sum = tti_train_norm<TUTTI_BFLOAT16>(a);
    tti_train_gather(&a.parts[blockIdx.x], sum);
}

/* ---- Optimizers -------------------------------------------------------------------------------
 */

/* The parameter after the step; its states are changed. */
TTI_DEVICE float tti_train_step(const tti_train_step_args &a, uint64_t i, float p, float grad)
{
    const tti_train_terms &t = a.terms;
    if (a.kind == TTI_TRAIN_ADAMW) {
        const float g = grad * t.scale;
        const float m = t.beta1 * a.first[i] + t.new1 * g;
        const float v = t.beta2 * a.second[i] + t.new2 * (g * g);
        a.first[i] = m;
        a.second[i] = v;
        return p * t.decay - t.rate * (m / (sqrtf(v) * t.root + t.epsilon));
    }
    const float g = grad * t.scale + t.decay * p;
    if (a.kind == TTI_TRAIN_SGD)
        return p - t.rate * g;
    const float buffer = t.momentum * a.first[i] + t.keep * g;
    a.first[i] = buffer;
    return p - t.rate * (t.nesterov != 0 ? g + t.nesterov * buffer : buffer);
}

template <int TYPE> TTI_DEVICE void tti_train_steps(const tti_train_step_args &a)
{
    for (uint64_t i = tti_thread_of_grid(); i < a.count; i += tti_threads_of_grid()) {
        const float before = a.master ? a.master[i] : tti_train_load<TYPE>(a.param, i);
        const float after = tti_train_step(a, i, before, tti_train_load<TYPE>(a.grad, i));
        if (a.master)
            a.master[i] = after;
        tti_train_store<TYPE>(a.param, i, after);
    }
}

TTI_KERNEL(tti_kernel_train_step, tti_train_step_args, a)
{
    if (a.type == TUTTI_FLOAT32)
        tti_train_steps<TUTTI_FLOAT32>(a);
    else if (a.type == TUTTI_FLOAT16)
        tti_train_steps<TUTTI_FLOAT16>(a);
    else
        tti_train_steps<TUTTI_BFLOAT16>(a);
}
