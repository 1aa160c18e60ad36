/* Element kernels on a stream, for the paths that launch them between meetings (gpu_map.h). */
#include "coll/gpu/gpu_map.h"

bool tti_gpu_premultiplied(const struct tti_operation *o)
{
    return tti_reduces(o->collective) && (unsigned)o->op >= TUTTI_OP_USER;
}

/* Enough blocks for the device, none without work. */
static unsigned fold_blocks(const struct tti_gpu *gpu, size_t bytes, unsigned threads)
{
    enum { THREAD_BYTES = 64, BLOCKS_PER_SM = 4 };
    const size_t most = (size_t)gpu->properties.sms * BLOCKS_PER_SM;
    const size_t wanted = (bytes + (size_t)threads * THREAD_BYTES - 1) / (threads * THREAD_BYTES);
    return (unsigned)(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

enum tutti_result tti_gpu_fold_all(struct tutti_comm *comm, const struct tti_operation *o,
                                   struct tti_reduce_copy_args *args, size_t count,
                                   uint32_t divisor, tutti_stream stream)
{
    enum { THREADS = 256, FEW_THREADS = 64, FEW_BYTES = 4096 };
    struct tti_gpu *gpu = comm->gpu->gpu;
    const size_t bytes = count * tutti_type_size(o->type);
    const bool basic = tti_reduces(o->collective) && o->op <= TUTTI_MIN;
    if (count == 0)
        return TUTTI_OK;
    args->count = count;
    args->op = basic ? (uint32_t)o->op : TUTTI_SUM;
    args->divisor = divisor;
    const unsigned threads = tti_gpu_threads(gpu, bytes <= FEW_BYTES ? FEW_THREADS : THREADS);
    const struct tti_gpu_launch launch = {
        .kernel = TTI_KERNEL_REDUCE_COPY,
        .type = o->type,
        .blocks = fold_blocks(gpu, bytes, threads),
        .threads = threads,
        .args = args,
        .args_bytes = sizeof *args,
    };
    return gpu->ops->launch(gpu, &launch, stream);
}

enum tutti_result tti_gpu_fold(struct tutti_comm *comm, const struct tti_operation *o,
                               const void *const *src, int srcs, void *dst, size_t count,
                               uint32_t divisor, bool scale, tutti_stream stream)
{
    struct tti_reduce_copy_args args = {
        .dst = {dst},
        .srcs = (uint32_t)srcs,
        .dsts = 1,
        .dst_wide = o->wide && !scale, /* what is multiplied is still an element */
        .scaled = scale ? 1 : 0,
        .scale = scale ? o->factor : 0,
    };
    for (int k = 0; k < srcs; k++)
        args.src[k] = src[k];
    return tti_gpu_fold_all(comm, o, &args, count, divisor, stream);
}

enum tutti_result tti_gpu_publish(struct tutti_comm *comm, const struct tti_gpu_range *r,
                                  uint32_t blocks, char *packed, tutti_stream stream)
{
    if (!tti_gpu_premultiplied(r->o))
        return tti_gpu_range_pack(r, comm->gpu->gpu, blocks, packed, stream);
    for (uint32_t b = 0; b < blocks; b++) {
        const size_t count = tti_gpu_range_count(r, blocks, b);
        if (count == 0)
            continue;
        const void *src = tti_gpu_range_in(r, blocks, b);
        TTI_TRY(tti_gpu_fold(comm, r->o, &src, 1, packed + tti_gpu_range_at(r, blocks, b), count, 0,
                             true, stream));
    }
    return TUTTI_OK;
}

enum tutti_result tti_gpu_alone(struct tutti_comm *comm, const struct tti_operation *o,
                                tutti_stream stream)
{
    struct tti_gpu *gpu = comm->gpu->gpu;
    if (o->collective == TUTTI_BARRIER || o->count == 0)
        return TUTTI_OK;
    const bool gathers = o->collective == TUTTI_ALL_GATHER;
    const void *in = o->blocks && !gathers ? tti_blocks_at(o, 0) : o->in;
    void *out = o->blocks && gathers ? (void *)(uintptr_t)tti_blocks_at(o, 0) : o->out;
    if (tti_gpu_premultiplied(o))
        return tti_gpu_fold(comm, o, &in, 1, out, o->count, 0, true, stream);
    if (in == out)
        return TUTTI_OK;
    return gpu->ops->copy(gpu, out, in, o->count * tutti_type_size(o->type), stream);
}
