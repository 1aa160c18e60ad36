/* The kernels copy and reduce_copy against the CPU's (device/reduce.h), bit for bit: all types and
 * operators, several sources and destinations, element and accumulator operands mixed, averaging
 * and scaling, odd counts and addresses, in place, and every pattern of the small formats. */
#include "device/reduce.h"
#include "tests/device/gpu_under_test.h"
#include "tests/device/reference.h"
#include "tests/tutti_cmocka.h"

#include <stdlib.h>
#include <string.h>

enum { MOST = 3000, ROOM = 8 * MOST + 64, OPERANDS = 5, GUARD = 0xa5 };

static struct tti_gpu *gpu;
static uint64_t seed = 12; /* of one source, bits of others that there are not, and NaNs */
static char *device_src[OPERANDS], *device_dst[OPERANDS];
static char host_src[OPERANDS][ROOM], host_dst[ROOM];

static int setup(void **state)
{
    (void)state;
    int count = 0;
    GPU_OK(gpu_ops()->count(&count));
    if (count == 0)
        return 0;
    gpu = gpu_open(0);
    for (int i = 0; i < OPERANDS; i++) {
        device_src[i] = gpu_memory(gpu, ROOM, NULL);
        device_dst[i] = gpu_memory(gpu, ROOM, NULL);
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; gpu && i < OPERANDS; i++) {
        gpu->ops->free(gpu, device_src[i]);
        gpu->ops->free(gpu, device_dst[i]);
    }
    if (gpu)
        gpu->ops->close(gpu);
    return 0;
}

/* Any bits; every few elements special ones: zeros, infinities, NaNs, the least and the largest. */
static void fill(char *at, enum tutti_type type, size_t count)
{
    static const uint32_t top[] = {0,          0x80000000, 0x7f800000, 0xff800000, 0x7fc00001, 1,
                                   0x7f800001, 0x3f800000, 0xbf800000, 0x7f7fffff, 0x00800000};
    const size_t size = tutti_type_size(type);
    for (size_t i = 0; i < count; i++) {
        uint64_t word = reference_random(&seed);
        if (word % 5 == 0) {
            word = top[word / 5 % 11];
            if (type == TUTTI_FLOAT64)
                word <<= 32;
            else if (size < 4)
                word >>= 32 - 8 * size;
        }
        memcpy(at + i * size, &word, size);
    }
}

struct shape {
    enum tutti_type type;
    enum tutti_op op;
    uint32_t srcs, dsts, src_wide, dst_wide, divisor, scaled;
    size_t count;
    unsigned skew; /* of the addresses, in bytes; operands differ when it is odd */
    bool in_place;
};

static enum tutti_type operand_type(const struct shape *s, uint32_t wide, uint32_t k)
{
    return wide >> k & 1 ? tti_acc_type(s->type) : s->type;
}

static size_t operand_shift(const struct shape *s, uint32_t k)
{
    return s->skew % 2 ? s->skew * (k + 1) % 16 : s->skew;
}

/* What destination k must hold, by the CPU's kernels. */
static void expect(const struct shape *s, uint32_t k, const void *scale, char *to)
{
    static char scaled[OPERANDS][ROOM], total[2][ROOM];
    const enum tutti_type acc = tti_acc_type(s->type), to_type = operand_type(s, s->dst_wide, k);
    const struct tti_finish finish = {.average = s->divisor > 0, .ranks = (int)s->divisor};
    const char *src[OPERANDS];
    for (uint32_t i = 0; i < s->srcs; i++) {
        src[i] = host_src[i];
        if (s->scaled >> i & 1) {
            tti_scale(scaled[i], host_src[i], scale, s->type, s->count);
            src[i] = scaled[i];
        }
    }
    if (s->srcs == 1) {
        tti_convert(to, to_type, src[0], operand_type(s, s->src_wide, 0), s->count, &finish);
        return;
    }
    tti_convert(total[0], acc, src[0], operand_type(s, s->src_wide, 0), s->count, NULL);
    for (uint32_t i = 1; i < s->srcs; i++) {
        const bool last = i == s->srcs - 1;
        tti_reduce(s->op, last ? to : total[i % 2], last ? to_type : acc, total[(i - 1) % 2], acc,
                   src[i], operand_type(s, s->src_wide, i), s->count, last ? &finish : NULL);
    }
}

static void check_destination(const struct shape *s, uint32_t k, const char *memory,
                              const char *expected)
{
    const enum tutti_type type = operand_type(s, s->dst_wide, k);
    const size_t size = tutti_type_size(type), bytes = s->count * size;
    gpu_read(gpu, host_dst, memory - 16, bytes + 32);
    for (size_t i = 0; i < s->count; i++) {
        uint64_t want = 0, have = 0;
        memcpy(&want, expected + i * size, size);
        memcpy(&have, host_dst + 16 + i * size, size);
        if (want != have)
            fail_msg("%s %s, %u sources (wide %x, scaled %x), destination %u (%s), divisor %u, "
                     "count %zu, skew %u%s: element %zu is 0x%llx, expected 0x%llx",
                     tutti_type_name(s->type), tutti_op_name(s->op), s->srcs, s->src_wide,
                     s->scaled, k, tutti_type_name(type), s->divisor, s->count, s->skew,
                     s->in_place ? ", in place" : "", i, (unsigned long long)have,
                     (unsigned long long)want);
    }
    for (size_t i = 0; i < 16; i++)
        if ((unsigned char)host_dst[i] != GUARD || (unsigned char)host_dst[16 + bytes + i] != GUARD)
            fail_msg("%s, count %zu, skew %u: a byte beside destination %u was written",
                     tutti_type_name(s->type), s->count, s->skew, k);
}

static void check(const struct shape *s)
{
    static char expected[ROOM];
    struct tti_reduce_copy_args args = {.count = s->count,
                                        .srcs = s->srcs,
                                        .dsts = s->dsts,
                                        .src_wide = s->src_wide,
                                        .dst_wide = s->dst_wide,
                                        .op = (uint32_t)s->op,
                                        .divisor = s->divisor,
                                        .scaled = s->scaled};
    fill((char *)&args.scale, s->type, 1);
    for (uint32_t i = 0; i < s->srcs; i++) {
        const enum tutti_type type = operand_type(s, s->src_wide, i);
        char *at = device_src[i] + 16 + operand_shift(s, i);
        fill(host_src[i], type, s->count);
        GPU_OK(gpu->ops->fill(gpu, device_src[i], GUARD, ROOM, NULL));
        GPU_OK(gpu->ops->copy(gpu, at, host_src[i], s->count * tutti_type_size(type), NULL));
        args.src[i] = at;
    }
    for (uint32_t k = 0; k < s->dsts; k++) {
        GPU_OK(gpu->ops->fill(gpu, device_dst[k], GUARD, ROOM, NULL));
        args.dst[k] = device_dst[k] + 16 + operand_shift(s, k + s->srcs);
    }
    if (s->in_place)
        args.dst[0] = (void *)(uintptr_t)args.src[0];
    const struct tti_gpu_launch launch = {.kernel = TTI_KERNEL_REDUCE_COPY,
                                          .type = s->type,
                                          .blocks = 1 + (unsigned)(seed % 3),
                                          .threads = 32u << seed % 2,
                                          .args = &args,
                                          .args_bytes = sizeof args};
    GPU_OK(gpu->ops->launch(gpu, &launch, NULL));
    for (uint32_t k = 0; k < s->dsts; k++) {
        expect(s, k, &args.scale, expected);
        check_destination(s, k, args.dst[k], expected);
    }
}

static const size_t counts[] = {1, 2, 7, 31, 64, 129, 500, 1001, 2999};
static const unsigned skews[] = {0, 0, 8, 3, 4, 1};

static void test_types_and_operators(void **state)
{
    (void)state;
    (void)gpu_devices(1);
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        for (int op = 0; op < 4; op++) {
            for (uint32_t srcs = 1; srcs <= OPERANDS; srcs += srcs == 2 ? 3 : 1) {
                const uint64_t dice = reference_random(&seed);
                const struct shape s = {.type = (enum tutti_type)type,
                                        .op = (enum tutti_op)op,
                                        .srcs = srcs,
                                        .dsts = 1 + (uint32_t)(dice >> 8) % 3,
                                        .count = counts[(dice >> 16) % 9],
                                        .skew = skews[(dice >> 24) % 6],
                                        .divisor = dice % 3 ? 0 : 1 + (dice >> 32) % 9,
                                        .scaled = dice % 4 ? 0 : (uint32_t)(dice >> 36) % 32,
                                        .in_place = dice % 5 == 0};
                check(&s);
            }
        }
    }
}

/* Partial sums in float32 beside 16- and 8-bit floats. */
static void test_accumulators(void **state)
{
    (void)state;
    (void)gpu_devices(1);
    static const enum tutti_type low[] = {TUTTI_FLOAT16, TUTTI_BFLOAT16, TUTTI_FLOAT8_E4M3,
                                          TUTTI_FLOAT8_E5M2};
    for (int round = 0; round < 60; round++) {
        const uint64_t dice = reference_random(&seed);
        const struct shape s = {.type = low[round % 4],
                                .op = (enum tutti_op)(dice % 4),
                                .srcs = 1 + (uint32_t)(dice >> 4) % 4,
                                .dsts = 1 + (uint32_t)(dice >> 8) % 2,
                                .src_wide = (uint32_t)(dice >> 12) % 16,
                                .dst_wide = (uint32_t)(dice >> 20) % 4,
                                .count = counts[(dice >> 28) % 9],
                                .skew = skews[(dice >> 36) % 6],
                                .divisor = (uint32_t)(dice >> 44) % 2 * 3};
        check(&s);
    }
}

/* Every pattern of a small format becomes the float32 of the CPU's kernels, and all float32 of some
 * leading bits, with other bits below, come back as theirs. */
static void test_all_patterns(void **state)
{
    (void)state;
    (void)gpu_devices(1);
    enum { PATTERNS = 1 << 16 };
    static const enum tutti_type low[] = {TUTTI_FLOAT16, TUTTI_BFLOAT16, TUTTI_FLOAT8_E4M3,
                                          TUTTI_FLOAT8_E5M2};
    uint32_t *wide = malloc(4 * PATTERNS), *got = malloc(4 * PATTERNS);
    uint32_t *expected = malloc(4 * PATTERNS);
    uint16_t *narrow = malloc(2 * PATTERNS);
    char *memory_narrow = gpu_memory(gpu, 2 * PATTERNS, NULL);
    char *memory_wide = gpu_memory(gpu, 4 * PATTERNS, NULL);
    for (int t = 0; t < 4; t++) {
        const size_t size = tutti_type_size(low[t]), all = size == 1 ? 256 : PATTERNS;
        for (size_t i = 0; i < all; i++)
            if (size == 1)
                ((uint8_t *)narrow)[i] = (uint8_t)i;
            else
                narrow[i] = (uint16_t)i;
        struct tti_reduce_copy_args args = {.src = {memory_narrow},
                                            .dst = {memory_wide},
                                            .count = all,
                                            .srcs = 1,
                                            .dsts = 1,
                                            .dst_wide = 1};
        const struct tti_gpu_launch launch = {.kernel = TTI_KERNEL_REDUCE_COPY,
                                              .type = low[t],
                                              .blocks = 2,
                                              .threads = 64,
                                              .args = &args,
                                              .args_bytes = sizeof args};
        gpu_write(gpu, memory_narrow, narrow, all * size);
        GPU_OK(gpu->ops->launch(gpu, &launch, NULL));
        gpu_read(gpu, got, memory_wide, 4 * all);
        tti_convert(expected, TUTTI_FLOAT32, narrow, low[t], all, NULL);
        assert_memory_equal(got, expected, 4 * all);

        for (int below = 0; below < 3; below++) {
            for (uint32_t i = 0; i < PATTERNS; i++) {
                const uint32_t random = (uint32_t)reference_random(&seed) & 0xffff;
                wide[i] = i << 16 | (below == 0 ? 0 : below == 1 ? 0x8000 : random);
            }
            args = (struct tti_reduce_copy_args){.src = {memory_wide},
                                                 .dst = {memory_narrow},
                                                 .count = PATTERNS,
                                                 .srcs = 1,
                                                 .dsts = 1,
                                                 .src_wide = 1};
            gpu_write(gpu, memory_wide, wide, 4 * PATTERNS);
            GPU_OK(gpu->ops->launch(gpu, &launch, NULL));
            gpu_read(gpu, got, memory_narrow, size * PATTERNS);
            tti_convert(expected, low[t], wide, TUTTI_FLOAT32, PATTERNS, NULL);
            assert_memory_equal(got, expected, size * PATTERNS);
        }
    }
    gpu->ops->free(gpu, memory_narrow);
    gpu->ops->free(gpu, memory_wide);
    free(narrow);
    free(expected);
    free(got);
    free(wide);
}

static void test_copy(void **state)
{
    (void)state;
    (void)gpu_devices(1);
    for (int round = 0; round < 40; round++) {
        const uint64_t dice = reference_random(&seed);
        const struct shape s = {.type = TUTTI_UINT8,
                                .srcs = 1,
                                .dsts = 1 + (uint32_t)dice % 3,
                                .count = (dice >> 8) % MOST,
                                .skew = (unsigned)(dice >> 32) % 16};
        struct tti_copy_args args = {
            .src = device_src[0] + 16 + operand_shift(&s, 0), .bytes = s.count, .dsts = s.dsts};
        fill(host_src[0], TUTTI_UINT8, s.count);
        gpu_write(gpu, device_src[0] + 16 + operand_shift(&s, 0), host_src[0], s.count);
        for (uint32_t k = 0; k < s.dsts; k++) {
            GPU_OK(gpu->ops->fill(gpu, device_dst[k], GUARD, ROOM, NULL));
            args.dst[k] = device_dst[k] + 16 + operand_shift(&s, k + 1);
        }
        const struct tti_gpu_launch launch = {.kernel = TTI_KERNEL_COPY,
                                              .blocks = 2,
                                              .threads = 32,
                                              .args = &args,
                                              .args_bytes = sizeof args};
        GPU_OK(gpu->ops->launch(gpu, &launch, NULL));
        for (uint32_t k = 0; k < s.dsts; k++)
            check_destination(&s, k, args.dst[k], host_src[0]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types_and_operators),
        cmocka_unit_test(test_accumulators),
        cmocka_unit_test(test_all_patterns),
        cmocka_unit_test(test_copy),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
