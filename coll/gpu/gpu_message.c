/* Sends and receives between ranks that map each other's memory, by one kernel on the caller's
 * stream (device/cuda/messages.cu): through slots at the receiver, which are part of its arena, so
 * that nothing is allocated, no host takes part, and a captured group can be replayed. Every pair
 * of ranks has lanes of its own, so a group needs nothing of a rank with which it has no message,
 * and both ends of a message may batch theirs differently.
 *
 * Where the kernels of all ranks run at the same time it spins. Else (processes that share a GPU)
 * it moves what it can and ends; the stream waits until a peer rings, and launches it again: so
 * often as the largest message may need, and the last time it spins, for peers that rang for
 * something else. */
#include "coll/executor.h"
#include "coll/gpu/gpu_map.h"
#include "plan/chunk.h"

#include <stddef.h>
#include <string.h>

enum { MOST_TURNS = 256, FROM_PART = 4, NO_CHANNEL = -1 };

/* ---- memory ---- */

static size_t message_rounded(size_t bytes)
{
    return bytes / TTI_MESSAGE_ALIGN * TTI_MESSAGE_ALIGN;
}

size_t tti_gpu_message_least(int size)
{
    return sizeof(struct tti_message_box) + TTI_MESSAGE_LANES_BYTES(size) +
           TTI_MESSAGE_SLOTS_BYTES(size, TTI_MESSAGE_ALIGN);
}

size_t tti_gpu_message_lay_out(struct tti_gpu_map *map, int size, size_t room)
{
    const size_t fixed =
        tti_gpu_message_least(size) - TTI_MESSAGE_SLOTS_BYTES(size, TTI_MESSAGE_ALIGN);
    const size_t share = room / FROM_PART;
    const size_t slot =
        share > fixed ? message_rounded((share - fixed) / TTI_MESSAGE_SLOTS_BYTES(size, 1)) : 0;
    map->message_slot = slot < TTI_MESSAGE_ALIGN       ? TTI_MESSAGE_ALIGN
                        : slot > TTI_MESSAGE_SLOT_MOST ? TTI_MESSAGE_SLOT_MOST
                                                       : slot;
    return fixed + TTI_MESSAGE_SLOTS_BYTES(size, map->message_slot);
}

struct tti_message_box *tti_gpu_message_box(const struct tti_gpu_map *map, int rank)
{
    return (struct tti_message_box *)(void *)tti_gpu_at(map, rank, map->messages_at);
}

/* ---- to others ---- */

struct messages { /* a group of them */
    struct tutti_comm *comm;
    const struct tti_operation *ops;
    size_t count;
    tutti_stream stream;
    int channel[TTI_GPU_RANKS][2]; /* by peer and direction */
    int channels;
    size_t each;    /* messages of a channel in a launch, at most ... */
    size_t longest; /* ... and how many the channel with most has in all */
};

static bool message_moves(const struct messages *m, const struct tti_operation *o)
{
    return o->count > 0 && o->root != m->comm->rank;
}

static void messages_count(struct messages *m)
{
    size_t counts[2 * TTI_GPU_RANKS] = {0};
    for (int r = 0; r < TTI_GPU_RANKS; r++)
        m->channel[r][0] = m->channel[r][1] = NO_CHANNEL;
    for (size_t i = 0; i < m->count; i++) {
        const struct tti_operation *o = &m->ops[i];
        if (!message_moves(m, o))
            continue;
        int *channel = &m->channel[o->root][o->receives];
        if (*channel == NO_CHANNEL)
            *channel = m->channels++;
        counts[*channel]++;
        m->longest = counts[*channel] > m->longest ? counts[*channel] : m->longest;
    }
    m->each = m->channels > 0 ? TTI_MESSAGES / (size_t)m->channels : 0;
}

static struct tti_message message_of(const struct tti_operation *o)
{
    return (struct tti_message){.at = o->receives ? o->out : (void *)(uintptr_t)o->in,
                                .bytes = o->count * tutti_type_size(o->type),
                                .tag = tti_tag(o, 0)};
}

/* Messages [from, from + each) of every channel. */
static void messages_fill(const struct messages *m, size_t from, struct tti_message_args *args)
{
    size_t seen[2 * TTI_GPU_RANKS] = {0};
    args->channels = (uint32_t)m->channels;
    for (size_t i = 0; i < m->count; i++) {
        const struct tti_operation *o = &m->ops[i];
        if (!message_moves(m, o))
            continue;
        const size_t c = (size_t)m->channel[o->root][o->receives], k = seen[c]++;
        struct tti_message_channel *channel = &args->channel[c];
        channel->peer = (uint8_t)o->root;
        channel->receives = o->receives;
        channel->first = (uint16_t)(c * m->each);
        if (k < from || k >= from + m->each)
            continue;
        const struct tti_message message = message_of(o);
        const uint32_t lanes = TTI_MESSAGE_LANES_OF(message.bytes);
        args->message[channel->first + channel->count++] = message;
        args->lanes = lanes > args->lanes ? lanes : args->lanes;
    }
}

/* How often the slots of a lane are filled, where that is most. */
static size_t messages_rounds(const struct tti_message_args *args)
{
    size_t most = 0;
    for (uint32_t c = 0; c < args->channels; c++) {
        size_t pieces = 0;
        for (uint32_t k = 0; k < args->channel[c].count; k++) {
            const size_t bytes = args->message[args->channel[c].first + k].bytes;
            const size_t part = tti_chunk_begin(bytes, 1, TTI_MESSAGE_LANES_OF(bytes), 1);
            pieces += (part + args->slot_bytes - 1) / args->slot_bytes;
        }
        most = pieces > most ? pieces : most;
    }
    return (most + TTI_MESSAGE_SLOTS - 1) / TTI_MESSAGE_SLOTS;
}

static struct tti_message_args messages_args(const struct messages *m)
{
    const struct tutti_comm *comm = m->comm;
    const struct tti_gpu_map *map = comm->gpu->map;
    struct tti_message_args args = {
        .rank = (uint32_t)comm->rank,
        .ranks = (uint32_t)comm->size,
        .spins = 1,
        .begins = 1,
        .slot_bytes = (uint32_t)map->message_slot,
        .control = (struct tti_gpu_control *)tti_gpu_at(map, comm->rank, TTI_ARENA_CONTROL),
        .status = &map->told->status,
        .timeout_ns = (uint64_t)(comm->settings.timeout_s * 1e9),
    };
    for (int p = 0; p < comm->size; p++)
        args.box[p] = tti_gpu_message_box(map, p);
    return args;
}

static enum tutti_result messages_launch(const struct messages *m,
                                         const struct tti_message_args *args)
{
    struct tti_gpu *gpu = m->comm->gpu->gpu;
    const unsigned items = args->channels * args->lanes, share = m->comm->gpu->map->blocks;
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
static enum tutti_result messages_turns(const struct messages *m, struct tti_message_args *args)
{
    struct tti_gpu *gpu = m->comm->gpu->gpu;
    const size_t rounds = 2 * messages_rounds(args) + 2;
    const size_t turns = rounds < MOST_TURNS ? rounds : MOST_TURNS;
    uint32_t *gate = &args->box[m->comm->rank]->gate;
    args->spins = 0;
    args->rings = 1;
    for (size_t turn = 0; turn <= turns; turn++) {
        if (turn > 0)
            TTI_TRY(gpu->ops->stream_wait(gpu, gate, 1, m->stream));
        TTI_TRY(gpu->ops->stream_write(gpu, gate, 0, m->stream));
        TTI_TRY(messages_launch(m, args));
        args->begins = 0;
    }
    args->spins = 1;
    return messages_launch(m, args);
}

static enum tutti_result messages_to_self(void *context, void *to, const void *from, size_t bytes)
{
    const struct messages *m = context;
    struct tti_gpu *gpu = m->comm->gpu->gpu;
    if (bytes == 0 || to == from)
        return TUTTI_OK;
    return gpu->ops->copy(gpu, to, from, bytes, m->stream);
}

enum tutti_result tti_gpu_messages(struct tutti_comm *comm, const struct tti_operation *ops,
                                   size_t count, tutti_stream stream)
{
    struct messages m = {.comm = comm, .ops = ops, .count = count, .stream = stream};
    TTI_TRY(tti_exchange_self(comm, ops, count, messages_to_self, &m));
    messages_count(&m);
    for (size_t from = 0; from < m.longest; from += m.each) {
        struct tti_message_args args = messages_args(&m);
        messages_fill(&m, from, &args);
        TTI_TRY(comm->gpu->map->way == TTI_GPU_COUPLED ? messages_launch(&m, &args)
                                                       : messages_turns(&m, &args));
    }
    return TUTTI_OK;
}
