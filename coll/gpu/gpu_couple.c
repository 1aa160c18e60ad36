/* Collectives by one kernel a rank, which all run at the same time and raise flags for each other:
 * no host, no copies beside the operation's own. For ranks whose blocks are known to fit their
 * devices together (gpu_map.c).
 *
 * All-reduce: one_shot_ll for small messages, one_shot_ll128 for middle ones, two_shot for large
 * ones, straight on the callers' buffers where pointers mean the same to all ranks (threads of a
 * process), else on the windows, copied into and out of them; two_shot for large broadcasts and
 * reduces, too. The others: direct, out of the buffers or else the windows. Whatever is left, or
 * asked for by name: its plan (gpu_plan.c). What is taken follows from what all ranks know, so all
 * take the same. Each kernel names the plan that it equals, and TUTTI_FAST=0 takes that. */
#include "coll/gpu/gpu_map.h"
#include "coll/select.h"
#include "device/reduce.h"

#include <string.h>

enum {
    THREAD_BYTES = 64,
    FEW_BYTES = 4096,
    FEW_THREADS = 64,
    LL_USUAL = 8 << 10,
    LARGE = 64 << 10, /* bytes of a broadcast or reduce that all ranks move; of what is direct */
    PACK = 16,        /* bytes that kernels take at once */
    ALIGNED = 128,    /* elements: passes begin at multiples, so that blocks keep their alignment */
};

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

/* Of a broadcast one input counts, of a reduce one output. */
static struct tti_coupled_args two_shot_args(const struct tutti_comm *comm,
                                             const struct tti_operation *o, size_t count)
{
    struct tti_coupled_args args = tti_gpu_couple_args(comm, o, count);
    args.one_in = o->collective == TUTTI_BROADCAST ? (uint32_t)o->root + 1 : 0;
    args.one_out = o->collective == TUTTI_REDUCE ? (uint32_t)o->root + 1 : 0;
    return args;
}

static enum tutti_result couple_two_shot(struct tutti_comm *comm, const struct tti_operation *o,
                                         tutti_stream stream)
{
    struct tti_coupled_args args = two_shot_args(comm, o, o->count);
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
    uint32_t in = 0, out = 0;
    tti_shape(o->collective, map->size, map->rank, o->root, &in, &out);
    for (size_t from = 0; from < o->count; from += most) {
        const size_t count = o->count - from < most ? o->count - from : most;
        struct tti_coupled_args args = two_shot_args(comm, o, count);
        for (int p = 0; p < map->size; p++)
            args.in[p] = args.out[p] = tti_gpu_at(map, p, map->window_at);
        if (in > 0)
            TTI_TRY(gpu->ops->copy(gpu, own, (const char *)o->in + from * width, count * width,
                                   stream));
        TTI_TRY(couple_launch(comm, TTI_KERNEL_TWO_SHOT, o->type, count * width, &args, sizeof args,
                              stream));
        if (out > 0)
            TTI_TRY(gpu->ops->copy(gpu, (char *)o->out + from * width, own, count * width, stream));
        TTI_TRY(tti_gpu_room_between(comm, stream));
    }
    return TUTTI_OK;
}

/* What this rank takes of the others' inputs: `count` elements, of those that hold something for
 * each rank from byte `at` on. */
static struct tti_direct_args direct_args(const struct tutti_comm *comm,
                                          const struct tti_gpu_range *r, size_t count, size_t at)
{
    const struct tti_operation *o = r->o;
    const uint32_t n = (uint32_t)comm->gpu->map->size, rank = (uint32_t)comm->gpu->map->rank;
    const uint32_t root = (uint32_t)o->root;
    struct tti_direct_args args = {.coupled = tti_gpu_couple_args(comm, o, count), .wide = o->wide};
    switch (o->collective) {
    case TUTTI_REDUCE_SCATTER:
        args.folds = args.blocks = 1;
        args.from = at;
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
        args.from = at;
        break;
    case TUTTI_GATHER:
        args.stride = r->stride;
        args.blocks = rank == root ? n : 0;
        break;
    case TUTTI_ALL_GATHER:
        args.stride = r->stride;
        args.blocks = n;
        break;
    default: /* a barrier moves nothing */
        break;
    }
    return args;
}

/* `length`: elements of the longest block, which decides for all ranks. */
static enum tutti_result direct_launch(struct tutti_comm *comm, const struct tti_operation *o,
                                       const struct tti_direct_args *args, size_t length,
                                       tutti_stream stream)
{
    return couple_launch(comm, TTI_KERNEL_DIRECT, o->type, length * tutti_type_size(o->type), args,
                         sizeof *args, stream);
}

/* What is gathered of blocks that differ in size: the range of each, and where that comes. */
static void direct_uneven(struct tti_direct_args *args, const struct tti_gpu_range *r)
{
    const uint32_t n = args->coupled.ranks;
    if (!r->o->blocks || args->folds)
        return;
    args->uneven = 1;
    for (uint32_t k = 0; k < n; k++) {
        args->counts[k] = tti_gpu_range_count(r, n, k);
        args->places[k] =
            args->counts[k] > 0 ? (size_t)(tti_gpu_range_out(r, n, k) - (char *)r->o->out) : 0;
    }
}

/* Each rank tells each other where that one's part is, if they may lie anywhere. */
static void direct_spread(struct tti_direct_args *args, const struct tti_operation *o)
{
    if (!o->blocks || !args->folds)
        return;
    args->spreads = 1;
    for (uint32_t k = 0; k < args->coupled.ranks; k++)
        args->spread[k] = o->blocks->counts[k] > 0 ? tti_blocks_at(o, (int)k) : NULL;
}

static enum tutti_result couple_direct(struct tutti_comm *comm, const struct tti_operation *o,
                                       tutti_stream stream)
{
    struct tti_gpu_range all = tti_gpu_range_of(o, comm->gpu->map->rank, PACK);
    (void)tti_gpu_range_next(&all, SIZE_MAX);
    struct tti_direct_args args = direct_args(comm, &all, tti_gpu_range_count(&all, 1, all.rank),
                                              o->blocks ? 0 : all.rank * all.stride);
    args.coupled.exchange = 1;
    direct_uneven(&args, &all);
    direct_spread(&args, o);
    return direct_launch(comm, o, &args, all.length, stream);
}

/* Out of the windows: a kernel ends when all have read what they need, so a pass needs no other
 * meeting. */
static enum tutti_result couple_direct_window(struct tutti_comm *comm,
                                              const struct tti_operation *o, tutti_stream stream)
{
    const struct tti_gpu_map *map = comm->gpu->map;
    const bool spread = o->collective == TUTTI_REDUCE_SCATTER || o->collective == TUTTI_SCATTER;
    const size_t out_width = tutti_type_size(o->wide ? tti_acc_type(o->type) : o->type);
    const uint32_t rank = (uint32_t)map->rank, blocks = spread ? (uint32_t)map->size : 1;
    struct tti_gpu_range r = tti_gpu_range_of(o, comm->gpu->map->rank, PACK);
    const size_t most =
        tti_gpu_range_most(&r, spread ? blocks : 0, spread ? 0 : 1, map->window_bytes, ALIGNED);
    uint32_t in = 0, out = 0;
    tti_shape(o->collective, map->size, map->rank, o->root, &in, &out);
    while (tti_gpu_range_next(&r, most)) {
        struct tti_direct_args args = direct_args(comm, &r, tti_gpu_range_count(&r, blocks, rank),
                                                  spread ? tti_gpu_range_at(&r, blocks, rank) : 0);
        for (int p = 0; p < map->size; p++)
            args.coupled.in[p] = tti_gpu_at(map, p, map->window_at);
        direct_uneven(&args, &r);
        if (o->out && !args.uneven)
            args.coupled.out[rank] = (char *)o->out + r.from * out_width;
        TTI_TRY(tti_gpu_range_pack(&r, comm->gpu->gpu, in,
                                   tti_gpu_at(map, map->rank, map->window_at), stream));
        TTI_TRY(direct_launch(comm, o, &args, r.length, stream));
        TTI_TRY(tti_gpu_room_between(comm, stream));
    }
    return TUTTI_OK;
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

/* What a rank has of all its blocks. */
static bool couple_large(const struct tutti_comm *comm, const struct tti_operation *o)
{
    uint32_t in = 0, out = 0;
    tti_shape(o->collective, comm->gpu->map->size, o->root, o->root, &in, &out);
    const size_t blocks = o->blocks ? 1 : in > out ? in : out; /* else the count is that of all */
    return blocks * o->count * tutti_type_size(o->type) > LARGE;
}

static enum tti_gpu_kernel couple_kernel(const struct tutti_comm *comm,
                                         const struct tti_operation *o)
{
    const bool one = o->collective == TUTTI_BROADCAST || o->collective == TUTTI_REDUCE;
    if (o->collective == TUTTI_ALL_REDUCE)
        return couple_all_reduce(comm, o->count * tutti_type_size(o->type));
    return one && couple_large(comm, o) ? TTI_KERNEL_TWO_SHOT : TTI_KERNEL_DIRECT;
}

static const char *couple_name(enum tti_gpu_kernel kernel)
{
    switch (kernel) {
    case TTI_KERNEL_ONE_SHOT_LL:
        return "one_shot_ll";
    case TTI_KERNEL_ONE_SHOT_LL128:
        return "one_shot_ll128";
    case TTI_KERNEL_TWO_SHOT:
        return "two_shot";
    default:
        return "direct";
    }
}

static enum tutti_result couple_run(struct tutti_comm *comm, const struct tti_operation *o,
                                    enum tti_gpu_kernel kernel, tutti_stream stream)
{
    const bool direct = comm->gpu->map->direct;
    comm->gpu->went = couple_name(kernel);
    if (direct && (kernel == TTI_KERNEL_TWO_SHOT || kernel == TTI_KERNEL_DIRECT))
        TTI_TRY(tti_gpu_open(comm, o));
    if (kernel == TTI_KERNEL_TWO_SHOT)
        return direct ? couple_two_shot(comm, o, stream) : couple_two_shot_window(comm, o, stream);
    if (kernel == TTI_KERNEL_DIRECT)
        return direct ? couple_direct(comm, o, stream) : couple_direct_window(comm, o, stream);
    return couple_one_shot(comm, o, kernel, stream);
}

/* The plan that the kernel for `o` is equal to; NULL: there is no kernel. */
static const char *couple_equal(const struct tutti_comm *comm, const struct tti_operation *o,
                                enum tti_gpu_kernel kernel)
{
    if (o->collective == TUTTI_ALL_REDUCE)
        return kernel == TTI_KERNEL_TWO_SHOT ? "two_shot" : "one_shot";
    if (kernel == TTI_KERNEL_TWO_SHOT)
        return o->collective == TUTTI_BROADCAST ? "scatter_gather" : "direct";
    /* In place, an all-to-all overwrites what others may still read; not all ranks know who does
     * it in place. */
    if (o->collective == TUTTI_ALL_TO_ALL)
        return NULL;
    /* By windows a barrier needs no kernel, and plans have packets for what is small. */
    const bool moves = o->collective != TUTTI_BARRIER && o->collective != TUTTI_BROADCAST;
    const bool part = o->wide || o->device_stride > 0; /* no plan serves it */
    return comm->gpu->map->direct || part || (moves && couple_large(comm, o)) ? "direct" : NULL;
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
    enum tti_gpu_kernel kernel = couple_kernel(comm, o);
    const bool forced = tti_gpu_forced(comm, o->collective, name, sizeof name);
    if (forced && strcmp(name, "two_shot") == 0)
        kernel = TTI_KERNEL_TWO_SHOT;
    if (forced && o->collective == TUTTI_BROADCAST && strcmp(name, "direct") == 0)
        kernel = TTI_KERNEL_DIRECT;
    const char *equal = comm->settings.fast ? couple_equal(comm, o, kernel) : NULL;
    *served = comm->settings.fast && !forced && tti_gpu_nvls_takes(comm, o);
    if (*served)
        return tti_gpu_nvls(comm, o, stream);
    if (o->collective == TUTTI_BARRIER && !equal)
        return TUTTI_OK; /* without buffers: by flags of the window */
    if (!equal && (o->wide || o->device_stride))
        return TUTTI_OK; /* no part of plans */
    if (!equal || (forced && strcmp(name, equal) != 0))
        return tti_gpu_plan(comm, o, stream, forced, served);
    *served = true;
    return couple_run(comm, o, kernel, stream);
}
