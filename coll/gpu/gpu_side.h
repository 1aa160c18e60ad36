/* The part of a communicator that serves device memory. Owned by coll/gpu; the rest of coll uses
 * gpu_calls.h. Made when the communicator is, if a GPU implementation is in use; the device is
 * opened at the first operation on device memory.
 *
 * Locks: `lock` is held while a call queues work on a stream, so that the order of calls is the
 * order of work. Work itself runs later and takes no lock of this structure. */
#ifndef TTI_COLL_GPU_SIDE_H
#define TTI_COLL_GPU_SIDE_H

#include "coll/comm.h"
#include "device/gpu.h"
#include "device/pinned.h"
#include "device/reclaim.h"

struct tti_gpu_map;
struct tti_gpu_stage;

/* The piece begins with what the device tells (struct tti_gpu_told); then words that streams wait
 * for in staging. Taken at the first operation, whichever way that goes: later it could not be
 * allocated without waiting for ranks of this process that wait for this one (pinned.h). */
enum { TTI_SIDE_FLAGS = TTI_PINNED_PIECE - 4096 };

/* A point that requests wait for; kept for the next request. */
struct tti_gpu_mark {
    struct tti_gpu_mark *next;
    struct tti_gpu_event *event;
};

struct tti_gpu_point {
    struct tti_gpu_event *event;
    tutti_stream stream;
    uint64_t id;      /* of the stream, whose handle another may have by now */
    _Atomic bool any; /* there was such a call */
};

/* Commands that a stream may have before it (gpu_ahead.c) when an operation begins, and in the
 * middle of one; and marks, so many commands apart. */
enum {
    TTI_AHEAD_MOST = 512,
    TTI_AHEAD_WITHIN = 768,
    TTI_AHEAD_STEP = 64,
    TTI_AHEAD_MARKS = 16,
};

struct tti_gpu_lane;

/* A point in a stream after so many commands of its lane. */
struct tti_gpu_ahead {
    struct tti_gpu_event *event;
    struct tti_gpu_lane *lane; /* NULL: it was reached */
    uint64_t at;
};

struct tti_gpu_side {
    const struct tti_gpu_ops *ops;
    pthread_mutex_t lock;
    struct tti_gpu *gpu;           /* NULL until the first operation */
    struct tti_gpu_user user;      /* from then on: what is queued may wait for another thread */
    char *piece;                   /* ... and a piece of page-locked memory (below) */
    struct tti_gpu_point last;     /* after the work of the last call that was not captured */
    struct tti_gpu_point captured; /* ... that was, in this capture */
    uint64_t capture;
    struct tti_gpu_event *joined; /* gpu_join.c */
    bool in_default;              /* tti_comm_order_default */
    bool staged;                  /* the links are, or will be, in use by work on a stream */
    bool shared;                  /* ranks of this process share the device: no default stream */
    bool unsure; /* at the end: work may yet be on the device that no event tells of */
    _Atomic uint64_t
        drained_by;             /* after a failure nobody waits for the device beyond; 0: not yet */
    struct tti_gpu_mark *marks; /* free */
    struct tti_gpu_ahead ahead[TTI_AHEAD_MARKS];
    double ahead_scale;      /* of what streams hold, to what they usually do; at most 1 */
    uint64_t ahead_counted;  /* of the device's commands, in this call ... */
    bool ahead_counts;       /* ... whose commands count: not captured, with other ranks */
    struct tti_gpu_map *map; /* made at the first collective */
    struct tti_gpu_stage *stage;
    size_t chunk;     /* of staging, bytes */
    const char *went; /* how the last call that was queued goes (tti_comm_device_way) */

    /* ---- gpu_record.c ---- */
    uint64_t sequence;                   /* collectives recorded */
    uint32_t history;                    /* hash of them */
    uint64_t messages[TTI_GPU_RANKS][2]; /* to and from each rank of this host */
    _Atomic uint64_t calls;              /* the same number, for the watching thread ... */
    uint64_t looked, look_ns; /* ... which had them compared at that one, and may from then on, */
    int looks;                /* so often still: others may have been later */
};

/* ---- gpu_stage.c: through pinned memory and the host's collectives ---- */

/* Queue a collective. */
enum tutti_result tti_gpu_staged(struct tutti_comm *comm, const struct tti_operation *o,
                                 tutti_stream stream, bool capturing);
void tti_gpu_stage_destroy(struct tti_gpu_side *side);
/* Bytes of input that went to the host first, and that stayed where they lay. */
void tti_gpu_stage_counts(const struct tti_gpu_side *side, uint64_t *copied, uint64_t *direct);
void tti_gpu_stage_memory(const struct tti_gpu_side *side, struct tutti_memory *memory);

/* ---- gpu_exchange.c: the same of sends and receives, which run at once ---- */

/* *staged is what the other, which comes next to it on the stream or behind messages between
 * devices, wants and releases. */
enum tutti_result tti_gpu_exchange_begin(struct tutti_comm *comm, const struct tti_operation *ops,
                                         size_t count, tutti_stream stream, bool capturing,
                                         struct tti_operation **staged);
enum tutti_result tti_gpu_exchange_end(struct tutti_comm *comm, const struct tti_operation *ops,
                                       struct tti_operation *staged, size_t count,
                                       tutti_stream stream);

/* ---- gpu_settle.c ---- */

/* Wait until the event is reached, or the communicator's deadline; the communicator's failure, if
 * it has one, is the result. */
enum tutti_result tti_gpu_settle(struct tutti_comm *comm, struct tti_gpu_event *event,
                                 const char *what);
/* Wait so for what went through the host, which may still be on its links. `lock` is held. */
enum tutti_result tti_gpu_settle_staged(struct tutti_comm *comm);
/* A mark at the point of the stream's last call. Under the lock. */
enum tutti_result tti_gpu_mark_take(struct tti_gpu_side *side, tutti_stream stream,
                                    struct tti_gpu_mark **mark);

/* ---- gpu_join.c: under the lock ---- */

/* The first of the streams waits for what the others have, and they for the last call, which was on
 * the first. USAGE: not all of them are in the capture that the first is in, or in none. */
enum tutti_result tti_gpu_join(struct tti_gpu_side *side, const tutti_stream *streams, size_t count,
                               uint64_t capture);
enum tutti_result tti_gpu_part(struct tti_gpu_side *side, const tutti_stream *streams, size_t count,
                               uint64_t capture);

/* ---- gpu_ahead.c: under the lock, but tti_gpu_room ---- */

/* A call begins; it, or a part of it, was queued: counts what was. */
void tti_gpu_ahead_begin(struct tutti_comm *comm, tutti_stream stream, bool capturing);
enum tutti_result tti_gpu_ahead_add(struct tti_gpu_side *side, tutti_stream stream);
/* The communicator ends. `idle`: what it queued is over. */
void tti_gpu_ahead_end(struct tti_gpu_side *side, bool idle);
/* Between passes of an operation: counts, and waits while the stream is about to be full. An error
 * is one in the middle of the operation. */
enum tutti_result tti_gpu_room_between(struct tutti_comm *comm, tutti_stream stream);

#endif
