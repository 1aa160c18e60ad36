/* CRC-32C in five ways (crc32c.h).
 *
 * In the reflected form that this CRC has, bit 31 of a word is the coefficient of x^0 and the first
 * byte of the message has the highest powers. Folding: a block of the message is worth the same,
 * modulo the polynomial P, as its product with x^n mod P added to what comes n bits later. So the
 * message is folded onto its last 16 bytes, whose CRC the processor's own instruction computes.
 * Mapping, at its place below, does the same by other means. All constants are made from P, in the
 * first call.
 * Sources: V. Gopal and others, Fast CRC Computation for Generic Polynomials Using PCLMULQDQ
 * Instruction, Intel 2009; for both units at once, P. Cawley, Faster CRC32-C on x86, 2022. */
#include "base/crc32c.h"

#include "base/atomic.h"
#include "base/clock.h"

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

/* Four neighbours of 64 bytes become one. */
__attribute__((target(CRC_WIDE_ISA))) static __m512i crc_join_wide(__m512i a, __m512i b, __m512i c,
                                                                   __m512i d)
{
    __m512i factors = crc_factors_wide(&crc_by_512);
    __m512i all = crc_fold_wide(a, b, factors);
    return crc_fold_wide(crc_fold_wide(all, c, factors), d, factors);
}

/* From here on it pays to come to a multiple of 64 bytes first: of loads of 64 bytes from elsewhere
 * each takes two lines, and a long message a quarter more time. */
enum { CRC_ALIGN_LEAST = 4 * 1024 };

__attribute__((target(CRC_WIDE_ISA))) static uint32_t crc_by_64(uint32_t state, const uint8_t *data,
                                                                size_t bytes)
{
    __m128i last[4];
    if (bytes < 512)
        return crc_by_16(state, data, bytes);
    if (bytes >= CRC_ALIGN_LEAST) {
        const size_t before = -(uintptr_t)data % 64;
        state = crc_short(state, data, before);
        data += before;
        bytes -= before;
    }
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
    __m512i all = crc_join_wide(a, b, c, d);
    factors = crc_factors_wide(&crc_by_512);
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

/* ---- products and the CRC instruction at once ----------------------------------------------- */

/* Each has units of its own in the processor, which idle while the others work. So the first part
 * of a long message is folded, and meanwhile the rest goes through the instruction. That takes
 * three cycles, and newer processors begin two in each, so there are six parts of it. */
enum {
    CRC_FOLDED = 256, /* bytes of the first part in one turn of the loop */
    CRC_PART = 32,    /* of each of the others */
    CRC_TURN = CRC_FOLDED + 6 * CRC_PART,
    CRC_BOTH_LEAST = 4 * 1024, /* joining the parts costs as much as some 2 KiB */
    CRC_MOVES = 40,
};

/* x^(8 CRC_PART 2^i - 33) mod P, reflected. */
static uint32_t crc_moves[CRC_MOVES];

/* a b x^33 mod P: the product of two reflected words lies one bit too low, and the instruction
 * moves what it divides by 32. */
__attribute__((target(CRC_FOLD_ISA))) static uint32_t crc_move(uint32_t a, uint32_t b)
{
    __m128i product =
        _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)a), _mm_cvtsi32_si128((int)b), 0x00);
    return (uint32_t)_mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(product));
}

/* The factor that crc_move takes to move a state behind so many times CRC_PART bytes. */
__attribute__((target(CRC_FOLD_ISA))) static uint32_t crc_move_by(size_t parts)
{
    uint32_t factor = crc_moves[__builtin_ctzl(parts)];
    for (parts &= parts - 1; parts > 0; parts &= parts - 1)
        factor = crc_move(factor, crc_moves[__builtin_ctzl(parts)]);
    return factor;
}

__attribute__((target(CRC_FOLD_ISA))) static void crc_make_moves(void)
{
    crc_moves[0] = (uint32_t)(crc_power(8 * CRC_PART - 33) >> 1);
    for (int i = 1; i < CRC_MOVES; i++)
        crc_moves[i] = crc_move(crc_moves[i - 1], crc_moves[i - 1]);
}

__attribute__((target(CRC_FOLD_ISA))) static inline uint64_t crc_word(uint64_t state,
                                                                      const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return _mm_crc32_u64(state, word);
}

/* The remainders of six equal parts, `part` bytes each, three from `low` on and three from `high`,
 * which are summed side by side: one alone waits for itself. */
struct crc_six {
    uint64_t low0, low1, low2, high0, high1, high2;
};

/* The next CRC_PART bytes of each. */
__attribute__((target(CRC_WIDE_ISA))) static inline void
crc_six_on(struct crc_six *six, const uint8_t *low, const uint8_t *high, size_t part)
{
#pragma GCC unroll 4
    for (int i = 0; i < CRC_PART; i += 8, low += 8, high += 8) {
        six->low0 = crc_word(six->low0, low);
        six->low1 = crc_word(six->low1, low + part);
        six->low2 = crc_word(six->low2, low + 2 * part);
        six->high0 = crc_word(six->high0, high);
        six->high1 = crc_word(six->high1, high + part);
        six->high2 = crc_word(six->high2, high + 2 * part);
    }
}

/* `state`, and behind it the six parts; `by` moves over one (crc_move_by). */
__attribute__((target(CRC_FOLD_ISA))) static inline uint32_t
crc_six_join(uint32_t state, const struct crc_six *six, uint32_t by)
{
    const uint64_t parts[] = {six->low0, six->low1, six->low2, six->high0, six->high1, six->high2};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        state = crc_move(state, by) ^ (uint32_t)parts[i];
    return state;
}

__attribute__((target(CRC_WIDE_ISA))) static uint32_t crc_by_both(uint32_t state,
                                                                  const uint8_t *data, size_t bytes)
{
    if (bytes < CRC_BOTH_LEAST)
        return crc_by_64(state, data, bytes);
    const size_t turns = bytes / CRC_TURN, part = turns * CRC_PART;
    const uint8_t *low = data + turns * CRC_FOLDED, *high = low + 3 * part;
    const uint8_t *rest = data + turns * CRC_TURN;
    const __m512i factors = crc_factors_wide(&crc_by_2048);
    struct crc_six six = {0, 0, 0, 0, 0, 0};
    /* Folding zeros onto the first turn changes nothing, so that all turns are alike. */
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    __m512i begin = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)state));
    for (size_t turn = 0; turn < turns; turn++, data += CRC_FOLDED) {
        a = crc_fold_wide(a, _mm512_xor_si512(_mm512_loadu_si512(data), begin), factors);
        b = crc_fold_wide(b, _mm512_loadu_si512(data + 64), factors);
        c = crc_fold_wide(c, _mm512_loadu_si512(data + 128), factors);
        d = crc_fold_wide(d, _mm512_loadu_si512(data + 192), factors);
        begin = _mm512_setzero_si512();
        crc_six_on(&six, low, high, part);
        low += CRC_PART;
        high += CRC_PART;
    }
    __m128i last[4];
    _mm512_storeu_si512(last, crc_join_wide(a, b, c, d));
    _mm256_zeroupper(); /* as above */
    const uint32_t by = crc_move_by(turns);
    state = crc_six_join(crc_finish(last, NULL, 0), &six, by);
    return crc_by_16(state, rest, bytes - turns * CRC_TURN);
}

/* ---- maps of bytes and the CRC instruction at once ------------------------------------------ */

/* A byte of the message is worth the same, modulo P, as four other bytes that come 5, 6, 7 and 8
 * times 64 bytes later, each a linear map of it: four bytes have the 32 bits that a remainder has,
 * and these places make every one. The processor maps 64 bytes at once, and AMD's newest begin two
 * such in a cycle, where a carry-less product of 64 bytes takes two cycles: four maps for 64 bytes
 * take half the time of two products, in other words. */
enum {
    CRC_MAPPED = 512, /* bytes of the first part in one turn of the loop */
    CRC_MAP_TURN = CRC_MAPPED + 6 * CRC_PART,
    CRC_AHEAD = 1024,     /* asked for, of the first part, and of the others: from memory a third */
    CRC_PART_AHEAD = 256, /* quicker, from the third-level cache a quarter */
};

#define CRC_MAP_ISA CRC_WIDE_ISA ",avx512bw,gfni"

/* 64 bits that gf2p8affineqb multiplies a byte by; of 8, 7, 6 and 5 times 64 bytes. */
static uint64_t crc_maps[4];

/* A remainder, and which of the 32 bits of four bytes make it. */
struct crc_mix {
    uint32_t value, of;
};

/* What is left of `mix` without those in `basis` (by their highest bit), to which it is added. */
static uint32_t crc_reduce(struct crc_mix basis[32], struct crc_mix mix)
{
    for (unsigned bit = 32; bit-- > 0;) {
        if (!(mix.value >> bit & 1))
            continue;
        if (!basis[bit].value) {
            basis[bit] = mix;
            break;
        }
        mix.value ^= basis[bit].value;
        mix.of ^= basis[bit].of;
    }
    return mix.of;
}

static void crc_make_maps(void)
{
    struct crc_mix basis[32] = {{0, 0}};
    for (unsigned i = 0; i < 32; i++) /* bit i % 8, which is x^(7 - i % 8), of byte i / 8 */
        (void)crc_reduce(basis,
                         (struct crc_mix){(uint32_t)(crc_power(512 * (i / 8) + 7 - i % 8) >> 1),
                                          UINT32_C(1) << i});
    for (unsigned from = 0; from < 8; from++) {
        const uint32_t value = (uint32_t)(crc_power(512 * 8 + 7 - from) >> 1);
        const uint32_t of = crc_reduce(basis, (struct crc_mix){value, 0});
        for (unsigned i = 0; i < 32; i++)
            crc_maps[i / 8] |= (uint64_t)(of >> i & 1) << (8 * (7 - i % 8) + from);
    }
}

struct crc_maps_wide {
    __m512i by8, by7, by6, by5;
};

/* `next` and what the bytes 5 to 8 times 64 before it are worth there. */
__attribute__((target(CRC_MAP_ISA))) static inline __m512i
crc_map(__m512i next, __m512i b5, __m512i b6, __m512i b7, __m512i b8, struct crc_maps_wide maps)
{
    b5 = _mm512_gf2p8affine_epi64_epi8(b5, maps.by5, 0);
    b6 = _mm512_gf2p8affine_epi64_epi8(b6, maps.by6, 0);
    b7 = _mm512_gf2p8affine_epi64_epi8(b7, maps.by7, 0);
    b8 = _mm512_gf2p8affine_epi64_epi8(b8, maps.by8, 0);
    return _mm512_ternarylogic_epi64(_mm512_ternarylogic_epi64(next, b5, b6, 0x96), b7, b8, 0x96);
}

/* Eight neighbours of 64 bytes become one. */
__attribute__((target(CRC_MAP_ISA))) static uint32_t crc_finish_maps(const __m512i block[8])
{
    __m128i last[4];
    const __m512i factors = crc_factors_wide(&crc_by_512);
    __m512i all = block[0];
    for (int i = 1; i < 8; i++)
        all = crc_fold_wide(all, block[i], factors);
    _mm512_storeu_si512(last, all);
    _mm256_zeroupper(); /* as above */
    return crc_finish(last, NULL, 0);
}

/* Ask for what some turns further on will take. */
static inline void crc_ask(const uint8_t *data, const uint8_t *low, const uint8_t *high,
                           size_t part)
{
    for (size_t at = 0; at < CRC_MAPPED; at += 64)
        tti_prefetch_read(data + CRC_AHEAD + at);
    for (size_t at = 0; at < 3; at++) {
        tti_prefetch_read(low + at * part + CRC_PART_AHEAD);
        tti_prefetch_read(high + at * part + CRC_PART_AHEAD);
    }
}

/* As crc_by_both, whose loop this is but for the maps; `low` begins behind one more turn of them.
 * That one takes only what comes from before it, so that nothing is left to be carried further. */
__attribute__((target(CRC_MAP_ISA))) static uint32_t crc_by_maps(uint32_t state,
                                                                 const uint8_t *data, size_t bytes)
{
    if (bytes < CRC_BOTH_LEAST)
        return crc_by_64(state, data, bytes);
    const size_t turns = (bytes - CRC_MAPPED) / CRC_MAP_TURN, part = turns * CRC_PART;
    const uint8_t *low = data + (turns + 1) * CRC_MAPPED, *high = low + 3 * part;
    const uint8_t *end = data + bytes;
    const struct crc_maps_wide by = {
        _mm512_set1_epi64((long long)crc_maps[0]), _mm512_set1_epi64((long long)crc_maps[1]),
        _mm512_set1_epi64((long long)crc_maps[2]), _mm512_set1_epi64((long long)crc_maps[3])};
    struct crc_six six = {0, 0, 0, 0, 0, 0};
    const __m512i none = _mm512_setzero_si512();
    __m512i a = none, b = none, c = none, d = none, e = none, f = none, g = none, h = none;
    __m512i begin = _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)state));
    for (size_t turn = 0; turn < turns; turn++, data += CRC_MAPPED) {
        crc_ask(data, low, high, part);
        a = crc_map(_mm512_xor_si512(_mm512_loadu_si512(data), begin), d, c, b, a, by);
        b = crc_map(_mm512_loadu_si512(data + 64), e, d, c, b, by);
        c = crc_map(_mm512_loadu_si512(data + 128), f, e, d, c, by);
        d = crc_map(_mm512_loadu_si512(data + 192), g, f, e, d, by);
        e = crc_map(_mm512_loadu_si512(data + 256), h, g, f, e, by);
        f = crc_map(_mm512_loadu_si512(data + 320), a, h, g, f, by);
        g = crc_map(_mm512_loadu_si512(data + 384), b, a, h, g, by);
        h = crc_map(_mm512_loadu_si512(data + 448), c, b, a, h, by);
        begin = none;
        crc_six_on(&six, low, high, part);
        low += CRC_PART;
        high += CRC_PART;
    }
    const __m512i last[] = {crc_map(_mm512_loadu_si512(data), d, c, b, a, by),
                            crc_map(_mm512_loadu_si512(data + 64), e, d, c, b, by),
                            crc_map(_mm512_loadu_si512(data + 128), f, e, d, c, by),
                            crc_map(_mm512_loadu_si512(data + 192), g, f, e, d, by),
                            crc_map(_mm512_loadu_si512(data + 256), h, g, f, e, by),
                            crc_map(_mm512_loadu_si512(data + 320), none, h, g, f, by),
                            crc_map(_mm512_loadu_si512(data + 384), none, none, h, g, by),
                            crc_map(_mm512_loadu_si512(data + 448), none, none, none, h, by)};
    const uint32_t move = crc_move_by(turns);
    state = crc_six_join(crc_finish_maps(last), &six, move);
    high += 2 * part;
    return crc_by_16(state, high, (size_t)(end - high));
}

static bool crc_has_maps(void)
{
    return crc_has_wide() && __builtin_cpu_supports("gfni");
}

#endif

/* ---- which ---------------------------------------------------------------------------------- */

static const struct tti_crc32c_way crc_ways[] = {
#if defined(__x86_64__)
    {"gf2p8affineqb and crc32", crc_has_maps, crc_by_maps},
    {"vpclmulqdq and crc32", crc_has_wide, crc_by_both},
    {"vpclmulqdq", crc_has_wide, crc_by_64},
    {"pclmulqdq", crc_has_fold, crc_by_16},
#endif
    {"tables", crc_anywhere, crc_by_tables},
};

static pthread_once_t crc_once = PTHREAD_ONCE_INIT;
static const struct tti_crc32c_way *crc_chosen;

#if defined(__x86_64__)
/* Of summing some KiB, the least of a few: the others met something else. */
static uint64_t crc_time(const struct tti_crc32c_way *way)
{
    uint8_t data[32 * 1024] = {0};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < 8; i++) {
        const uint64_t begin = tti_now_ns();
        data[i] = (uint8_t)way->update(0, data, sizeof data);
        const uint64_t took = tti_now_ns() - begin;
        least = took < least ? took : least;
    }
    return least;
}
#endif

static void crc_choose(void)
{
    crc_make_tables();
    crc_chosen = crc_ways;
#if defined(__x86_64__)
    crc_by_2048 = crc_factors(2048);
    crc_by_512 = crc_factors(512);
    crc_by_128 = crc_factors(128);
    crc_make_maps();
    if (crc_has_fold())
        crc_make_moves();
    while (!crc_chosen->runs_here())
        crc_chosen++;
    /* Which of the wide ones is quickest differs between processors: AMD's begin two CRC
     * instructions and two maps in a cycle, Intel's one and a carry-less product, twice AMD's. */
    if (crc_has_wide()) {
        const struct tti_crc32c_way *way = crc_chosen;
        for (uint64_t least = crc_time(way); (++way)->update != crc_by_16;) {
            const uint64_t took = crc_time(way);
            crc_chosen = took < least ? way : crc_chosen;
            least = took < least ? took : least;
        }
    }
#endif
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
