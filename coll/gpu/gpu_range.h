/* A range of every block of a collective: what of the buffers passes at once through memory that
 * holds less than all of them (a window, a slot of staging). There the pieces of a buffer's blocks
 * lie packed, one after another. Blocks that differ in size (coll/operation.h) end in different
 * ranges; from then on their pieces are empty. */
#ifndef TTI_COLL_GPU_RANGE_H
#define TTI_COLL_GPU_RANGE_H

#include "coll/operation.h"
#include "device/gpu.h"

/* All but the last two stay, which tti_gpu_range_next sets. */
struct tti_gpu_range {
    const struct tti_operation *o;
    uint32_t rank; /* whose block a buffer of one block holds, and writes */
    size_t width;  /* bytes of an element */
    size_t stride; /* from block to block in the caller's buffers, bytes; unless they differ */
    size_t align;  /* packed, a piece takes a multiple of so many bytes */
    size_t from, length; /* elements [from, from + length), or as many as the block still has */
};

/* Of this rank among those of the operation; empty, before its beginning. */
struct tti_gpu_range tti_gpu_range_of(const struct tti_operation *o, int rank, size_t align);
/* The next `most` elements of every block, from 0 on; false: all were. */
bool tti_gpu_range_next(struct tti_gpu_range *r, size_t most);

/* The most elements of a block of which `room` bytes hold a piece of each of the `blocks` blocks of
 * one buffer and `more` as long as the longest; a multiple of `unit` unless it is all, or less than
 * that. 0: not one fits. */
size_t tti_gpu_range_most(const struct tti_gpu_range *r, uint32_t blocks, uint32_t more,
                          size_t room, size_t unit);

/* Of block `b` of a buffer that has `blocks`: elements of its piece; where that begins, packed; and
 * where in the caller's input and output. */
size_t tti_gpu_range_count(const struct tti_gpu_range *r, uint32_t blocks, uint32_t b);
size_t tti_gpu_range_at(const struct tti_gpu_range *r, uint32_t blocks, uint32_t b);
const char *tti_gpu_range_in(const struct tti_gpu_range *r, uint32_t blocks, uint32_t b);
char *tti_gpu_range_out(const struct tti_gpu_range *r, uint32_t blocks, uint32_t b);

/* Copy all pieces of the input to `packed`, or from there to the output: in one copy what lies
 * together in both places. */
enum tutti_result tti_gpu_range_pack(const struct tti_gpu_range *r, struct tti_gpu *gpu,
                                     uint32_t blocks, char *packed, tutti_stream stream);
enum tutti_result tti_gpu_range_unpack(const struct tti_gpu_range *r, struct tti_gpu *gpu,
                                       uint32_t blocks, const char *packed, tutti_stream stream);

#endif
