/* All-reduce by the switch (device/cuda/nvls.cu), for ranks on GPUs of their own that can all be
 * part of a multicast object: their arenas are bound to one, and large sums go through the windows.
 * Set up at the end of set-up (gpu_map.c), with a test; whoever cannot do a step says so, and then
 * nobody uses it. Only if asked for (TUTTI_NVLS), since nobody promises in which order the switch
 * adds up, and so not the same bits in every run. Not yet run on a GPU. */
#include "coll/gpu/gpu_map.h"

#include "base/clock.h"
#include "base/log.h"

#include <unistd.h>

enum { PASS_SECONDS = 15, TEST_COUNT = 1000, LEAST_RANKS = 2 };

/* ---- set-up ---- */

static bool nvls_possible(const struct tutti_comm *comm, const struct tti_gpu_map *map,
                          const struct tti_gpu_hello *hellos)
{
    bool possible = map->way == TTI_GPU_COUPLED && map->hosts == 1 && map->size >= LEAST_RANKS &&
                    !comm->settings.reproducible; /* the switch has an order of its own */
    for (int r = 0; r < map->size && possible; r++) {
        possible = hellos[r].nvls_from > 0 && hellos[r].offer.by_descriptor;
        for (int s = 0; s < r && possible; s++)
            possible = !tti_arena_same_device(&hellos[r].offer, &hellos[s].offer);
    }
    return possible;
}

/* Rank 0 makes the object, all others get it from there. *listener and *fd are the caller's. */
static enum tutti_result nvls_begin(struct tutti_comm *comm, struct tti_gpu_map *map, int *listener,
                                    int *fd, struct tti_passing_door *door)
{
    const struct tti_gpu_ops *ops = comm->gpu->ops;
    TTI_TRY(tti_passing_open(door, listener));
    return map->rank != 0
               ? TUTTI_OK
               : ops->multicast_create(comm->gpu->gpu, map->size,
                                       map->window_at + map->window_bytes, fd, &map->multicast);
}

static enum tutti_result nvls_pass(struct tutti_comm *comm, struct tti_gpu_map *map, int listener,
                                   int fd, const struct tti_passing_door *doors)
{
    int give[TTI_GPU_RANKS], take[TTI_GPU_RANKS];
    for (int r = 0; r < map->size; r++) {
        give[r] = map->rank == 0 && r != 0 ? fd : -1;
        take[r] = map->rank != 0 && r == 0 ? -1 : -2;
    }
    const struct tti_passing passing = {.self = map->rank,
                                        .count = map->size,
                                        .listener = listener,
                                        .doors = doors,
                                        .give = give,
                                        .take = take};
    TTI_TRY(tti_passing_exchange(&passing, tti_deadline_in(PASS_SECONDS)));
    if (map->rank == 0)
        return TUTTI_OK;
    const enum tutti_result result = comm->gpu->ops->multicast_import(
        comm->gpu->gpu, take[0], map->window_at + map->window_bytes, &map->multicast);
    close(take[0]);
    return result;
}

/* Step by step, each agreed: to bind before all have joined would wait for ever. */
static enum tutti_result nvls_join(struct tutti_comm *comm, struct tti_gpu_map *map, bool *all)
{
    struct tti_passing_door door = {.name = ""}, doors[TTI_GPU_RANKS];
    int listener = -1, fd = -1;
    const bool begun = tti_gpu_map_said(nvls_begin(comm, map, &listener, &fd, &door));
    enum tutti_result result = tti_gpu_map_all(comm, begun, all);
    if (result == TUTTI_OK && *all)
        result = tti_gpu_map_gather(comm, &door, sizeof door, doors);
    if (result == TUTTI_OK && *all) {
        const bool passed = tti_gpu_map_said(nvls_pass(comm, map, listener, fd, doors));
        result = tti_gpu_map_all(comm, passed, all);
    }
    if (listener >= 0)
        close(listener);
    if (fd >= 0)
        close(fd);
    return result;
}

static enum tutti_result nvls_bind(struct tutti_comm *comm, struct tti_gpu_map *map)
{
    void *address = NULL;
    TTI_TRY(comm->gpu->ops->multicast_bind(map->multicast, map->arenas[map->rank].base, &address));
    map->multi = address;
    return TUTTI_OK;
}

/* ---- running ---- */

static enum tutti_result nvls_launch(struct tutti_comm *comm, const struct tti_operation *o,
                                     size_t count, tutti_stream stream)
{
    const struct tti_gpu_map *map = comm->gpu->map;
    struct tti_gpu *gpu = comm->gpu->gpu;
    const size_t bytes = count * tutti_type_size(o->type) / (size_t)map->size;
    const unsigned threads = tti_gpu_threads(gpu, TTI_COUPLED_THREADS);
    const size_t wanted = bytes / (threads * 16) + 1;
    struct tti_nvls_args args = {.coupled = tti_gpu_couple_args(comm, o, count),
                                 .multi = map->multi + map->window_at};
    const struct tti_gpu_launch launch = {
        .kernel = TTI_KERNEL_NVLS,
        .type = o->type,
        .blocks = wanted < map->blocks ? (unsigned)wanted : map->blocks,
        .threads = threads,
        .args = &args,
        .args_bytes = sizeof args,
    };
    return gpu->ops->launch(gpu, &launch, stream);
}

/* Exact sums of small numbers, through the switch and back. */
static enum tutti_result nvls_test(struct tutti_comm *comm, struct tti_gpu_map *map,
                                   uint64_t deadline)
{
    struct tti_gpu *gpu = comm->gpu->gpu;
    const struct tti_operation o = {.collective = TUTTI_ALL_REDUCE,
                                    .op = TUTTI_SUM,
                                    .type = TUTTI_FLOAT32,
                                    .count = TEST_COUNT};
    float *values = (float *)(void *)map->told->program;
    char *own = tti_gpu_at(map, map->rank, map->window_at);
    _Static_assert(TEST_COUNT * 4 <= TTI_PROGRAM_BYTES, "fits");
    const int n = map->size;
    for (int i = 0; i < TEST_COUNT; i++)
        values[i] = (float)(map->rank + 1 + i % 7);
    TTI_TRY(gpu->ops->copy(gpu, own, values, TEST_COUNT * 4, map->aside));
    TTI_TRY(nvls_launch(comm, &o, TEST_COUNT, map->aside));
    TTI_TRY(gpu->ops->copy(gpu, values, own, TEST_COUNT * 4, map->aside));
    TTI_TRY(tti_gpu_stream_wait(gpu, map->aside, deadline, "trying sums by the switch"));
    for (int i = 0; i < TEST_COUNT; i++)
        if (values[i] != (float)(n * (n + 1) / 2 + n * (i % 7)))
            return TTI_FAIL(TUTTI_ERR_SYSTEM,
                            "a sum by the switch (NVLS) was %g where it is %d; TUTTI_NVLS=0 does "
                            "not try it",
                            (double)values[i], n * (n + 1) / 2 + n * (i % 7));
    return TUTTI_OK;
}

static void nvls_end(struct tti_gpu *gpu, void *multicast)
{
    gpu->ops->multicast_destroy(multicast);
}

void tti_gpu_nvls_drop(struct tti_gpu_side *side, struct tti_gpu_map *map)
{
    if (map->multicast)
        tti_gpu_retire(side->gpu, nvls_end, map->multicast);
    map->multicast = NULL;
    map->multi = NULL;
    map->nvls_from = 0;
}

static bool nvls_prepared(struct tti_gpu *gpu)
{
    return gpu->ops->prepare(gpu, TTI_KERNEL_NVLS, TUTTI_FLOAT32) == TUTTI_OK &&
           gpu->ops->prepare(gpu, TTI_KERNEL_NVLS, TUTTI_FLOAT16) == TUTTI_OK &&
           gpu->ops->prepare(gpu, TTI_KERNEL_NVLS, TUTTI_BFLOAT16) == TUTTI_OK;
}

enum tutti_result tti_gpu_nvls_make(struct tutti_comm *comm, struct tti_gpu_map *map,
                                    const struct tti_gpu_hello *hellos, uint64_t deadline)
{
    bool all = false;
    if (!nvls_possible(comm, map, hellos))
        return TUTTI_OK;
    TTI_TRY(tti_gpu_map_all(comm, nvls_prepared(comm->gpu->gpu), &all));
    if (all)
        TTI_TRY(nvls_join(comm, map, &all));
    if (all)
        TTI_TRY(tti_gpu_map_all(comm, tti_gpu_map_said(nvls_bind(comm, map)), &all));
    if (all)
        TTI_TRY(tti_gpu_map_all(comm, tti_gpu_map_said(nvls_test(comm, map, deadline)), &all));
    for (int r = 0; r < map->size; r++)
        if (hellos[r].nvls_from > map->nvls_from)
            map->nvls_from = hellos[r].nvls_from;
    if (!all)
        tti_gpu_nvls_drop(comm->gpu, map);
    else
        TTI_LOG(TTI_LOG_INFO, "device memory of %d ranks: large sums by the switch (NVLS)",
                map->size);
    return TUTTI_OK;
}

/* 16-bit sums come rounded from the switch, so they cannot be averaged as a plan does. */
bool tti_gpu_nvls_takes(const struct tutti_comm *comm, const struct tti_operation *o)
{
    const struct tti_gpu_map *map = comm->gpu->map;
    const bool single = o->type == TUTTI_FLOAT32;
    return map->multi && o->collective == TUTTI_ALL_REDUCE &&
           (single || o->type == TUTTI_FLOAT16 || o->type == TUTTI_BFLOAT16) &&
           (o->op == TUTTI_SUM || (single && o->op == TUTTI_AVG)) &&
           o->count * tutti_type_size(o->type) >= map->nvls_from;
}

/* Over the windows, which nobody else touches between the kernel's meetings. */
enum tutti_result tti_gpu_nvls(struct tutti_comm *comm, const struct tti_operation *o,
                               tutti_stream stream)
{
    struct tti_gpu *gpu = comm->gpu->gpu;
    const struct tti_gpu_map *map = comm->gpu->map;
    const size_t width = tutti_type_size(o->type), most = map->window_bytes / 16 * 16 / width;
    char *own = tti_gpu_at(map, map->rank, map->window_at);
    comm->gpu->went = "nvls";
    for (size_t from = 0; from < o->count; from += most) {
        const size_t count = o->count - from < most ? o->count - from : most;
        TTI_TRY(
            gpu->ops->copy(gpu, own, (const char *)o->in + from * width, count * width, stream));
        TTI_TRY(nvls_launch(comm, o, count, stream));
        TTI_TRY(gpu->ops->copy(gpu, (char *)o->out + from * width, own, count * width, stream));
        TTI_TRY(tti_gpu_room_between(comm, stream));
    }
    return TUTTI_OK;
}
