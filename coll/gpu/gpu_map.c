/* Setting up what the ranks of a host share of their devices' memory (gpu_map.h): offers, mapping,
 * a self-test, and the decision. A rank that cannot do its part says so and goes on taking part, so
 * that all come to the same way. */
#include "coll/gpu/gpu_map.h"

#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/memory.h"
#include "coll/door.h"
#include "coll/group.h"

#include <stdlib.h>
#include <string.h>

enum {
    ARENA_BYTES = 32 << 20,
    WINDOW_LEAST = 64 << 10,
    LEVELS_FROM = 64 << 10, /* an estimate: not yet measured on a GPU */
    PROBE_WORDS = 64,       /* from each rank to each */
};
_Static_assert(sizeof(struct tti_gpu_told) <= TTI_SIDE_FLAGS, "what is told fits the piece");
_Static_assert(sizeof(struct tti_lend_page) <= TTI_ARENA_PAGE, "letters fit their page");

static const char *const way_names[TTI_GPU_WAYS] = {"staged", "window", "coupled"};
static const char *const handle_names[] = {"fd", "ipc"};
static const char *const buffer_names[] = {"window", "direct"};

/* ---- settings ---- */

int tti_gpu_wire_asked = -1;

static enum tutti_result map_settings(struct tti_gpu_map *map, enum tti_gpu_way *way, size_t *bytes)
{
    int found = TTI_GPU_COUPLED;
    TTI_TRY(tti_config_bytes("TUTTI_DEVICE_MEMORY", ARENA_BYTES, bytes));
    TTI_TRY(tti_config_name("TUTTI_DEVICE_PATH", way_names, TTI_GPU_WAYS, TTI_GPU_COUPLED, &found));
    *way = (enum tti_gpu_way)found;
    TTI_TRY(tti_config_name("TUTTI_DEVICE_HANDLES", handle_names, 2, 0, &found));
    map->by_descriptor = found == 0;
    TTI_TRY(tti_config_name("TUTTI_DEVICE_BUFFERS", buffer_names, 2, 1, &found));
    map->direct = found == 1;
    TTI_TRY(tti_config_bytes("TUTTI_NVLS", 0, &map->nvls_from));
    TTI_TRY(tti_config_bytes("TUTTI_DEVICE_MAP", 0, &map->lend_from));
    TTI_TRY(tti_config_bytes("TUTTI_DEVICE_LEVELS", LEVELS_FROM, &map->levels_from));
    map->wire = tti_gpu_wire_asked;
    return TUTTI_OK;
}

/* Who they are. False: there is nobody to share with, or too many, or hosts have different numbers
 * of ranks: alike on all ranks. */
static bool map_ranks(const struct tutti_comm *comm, struct tti_gpu_map *map)
{
    const int host = comm->peers.host_of[comm->rank], each = comm->peers.local_size;
    map->hosts = comm->peers.nhosts;
    if (each == 1 || each > TTI_GPU_RANKS || each * map->hosts != comm->size)
        return false;
    for (int h = 0; h < map->hosts; h++) {
        int here = 0;
        for (int r = 0; r < comm->size; r++)
            here += comm->peers.host_of[r] == h;
        if (here != each)
            return false;
    }
    for (int r = 0; r < comm->size; r++) {
        if (r == comm->rank)
            map->rank = map->size;
        if (comm->peers.host_of[r] == host)
            map->of[map->size++] = r;
    }
    return true;
}

/* Where what begins in the arena; the window and the messages are last, in what the rank with
 * least has (map_decide). */
static void map_lay_out(struct tti_gpu_map *map)
{
    const int size = map->size;
    map->lines_at = TTI_ARENA_SLOTS + TTI_LL_SLOTS_BYTES(size, TTI_LL_BYTES);
    map->packets_at = map->lines_at + TTI_LL128_LINES_BYTES(size, TTI_LINE_BYTES);
    map->programs_at =
        map->packets_at + TTI_PLAN_PACKETS_BYTES(TTI_PACKET_BLOCKS, size, TTI_PACKET_BYTES);
    const size_t at = map->programs_at + TTI_PROGRAMS * TTI_PROGRAM_BYTES;
    map->window_at = (at + TTI_ARENA_PAGE - 1) / TTI_ARENA_PAGE * TTI_ARENA_PAGE;
}

/* ---- exchange, over the host's collectives ---- */

enum tutti_result tti_gpu_map_gather(struct tutti_comm *comm, const void *mine, size_t bytes,
                                     void *all)
{
    const struct tti_operation o = {.collective = TUTTI_ALL_GATHER,
                                    .in = mine,
                                    .out = all,
                                    .count = bytes,
                                    .type = TUTTI_UINT8};
    return tti_work_run(comm, &o, 1);
}

enum tutti_result tti_gpu_map_all(struct tutti_comm *comm, bool mine, bool *all)
{
    const uint8_t word = mine;
    uint8_t least = 0;
    const struct tti_operation o = {.collective = TUTTI_ALL_REDUCE,
                                    .op = TUTTI_MIN,
                                    .in = &word,
                                    .out = &least,
                                    .count = 1,
                                    .type = TUTTI_UINT8};
    TTI_TRY(tti_work_run(comm, &o, 1));
    *all = least;
    return TUTTI_OK;
}

/* ---- each rank's part ---- */

/* The least that the device holds of the kernels that wait for each other. */
static enum tutti_result map_resident(struct tti_gpu *gpu, int32_t *resident)
{
    static const enum tti_gpu_kernel kernels[] = {TTI_KERNEL_ONE_SHOT_LL, TTI_KERNEL_ONE_SHOT_LL128,
                                                  TTI_KERNEL_TWO_SHOT,    TTI_KERNEL_DIRECT,
                                                  TTI_KERNEL_PLAN_RUN,    TTI_KERNEL_MESSAGES};
    int least = TTI_GPU_BLOCKS;
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
        for (int t = 0; t < TUTTI_TYPE_COUNT; t++) {
            const struct tti_gpu_launch launch = {.kernel = kernels[k],
                                                  .type = (enum tutti_type)t,
                                                  .blocks = 1,
                                                  .threads = kernels[k] == TTI_KERNEL_PLAN_RUN
                                                                 ? TTI_PLAN_THREADS
                                                                 : TTI_COUPLED_THREADS};
            int blocks = 0;
            TTI_TRY(gpu->ops->resident(gpu, &launch, &blocks));
            least = blocks < least ? blocks : least;
        }
    }
    *resident = least;
    return TUTTI_OK;
}

static enum tutti_result map_begin(struct tutti_comm *comm, struct tti_gpu_map *map, size_t bytes,
                                   struct tti_gpu_hello *hello)
{
    struct tti_gpu *gpu = comm->gpu->gpu;
    const char *blocking = tti_config_text("CUDA_LAUNCH_BLOCKING");
    if (gpu->ops == tti_gpu_cuda() && blocking && strcmp(blocking, "0") != 0)
        TTI_LOG(TTI_LOG_WARN, "CUDA_LAUNCH_BLOCKING is set: a call returns when its kernel is "
                              "over, so a thread that calls for several ranks waits for itself");
    const size_t least = map->window_at + WINDOW_LEAST + tti_gpu_message_least(map->size);
    if (bytes < least)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "TUTTI_DEVICE_MEMORY is %zu; %d ranks need at least %zu to reach each "
                        "other's device memory",
                        bytes, map->size, least);
    map->told = (void *)comm->gpu->piece;
    memset(map->told, 0, sizeof *map->told);
    TTI_TRY(gpu->ops->stream_create(gpu, &map->aside));
    TTI_TRY(map_resident(gpu, &hello->resident));
    unsigned left = 0;
    TTI_TRY(tti_gpu_blocks_take(gpu, comm->job, (unsigned)hello->resident, &map->part, &left));
    hello->left = (int32_t)left;
    map->arena_bytes = bytes;
    hello->nvls_from = gpu->properties.multicast ? map->nvls_from : 0;
    hello->lend_from = map->lend_from;
    hello->levels_from = gpu->properties.registered ? map->levels_from : 0;
    return TUTTI_OK;
}

/* ---- the self-test: kernels write to all peers, and everything is read back at both ends ---- */

static uint32_t probe_word(int from, int to, int i)
{
    return (uint32_t)(from * 0x01000193 + to * 0x00010001 + i) * 2654435761u + 1;
}

static char *probe_at(const struct tti_gpu_map *map, int at, int from)
{
    return tti_gpu_at(map, at, TTI_ARENA_PROBE + (size_t)from * PROBE_WORDS * 4);
}

static enum tutti_result probe_copy(struct tutti_comm *comm, void *dst, const void *src)
{
    struct tti_gpu *gpu = comm->gpu->gpu;
    const struct tti_copy_args args = {
        .src = src, .dst = {dst}, .bytes = PROBE_WORDS * 4, .dsts = 1};
    const struct tti_gpu_launch launch = {.kernel = TTI_KERNEL_COPY,
                                          .blocks = 1,
                                          .threads = 64,
                                          .args = &args,
                                          .args_bytes = sizeof args};
    return gpu->ops->launch(gpu, &launch, comm->gpu->map->aside);
}

static enum tutti_result probe_write(struct tutti_comm *comm, uint64_t deadline)
{
    struct tti_gpu_map *map = comm->gpu->map;
    for (int p = 0; p < map->size; p++) {
        uint32_t *words = map->told->probe[0] + p * PROBE_WORDS;
        for (int i = 0; i < PROBE_WORDS; i++)
            words[i] = probe_word(map->rank, p, i);
        if (p != map->rank)
            TTI_TRY(probe_copy(comm, probe_at(map, p, map->rank), words));
    }
    return tti_gpu_stream_wait(comm->gpu->gpu, map->aside, deadline,
                               "writing to other ranks' device memory");
}

static enum tutti_result probe_check(struct tutti_comm *comm, uint64_t deadline)
{
    struct tti_gpu_map *map = comm->gpu->map;
    const int rank = map->rank;
    for (int p = 0; p < map->size; p++) {
        if (p == rank)
            continue;
        TTI_TRY(probe_copy(comm, map->told->probe[0] + p * PROBE_WORDS, probe_at(map, p, rank)));
        TTI_TRY(probe_copy(comm, map->told->probe[1] + p * PROBE_WORDS, probe_at(map, rank, p)));
    }
    TTI_TRY(tti_gpu_stream_wait(comm->gpu->gpu, map->aside, deadline,
                                "reading from other ranks' device memory"));
    for (int p = 0; p < map->size; p++)
        for (int i = 0; p != rank && i < PROBE_WORDS; i++)
            if (map->told->probe[0][p * PROBE_WORDS + i] != probe_word(rank, p, i) ||
                map->told->probe[1][p * PROBE_WORDS + i] != probe_word(p, rank, i))
                return TTI_FAIL(TUTTI_ERR_SYSTEM,
                                "what ranks %d and %d wrote to each other's device memory did not "
                                "arrive; peer access is broken between their devices (virtual "
                                "machine, PCIe ACS?)",
                                map->of[rank], map->of[p]);
    return TUTTI_OK;
}

/* ---- deciding ---- */

/* Do all ranks' kernels run at the same time? Ranks of one process that share a device do if their
 * blocks fit together; processes that share one are time-sliced. Half of what is left of each
 * device stays, for other communicators; and who is alone on one needs no more than a quarter of
 * it: what comes from other devices is slower than their memory. */
static unsigned map_blocks(const struct tutti_comm *comm, const struct tti_gpu_hello *hellos)
{
    enum { ALONE_PART = 4 };
    struct tti_gpu_map *map = comm->gpu->map;
    unsigned least = TTI_GPU_BLOCKS, beside = 1;
    for (int k = 0; k < map->size; k++) {
        const int r = map->of[k];
        int sharers = 1;
        for (int s = 0; s < comm->size; s++) {
            if (s == r || !tti_arena_same_device(&hellos[r].offer, &hellos[s].offer))
                continue;
            if (!tti_arena_same_process(&hellos[r].offer, &hellos[s].offer))
                return 0;
            sharers++;
        }
        const unsigned share = (unsigned)hellos[r].left / (unsigned)sharers;
        const unsigned half = share > 1 ? share / 2 : share;
        const unsigned alone = (unsigned)hellos[r].resident / ALONE_PART;
        const unsigned most =
            sharers == 1 && map->size > 1 && alone > 0 && alone < half ? alone : half;
        least = most < least ? most : least;
        beside = r == comm->rank ? (unsigned)sharers : beside;
    }
    tti_gpu_blocks_keep(map->part, least * beside);
    return least;
}

static int map_hardware_queues(void)
{
    enum { USUAL = 8 };
    const char *text = tti_config_text("CUDA_DEVICE_MAX_CONNECTIONS");
    return text ? atoi(text) : USUAL;
}

/* The driver deals streams out to a few hardware queues, and what stands in one runs in order: of
 * two kernels there that wait for each other, neither ends. Each rank has its caller's stream and
 * one of its own. */
static void map_queues(struct tutti_comm *comm, struct tti_gpu_map *map,
                       const struct tti_gpu_hello *hellos)
{
    enum { MOST = 32 };
    const struct tti_gpu_hello *own = &hellos[comm->rank];
    const int queues = map_hardware_queues();
    int wanted = 0;
    for (int r = 0; r < comm->size; r++)
        if (tti_arena_same_device(&own->offer, &hellos[r].offer) &&
            tti_arena_same_process(&own->offer, &hellos[r].offer))
            wanted += 2;
    if (comm->gpu->ops != tti_gpu_cuda() || queues >= MOST)
        return;
    /* Others of the process' streams count, too, which nobody knows here. */
    map->queues_short = comm->gpu->shared;
    if (queues >= wanted)
        return;
    TTI_LOG(
        TTI_LOG_WARN,
        "%d ranks of this process share device %d, whose streams run in %d queues: kernels that "
        "wait for each other may stand in one; set CUDA_DEVICE_MAX_CONNECTIONS=%d before the "
        "program starts",
        wanted / 2, comm->gpu->gpu->device, queues, MOST);
}

/* With one queue, what holds a stream back until a word is written holds back all of them. */
static void map_one_queue(struct tutti_comm *comm, enum tti_gpu_way way)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (comm->gpu->ops != tti_gpu_cuda() || comm->size == 1 || way == TTI_GPU_COUPLED ||
        map_hardware_queues() != 1 || atomic_flag_test_and_set(&said))
        return;
    TTI_LOG(TTI_LOG_WARN,
            "CUDA_DEVICE_MAX_CONNECTIONS is 1: while operations that go %s wait for "
            "other ranks, kernels of the program's other streams wait, too; with 8 "
            "or more they go on",
            way == TTI_GPU_STAGED ? "through the host" : "by windows");
}

/* The devices that read this rank's buffers. */
static void map_others(const struct tutti_comm *comm, struct tti_gpu_map *map,
                       const struct tti_gpu_hello *hellos)
{
    for (int k = 0; k < map->size; k++) {
        const int device = hellos[map->of[k]].offer.device;
        bool known = device == comm->gpu->gpu->device;
        for (int j = 0; j < map->others; j++)
            known = known || map->other[j] == device;
        if (!known)
            map->other[map->others++] = device;
    }
}

static void map_decide(struct tutti_comm *comm, struct tti_gpu_map *map,
                       const struct tti_gpu_hello *hellos)
{
    size_t bytes = map->arena_bytes;
    map->way = TTI_GPU_COUPLED;
    map->one_process = true;
    map->direct = true;
    for (int k = 0; k < map->size; k++) {
        const struct tti_gpu_hello *h = &hellos[map->of[k]];
        if ((int)map->way > h->way)
            map->way = (enum tti_gpu_way)h->way;
        bytes = h->bytes < bytes ? h->bytes : bytes;
        map->one_process =
            map->one_process && tti_arena_same_process(&hellos[comm->rank].offer, &h->offer);
        map->direct = map->direct && map->one_process && h->direct;
    }
    if (map->direct)
        map_others(comm, map, hellos);
    map->blocks = map_blocks(comm, hellos);
    if (map->blocks == 0 && map->way == TTI_GPU_COUPLED)
        map->way = TTI_GPU_WINDOW;
    const size_t room = bytes - map->window_at;
    map->window_bytes =
        (room - tti_gpu_message_lay_out(map, map->size, room)) / TTI_ARENA_PAGE * TTI_ARENA_PAGE;
    map->messages_at = map->window_at + map->window_bytes;
}

/* All ranks must take the same way. */
static void map_levels(const struct tutti_comm *comm, struct tti_gpu_map *map,
                       const struct tti_gpu_hello *hellos)
{
    bool none = false;
    for (int r = 0; r < comm->size; r++) {
        none = none || hellos[r].levels_from == 0;
        if (hellos[r].levels_from > map->levels_from)
            map->levels_from = hellos[r].levels_from;
    }
    map->levels_from = none ? 0 : map->levels_from;
    if (none && map->hosts > 1)
        TTI_LOG(TTI_LOG_INFO, "device memory of several hosts is staged whole: TUTTI_DEVICE_LEVELS "
                              "is 0 on a rank, or kernels of its device cannot write to host "
                              "memory that was registered");
}

/* Threads of one process need not lend each other anything, unless they go by the window; and may
 * not, where no buffer is read where it lies. */
static enum tutti_result map_lend(struct tti_gpu_map *map, const struct tti_gpu_hello *hellos)
{
    uint64_t from = 0;
    bool all = map->one_process ? map->direct && map->way == TTI_GPU_WINDOW : true;
    for (int k = 0; k < map->size; k++) {
        const uint64_t theirs = hellos[map->of[k]].lend_from;
        all = all && theirs > 0;
        from = theirs > from ? theirs : from;
    }
    return all ? tti_gpu_lend_make(map, from) : TUTTI_OK;
}

/* May lines be used: do they arrive whole at all ranks? */
static enum tutti_result map_lines(struct tutti_comm *comm, struct tti_gpu_map *map,
                                   const struct tti_gpu_hello *hellos)
{
    struct tti_gpu *gpu = comm->gpu->gpu;
    bool mine = true;
    for (int k = 0; k < map->size && mine; k++)
        if (gpu->ops->whole_lines(gpu, hellos[map->of[k]].offer.uuid, &mine) != TUTTI_OK)
            mine = false;
    return tti_gpu_map_all(comm, mine, &map->lines);
}

bool tti_gpu_map_said(enum tutti_result result)
{
    if (result != TUTTI_OK)
        TTI_LOG(TTI_LOG_WARN, "sharing device memory: %s", tti_error_text());
    return result == TUTTI_OK;
}

/* All ranks come here, and each says at every step whether it could. */
static enum tutti_result map_agree(struct tutti_comm *comm, struct tti_gpu_map *map,
                                   enum tti_gpu_way way, size_t bytes, struct tti_gpu_hello *hellos)
{
    const uint64_t deadline = tti_deadline_in(comm->settings.init_timeout_s);
    struct tti_gpu_hello mine = {.bytes = bytes, .way = (int32_t)way, .direct = map->direct};
    bool all = way > TTI_GPU_STAGED;
    if (all && !tti_gpu_map_said(map_begin(comm, map, bytes, &mine)))
        mine.way = TTI_GPU_STAGED;
    TTI_TRY(tti_gpu_share(comm, map, deadline, &mine, hellos, &all));
    for (int r = 0; r < comm->size; r++)
        comm->gpu->shared |= r != comm->rank &&
                             tti_arena_same_process(&mine.offer, &hellos[r].offer) &&
                             tti_arena_same_device(&mine.offer, &hellos[r].offer);
    if (!all)
        return TUTTI_OK;
    bool mapped = tti_gpu_map_said(probe_write(comm, deadline));
    TTI_TRY(tti_gpu_map_all(comm, mapped, &all));
    mapped = mapped && tti_gpu_map_said(probe_check(comm, deadline));
    TTI_TRY(tti_gpu_map_all(comm, mapped, &all));
    if (!all)
        return TUTTI_OK;
    map_decide(comm, map, hellos);
    map_queues(comm, map, hellos);
    map_levels(comm, map, hellos);
    TTI_TRY(map_lines(comm, map, hellos));
    TTI_TRY(map_lend(map, hellos));
    return tti_gpu_nvls_make(comm, map, hellos, deadline);
}

static enum tutti_result map_set_up(struct tutti_comm *comm)
{
    struct tti_gpu_map *map = comm->gpu->map;
    enum tti_gpu_way way = TTI_GPU_STAGED;
    size_t bytes = 0;
    TTI_TRY(map_settings(map, &way, &bytes));
    if (!map_ranks(comm, map)) {
        map_one_queue(comm, TTI_GPU_STAGED);
        return TUTTI_OK;
    }
    map_lay_out(map);
    struct tti_gpu_hello *hellos = tti_calloc((size_t)comm->size, sizeof *hellos);
    if (!hellos)
        return TUTTI_ERR_MEMORY;
    enum tutti_result result = map_agree(comm, map, way, bytes, hellos);
    free(hellos);
    TTI_TRY(result);
    if (map->way > TTI_GPU_STAGED)
        TTI_TRY(tti_gpu_watch_start(comm));
    map_one_queue(comm, map->way);
    TTI_LOG(TTI_LOG_INFO, "device memory of %d ranks: %s%s, %u blocks%s", map->size,
            way_names[map->way],
            map->direct        ? ", one process"
            : map->one_process ? ", one process, by windows"
                               : "",
            map->blocks, map->hosts > 1 ? ", on each host" : "");
    return TUTTI_OK;
}

/* What it holds, which nothing uses any more. */
static void map_release(struct tti_gpu_side *side, struct tti_gpu_map *map)
{
    /* A kernel that waits for a rank may be on it. */
    const bool over = !map->aside || side->ops->stream_query(side->gpu, map->aside) == TUTTI_OK;
    if (map->aside)
        side->ops->stream_destroy(side->gpu, map->aside);
    tti_gpu_nvls_drop(side, map);
    tti_gpu_lend_drop(side, map);
    tti_gpu_blocks_give(map->part);
    map->part = NULL;
    for (int r = 0; r < TTI_GPU_RANKS; r++)
        tti_arena_unmap(side->gpu, &map->arenas[r]);
    side->unsure |= !over;
    map->aside = NULL;
    map->told = NULL;
    map->arena_bytes = 0;
}

enum tutti_result tti_gpu_map_make(struct tutti_comm *comm)
{
    const int without = comm->without_device;
    if (without >= 0)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "rank %d (%s) has no device in use, so collectives on device memory are "
                        "not possible; all ranks need one (TUTTI_LOG=info says there why it has "
                        "none), or none (TUTTI_DEVICE=host, and host memory)",
                        without, comm->peers.all[without].name);
    struct tti_gpu_map *map = tti_calloc(1, sizeof *map);
    if (!map)
        return TUTTI_ERR_MEMORY;
    pthread_mutex_init(&map->lock, NULL);
    tti_cond_init(&map->changed);
    comm->gpu->map = map;
    enum tutti_result result = map_set_up(comm);
    if (result == TUTTI_OK && map->way > TTI_GPU_STAGED)
        return TUTTI_OK;
    struct tti_error error;
    tti_error_save(&error, result);
    map_release(comm->gpu, map);
    if (result == TUTTI_OK)
        return TUTTI_OK;
    tti_gpu_map_destroy(comm);
    return tti_error_restore(&error);
}

void tti_gpu_map_destroy(struct tutti_comm *comm)
{
    struct tti_gpu_side *side = comm->gpu;
    struct tti_gpu_map *map = side->map;
    if (!map)
        return;
    tti_gpu_watch_stop(comm);
    map_release(side, map);
    pthread_cond_destroy(&map->changed);
    pthread_mutex_destroy(&map->lock);
    free(map);
    side->map = NULL;
}

/* All ranks are through with their work before any of them takes its memory away. */
enum tutti_result tti_comm_release_device(tutti_comm *comm)
{
    struct tti_gpu_side *side = comm->gpu;
    if (!side || !side->map)
        return TUTTI_OK;
    if (side->captured.any)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "operations of the communicator were captured, and their graphs have the "
                        "addresses of its device memory: it stays");
    TTI_TRY(tti_group_refuse("giving device memory back"));
    TTI_TRY(tti_comm_settle(comm));
    const enum tutti_result result = tutti_barrier(comm);
    if (result != TUTTI_OK)
        return TTI_CONTEXT(result, "giving device memory back, which all ranks must do together");
    pthread_mutex_lock(&side->lock);
    tti_gpu_map_destroy(comm);
    pthread_mutex_unlock(&side->lock);
    tti_gpu_reclaim(side->ops);
    return TUTTI_OK;
}

void tti_gpu_map_memory(const struct tti_gpu_side *side, struct tutti_memory *memory)
{
    const struct tti_gpu_map *map = side->map;
    if (!map)
        return;
    memory->host += tti_heap_bytes(map) + tti_gpu_lend_bytes(map);
    memory->device += map->arena_bytes;
}
