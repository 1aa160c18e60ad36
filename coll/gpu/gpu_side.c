/* The device side of a communicator (gpu_side.h): which device, the order of calls on streams. What
 * a call does is chosen in tti_gpu_call. Before: gpu_use.c (which implementation). Next:
 * gpu_settle.c. */
#include "coll/gpu/gpu_levels.h"
#include "coll/gpu/gpu_map.h"

#include "base/c_locale.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/log.h"
#include "base/memory.h"
#include "coll/door.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/gpu/gpu_send.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 2 << 20 };

/* ---- making and ending ---- */

enum tutti_result tti_gpu_side_create(struct tutti_comm *comm)
{
    const struct tti_gpu_ops *ops;
    size_t chunk = 0;
    TTI_TRY(tti_gpu_in_use(&ops));
    TTI_TRY(tti_config_bytes("TUTTI_DEVICE_CHUNK", CHUNK_BYTES, &chunk));
    if (!ops)
        return TUTTI_OK;
    struct tti_gpu_side *side = tti_calloc(1, sizeof *side);
    if (!side)
        return TUTTI_ERR_MEMORY;
    side->ops = ops;
    side->chunk = chunk;
    pthread_mutex_init(&side->lock, NULL);
    comm->gpu = side;
    return TUTTI_OK;
}

bool tti_gpu_side_destroy(struct tutti_comm *comm)
{
    struct tti_gpu_side *side = comm->gpu;
    if (!side)
        return true;
    tti_work_end_device(comm);
    bool idle = true;
    if (side->gpu && side->last.any) {
        (void)tti_gpu_settle(comm, side->last.event, "ending the communicator");
        idle = side->ops->event_query(side->last.event) != TUTTI_IN_PROGRESS;
    }
    if (tti_comm_check(comm) != TUTTI_OK) {
        tti_gpu_user_failed(&side->user);
        side->unsure = true;
    }
    side->unsure |= !idle || side->captured.any;
    if (!idle)
        TTI_LOG(TTI_LOG_WARN,
                "work on the device is still not over when the communicator ends; what it uses is "
                "not freed: %s",
                tti_error_text());
    if (!idle && side->map)
        tti_gpu_watch_stop(comm); /* another one goes on in the end */
    if (idle) {
        tti_gpu_map_destroy(comm);
        tti_work_forget(comm);
        tti_gpu_stage_destroy(side);
    }
    tti_gpu_pinned_give(side->piece, !idle          ? TTI_PINNED_KEPT
                                     : side->unsure ? TTI_PINNED_UNSURE
                                                    : TTI_PINNED_OVER);
    while (side->marks) {
        struct tti_gpu_mark *mark = side->marks;
        side->marks = mark->next;
        side->ops->event_destroy(mark->event);
        free(mark);
    }
    tti_gpu_ahead_end(side, idle);
    tti_gpu_user_leave(&side->user, idle);
    comm->gpu = NULL;
    if (!idle) { /* its event is asked until it is reached */
        comm->gpu_left = side;
        return false;
    }
    side->ops->event_destroy(side->last.event);
    side->ops->event_destroy(side->captured.event);
    side->ops->event_destroy(side->joined);
    if (side->gpu)
        tti_gpu_retire_device(side->gpu);
    tti_gpu_reclaim(side->ops);
    pthread_mutex_destroy(&side->lock);
    free(side);
    return true;
}

void tti_gpu_side_leave(struct tutti_comm *comm)
{
    comm->gpu = comm->gpu_left;
    if (!tti_gpu_watch_leave(comm))
        tti_gpu_retire_device(comm->gpu->gpu);
}

const struct tti_gpu_ops *tti_gpu_side_ops(const struct tutti_comm *comm)
{
    return comm->gpu ? comm->gpu->ops : NULL;
}

void tti_gpu_side_memory(const struct tutti_comm *comm, struct tutti_memory *memory)
{
    if (!comm->gpu)
        return;
    memory->host += tti_heap_bytes(comm->gpu) + tti_gpu_send_bytes(comm->gpu_send);
    memory->pinned += comm->gpu->piece ? TTI_PINNED_PIECE : 0;
    tti_gpu_stage_memory(comm->gpu, memory);
    tti_gpu_map_memory(comm->gpu, memory);
}

/* ---- is it ours? ---- */

struct side_buffers {
    bool device; /* some buffer is DEVICE or MANAGED */
    bool pinned;
    bool host;  /* pageable */
    bool owned; /* some buffer is DEVICE */
    int index;  /* of that device, if so */
};

static enum tutti_result side_look(const struct tti_gpu_side *side, const void *address,
                                   struct side_buffers *buffers)
{
    struct tti_gpu_pointer info;
    TTI_TRY(side->ops->pointer(address, &info));
    if (info.kind == TTI_MEMORY_HOST) {
        buffers->host = true;
        return TUTTI_OK;
    }
    if (info.kind == TTI_MEMORY_DEVICE) /* what is managed any device reaches */
        buffers->index = info.device > 0 ? info.device : 0;
    buffers->owned |= info.kind == TTI_MEMORY_DEVICE;
    buffers->device |= info.kind != TTI_MEMORY_PINNED;
    buffers->pinned |= info.kind == TTI_MEMORY_PINNED;
    return TUTTI_OK;
}

/* Of blocks that differ in size: what of a buffer has no elements may lie anywhere. */
static enum tutti_result side_blocks(const struct tutti_comm *comm, const struct tti_operation *o,
                                     struct side_buffers *buffers)
{
    const struct tti_blocks *blocks = o->blocks;
    const bool gathers = o->collective == TUTTI_ALL_GATHER;
    for (int k = 0, seen = 0; k < blocks->n && (!seen || blocks->at); k++) {
        if (blocks->counts[k] == 0)
            continue;
        seen++;
        TTI_TRY(side_look(comm->gpu, tti_blocks_at(o, k), buffers));
    }
    return blocks->counts[comm->rank] == 0
               ? TUTTI_OK
               : side_look(comm->gpu, gathers ? o->in : o->out, buffers);
}

static enum tutti_result side_buffers(const struct tutti_comm *comm, const struct tti_operation *o,
                                      struct side_buffers *buffers)
{
    uint32_t in = 0, out = 0;
    memset(buffers, 0, sizeof *buffers);
    if (o->collective == TUTTI_BARRIER || o->count == 0) /* signals and waits, too */
        return TUTTI_OK;
    if (o->blocks)
        return side_blocks(comm, o, buffers);
    if (o->collective == TUTTI_SEND_RECV) {
        in = !o->receives;
        out = o->receives;
    } else {
        tti_shape(o->collective, comm->size, comm->rank, o->root, &in, &out);
    }
    if (in)
        TTI_TRY(side_look(comm->gpu, o->in, buffers));
    if (out)
        TTI_TRY(side_look(comm->gpu, o->out, buffers));
    return TUTTI_OK;
}

enum tutti_result tti_gpu_takes(struct tutti_comm *comm, const struct tti_operation *operation,
                                tutti_stream stream, bool *takes)
{
    struct side_buffers buffers;
    TTI_TRY(side_buffers(comm, operation, &buffers));
    const bool none = operation->collective == TUTTI_BARRIER || operation->count == 0;
    if (stream && !none && !buffers.device && !buffers.pinned)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "%s: a stream was given, but the %s device does not know the buffers (they "
                        "are pageable host memory); pass NULL and take a request",
                        tti_operation_name(operation), comm->gpu->ops->name);
    if (buffers.host && (buffers.device || (stream && buffers.pinned)))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "%s: one of the buffers is pageable host memory (in %p, out %p), which the "
                        "device cannot reach; both must be device, managed or page-locked memory, "
                        "or both host memory",
                        tti_operation_name(operation), operation->in, operation->out);
    const bool pinned = buffers.pinned && !buffers.host;
    *takes = buffers.device || (stream && none) || ((stream || comm->gpu->in_default) && pinned);
    return TUTTI_OK;
}

bool tti_gpu_drops(const struct tutti_comm *comm, const struct tti_operation *operation)
{
    return comm->without_device < 0 && operation->count == 0 && !operation->blocks &&
           operation->collective != TUTTI_BARRIER && operation->alone == TTI_NOT_ALONE;
}

/* ---- the first operation ---- */

/* Reclaiming holds the gate alone, so nobody is in a call. A graph that was captured may be
 * launched at any time, and nobody says so; not any more once its communicator has ended. */
static bool side_idle(const struct tti_gpu_user *user, bool but_graphs)
{
    const struct tti_gpu_side *side =
        (const void *)((const char *)user - offsetof(struct tti_gpu_side, user));
    return (user->left || but_graphs || !side->captured.any) &&
           (!side->last.any || side->ops->event_query(side->last.event) != TUTTI_IN_PROGRESS);
}

/* Ranks that are threads of this process: what one of them queues may wait for another. */
static int side_threads(const struct tutti_comm *comm)
{
    const uint64_t own = comm->peers.all[comm->rank].public.process;
    int threads = 0;
    for (int r = 0; r < comm->size; r++)
        threads += comm->peers.all[r].public.process == own;
    return threads;
}

/* Who holds the lock meanwhile is heard by nobody else. */
static bool side_given_up(void *argument)
{
    tti_comm_listen_idle(argument);
    return tti_comm_check(argument) != TUTTI_OK;
}

/* Who could wait no longer would leave the others waiting for it. */
static enum tutti_result side_piece(struct tutti_comm *comm, struct tti_gpu *gpu, int threads)
{
    const struct tti_pinned_want want = {
        .comm = comm->job,
        .ranks = threads,
        .deadline = tti_deadline_in(comm->settings.timeout_s),
        .stop = side_given_up,
        .argument = comm,
    };
    void *piece = NULL;
    const enum tutti_result result = tti_gpu_pinned_take(gpu, &want, &piece);
    if (result == TUTTI_ERR_ABORTED)
        TTI_TRY(tti_comm_check(comm));
    if (result == TUTTI_ERR_TIMEOUT)
        return tti_comm_fail(comm, result);
    TTI_TRY(result);
    comm->gpu->piece = piece;
    return TUTTI_OK;
}

/* The driver may wait for the whole device where it loads a kernel: for what ranks have queued that
 * waits for this one. So all are there before the first rank queues anything for others. What
 * cannot be had is told by who needs it. */
static void side_prepare(struct tti_gpu *gpu)
{
    static const enum tti_gpu_kernel kernels[] = {
        TTI_KERNEL_COPY,           TTI_KERNEL_REDUCE_COPY,  TTI_KERNEL_ONE_SHOT_LL,
        TTI_KERNEL_ONE_SHOT_LL128, TTI_KERNEL_TWO_SHOT,     TTI_KERNEL_DIRECT,
        TTI_KERNEL_TELL,           TTI_KERNEL_PLACE,        TTI_KERNEL_PLAN_RUN,
        TTI_KERNEL_MESSAGES,       TTI_KERNEL_MESSAGE_LIST,
    };
    enum tutti_result result = TUTTI_OK;
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels && result == TUTTI_OK; k++)
        for (int t = 0; t < TUTTI_TYPE_COUNT && result == TUTTI_OK; t++)
            result = gpu->ops->prepare(gpu, kernels[k], (enum tutti_type)t);
    if (result != TUTTI_OK)
        TTI_LOG(TTI_LOG_DEBUG, "kernels are not loaded ahead: %s", tti_error_text());
}

/* CUDA_SCALE_LAUNCH_QUEUES is "0.25x", "0.5x", "2x" or "4x". */
static double side_scale(void)
{
    const char *text = tti_config_text("CUDA_SCALE_LAUNCH_QUEUES");
    const double scale = text ? tti_c_strtod(text, NULL) : 1;
    return scale > 0 && scale < 1 ? scale : 1;
}

static enum tutti_result side_open(struct tutti_comm *comm, int index)
{
    struct tti_gpu_side *side = comm->gpu;
    if (side->gpu && side->gpu->device != index)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "the buffers are on device %d, but this rank began with device %d; a "
                        "communicator has one device a rank",
                        index, side->gpu->device);
    if (side->gpu)
        return TUTTI_OK;
    struct tti_gpu *gpu = NULL;
    const int threads = side_threads(comm);
    TTI_TRY(side->ops->open(index, &gpu));
    enum tutti_result result = TUTTI_OK;
    if (comm->size > 1)
        side_prepare(gpu);
    if (!gpu->properties.stream_values)
        result = TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                          "device %d (%s) cannot hold a stream back until a word has a value "
                          "(cuStreamWaitValue32), which operations on device memory need",
                          index, gpu->properties.name);
    if (result == TUTTI_OK)
        result = side->ops->event_create(gpu, 0, &side->last.event);
    if (result == TUTTI_OK)
        result = side->ops->event_create(gpu, 0, &side->captured.event);
    if (result == TUTTI_OK)
        result = side->ops->event_create(gpu, 0, &side->joined);
    side->user.waits = threads > 1;
    side->ahead_scale = side_scale();
    side->user.idle = side_idle;
    if (result == TUTTI_OK)
        result = tti_gpu_user_enter(&side->user, gpu);
    if (result == TUTTI_OK)
        result = side_piece(comm, gpu, threads);
    if (result == TUTTI_OK)
        result = tti_work_begin_device(comm);
    if (result != TUTTI_OK) {
        tti_gpu_pinned_give(side->piece, TTI_PINNED_OVER);
        side->piece = NULL;
        tti_gpu_user_leave(&side->user, true);
        side->ops->event_destroy(side->last.event);
        side->ops->event_destroy(side->captured.event);
        side->ops->event_destroy(side->joined);
        side->last.event = side->captured.event = side->joined = NULL;
        side->ops->close(gpu);
        return result;
    }
    side->gpu = gpu;
    return TUTTI_OK;
}

/* ---- calls ---- */

/* Calls on different streams run in the order of the calls, too. Inside a capture there is no
 * waiting for work outside of it, nor outside for work inside: the caller orders launches of the
 * graph. */
static enum tutti_result side_order(struct tti_gpu_side *side, tutti_stream stream,
                                    uint64_t capture)
{
    const struct tti_gpu_point *last = capture ? &side->captured : &side->last;
    const bool same = last->stream == stream && stream != TTI_STREAM_PER_THREAD;
    if (!last->any || (capture && capture != side->capture))
        return TUTTI_OK;
    if (same) { /* or another that has its handle now */
        uint64_t id = 0;
        TTI_TRY(side->ops->stream_id(side->gpu, stream, &id));
        if (id == last->id)
            return TUTTI_OK;
    }
    return side->ops->event_hold(last->event, stream);
}

static enum tutti_result side_point(struct tti_gpu_side *side, tutti_stream stream,
                                    uint64_t capture)
{
    struct tti_gpu_point *last = capture ? &side->captured : &side->last;
    TTI_TRY(side->ops->event_record(last->event, stream));
    TTI_TRY(side->ops->stream_id(side->gpu, stream, &last->id));
    last->any = true;
    last->stream = stream;
    side->capture = capture ? capture : side->capture;
    return TUTTI_OK;
}

/* By flags in memory. The stream tells the host when it begins to wait and when it is through, in
 * each replay of a graph, too; and in the end whether a peer gave up (gpu_watch.c). */
static enum tutti_result side_window(struct tutti_comm *comm, const struct tti_operation *ops,
                                     size_t count, tutti_stream stream, bool capturing)
{
    struct tti_gpu_side *side = comm->gpu;
    struct tti_gpu_map *map = side->map;
    const struct tti_tell_args args = {
        .poison = (const uint32_t *)tti_gpu_at(map, map->rank, TTI_ARENA_POISON),
        .count = (uint32_t *)tti_gpu_at(map, map->rank, TTI_ARENA_COUNT),
        .told_poison = &map->told->poison,
        .told_progress = &map->told->progress,
        .told_inside = &map->told->inside,
    };
    const struct tti_gpu_launch tell = {.kernel = TTI_KERNEL_TELL,
                                        .blocks = 1,
                                        .threads = 32,
                                        .args = &args,
                                        .args_bytes = sizeof args};
    TTI_TRY(side->ops->stream_write(side->gpu, &map->told->inside, 1, stream));
    const enum tutti_result result = ops->collective == TUTTI_SEND_RECV
                                         ? tti_gpu_messages(comm, ops, count, stream)
                                         : tti_gpu_window(comm, ops, stream, capturing);
    if (result != TUTTI_OK && result != TUTTI_ERR_USAGE)
        return result;
    /* Also of what was refused, which is no failure: the stream waits no more. */
    TTI_TRY(side->ops->launch(side->gpu, &tell, stream));
    return result;
}

enum tutti_result tti_gpu_mapped(struct tutti_comm *comm, const struct tti_operation *o,
                                 tutti_stream stream, bool capturing)
{
    bool served = false;
    if (o->count == 0)
        return TUTTI_OK;
    const bool lent = tti_gpu_lend_takes(comm, o);
    comm->gpu->went = lent ? "lent" : "window";
    if (comm->gpu->map->way == TTI_GPU_COUPLED && !lent)
        TTI_TRY(tti_gpu_couple(comm, o, stream, &served));
    return served ? TUTTI_OK : side_window(comm, o, 1, stream, capturing);
}

static enum tutti_result side_collective(struct tutti_comm *comm, const struct tti_operation *o,
                                         tutti_stream stream, bool capturing)
{
    comm->gpu->went = "alone";
    if (comm->size == 1)
        return tti_gpu_alone(comm, o, stream);
    const bool far = comm->gpu->map->hosts > 1;
    comm->gpu->went = "staged";
    if (comm->gpu->map->way == TTI_GPU_STAGED || (far && !tti_gpu_levels_takes(comm, o)))
        return tti_gpu_staged(comm, o, stream, capturing);
    if (!capturing && (o->count > 0 || o->collective == TUTTI_BARRIER))
        tti_gpu_record_begin(comm, o);
    const enum tutti_result result = far ? tti_gpu_levels(comm, o, stream, capturing)
                                         : tti_gpu_mapped(comm, o, stream, capturing);
    comm->gpu->went = far ? "levels" : comm->gpu->went;
    /* What of it is queued cannot be taken back, and the others count on the rest. */
    return result == TUTTI_OK ? TUTTI_OK : tti_comm_fail(comm, result);
}

/* To and from ranks of this host alone. */
static enum tutti_result side_near(struct tutti_comm *comm, const struct tti_operation *ops,
                                   size_t count, tutti_stream stream, bool capturing)
{
    for (size_t i = 0; !capturing && i < count; i++)
        tti_gpu_record_message(comm, &ops[i]);
    const enum tutti_result result = comm->gpu->map->way == TTI_GPU_COUPLED
                                         ? tti_gpu_messages(comm, ops, count, stream)
                                         : side_window(comm, ops, count, stream, capturing);
    return result == TUTTI_OK || result == TUTTI_ERR_USAGE ? result : tti_comm_fail(comm, result);
}

/* `far` of them through the host, meanwhile the others. Those come last in `ops`. */
static enum tutti_result side_far(struct tutti_comm *comm, const struct tti_operation *ops,
                                  size_t far, size_t count, tutti_stream stream, bool capturing)
{
    struct tti_operation *staged = NULL;
    TTI_TRY(tti_gpu_exchange_begin(comm, ops, far, stream, capturing, &staged));
    const enum tutti_result near =
        far == count ? TUTTI_OK : side_near(comm, ops + far, count - far, stream, capturing);
    struct tti_error error;
    tti_error_save(&error, near);
    const enum tutti_result result = tti_gpu_exchange_end(comm, ops, staged, far, stream);
    return near == TUTTI_OK ? result : tti_error_restore(&error);
}

/* A group with both, in whose order those of each kind stay. */
static enum tutti_result side_mixed(struct tutti_comm *comm, const struct tti_operation *ops,
                                    size_t count, tutti_stream stream, bool capturing)
{
    size_t far = 0, at = 0;
    struct tti_operation *sorted = tti_calloc(count, sizeof *sorted);
    if (!sorted)
        return TUTTI_ERR_MEMORY;
    for (int near = 0; near < 2; near++)
        for (size_t i = 0; i < count; i++)
            if ((tti_gpu_number(comm->gpu->map, ops[i].root) >= 0) == near) {
                sorted[at++] = ops[i];
                far += !near;
            }
    enum tutti_result result = tti_gpu_messages_check(comm, sorted + far, count - far);
    if (result == TUTTI_OK)
        result = side_far(comm, sorted, far, count, stream, capturing);
    free(sorted);
    return result;
}

/* Messages within a host go directly once its ranks have mapped each other's memory, for which all
 * are needed: at the first collective. That is before the same message on both sides. */
static enum tutti_result side_messages(struct tutti_comm *comm, const struct tti_operation *ops,
                                       size_t count, tutti_stream stream, bool capturing)
{
    const struct tti_gpu_map *map = comm->gpu->map;
    size_t near = 0;
    if (tti_gpu_drops(comm, ops)) /* never part of a group */
        return TUTTI_OK;
    comm->gpu->went = "staged";
    if (!map || map->way == TTI_GPU_STAGED || ops->alone != TTI_NOT_ALONE)
        return side_far(comm, ops, count, count, stream, capturing);
    for (size_t i = 0; i < count; i++)
        near += tti_gpu_number(map, ops[i].root) >= 0;
    comm->gpu->went = near > 0 ? "messages" : "staged";
    if (near == count)
        return side_near(comm, ops, count, stream, capturing);
    return near == 0 ? side_far(comm, ops, count, count, stream, capturing)
                     : side_mixed(comm, ops, count, stream, capturing);
}

/* All ranks take part in it, alike. */
static bool side_collects(const struct tutti_comm *comm, const struct tti_operation *o)
{
    return o->collective != TUTTI_SEND_RECV && !tti_gpu_drops(comm, o);
}

static enum tutti_result side_queue(struct tutti_comm *comm, const struct tti_operation *ops,
                                    size_t count, const tutti_stream *streams, size_t stream_count,
                                    struct tti_gpu_mark **mark)
{
    struct tti_gpu_side *side = comm->gpu;
    const tutti_stream stream = streams[0];
    uint64_t capture = 0;
    if (stream)
        TTI_TRY(side->ops->capture_id(side->gpu, stream, &capture));
    const bool collective = side_collects(comm, ops), capturing = capture != 0;
    if (collective && !side->map)
        TTI_TRY(tti_gpu_map_make(comm));
    for (size_t i = 0; i < stream_count && side->shared; i++)
        if (!streams[i] || streams[i] == TTI_STREAM_LEGACY)
            return TTI_FAIL(TUTTI_ERR_USAGE,
                            "ranks of this process share device %d; on its default stream they "
                            "would wait for each other for ever: give each rank a stream of its "
                            "own (the _async calls)",
                            side->gpu->device);
    tti_gpu_ahead_begin(comm, stream, capturing);
    TTI_TRY(side_order(side, stream, capture));
    TTI_TRY(tti_gpu_join(side, streams, stream_count, capture));
    enum tutti_result result = collective ? side_collective(comm, ops, stream, capturing)
                                          : side_messages(comm, ops, count, stream, capturing);
    if (result == TUTTI_OK)
        result = side_point(side, stream, capture);
    if (result == TUTTI_OK)
        result = tti_gpu_part(side, streams, stream_count, capture);
    if (result == TUTTI_OK && mark)
        result = tti_gpu_mark_take(side, stream, mark);
    struct tti_error error;
    tti_error_save(&error, result);
    /* Of what failed, too, as far as it went: it is on the device. */
    if (result != TUTTI_OK && side_point(side, stream, capture) != TUTTI_OK)
        TTI_LOG(TTI_LOG_WARN, "the point after an operation that failed: %s", tti_error_text());
    /* Of what failed, too, as far as it went. The count decides nothing of this call. */
    if (tti_gpu_ahead_add(side, stream) != TUTTI_OK)
        TTI_LOG(TTI_LOG_WARN, "commands of a stream are not counted: %s", tti_error_text());
    return result == TUTTI_OK ? TUTTI_OK : tti_error_restore(&error);
}

/* To map is to exchange something over the host's links, after what messages of the calls before
 * still have there. */
static enum tutti_result side_before_map(struct tutti_comm *comm, bool maps)
{
    if (maps)
        TTI_TRY(tti_gpu_settle_staged(comm));
    tti_gpu_reclaim_idle(&comm->gpu->user);
    return TUTTI_OK;
}

static enum tutti_result side_call(struct tutti_comm *comm, const struct tti_operation *ops,
                                   size_t count, const tutti_stream *streams, size_t stream_count,
                                   struct tti_gpu_mark **mark)
{
    struct tti_gpu_side *side = comm->gpu;
    bool found = side->gpu != NULL;
    int index = found ? side->gpu->device : 0;
    for (size_t i = 0; i < count; i++) {
        struct side_buffers buffers;
        TTI_TRY(side_buffers(comm, &ops[i], &buffers));
        if (buffers.owned)
            index = buffers.index;
        found |= buffers.owned;
    }
    if (!found) /* other memory is any device's, and a barrier has none */
        TTI_TRY(side->ops->stream_device(streams[0], &index));
    tti_gpu_look(comm);
    tti_gpu_look_poison(comm);
    TTI_TRY(tti_comm_works(comm));
    TTI_TRY(side_open(comm, index));
    if (!side->map)
        TTI_TRY(side_before_map(comm, side_collects(comm, ops)));
    tti_gpu_gate_enter(&side->user);
    const enum tutti_result result = side_queue(comm, ops, count, streams, stream_count, mark);
    tti_gpu_gate_leave(&side->user);
    return result;
}

enum tutti_result tti_gpu_call(struct tutti_comm *comm, const struct tti_operation *ops,
                               size_t count, const tutti_stream *streams, size_t stream_count,
                               struct tti_gpu_mark **mark)
{
    pthread_mutex_lock(&comm->gpu->lock);
    enum tutti_result result = side_call(comm, ops, count, streams, stream_count, mark);
    pthread_mutex_unlock(&comm->gpu->lock);
    return result == TUTTI_OK ? TUTTI_OK : TTI_CONTEXT(result, "%s", tti_operation_name(ops));
}

bool tti_gpu_reaches(struct tutti_comm *comm, bool running)
{
    struct tti_gpu_side *side = comm->gpu;
    if (!side)
        return false;
    pthread_mutex_lock(&side->lock);
    const bool reach = side->map && side->map->size == comm->size &&
                       side->map->way >= (running ? TTI_GPU_COUPLED : TTI_GPU_WINDOW);
    pthread_mutex_unlock(&side->lock);
    return reach;
}

const char *tti_comm_device_way(tutti_comm *comm)
{
    struct tti_gpu_side *side = comm->gpu;
    if (!side)
        return "none";
    pthread_mutex_lock(&side->lock);
    const char *way = side->went;
    pthread_mutex_unlock(&side->lock);
    return way ? way : "none";
}

void tti_comm_order_default(tutti_comm *comm)
{
    if (comm->gpu && comm->without_device < 0)
        comm->gpu->in_default = true;
}

enum tutti_result tti_comm_prepare_device(tutti_comm *comm, int device)
{
    struct tti_gpu_side *side = comm->gpu;
    if (side && comm->without_device >= 0)
        TTI_LOG(TTI_LOG_WARN, "operations on device memory will fail: rank %d (%s) has no device",
                comm->without_device, comm->peers.all[comm->without_device].name);
    if (!side || comm->without_device >= 0)
        return TUTTI_OK;
    pthread_mutex_lock(&side->lock);
    enum tutti_result result = side_open(comm, device);
    if (result == TUTTI_OK && !side->map)
        result = side_before_map(comm, true);
    if (result == TUTTI_OK && !side->map) {
        tti_gpu_gate_enter(&side->user);
        result = tti_gpu_map_make(comm);
        tti_gpu_gate_leave(&side->user);
    }
    pthread_mutex_unlock(&side->lock);
    return result == TUTTI_OK ? TUTTI_OK
                              : TTI_CONTEXT(result, "setting device memory up, which all ranks "
                                                    "must do together");
}
