/* Lanes: threads that reduce what is ready, in the agreed order (ddp/ddp_state.h).
 *
 * A lane has a communicator of its own, so that lanes do not wait for each other and the caller's
 * communicator stays the caller's. Which lane does what is fixed by the schedule; a lane waits for
 * what its next task needs, and does no other meanwhile. So all ranks issue the same collectives in
 * the same order on each communicator. The first failure stops all lanes; the caller hears of it
 * when it waits. Read next: ddp_reduce.c. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "ddp/ddp_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static void lanes_abort(struct tutti_ddp *ddp, const char *reason)
{
    for (int i = 0; i < ddp->lane_count + (ddp->value_lane != NULL); i++) {
        if (ddp->lanes[i].comm)
            tutti_comm_abort(ddp->lanes[i].comm, reason);
        if (ddp->lanes[i].across)
            tutti_comm_abort(ddp->lanes[i].across, reason);
    }
}

/* Under the lock: has the task all that it needs? */
static bool lane_may(const struct tutti_ddp *ddp, const struct tti_ddp_task *task)
{
    const struct tti_ddp_bucket *b = &ddp->buckets[task->bucket];
    if (task->action == TTI_DDP_ALL_GATHER)
        return b->chunks[task->chunk].reduced;
    return task->action == TTI_DDP_VALUES || b->pending == 0;
}

/* Under the lock, which may be released: zeros for a bucket to which nobody here added anything. */
static enum tutti_result lane_zeros(struct tti_ddp_lane *lane, struct tti_ddp_bucket *b)
{
    struct tutti_ddp *ddp = lane->ddp;
    TTI_TRY(tti_ddp_pool_fill(&ddp->gradient_pool));
    if (b->gradient) /* another lane, which does other chunks of it, made them meanwhile */
        return TUTTI_OK;
    TTI_TRY(tti_ddp_gradient_take(ddp, b, true, lane->stream));
    return tti_ddp_device_full(ddp, b, lane->stream); /* those lanes go by that */
}

/* Under the lock, which is released while the task runs. */
static enum tutti_result lane_do(struct tti_ddp_lane *lane, const struct tti_ddp_task *task)
{
    struct tutti_ddp *ddp = lane->ddp;
    struct tti_ddp_bucket *b = &ddp->buckets[task->bucket];
    lane->sent = 0;
    if (task->action != TTI_DDP_VALUES && !b->gradient)
        TTI_TRY(lane_zeros(lane, b));
    pthread_mutex_unlock(&ddp->lock);
    enum tutti_result result =
        tti_ddp_device_hold(lane, task->action == TTI_DDP_VALUES ? b->given : b->full);
    if (result == TUTTI_OK)
        result = tti_ddp_reduce(lane, task);
    if (result != TUTTI_OK) {
        char text[256];
        tti_ddp_bucket_text(ddp, task->bucket, text, sizeof text);
        result = TTI_CONTEXT(result, "while %s %s",
                             task->action == TTI_DDP_VALUES ? "gathering" : "reducing", text);
    }
    pthread_mutex_lock(&ddp->lock);
    return result;
}

/* Under the lock. */
static void lane_done(struct tutti_ddp *ddp, const struct tti_ddp_task *task)
{
    struct tti_ddp_bucket *b = &ddp->buckets[task->bucket];
    if (task->action == TTI_DDP_VALUES) {
        b->gathering--;
        return;
    }
    if (task->action == TTI_DDP_REDUCE_SCATTER)
        b->chunks[task->chunk].reduced = true;
    if (--b->unfinished == 0 && b->shard)
        tti_ddp_gradient_give(ddp, b);
}

bool tti_ddp_lanes_starve(const struct tutti_ddp *ddp)
{
    for (int i = 0; i < ddp->lane_count; i++) {
        const struct tti_ddp_lane *lane = &ddp->lanes[i];
        if (lane->next < lane->count && !lane_may(ddp, &lane->tasks[lane->next]))
            return true;
    }
    return false;
}

/* Others would wait for this rank's part of what it does not do any more, so they are told. */
void tti_ddp_lane_failed(struct tutti_ddp *ddp, enum tutti_result result)
{
    char reason[600];
    if (ddp->error.code != TUTTI_OK)
        return;
    tti_error_save(&ddp->error, result);
    snprintf(reason, sizeof reason, "rank %d could not go on: %.500s", ddp->rank, ddp->error.text);
    lanes_abort(ddp, reason);
}

void tti_ddp_lanes_fail(struct tutti_ddp *ddp, enum tutti_result result)
{
    struct tti_error error;
    tti_error_save(&error, result);
    pthread_mutex_lock(&ddp->lock);
    tti_ddp_lane_failed(ddp, result);
    pthread_cond_broadcast(&ddp->changed);
    pthread_mutex_unlock(&ddp->lock);
    (void)tti_error_restore(&error); /* aborting may have changed the thread's */
}

/* Under the lock. */
static void lane_run(struct tti_ddp_lane *lane)
{
    struct tutti_ddp *ddp = lane->ddp;
    struct tti_ddp_task task = lane->tasks[lane->next];
    bool gradients = task.action != TTI_DDP_VALUES;
    uint64_t start = tti_now_ns();
    if (gradients)
        tti_ddp_clock_work(ddp, 1);
    enum tutti_result result = lane_do(lane, &task);
    if (gradients) {
        tti_ddp_clock_work(ddp, -1);
        ddp->clock.bytes += lane->sent;
        ddp->clock.collectives++;
    }
    tti_ddp_record(ddp, lane, &task, start, tti_now_ns());
    if (result != TUTTI_OK)
        tti_ddp_lane_failed(ddp, result);
    lane_done(ddp, &task);
    lane->next++;
    pthread_cond_broadcast(&ddp->changed);
}

/* A lane computes little, often, and all ranks wait for it; who shares its core computes for long.
 * So it asks the kernel for short time slices: it is let in sooner for them when it wakes up, and
 * gets no more of the core. Where the kernel knows no such wish (before 6.12), or forbids it,
 * nothing is lost. */
static void lane_brief(void)
{
    struct {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period; /* ns; runtime: of a slice, for ordinary threads */
    } wish = {.size = sizeof wish};         /* the kernel's struct sched_attr, as it first was */
#if defined(SYS_sched_getattr) && defined(SYS_sched_setattr)
    enum { SLICE_NS = 100000 };
    if (syscall(SYS_sched_getattr, 0, &wish, (unsigned)sizeof wish, 0u) != 0 || wish.policy != 0)
        return; /* not an ordinary thread: somebody knows better */
    wish.runtime = SLICE_NS;
    (void)syscall(SYS_sched_setattr, 0, &wish, 0u);
#else
    (void)wish;
#endif
}

static void *lane_main(void *argument)
{
    struct tti_ddp_lane *lane = argument;
    struct tutti_ddp *ddp = lane->ddp;
    tti_log_rank(ddp->rank);
    lane_brief();
    pthread_mutex_lock(&ddp->lock);
    while (!ddp->stop) {
        bool idle = lane->next == lane->count || ddp->error.code != TUTTI_OK ||
                    !lane_may(ddp, &lane->tasks[lane->next]);
        if (idle)
            pthread_cond_wait(&ddp->changed, &ddp->lock);
        else
            lane_run(lane);
    }
    pthread_mutex_unlock(&ddp->lock);
    return NULL;
}

/* A lane's communicator, or one of its two. Between hosts it waits long and often, and who polls
 * then does so at the expense of who computes; on one host it waits for microseconds (waits that
 * sleep made the steps of a tiny model 3% longer). */
static enum tutti_result lane_split(const struct tutti_ddp *ddp, tutti_comm *comm, int color,
                                    tutti_comm **made)
{
    TTI_TRY(tutti_comm_split(comm, color, ddp->rank, made));
    return tutti_comm_background(*made, tutti_comm_hosts(*made) > 1);
}

enum tutti_result tti_ddp_lanes_start(struct tutti_ddp *ddp, tutti_comm *comm)
{
    int group = ddp->group_size == ddp->size ? 0 : ddp->group_number;
    int lanes = ddp->options.in_flight + (ddp->options.zero > 0);
    for (int i = 0; i < lanes; i++) {
        struct tti_ddp_lane *lane = &ddp->lanes[i];
        lane->ddp = ddp;
        lane->number = i;
        if (i == ddp->options.in_flight)
            ddp->value_lane = lane;
        else
            ddp->lane_count = i + 1;
        TTI_TRY(lane_split(ddp, comm, group, &lane->comm));
        if (ddp->options.on_device)
            TTI_TRY(ddp->gpu->ops->stream_create(ddp->gpu, &lane->stream));
        if (lane != ddp->value_lane && ddp->group_size < ddp->size)
            TTI_TRY(lane_split(ddp, comm, ddp->group_rank, &lane->across));
        if (pthread_create(&lane->thread, NULL, lane_main, lane) != 0)
            return TTI_FAIL(TUTTI_ERR_SYSTEM, "tutti_ddp_create: no thread could be started");
        lane->started = true;
    }
    return TUTTI_OK;
}

/* Under the lock. */
static bool lanes_busy(const struct tutti_ddp *ddp, int bucket)
{
    for (size_t b = 0; b < ddp->bucket_count; b++)
        if (ddp->buckets[b].unfinished > 0 && (bucket == TTI_DDP_NONE || bucket == (int)b))
            return true;
    return false;
}

/* Under the lock. */
static bool lanes_gathering(const struct tutti_ddp *ddp, int bucket)
{
    for (size_t b = 0; b < ddp->bucket_count; b++)
        if (ddp->buckets[b].gathering > 0 && (bucket == TTI_DDP_NONE || bucket == (int)b))
            return true;
    return false;
}

void tti_ddp_lanes_stop(struct tutti_ddp *ddp)
{
    pthread_mutex_lock(&ddp->lock);
    ddp->stop = true;
    if (lanes_busy(ddp, TTI_DDP_NONE) || lanes_gathering(ddp, TTI_DDP_NONE))
        lanes_abort(ddp, "tutti_ddp_destroy in the middle of a step");
    pthread_cond_broadcast(&ddp->changed);
    pthread_mutex_unlock(&ddp->lock);
    for (int i = 0; i < ddp->lane_count + (ddp->value_lane != NULL); i++) {
        struct tti_ddp_lane *lane = &ddp->lanes[i];
        if (lane->started)
            pthread_join(lane->thread, NULL);
        tutti_comm_destroy(lane->comm);
        tutti_comm_destroy(lane->across);
        tti_ddp_free(ddp, lane->scratch);
        if (lane->stream)
            ddp->gpu->ops->stream_destroy(ddp->gpu, lane->stream);
        free(lane->tasks);
    }
}

/* Under the lock. */
static enum tutti_result lane_add(struct tti_ddp_lane *lane, enum tti_ddp_action action,
                                  struct tti_ddp_range range)
{
    struct tti_ddp_task task = {action, range.bucket, range.chunk};
    if (lane->next == lane->count)
        lane->next = lane->count = 0;
    TTI_TRY(tti_grow((void **)&lane->tasks, &lane->capacity, lane->count + 1, sizeof task));
    lane->tasks[lane->count++] = task;
    if (action == TTI_DDP_VALUES)
        lane->ddp->buckets[task.bucket].gathering++;
    else
        lane->ddp->buckets[task.bucket].unfinished++;
    return TUTTI_OK;
}

/* Under the lock. Lanes work in pairs where a chunk is scattered and gathered: while one of them
 * gathers a chunk, the other reduces the next. */
static enum tutti_result lanes_add(struct tutti_ddp *ddp, size_t place, struct tti_ddp_range range)
{
    size_t lanes = (size_t)ddp->lane_count;
    struct tti_ddp_lane *first = &ddp->lanes[place % lanes];
    if (!ddp->split)
        return lane_add(first, ddp->by_bucket ? TTI_DDP_HOOK : TTI_DDP_ALL_REDUCE, range);
    ddp->buckets[range.bucket].chunks[range.chunk].reduced = false;
    if (ddp->options.zero > 0)
        return lane_add(first, TTI_DDP_REDUCE_SCATTER, range);
    struct tti_ddp_lane *second = first;
    if (lanes > 1) {
        first = &ddp->lanes[place % (lanes / 2) * 2];
        second = first + 1;
    }
    TTI_TRY(lane_add(first, TTI_DDP_REDUCE_SCATTER, range));
    return lane_add(second, TTI_DDP_ALL_GATHER, range);
}

enum tutti_result tti_ddp_lanes_give(struct tutti_ddp *ddp)
{
    enum tutti_result result = TUTTI_OK;
    pthread_mutex_lock(&ddp->lock);
    for (size_t k = 0; k < ddp->schedule_count && result == TUTTI_OK; k++)
        result = lanes_add(ddp, k, ddp->schedule[k]);
    pthread_cond_broadcast(&ddp->changed);
    pthread_mutex_unlock(&ddp->lock);
    return result;
}

enum tutti_result tti_ddp_lanes_gather(struct tutti_ddp *ddp, int bucket)
{
    struct tti_ddp_bucket *b = &ddp->buckets[bucket];
    TTI_TRY(tti_ddp_device_given(ddp, b));
    for (size_t c = 0; c < b->chunk_count; c++)
        TTI_TRY(lane_add(ddp->value_lane, TTI_DDP_VALUES, (struct tti_ddp_range){bucket, c}));
    pthread_cond_broadcast(&ddp->changed);
    return TUTTI_OK;
}

/* Until `busy` is over for a bucket, or for all. */
static enum tutti_result lanes_await(struct tutti_ddp *ddp, int bucket,
                                     bool (*busy)(const struct tutti_ddp *, int))
{
    pthread_mutex_lock(&ddp->lock);
    while (ddp->error.code == TUTTI_OK && busy(ddp, bucket))
        pthread_cond_wait(&ddp->changed, &ddp->lock);
    struct tti_error error = ddp->error;
    pthread_mutex_unlock(&ddp->lock);
    return error.code == TUTTI_OK ? TUTTI_OK : tti_error_restore(&error);
}

enum tutti_result tti_ddp_lanes_wait(struct tutti_ddp *ddp, int bucket)
{
    return lanes_await(ddp, bucket, lanes_busy);
}

enum tutti_result tti_ddp_lanes_gathered(struct tutti_ddp *ddp, int bucket)
{
    return lanes_await(ddp, bucket, lanes_gathering);
}
