/* CRC-32C in three ways (crc32c.h).
 *
 * In the reflected form that this CRC has, bit 31 of a word is the coefficient of x^0 and the first
 * byte of the message has the highest powers. Folding: a block of the message is worth the same,
 * modulo the polynomial P, as its product with x^n mod P added to what comes n bits later. So the
 * message is folded onto its last 16 bytes, whose CRC the processor's own instruction computes.
 * All constants are made from P, in the first call.
 * Source: V. Gopal and others, Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
 * Instruction, Intel 2009. */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define CRC_POLYNOMIAL UINT32_C(0x82f63b78) /* reflected */

static uint32_t crc_table[8][256];

/* ---- tables --------------------------------------------------------------------------------- */

static void crc_make_tables(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++)
            value = value >> 1 ^ (value & 1 ? CRC_POLYNOMIAL : 0);
        crc_table[0][i] = value;
    }
    for (int slice = 1; slice < 8; slice++)
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t value = crc_table[slice - 1][i];
            crc_table[slice][i] = value >> 8 ^ crc_table[0][value & 255];
        }
}

static uint32_t crc_by_tables(uint32_t state, const uint8_t *data, size_t bytes)
{
    for (; bytes >= 8; bytes -= 8, data += 8) {
        uint32_t low = state ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 |
                                (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        state = crc_table[7][low & 255] ^ crc_table[6][low >> 8 & 255] ^
                crc_table[5][low >> 16 & 255] ^ crc_table[4][low >> 24] ^ crc_table[3][data[4]] ^
                crc_table[2][data[5]] ^ crc_table[1][data[6]] ^ crc_table[0][data[7]];
    }
    for (; bytes > 0; bytes--)
        state = state >> 8 ^ crc_table[0][(state ^ *data++) & 255];
    return state;
}

static bool crc_anywhere(void)
{
    return true;
}

/* ---- carry-less products -------------------------------------------------------------------- */

#if defined(__x86_64__)

/* The factors that move the two halves of 16 bytes so many bits on. */
struct crc_factors {
    uint64_t low, high;
};

static struct crc_factors crc_by_2048, crc_by_512, crc_by_128;

/* x^n mod P, reflected, one bit up: the product of two reflected words lies one bit too low. */
static uint64_t crc_power(unsigned n)
{
    uint32_t value = UINT32_C(1) << 31;
    while (n-- > 0)
        value = value >> 1 ^ (value & 1 ? CRC_POLYNOMIAL : 0);
    return (uint64_t)value << 1;
}

static struct crc_factors crc_factors(unsigned bits)
{
    return (struct crc_factors){.low = crc_power(bits + 32), .high = crc_power(bits - 32)};
}

#define CRC_FOLD_ISA "sse4.2,pclmul"
#define CRC_WIDE_ISA "sse4.2,pclmul,avx512f,avx512vl,vpclmulqdq"

__attribute__((target(CRC_FOLD_ISA))) static uint32_t crc_short(uint32_t state, const uint8_t *data,
                                                                size_t bytes)
{
    uint64_t wide = state;
    for (; bytes >= 8; bytes -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, sizeof word);
        wide = _mm_crc32_u64(wide, word);
    }
    state = (uint32_t)wide;
    for (; bytes > 0; bytes--)
        state = _mm_crc32_u8(state, *data++);
    return state;
}

__attribute__((target(CRC_FOLD_ISA))) static __m128i crc_load(const uint8_t *data)
{
    return _mm_loadu_si128((const __m128i *)(const void *)data);
}

/* `block`, moved on, added to `next`. */
__attribute__((target(CRC_FOLD_ISA))) static __m128i crc_fold(__m128i block, __m128i next,
                                                              const struct crc_factors *by)
{
    __m128i factors = _mm_set_epi64x((long long)by->high, (long long)by->low);
    __m128i low = _mm_clmulepi64_si128(block, factors, 0x00);
    __m128i high = _mm_clmulepi64_si128(block, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* Four neighbours become one, which takes in what follows; the instruction does the rest. */
__attribute__((target(CRC_FOLD_ISA))) static uint32_t crc_finish(const __m128i block[4],
                                                                 const uint8_t *data, size_t bytes)
{
    uint8_t last[16];
    __m128i all = block[0];
    for (int i = 1; i < 4; i++)
        all = crc_fold(all, block[i], &crc_by_128);
    for (; bytes >= 16; bytes -= 16, data += 16)
        all = crc_fold(all, crc_load(data), &crc_by_128);
    _mm_storeu_si128((__m128i *)(void *)last, all);
    return crc_short(crc_short(0, last, sizeof last), data, bytes);
}

__attribute__((target(CRC_FOLD_ISA))) static uint32_t crc_by_16(uint32_t state, const uint8_t *data,
                                                                size_t bytes)
{
    if (bytes < 128)
        return crc_short(state, data, bytes);
    /* Four variables, not an array: that would lie in memory, and each turn wait for its stores. */
    __m128i a = _mm_xor_si128(crc_load(data), _mm_cvtsi32_si128((int)state));
    __m128i b = crc_load(data + 16), c = crc_load(data + 32), d = crc_load(data + 48);
    const struct crc_factors by = crc_by_512;
    for (data += 64, bytes -= 64; bytes >= 64; data += 64, bytes -= 64) {
        a = crc_fold(a, crc_load(data), &by);
        b = crc_fold(b, crc_load(data + 16), &by);
        c = crc_fold(c, crc_load(data + 32), &by);
        d = crc_fold(d, crc_load(data + 48), &by);
    }
    return crc_finish((const __m128i[]){a, b, c, d}, data, bytes);
}

static bool crc_has_fold(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("pclmul");
}

__attribute__((target(CRC_WIDE_ISA))) static __m512i crc_fold_wide(__m512i block, __m512i next,
                                                                   __m512i factors)
{
    __m512i low = _mm512_clmulepi64_epi128(block, factors, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(block, factors, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96); /* all three, by exclusive or */
}

__attribute__((target(CRC_WIDE_ISA))) static __m512i crc_factors_wide(const struct crc_factors *by)
{
    return _mm512_broadcast_i32x4(_mm_set_epi64x((long long)by->high, (long long)by->low));
}

__attribute__((target(CRC_WIDE_ISA))) static uint32_t crc_by_64(uint32_t state, const uint8_t *data,
                                                                size_t bytes)
{
    __m128i last[4];
    if (bytes < 512)
        return crc_by_16(state, data, bytes);
    __m512i a = _mm512_xor_si512(_mm512_loadu_si512(data),
                                 _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)state)));
    __m512i b = _mm512_loadu_si512(data + 64), c = _mm512_loadu_si512(data + 128);
    __m512i d = _mm512_loadu_si512(data + 192);
    __m512i factors = crc_factors_wide(&crc_by_2048);
    for (data += 256, bytes -= 256; bytes >= 256; data += 256, bytes -= 256) {
        a = crc_fold_wide(a, _mm512_loadu_si512(data), factors);
        b = crc_fold_wide(b, _mm512_loadu_si512(data + 64), factors);
        c = crc_fold_wide(c, _mm512_loadu_si512(data + 128), factors);
        d = crc_fold_wide(d, _mm512_loadu_si512(data + 192), factors);
    }
    factors = crc_factors_wide(&crc_by_512);
    __m512i all = crc_fold_wide(a, b, factors);
    all = crc_fold_wide(crc_fold_wide(all, c, factors), d, factors);
    for (; bytes >= 64; data += 64, bytes -= 64)
        all = crc_fold_wide(all, _mm512_loadu_si512(data), factors);
    _mm512_storeu_si512(last, all);
    _mm256_zeroupper(); /* else whoever uses SSE after us pays for it: encryption lost a third */
    return crc_finish(last, data, bytes);
}

static bool crc_has_wide(void)
{
    return crc_has_fold() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("vpclmulqdq");
}

#endif

/* ---- which ---------------------------------------------------------------------------------- */

static const struct tti_crc32c_way crc_ways[] = {
#if defined(__x86_64__)
    {"vpclmulqdq", crc_has_wide, crc_by_64},
    {"pclmulqdq", crc_has_fold, crc_by_16},
#endif
    {"tables", crc_anywhere, crc_by_tables},
};

static pthread_once_t crc_once = PTHREAD_ONCE_INIT;
static const struct tti_crc32c_way *crc_chosen;

static void crc_choose(void)
{
    crc_make_tables();
#if defined(__x86_64__)
    crc_by_2048 = crc_factors(2048);
    crc_by_512 = crc_factors(512);
    crc_by_128 = crc_factors(128);
#endif
    crc_chosen = crc_ways;
    while (!crc_chosen->runs_here())
        crc_chosen++;
}

uint32_t tti_crc32c(uint32_t before, const void *data, size_t bytes)
{
    pthread_once(&crc_once, crc_choose);
    return ~crc_chosen->update(~before, data, bytes);
}

const struct tti_crc32c_way *tti_crc32c_way(size_t index)
{
    pthread_once(&crc_once, crc_choose);
    return index < sizeof crc_ways / sizeof crc_ways[0] ? &crc_ways[index] : NULL;
}
