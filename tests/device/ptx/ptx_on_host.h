/* What statements made by ptx_to_c stand on: PTX's instructions as C, for a thread of the simulated
 * device (device/sim/sim_block.h). Where a GPU would end the kernel, the program ends and names the
 * kernel and the line of its PTX: an access that is not aligned to its size; one of global memory
 * with an address of shared memory or of parameters, or of what is neither a device's memory nor
 * the host's page-locked memory; one outside the entry's shared memory or parameters. As
 * compute-sanitizer does, it also ends where an access goes past an allocation. What a GPU leaves
 * undefined, and no kernel may need: division by zero gives ones, and leaves the
 * dividend as the remainder. */
#ifndef TTI_TESTS_DEVICE_PTX_ON_HOST_H
#define TTI_TESTS_DEVICE_PTX_ON_HOST_H

#include "device/sim/sim_block.h"
#include "tests/device/ptx/ptx.h"

#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An address of shared memory is an offset, which begins behind what the hardware keeps. */
enum { PTX_SHARED_BEGIN = 1024, PTX_MULTICAST_MOST = 32 };

struct ptx_sixteen {
    union {
        uint32_t u32[4];
        uint64_t u64[2];
    };
};

/* Memory has no types here. */
#define PTX_ALIAS(kind, type) typedef type __attribute__((may_alias)) ptx_##kind;
PTX_ALIAS(b8, uint8_t)
PTX_ALIAS(u8, uint8_t)
PTX_ALIAS(s8, int8_t)
PTX_ALIAS(b16, uint16_t)
PTX_ALIAS(u16, uint16_t)
PTX_ALIAS(s16, int16_t)
PTX_ALIAS(b32, uint32_t)
PTX_ALIAS(u32, uint32_t)
PTX_ALIAS(s32, int32_t)
PTX_ALIAS(f32, uint32_t)
PTX_ALIAS(b64, uint64_t)
PTX_ALIAS(u64, uint64_t)
PTX_ALIAS(s64, int64_t)
PTX_ALIAS(f64, uint64_t)

/* ---- Addresses ------------------------------------------------------------------------------- */

__attribute__((noreturn, cold, noinline)) static void ptx_fault(const struct ptx_frame *f, int line,
                                                                const char *what, uint64_t address)
{
    fprintf(stderr, "ptx: %s, line %d of its PTX: %s (address 0x%llx, block %u, thread %u)\n",
            f->name, line, what, (unsigned long long)address, tti_sim_block_index.x,
            tti_sim_thread_index.x);
    abort();
}

__attribute__((noreturn, cold, noinline, unused)) static void
ptx_unknown(const struct ptx_frame *f, int line, const char *opcode, const char *why)
{
    fprintf(stderr,
            "ptx: %s, line %d of its PTX: tests/device/ptx/ptx_to_c does not know %s (%s)\n",
            f->name, line, opcode, why);
    abort();
}

__attribute__((noreturn, cold, noinline, unused)) static void ptx_trap(const struct ptx_frame *f,
                                                                       int line)
{
    ptx_fault(f, line, "trap", 0);
}

static inline bool ptx_is_shared(const struct ptx_frame *f, uint64_t address)
{
    return address - (uint64_t)(uintptr_t)f->shared < f->shared_bytes;
}
static inline bool ptx_is_parameter(const struct ptx_frame *f, uint64_t address)
{
    return address - (uint64_t)(uintptr_t)f->parameter < f->parameter_bytes;
}
static inline bool ptx_is_global(const struct ptx_frame *f, uint64_t address)
{
    return !ptx_is_shared(f, address) && !ptx_is_parameter(f, address);
}

static inline void *ptx_aligned(const struct ptx_frame *f, uint64_t address, unsigned bytes,
                                int line)
{
    if (address % bytes != 0)
        ptx_fault(f, line, "the address is not a multiple of the size", address);
    return (void *)(uintptr_t)address;
}

static inline void *ptx_global(struct ptx_frame *f, uint64_t address, unsigned bytes, int line)
{
    if (ptx_is_shared(f, address))
        ptx_fault(f, line, "shared memory is reached as global memory", address);
    if (ptx_is_parameter(f, address))
        ptx_fault(f, line, "parameters are reached as global memory", address);
    for (int i = 0; i < PTX_KNOWN; i++) {
        const uint64_t at = address - f->known[i].base;
        if (at < f->known[i].bytes && bytes <= f->known[i].bytes - at)
            return ptx_aligned(f, address, bytes, line);
    }
    if (!ptx_look_up(f, address, bytes))
        ptx_fault(f, line, "no memory that a GPU reaches, or past the end of it", address);
    return ptx_aligned(f, address, bytes, line);
}

static inline void *ptx_generic(struct ptx_frame *f, uint64_t address, unsigned bytes, int line)
{
    if (ptx_is_shared(f, address) && ptx_is_shared(f, address + bytes - 1))
        return ptx_aligned(f, address, bytes, line);
    return ptx_global(f, address, bytes, line);
}

static inline void *ptx_shared(const struct ptx_frame *f, uint32_t address, unsigned bytes,
                               int line)
{
    const uint32_t at = address - PTX_SHARED_BEGIN;
    if (at > f->shared_bytes || bytes > f->shared_bytes - at)
        ptx_fault(f, line, "the address is outside of shared memory", address);
    if (address % bytes != 0)
        ptx_fault(f, line, "the address is not a multiple of the size", address);
    return f->shared + at;
}

static inline const void *ptx_param(const struct ptx_frame *f, uint64_t address, unsigned bytes,
                                    int line)
{
    const uint64_t at = address - (uint64_t)(uintptr_t)f->parameter;
    if (at > f->parameter_bytes || bytes > f->parameter_bytes - at)
        ptx_fault(f, line, "the address is outside of the parameters", address);
    if (at % bytes != 0)
        ptx_fault(f, line, "the address is not a multiple of the size", address);
    return (const void *)(uintptr_t)address;
}

static inline void *ptx_local(const struct ptx_frame *f, uint64_t address, unsigned bytes, int line)
{
    return ptx_aligned(f, address, bytes, line);
}

static inline uint64_t ptx_from_shared(const struct ptx_frame *f, uint64_t offset)
{
    return (uint64_t)(uintptr_t)f->shared + offset - PTX_SHARED_BEGIN;
}

static inline uint64_t ptx_to_shared(const struct ptx_frame *f, uint64_t address)
{
    return address - (uint64_t)(uintptr_t)f->shared + PTX_SHARED_BEGIN;
}

/* ---- Floats, as bits. A NaN that 32-bit arithmetic gives is the one without sign and payload. --
 */

static inline float ptx_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline double ptx_double(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline uint32_t ptx_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return value != value ? 0x7fffffffu : bits;
}
static inline uint64_t ptx_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

#define PTX_FLOAT_2(name, expression32, expression64)               \
    static inline uint32_t ptx_##name##_f32(uint32_t x, uint32_t y) \
    {                                                               \
        const float a = ptx_float(x), b = ptx_float(y);             \
        return ptx_of_float(expression32);                          \
    }                                                               \
    static inline uint64_t ptx_##name##_f64(uint64_t x, uint64_t y) \
    {                                                               \
        const double a = ptx_double(x), b = ptx_double(y);          \
        return ptx_of_double(expression64);                         \
    }
PTX_FLOAT_2(add, a + b, a + b)
PTX_FLOAT_2(sub, a - b, a - b)
PTX_FLOAT_2(mul, a *b, a *b)
PTX_FLOAT_2(div, a / b, a / b)
PTX_FLOAT_2(min, fminf(a, b), fmin(a, b))
PTX_FLOAT_2(max, fmaxf(a, b), fmax(a, b))
PTX_FLOAT_2(copysign, copysignf(b, a), copysign(b, a)) /* the sign is the first operand's */

#define PTX_FLOAT_COMPARE(name, expression)                          \
    static inline bool ptx_setp_##name##_f32(uint32_t x, uint32_t y) \
    {                                                                \
        const float a = ptx_float(x), b = ptx_float(y);              \
        return expression;                                           \
    }                                                                \
    static inline bool ptx_setp_##name##_f64(uint64_t x, uint64_t y) \
    {                                                                \
        const double a = ptx_double(x), b = ptx_double(y);           \
        return expression;                                           \
    }
PTX_FLOAT_COMPARE(eq, a == b)
PTX_FLOAT_COMPARE(ne, a<b || a> b)
PTX_FLOAT_COMPARE(lt, a < b)
PTX_FLOAT_COMPARE(le, a <= b)
PTX_FLOAT_COMPARE(gt, a > b)
PTX_FLOAT_COMPARE(ge, a >= b)
PTX_FLOAT_COMPARE(equ, !(a < b || a > b))
PTX_FLOAT_COMPARE(neu, a != b)
PTX_FLOAT_COMPARE(ltu, !(a >= b))
PTX_FLOAT_COMPARE(leu, !(a > b))
PTX_FLOAT_COMPARE(gtu, !(a <= b))
PTX_FLOAT_COMPARE(geu, !(a < b))
PTX_FLOAT_COMPARE(num, a == a && b == b)
PTX_FLOAT_COMPARE(nan, a != a || b != b)

static inline uint32_t ptx_abs_f32(uint32_t x)
{
    return x & 0x7fffffffu;
}
static inline uint64_t ptx_abs_f64(uint64_t x)
{
    return x & 0x7fffffffffffffffull;
}
static inline uint32_t ptx_neg_f32(uint32_t x)
{
    return x ^ 0x80000000u;
}
static inline uint64_t ptx_neg_f64(uint64_t x)
{
    return x ^ 0x8000000000000000ull;
}
static inline uint32_t ptx_sqrt_f32(uint32_t x)
{
    return ptx_of_float(sqrtf(ptx_float(x)));
}
static inline uint64_t ptx_sqrt_f64(uint64_t x)
{
    return ptx_of_double(sqrt(ptx_double(x)));
}
/* The approximate ones have their last bit or two from the hardware. */
static inline uint32_t ptx_rcp_f32(uint32_t x)
{
    return ptx_of_float(1 / ptx_float(x));
}
static inline uint32_t ptx_ex2_f32(uint32_t x)
{
    return ptx_of_float(exp2f(ptx_float(x)));
}
static inline uint32_t ptx_fma_rn_f32(uint32_t x, uint32_t y, uint32_t z)
{
    return ptx_of_float(fmaf(ptx_float(x), ptx_float(y), ptx_float(z)));
}
static inline uint64_t ptx_fma_rn_f64(uint64_t x, uint64_t y, uint64_t z)
{
    return ptx_of_double(fma(ptx_double(x), ptx_double(y), ptx_double(z)));
}
__attribute__((noinline, unused)) static uint32_t ptx_fma_rm_f32(uint32_t x, uint32_t y, uint32_t z)
{
    const int before = fegetround();
    fesetround(FE_DOWNWARD);
    const volatile float a = ptx_float(x), b = ptx_float(y), c = ptx_float(z);
    const volatile float result = fmaf(a, b, c);
    fesetround(before);
    return ptx_of_float(result);
}

static inline uint32_t ptx_cvt_sat_f32_f32(uint32_t x)
{
    const float a = ptx_float(x);
    return a > 0 ? a < 1 ? x : ptx_of_float(1) : 0; /* NaN becomes 0 */
}
static inline uint64_t ptx_cvt_f64_f32(uint32_t x)
{
    return ptx_of_double(ptx_float(x));
}
static inline uint32_t ptx_cvt_rn_f32_f64(uint64_t x)
{
    return ptx_of_float((float)ptx_double(x));
}
#define PTX_FROM_INTEGER(kind, type)                     \
    static inline uint32_t ptx_cvt_rn_f32_##kind(type x) \
    {                                                    \
        return ptx_of_float((float)x);                   \
    }                                                    \
    static inline uint64_t ptx_cvt_rn_f64_##kind(type x) \
    {                                                    \
        return ptx_of_double((double)x);                 \
    }
PTX_FROM_INTEGER(u32, uint32_t)
PTX_FROM_INTEGER(s32, int32_t)
PTX_FROM_INTEGER(u64, uint64_t)
PTX_FROM_INTEGER(s64, int64_t)
static inline uint64_t ptx_cvt_rzi_u64_f64(uint64_t x)
{
    const double a = ptx_double(x);
    return a > 0 ? a < 18446744073709551616.0 ? (uint64_t)a : UINT64_MAX : 0;
}

/* ---- Integers ---------------------------------------------------------------------------------
 */

#define PTX_EXTREMES(kind, type)                      \
    static inline type ptx_min_##kind(type a, type b) \
    {                                                 \
        return a < b ? a : b;                         \
    }                                                 \
    static inline type ptx_max_##kind(type a, type b) \
    {                                                 \
        return a > b ? a : b;                         \
    }
#define PTX_UNSIGNED(kind, type)                              \
    PTX_EXTREMES(kind, type)                                  \
    static inline type ptx_div_##kind(type a, type b)         \
    {                                                         \
        return b == 0 ? (type)-1 : (type)(a / b);             \
    }                                                         \
    static inline type ptx_rem_##kind(type a, type b)         \
    {                                                         \
        return b == 0 ? a : (type)(a % b);                    \
    }                                                         \
    static inline type ptx_shl_##kind(type a, uint32_t by)    \
    {                                                         \
        return by < 8 * sizeof a ? (type)(a << by) : (type)0; \
    }                                                         \
    static inline type ptx_shr_##kind(type a, uint32_t by)    \
    {                                                         \
        return by < 8 * sizeof a ? (type)(a >> by) : (type)0; \
    }
#define PTX_SIGNED(kind, type, utype)                                              \
    PTX_EXTREMES(kind, type)                                                       \
    static inline type ptx_div_##kind(type a, type b)                              \
    {                                                                              \
        return b == 0 ? (type)-1 : b == -1 ? (type)(0 - (utype)a) : (type)(a / b); \
    }                                                                              \
    static inline type ptx_rem_##kind(type a, type b)                              \
    {                                                                              \
        return b == 0 ? a : b == -1 ? (type)0 : (type)(a % b);                     \
    }                                                                              \
    static inline type ptx_shr_##kind(type a, uint32_t by)                         \
    {                                                                              \
        return (type)(a >> (by < 8 * sizeof a ? by : 8 * sizeof a - 1));           \
    }
PTX_UNSIGNED(u16, uint16_t)
PTX_UNSIGNED(u32, uint32_t)
PTX_UNSIGNED(u64, uint64_t)
PTX_SIGNED(s16, int16_t, uint16_t)
PTX_SIGNED(s32, int32_t, uint32_t)
PTX_SIGNED(s64, int64_t, uint64_t)

/* The low `bits` of a instead of those of b from `at` on. */
#define PTX_INSERT(kind, type)                                                    \
    static inline type ptx_bfi_##kind(type a, type b, uint32_t at, uint32_t bits) \
    {                                                                             \
        at &= 255;                                                                \
        bits &= 255;                                                              \
        const uint64_t ones = bits < 64 ? ((uint64_t)1 << bits) - 1 : UINT64_MAX; \
        const uint64_t mask = at < 64 ? ones << at : 0;                           \
        return (type)((b & ~mask) | ((at < 64 ? (uint64_t)a << at : 0) & mask));  \
    }
PTX_INSERT(b32, uint32_t)
PTX_INSERT(b64, uint64_t)

/* Four bytes of the eight of b and a, each chosen by four bits; the highest asks for its sign. */
static inline uint32_t ptx_prmt(uint32_t a, uint32_t b, uint32_t choice)
{
    const uint64_t both = a | (uint64_t)b << 32;
    uint32_t result = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t from = choice >> 4 * i & 15;
        const uint8_t byte = (uint8_t)(both >> 8 * (from & 7));
        const uint8_t value = (from & 8) ? ((byte & 0x80) ? 0xff : 0) : byte;
        result |= (uint32_t)value << 8 * i;
    }
    return result;
}

/* ---- Memory order -----------------------------------------------------------------------------
 */

static inline uint32_t ptx_cas_u32(uint32_t *word, uint32_t expected, uint32_t value, int order)
{
    __atomic_compare_exchange_n(word, &expected, value, false, order, __ATOMIC_RELAXED);
    return expected;
}
static inline uint64_t ptx_cas_u64(uint64_t *word, uint64_t expected, uint64_t value, int order)
{
    __atomic_compare_exchange_n(word, &expected, value, false, order, __ATOMIC_RELAXED);
    return expected;
}
#define PTX_FETCH(name, kind, type, better)                                                        \
    static inline type ptx_fetch_##name##_##kind(type *word, type value, int order)                \
    {                                                                                              \
        type before = __atomic_load_n(word, __ATOMIC_RELAXED);                                     \
        while (value better before &&                                                              \
               !__atomic_compare_exchange_n(word, &before, value, false, order, __ATOMIC_RELAXED)) \
            continue;                                                                              \
        return before;                                                                             \
    }
PTX_FETCH(max, u32, uint32_t, >)
PTX_FETCH(min, u32, uint32_t, <)
PTX_FETCH(max, u64, uint64_t, >)
PTX_FETCH(min, u64, uint64_t, <)

static inline void ptx_fence_sc(void)
{
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    tti_sim_point();
}
static inline void ptx_fence_acq_rel(void)
{
    __atomic_thread_fence(__ATOMIC_ACQ_REL);
    tti_sim_point();
}

/* A packet of LL: each of its halves arrives whole. */
static inline void ptx_store_packet(void *at, struct ptx_sixteen v, uint32_t warp)
{
    (void)warp;
    tti_sim_point();
    __atomic_store_n((uint64_t *)at, v.u64[0], __ATOMIC_RELAXED);
    tti_sim_point();
    __atomic_store_n((uint64_t *)at + 1, v.u64[1], __ATOMIC_RELAXED);
}
static inline struct ptx_sixteen ptx_load_packet(const void *at, uint32_t warp)
{
    (void)warp;
    struct ptx_sixteen v;
    v.u64[0] = __atomic_load_n((const uint64_t *)at, __ATOMIC_RELAXED);
    v.u64[1] = __atomic_load_n((const uint64_t *)at + 1, __ATOMIC_RELAXED);
    return v;
}

/* 16 bytes of a line of 128 that lanes of a warp, met at `warp` just before, store or load at once.
 * Who sees its last word sees all of it: that word is stored last, and loaded first. */
static inline bool ptx_ends_line(const void *at)
{
    return (uintptr_t)at % 128 == 112;
}
static inline void ptx_store_line(void *at, struct ptx_sixteen v, uint32_t warp)
{
    uint64_t *word = at;
    tti_sim_point();
    __atomic_store_n(word, v.u64[0], __ATOMIC_RELAXED);
    if (!ptx_ends_line(at))
        __atomic_store_n(word + 1, v.u64[1], __ATOMIC_RELAXED);
    tti_sim_warp_barrier(warp);
    if (ptx_ends_line(at))
        __atomic_store_n(word + 1, v.u64[1], __ATOMIC_RELEASE);
}
static inline struct ptx_sixteen ptx_load_line(const void *at, uint32_t warp)
{
    const uint64_t *word = at;
    struct ptx_sixteen v;
    if (ptx_ends_line(at))
        v.u64[1] = __atomic_load_n(word + 1, __ATOMIC_ACQUIRE);
    tti_sim_warp_barrier(warp);
    v.u64[0] = __atomic_load_n(word, __ATOMIC_RELAXED);
    if (!ptx_ends_line(at))
        v.u64[1] = __atomic_load_n(word + 1, __ATOMIC_RELAXED);
    return v;
}

/* ---- Multicast objects: summed up in the order of their members, in float32 -------------------
 */

static inline void *ptx_multicast(const struct ptx_frame *f, uint64_t address, unsigned bytes,
                                  int line)
{
    void *where[PTX_MULTICAST_MOST], *at = ptx_aligned(f, address, bytes, line);
    if (tti_sim_multicast_at(at, where, PTX_MULTICAST_MOST) == 0)
        ptx_fault(f, line, "the address is not of a multicast object", address);
    return at;
}
static inline void ptx_multi_store(void *address, struct ptx_sixteen v)
{
    void *where[PTX_MULTICAST_MOST];
    const unsigned members = tti_sim_multicast_at(address, where, PTX_MULTICAST_MOST);
    for (unsigned m = 0; m < members; m++)
        memcpy(where[m], &v, sizeof v);
}
static inline float ptx_of_bfloat16(uint16_t bits)
{
    return ptx_float((uint32_t)bits << 16);
}
static inline uint16_t ptx_to_bfloat16(float value)
{
    const uint32_t bits = ptx_of_float(value);
    return value != value ? 0x7fff : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static inline float ptx_of_float16(uint16_t bits)
{
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float size = exponent == 31  ? (fraction ? NAN : INFINITY)
                       : exponent == 0 ? ldexpf((float)fraction, -24)
                                       : ldexpf((float)(1024 + fraction), exponent - 25);
    return bits >> 15 ? -size : size;
}
/* What rounds up to the next exponent carries into it. */
static inline uint16_t ptx_to_float16(float value)
{
    const float size = fabsf(value);
    const uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (value != value)
        return 0x7fff;
    if (size >= 65520)
        return sign | 0x7c00;
    if (size < 0x1p-14f)
        return (uint16_t)(sign | (unsigned)rintf(size * 0x1p24f));
    const int exponent = ilogbf(size);
    const unsigned fraction = (unsigned)rintf(ldexpf(size, 10 - exponent)) - 1024;
    return (uint16_t)(sign | (((unsigned)(exponent + 15) << 10) + fraction));
}
static inline struct ptx_sixteen ptx_multi_load_f32(const void *address)
{
    void *where[PTX_MULTICAST_MOST];
    const unsigned members = tti_sim_multicast_at(address, where, PTX_MULTICAST_MOST);
    struct ptx_sixteen total = {0}, v;
    for (unsigned m = 0; m < members; m++) {
        memcpy(&v, where[m], sizeof v);
        for (int i = 0; i < 4; i++)
            total.u32[i] = m == 0 ? v.u32[i] : ptx_add_f32(total.u32[i], v.u32[i]);
    }
    return total;
}
#define PTX_MULTI_16(kind, element)                                                             \
    static inline struct ptx_sixteen ptx_multi_load_##kind##x2(const void *address)             \
    {                                                                                           \
        void *where[PTX_MULTICAST_MOST];                                                        \
        const unsigned members = tti_sim_multicast_at(address, where, PTX_MULTICAST_MOST);      \
        float total[8] = {0};                                                                   \
        uint16_t v[8];                                                                          \
        for (unsigned m = 0; m < members; m++) {                                                \
            memcpy(v, where[m], sizeof v);                                                      \
            for (int i = 0; i < 8; i++)                                                         \
                total[i] = m == 0 ? ptx_of_##element(v[i]) : total[i] + ptx_of_##element(v[i]); \
        }                                                                                       \
        for (int i = 0; i < 8; i++)                                                             \
            v[i] = ptx_to_##element(total[i]);                                                  \
        struct ptx_sixteen result;                                                              \
        memcpy(&result, v, sizeof result);                                                      \
        return result;                                                                          \
    }
PTX_MULTI_16(f16, float16)
PTX_MULTI_16(bf16, bfloat16)

/* ---- Warps: who gets whose value, `c` says within which lanes; else one's own ------------------
 */

static inline uint32_t ptx_shuffle(uint32_t a, uint32_t from, bool inside, uint32_t mask, bool *in)
{
    *in = inside;
    return (uint32_t)tti_sim_warp_exchange(mask, a, inside ? from : tti_sim_lane());
}
static inline uint32_t ptx_last_lane(uint32_t c)
{
    const uint32_t segment = c >> 8 & 31;
    return (tti_sim_lane() & segment) | (c & 31 & ~segment);
}
static inline uint32_t ptx_shuffle_up(uint32_t a, uint32_t b, uint32_t c, uint32_t mask, bool *in)
{
    const uint32_t lane = tti_sim_lane();
    return ptx_shuffle(a, lane - (b & 31), (int32_t)(lane - (b & 31)) >= (int32_t)ptx_last_lane(c),
                       mask, in);
}
static inline uint32_t ptx_shuffle_down(uint32_t a, uint32_t b, uint32_t c, uint32_t mask, bool *in)
{
    const uint32_t from = tti_sim_lane() + (b & 31);
    return ptx_shuffle(a, from, from <= ptx_last_lane(c), mask, in);
}
static inline uint32_t ptx_shuffle_bfly(uint32_t a, uint32_t b, uint32_t c, uint32_t mask, bool *in)
{
    const uint32_t from = tti_sim_lane() ^ (b & 31);
    return ptx_shuffle(a, from, from <= ptx_last_lane(c), mask, in);
}
static inline uint32_t ptx_shuffle_idx(uint32_t a, uint32_t b, uint32_t c, uint32_t mask, bool *in)
{
    const uint32_t segment = c >> 8 & 31;
    const uint32_t from = (tti_sim_lane() & segment) | (b & 31 & ~segment);
    return ptx_shuffle(a, from, from <= ptx_last_lane(c), mask, in);
}

#endif
