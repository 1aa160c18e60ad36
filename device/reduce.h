/* Element kernels on host memory: combine, convert, scale. The best variant for the CPU is chosen
 * once (baseline, AVX2, AVX-512, NEON; TUTTI_SIMD forces one by name). All variants give the same
 * bits.
 *
 * Every operand has its own type: the element type T, or its accumulator type tti_acc_type(T)
 * (float32 for 16- and 8-bit floats, T itself for all others). A NaN that arithmetic produces is
 * the positive quiet NaN without payload, so that no bit depends on the order of operands. */
#ifndef TTI_DEVICE_REDUCE_H
#define TTI_DEVICE_REDUCE_H

#include "base/error.h"
#include "tutti/tutti.h"

#include <stdbool.h>
#include <stddef.h>

enum tutti_type tti_acc_type(enum tutti_type type);

/* Finishing: applied to a complete reduction before it is rounded to the element type. */
struct tti_finish {
    bool average; /* divide by `ranks` (integers: truncating division) */
    int ranks;
};

/* dst[i] = finish(a[i] (op) b[i]) for i < count. op: SUM, PROD, MAX or MIN. Types: each of dst, a,
 * b is T or acc(T) of one T. `finish` NULL: none. dst may be exactly an operand of its own type;
 * other overlap is not allowed. No alignment is required. */
void tti_reduce(enum tutti_op op, void *dst, enum tutti_type dst_type, const void *a,
                enum tutti_type a_type, const void *b, enum tutti_type b_type, size_t count,
                const struct tti_finish *finish);

/* dst[i] = finish(src[i]), converted. dst may be exactly src when the types are equal. */
void tti_convert(void *dst, enum tutti_type dst_type, const void *src, enum tutti_type src_type,
                 size_t count, const struct tti_finish *finish);

/* dst[i] = src[i] * *scalar, computed in acc(type), rounded to `type`; scalar is one `type`. */
void tti_scale(void *dst, const void *src, const void *scalar, enum tutti_type type, size_t count);

/* memcpy that stays out of the caches when `bytes` is large. */
void tti_copy_bytes(void *dst, const void *src, size_t bytes);

/* Around the caches, whatever the size; all stores are ordered before the return. */
void tti_copy_around(void *dst, const void *src, size_t bytes);

/* tti_copy_bytes of what another core has just written, by stores that fetch each line where
 * tti_copy_expect_lanes says so. */
void tti_copy_received(void *dst, const void *src, size_t bytes);

enum { TTI_STREAM_BYTES = 16 << 10 }; /* the least copy that tti_copy_expect can send around */

/* Tell this thread how many bytes the operation under way reads and writes in all: when they are
 * more than the last cache holds, its copies go around the caches from 16 KiB up, since nothing
 * that they write will still be there when it is read. 0 takes it back. */
void tti_copy_expect(size_t operation_bytes);
/* The same for one that goes over the same memory again and again, from the front and from the end
 * by turns (tti_fuse's from_end), of `touched` bytes: what a cluster's L3 holds is met there
 * whatever else it has to hold, so this stays in the caches until it alone is more. Where a mesh
 * has one L3 for all, how much of it is ours is a guess, and `operation_bytes` decide. */
void tti_copy_expect_turns(size_t operation_bytes, size_t touched);
/* Is it more, on this thread's present word? */
bool tti_copy_streams(void);
/* Is it so much more that hardly anything is still there which a peer's core has used before? */
bool tti_copy_spills(void);
/* tti_copy_expect, by the bytes for which the caches must have room, of one that receives by so
 * many lanes. The rings of several fill a second-level cache. Where few cores share an L3, what is
 * then received by strings of bytes, as the C library's memcpy moves, is now and then in a state
 * that lasts: a string does not fetch the lines that it writes, and those that are in no cache stay
 * in none, which takes twice the time and more. Stores that fetch cost 4 to 20% where that does not
 * happen. */
void tti_copy_expect_lanes(size_t operation_bytes, size_t cached, int lanes);
bool tti_copy_fetches(void);
/* Where tti_copy_fetches says so, which is quicker is measured (copy_trial.h): this time by strings
 * after all, and with a look at the clock. */
void tti_copy_choose(bool strings, bool timed);
/* Nanoseconds a byte of all that this thread has received since it was told to look at the clock;
 * 0: nothing, or nothing that large. */
float tti_copy_took(void);

/* Many operands, many results (fuse.c): dsts[d][i] = finish(srcs[0][i] (op) srcs[1][i] (op) ...)
 * for all d, combined from the left in acc(type), rounded once. One source: a copy, `finish` NULL.
 * A dst may be exactly a source. Respects tti_copy_expect; all stores are ordered before the
 * return. `from_end`: the last elements first, but for what goes around the caches; the same
 * results. Over and over the same memory, forwards and from the end by turns, what the caches hold
 * of the last time is met first; always forwards, it is thrown out before its turn comes. */
void tti_fuse(enum tutti_op op, enum tutti_type type, void *const *dsts, int dst_count,
              const void *const *srcs, int src_count, size_t count, const struct tti_finish *finish,
              bool from_end);

/* The variant in use ("avx512", ...), and forcing one: TUTTI_ERR_UNSUPPORTED lists those that this
 * CPU runs. Forcing is for tests; not thread-safe. */
const char *tti_simd_name(void);
enum tutti_result tti_simd_force(const char *name);

#endif
