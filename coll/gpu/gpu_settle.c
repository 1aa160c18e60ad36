/* Waiting on the host for work on the device (gpu_side.h): until a point is reached, for a request,
 * before the host uses the links. Every wait has the communicator's deadline, and hears of its
 * failures. */
#include "coll/gpu/gpu_map.h"

#include "base/clock.h"
#include "base/memory.h"
#include "coll/door.h"
#include "coll/gpu/gpu_calls.h"

#include <stdlib.h>

/* Beyond the communicator's deadline, which says more; and, once it has failed, for all waits
 * together: kernels that are told to end do within the 5 s that they wait for peers inside
 * (cuda/meet.cuh). */
enum { DRAIN_SECONDS = 10 };

enum tutti_result tti_comm_settle(tutti_comm *comm)
{
    struct tti_gpu_side *side = comm->gpu;
    enum tutti_result result = TUTTI_OK;
    if (!side)
        return TUTTI_OK;
    tti_comm_listen_idle(comm);
    pthread_mutex_lock(&side->lock);
    if (side->gpu && side->last.any)
        result = tti_gpu_settle(comm, side->last.event, "waiting for operations on device memory");
    const struct tti_gpu_user *user = side->gpu ? &side->user : NULL;
    pthread_mutex_unlock(&side->lock);
    tti_gpu_record_settle(comm);
    if (user)
        tti_gpu_reclaim_idle(user);
    return result;
}

/* Who queues a call or asks how things stand has the lock for a moment; who waits for what is not
 * over has it for long. */
static bool settle_over(struct tutti_comm *comm, bool but_graphs)
{
    enum { LOOKS = 20 };
    const struct timespec nap = {.tv_nsec = 1000000};
    struct tti_gpu_side *side = comm->gpu;
    for (int looks = 0; pthread_mutex_trylock(&side->lock) != 0; looks++) {
        if (looks == LOOKS)
            return false;
        nanosleep(&nap, NULL);
    }
    const bool idle = (but_graphs || !side->captured.any) &&
                      (!side->last.any || side->ops->event_query(side->last.event) == TUTTI_OK) &&
                      !tti_gpu_told(comm);
    pthread_mutex_unlock(&side->lock);
    return idle;
}

bool tti_gpu_is_idle(struct tutti_comm *comm)
{
    return settle_over(comm, false);
}

bool tti_gpu_is_over(struct tutti_comm *comm)
{
    return settle_over(comm, true);
}

void tti_gpu_ask(struct tutti_comm *comm, bool turn)
{
    if (pthread_mutex_trylock(&comm->gpu->lock) != 0)
        return;
    if (turn) {
        (void)tti_gpu_sound(comm); /* the communicator fails, if not */
    } else {
        tti_gpu_look(comm);
        tti_gpu_look_poison(comm);
    }
    pthread_mutex_unlock(&comm->gpu->lock);
}

/* Who waits after a failure waits for what the first one that did waited for, until the device goes
 * on. */
static bool settle_too_late(struct tutti_comm *comm, uint64_t deadline)
{
    struct tti_gpu_side *side = comm->gpu;
    if (atomic_load_explicit(&comm->failed, memory_order_acquire) == TUTTI_OK)
        return tti_deadline_passed(deadline);
    const uint64_t fresh = tti_deadline_in(DRAIN_SECONDS);
    uint64_t by = 0;
    if (atomic_compare_exchange_strong(&side->drained_by, &by, fresh))
        by = fresh;
    return tti_deadline_passed(by);
}

enum tutti_result tti_gpu_settle(struct tutti_comm *comm, struct tti_gpu_event *event,
                                 const char *what)
{
    enum { LISTENS = 64 };
    struct tti_gpu_side *side = comm->gpu;
    const struct tti_gpu_ops *ops = side->ops;
    struct tti_gpu_patience patience = {0};
    uint64_t deadline = 0;
    for (;;) {
        const enum tutti_result now = ops->event_query(event);
        if (now != TUTTI_IN_PROGRESS) {
            if (deadline != 0)
                atomic_store(&side->drained_by, 0);
            tti_gpu_hear(comm);
            TTI_TRY(tti_gpu_look_stuck(comm, tti_comm_check(comm)));
            return now == TUTTI_OK ? TUTTI_OK : TTI_CONTEXT(now, "%s", what);
        }
        if (!tti_gpu_pause(ops, event, &patience))
            continue;
        if (deadline == 0)
            deadline = tti_deadline_in(comm->settings.timeout_s + DRAIN_SECONDS);
        /* No thread runs links while all work stands on the stream. */
        if (patience.rests % LISTENS == 0)
            tti_comm_listen_idle(comm);
        if (settle_too_late(comm, deadline)) {
            const enum tutti_result failed = tti_gpu_look_stuck(comm, tti_comm_check(comm));
            if (failed != TUTTI_OK)
                return TTI_CONTEXT(failed,
                                   "%s: the device is not through with it and may yet write to its "
                                   "buffers; keep them until the stream is",
                                   what);
            return TTI_FAIL(TUTTI_ERR_TIMEOUT,
                            "%s: the device was not through %g s after the wait began; what is "
                            "before it on the stream may be stuck",
                            what, comm->settings.timeout_s + DRAIN_SECONDS);
        }
    }
}

enum tutti_result tti_comm_stream_wait(tutti_comm *comm, struct tti_gpu *gpu, tutti_stream stream,
                                       const char *what)
{
    enum { TURN_MS = 100 };
    const uint64_t deadline = tti_deadline_in(comm->settings.timeout_s);
    for (;;) {
        const uint64_t turn = tti_deadline_in(TURN_MS / 1e3);
        const uint64_t until = turn < deadline ? turn : deadline;
        const enum tutti_result result = tti_gpu_stream_wait(gpu, stream, until, what);
        if (result != TUTTI_ERR_TIMEOUT || until == deadline)
            return result;
        tti_comm_listen_idle(comm);
        TTI_TRY(tti_comm_check(comm));
    }
}

void tti_gpu_hear(struct tutti_comm *comm)
{
    tti_comm_listen_idle(comm);
    tti_gpu_look(comm);
    tti_gpu_look_poison(comm);
}

enum tutti_result tti_gpu_settle_staged(struct tutti_comm *comm)
{
    struct tti_gpu_side *side = comm->gpu;
    const bool waits = side->staged && side->last.any;
    side->staged = false;
    return waits ? tti_gpu_settle(comm, side->last.event, "waiting for operations on device memory")
                 : TUTTI_OK;
}

enum tutti_result tti_gpu_before_host(struct tutti_comm *comm)
{
    struct tti_gpu_side *side = comm->gpu;
    pthread_mutex_lock(&side->lock);
    const enum tutti_result result = tti_gpu_settle_staged(comm);
    pthread_mutex_unlock(&side->lock);
    return result;
}

/* ---- requests ---- */

enum tutti_result tti_gpu_mark_take(struct tti_gpu_side *side, tutti_stream stream,
                                    struct tti_gpu_mark **mark)
{
    uint64_t capture = 0;
    if (stream)
        TTI_TRY(side->ops->capture_id(side->gpu, stream, &capture));
    if (capture)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "a request was asked for under capture, where nothing runs; pass NULL");
    struct tti_gpu_mark *made = side->marks;
    if (made) {
        side->marks = made->next;
    } else {
        made = tti_calloc(1, sizeof *made);
        if (!made)
            return TUTTI_ERR_MEMORY;
        enum tutti_result result = side->ops->event_create(side->gpu, 0, &made->event);
        if (result != TUTTI_OK) {
            free(made);
            return result;
        }
    }
    enum tutti_result result = side->ops->event_record(made->event, stream);
    if (result != TUTTI_OK) {
        made->next = side->marks;
        side->marks = made;
        return result;
    }
    *mark = made;
    return TUTTI_OK;
}

enum tutti_result tti_gpu_mark_make(struct tutti_comm *comm, tutti_stream stream,
                                    struct tti_gpu_mark **mark)
{
    pthread_mutex_lock(&comm->gpu->lock);
    tti_gpu_ahead_begin(comm, stream, false);
    enum tutti_result result = tti_gpu_mark_take(comm->gpu, stream, mark);
    if (result == TUTTI_OK)
        (void)tti_gpu_ahead_add(comm->gpu, stream);
    pthread_mutex_unlock(&comm->gpu->lock);
    return result;
}

enum tutti_result tti_gpu_mark_test(struct tutti_comm *comm, struct tti_gpu_mark *mark)
{
    if (comm->forked) /* the driver is the parent's */
        return tti_comm_check(comm);
    const enum tutti_result result = comm->gpu->ops->event_query(mark->event);
    if (result != TUTTI_OK)
        return result;
    tti_gpu_hear(comm);
    return tti_comm_check(comm);
}

enum tutti_result tti_gpu_mark_wait(struct tutti_comm *comm, struct tti_gpu_mark *mark)
{
    struct tti_gpu_side *side = comm->gpu;
    if (comm->forked)
        return tti_comm_check(comm);
    const enum tutti_result result = tti_gpu_settle(comm, mark->event, "waiting for a request");
    tti_gpu_record_settle(comm);
    pthread_mutex_lock(&side->lock);
    mark->next = side->marks;
    side->marks = mark;
    pthread_mutex_unlock(&side->lock);
    tti_gpu_reclaim_idle(&side->user);
    return result;
}
