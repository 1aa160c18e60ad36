/* Collectives by the kernel that runs any plan (device/cuda/plan_run.cu), for ranks whose kernels
 * run at the same time: where no hand-written kernel serves (gpu_couple.c), or another algorithm is
 * asked for by name.
 *
 * A plan is compiled once (device/program.h), for which the plans of all ranks are built, and kept
 * in the arena. It runs straight on the callers' buffers where pointers mean the same to all ranks;
 * else, and for what changes its input (a pre-multiplied sum), may be in place where that matters
 * (an all-to-all), or lies elsewhere at each rank (blocks that differ in size), on the windows, in
 * passes that copy in and out. Everything here follows from what all ranks know alike. */
#include "coll/gpu/gpu_map.h"

#include "base/config.h"
#include "base/memory.h"
#include "coll/algorithms/algorithms.h"
#include "coll/door.h"
#include "coll/select.h"
#include "device/program.h"
#include "device/reduce.h"

#include <stdlib.h>
#include <string.h>

enum {
    SLICE_BYTES = 32 << 10, /* of a lane, a slice at least */
    PIECE_BYTES = 64 << 10, /* what a block moves before it tells the next rank */
    ALIGN = 128,
};

void (*tti_gpu_plan_made)(struct tti_plan *plan, int rank);

/* ---- programs ---- */

static void plans_free(struct tti_plan **plans, int n)
{
    for (int r = 0; r < n; r++)
        tti_plan_destroy(plans[r]);
}

static enum tutti_result plans_build(const struct tti_algorithm *algorithm,
                                     struct tti_plan_spec spec, struct tti_plan **plans)
{
    for (int r = 0; r < spec.nranks; r++) {
        spec.rank = r;
        enum tutti_result result = algorithm->plan(&spec, &plans[r]);
        if (result != TUTTI_OK) {
            plans_free(plans, r);
            return result;
        }
        if (tti_gpu_plan_made)
            tti_gpu_plan_made(plans[r], r);
    }
    return TUTTI_OK;
}

/* To the arena, by way of page-locked memory; no stream of the caller's is touched, which may be
 * under capture. */
static enum tutti_result program_upload(struct tutti_comm *comm, size_t at, size_t bytes)
{
    struct tti_gpu_map *map = comm->gpu->map;
    struct tti_gpu *gpu = comm->gpu->gpu;
    TTI_TRY(
        gpu->ops->copy(gpu, tti_gpu_at(map, map->rank, at), map->told->program, bytes, map->aside));
    return tti_comm_stream_wait(comm, gpu, map->aside, "copying a plan to the device");
}

static enum tutti_result program_make(struct tutti_comm *comm, struct tti_plan *const *plans,
                                      struct tti_gpu_program *program)
{
    struct tti_gpu_map *map = comm->gpu->map;
    const struct tti_plan *own = plans[map->rank];
    TTI_TRY(tti_program_shape_of(plans, map->size, &program->shape));
    program->fits = program->shape.bytes <= TTI_PROGRAM_BYTES;
    program->chunks = own->chunks;
    program->lanes = (uint32_t)own->nlanes;
    program->reduces = own->reduces;
    if (!program->fits)
        return TUTTI_OK;
    memset(map->told->program, 0, sizeof map->told->program);
    TTI_TRY(tti_program_make(plans, map->size, map->rank, map->told->program,
                             sizeof map->told->program));
    return program_upload(comm, program->at, program->shape.bytes);
}

static bool spec_same(const struct tti_plan_spec *a, const struct tti_plan_spec *b)
{
    return a->root == b->root && a->lanes == b->lanes && a->slices == b->slices;
}

/* *found is NULL where this plan does not go on the device, alike on all ranks. */
static enum tutti_result program_find(struct tutti_comm *comm,
                                      const struct tti_algorithm *algorithm,
                                      const struct tti_plan_spec *spec,
                                      const struct tti_gpu_program **found)
{
    struct tti_gpu_map *map = comm->gpu->map;
    struct tti_plan *plans[TTI_GPU_RANKS] = {NULL};
    *found = NULL;
    for (int k = 0; k < map->program_count; k++) {
        struct tti_gpu_program *known = &map->programs[k];
        if (known->algorithm == algorithm && spec_same(&known->spec, spec)) {
            *found = known->fits ? known : NULL;
            return TUTTI_OK;
        }
    }
    if (map->program_count == TTI_PROGRAMS)
        return TUTTI_OK;
    struct tti_gpu_program *made = &map->programs[map->program_count];
    *made = (struct tti_gpu_program){
        .algorithm = algorithm,
        .spec = *spec,
        .at = map->programs_at + (size_t)map->program_count * TTI_PROGRAM_BYTES,
    };
    TTI_TRY(plans_build(algorithm, *spec, plans));
    enum tutti_result result = program_make(comm, plans, made);
    plans_free(plans, map->size);
    if (result == TUTTI_ERR_UNSUPPORTED) /* more lanes than it takes */
        result = TUTTI_OK;
    TTI_TRY(result);
    map->program_count++;
    *found = made->fits ? made : NULL;
    return TUTTI_OK;
}

/* ---- how it runs ---- */

struct running {
    struct tutti_comm *comm;
    const struct tti_gpu_map *map;
    const struct tti_operation *o;
    const struct tti_gpu_program *program;
    tutti_stream stream;
    size_t width, acc;              /* bytes of an element, of an accumulator */
    uint32_t in_blocks, out_blocks; /* at the rank that has most ... */
    uint32_t own_in, own_out;       /* ... and at this one */
    uint32_t slices, wire;
};

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Scratch memory of a window of so many elements; *slots_at: where in it the slots begin. */
static size_t scratch_bytes(const struct running *g, size_t window, size_t *slots_at)
{
    const struct tti_program_shape *shape = &g->program->shape;
    *slots_at = aligned(shape->scratch_blocks * window * g->acc);
    const size_t largest = tti_chunk_largest(window, g->width, g->program->chunks);
    /* Every slice is rounded up to a line. */
    return *slots_at +
           aligned(shape->slots * (largest + TTI_PLAN_BLOCKS * (64 / g->width)) * g->acc);
}

/* The most elements of a block for which `blocks` of it and the scratch memory fit the window; 0:
 * not even a line does. */
static size_t window_elements(const struct running *g, size_t blocks)
{
    const size_t room = g->map->window_bytes, all = tti_block_most(g->o);
    size_t least = 0, most = all, slots_at;
    while (least < most) { /* bytes grow with elements */
        const size_t middle = most - (most - least) / 2;
        if (blocks * aligned(middle * g->width) + scratch_bytes(g, middle, &slots_at) <= room)
            least = middle;
        else
            most = middle - 1;
    }
    return least == all || least < ALIGN ? least : least / ALIGN * ALIGN;
}

/* Bytes of a slot that the largest message takes as packets or lines, in one slice. */
static size_t wire_bytes(const struct running *g, uint32_t wire, size_t window)
{
    const size_t chunk = tti_chunk_largest(window, g->width, g->program->chunks) *
                         (g->program->reduces ? g->acc : g->width);
    const size_t words = (chunk + 7) / 8;
    return g->program->shape.message * (wire == TTI_WIRE_LL ? words * 16 : (words + 14) / 15 * 128);
}

static void choose_wire(struct running *g, size_t window)
{
    const struct tti_gpu_map *map = g->map;
    const bool packets = g->program->lanes <= TTI_PACKET_BLOCKS;
    g->wire = TTI_WIRE_BULK;
    if (packets && map->lines && map->wire != TTI_WIRE_LL &&
        wire_bytes(g, TTI_WIRE_LL128, window) <= TTI_PACKET_BYTES)
        g->wire = TTI_WIRE_LL128;
    if (packets && map->wire != TTI_WIRE_LL128 &&
        wire_bytes(g, TTI_WIRE_LL, window) <= TTI_PACKET_BYTES)
        g->wire = TTI_WIRE_LL;
    if (map->wire == TTI_WIRE_BULK)
        g->wire = TTI_WIRE_BULK;
    const size_t most = map->blocks < TTI_PLAN_BLOCKS ? map->blocks : TTI_PLAN_BLOCKS;
    const size_t wanted = window * g->width / (g->program->lanes * SLICE_BYTES) + 1;
    const size_t room = most / g->program->lanes;
    g->slices = g->wire != TTI_WIRE_BULK ? 1 : (uint32_t)(wanted < room ? wanted : room);
}

static struct tti_plan_args plan_args(const struct running *g, size_t count, size_t window)
{
    const struct tti_gpu_map *map = g->map;
    struct tti_plan_args args = {
        .coupled = tti_gpu_couple_args(g->comm, g->o, count),
        .program = tti_gpu_at(map, g->map->rank, g->program->at),
        .window = window,
        .slot_elements = tti_chunk_largest(tti_chunk_largest(window, g->width, g->program->chunks),
                                           g->width, g->slices),
        .piece = PIECE_BYTES / g->width,
        .chunks = g->program->chunks,
        .passes = (uint32_t)((count + window - 1) / window),
        .slices = g->slices,
        .wire = g->wire,
        .reduces = g->program->reduces,
        .type = (uint32_t)g->o->type,
        .size = (uint32_t)g->width,
        .wide_size = (uint32_t)g->acc,
    };
    args.coupled.scaled = 0; /* done already */
    args.coupled.slot_bytes = TTI_PACKET_BYTES;
    for (int p = 0; p < g->map->size; p++)
        args.coupled.slots[p] = tti_gpu_at(map, p, map->packets_at);
    return args;
}

static enum tutti_result plan_launch(const struct running *g, const struct tti_plan_args *args)
{
    struct tti_gpu *gpu = g->comm->gpu->gpu;
    const struct tti_gpu_launch launch = {
        .kernel = TTI_KERNEL_PLAN_RUN,
        .blocks = g->program->lanes * g->slices,
        .threads = tti_gpu_threads(gpu, TTI_PLAN_THREADS),
        .args = args,
        .args_bytes = sizeof *args,
    };
    return gpu->ops->launch(gpu, &launch, g->stream);
}

/* On the callers' buffers: the kernels tell each other where they are. */
static enum tutti_result run_direct(struct running *g, size_t window)
{
    const struct tti_gpu_map *map = g->map;
    size_t slots_at = 0;
    choose_wire(g, window);
    struct tti_plan_args args = plan_args(g, g->o->count, window);
    (void)scratch_bytes(g, window, &slots_at);
    args.coupled.exchange = 1;
    args.slots_at = slots_at;
    for (int p = 0; p < g->map->size; p++)
        args.scratch[p] = tti_gpu_at(map, p, map->window_at);
    return plan_launch(g, &args);
}

/* ---- on the windows ---- */

/* Of all ranks the most, since each has to know where the others' output lies. */
static size_t window_takes(const struct running *g, const struct tti_gpu_range *r, uint32_t blocks)
{
    return aligned(blocks > 1 ? tti_gpu_range_at(r, blocks, blocks)
                              : blocks * r->length * g->width);
}

/* Blocks that differ, as they lie in the windows. */
static void window_uneven(const struct running *g, const struct tti_gpu_range *r,
                          struct tti_plan_args *args)
{
    const uint32_t n = (uint32_t)g->map->size;
    if (!g->o->blocks)
        return;
    args->uneven = 1 + (g->o->collective == TUTTI_ALL_GATHER ? TTI_DEVICE_OUT : TTI_DEVICE_IN);
    for (uint32_t k = 0; k < n; k++) {
        args->counts[k] = tti_gpu_range_count(r, n, k);
        args->displs[k] = tti_gpu_range_at(r, n, k) / g->width;
    }
}

/* A kernel ends when all that it sent is read, so the next pass may overwrite the windows. */
static enum tutti_result run_window(struct running *g, size_t window)
{
    const struct tti_gpu_map *map = g->map;
    char *own = tti_gpu_at(map, map->rank, map->window_at);
    struct tti_gpu_range r = tti_gpu_range_of(g->o, map->rank, 1);
    while (tti_gpu_range_next(&r, window)) {
        const size_t out_at = window_takes(g, &r, g->in_blocks);
        const size_t scratch_at = out_at + window_takes(g, &r, g->out_blocks);
        size_t slots_at = 0;
        choose_wire(g, r.length);
        struct tti_plan_args args = plan_args(g, r.length, r.length);
        (void)scratch_bytes(g, r.length, &slots_at);
        args.slots_at = slots_at;
        window_uneven(g, &r, &args);
        for (int p = 0; p < g->map->size; p++) {
            char *base = tti_gpu_at(map, p, map->window_at);
            args.coupled.in[p] = base;
            args.coupled.out[p] = base + out_at;
            args.scratch[p] = base + scratch_at;
        }
        TTI_TRY(tti_gpu_publish(g->comm, &r, g->own_in, own, g->stream));
        TTI_TRY(plan_launch(g, &args));
        TTI_TRY(tti_gpu_range_unpack(&r, g->comm->gpu->gpu, g->own_out, own + out_at, g->stream));
        TTI_TRY(tti_gpu_room_between(g->comm, g->stream));
    }
    return TUTTI_OK;
}

/* ---- which plan ---- */

/* Few blocks and few steps are what pays between ranks that all reach each other. */
static const struct tti_algorithm *plan_usual(const struct tti_operation *o)
{
    enum { TREE_MOST = 64 << 10 };
    switch (o->collective) {
    case TUTTI_ALL_REDUCE:
        return tti_algorithm_find(o->collective, "two_shot");
    case TUTTI_BROADCAST:
        return tti_algorithm_find(o->collective, o->count * tutti_type_size(o->type) <= TREE_MOST
                                                     ? "tree"
                                                     : "scatter_gather");
    default:
        return tti_algorithm_find(o->collective, "direct");
    }
}

static enum tutti_result plan_select(struct tutti_comm *comm, const struct tti_operation *o,
                                     bool forced, const struct tti_algorithm **algorithm,
                                     struct tti_plan_spec *spec)
{
    struct tti_selection selection;
    if (forced) {
        tti_work_pause(comm); /* what selection keeps belongs to whoever runs operations */
        const enum tutti_result result =
            tti_select_plan(comm, o->collective, tti_block_mean(o), o->type, o->root, &selection);
        tti_work_resume(comm);
        TTI_TRY(result);
        *algorithm = selection.algorithm;
        *spec = selection.spec;
        return TUTTI_OK;
    }
    *algorithm = plan_usual(o);
    *spec = (struct tti_plan_spec){.collective = o->collective,
                                   .nranks = comm->gpu->map->size,
                                   .rank = comm->gpu->map->rank,
                                   .root = o->root,
                                   .lanes = 1,
                                   .slices = 1,
                                   .layout = {.nhosts = 1}};
    if (*algorithm && (*algorithm)->applicable && !(*algorithm)->applicable(spec))
        *algorithm = NULL;
    return TUTTI_OK;
}

static void plan_blocks(struct running *g)
{
    for (int r = 0; r < g->map->size; r++) {
        uint32_t in = 0, out = 0;
        tti_shape(g->o->collective, g->map->size, r, g->o->root, &in, &out);
        g->in_blocks = in > g->in_blocks ? in : g->in_blocks;
        g->out_blocks = out > g->out_blocks ? out : g->out_blocks;
        g->own_in = r == g->map->rank ? in : g->own_in;
        g->own_out = r == g->map->rank ? out : g->own_out;
    }
}

enum tutti_result tti_gpu_plan(struct tutti_comm *comm, const struct tti_operation *o,
                               tutti_stream stream, bool forced, bool *served)
{
    const struct tti_algorithm *algorithm = NULL;
    struct tti_plan_spec spec;
    struct running g = {.comm = comm,
                        .map = comm->gpu->map,
                        .o = o,
                        .stream = stream,
                        .width = tutti_type_size(o->type)};
    *served = false;
    TTI_TRY(plan_select(comm, o, forced, &algorithm, &spec));
    if (!algorithm)
        return TUTTI_OK;
    TTI_TRY(program_find(comm, algorithm, &spec, &g.program));
    if (!g.program || g.program->lanes > g.map->blocks)
        return TUTTI_OK;
    const enum tutti_type acc = g.program->reduces ? tti_acc_type(o->type) : o->type;
    const bool direct = g.map->direct && !tti_gpu_premultiplied(o) && !o->blocks &&
                        o->collective != TUTTI_ALL_TO_ALL;
    g.acc = tutti_type_size(acc);
    plan_blocks(&g);
    const size_t window = window_elements(&g, direct ? 0 : g.in_blocks + g.out_blocks);
    if (window == 0)
        return TUTTI_OK;
    *served = true;
    comm->gpu->went = algorithm->name;
    if (direct)
        TTI_TRY(tti_gpu_open(comm, o));
    return direct ? run_direct(&g, window) : run_window(&g, window);
}
