/* Collectives by one kernel a rank, which all run at the same time and raise flags for each other:
 * no host, no copies beside the operation's own. For ranks whose blocks are known to fit their
 * devices together (gpu_map.c).
 *
 * All-reduce: one_shot_ll for small messages, one_shot_ll128 for middle ones, two_shot for large
 * ones, straight on the callers' buffers where pointers mean the same to all ranks (threads of a
 * process), else on the windows, copied into and out of them. The others: direct, among threads of
 * a process. Whatever is left, or asked for by name: its plan (gpu_plan.c). What is taken follows
 * from what all ranks know, so all take the same. Each kernel names the plan that it equals, and
 * TUTTI_FAST=0 takes that. */
#include "coll/gpu/gpu_map.h"
#include "coll/select.h"

#include <string.h>

enum { THREAD_BYTES = 64, FEW_BYTES = 4096, FEW_THREADS = 64, LL_USUAL = 8 << 10 };

struct tti_coupled_args tti_gpu_couple_args(const struct tutti_comm *comm,
                                            const struct tti_operation *o, size_t count)
{
    const struct tti_gpu_map *map = comm->gpu->map;
    const bool premul = tti_gpu_premultiplied(o);
    const bool basic = tti_reduces(o->collective) && o->op <= TUTTI_MIN;
    struct tti_coupled_args args = {
        .rank = (uint32_t)map->rank,
        .ranks = (uint32_t)map->size,
        .op = basic ? (uint32_t)o->op : TUTTI_SUM,
        .divisor = tti_reduces(o->collective) && o->op == TUTTI_AVG ? (uint32_t)map->size : 0,
        .scaled = premul,
        .scale = premul ? o->factor : 0,
        .count = count,
        .slot_bytes = TTI_LL_BYTES,
        .line_bytes = TTI_LINE_BYTES,
        .status = &map->told->status,
        .timeout_ns = (uint64_t)(comm->settings.timeout_s * 1e9),
    };
    args.in[map->rank] = o->in;
    args.out[map->rank] = o->out;
    for (int p = 0; p < map->size; p++) {
        args.control[p] = (struct tti_gpu_control *)tti_gpu_at(map, p, TTI_ARENA_CONTROL);
        args.slots[p] = tti_gpu_at(map, p, TTI_ARENA_SLOTS);
        args.lines[p] = tti_gpu_at(map, p, map->lines_at);
    }
    return args;
}

/* The grid follows from what all ranks know: `bytes` that the busiest of them touches. */
static enum tutti_result couple_launch(struct tutti_comm *comm, enum tti_gpu_kernel kernel,
                                       enum tutti_type type, size_t bytes, const void *args,
                                       size_t args_bytes, tutti_stream stream)
{
    struct tti_gpu *gpu = comm->gpu->gpu;
    const unsigned threads =
        tti_gpu_threads(gpu, bytes <= FEW_BYTES ? FEW_THREADS : TTI_COUPLED_THREADS);
    const size_t wanted = (bytes + (size_t)threads * THREAD_BYTES - 1) / (threads * THREAD_BYTES);
    const unsigned most = comm->gpu->map->blocks;
    const struct tti_gpu_launch launch = {
        .kernel = kernel,
        .type = type,
        .blocks = wanted < 1      ? 1
                  : wanted < most ? (unsigned)wanted
                                  : most,
        .threads = threads,
        .args = args,
        .args_bytes = args_bytes,
    };
    return gpu->ops->launch(gpu, &launch, stream);
}

static enum tutti_result couple_one_shot(struct tutti_comm *comm, const struct tti_operation *o,
                                         enum tti_gpu_kernel kernel, tutti_stream stream)
{
    const struct tti_coupled_args args = tti_gpu_couple_args(comm, o, o->count);
    /* 8 bytes a thread: the fewer each has, the sooner all are there. */
    return couple_launch(comm, kernel, o->type, o->count * tutti_type_size(o->type) * 8, &args,
                         sizeof args, stream);
}

static enum tutti_result couple_two_shot(struct tutti_comm *comm, const struct tti_operation *o,
                                         tutti_stream stream)
{
    struct tti_coupled_args args = tti_gpu_couple_args(comm, o, o->count);
    args.exchange = 1;
    return couple_launch(comm, TTI_KERNEL_TWO_SHOT, o->type, o->count * tutti_type_size(o->type),
                         &args, sizeof args, stream);
}

/* Over the windows: between the kernel's meetings nobody else touches them, so a pass needs no
 * other. */
static enum tutti_result couple_two_shot_window(struct tutti_comm *comm,
                                                const struct tti_operation *o, tutti_stream stream)
{
    struct tti_gpu *gpu = comm->gpu->gpu;
    const struct tti_gpu_map *map = comm->gpu->map;
    const size_t width = tutti_type_size(o->type), most = map->window_bytes / width;
    char *own = tti_gpu_at(map, map->rank, map->window_at);
    for (size_t from = 0; from < o->count; from += most) {
        const size_t count = o->count - from < most ? o->count - from : most;
        struct tti_coupled_args args = tti_gpu_couple_args(comm, o, count);
        for (int p = 0; p < map->size; p++)
            args.in[p] = args.out[p] = tti_gpu_at(map, p, map->window_at);
        TTI_TRY(
            gpu->ops->copy(gpu, own, (const char *)o->in + from * width, count * width, stream));
        TTI_TRY(couple_launch(comm, TTI_KERNEL_TWO_SHOT, o->type, count * width, &args, sizeof args,
                              stream));
        TTI_TRY(gpu->ops->copy(gpu, (char *)o->out + from * width, own, count * width, stream));
        TTI_TRY(tti_gpu_room_between(comm, stream));
    }
    return TUTTI_OK;
}

static enum tutti_result couple_direct(struct tutti_comm *comm, const struct tti_operation *o,
                                       tutti_stream stream)
{
    const uint32_t n = (uint32_t)comm->gpu->map->size;
    const uint32_t rank = (uint32_t)comm->gpu->map->rank;
    const uint32_t root = (uint32_t)o->root;
    const size_t block = o->count * tutti_type_size(o->type);
    const size_t stride = o->stride ? o->stride : block;
    struct tti_direct_args args = {.wide = o->wide,
                                   .coupled = tti_gpu_couple_args(comm, o, o->count)};
    args.coupled.exchange = 1;
    switch (o->collective) {
    case TUTTI_REDUCE_SCATTER:
        args.folds = args.blocks = 1;
        args.from = rank * stride;
        break;
    case TUTTI_REDUCE:
        args.folds = args.blocks = rank == root;
        break;
    case TUTTI_BROADCAST:
        args.first = root;
        args.blocks = 1;
        break;
    case TUTTI_SCATTER:
        args.first = root;
        args.blocks = 1;
        args.from = rank * block;
        break;
    case TUTTI_GATHER:
        args.stride = block;
        args.blocks = rank == root ? n : 0;
        break;
    case TUTTI_ALL_GATHER:
        args.stride = stride;
        args.blocks = n;
        break;
    default: /* a barrier moves nothing */
        break;
    }
    return couple_launch(comm, TTI_KERNEL_DIRECT, o->type, block, &args, sizeof args, stream);
}

/* The kernel for an all-reduce: packets for the smallest, lines for those of middle size where they
 * arrive whole, the buffers themselves for large ones. In one shot every rank reads all inputs, so
 * with more ranks two shots pay sooner. */
static enum tti_gpu_kernel couple_all_reduce(const struct tutti_comm *comm, size_t bytes)
{
    const struct tti_gpu_map *map = comm->gpu->map;
    const size_t most = TTI_LINE_BYTES * 2 / (size_t)map->size;
    if (map->lines && bytes > LL_USUAL && bytes <= most)
        return TTI_KERNEL_ONE_SHOT_LL128;
    return bytes <= TTI_LL_BYTES ? TTI_KERNEL_ONE_SHOT_LL : TTI_KERNEL_TWO_SHOT;
}

static enum tutti_result couple_reduce_all(struct tutti_comm *comm, const struct tti_operation *o,
                                           enum tti_gpu_kernel kernel, tutti_stream stream)
{
    if (kernel != TTI_KERNEL_TWO_SHOT)
        return couple_one_shot(comm, o, kernel, stream);
    return comm->gpu->map->one_process ? couple_two_shot(comm, o, stream)
                                       : couple_two_shot_window(comm, o, stream);
}

/* The plan that the kernel for `o` is equal to; NULL: there is no kernel. */
static const char *couple_equal(const struct tutti_comm *comm, const struct tti_operation *o,
                                enum tti_gpu_kernel kernel)
{
    if (o->collective == TUTTI_ALL_REDUCE)
        return kernel == TTI_KERNEL_TWO_SHOT ? "two_shot" : "one_shot";
    /* In place, an all-to-all overwrites what others may still read; not all ranks know who does
     * it in place. */
    return comm->gpu->map->one_process && o->collective != TUTTI_ALL_TO_ALL ? "direct" : NULL;
}

bool tti_gpu_forced(const struct tutti_comm *comm, enum tutti_collective collective, char *name,
                    size_t bytes)
{
    return comm->gpu->map->hosts == 1 && tti_select_forced(comm, collective, name, bytes);
}

enum tutti_result tti_gpu_couple(struct tutti_comm *comm, const struct tti_operation *o,
                                 tutti_stream stream, bool *served)
{
    char name[64];
    enum tti_gpu_kernel kernel = couple_all_reduce(comm, o->count * tutti_type_size(o->type));
    const bool forced = tti_gpu_forced(comm, o->collective, name, sizeof name);
    if (forced && strcmp(name, "two_shot") == 0)
        kernel = TTI_KERNEL_TWO_SHOT;
    const char *equal = comm->settings.fast ? couple_equal(comm, o, kernel) : NULL;
    *served = comm->settings.fast && !forced && tti_gpu_nvls_takes(comm, o);
    if (*served)
        return tti_gpu_nvls(comm, o, stream);
    if (o->collective == TUTTI_BARRIER && !equal)
        return TUTTI_OK; /* without buffers: by flags of the window */
    if (!equal && (o->wide || o->stride))
        return TUTTI_OK; /* no part of a plan */
    if (!equal || (forced && strcmp(name, equal) != 0))
        return tti_gpu_plan(comm, o, stream, forced, served);
    *served = true;
    return o->collective == TUTTI_ALL_REDUCE ? couple_reduce_all(comm, o, kernel, stream)
                                             : couple_direct(comm, o, stream);
}
