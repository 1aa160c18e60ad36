/* See gpu_range.h. */
#include "coll/gpu/gpu_range.h"

struct tti_gpu_range tti_gpu_range_of(const struct tti_operation *o, int rank, size_t align)
{
    const size_t width = tutti_type_size(o->type);
    return (struct tti_gpu_range){.o = o,
                                  .rank = (uint32_t)rank,
                                  .width = width,
                                  .stride = o->device_stride ? o->device_stride : o->count * width,
                                  .align = align};
}

/* Elements of a block in the caller's buffer. */
static size_t range_block(const struct tti_gpu_range *r, uint32_t blocks, uint32_t b)
{
    return r->o->blocks ? r->o->blocks->counts[blocks == 1 ? r->rank : b] : r->o->count;
}

static size_t range_bytes(const struct tti_gpu_range *r, size_t count)
{
    return (count * r->width + r->align - 1) / r->align * r->align;
}

bool tti_gpu_range_next(struct tti_gpu_range *r, size_t most)
{
    r->from += r->length;
    const size_t left = tti_block_most(r->o) - r->from;
    r->length = left < most ? left : most;
    return left > 0;
}

/* What the pieces of `length` elements take: no range takes more than the first. */
static size_t range_takes(const struct tti_gpu_range *r, uint32_t blocks, uint32_t more,
                          size_t length)
{
    size_t bytes = more * range_bytes(r, length);
    for (uint32_t b = 0; b < blocks; b++) {
        const size_t count = range_block(r, blocks, b);
        bytes += range_bytes(r, count < length ? count : length);
    }
    return bytes;
}

size_t tti_gpu_range_most(const struct tti_gpu_range *r, uint32_t blocks, uint32_t more,
                          size_t room, size_t unit)
{
    const size_t all = tti_block_most(r->o), each = room / (blocks + more) / r->align * r->align;
    size_t least = each / r->width, most = r->o->blocks ? room / r->width : least;
    least = least < all ? least : all;
    most = most < all ? most : all;
    while (least < most) { /* where some blocks are short the others have their room */
        const size_t middle = most - (most - least) / 2;
        if (range_takes(r, blocks, more, middle) <= room)
            least = middle;
        else
            most = middle - 1;
    }
    return least == all || least < unit ? least : least / unit * unit;
}

size_t tti_gpu_range_count(const struct tti_gpu_range *r, uint32_t blocks, uint32_t b)
{
    const size_t count = range_block(r, blocks, b);
    const size_t left = count > r->from ? count - r->from : 0;
    return left < r->length ? left : r->length;
}

size_t tti_gpu_range_at(const struct tti_gpu_range *r, uint32_t blocks, uint32_t b)
{
    size_t at = 0;
    if (!r->o->blocks)
        return b * range_bytes(r, r->length);
    for (uint32_t k = 0; k < b; k++)
        at += range_bytes(r, tti_gpu_range_count(r, blocks, k));
    return at;
}

/* A buffer of several blocks that differ is the one that tti_blocks_at knows. */
static const char *range_place(const struct tti_gpu_range *r, const void *buffer, uint32_t blocks,
                               uint32_t b)
{
    const char *block = blocks > 1 && r->o->blocks ? tti_blocks_at(r->o, (int)b) : buffer;
    return block + (blocks > 1 && !r->o->blocks ? b * r->stride : 0) + r->from * r->width;
}

const char *tti_gpu_range_in(const struct tti_gpu_range *r, uint32_t blocks, uint32_t b)
{
    return range_place(r, r->o->in, blocks, b);
}

char *tti_gpu_range_out(const struct tti_gpu_range *r, uint32_t blocks, uint32_t b)
{
    return (char *)(uintptr_t)range_place(r, r->o->out, blocks, b);
}

/* Pieces that are copied together. */
struct run {
    const char *src;
    char *dst;
    size_t bytes;
};

static enum tutti_result run_copy(const struct run *run, struct tti_gpu *gpu, tutti_stream stream)
{
    return run->bytes == 0 ? TUTTI_OK : gpu->ops->copy(gpu, run->dst, run->src, run->bytes, stream);
}

/* One more piece: to the run, if it goes on there, else it begins another. */
static enum tutti_result run_add(struct run *run, const char *src, char *dst, size_t bytes,
                                 struct tti_gpu *gpu, tutti_stream stream)
{
    if (run->bytes > 0 && run->src + run->bytes == src && run->dst + run->bytes == dst) {
        run->bytes += bytes;
        return TUTTI_OK;
    }
    TTI_TRY(run_copy(run, gpu, stream));
    *run = (struct run){src, dst, bytes};
    return TUTTI_OK;
}

enum tutti_result tti_gpu_range_pack(const struct tti_gpu_range *r, struct tti_gpu *gpu,
                                     uint32_t blocks, char *packed, tutti_stream stream)
{
    struct run run = {.bytes = 0};
    for (uint32_t b = 0; b < blocks; b++) {
        const size_t count = tti_gpu_range_count(r, blocks, b);
        if (count > 0)
            TTI_TRY(run_add(&run, tti_gpu_range_in(r, blocks, b), packed, count * r->width, gpu,
                            stream));
        packed += range_bytes(r, count);
    }
    return run_copy(&run, gpu, stream);
}

enum tutti_result tti_gpu_range_unpack(const struct tti_gpu_range *r, struct tti_gpu *gpu,
                                       uint32_t blocks, const char *packed, tutti_stream stream)
{
    struct run run = {.bytes = 0};
    for (uint32_t b = 0; b < blocks; b++) {
        const size_t count = tti_gpu_range_count(r, blocks, b);
        if (count > 0)
            TTI_TRY(run_add(&run, packed, tti_gpu_range_out(r, blocks, b), count * r->width, gpu,
                            stream));
        packed += range_bytes(r, count);
    }
    return run_copy(&run, gpu, stream);
}
