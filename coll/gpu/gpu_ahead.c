/* How far a rank is ahead of its stream. A stream holds some 1000 commands (times
 * CUDA_SCALE_LAUNCH_QUEUES); then a call waits inside the driver, which may keep other threads out
 * meanwhile: among them the rank that the first of the commands waits for, or who lets streams
 * through that wait for words. So ranks wait here before it is full: before an operation is queued,
 * without a lock, and in an operation that has very many commands between its passes.
 *
 * Commands are counted where they are queued (struct tti_gpu), and for each stream, whichever
 * communicators of the process use it: a lane. What the stream is through with is seen by marks:
 * points that each communicator records every few commands. */
#include "coll/gpu/gpu_map.h"

#include "base/clock.h"
#include "base/memory.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/group.h"

#include <stdlib.h>

enum {
    LANES_MANY = 64, /* then streams that nobody is ahead of are forgotten */
    SPINS = 200,
    LISTENS = 64,          /* rounds between looks for failures */
    PATIENCE_SECONDS = 10, /* beyond the communicator's deadline, which says more */
};

struct tti_gpu_lane {
    struct tti_gpu_lane *next;
    const void *key;
    int device;
    int users;                /* marks under way, and who is at it */
    uint64_t queued, through; /* commands so far, and those that the stream is known to be past */
};

static struct tti_gpu_lane *lanes;
static int lane_count;
static pthread_mutex_t lanes_lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char lane_own; /* its address: the thread's own stream */

/* ---- lanes ---- */

/* Under the lock. */
static void lanes_forget(void)
{
    for (struct tti_gpu_lane **link = &lanes; *link;) {
        struct tti_gpu_lane *lane = *link;
        if (lane->users > 0 || lane->queued - lane->through >= TTI_AHEAD_STEP) {
            link = &lane->next;
            continue;
        }
        *link = lane->next;
        free(lane);
        lane_count--;
    }
}

/* Under the lock. NULL: no memory. */
static struct tti_gpu_lane *lane_find(const struct tti_gpu_side *side, tutti_stream stream)
{
    const void *key = stream == TTI_STREAM_PER_THREAD ? &lane_own : stream;
    for (struct tti_gpu_lane *lane = lanes; lane; lane = lane->next)
        if (lane->key == key && lane->device == side->gpu->device)
            return lane;
    if (lane_count >= LANES_MANY)
        lanes_forget();
    struct tti_gpu_lane *made = tti_calloc(1, sizeof *made);
    if (!made)
        return NULL;
    *made = (struct tti_gpu_lane){.next = lanes, .key = key, .device = side->gpu->device};
    lanes = made;
    lane_count++;
    return made;
}

/* The stream's, which stays until it is left; `more` commands were queued. */
static struct tti_gpu_lane *lane_enter(const struct tti_gpu_side *side, tutti_stream stream,
                                       uint64_t more, struct tti_gpu_lane *now)
{
    pthread_mutex_lock(&lanes_lock);
    struct tti_gpu_lane *lane = lane_find(side, stream);
    if (lane) {
        lane->users++;
        lane->queued += more;
        *now = *lane;
    }
    pthread_mutex_unlock(&lanes_lock);
    return lane;
}

/* `at`: the stream is past so many commands. */
static void lane_leave(struct tti_gpu_lane *lane, uint64_t at)
{
    pthread_mutex_lock(&lanes_lock);
    lane->users--;
    if (at > lane->through)
        lane->through = at;
    pthread_mutex_unlock(&lanes_lock);
}

/* ---- marks: under the side's lock ---- */

static void marks_look(struct tti_gpu_side *side)
{
    for (int k = 0; k < TTI_AHEAD_MARKS; k++) {
        struct tti_gpu_ahead *mark = &side->ahead[k];
        if (!mark->lane || side->ops->event_query(mark->event) == TUTTI_IN_PROGRESS)
            continue;
        lane_leave(mark->lane, mark->at);
        mark->lane = NULL;
    }
}

static struct tti_gpu_ahead *mark_free(struct tti_gpu_side *side)
{
    for (int looked = 0; looked < 2; looked++) {
        for (int k = 0; k < TTI_AHEAD_MARKS; k++)
            if (!side->ahead[k].lane)
                return &side->ahead[k];
        marks_look(side);
    }
    return NULL;
}

/* A mark at the end of what the stream has so far. None, if all are under way: of those the last is
 * far enough. */
static enum tutti_result mark_add(struct tti_gpu_side *side, tutti_stream stream)
{
    struct tti_gpu_ahead *mark = mark_free(side);
    if (!mark)
        return TUTTI_OK;
    if (!mark->event)
        TTI_TRY(side->ops->event_create(side->gpu, 0, &mark->event));
    /* Counted before it is there: what others queue meanwhile is not before it. */
    struct tti_gpu_lane now;
    mark->lane = lane_enter(side, stream, 1, &now);
    mark->at = now.queued;
    side->ahead_counted++;
    const enum tutti_result result = side->ops->event_record(mark->event, stream);
    if (result != TUTTI_OK) { /* says nothing */
        lane_leave(mark->lane, 0);
        mark->lane = NULL;
    }
    return result;
}

/* Where this communicator's last mark in the lane is; 0: there is none. */
static uint64_t mark_last(const struct tti_gpu_side *side, const struct tti_gpu_lane *lane)
{
    uint64_t last = 0;
    for (int k = 0; k < TTI_AHEAD_MARKS; k++)
        if (side->ahead[k].lane == lane && side->ahead[k].at > last)
            last = side->ahead[k].at;
    return last;
}

/* ---- counting ---- */

void tti_gpu_ahead_begin(struct tutti_comm *comm, tutti_stream stream, bool capturing)
{
    struct tti_gpu_side *side = comm->gpu;
    side->ahead_counts = comm->size > 1 && stream && !capturing;
    side->ahead_counted = atomic_load_explicit(&side->gpu->commands, memory_order_relaxed);
}

enum tutti_result tti_gpu_ahead_add(struct tti_gpu_side *side, tutti_stream stream)
{
    if (!side->ahead_counts)
        return TUTTI_OK;
    const uint64_t commands = atomic_load_explicit(&side->gpu->commands, memory_order_relaxed);
    struct tti_gpu_lane now;
    struct tti_gpu_lane *lane = lane_enter(side, stream, commands - side->ahead_counted, &now);
    if (!lane)
        return TUTTI_ERR_MEMORY;
    side->ahead_counted = commands;
    const uint64_t last = mark_last(side, lane), from = last > now.through ? last : now.through;
    const enum tutti_result result =
        now.queued - from < TTI_AHEAD_STEP ? TUTTI_OK : mark_add(side, stream);
    lane_leave(lane, 0);
    return result;
}

void tti_gpu_ahead_end(struct tti_gpu_side *side, bool idle)
{
    for (int k = 0; k < TTI_AHEAD_MARKS; k++) {
        if (side->ahead[k].lane)
            lane_leave(side->ahead[k].lane, idle ? side->ahead[k].at : 0);
        side->ops->event_destroy(side->ahead[k].event);
    }
}

/* ---- waiting ---- */

/* Under the side's lock: IN_PROGRESS while the stream has more than `most` commands before it. */
static enum tutti_result ahead_look(struct tti_gpu_side *side, tutti_stream stream, uint64_t most)
{
    struct tti_gpu_lane now;
    struct tti_gpu_lane *lane = lane_enter(side, stream, 0, &now);
    if (!lane)
        return TUTTI_ERR_MEMORY;
    enum tutti_result result = TUTTI_OK;
    if (now.queued - now.through > most) {
        marks_look(side);
        (void)lane_enter(side, stream, 0, &now);
        lane_leave(lane, 0);
    }
    if (now.queued - now.through > most) {
        if (mark_last(side, lane) == 0) /* what others queued, or more than the marks reach */
            result = mark_add(side, stream);
        result = result == TUTTI_OK ? TUTTI_IN_PROGRESS : result;
    }
    lane_leave(lane, 0);
    return result;
}

static enum tutti_result ahead_late(const struct tutti_comm *comm)
{
    return TTI_FAIL(TUTTI_ERR_TIMEOUT,
                    "this rank is some %g commands ahead of its stream, which was not further %g s "
                    "later: the stream waits for something else, or for a rank that has yet to "
                    "call; a thread that calls for several ranks may not call for one of them so "
                    "far ahead",
                    TTI_AHEAD_MOST * comm->gpu->ahead_scale,
                    comm->settings.timeout_s + PATIENCE_SECONDS);
}

/* `locked`: by the caller, who is in the middle of an operation. */
static enum tutti_result ahead_wait(struct tutti_comm *comm, tutti_stream stream, uint64_t most,
                                    bool locked)
{
    struct tti_gpu_side *side = comm->gpu;
    uint64_t deadline = 0;
    for (int round = 0;; round++) {
        if (!locked)
            pthread_mutex_lock(&side->lock);
        const enum tutti_result result = ahead_look(side, stream, most);
        if (!locked)
            pthread_mutex_unlock(&side->lock);
        if (result != TUTTI_IN_PROGRESS)
            return result;
        if (round < SPINS) {
            tti_cpu_relax();
            continue;
        }
        if (round % LISTENS == 0)
            tti_comm_listen_idle(comm);
        TTI_TRY(tti_gpu_look_stuck(comm, tti_comm_check(comm)));
        if (deadline == 0)
            deadline = tti_deadline_in(comm->settings.timeout_s + PATIENCE_SECONDS);
        if (tti_deadline_passed(deadline))
            return ahead_late(comm);
        tti_nap(round - SPINS);
    }
}

static uint64_t ahead_scaled(const struct tti_gpu_side *side, int commands)
{
    return (uint64_t)(commands * side->ahead_scale);
}

enum tutti_result tti_gpu_room(struct tutti_comm *comm, tutti_stream stream)
{
    struct tti_gpu_side *side = comm->gpu;
    uint64_t capture = 0;
    pthread_mutex_lock(&side->lock);
    const bool counts = stream && side->gpu && comm->size > 1;
    const enum tutti_result result =
        counts ? side->ops->capture_id(side->gpu, stream, &capture) : TUTTI_OK;
    pthread_mutex_unlock(&side->lock);
    if (result != TUTTI_OK || !counts || capture)
        return result;
    return ahead_wait(comm, stream, ahead_scaled(side, TTI_AHEAD_MOST), false);
}

enum tutti_result tti_gpu_room_between(struct tutti_comm *comm, tutti_stream stream)
{
    struct tti_gpu_side *side = comm->gpu;
    if (!side->ahead_counts)
        return TUTTI_OK;
    TTI_TRY(tti_gpu_ahead_add(side, stream));
    if (tti_group_several()) /* what it would wait for may be what this thread queues next */
        return TUTTI_OK;
    return ahead_wait(comm, stream, ahead_scaled(side, TTI_AHEAD_WITHIN), true);
}
