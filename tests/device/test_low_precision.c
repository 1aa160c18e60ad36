/* Conversions of float16, bfloat16 and the two float8 formats: every code up; down, every code
 * back, every tie between neighbours, and what lies next to it, under every variant that runs here.
 */
#include "device/reduce.h"
#include "tests/device/reference.h"
#include "tests/tutti_cmocka.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CODES = 65536 };

static const char *variants[4];
static int variant_count;

static unsigned code_at(const void *codes, const struct reference_format *format, size_t i)
{
    return tutti_type_size(format->type) == 2 ? ((const uint16_t *)codes)[i]
                                              : ((const uint8_t *)codes)[i];
}

static size_t code_count(const struct reference_format *format)
{
    return tutti_type_size(format->type) == 2 ? 65536 : 256;
}

/* Narrow `count` floats (not NaN) and compare with the reference. */
static void check_narrow(const struct reference_format *format, const float *values, size_t count)
{
    static uint16_t codes[CODES];
    tti_convert(codes, format->type, values, TUTTI_FLOAT32, count, NULL);
    for (size_t i = 0; i < count; i++) {
        const unsigned want = reference_encode(format, (double)values[i]);
        const unsigned have = code_at(codes, format, i);
        if (want != have)
            fail_msg("%s of %a (%s) is 0x%x, expected 0x%x", tutti_type_name(format->type),
                     (double)values[i], tti_simd_name(), have, want);
    }
}

/* NaN stays NaN, with its sign, quiet, and (but for e4m3) with the payload that fits. */
static void check_nan(const struct reference_format *format)
{
    static const uint32_t payloads[] = {0x7fc00000, 0xffc00000, 0x7f800001, 0xff801000,
                                        0x7fffffff, 0x7fb12345, 0xffd23456};
    float values[7];
    uint16_t codes[7];
    memcpy(values, payloads, sizeof values);
    tti_convert(codes, format->type, values, TUTTI_FLOAT32, 7, NULL);
    const int drop = 23 - format->mantissa_bits;
    const unsigned sign = 1u << (format->exponent_bits + format->mantissa_bits);
    for (size_t i = 0; i < 7; i++) {
        unsigned want = sign - 1;
        if (!format->finite) {
            const unsigned top = ((1u << format->exponent_bits) - 1) << format->mantissa_bits;
            want = top | ((payloads[i] | 0x400000) & 0x7fffff) >> drop;
        }
        want |= payloads[i] >> 31 ? sign : 0;
        assert_int_equal(code_at(codes, format, i), want);
    }
}

static void widen_every_code(void **state)
{
    (void)state;
    static uint16_t codes[CODES];
    static float values[CODES];
    for (int f = 0; f < 4; f++) {
        const struct reference_format *format = &reference_formats[f];
        const size_t count = code_count(format);
        for (size_t i = 0; i < count; i++) {
            if (tutti_type_size(format->type) == 2)
                codes[i] = (uint16_t)i;
            else
                ((uint8_t *)codes)[i] = (uint8_t)i;
        }
        for (int v = 0; v < variant_count; v++) {
            assert_int_equal(tti_simd_force(variants[v]), TUTTI_OK);
            memset(values, 0xee, sizeof values);
            tti_convert(values, TUTTI_FLOAT32, codes, format->type, count, NULL);
            for (size_t i = 0; i < count; i++) {
                const double want = reference_decode(format, (unsigned)i);
                if (isnan(want)
                        ? !isnan(values[i])
                        : (double)values[i] != want || !signbit(values[i]) != !signbit(want))
                    fail_msg("%s 0x%zx (%s) is %a, expected %a", tutti_type_name(format->type), i,
                             variants[v], (double)values[i], want);
            }
        }
    }
}

/* Every code's value; the tie with the next code; one float32 step to either side of the tie. */
static void narrow_values_and_ties(void **state)
{
    (void)state;
    static float values[CODES];
    for (int f = 0; f < 4; f++) {
        const struct reference_format *format = &reference_formats[f];
        for (int v = 0; v < variant_count; v++) {
            assert_int_equal(tti_simd_force(variants[v]), TUTTI_OK);
            for (int what = 0; what < 4; what++) {
                size_t count = 0;
                for (size_t code = 0; code + 1 < code_count(format); code++) {
                    const double low = reference_decode(format, (unsigned)code);
                    const double high = reference_decode(format, (unsigned)code + 1);
                    if (isnan(low) || (what && !isfinite(high)))
                        continue;
                    const float tie = (float)((low + high) / 2);
                    values[count++] = what == 0   ? (float)low
                                      : what == 1 ? tie
                                      : what == 2 ? nextafterf(tie, INFINITY)
                                                  : nextafterf(tie, -INFINITY);
                }
                assert_true(count > code_count(format) / 2);
                check_narrow(format, values, count);
            }
            check_nan(format);
        }
    }
}

/* Around the ends of each format, and numbers all over float32. */
static void narrow_the_rest(void **state)
{
    (void)state;
    static float values[CODES];
    static const float ends[] = {448,           463.99f,  464,       464.01f,         480,
                                 1e9f,          57344,    61439.99f, 61440,           65504,
                                 65519.99f,     65520,    65536,     3.38953e38f,     3.4e38f,
                                 INFINITY,      1e-45f,   1e-38f,    1e-40f,          0x1p-10f,
                                 0x1.8p-9f,     0x1p-17f, 0x1p-25f,  0x1.000002p-25f, 0,
                                 0x1.fffffep-7f};
    const size_t end_count = sizeof ends / sizeof ends[0];
    uint64_t random = 11;
    for (size_t i = 0; i < CODES; i++) {
        uint32_t bits = (uint32_t)reference_random(&random);
        if (i % 2) /* half of them in the range that the small formats have */
            bits = (bits & 0x80ffffff) | (uint32_t)(0x34 + reference_random(&random) % 20) << 24;
        if ((bits & 0x7fffffff) > 0x7f800000)
            bits &= 0xbfffffff;
        memcpy(&values[i], &bits, 4);
    }
    for (size_t i = 0; i < 2 * end_count; i++)
        values[i] = i < end_count ? ends[i] : -ends[i - end_count];
    for (int f = 0; f < 4; f++) {
        for (int v = 0; v < variant_count; v++) {
            assert_int_equal(tti_simd_force(variants[v]), TUTTI_OK);
            check_narrow(&reference_formats[f], values, CODES);
        }
    }
}

/* tti_convert with a finish: divided in float32, rounded once; and in place. */
static void averaged(void **state)
{
    (void)state;
    static float values[5000];
    static uint16_t codes[5000], in_place[5000];
    const struct tti_finish finish = {.average = true, .ranks = 7};
    for (int i = 0; i < 5000; i++)
        values[i] = (float)(i - 2500) * 0.37f;
    tti_convert(codes, TUTTI_BFLOAT16, values, TUTTI_FLOAT32, 5000, &finish);
    for (size_t i = 0; i < 5000; i++)
        assert_int_equal(codes[i],
                         reference_encode(&reference_formats[1], (double)(values[i] / 7.0f)));
    tti_convert(in_place, TUTTI_BFLOAT16, values, TUTTI_FLOAT32, 5000, NULL);
    tti_convert(values, TUTTI_FLOAT32, in_place, TUTTI_BFLOAT16, 5000, &finish);
    tti_convert(in_place, TUTTI_BFLOAT16, in_place, TUTTI_BFLOAT16, 5000, &finish);
    for (size_t i = 0; i < 5000; i++)
        assert_int_equal(in_place[i], reference_encode(&reference_formats[1], (double)values[i]));
}

static int set_up(void **state)
{
    (void)state;
    setenv("TUTTI_SIMD", "no-such-variant", 1); /* passed over: the best one is taken */
    variant_count = reference_variants(variants);
    return strcmp(tti_simd_name(), variants[variant_count - 1]) == 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widen_every_code),
        cmocka_unit_test(narrow_values_and_ties),
        cmocka_unit_test(narrow_the_rest),
        cmocka_unit_test(averaged),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
