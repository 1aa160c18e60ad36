/* Many operands into many results (reduce.h): the arithmetic of the fused path.
 *
 * Block by block, a block small enough for the first-level cache: combine the sources from the
 * left, finish, and store to every destination; all at once where no line is touched twice. Where
 * the operation is larger than the caches, the block is made in a buffer of its own and streamed
 * out, so that no destination is read first (not in place, where each is read as a source); the sum
 * of two goes without that buffer. A block, or line, of all sources is read before any of it is
 * written, so a destination may be a source. */
#include "device/reduce.h"

#include "base/atomic.h"
#include "base/types.h"
#include "device/cpu/kernels.h"

#include <stdint.h>
#include <string.h>

enum { BLOCK_BYTES = 4096, TWICE_FROM = 20 << 10 };

struct fuse {
    const struct tti_kernels *kernels;
    enum tutti_op op;
    enum tutti_type type, acc;
    void *const *dsts;
    const void *const *srcs;
    int dst_count, src_count;
    const struct tti_finish *finish; /* NULL unless it averages */
    bool stream, from_end;
    tti_spread_kernel *spread; /* of the last sum into the first two destinations, or NULL */
};

static char *fuse_dst(const struct fuse *f, int d, size_t at)
{
    return (char *)f->dsts[d] + at * tti_type_bytes(f->type);
}

static const char *fuse_src(const struct fuse *f, int s, size_t at)
{
    return (const char *)f->srcs[s] + at * tti_type_bytes(f->type);
}

static void fuse_store(const struct fuse *f, int d, size_t at, const void *block, size_t bytes)
{
    char *dst = fuse_dst(f, d, at);
    if (dst == block)
        return;
    if (f->stream)
        f->kernels->copy_stream(dst, block, bytes);
    else
        memcpy(dst, block, bytes);
}

/* Combine, types being accumulators themselves: into the first destination, or aside. */
static void fuse_plain(const struct fuse *f, size_t at, size_t n)
{
    _Alignas(64) char aside[BLOCK_BYTES];
    tti_combine_kernel *combine = f->kernels->combine[f->op][f->type];
    void *last = f->stream ? aside : fuse_dst(f, 0, at);
    const void *sum = fuse_src(f, 0, at);
    int stored = 0;
    for (int s = 1; s < f->src_count; s++) {
        const char *next = fuse_src(f, s, at);
        if (s < f->src_count - 1) {
            combine(aside, sum, next, n);
            sum = aside;
        } else if (f->spread) {
            f->spread(last, fuse_dst(f, 1, at), sum, next, n, f->from_end);
            stored = 2;
        } else {
            combine(last, sum, next, n);
        }
    }
    if (f->finish)
        f->kernels->divide[f->type](last, last, n, f->finish->ranks);
    for (int d = stored; d < f->dst_count; d++)
        fuse_store(f, d, at, last, n * tti_type_bytes(f->type));
}

/* Through float32: widen, combine, narrow once. */
static void fuse_widened(const struct fuse *f, size_t at, size_t n)
{
    _Alignas(64) float sum[BLOCK_BYTES / sizeof(float)], next[BLOCK_BYTES / sizeof(float)];
    _Alignas(64) char narrow[BLOCK_BYTES / 2];
    f->kernels->widen[f->type](sum, fuse_src(f, 0, at), n);
    for (int s = 1; s < f->src_count; s++) {
        f->kernels->widen[f->type](next, fuse_src(f, s, at), n);
        f->kernels->combine[f->op][f->acc](sum, sum, next, n);
    }
    if (f->finish)
        f->kernels->divide[f->acc](sum, sum, n, f->finish->ranks);
    f->kernels->narrow[f->type](narrow, sum, n);
    for (int d = 0; d < f->dst_count; d++)
        fuse_store(f, d, at, narrow, n * tti_type_bytes(f->type));
}

/* Into two places at once, none of which is the source: by one loop over the whole, which is 5 to
 * 12% quicker than block by block where all leaves the first-level cache, and slower where not. */
static bool fuse_copies_twice(const struct fuse *f, size_t bytes)
{
    return f->kernels->copy_twice && bytes >= TWICE_FROM && f->src_count == 1 &&
           f->dst_count == 2 && !f->stream && f->dsts[0] != f->srcs[0] && f->dsts[1] != f->srcs[0];
}

static void fuse_copy(const struct fuse *f, size_t at, size_t n)
{
    for (int d = 0; d < f->dst_count; d++)
        fuse_store(f, d, at, fuse_src(f, 0, at), n * tti_type_bytes(f->type));
}

/* Two sources' sum, streamed straight from the registers to its one or two places: what a block set
 * aside costs is worth a tenth of the time here. */
static bool fuse_streams_straight(const struct fuse *f)
{
    if (!f->stream || f->op != TUTTI_SUM || f->src_count != 2 || f->dst_count > 2 || f->finish ||
        f->acc != f->type)
        return false;
    for (int d = 0; d < f->dst_count; d++)
        if ((uintptr_t)f->dsts[d] % TTI_CACHE_LINE != 0)
            return false;
    return true;
}

/* Nothing is set aside, and each line is loaded and stored once: blocks would only cost time, 4 to
 * 8% of it where all lies in the second-level cache. */
static bool fuse_in_one_go(const struct fuse *f)
{
    if (f->stream || f->finish || f->src_count != 2)
        return false;
    return f->dst_count == 1 || (f->dst_count == 2 && f->spread);
}

/* Every destination is a source: its lines are fetched anyway. */
static bool fuse_in_place(void *const *dsts, int dst_count, const void *const *srcs, int src_count)
{
    for (int d = 0; d < dst_count; d++) {
        int s = 0;
        while (s < src_count && srcs[s] != dsts[d])
            s++;
        if (s == src_count)
            return false;
    }
    return true;
}

/* Elements of a block. From the end, a loop that cannot go so line by line goes in pieces: long
 * enough for its asking ahead, and short against what the caches hold of the whole. */
static size_t fuse_block(const struct fuse *f, size_t count)
{
    enum { LEAST = 8 << 10, MOST = 32 << 10, PIECES = 8 };
    const size_t size = tti_type_bytes(f->type), part = count * size / PIECES;
    if (f->acc != f->type || !fuse_in_one_go(f))
        return BLOCK_BYTES / tti_type_bytes(f->acc);
    if (!f->from_end || f->spread)
        return count;
    return (part < LEAST ? LEAST : part > MOST ? MOST : part) / size;
}

static void fuse_blocks(const struct fuse *f, size_t count)
{
    const size_t block = fuse_block(f, count);
    for (size_t done = 0; done < count; done += block) {
        const size_t n = count - done < block ? count - done : block;
        const size_t at = f->from_end ? count - done - n : done;
        if (f->src_count == 1)
            fuse_copy(f, at, n);
        else if (f->acc == f->type)
            fuse_plain(f, at, n);
        else
            fuse_widened(f, at, n);
    }
}

void tti_fuse(enum tutti_op op, enum tutti_type type, void *const *dsts, int dst_count,
              const void *const *srcs, int src_count, size_t count, const struct tti_finish *finish,
              bool from_end)
{
    struct fuse f = {
        .kernels = tti_kernels_now(),
        .op = op,
        .type = type,
        .acc = tti_acc_type(type),
        .dsts = dsts,
        .srcs = srcs,
        .dst_count = dst_count,
        .src_count = src_count,
        .finish = finish && finish->average ? finish : NULL,
        .stream = tti_copy_streams() && !fuse_in_place(dsts, dst_count, srcs, src_count),
        .from_end = from_end,
    };
    if (op == TUTTI_SUM && dst_count > 1 && !f.finish && !f.stream)
        f.spread = f.kernels->spread_sum[type];
    if (fuse_streams_straight(&f)) {
        f.kernels->stream_sum[type](dsts[0], dst_count > 1 ? dsts[1] : NULL, srcs[0], srcs[1],
                                    count);
        f.kernels->fence();
        return;
    }
    if (fuse_copies_twice(&f, count * tti_type_bytes(type)))
        f.kernels->copy_twice(dsts[0], dsts[1], srcs[0], count * tti_type_bytes(type), from_end);
    else
        fuse_blocks(&f, count);
    if (f.stream)
        f.kernels->fence();
}
