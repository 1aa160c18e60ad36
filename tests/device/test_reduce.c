/* device/reduce.h: every variant that runs here, every type, operator and mixture of element and
 * accumulator operands, odd counts, odd addresses and in place, bit for bit against reference.c. */
#include "device/cpu/kernels.h"
#include "device/reduce.h"
#include "tests/device/reference.h"
#include "tests/tutti_cmocka.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 130, LARGE = 5003, ROOM = 8 * LARGE + 64, GUARD = 0xa5 };

/* Under ThreadSanitizer every access is slow, and there are no threads here to watch. */
#if defined(__SANITIZE_THREAD__)
enum { COUNT_STEP = 5 };
#else
enum { COUNT_STEP = 1 };
#endif

static const char *variants[4];
static int variant_count;

struct operands {
    enum tutti_op op;
    enum tutti_type dst, a, b;
    const struct tti_finish *finish;
};

static char left[ROOM], right[ROOM], expected[ROOM], got[ROOM];

static void fail_at(const struct operands *o, const char *variant, const char *how, size_t count)
{
    const size_t size = tutti_type_size(o->dst);
    size_t i = 0;
    while (i < count && memcmp(expected + i * size, got + 8 + i * size, size) == 0)
        i++;
    uint64_t want = 0, have = 0, x = 0, y = 0;
    if (i < count) {
        memcpy(&want, expected + i * size, size);
        memcpy(&have, got + 8 + i * size, size);
        memcpy(&x, left + i * tutti_type_size(o->a), tutti_type_size(o->a));
        memcpy(&y, right + i * tutti_type_size(o->b), tutti_type_size(o->b));
    }
    fail_msg("%s %s %s <- %s, %s%s, %s, count %zu: element %zu of 0x%llx and 0x%llx is 0x%llx, "
             "expected 0x%llx",
             variant, tutti_op_name(o->op), tutti_type_name(o->dst), tutti_type_name(o->a),
             tutti_type_name(o->b), o->finish ? " averaged" : "", how, count, i,
             (unsigned long long)x, (unsigned long long)y, (unsigned long long)have,
             (unsigned long long)want);
}

/* Results land in got + 8 with guards around them. `shift`: how far off alignment. */
static void check_count(const struct operands *o, const char *variant, size_t count, size_t shift)
{
    static char x[ROOM], y[ROOM], out[ROOM];
    const size_t size = tutti_type_size(o->dst), bytes = count * size;
    char *a = x + 8 + shift, *b = y + 8 + 3 * shift % 8, *d = out + 8 + 5 * shift % 8;
    memcpy(a, left, count * tutti_type_size(o->a));
    memcpy(b, right, count * tutti_type_size(o->b));
    memset(d - 8, GUARD, bytes + 16);
    tti_reduce(o->op, d, o->dst, a, o->a, b, o->b, count, o->finish);
    memcpy(got, d - 8, bytes + 16);
    if (memcmp(got + 8, expected, bytes) != 0)
        fail_at(o, variant, "apart", count);
    for (int i = 0; i < 8; i++) {
        assert_int_equal((unsigned char)got[i], GUARD);
        assert_int_equal((unsigned char)got[8 + bytes + (size_t)i], GUARD);
    }
    if (o->b == o->dst) { /* on top of b first: a is needed again */
        tti_reduce(o->op, b, o->dst, a, o->a, b, o->b, count, o->finish);
        memcpy(got + 8, b, bytes);
        if (memcmp(got + 8, expected, bytes) != 0)
            fail_at(o, variant, "dst == b", count);
        memcpy(b, right, count * tutti_type_size(o->b));
    }
    if (o->a == o->dst) {
        tti_reduce(o->op, a, o->dst, a, o->a, b, o->b, count, o->finish);
        memcpy(got + 8, a, bytes);
        if (memcmp(got + 8, expected, bytes) != 0)
            fail_at(o, variant, "dst == a", count);
    }
}

static void check_operands(const struct operands *o, uint64_t *state)
{
    reference_fill(o->a, left, LARGE, state);
    reference_fill(o->b, right, LARGE, state);
    const size_t d = tutti_type_size(o->dst), a = tutti_type_size(o->a), b = tutti_type_size(o->b);
    if (o->a == o->b) /* some equal pairs */
        memcpy(right + 7 * b, left + 7 * a, 9 * a);
    for (size_t i = 0; i < LARGE; i++)
        reference_reduce(o->op, expected + i * d, o->dst, left + i * a, o->a, right + i * b, o->b,
                         o->finish);
    for (int v = 0; v < variant_count; v++) {
        assert_int_equal(tti_simd_force(variants[v]), TUTTI_OK);
        assert_string_equal(tti_simd_name(), variants[v]);
        for (size_t count = 0; count <= MOST; count += COUNT_STEP)
            check_count(o, variants[v], count, count % 8);
        for (size_t shift = 0; shift < 8; shift += COUNT_STEP)
            check_count(o, variants[v], LARGE - 7 * shift, shift);
    }
}

static void check_finish(const struct tti_finish *finish)
{
    uint64_t state = 20240229;
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        const enum tutti_type t = (enum tutti_type)type, acc = tti_acc_type(t);
        const int mixtures = acc == t ? 1 : 8;
        for (int op = TUTTI_SUM; op <= (finish ? TUTTI_PROD : TUTTI_MIN); op++)
            for (int mix = 0; mix < mixtures; mix++)
                check_operands(&(struct operands){.op = (enum tutti_op)op,
                                                  .dst = mix & 1 ? acc : t,
                                                  .a = mix & 2 ? acc : t,
                                                  .b = mix & 4 ? acc : t,
                                                  .finish = finish},
                               &state);
    }
}

static void reductions(void **state)
{
    (void)state;
    check_finish(NULL);
}

static void averages(void **state)
{
    (void)state;
    check_finish(&(struct tti_finish){.average = true, .ranks = 3});
    check_finish(&(struct tti_finish){.average = true, .ranks = 65521});
}

/* MIN and MAX give the same bits when the operands change places. */
static void operand_order(void **state)
{
    (void)state;
    uint64_t random = 77;
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        const enum tutti_type t = (enum tutti_type)type;
        reference_fill(t, left, 1000, &random);
        reference_fill(t, right, 1000, &random);
        for (int op = TUTTI_SUM; op <= TUTTI_MIN; op++) {
            tti_reduce((enum tutti_op)op, expected, t, left, t, right, t, 1000, NULL);
            tti_reduce((enum tutti_op)op, got, t, right, t, left, t, 1000, NULL);
            assert_memory_equal(expected, got, 1000 * tutti_type_size(t));
        }
    }
}

static void scaling(void **state)
{
    (void)state;
    static const float factors[] = {3, -0.5f, 0.3f, 0, 1e30f};
    uint64_t random = 5;
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        const enum tutti_type t = (enum tutti_type)type;
        const size_t size = tutti_type_size(t);
        reference_fill(t, left, LARGE, &random);
        for (int f = 0; f < 5; f++) {
            char scalar[9];
            reference_fill(t, scalar + 1, 1, &random);
            if (tti_acc_type(t) == TUTTI_FLOAT32)
                tti_convert(scalar + 1, t, &factors[f], TUTTI_FLOAT32, 1, NULL);
            for (size_t i = 0; i < LARGE; i++)
                reference_scale(expected + i * size, left + i * size, scalar + 1, t);
            for (int v = 0; v < variant_count; v++) {
                assert_int_equal(tti_simd_force(variants[v]), TUTTI_OK);
                tti_scale(got + 1, left, scalar + 1, t, LARGE);
                assert_memory_equal(got + 1, expected, LARGE * size);
                memcpy(got + 3, left, LARGE * size);
                tti_scale(got + 3, got + 3, scalar + 1, t, LARGE); /* in place */
                assert_memory_equal(got + 3, expected, LARGE * size);
            }
        }
    }
}

/* Every quotient of the narrow integers, and the corners of the wide ones. */
static void integer_division(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 300; ranks++) {
        const struct tti_finish finish = {.average = true, .ranks = ranks};
        int8_t s8[256], s8_out[256];
        uint8_t u8[256], u8_out[256];
        for (int i = 0; i < 256; i++) {
            s8[i] = (int8_t)(i - 128);
            u8[i] = (uint8_t)i;
        }
        tti_convert(s8_out, TUTTI_INT8, s8, TUTTI_INT8, 256, &finish);
        tti_convert(u8_out, TUTTI_UINT8, u8, TUTTI_UINT8, 256, &finish);
        uint32_t u32[64], u32_out[64];
        int32_t s32[64], s32_out[64];
        for (int i = 0; i < 64; i++) { /* next to multiples, where rounding would show */
            u32[i] = UINT32_MAX / (uint32_t)ranks / (uint32_t)(i / 3 + 1) * (uint32_t)ranks +
                     (uint32_t)(i % 3) - 1;
            s32[i] = (int32_t)u32[i];
        }
        tti_convert(u32_out, TUTTI_UINT32, u32, TUTTI_UINT32, 64, &finish);
        tti_convert(s32_out, TUTTI_INT32, s32, TUTTI_INT32, 64, &finish);
        for (int i = 0; i < 256; i++) {
            assert_int_equal(s8_out[i], s8[i] / ranks);
            assert_int_equal(u8_out[i], u8[i] / ranks);
        }
        for (int i = 0; i < 64; i++) {
            assert_int_equal(u32_out[i], u32[i] / (uint32_t)ranks);
            assert_int_equal(s32_out[i], s32[i] / ranks);
        }
    }
}

static void copies(void **state)
{
    (void)state;
    const size_t large = (4 << 20) + 77, room = large + 256;
    char *from = malloc(room), *to = malloc(room);
    assert_true(from && to);
    for (size_t i = 0; i < room; i++)
        from[i] = (char)(i * 31 + (i >> 8));
    for (int v = 0; v < variant_count; v++) {
        assert_int_equal(tti_simd_force(variants[v]), TUTTI_OK);
        for (size_t shift = 0; shift < 70; shift += 23) {
            for (int big = 0; big < 2; big++) {
                const size_t bytes = big ? large - shift : shift;
                memset(to, GUARD, room);
                tti_copy_bytes(to + 64 + shift, from + 3 * shift / 2, bytes);
                assert_memory_equal(to + 64 + shift, from + 3 * shift / 2, bytes);
                assert_int_equal((unsigned char)to[63 + shift], GUARD);
                assert_int_equal((unsigned char)to[64 + shift + bytes], GUARD);
                memset(to, GUARD, room);
                tti_kernels_now()->copy_lines(to + 64 + shift, from + 3 * shift / 2, bytes);
                assert_memory_equal(to + 64 + shift, from + 3 * shift / 2, bytes);
                assert_int_equal((unsigned char)to[63 + shift], GUARD);
                assert_int_equal((unsigned char)to[64 + shift + bytes], GUARD);
            }
        }
    }
    tti_copy_bytes(NULL, NULL, 0);
    free(from);
    free(to);
}

static void forcing(void **state)
{
    (void)state;
    const char *before = tti_simd_name();
    assert_int_equal(tti_simd_force("sse9"), TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error(), "sse9"));
    for (int v = 0; v < variant_count; v++)
        assert_non_null(strstr(tutti_last_error(), variants[v]));
    assert_string_equal(tti_simd_name(), before);
}

/* Runs before anything has chosen: TUTTI_SIMD decides, and a bad name is passed over. */
static int set_up(void **state)
{
    (void)state;
    setenv("TUTTI_SIMD", "baseline", 1);
    if (strcmp(tti_simd_name(), "baseline") != 0)
        return -1;
    variant_count = reference_variants(variants);
    print_message("variants:");
    for (int v = 0; v < variant_count; v++)
        print_message(" %s", variants[v]);
    print_message("\n");
    return variant_count > 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reductions),       cmocka_unit_test(averages),
        cmocka_unit_test(operand_order),    cmocka_unit_test(scaling),
        cmocka_unit_test(integer_division), cmocka_unit_test(copies),
        cmocka_unit_test(forcing),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
