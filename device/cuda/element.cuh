/* Elements of every type on the device: conversion to the accumulator type and back, the operators,
 * finishing. The same bits as the CPU kernels (device/cpu/kernels.inc) in all cases: conversions
 * are defined on integers, a NaN that arithmetic produces is the positive quiet one without
 * payload, nothing is contracted (nvcc -fmad=false). Next: fold.cuh. */
#ifndef TTI_DEVICE_CUDA_ELEMENT_CUH
#define TTI_DEVICE_CUDA_ELEMENT_CUH

#include "device/cuda/portable.cuh"

/* The same bits as another type. */
template <class To, class From> TTI_DEVICE To tti_cast_bits(From from)
{
    union {
        From from;
        To to;
    } word;
    static_assert(sizeof(From) == sizeof(To), "no bits to spare");
    word.from = from;
    return word.to;
}

TTI_DEVICE uint32_t tti_bits(float value)
{
    return tti_cast_bits<uint32_t>(value);
}

TTI_DEVICE uint64_t tti_bits(double value)
{
    return tti_cast_bits<uint64_t>(value);
}

TTI_DEVICE float tti_float(uint32_t bits)
{
    return tti_cast_bits<float>(bits);
}

TTI_DEVICE double tti_double(uint64_t bits)
{
    return tti_cast_bits<double>(bits);
}

/* ---- Low precision: see kernels.inc for how the formats relate to float32's bits ------------- */

TTI_DEVICE constexpr uint32_t tti_exponent(uint32_t biased)
{
    return biased << 23;
}

TTI_DEVICE float tti_widen_f16(uint32_t half)
{
    const uint32_t magnitude = half & 0x7fff;
    const uint32_t normal = (magnitude << 13) + tti_exponent(112);
    const float subnormal = tti_float(normal + tti_exponent(1)) - 6.103515625e-05f; /* 2^-14 */
    uint32_t bits = magnitude < 0x0400 ? tti_bits(subnormal) : normal;
    bits = magnitude >= 0x7c00 ? normal + tti_exponent(112) : bits;
    bits = magnitude > 0x7c00 ? bits | 0x00400000 : bits; /* NaN: quiet, payload kept */
    return tti_float(bits | (half & 0x8000) << 16);
}

TTI_DEVICE float tti_widen_e4m3(uint32_t byte)
{
    const uint32_t magnitude = byte & 0x7f;
    const uint32_t normal = (magnitude << 20) + tti_exponent(120);
    const float subnormal = tti_float(normal + tti_exponent(1)) - 0.015625f; /* 2^-6 */
    uint32_t bits = magnitude < 0x08 ? tti_bits(subnormal) : normal;
    bits = magnitude == 0x7f ? 0x7fc00000 : bits;
    return tti_float(bits | (byte & 0x80) << 24);
}

TTI_DEVICE float tti_widen_bf16(uint32_t brain)
{
    return tti_float(brain << 16);
}

TTI_DEVICE float tti_widen_e5m2(uint32_t byte)
{
    return tti_widen_f16(byte << 8); /* float16 with the mantissa cut */
}

TTI_DEVICE uint32_t tti_rounded(uint32_t magnitude, int shift)
{
    return magnitude + ((1u << (shift - 1)) - 1) + ((magnitude >> shift) & 1);
}

TTI_DEVICE uint16_t tti_narrow_f16(float value)
{
    const uint32_t bits = tti_bits(value), magnitude = bits & 0x7fffffff;
    const uint32_t normal = (tti_rounded(magnitude, 13) - tti_exponent(112)) >> 13;
    const uint32_t subnormal = tti_bits(tti_float(magnitude) + 0.5f) - tti_bits(0.5f);
    uint32_t half = magnitude < tti_exponent(113) ? subnormal : normal;
    half = magnitude >= 0x47800000 ? 0x7c00 : half;
    half = magnitude > 0x7f800000 ? 0x7e00 | ((magnitude >> 13) & 0x3ff) : half;
    return (uint16_t)(half | (bits >> 16 & 0x8000));
}

TTI_DEVICE uint16_t tti_narrow_bf16(float value)
{
    const uint32_t bits = tti_bits(value);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    return (uint16_t)(nan ? bits >> 16 | 0x0040 : tti_rounded(bits, 16) >> 16);
}

TTI_DEVICE uint8_t tti_narrow_e4m3(float value)
{
    const uint32_t bits = tti_bits(value), magnitude = bits & 0x7fffffff;
    const uint32_t normal = (tti_rounded(magnitude, 20) - tti_exponent(120)) >> 20;
    const uint32_t subnormal = tti_bits(tti_float(magnitude) + 16384.0f) - tti_bits(16384.0f);
    uint32_t byte = magnitude < tti_exponent(121) ? subnormal : normal;
    byte = magnitude >= 0x43e00000 ? 0x7e : byte; /* saturates */
    byte = magnitude > 0x7f800000 ? 0x7f : byte;
    return (uint8_t)(byte | (bits >> 24 & 0x80));
}

TTI_DEVICE uint8_t tti_narrow_e5m2(float value)
{
    const uint32_t bits = tti_bits(value), magnitude = bits & 0x7fffffff;
    const uint32_t normal = (tti_rounded(magnitude, 21) - tti_exponent(112)) >> 21;
    const uint32_t subnormal = tti_bits(tti_float(magnitude) + 128.0f) - tti_bits(128.0f);
    uint32_t byte = magnitude < tti_exponent(113) ? subnormal : normal;
    byte = magnitude >= 0x47800000 ? 0x7c : byte;
    byte = magnitude > 0x7f800000 ? 0x7e | (magnitude >> 21 & 0x3) : byte;
    return (uint8_t)(byte | (bits >> 24 & 0x80));
}

/* ---- Types ------------------------------------------------------------------------------------ *
 * element<T>::word is what lies in memory, ::acc what is computed with. */

template <int TYPE> struct tti_element;

#define TTI_ELEMENT(type, memory, accumulator, to_acc, to_word) \
    template <> struct tti_element<type> {                      \
        typedef memory word;                                    \
        typedef accumulator acc;                                \
        static const bool low = sizeof(memory) < sizeof(acc);   \
        TTI_MEMBER static acc widen(word w)                     \
        {                                                       \
            return to_acc(w);                                   \
        }                                                       \
        TTI_MEMBER static word narrow(acc value)                \
        {                                                       \
            return to_word(value);                              \
        }                                                       \
    };
TTI_ELEMENT(TUTTI_INT8, int8_t, int8_t, , )
TTI_ELEMENT(TUTTI_UINT8, uint8_t, uint8_t, , )
TTI_ELEMENT(TUTTI_INT32, int32_t, int32_t, , )
TTI_ELEMENT(TUTTI_UINT32, uint32_t, uint32_t, , )
TTI_ELEMENT(TUTTI_INT64, int64_t, int64_t, , )
TTI_ELEMENT(TUTTI_UINT64, uint64_t, uint64_t, , )
TTI_ELEMENT(TUTTI_FLOAT32, float, float, , )
TTI_ELEMENT(TUTTI_FLOAT64, double, double, , )
TTI_ELEMENT(TUTTI_FLOAT16, uint16_t, float, tti_widen_f16, tti_narrow_f16)
TTI_ELEMENT(TUTTI_BFLOAT16, uint16_t, float, tti_widen_bf16, tti_narrow_bf16)
TTI_ELEMENT(TUTTI_FLOAT8_E4M3, uint8_t, float, tti_widen_e4m3, tti_narrow_e4m3)
TTI_ELEMENT(TUTTI_FLOAT8_E5M2, uint8_t, float, tti_widen_e5m2, tti_narrow_e5m2)

/* ---- Arithmetic on accumulators ---------------------------------------------------------------
 */

TTI_DEVICE float tti_settle(float value)
{
    return value != value ? tti_float(0x7fc00000) : value;
}
TTI_DEVICE double tti_settle(double value)
{
    return value != value ? tti_double(0x7ff8000000000000) : value;
}

/* Integers wrap: unsigned arithmetic as wide as int at least, cut to the type. */
template <class A> TTI_DEVICE A tti_sum(A a, A b)
{
    return (A)((uint64_t)a + (uint64_t)b);
}
TTI_DEVICE int32_t tti_sum(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a + (uint32_t)b);
}
TTI_DEVICE float tti_sum(float a, float b)
{
    return tti_settle(a + b);
}
TTI_DEVICE double tti_sum(double a, double b)
{
    return tti_settle(a + b);
}

template <class A> TTI_DEVICE A tti_product(A a, A b)
{
    return (A)((uint64_t)a * (uint64_t)b);
}
TTI_DEVICE int32_t tti_product(int32_t a, int32_t b)
{
    return (int32_t)((uint32_t)a * (uint32_t)b);
}
TTI_DEVICE float tti_product(float a, float b)
{
    return tti_settle(a * b);
}
TTI_DEVICE double tti_product(double a, double b)
{
    return tti_settle(a * b);
}

template <class A> TTI_DEVICE A tti_larger(A a, A b)
{
    return a > b ? a : b;
}
template <class A> TTI_DEVICE A tti_smaller(A a, A b)
{
    return a < b ? a : b;
}
/* Equal floats differ at most in the sign of zero: AND keeps +0, OR keeps -0. */
TTI_DEVICE float tti_larger(float a, float b)
{
    const float picked = a == b ? tti_float(tti_bits(a) & tti_bits(b)) : a > b ? a : b;
    return a != a || b != b ? tti_float(0x7fc00000) : picked;
}
TTI_DEVICE float tti_smaller(float a, float b)
{
    const float picked = a == b ? tti_float(tti_bits(a) | tti_bits(b)) : a < b ? a : b;
    return a != a || b != b ? tti_float(0x7fc00000) : picked;
}
TTI_DEVICE double tti_larger(double a, double b)
{
    const double picked = a == b ? tti_double(tti_bits(a) & tti_bits(b)) : a > b ? a : b;
    return a != a || b != b ? tti_double(0x7ff8000000000000) : picked;
}
TTI_DEVICE double tti_smaller(double a, double b)
{
    const double picked = a == b ? tti_double(tti_bits(a) | tti_bits(b)) : a < b ? a : b;
    return a != a || b != b ? tti_double(0x7ff8000000000000) : picked;
}

/* a[i] = a[i] op b[i]. All threads of a kernel take the same branch. */
template <class A, int N> TTI_DEVICE void tti_combine(uint32_t op, A (&a)[N], const A (&b)[N])
{
    switch (op) {
    case TUTTI_SUM:
        TTI_EACH (i, N)
            a[i] = tti_sum(a[i], b[i]);
        break;
    case TUTTI_PROD:
        TTI_EACH (i, N)
            a[i] = tti_product(a[i], b[i]);
        break;
    case TUTTI_MAX:
        TTI_EACH (i, N)
            a[i] = tti_larger(a[i], b[i]);
        break;
    default:
        TTI_EACH (i, N)
            a[i] = tti_smaller(a[i], b[i]);
        break;
    }
}

/* Averages: integers truncate toward zero. */
template <class A> TTI_DEVICE A tti_divided(A a, uint32_t by)
{
    return (A)(a / (A)(by));
}
TTI_DEVICE int8_t tti_divided(int8_t a, uint32_t by)
{
    return (int8_t)(a / (int32_t)by);
}
TTI_DEVICE uint8_t tti_divided(uint8_t a, uint32_t by)
{
    return (uint8_t)(a / by);
}
TTI_DEVICE float tti_divided(float a, uint32_t by)
{
    return tti_settle(a / (float)by);
}
TTI_DEVICE double tti_divided(double a, uint32_t by)
{
    return tti_settle(a / (double)by);
}

/* word * factor as tti_scale computes it: rounded to the type. */
template <int TYPE>
TTI_DEVICE typename tti_element<TYPE>::word tti_scaled(typename tti_element<TYPE>::word word,
                                                       typename tti_element<TYPE>::acc factor)
{
    typedef tti_element<TYPE> element;
    return element::narrow(tti_product(element::widen(word), factor));
}

/* The element at the low end of `bits`, as an accumulator. */
template <int TYPE> TTI_DEVICE typename tti_element<TYPE>::acc tti_factor(uint64_t bits)
{
    union {
        uint64_t bits;
        typename tti_element<TYPE>::word word;
    } u;
    u.bits = bits;
    return tti_element<TYPE>::widen(u.word);
}

/* ---- One source file, twelve kernels ----------------------------------------------------------
 */

#define TTI_FOR_TYPES(X)        \
    X(TUTTI_INT8, int8)         \
    X(TUTTI_UINT8, uint8)       \
    X(TUTTI_INT32, int32)       \
    X(TUTTI_UINT32, uint32)     \
    X(TUTTI_INT64, int64)       \
    X(TUTTI_UINT64, uint64)     \
    X(TUTTI_FLOAT16, float16)   \
    X(TUTTI_FLOAT32, float32)   \
    X(TUTTI_FLOAT64, float64)   \
    X(TUTTI_BFLOAT16, bfloat16) \
    X(TUTTI_FLOAT8_E4M3, e4m3)  \
    X(TUTTI_FLOAT8_E5M2, e5m2)

#endif
