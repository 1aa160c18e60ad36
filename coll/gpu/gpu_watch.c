/* Ending waits on the device (gpu_map.h). Kernels and streams wait for other ranks without the
 * host; a thread looks after them: it hears of ranks that died, sees what kernels say of ranks that
 * did not come, and when the communicator has failed it lets everything through that still waits.
 *
 * Results are worthless from then on, here and wherever this rank's flags are seen. So before it
 * lets its own stream go on, a rank poisons its peers: every operation ends by copying the word of
 * poison to where the host sees it, and a rank that was let through by mistake finds it there. */
#include "coll/diagnose.h"
#include "coll/exec_internal.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/gpu/gpu_map.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/stay_loaded.h"

#include <stdio.h>

enum {
    TURN_MS = 20,
    NOTICE_MS = 500,
    FLAGS_SECONDS = 1,
    LET_THROUGH_A_TURN = 50,
    EVERYTHING = 1 << 30, /* more than any stream waits for */
};
static const double GRACE_SECONDS = 0.5; /* the host's own deadlines come first */

/* ---- what the device says ----
 *
 * `turn`: the caller has the turn of the queue, without which nobody listens. */

static void look_listen(struct tutti_comm *comm, bool turn)
{
    const uint64_t deadline = tti_deadline_in(NOTICE_MS / 1e3);
    while (tti_comm_check(comm) == TUTTI_OK && !tti_deadline_passed(deadline)) {
        const bool paused = !turn && tti_work_try_pause(comm);
        if (turn || paused)
            (void)tti_comm_listen(comm);
        if (paused)
            tti_work_resume(comm);
        const struct timespec nap = {.tv_nsec = 1000000};
        nanosleep(&nap, NULL);
    }
}

/* What the bootstrap knows is better than that. */
static void look_gave_up(struct tutti_comm *comm, int rank, bool turn)
{
    look_listen(comm, turn);
    if (tti_comm_check(comm) == TUTTI_OK)
        (void)tti_comm_fail(comm,
                            TTI_FAIL(TUTTI_ERR_PEER,
                                     "rank %d (%s) gave up an operation on device memory; its "
                                     "own error says why",
                                     rank, tutti_comm_rank_name(comm, rank)));
}

static void look(struct tutti_comm *comm, bool turn)
{
    struct tti_gpu_map *map = comm->gpu->map;
    if (!map || !map->told || tti_comm_check(comm) != TUTTI_OK)
        return;
    const struct tti_gpu_status *status = &map->told->status;
    const uint32_t failed = __atomic_load_n(&status->failed, __ATOMIC_ACQUIRE);
    if (!failed)
        return;
    const int rank = map->of[status->rank];
    if (failed == TUTTI_ERR_PEER)
        look_gave_up(comm, rank, turn);
    else if (failed == TUTTI_ERR_MISMATCH)
        (void)tti_exec_mismatch(comm->executor, rank, status->ours, status->theirs);
    else if (status->epoch == 0)
        (void)tti_diagnose(
            comm, TTI_FAIL(TUTTI_ERR_TIMEOUT,
                           "a send or receive on device memory: rank %d (%s) did not come within "
                           "%g s; it has not called its side of it, or its device is busy or stuck",
                           rank, tutti_comm_rank_name(comm, rank), comm->settings.timeout_s));
    else
        (void)tti_diagnose(
            comm, TTI_FAIL(TUTTI_ERR_TIMEOUT,
                           "operation %llu on device memory: rank %d (%s) did not come within %g "
                           "s; it has not called it, or its device is busy or stuck%s",
                           (unsigned long long)status->epoch, rank,
                           tutti_comm_rank_name(comm, rank), comm->settings.timeout_s,
                           map->queues_short ? ", or its kernel stands in a queue behind one that "
                                               "waits for it: set CUDA_DEVICE_MAX_CONNECTIONS=32"
                                             : ""));
}

static void look_poison(struct tutti_comm *comm, bool turn)
{
    struct tti_gpu_map *map = comm->gpu->map;
    if (!map || !map->told || tti_comm_check(comm) != TUTTI_OK)
        return;
    const uint32_t poison = __atomic_load_n(&map->told->poison, __ATOMIC_RELAXED);
    if (poison)
        look_gave_up(comm, (int)poison - 1, turn);
}

bool tti_gpu_told(const struct tutti_comm *comm)
{
    const struct tti_gpu_map *map = comm->gpu->map;
    return map && map->told &&
           (__atomic_load_n(&map->told->status.failed, __ATOMIC_ACQUIRE) != 0 ||
            __atomic_load_n(&map->told->poison, __ATOMIC_RELAXED) != 0);
}

void tti_gpu_look(struct tutti_comm *comm)
{
    look(comm, false);
}

void tti_gpu_look_poison(struct tutti_comm *comm)
{
    look_poison(comm, false);
}

enum tutti_result tti_gpu_sound(struct tutti_comm *comm)
{
    look(comm, true);
    look_poison(comm, true);
    return tti_comm_check(comm);
}

enum tutti_result tti_gpu_look_stuck(struct tutti_comm *comm, enum tutti_result result)
{
    const struct tti_gpu_map *map = comm->gpu->map;
    const uint32_t stuck =
        map && map->told ? __atomic_load_n(&map->told->status.stuck, __ATOMIC_ACQUIRE) : 0;
    if (result == TUTTI_OK || !stuck)
        return result;
    return TTI_CONTEXT(result,
                       "rank %d (%s) may still use this rank's buffers: its kernel did not end; "
                       "keep them allocated until its device is reset",
                       map->of[stuck - 1], tutti_comm_rank_name(comm, map->of[stuck - 1]));
}

/* ---- streams that wait for flags ---- */

/* Is the stream at work that waits for flags? Captured or not: the stream itself says so. */
static bool watch_waits(const struct tti_gpu_map *map)
{
    return __atomic_load_n(&map->told->inside, __ATOMIC_ACQUIRE) != 0;
}

/* Which ranks have raised none of their flags here. */
static void watch_missing(struct tutti_comm *comm, char *list, size_t bytes)
{
    struct tti_gpu_map *map = comm->gpu->map;
    struct tti_gpu *gpu = comm->gpu->gpu;
    size_t used = 0;
    const uint32_t waited = __atomic_load_n(&map->told->status.waited, __ATOMIC_ACQUIRE);
    list[0] = '\0';
    if (waited > 0) {
        const int rank = map->of[waited - 1];
        (void)snprintf(list, bytes, "%d (%s)", rank, tutti_comm_rank_name(comm, rank));
        return;
    }
    if (gpu->ops->copy(gpu, map->told->flags, tti_gpu_at(map, map->rank, TTI_ARENA_FLAGS),
                       sizeof map->told->flags, map->aside) != TUTTI_OK ||
        tti_gpu_stream_wait(gpu, map->aside, tti_deadline_in(FLAGS_SECONDS), "reading flags") !=
            TUTTI_OK)
        return;
    for (int r = 0; r < map->size && used < bytes; r++) {
        bool raised = r == map->rank;
        for (int m = 0; m < TTI_MEETS; m++)
            raised |= map->told->flags[(m * TTI_GPU_RANKS + r) * TTI_FLAG_STEP] != 0;
        if (!raised)
            used += (size_t)snprintf(list + used, bytes - used, "%s%d (%s)", used ? ", " : "",
                                     map->of[r], tutti_comm_rank_name(comm, map->of[r]));
    }
}

/* Has the stream waited for flags for longer than the deadline? */
static bool watch_stands(const struct tutti_comm *comm)
{
    struct tti_gpu_map *map = comm->gpu->map;
    const uint32_t progress = __atomic_load_n(&map->told->progress, __ATOMIC_RELAXED);
    if (progress != map->progress || map->progress_ns == 0 || !watch_waits(map)) {
        map->progress = progress;
        map->progress_ns = tti_now_ns();
        return false;
    }
    const double patience = comm->settings.timeout_s + GRACE_SECONDS;
    return (double)(tti_now_ns() - map->progress_ns) / 1e9 >= patience;
}

static void watch_deadline(struct tutti_comm *comm)
{
    char list[400];
    if (!watch_stands(comm))
        return;
    watch_missing(comm, list, sizeof list);
    (void)tti_diagnose(
        comm,
        TTI_FAIL(TUTTI_ERR_TIMEOUT,
                 "an operation on device memory made no progress for %g s: %s%s; a rank has "
                 "not called it, or work before it on a stream is stuck",
                 comm->settings.timeout_s, list[0] ? "waiting for rank " : "all ranks came", list));
}

/* A device that has failed runs nothing more: the others need not wait for this rank until their
 * deadline. Who holds the lock is in a call, which hears of it by itself. A driver that is shut
 * down (ABORTED) says that the process is about to end, as many do without destroying anything:
 * that is no failure, and the others hear of the end. */
static void watch_device(struct tutti_comm *comm, bool watcher)
{
    struct tti_gpu_side *side = comm->gpu;
    if (pthread_mutex_trylock(&side->lock) != 0)
        return;
    enum tutti_result now = TUTTI_OK;
    const bool watched = side->map && side->map->watching;
    if (side->last.any && (watcher || !watched))
        now = side->ops->event_query(side->last.event);
    pthread_mutex_unlock(&side->lock);
    if (now != TUTTI_OK && now != TUTTI_IN_PROGRESS && now != TUTTI_ERR_ABORTED)
        (void)tti_comm_fail(comm,
                            TTI_CONTEXT(now, "device %d of rank %d (%s) failed", side->gpu->device,
                                        comm->rank, tutti_comm_rank_name(comm, comm->rank)));
}

void tti_gpu_look_device(struct tutti_comm *comm)
{
    if (tti_comm_check(comm) == TUTTI_OK)
        watch_device(comm, false);
}

/* ---- after a failure ---- */

/* False: the device did not come to it, and more would only fill its stream. */
static bool watch_let_through(struct tutti_comm *comm)
{
    struct tti_gpu_map *map = comm->gpu->map;
    struct tti_gpu *gpu = comm->gpu->gpu;
    __atomic_store_n(&map->told->status.abort, 1, __ATOMIC_RELEASE);
    if (gpu->ops->stream_query(gpu, map->aside) == TUTTI_IN_PROGRESS)
        return false;
    for (int r = 0; r < map->size && !map->poisoned; r++)
        if (r != map->rank)
            (void)gpu->ops->stream_write(gpu, (uint32_t *)tti_gpu_at(map, r, TTI_ARENA_POISON),
                                         (uint32_t)comm->rank + 1, map->aside);
    if (!map->poisoned)
        tti_gpu_lend_end(comm);
    map->poisoned = true;
    for (int k = 0; k < TTI_MEETS * TTI_GPU_RANKS; k++)
        (void)gpu->ops->stream_write(
            gpu,
            (uint32_t *)tti_gpu_at(map, map->rank, TTI_ARENA_FLAGS + (size_t)k * TTI_FLAG_STEP),
            EVERYTHING, map->aside);
    (void)gpu->ops->stream_write(gpu, &tti_gpu_message_box(map, map->rank)->gate, 1, map->aside);
    return tti_gpu_stream_wait(gpu, map->aside, tti_deadline_in(FLAGS_SECONDS),
                               "letting through") == TUTTI_OK;
}

/* A graph may hold many meetings: let it through them without a turn for each. */
static void watch_let_all_through(struct tutti_comm *comm)
{
    for (int times = 0; times <= LET_THROUGH_A_TURN && watch_let_through(comm); times++)
        if (!watch_waits(comm->gpu->map))
            break;
}

/* ---- the thread ---- */

static void watch_turn(struct tutti_comm *comm)
{
    if (tti_comm_check(comm) == TUTTI_OK)
        tti_comm_listen_idle(comm);
    tti_gpu_look(comm);
    tti_gpu_record_settle(comm);
    tti_gpu_record_look(comm);
    if (tti_comm_check(comm) == TUTTI_OK)
        watch_device(comm, true);
    if (tti_comm_check(comm) == TUTTI_OK)
        watch_deadline(comm);
    if (tti_comm_check(comm) == TUTTI_OK) {
        tti_gpu_lend_turn(comm);
        return;
    }
    watch_let_all_through(comm);
}

static void *watch_main(void *argument)
{
    struct tutti_comm *comm = argument;
    struct tti_gpu_map *map = comm->gpu->map;
    tti_log_rank(comm->rank);
    pthread_mutex_lock(&map->lock);
    while (!map->stop) {
        (void)tti_cond_wait(&map->changed, &map->lock, tti_deadline_in(TURN_MS / 1e3));
        if (map->stop)
            break;
        pthread_mutex_unlock(&map->lock);
        watch_turn(comm);
        pthread_mutex_lock(&map->lock);
    }
    pthread_mutex_unlock(&map->lock);
    return NULL;
}

enum tutti_result tti_gpu_watch_start(struct tutti_comm *comm)
{
    struct tti_gpu_map *map = comm->gpu->map;
    const int error = pthread_create(&map->watcher, NULL, watch_main, comm);
    if (error)
        return TTI_FAIL(TUTTI_ERR_SYSTEM,
                        "cannot start the thread that watches device operations (error %d; see "
                        "ulimit -u)",
                        error);
    map->watching = true;
    return TUTTI_OK;
}

void tti_gpu_watch_stop(struct tutti_comm *comm)
{
    struct tti_gpu_map *map = comm->gpu->map;
    if (!map->watching)
        return;
    pthread_mutex_lock(&map->lock);
    map->stop = true;
    pthread_cond_signal(&map->changed);
    pthread_mutex_unlock(&map->lock);
    pthread_join(map->watcher, NULL);
    map->watching = false;
}

/* ---- after the communicator ---- */

/* Each meeting lowers the flags again, so what comes after the first one would wait for good. Of a
 * communicator that had not failed the others may yet come. */
static void *watch_left(void *argument)
{
    struct tutti_comm *comm = argument;
    const struct tti_gpu_side *side = comm->gpu;
    const struct timespec nap = {.tv_nsec = TURN_MS * 1000000};
    bool over = atomic_load(&comm->failed) != TUTTI_OK;
    tti_log_rank(comm->rank);
    while (side->ops->event_query(side->last.event) == TUTTI_IN_PROGRESS) {
        over = over || watch_stands(comm);
        if (over)
            watch_let_all_through(comm);
        nanosleep(&nap, NULL);
    }
    tti_gpu_retire_device(side->gpu);
    return NULL;
}

bool tti_gpu_watch_leave(struct tutti_comm *comm)
{
    pthread_t watcher;
    if (!comm->gpu->map || comm->gpu->map->way == TTI_GPU_STAGED)
        return false;
    tti_stay_loaded();
    const int error = pthread_create(&watcher, NULL, watch_left, comm);
    if (error) {
        TTI_LOG(TTI_LOG_WARN,
                "cannot start the thread that lets what is left on the stream through (error %d; "
                "see ulimit -u): it may wait for ranks that are gone",
                error);
        return false;
    }
    pthread_detach(watcher);
    return true;
}
