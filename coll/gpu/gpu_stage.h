/* Pinned host memory that operations on device memory pass through, and host work in the order of a
 * stream: what gpu_stage.c (whole operations), gpu_exchange.c (messages) and gpu_levels.c (what
 * passes between hosts) have in common. A part of gpu_side.h; under its lock. */
#ifndef TTI_COLL_GPU_STAGE_H
#define TTI_COLL_GPU_STAGE_H

#include "coll/gpu/gpu_side.h"

enum {
    TTI_GPU_STAGE_SLOTS = 3,
    TTI_GPU_STAGE_LAG = 2, /* chunks under way on the host before the stream waits for the first */
    TTI_GPU_STAGE_ALIGN = 64, /* of what lies in a slot, and between words */
    TTI_GPU_STAGE_MESSAGES =
        TTI_GPU_STAGE_SLOTS, /* the word of messages; before it, one for each slot */
    TTI_GPU_STAGE_FLAGS,
};

struct tti_gpu_stage_memory { /* pinned, and mapped by ranks of this host */
    char *base;
    size_t bytes;
    struct tti_gpu_stage_memory *smaller; /* used before, and still by what is queued or captured */
};

struct tti_gpu_stage_kept {
    struct tti_gpu_stage_kept *next;
    struct tti_work *work;
};

struct tti_gpu_stage {
    uint64_t copied, direct;                     /* bytes of inputs */
    struct tti_gpu_stage_memory slots, exchange; /* the latter for sends and receives: grows */
    char *flags;                     /* words, TTI_GPU_STAGE_ALIGN apart, in the side's piece */
    struct tti_gpu_stage_kept *kept; /* work of captured calls, for replays */
};

static inline size_t tti_gpu_stage_round(size_t bytes)
{
    return (bytes + TTI_GPU_STAGE_ALIGN - 1) / TTI_GPU_STAGE_ALIGN * TTI_GPU_STAGE_ALIGN;
}

/* The first use makes side->stage; from now on the links are in use by work on a stream. */
enum tutti_result tti_gpu_stage_begin(struct tti_gpu_side *side);
/* The slot of a chunk, TUTTI_DEVICE_CHUNK bytes and a few lines for what is between its parts. */
enum tutti_result tti_gpu_stage_slots(struct tti_gpu_side *side);
char *tti_gpu_stage_slot(const struct tti_gpu_side *side, size_t chunk);
/* Elements of a block in a chunk in which an element of all blocks takes `bytes` (of which each has
 * `width` or more): whole lines where there are any. ARGUMENT: not even one fits. */
enum tutti_result tti_gpu_stage_length(const struct tti_gpu_side *side, size_t bytes, size_t width,
                                       size_t *length);
enum tutti_result tti_gpu_stage_memory_make(struct tti_gpu_side *side, size_t bytes,
                                            struct tti_gpu_stage_memory *memory);
/* A host call that queues `ops`, to raise the word `flag` when they are done; and the stream's wait
 * for that, which lowers it again. */
enum tutti_result tti_gpu_stage_call(struct tutti_comm *comm, const struct tti_operation *ops,
                                     size_t count, int flag, tutti_stream stream, bool capturing);
enum tutti_result tti_gpu_stage_await(struct tti_gpu_side *side, int flag, tutti_stream stream);
/* `result` of queueing: a failure in the middle is the communicator's, since what is queued cannot
 * be taken back and the others may count on the rest. */
enum tutti_result tti_gpu_stage_failed(struct tutti_comm *comm, enum tutti_result result);

#endif
