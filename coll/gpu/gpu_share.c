/* Arenas of all ranks, mapped by all: part of set-up (gpu_map.c). Memory that goes to other
 * processes by descriptor is tried first, and if a rank cannot take it in, CUDA's older handles,
 * which are bytes. A rank that cannot do its part says so and goes on taking part. */
#include "coll/gpu/gpu_map.h"

#include "base/clock.h"
#include "base/log.h"

#include <string.h>
#include <unistd.h>

enum { PASS_SECONDS = 15 }; /* longer than ranks differ in coming, shorter than set-up */

/* One rank's part in one attempt. */
struct share {
    struct tutti_comm *comm;
    struct tti_gpu_map *map;
    uint64_t deadline;
    int own, listener;        /* descriptors, or -1: of the own arena, of the own door */
    int taken[TTI_GPU_RANKS]; /* of the others' arenas */
};

static void share_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* The own arena and door. */
static enum tutti_result share_offer(struct share *s, struct tti_gpu_hello *mine)
{
    struct tti_gpu *gpu = s->comm->gpu->gpu;
    struct tti_arena_map *own = &s->map->arenas[s->map->rank];
    const size_t bytes = s->map->arena_bytes;
    enum tutti_result result =
        tti_arena_create(gpu, bytes, s->map->by_descriptor, s->deadline, own);
    if (result != TUTTI_OK && s->map->by_descriptor) /* old driver, or a device that cannot */
        result = tti_arena_create(gpu, bytes, false, s->deadline, own);
    TTI_TRY(result);
    TTI_TRY(tti_arena_describe(gpu, own, bytes, &mine->offer, &s->own));
    if (!mine->offer.exported && s->map->by_descriptor) {
        tti_arena_unmap(gpu, own);
        TTI_TRY(tti_arena_create(gpu, bytes, false, s->deadline, own));
        TTI_TRY(tti_arena_describe(gpu, own, bytes, &mine->offer, &s->own));
    }
    return s->own < 0 ? TUTTI_OK : tti_passing_open(&mine->door, &s->listener);
}

static bool share_passes(const struct tti_gpu_hello *from, const struct tti_gpu_hello *to)
{
    return from->offer.by_descriptor && !tti_arena_same_process(&from->offer, &to->offer);
}

/* Descriptors to and from ranks in other processes. All ranks' arenas are of a kind, or a door is
 * missing where one knocks, which ends this attempt. */
static enum tutti_result share_pass(struct share *s, const struct tti_gpu_hello *hellos)
{
    const struct tti_gpu_map *map = s->map;
    const struct tti_gpu_hello *own = &hellos[s->comm->rank];
    struct tti_passing_door doors[TTI_GPU_RANKS];
    int give[TTI_GPU_RANKS];
    for (int p = 0; p < map->size; p++) {
        const struct tti_gpu_hello *theirs = &hellos[map->of[p]];
        doors[p] = theirs->door;
        give[p] = share_passes(own, theirs) ? s->own : -1;
        s->taken[p] = share_passes(theirs, own) ? -1 : -2;
    }
    const struct tti_passing passing = {.self = map->rank,
                                        .count = map->size,
                                        .listener = s->listener,
                                        .doors = doors,
                                        .give = give,
                                        .take = s->taken};
    const uint64_t soon = tti_deadline_in(PASS_SECONDS);
    return tti_passing_exchange(&passing, soon < s->deadline ? soon : s->deadline);
}

static enum tutti_result share_map(struct share *s, const struct tti_gpu_hello *hellos)
{
    struct tutti_comm *comm = s->comm;
    TTI_TRY(share_pass(s, hellos));
    for (int p = 0; p < s->map->size; p++) {
        const int rank = s->map->of[p];
        if (rank == comm->rank)
            continue;
        if (hellos[rank].offer.bytes == 0)
            return TTI_FAIL(TUTTI_ERR_UNSUPPORTED, "rank %d (%s) has no memory to share", rank,
                            tutti_comm_rank_name(comm, rank));
        enum tutti_result result =
            tti_arena_map(comm->gpu->gpu, &hellos[rank].offer, s->taken[p], &s->map->arenas[p]);
        if (result != TUTTI_OK)
            return TTI_CONTEXT(result, "mapping memory of rank %d (%s)", rank,
                               tutti_comm_rank_name(comm, rank));
    }
    return TUTTI_OK;
}

static enum tutti_result share_attempt(struct share *s, struct tti_gpu_hello *mine,
                                       struct tti_gpu_hello *hellos, bool *all)
{
    static const struct tti_arena_map none;
    struct tutti_comm *comm = s->comm;
    /* Who has nothing to offer says at least where it is. */
    TTI_TRY(tti_arena_describe(comm->gpu->gpu, &none, 0, &mine->offer, &s->own));
    if (mine->way > TTI_GPU_STAGED && !tti_gpu_map_said(share_offer(s, mine)))
        mine->way = TTI_GPU_STAGED;
    TTI_TRY(tti_gpu_map_gather(comm, mine, sizeof *mine, hellos));
    *all = true;
    for (int r = 0; r < comm->size; r++)
        *all = *all && hellos[r].way > TTI_GPU_STAGED;
    return *all ? tti_gpu_map_all(comm, tti_gpu_map_said(share_map(s, hellos)), all) : TUTTI_OK;
}

/* One attempt, and nothing left open. */
static enum tutti_result share_once(struct tutti_comm *comm, struct tti_gpu_map *map,
                                    uint64_t deadline, struct tti_gpu_hello *mine,
                                    struct tti_gpu_hello *hellos, bool *all)
{
    struct share s = {.comm = comm, .map = map, .deadline = deadline, .own = -1, .listener = -1};
    for (int p = 0; p < TTI_GPU_RANKS; p++)
        s.taken[p] = -1;
    const enum tutti_result result = share_attempt(&s, mine, hellos, all);
    share_close(&s.own);
    share_close(&s.listener);
    for (int p = 0; p < TTI_GPU_RANKS; p++)
        share_close(&s.taken[p]);
    return result;
}

enum tutti_result tti_gpu_share(struct tutti_comm *comm, struct tti_gpu_map *map, uint64_t deadline,
                                struct tti_gpu_hello *mine, struct tti_gpu_hello *hellos, bool *all)
{
    bool passed = false;
    TTI_TRY(share_once(comm, map, deadline, mine, hellos, all));
    for (int r = 0; r < comm->size; r++)
        passed = passed || hellos[r].offer.by_descriptor;
    for (int r = 0; r < comm->size; r++)
        if (hellos[r].way <= TTI_GPU_STAGED)
            return TUTTI_OK;
    if (*all || !passed)
        return TUTTI_OK;
    TTI_LOG(TTI_LOG_WARN, "device memory cannot be mapped by descriptor on all ranks; trying "
                          "handles of CUDA IPC (TUTTI_DEVICE_HANDLES=ipc does at once)");
    for (int r = 0; r < map->size; r++)
        tti_arena_unmap(comm->gpu->gpu, &map->arenas[r]);
    map->by_descriptor = false;
    memset(&mine->offer, 0, sizeof mine->offer);
    return share_once(comm, map, deadline, mine, hellos, all);
}
