/* Sends and receives of device memory through pinned host memory: to ranks of other hosts, and
 * wherever devices cannot reach each other's memory. They are not cut into chunks as collectives
 * are (gpu_stage.c): the two ends may be batched differently. The copies into the host and a call
 * that has the host send and receive stand first on the stream, then its wait and the copies out;
 * messages between devices (gpu_message.c) may stand between. */
#include "base/memory.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/gpu/gpu_send.h"
#include "coll/gpu/gpu_stage.h"

#include <stdlib.h>

static size_t exchange_bytes(const struct tti_operation *o)
{
    return tti_gpu_stage_round(o->count * tutti_type_size(o->type));
}

/* Twice as much each time, and what there was is kept: replays of captured work use it. */
static enum tutti_result exchange_room(struct tutti_comm *comm, size_t bytes)
{
    struct tti_gpu_side *side = comm->gpu;
    if (bytes <= side->stage->exchange.bytes)
        return TUTTI_OK;
    struct tti_gpu_stage_memory *smaller = NULL;
    struct tti_gpu_stage_memory made = {.base = NULL};
    const size_t twice = 2 * side->stage->exchange.bytes;
    if (side->stage->exchange.base) {
        smaller = tti_calloc(1, sizeof *smaller);
        if (!smaller)
            return TUTTI_ERR_MEMORY;
        *smaller = side->stage->exchange;
    }
    enum tutti_result result =
        tti_gpu_stage_memory_make(side, bytes > twice ? bytes : twice, &made);
    if (result != TUTTI_OK) {
        free(smaller);
        return result;
    }
    made.smaller = smaller;
    side->stage->exchange = made;
    return TUTTI_OK;
}

static enum tutti_result exchange_copy(struct tti_gpu_side *side, const struct tti_operation *o,
                                       char *at, tutti_stream stream)
{
    const size_t bytes = o->count * tutti_type_size(o->type);
    if (bytes == 0) /* a signal, say */
        return TUTTI_OK;
    return o->receives ? side->ops->copy(side->gpu, o->out, at, bytes, stream)
                       : side->ops->copy(side->gpu, at, o->in, bytes, stream);
}

/* The message as the host sends or receives it: not staged, where the network reads the device's
 * memory. */
static enum tutti_result exchange_plan(struct tutti_comm *comm, const struct tti_operation *o,
                                       struct tti_operation *staged)
{
    const size_t bytes = o->count * tutti_type_size(o->type);
    bool direct = false;
    *staged = *o;
    staged->staged = true;
    staged->in = staged->out = NULL;
    if (!o->receives)
        TTI_TRY(tti_gpu_send_ready(comm, o, o->in, bytes, &direct));
    if (direct)
        staged->device = o->in;
    comm->gpu->stage->direct += direct ? bytes : 0;
    comm->gpu->stage->copied += direct || o->receives ? 0 : bytes;
    return TUTTI_OK;
}

static enum tutti_result exchange_begin(struct tutti_comm *comm, const struct tti_operation *ops,
                                        struct tti_operation *staged, size_t count,
                                        tutti_stream stream, bool capturing)
{
    struct tti_gpu_side *side = comm->gpu;
    size_t bytes = 0;
    TTI_TRY(tti_gpu_stage_begin(side));
    for (size_t i = 0; i < count; i++) {
        TTI_TRY(exchange_plan(comm, &ops[i], &staged[i]));
        bytes += staged[i].device ? 0 : exchange_bytes(&ops[i]);
    }
    TTI_TRY(exchange_room(comm, bytes ? bytes : TTI_GPU_STAGE_ALIGN));
    char *at = side->stage->exchange.base;
    for (size_t i = 0; i < count; i++) {
        if (staged[i].device)
            continue;
        staged[i].in = ops[i].receives ? NULL : at;
        staged[i].out = ops[i].receives ? at : NULL;
        if (!ops[i].receives)
            TTI_TRY(exchange_copy(side, &ops[i], at, stream));
        at += exchange_bytes(&ops[i]);
    }
    return tti_gpu_stage_call(comm, staged, count, TTI_GPU_STAGE_MESSAGES, stream, capturing);
}

enum tutti_result tti_gpu_exchange_begin(struct tutti_comm *comm, const struct tti_operation *ops,
                                         size_t count, tutti_stream stream, bool capturing,
                                         struct tti_operation **staged)
{
    *staged = NULL;
    struct tti_operation *made = tti_calloc(count, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    const enum tutti_result result = exchange_begin(comm, ops, made, count, stream, capturing);
    if (result == TUTTI_OK) {
        *staged = made;
        return TUTTI_OK;
    }
    free(made);
    return tti_gpu_stage_failed(comm, result);
}

static enum tutti_result exchange_end(struct tutti_comm *comm, const struct tti_operation *ops,
                                      const struct tti_operation *staged, size_t count,
                                      tutti_stream stream)
{
    TTI_TRY(tti_gpu_stage_await(comm->gpu, TTI_GPU_STAGE_MESSAGES, stream));
    for (size_t i = 0; i < count; i++)
        if (ops[i].receives)
            TTI_TRY(exchange_copy(comm->gpu, &ops[i], staged[i].out, stream));
    return TUTTI_OK;
}

enum tutti_result tti_gpu_exchange_end(struct tutti_comm *comm, const struct tti_operation *ops,
                                       struct tti_operation *staged, size_t count,
                                       tutti_stream stream)
{
    if (!staged)
        return TUTTI_OK;
    const enum tutti_result result = exchange_end(comm, ops, staged, count, stream);
    free(staged);
    return tti_gpu_stage_failed(comm, result);
}
