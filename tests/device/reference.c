/* The slow second opinion (reference.h). */
#include "tests/device/reference.h"

#include <math.h>
#include <string.h>

const struct reference_format reference_formats[4] = {
    {TUTTI_FLOAT16, 5, 10, false},
    {TUTTI_BFLOAT16, 8, 7, false},
    {TUTTI_FLOAT8_E4M3, 4, 3, true},
    {TUTTI_FLOAT8_E5M2, 5, 2, false},
};

const struct reference_format *reference_format_of(enum tutti_type type)
{
    for (int i = 0; i < 4; i++)
        if (reference_formats[i].type == type)
            return &reference_formats[i];
    return NULL;
}

static int bias_of(const struct reference_format *format)
{
    return (1 << (format->exponent_bits - 1)) - 1;
}

static unsigned sign_of(const struct reference_format *format)
{
    return 1u << (format->exponent_bits + format->mantissa_bits);
}

double reference_decode(const struct reference_format *format, unsigned code)
{
    const int m = format->mantissa_bits, top = (1 << format->exponent_bits) - 1;
    const unsigned sign = code & sign_of(format), magnitude = code & (sign_of(format) - 1);
    const int exponent = (int)(magnitude >> m), mantissa = (int)(magnitude & ((1u << m) - 1));
    double value;
    if (format->finite ? magnitude == sign_of(format) - 1 : exponent == top && mantissa)
        value = NAN;
    else if (!format->finite && exponent == top)
        value = INFINITY;
    else if (exponent == 0)
        value = ldexp(mantissa, 1 - bias_of(format) - m);
    else
        value = ldexp(mantissa + (1 << m), exponent - bias_of(format) - m);
    return sign ? -value : value;
}

unsigned reference_encode(const struct reference_format *format, double x)
{
    const int m = format->mantissa_bits, least = 1 - bias_of(format);
    const unsigned sign = signbit(x) ? sign_of(format) : 0;
    const unsigned largest =
        format->finite ? sign_of(format) - 2 : ((1u << format->exponent_bits) - 1) << m;
    const double size = fabs(x);
    if (isinf(size))
        return sign | largest;
    int exponent = least;
    if (size > 0 && ilogb(size) > least)
        exponent = ilogb(size);
    /* In units of the last place; rounding up to the next power of two carries by itself. */
    const double units = nearbyint(ldexp(size, m - exponent));
    const double code = units + ldexp(exponent - least, m);
    return sign | (code > largest ? largest : (unsigned)code);
}

/* ---- Elements ---------------------------------------------------------------------------------
 */

static float float_of(enum tutti_type type, const void *at)
{
    float value;
    uint16_t two;
    uint8_t one;
    if (type == TUTTI_FLOAT32) {
        memcpy(&value, at, sizeof value);
        return value;
    }
    memcpy(&two, at, tutti_type_size(type) == 2 ? 2 : 0);
    memcpy(&one, at, 1);
    return (float)reference_decode(reference_format_of(type),
                                   tutti_type_size(type) == 2 ? two : one);
}

/* A NaN result is the positive quiet one. */
static void float_to(enum tutti_type type, void *at, float value)
{
    const struct reference_format *format = reference_format_of(type);
    if (!format) {
        const uint32_t nan = 0x7fc00000;
        memcpy(at, isnan(value) ? (const void *)&nan : (const void *)&value, 4);
        return;
    }
    const unsigned top = ((1u << format->exponent_bits) - 1) << format->mantissa_bits;
    const unsigned nan =
        format->finite ? sign_of(format) - 1 : top | 1u << (format->mantissa_bits - 1);
    const unsigned code = isnan(value) ? nan : reference_encode(format, (double)value);
    const uint16_t two = (uint16_t)code;
    const uint8_t one = (uint8_t)code;
    memcpy(at, tutti_type_size(type) == 2 ? (const void *)&two : (const void *)&one,
           tutti_type_size(type));
}

static double pick(enum tutti_op op, double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == b)
        return signbit(a) ? (op == TUTTI_MIN ? a : b) : (op == TUTTI_MIN ? b : a);
    return (a < b) == (op == TUTTI_MIN) ? a : b;
}

static float combine_float(enum tutti_op op, float a, float b)
{
    if (op == TUTTI_SUM)
        return a + b;
    return op == TUTTI_PROD ? a * b : (float)pick(op, (double)a, (double)b);
}

static void reduce_double(enum tutti_op op, void *dst, const void *a, const void *b,
                          const struct tti_finish *finish)
{
    double x, y;
    memcpy(&x, a, 8);
    memcpy(&y, b, 8);
    double result = op == TUTTI_SUM ? x + y : op == TUTTI_PROD ? x * y : pick(op, x, y);
    if (finish && finish->average)
        result /= finish->ranks;
    const uint64_t nan = UINT64_C(0x7ff8000000000000);
    memcpy(dst, isnan(result) ? (const void *)&nan : (const void *)&result, 8);
}

/* Wide enough for every integer type; wraps when stored. */
static __int128 integer_of(enum tutti_type type, const void *at)
{
    const int bits = 8 * (int)tutti_type_size(type);
    const bool is_signed = type == TUTTI_INT8 || type == TUTTI_INT32 || type == TUTTI_INT64;
    uint64_t word = 0;
    memcpy(&word, at, (size_t)bits / 8); /* little endian, as all our hosts are */
    __int128 value = word;
    if (is_signed && word >> (bits - 1))
        value -= (__int128)1 << bits;
    return value;
}

static void integer_to(enum tutti_type type, void *at, __int128 value)
{
    uint64_t word = (uint64_t)value;
    memcpy(at, &word, tutti_type_size(type));
}

static void reduce_integer(enum tutti_op op, enum tutti_type type, void *dst, const void *a,
                           const void *b, const struct tti_finish *finish)
{
    const __int128 x = integer_of(type, a), y = integer_of(type, b);
    __int128 result = x;
    if (op == TUTTI_SUM)
        result = x + y;
    else if (op == TUTTI_PROD)
        result = (__int128)((unsigned __int128)x * (unsigned __int128)y);
    else if ((y < x) == (op == TUTTI_MIN))
        result = y;
    integer_to(type, dst, result);
    if (finish && finish->average)
        integer_to(type, dst, integer_of(type, dst) / finish->ranks);
}

void reference_reduce(enum tutti_op op, void *dst, enum tutti_type dst_type, const void *a,
                      enum tutti_type a_type, const void *b, enum tutti_type b_type,
                      const struct tti_finish *finish)
{
    if (dst_type == TUTTI_FLOAT64) {
        reduce_double(op, dst, a, b, finish);
    } else if (tti_acc_type(dst_type) == TUTTI_FLOAT32) {
        float result = combine_float(op, float_of(a_type, a), float_of(b_type, b));
        if (finish && finish->average)
            result /= (float)finish->ranks;
        float_to(dst_type, dst, result);
    } else {
        reduce_integer(op, dst_type, dst, a, b, finish);
    }
}

void reference_scale(void *dst, const void *a, const void *scalar, enum tutti_type type)
{
    reference_reduce(TUTTI_PROD, dst, type, a, type, scalar, type, NULL);
}

int reference_variants(const char *names[4])
{
    static const char *const all[] = {"baseline", "avx2", "avx512", "neon"};
    const char *before = tti_simd_name();
    int count = 0;
    for (int i = 0; i < 4; i++)
        if (tti_simd_force(all[i]) == TUTTI_OK)
            names[count++] = all[i];
    (void)tti_simd_force(before);
    return count;
}

uint64_t reference_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    uint64_t mixed = (*state ^ *state >> 29) * UINT64_C(0xd6e8feb86659fd93);
    return mixed ^ mixed >> 32;
}

void reference_fill(enum tutti_type type, char *at, size_t count, uint64_t *state)
{
    static const uint32_t singles[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00001,
                                       0xffc00000, 0x7f800001, 1,          0x807fffff, 0x3f800000,
                                       0x7f7fffff, 0x3fc00000, 0xff812345};
    static const uint64_t doubles[] = {0,
                                       UINT64_C(1) << 63,
                                       UINT64_C(0x7ff0000000000000),
                                       UINT64_C(0xfff0000000000000),
                                       UINT64_C(0x7ff8000000000001),
                                       UINT64_C(0xfff4000000000000),
                                       1,
                                       UINT64_C(0x3ff0000000000000)};
    const size_t size = tutti_type_size(type);
    for (size_t i = 0; i < count; i++) {
        uint64_t word = reference_random(state);
        const uint64_t dice = reference_random(state);
        if (dice % 4 == 0) {
            word = dice >> 32;
            if (type == TUTTI_FLOAT64)
                word = doubles[word % 8];
            else if (type == TUTTI_FLOAT32)
                word = singles[word % 13];
            else if (reference_format_of(type))
                word = singles[word % 13] >> (32 - 8 * size);
            else
                word = word % 2 ? UINT64_C(1) << (8 * size - 1) : (word >> 1) % 5 - 2;
        } else if (dice % 4 == 1 && type == TUTTI_FLOAT32) {
            const float near = (float)(int)(word % 4001 - 2000) / 16;
            memcpy(&word, &near, 4);
        }
        memcpy(at + i * size, &word, size);
    }
}
