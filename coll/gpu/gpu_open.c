/* Buffers that ranks of one process, on several devices, read and write where they lie: each rank
 * opens its own to the devices of the others before its kernel tells them where they are. What
 * cannot be opened fails the call with a text, in place of a kernel that ends with an illegal
 * address. Read next: gpu_couple.c, gpu_plan.c. */
#include "coll/gpu/gpu_map.h"

#include "device/reduce.h"

/* Bytes from the beginning of the first block to the end of the last. */
static size_t open_bytes(const struct tti_operation *o, uint32_t blocks, size_t width)
{
    const size_t block = o->count * width, stride = o->device_stride ? o->device_stride : block;
    return blocks == 0 ? 0 : (blocks - 1) * stride + block;
}

static enum tutti_result open_one(struct tutti_comm *comm, const void *buffer, size_t bytes)
{
    const struct tti_gpu_map *map = comm->gpu->map;
    return bytes == 0 ? TUTTI_OK
                      : comm->gpu->ops->memory_open(comm->gpu->gpu, buffer, bytes, map->other,
                                                    map->others);
}

/* An all-gather or reduce-scatter on blocks that differ in size, and may lie anywhere. */
static enum tutti_result open_blocks(struct tutti_comm *comm, const struct tti_operation *o,
                                     size_t width)
{
    const struct tti_blocks *blocks = o->blocks;
    for (int k = 0; k < blocks->n; k++)
        if (blocks->counts[k] > 0)
            TTI_TRY(open_one(comm, tti_blocks_at(o, k), blocks->counts[k] * width));
    return open_one(comm, o->collective == TUTTI_ALL_GATHER ? o->in : o->out,
                    blocks->counts[comm->gpu->map->rank] * width);
}

enum tutti_result tti_gpu_open(struct tutti_comm *comm, const struct tti_operation *o)
{
    const struct tti_gpu_map *map = comm->gpu->map;
    const size_t width = tutti_type_size(o->type);
    uint32_t in = 0, out = 0;
    if (map->others == 0)
        return TUTTI_OK;
    if (o->blocks)
        return open_blocks(comm, o, width);
    tti_shape(o->collective, map->size, map->rank, o->root, &in, &out);
    TTI_TRY(open_one(comm, o->in, open_bytes(o, in, width)));
    return open_one(comm, o->out,
                    open_bytes(o, out, o->wide ? tutti_type_size(tti_acc_type(o->type)) : width));
}
