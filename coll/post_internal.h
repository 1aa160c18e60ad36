/* Inside the post: shared by post.c (the thread, making and ending), post_wire.c (one peer's link)
 * and post_call.c (what callers do). */
#ifndef TTI_COLL_POST_INTERNAL_H
#define TTI_COLL_POST_INTERNAL_H

#include "base/atomic.h"
#include "coll/board.h"
#include "coll/comm.h"
#include "coll/post.h"
#include "coll/window.h"

enum { TTI_POST_MAGIC = 0x74707574 };

/* What a caller gives to the thread, and it hands back. */
struct tti_parcel {
    struct tti_parcel *next;
    struct tti_post_head head;
    int peer;
    const char *data;
    bool headed, copied; /* the head is sent; nobody waits, the thread frees it */
    size_t sent;         /* bytes of data that the transport has taken ... */
    uint64_t until;      /* ... and of the lane, when it had taken the last */
    bool done;
    struct tti_error *error; /* of a caller who waits */
};

struct tti_parcel_queue {
    struct tti_parcel *head, **end;
};

struct tti_post_peer {
    struct tti_board *board;   /* the peer's, if it can be reached ... */
    struct tti_region_map map; /* ... in another process; of this one it is held */
    uint64_t posted;           /* parcels for the peer so far */
    struct tti_link *link;
    struct tti_parcel_queue sending; /* not all taken by the transport yet */
    struct tti_parcel_queue sent;    /* and not released yet */
    uint64_t accepted;               /* bytes of the lane */
    struct tti_post_head incoming;
    size_t got;    /* bytes of that head */
    uint64_t left; /* bytes of its data that have not come */
    bool gone;     /* it left, or the link broke: `error` says which */
    struct tti_error error;
};

struct tti_post {
    struct tutti_comm *comm, *wire;
    struct tti_post_peer *peers;
    pthread_t thread;
    bool started;

    pthread_mutex_t lock;
    pthread_cond_t changed; /* something came, was sent, or went wrong */
    struct tutti_window *windows;
    struct tti_parcel_queue inbox;
    size_t copied; /* bytes */
    bool stop;
    struct tutti_memory *asks; /* somebody wants to know what the wire holds ... */
    bool answered;             /* ... and does */
    struct tti_error error;    /* why the thread has ended */
    struct tti_board *board;   /* signals that came to this rank ... */
    uint64_t *waited;          /* ... and how many of them were waited for, by peer and number */
    uint64_t renewals;         /* of regions that were looked at (tti_region_renewals) */

    const struct tti_gpu_ops *ops; /* for windows in device memory */
    struct tti_gpu *gpu;
    tutti_stream stream;
};

/* Something that somebody may wait for has changed. Under the lock. */
static inline void tti_post_changed(struct tti_post *post)
{
    pthread_cond_broadcast(&post->changed);
    tti_board_wake(post->board);
}

static inline void tti_parcel_append(struct tti_parcel_queue *queue, struct tti_parcel *parcel)
{
    parcel->next = NULL;
    if (!queue->head)
        queue->end = &queue->head;
    *queue->end = parcel;
    queue->end = &parcel->next;
}

static inline struct tti_parcel *tti_parcel_take(struct tti_parcel_queue *queue)
{
    struct tti_parcel *parcel = queue->head;
    if (parcel)
        queue->head = parcel->next;
    return parcel;
}

/* Hand it back; `error` NULL: it is at its target, or on a way that does not lose it. Under the
 * lock. */
void tti_parcel_end(struct tti_post *post, struct tti_parcel *parcel,
                    const struct tti_error *error);

/* ---- post_wire.c: the thread's ---- */

/* Send what the peer's link takes, and take what has come (a bounded part of it); *moved: that was
 * something. PEER and LINK: it is gone; anything else is a failure of the communicator. */
enum tutti_result tti_post_push(struct tti_post *post, struct tti_post_peer *peer, bool *moved);
enum tutti_result tti_post_pull(struct tti_post *post, struct tti_post_peer *peer, bool *moved);

#endif
