/* What the transformer's kernels for GPUs share (gpt_gpu.cu, gpt_more.cu): the language, the two
 * types of elements. CUDA C++ for nvcc; for the simulated GPU the build defines GPT_DEVICE and
 * GPT_KERNEL instead. Values are widened when they are loaded, rounded when they are stored. */
#ifndef EXAMPLES_TRANSFORMER_GPT_ELEMENT_CUH
#define EXAMPLES_TRANSFORMER_GPT_ELEMENT_CUH

#include "examples/transformer/gpt_gpu.h"

#include <math.h>

#ifdef __CUDACC__
#define GPT_DEVICE static __device__ __forceinline__
#define GPT_KERNEL(name, arguments, a) \
    extern "C" __global__ void name(const __grid_constant__ arguments a)
#endif

struct gpt_bfloat16 {
    uint16_t bits;
};

GPT_DEVICE float gpt_load(const float *at)
{
    return *at;
}
GPT_DEVICE float gpt_load(const gpt_bfloat16 *at)
{
    union {
        uint32_t bits;
        float value;
    } word;
    word.bits = (uint32_t)at->bits << 16;
    return word.value;
}
GPT_DEVICE void gpt_store(float *at, float value)
{
    *at = value;
}
/* To the nearest, ties to even; a NaN stays one. */
GPT_DEVICE void gpt_store(gpt_bfloat16 *at, float value)
{
    union {
        uint32_t bits;
        float value;
    } word;
    word.value = value;
    const uint32_t rounded = (word.bits + 0x7fffu + (word.bits >> 16 & 1)) >> 16;
    const bool nan = (word.bits & 0x7fffffffu) > 0x7f800000u;
    at->bits = (uint16_t)(nan ? word.bits >> 16 | 0x40 : rounded);
}

/* ---- Sums over a block ------------------------------------------------------------------------
 */

/* The sum, or the largest, of all threads' values, for all of them; in an order that depends on the
 * number of threads only, a multiple of 32. */
template <bool LARGEST> GPT_DEVICE float gpt_fold(float one, float other)
{
    return LARGEST ? (one > other ? one : other) : one + other;
}
template <bool LARGEST> GPT_DEVICE float gpt_block(float value)
{
    __shared__ float warps[32];
    const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, count = blockDim.x / 32;
    for (int step = 16; step > 0; step /= 2)
        value = gpt_fold<LARGEST>(value, __shfl_xor_sync(0xffffffffu, value, step));
    __syncthreads(); /* the words may still be read from before */
    if (lane == 0)
        warps[warp] = value;
    __syncthreads();
    float all = warps[0];
    for (unsigned w = 1; w < count; w++)
        all = gpt_fold<LARGEST>(all, warps[w]);
    return all;
}

/* A kernel for each type. */
#define GPT_TYPES(name, arguments, ...)       \
    GPT_KERNEL(name##_float32, arguments, a)  \
    {                                         \
        using element = float;                \
        __VA_ARGS__;                          \
    }                                         \
    GPT_KERNEL(name##_bfloat16, arguments, a) \
    {                                         \
        using element = gpt_bfloat16;         \
        __VA_ARGS__;                          \
    }

#endif
