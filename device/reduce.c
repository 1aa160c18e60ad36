/* Reductions, conversions and copies of host memory (reduce.h): splits the work into blocks and
 * runs the kernels of the chosen variant over them. Read cpu/kernels.h next.
 *
 * Low-precision operands go block by block through float32 buffers that stay in the first-level
 * cache: widen, combine, finish, narrow. Accumulator operands are used where they lie. A block is
 * read completely before it is written, so dst may be a source. */
#include "device/reduce.h"

#include "base/clock.h"
#include "base/types.h"
#include "device/cpu/kernels.h"
#include "device/cpu_caches.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

enum {
    BLOCK = 1024,              /* elements of a converted block: two float32 buffers are 8 KiB */
    FINISH_BLOCK_BYTES = 8192, /* of dst, combined and then finished while it is in the cache */
    AROUND_BYTES = 2 << 20,    /* from here on copies leave the caches to others in any case */
};

enum tutti_type tti_acc_type(enum tutti_type type)
{
    switch (type) {
    case TUTTI_FLOAT16:
    case TUTTI_BFLOAT16:
    case TUTTI_FLOAT8_E4M3:
    case TUTTI_FLOAT8_E5M2:
        return TUTTI_FLOAT32;
    default:
        return type;
    }
}

static bool reduce_averages(const struct tti_finish *finish)
{
    return finish && finish->average;
}

/* The block at element `at` of `src` in the accumulator type: in place, or widened into `buffer`.
 */
static const void *reduce_load(const struct tti_kernels *kernels, const void *src,
                               enum tutti_type type, size_t at, size_t count, void *buffer)
{
    const char *block = (const char *)src + at * tti_type_bytes(type);
    if (tti_acc_type(type) == type)
        return block;
    kernels->widen[type](buffer, block, count);
    return buffer;
}

/* All operands have the accumulator type. */
static void reduce_plain(const struct tti_kernels *kernels, enum tutti_op op, enum tutti_type type,
                         char *dst, const char *a, const char *b, size_t count,
                         const struct tti_finish *finish)
{
    tti_combine_kernel *combine = kernels->combine[op][type];
    if (!reduce_averages(finish)) {
        combine(dst, a, b, count);
        return;
    }
    const size_t size = tti_type_bytes(type), block = FINISH_BLOCK_BYTES / size;
    for (size_t at = 0; at < count; at += block) {
        size_t n = count - at < block ? count - at : block;
        combine(dst + at * size, a + at * size, b + at * size, n);
        kernels->divide[type](dst + at * size, dst + at * size, n, finish->ranks);
    }
}

/* Some operand has another type than the accumulator. */
static __attribute__((noinline)) void
reduce_mixed(const struct tti_kernels *kernels, enum tutti_op op, void *dst,
             enum tutti_type dst_type, const void *a, enum tutti_type a_type, const void *b,
             enum tutti_type b_type, size_t count, const struct tti_finish *finish)
{
    const enum tutti_type acc = tti_acc_type(dst_type);
    float left[BLOCK], right[BLOCK];
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        const void *x = reduce_load(kernels, a, a_type, at, n, left);
        const void *y = reduce_load(kernels, b, b_type, at, n, right);
        char *target = (char *)dst + at * tti_type_bytes(dst_type);
        void *result = dst_type == acc ? (void *)target : left;
        kernels->combine[op][acc](result, x, y, n);
        if (reduce_averages(finish))
            kernels->divide[acc](result, result, n, finish->ranks);
        if (dst_type != acc)
            kernels->narrow[dst_type](target, result, n);
    }
}

void tti_reduce(enum tutti_op op, void *dst, enum tutti_type dst_type, const void *a,
                enum tutti_type a_type, const void *b, enum tutti_type b_type, size_t count,
                const struct tti_finish *finish)
{
    const struct tti_kernels *kernels = tti_kernels_now();
    const enum tutti_type acc = tti_acc_type(dst_type);
    if (dst_type == acc && a_type == acc && b_type == acc)
        reduce_plain(kernels, op, acc, dst, a, b, count, finish);
    else
        reduce_mixed(kernels, op, dst, dst_type, a, a_type, b, b_type, count, finish);
}

void tti_convert(void *dst, enum tutti_type dst_type, const void *src, enum tutti_type src_type,
                 size_t count, const struct tti_finish *finish)
{
    const struct tti_kernels *kernels = tti_kernels_now();
    const enum tutti_type acc = tti_acc_type(dst_type);
    const bool average = reduce_averages(finish);
    if (dst_type == src_type && !average) {
        if (dst != src)
            tti_copy_bytes(dst, src, count * tti_type_bytes(dst_type));
        return;
    }
    float buffer[BLOCK];
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        char *target = (char *)dst + at * tti_type_bytes(dst_type);
        if (dst_type == acc && src_type != acc) { /* widen without a detour */
            (void)reduce_load(kernels, src, src_type, at, n, target);
            if (average)
                kernels->divide[acc](target, target, n, finish->ranks);
            continue;
        }
        const void *x = reduce_load(kernels, src, src_type, at, n, buffer);
        if (average) {
            void *result = dst_type == acc ? (void *)target : buffer;
            kernels->divide[acc](result, x, n, finish->ranks);
            x = result;
        }
        if (dst_type != acc)
            kernels->narrow[dst_type](target, x, n);
    }
}

void tti_scale(void *dst, const void *src, const void *scalar, enum tutti_type type, size_t count)
{
    const struct tti_kernels *kernels = tti_kernels_now();
    const enum tutti_type acc = tti_acc_type(type);
    if (acc == type) {
        kernels->multiply[type](dst, src, scalar, count);
        return;
    }
    float factor, buffer[BLOCK];
    kernels->widen[type](&factor, scalar, 1);
    const size_t size = tti_type_bytes(type);
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        kernels->widen[type](buffer, (const char *)src + at * size, n);
        kernels->multiply[acc](buffer, buffer, &factor, n);
        kernels->narrow[type]((char *)dst + at * size, buffer, n);
    }
}

static _Thread_local bool copy_streams, copy_spills, copy_fetches; /* see tti_copy_expect */
static _Thread_local bool copy_timed;
static _Thread_local uint64_t copy_ns, copy_of; /* so long, so many bytes */

void tti_copy_bytes(void *dst, const void *src, size_t bytes)
{
    if (bytes >= (copy_streams ? TTI_STREAM_BYTES : AROUND_BYTES))
        tti_kernels_now()->copy_around(dst, src, bytes);
    else if (bytes)
        memcpy(dst, src, bytes);
}

void tti_copy_around(void *dst, const void *src, size_t bytes)
{
    tti_kernels_now()->copy_around(dst, src, bytes);
}

void tti_copy_received(void *dst, const void *src, size_t bytes)
{
    const bool large = bytes >= TTI_STREAM_BYTES && bytes < AROUND_BYTES;
    const bool timed = copy_timed && large;
    const uint64_t began = timed ? tti_now_ns() : 0;
    if (copy_fetches && large)
        tti_kernels_now()->copy_lines(dst, src, bytes);
    else
        tti_copy_bytes(dst, src, bytes);
    if (timed) {
        copy_ns += tti_now_ns() - began;
        copy_of += bytes;
    }
}

void tti_copy_choose(bool strings, bool timed)
{
    copy_fetches = copy_fetches && !strings;
    copy_timed = timed;
    copy_ns = copy_of = 0;
}

float tti_copy_took(void)
{
    return copy_timed && copy_of > 0 ? (float)copy_ns / (float)copy_of : 0;
}

void tti_copy_expect(size_t operation_bytes)
{
    copy_streams = operation_bytes >= AROUND_BYTES && operation_bytes > tti_cpu_last_cache();
    copy_spills = copy_streams && operation_bytes / 2 > tti_cpu_last_cache();
    copy_fetches = copy_timed = false;
}

void tti_copy_expect_lanes(size_t operation_bytes, size_t cached, int lanes)
{
    tti_copy_expect(cached);
    copy_fetches = lanes > 1 && !tti_cpu_meshed() && !copy_streams &&
                   operation_bytes >= 2 * tti_cpu_second_cache();
}

void tti_copy_expect_turns(size_t operation_bytes, size_t touched)
{
    const bool ours = !tti_cpu_meshed() && touched <= tti_cpu_last_cache();
    tti_copy_expect(ours ? 0 : operation_bytes);
}

bool tti_copy_streams(void)
{
    return copy_streams;
}

bool tti_copy_fetches(void)
{
    return copy_fetches;
}

bool tti_copy_spills(void)
{
    return copy_spills;
}
