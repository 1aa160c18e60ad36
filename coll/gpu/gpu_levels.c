/* See gpu_levels.h. Staged whole, every rank of a host would bring all of its input to the host,
 * have the processor combine it with the others' and take all of the result back. Here the devices
 * of a host share the work out first, by the ways of gpu_map.h: each rank gets an equal part of
 * what its host has, in pinned memory, and the ranks that have the same part on all hosts, a
 * column, do the rest between hosts. So a device's link to the host, and the processor, carry one
 * of as many parts as the host has ranks, and devices trade the parts among themselves.
 *
 *   all-reduce       reduce-scatter | all-reduce of the columns | all-gather
 *   reduce           reduce-scatter | reduce to the root's host | gather there
 *   broadcast        scatter on the root's host | broadcast from it | all-gather
 *   reduce-scatter   reduce-scatter, for each host | reduce-scatter
 *   all-gather       | all-gather | all-gather, for each host
 *
 * As in gpu_stage.c an operation goes in chunks that take turns in slots of pinned memory, and the
 * devices work at the next ones while hosts exchange one. Sums of 16- and 8-bit floats leave the
 * devices as float32 and are rounded once, by the columns. What the ranks of a host cannot share
 * out evenly, in whole lines, is staged. The order in which sums are made is not the order of
 * ranks, so the reproducible mode stages reductions. */
#include "coll/gpu/gpu_levels.h"

#include "coll/gpu/gpu_stage.h"
#include "coll/select.h"
#include "device/reduce.h"

#include <string.h>

struct levels {
    struct tutti_comm *comm;
    struct tti_gpu_side *side;
    const struct tti_gpu_map *map;
    const struct tti_operation *o;
    tutti_stream stream;
    bool capturing;
    bool wide;            /* sums that are not complete are float32, not of the type */
    bool rooted;          /* it has a root, and that is on this host ... */
    int root;             /* ... by its number */
    size_t width, acc;    /* bytes of an element, of a sum that is not complete */
    size_t share, length; /* elements of a rank's part, and of it in a chunk */
    size_t ins, outs;     /* parts that a slot holds: for the column's IN, from its OUT */
};

/* One chunk: elements [from, from + count) of each rank's part. */
struct piece {
    size_t index, from, count;
    char *in, *out; /* in the slot */
};

/* ---- which ---- */

/* Are parts blocks of the operation, which belong to ranks, or parts of its one block? */
static bool levels_by_rank(enum tutti_collective collective)
{
    return collective == TUTTI_REDUCE_SCATTER || collective == TUTTI_ALL_GATHER;
}

static bool levels_serve(enum tutti_collective collective)
{
    return collective == TUTTI_ALL_REDUCE || collective == TUTTI_REDUCE ||
           collective == TUTTI_BROADCAST || levels_by_rank(collective);
}

/* An equal part of a block, of whole lines if there are any, since kernels are slow where operands
 * do not begin alike. */
static size_t levels_share(size_t count, const struct levels *l)
{
    const size_t share = count / (size_t)l->map->size, line = TTI_GPU_STAGE_ALIGN / l->width;
    return share < line ? share : share / line * line;
}

/* What a call has alike on all ranks. */
static struct levels levels_of(struct tutti_comm *comm, const struct tti_operation *o)
{
    const struct tti_gpu_map *map = comm->gpu->map;
    const size_t hosts = (size_t)map->hosts;
    struct levels l = {.comm = comm, .side = comm->gpu, .map = map, .o = o};
    l.wide = tti_reduces(o->collective) && tti_acc_type(o->type) != o->type;
    l.width = tutti_type_size(o->type);
    l.acc = l.wide ? tutti_type_size(tti_acc_type(o->type)) : l.width;
    l.share = levels_by_rank(o->collective) ? o->count : levels_share(o->count, &l);
    l.ins = o->collective == TUTTI_REDUCE_SCATTER ? hosts : 1;
    l.outs = o->collective == TUTTI_ALL_GATHER ? hosts : 1;
    return l;
}

bool tti_gpu_levels_takes(struct tutti_comm *comm, const struct tti_operation *o)
{
    const struct tti_gpu_map *map = comm->gpu->map;
    const bool by_rank = levels_by_rank(o->collective);
    const size_t bytes = o->count * tutti_type_size(o->type);
    char name[64];
    if (map->hosts == 1 || map->way == TTI_GPU_STAGED || map->levels_from == 0 ||
        !levels_serve(o->collective) || o->blocks ||
        (comm->settings.reproducible && tti_order_shows(o->collective)) ||
        tti_select_forced(comm, o->collective, name, sizeof name))
        return false;
    const struct levels l = levels_of(comm, o);
    if (comm->gpu->chunk < l.ins * l.acc + l.outs * l.width)
        return false; /* not one element of each part */
    /* What ranks of a host have lies together only if they follow each other. */
    return by_rank ? comm->peers.sorted && bytes * (size_t)map->size >= map->levels_from
                   : o->count >= (size_t)map->size && bytes >= map->levels_from;
}

/* ---- inside the host ---- */

/* A collective of the ranks of this host, on `count` elements a block. */
static enum tutti_result levels_inside(const struct levels *l, enum tutti_collective collective,
                                       const void *in, void *out, size_t count, size_t stride)
{
    struct tti_operation o = {.collective = collective,
                              .in = in,
                              .out = out,
                              .count = count,
                              .type = l->o->type,
                              .op = TUTTI_SUM,
                              .root = l->root,
                              .device_stride = stride == count ? 0 : stride * l->width};
    if (collective == TUTTI_REDUCE_SCATTER) {
        o.op = l->o->op == TUTTI_AVG ? TUTTI_SUM : l->o->op;
        o.factor = l->o->factor;
        o.wide = l->wide;
    }
    return tti_gpu_mapped(l->comm, &o, l->stream, l->capturing);
}

/* Element `at` of the input or output. */
static const char *levels_in(const struct levels *l, size_t at)
{
    return l->o->in ? (const char *)l->o->in + at * l->width : NULL;
}

static char *levels_out(const struct levels *l, size_t at)
{
    return l->o->out ? (char *)l->o->out + at * l->width : NULL;
}

/* The first block of a host's ranks. */
static size_t levels_host(const struct levels *l, int host)
{
    return (size_t)host * (size_t)l->map->size * l->o->count;
}

/* Where a chunk begins in a block that is shared out: the parts of all ranks lie together. */
static size_t levels_chunk(const struct levels *l, const struct piece *p)
{
    return p->from * (size_t)l->map->size;
}

static enum tutti_result levels_before(const struct levels *l, const struct piece *p)
{
    const struct tti_gpu_ops *ops = l->side->ops;
    switch (l->o->collective) {
    case TUTTI_BROADCAST:
        return l->rooted ? levels_inside(l, TUTTI_SCATTER, levels_in(l, levels_chunk(l, p)), p->in,
                                         p->count, p->count)
                         : TUTTI_OK;
    case TUTTI_ALL_GATHER:
        return ops->copy(l->side->gpu, p->in, levels_in(l, p->from), p->count * l->width,
                         l->stream);
    case TUTTI_REDUCE_SCATTER:
        for (int h = 0; h < l->map->hosts; h++)
            TTI_TRY(levels_inside(l, TUTTI_REDUCE_SCATTER,
                                  levels_in(l, levels_host(l, h) + p->from),
                                  p->in + (size_t)h * p->count * l->acc, p->count, l->o->count));
        return TUTTI_OK;
    default:
        return levels_inside(l, TUTTI_REDUCE_SCATTER, levels_in(l, levels_chunk(l, p)), p->in,
                             p->count, p->count);
    }
}

/* The parts that all hosts have sent, to all ranks of this one. */
static enum tutti_result levels_gather(const struct levels *l, const struct piece *p)
{
    const size_t own = (size_t)l->map->rank * l->o->count;
    for (int h = 0; h < l->map->hosts; h++) {
        const size_t at = levels_host(l, h) + p->from;
        char *part = levels_out(l, at + own);
        TTI_TRY(l->side->ops->copy(l->side->gpu, part, p->out + (size_t)h * p->count * l->width,
                                   p->count * l->width, l->stream));
        TTI_TRY(levels_inside(l, TUTTI_ALL_GATHER, part, levels_out(l, at), p->count, l->o->count));
    }
    return TUTTI_OK;
}

static enum tutti_result levels_after(const struct levels *l, const struct piece *p)
{
    const size_t at = levels_chunk(l, p), bytes = p->count * l->width;
    switch (l->o->collective) {
    case TUTTI_REDUCE:
        return l->rooted
                   ? levels_inside(l, TUTTI_GATHER, p->out, levels_out(l, at), p->count, p->count)
                   : TUTTI_OK;
    case TUTTI_ALL_GATHER:
        return levels_gather(l, p);
    case TUTTI_REDUCE_SCATTER:
        return l->side->ops->copy(l->side->gpu, levels_out(l, p->from), p->out, bytes, l->stream);
    default: {
        char *part = levels_out(l, at + (size_t)l->map->rank * p->count);
        TTI_TRY(l->side->ops->copy(l->side->gpu, part, p->out, bytes, l->stream));
        return levels_inside(l, TUTTI_ALL_GATHER, part, levels_out(l, at), p->count, p->count);
    }
    }
}

/* ---- between hosts, and all ---- */

static struct piece levels_piece(const struct levels *l, size_t index)
{
    struct piece p = {
        .index = index, .from = index * l->length, .in = tti_gpu_stage_slot(l->side, index)};
    const size_t left = l->share - p.from;
    p.count = left < l->length ? left : l->length;
    /* A broadcast's root has its part where the others get it. */
    const size_t in = l->o->collective == TUTTI_BROADCAST ? 0 : l->ins * p.count * l->acc;
    p.out = p.in + tti_gpu_stage_round(in);
    return p;
}

static int levels_word(const struct piece *p)
{
    return (int)(p->index % TTI_GPU_STAGE_SLOTS);
}

static enum tutti_result levels_begin(const struct levels *l, size_t index)
{
    const struct piece p = levels_piece(l, index);
    const bool premultiplied = tti_gpu_premultiplied(l->o);
    struct tti_operation o = {.collective = l->o->collective,
                              .in = p.in,
                              .out = p.out,
                              .count = p.count,
                              .whole = l->o->count,
                              .type = l->o->type,
                              .op = premultiplied ? TUTTI_SUM : l->o->op,
                              .root = l->o->root,
                              .column = true,
                              .wide = l->wide};
    TTI_TRY(levels_before(l, &p));
    return tti_gpu_stage_call(l->comm, &o, 1, levels_word(&p), l->stream, l->capturing);
}

static enum tutti_result levels_end(const struct levels *l, size_t index)
{
    const struct piece p = levels_piece(l, index);
    TTI_TRY(tti_gpu_stage_await(l->side, levels_word(&p), l->stream));
    return levels_after(l, &p);
}

static enum tutti_result levels_run(const struct levels *l)
{
    const size_t chunks = (l->share + l->length - 1) / l->length;
    for (size_t k = 0; k < chunks + TTI_GPU_STAGE_LAG; k++) {
        if (k < chunks)
            TTI_TRY(levels_begin(l, k));
        if (k >= TTI_GPU_STAGE_LAG)
            TTI_TRY(levels_end(l, k - TTI_GPU_STAGE_LAG));
        TTI_TRY(tti_gpu_room_between(l->comm, l->stream));
    }
    return TUTTI_OK;
}

/* What cannot be shared out evenly: less than a line for each rank of a host. */
static enum tutti_result levels_rest(const struct levels *l)
{
    const size_t done = l->share * (size_t)l->map->size;
    struct tti_operation o = *l->o;
    if (levels_by_rank(o.collective) || done == o.count)
        return TUTTI_OK;
    o.in = levels_in(l, done);
    o.out = levels_out(l, done);
    o.whole = o.count;
    o.count -= done;
    return tti_gpu_staged(l->comm, &o, l->stream, l->capturing);
}

enum tutti_result tti_gpu_levels(struct tutti_comm *comm, const struct tti_operation *o,
                                 tutti_stream stream, bool capturing)
{
    struct levels l = levels_of(comm, o);
    const int root = tti_gpu_number(l.map, o->root);
    l.stream = stream;
    l.capturing = capturing;
    l.rooted = root >= 0;
    l.root = l.rooted ? root : 0;
    TTI_TRY(tti_gpu_stage_begin(l.side));
    TTI_TRY(tti_gpu_stage_length(l.side, l.ins * l.acc + l.outs * l.width, l.width, &l.length));
    TTI_TRY(tti_gpu_stage_slots(l.side));
    TTI_TRY(levels_run(&l));
    return levels_rest(&l);
}
