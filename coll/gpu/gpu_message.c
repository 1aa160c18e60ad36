/* Sends and receives between ranks that map each other's memory, by one kernel on the caller's
 * stream (device/cuda/messages.cu): through slots at the receiver, which are part of its arena, so
 * that nothing is allocated, no host takes part, and a captured group can be replayed. Every pair
 * of ranks has lanes of its own, so a group needs nothing of a rank with which it has no message,
 * and both ends of a message may batch theirs differently. A group is one launch, however many
 * messages it has, since several would wait for each other: those that do not fit its arguments
 * stand in a list in the arena, which small launches before it write.
 *
 * Where the kernels of all ranks run at the same time it spins. Else (processes that share a GPU)
 * it moves what it can and ends; the stream waits until a peer rings, and launches it again: so
 * often as the largest message may need, and the last time it spins, for peers that rang for
 * something else. */
#include "base/clock.h"
#include "base/memory.h"
#include "coll/executor.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/gpu/gpu_map.h"
#include "plan/chunk.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TURNS = 256, FROM_PART = 4, LIST_PART = 16, LIST_LEAST = 512 };

/* ---- memory ---- */

static size_t message_rounded(size_t bytes)
{
    return bytes / TTI_MESSAGE_ALIGN * TTI_MESSAGE_ALIGN;
}

static size_t message_box_bytes(int size)
{
    return sizeof(struct tti_message_box) + TTI_MESSAGE_LANES_BYTES(size);
}

size_t tti_gpu_message_least(int size)
{
    return message_box_bytes(size) + TTI_MESSAGE_SLOTS_BYTES(size, TTI_MESSAGE_ALIGN) +
           LIST_LEAST * sizeof(struct tti_message);
}

size_t tti_gpu_message_lay_out(struct tti_gpu_map *map, int size, size_t room)
{
    const size_t share = room / FROM_PART, list = share / LIST_PART / sizeof(struct tti_message);
    map->message_list = list < LIST_LEAST          ? LIST_LEAST
                        : list > TTI_MESSAGES_MOST ? TTI_MESSAGES_MOST
                                                   : list;
    const size_t fixed = message_box_bytes(size) + map->message_list * sizeof(struct tti_message);
    const size_t slot =
        share > fixed ? message_rounded((share - fixed) / TTI_MESSAGE_SLOTS_BYTES(size, 1)) : 0;
    map->message_slot = slot < TTI_MESSAGE_ALIGN       ? TTI_MESSAGE_ALIGN
                        : slot > TTI_MESSAGE_SLOT_MOST ? TTI_MESSAGE_SLOT_MOST
                                                       : slot;
    return fixed + TTI_MESSAGE_SLOTS_BYTES(size, map->message_slot);
}

static struct tti_message *message_list_at(const struct tutti_comm *comm)
{
    const struct tti_gpu_map *map = comm->gpu->map;
    return (struct tti_message *)(void *)tti_gpu_at(
        map, map->rank,
        map->messages_at + message_box_bytes(map->size) +
            TTI_MESSAGE_SLOTS_BYTES(map->size, map->message_slot));
}

struct tti_message_box *tti_gpu_message_box(const struct tti_gpu_map *map, int number)
{
    return (struct tti_message_box *)(void *)tti_gpu_at(map, number, map->messages_at);
}

static struct tti_message_lane *message_lanes(const struct tti_gpu_map *map, int rank, int with)
{
    return (struct tti_message_lane *)(void *)(tti_gpu_message_box(map, rank) + 1) +
           (size_t)with * TTI_MESSAGE_LANES;
}

/* ---- what was sent in vain ---- */

static bool message_unmet(struct tutti_comm *comm, int peer)
{
    enum { SECONDS = 1 };
    struct tti_gpu *gpu = comm->gpu->gpu;
    struct tti_gpu_map *map = comm->gpu->map;
    const int with = map ? tti_gpu_number(map, peer) : -1;
    if (with < 0 || map->way == TTI_GPU_STAGED ||
        gpu->ops->copy(gpu, map->told->lanes, message_lanes(map, map->rank, with),
                       sizeof map->told->lanes, map->aside) != TUTTI_OK ||
        tti_gpu_stream_wait(gpu, map->aside, tti_deadline_in(SECONDS), "reading counters") !=
            TUTTI_OK)
        return false;
    for (int k = 0; k < TTI_MESSAGE_LANES; k++)
        if (map->told->lanes[k].posted > map->told->lanes[k].got)
            return true;
    return false;
}

bool tti_gpu_unmet(struct tutti_comm *comm, int peer)
{
    struct tti_gpu_side *side = comm->gpu;
    if (!side || peer < 0 || pthread_mutex_trylock(&side->lock) != 0)
        return false;
    const bool unmet = message_unmet(comm, peer);
    pthread_mutex_unlock(&side->lock);
    return unmet;
}

/* ---- to others ---- */

struct messages { /* a group of them */
    struct tutti_comm *comm;
    const struct tti_gpu_map *map;
    const struct tti_operation *ops;
    size_t count;
    tutti_stream stream;
    size_t total; /* to and from other ranks */
};

static bool message_moves(const struct messages *m, const struct tti_operation *o)
{
    return o->count > 0 && o->root != m->comm->rank;
}

/* What both ends of it agree on. */
static struct tti_message message_of(const struct tti_operation *o)
{
    struct tti_operation tagged = *o;
    tagged.staged = true;
    return (struct tti_message){.at = o->receives ? o->out : (void *)(uintptr_t)o->in,
                                .bytes = o->count * tutti_type_size(o->type),
                                .tag = tti_tag(&tagged, 0)};
}

/* Channels by their messages: first of what there is of each, then where they begin. */
static void messages_count(struct messages *m, struct tti_message_args *args,
                           uint8_t channels[TTI_GPU_RANKS][2])
{
    enum { NONE = 255 };
    memset(channels, NONE, TTI_GPU_RANKS * sizeof *channels);
    for (size_t i = 0; i < m->count; i++) {
        const struct tti_operation *o = &m->ops[i];
        if (!message_moves(m, o))
            continue;
        const int peer = tti_gpu_number(m->map, o->root);
        uint8_t *channel = &channels[peer][o->receives];
        if (*channel == NONE) {
            *channel = (uint8_t)args->channels++;
            args->channel[*channel] =
                (struct tti_message_channel){.peer = (uint8_t)peer, .receives = o->receives};
        }
        args->channel[*channel].count++;
    }
    uint16_t first = 0;
    for (uint32_t c = 0; c < args->channels; c++) {
        args->channel[c].first = first;
        first = (uint16_t)(first + args->channel[c].count);
    }
}

/* All messages of the group, channel by channel. */
static void messages_fill(struct messages *m, struct tti_message_args *args,
                          struct tti_message *all)
{
    uint8_t channels[TTI_GPU_RANKS][2];
    size_t seen[2 * TTI_GPU_RANKS] = {0};
    messages_count(m, args, channels);
    for (size_t i = 0; i < m->count; i++) {
        const struct tti_operation *o = &m->ops[i];
        if (!message_moves(m, o))
            continue;
        const uint8_t c = channels[tti_gpu_number(m->map, o->root)][o->receives];
        const struct tti_message message = message_of(o);
        const uint32_t lanes = TTI_MESSAGE_LANES_OF(message.bytes);
        all[args->channel[c].first + seen[c]++] = message;
        args->lanes = lanes > args->lanes ? lanes : args->lanes;
    }
}

/* How often the slots of a lane are filled, where that is most. */
static size_t messages_rounds(const struct tti_message_args *args, const struct tti_message *all)
{
    size_t most = 0;
    for (uint32_t c = 0; c < args->channels; c++) {
        size_t pieces = 0;
        for (uint32_t k = 0; k < args->channel[c].count; k++) {
            const size_t bytes = all[args->channel[c].first + k].bytes;
            const size_t part = tti_chunk_begin(bytes, 1, TTI_MESSAGE_LANES_OF(bytes), 1);
            pieces += (part + args->slot_bytes - 1) / args->slot_bytes;
        }
        most = pieces > most ? pieces : most;
    }
    return (most + TTI_MESSAGE_SLOTS - 1) / TTI_MESSAGE_SLOTS;
}

/* Write the list down, in the order of the stream: a captured group does it anew each time. */
static enum tutti_result messages_list(const struct messages *m, const struct tti_message *all)
{
    struct tti_gpu *gpu = m->comm->gpu->gpu;
    for (size_t from = 0; from < m->total; from += TTI_MESSAGES_LISTED) {
        const size_t left = m->total - from;
        struct tti_message_list_args args = {.at = message_list_at(m->comm) + from};
        const struct tti_gpu_launch launch = {.kernel = TTI_KERNEL_MESSAGE_LIST,
                                              .blocks = 1,
                                              .threads = tti_gpu_threads(gpu, TTI_MESSAGES_LISTED),
                                              .args = &args,
                                              .args_bytes = sizeof args};
        args.count = left < TTI_MESSAGES_LISTED ? (uint32_t)left : TTI_MESSAGES_LISTED;
        memcpy(args.message, all + from, args.count * sizeof *all);
        TTI_TRY(gpu->ops->launch(gpu, &launch, m->stream));
    }
    return TUTTI_OK;
}

static struct tti_message_args messages_args(const struct messages *m)
{
    const struct tti_gpu_map *map = m->map;
    struct tti_message_args args = {
        .rank = (uint32_t)map->rank,
        .ranks = (uint32_t)map->size,
        .spins = 1,
        .begins = 1,
        .slot_bytes = (uint32_t)map->message_slot,
        .control = (struct tti_gpu_control *)tti_gpu_at(map, map->rank, TTI_ARENA_CONTROL),
        .status = &map->told->status,
        .timeout_ns = (uint64_t)(m->comm->settings.timeout_s * 1e9),
    };
    for (int p = 0; p < map->size; p++)
        args.box[p] = tti_gpu_message_box(map, p);
    return args;
}

static enum tutti_result messages_launch(const struct messages *m,
                                         const struct tti_message_args *args)
{
    struct tti_gpu *gpu = m->comm->gpu->gpu;
    const unsigned items = args->channels * args->lanes, share = m->map->blocks;
    const unsigned most = share > 0 && share < TTI_MESSAGE_BLOCKS ? share : TTI_MESSAGE_BLOCKS;
    const struct tti_gpu_launch launch = {
        .kernel = TTI_KERNEL_MESSAGES,
        .blocks = items < most ? items : most,
        .threads = tti_gpu_threads(gpu, TTI_COUPLED_THREADS),
        .args = args,
        .args_bytes = sizeof *args,
    };
    return gpu->ops->launch(gpu, &launch, m->stream);
}

/* Again and again, whenever a peer has rung. */
static enum tutti_result messages_turns(const struct messages *m, struct tti_message_args *args,
                                        size_t filled)
{
    struct tti_gpu *gpu = m->comm->gpu->gpu;
    const size_t rounds = 2 * filled + 2;
    const size_t turns = rounds < MOST_TURNS ? rounds : MOST_TURNS;
    uint32_t *gate = &args->box[m->map->rank]->gate;
    args->spins = 0;
    args->rings = 1;
    for (size_t turn = 0; turn <= turns; turn++) {
        if (turn > 0)
            TTI_TRY(gpu->ops->stream_wait(gpu, gate, 1, m->stream));
        TTI_TRY(gpu->ops->stream_write(gpu, gate, 0, m->stream));
        TTI_TRY(messages_launch(m, args));
        TTI_TRY(tti_gpu_room_between(m->comm, m->stream));
        args->begins = 0;
    }
    args->spins = 1;
    return messages_launch(m, args);
}

/* With others; `all` has room for them. */
static enum tutti_result messages_move(struct messages *m, struct tti_message_args *args,
                                       struct tti_message *all)
{
    messages_fill(m, args, all);
    if (all != args->message) {
        args->list = message_list_at(m->comm);
        TTI_TRY(messages_list(m, all));
    }
    return m->map->way == TTI_GPU_COUPLED ? messages_launch(m, args)
                                          : messages_turns(m, args, messages_rounds(args, all));
}

static enum tutti_result messages_to_self(void *context, void *to, const void *from, size_t bytes)
{
    const struct messages *m = context;
    struct tti_gpu *gpu = m->comm->gpu->gpu;
    if (bytes == 0 || to == from)
        return TUTTI_OK;
    return gpu->ops->copy(gpu, to, from, bytes, m->stream);
}

/* Before anything of it is queued. */
static enum tutti_result messages_fit(struct messages *m)
{
    const size_t most = m->map->message_list;
    for (size_t i = 0; i < m->count; i++)
        m->total += message_moves(m, &m->ops[i]);
    if (m->total <= most)
        return TUTTI_OK;
    return TTI_FAIL(TUTTI_ERR_USAGE,
                    "a group has %zu messages of device memory to and from other ranks, and there "
                    "is room for %zu; make several groups of it%s",
                    m->total, most,
                    most < TTI_MESSAGES_MOST ? ", or set TUTTI_DEVICE_MEMORY higher" : "");
}

static enum tutti_result messages_stay(void *context, void *to, const void *from, size_t bytes)
{
    (void)context, (void)to, (void)from, (void)bytes;
    return TUTTI_OK;
}

enum tutti_result tti_gpu_messages_check(struct tutti_comm *comm, const struct tti_operation *ops,
                                         size_t count)
{
    struct messages m = {.comm = comm, .map = comm->gpu->map, .ops = ops, .count = count};
    TTI_TRY(messages_fit(&m));
    return tti_exchange_self(comm, ops, count, messages_stay, NULL);
}

enum tutti_result tti_gpu_messages(struct tutti_comm *comm, const struct tti_operation *ops,
                                   size_t count, tutti_stream stream)
{
    struct messages m = {
        .comm = comm, .map = comm->gpu->map, .ops = ops, .count = count, .stream = stream};
    TTI_TRY(messages_fit(&m));
    TTI_TRY(tti_exchange_self(comm, ops, count, messages_to_self, &m));
    if (m.total == 0)
        return TUTTI_OK;
    struct tti_message_args args = messages_args(&m);
    struct tti_message *many = NULL;
    if (m.total > TTI_MESSAGES) {
        many = tti_calloc(m.total, sizeof *many);
        if (!many)
            return TUTTI_ERR_MEMORY;
    }
    const enum tutti_result result = messages_move(&m, &args, many ? many : args.message);
    free(many);
    return result;
}
