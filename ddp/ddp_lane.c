/* Lanes: threads that reduce what is ready, in the agreed order (ddp/ddp_state.h).
 *
 * A lane has a communicator of its own, so that lanes do not wait for each other and the caller's
 * communicator stays the caller's. Which lane does what is fixed by the schedule; a lane waits for
 * the bucket of its next task, not for any. So all ranks issue the same collectives in the same
 * order on each communicator. The first failure stops all lanes; the caller hears of it when it
 * waits. Read next: ddp_order.c. */
#include "base/log.h"
#include "base/memory.h"
#include "ddp/ddp_state.h"

#include <stdlib.h>

/* Under the lock: has the task all that it needs? */
static bool lane_may(const struct tutti_ddp *ddp, const struct tti_ddp_task *task)
{
    return ddp->buckets[task->bucket].pending == 0;
}

/* Without the lock: the bucket is full and nobody else touches it. */
static enum tutti_result lane_do(struct tti_ddp_lane *lane, const struct tti_ddp_task *task)
{
    const struct tutti_ddp *ddp = lane->ddp;
    const struct tti_ddp_bucket *b = &ddp->buckets[task->bucket];
    const struct tti_ddp_chunk *c = &b->chunks[task->chunk];
    char *data = b->gradient + c->first * tutti_type_size(b->type);
    enum tutti_op op = ddp->options.divisor == TUTTI_DDP_MEAN ? TUTTI_AVG : TUTTI_SUM;
    enum tutti_result result = tutti_all_reduce(data, data, c->count, b->type, op, lane->comm);
    if (result != TUTTI_OK) {
        char text[256];
        tti_ddp_bucket_text(ddp, task->bucket, text, sizeof text);
        return TTI_CONTEXT(result, "while reducing %s", text);
    }
    return TUTTI_OK;
}

static void *lane_main(void *argument)
{
    struct tti_ddp_lane *lane = argument;
    struct tutti_ddp *ddp = lane->ddp;
    tti_log_rank(ddp->rank);
    pthread_mutex_lock(&ddp->lock);
    while (!ddp->stop) {
        bool idle = lane->next == lane->count || ddp->error.code != TUTTI_OK ||
                    !lane_may(ddp, &lane->tasks[lane->next]);
        if (idle) {
            pthread_cond_wait(&ddp->changed, &ddp->lock);
            continue;
        }
        struct tti_ddp_task task = lane->tasks[lane->next];
        pthread_mutex_unlock(&ddp->lock);
        enum tutti_result result = lane_do(lane, &task);
        pthread_mutex_lock(&ddp->lock);
        if (result != TUTTI_OK && ddp->error.code == TUTTI_OK)
            tti_error_save(&ddp->error, result);
        lane->next++;
        ddp->buckets[task.bucket].unfinished--;
        pthread_cond_broadcast(&ddp->changed);
    }
    pthread_mutex_unlock(&ddp->lock);
    return NULL;
}

enum tutti_result tti_ddp_lanes_start(struct tutti_ddp *ddp, tutti_comm *comm)
{
    for (int i = 0; i < ddp->options.in_flight; i++) {
        struct tti_ddp_lane *lane = &ddp->lanes[i];
        lane->ddp = ddp;
        ddp->lane_count = i + 1;
        TTI_TRY(tutti_comm_split(comm, 0, ddp->rank, &lane->comm));
        if (pthread_create(&lane->thread, NULL, lane_main, lane) != 0)
            return TTI_FAIL(TUTTI_ERR_SYSTEM, "tutti_ddp_create: no thread could be started");
        lane->started = true;
    }
    return TUTTI_OK;
}

/* Under the lock. */
static bool lanes_busy(const struct tutti_ddp *ddp)
{
    for (size_t b = 0; b < ddp->bucket_count; b++)
        if (ddp->buckets[b].unfinished > 0)
            return true;
    return false;
}

void tti_ddp_lanes_stop(struct tutti_ddp *ddp)
{
    pthread_mutex_lock(&ddp->lock);
    ddp->stop = true;
    bool busy = lanes_busy(ddp);
    pthread_cond_broadcast(&ddp->changed);
    pthread_mutex_unlock(&ddp->lock);
    for (int i = 0; i < ddp->lane_count; i++) {
        struct tti_ddp_lane *lane = &ddp->lanes[i];
        if (busy && lane->comm)
            tutti_comm_abort(lane->comm, "tutti_ddp_destroy in the middle of a step");
        if (lane->started)
            pthread_join(lane->thread, NULL);
        tutti_comm_destroy(lane->comm);
        free(lane->tasks);
    }
}

/* Under the lock. */
static enum tutti_result lane_add(struct tti_ddp_lane *lane, struct tti_ddp_task task)
{
    if (lane->next == lane->count)
        lane->next = lane->count = 0;
    TTI_TRY(tti_grow((void **)&lane->tasks, &lane->capacity, lane->count + 1, sizeof task));
    lane->tasks[lane->count++] = task;
    lane->ddp->buckets[task.bucket].unfinished++;
    return TUTTI_OK;
}

enum tutti_result tti_ddp_lanes_give(struct tutti_ddp *ddp)
{
    enum tutti_result result = TUTTI_OK;
    pthread_mutex_lock(&ddp->lock);
    for (size_t k = 0; k < ddp->schedule_count && result == TUTTI_OK; k++) {
        struct tti_ddp_range range = ddp->schedule[k];
        struct tti_ddp_task task = {TTI_DDP_ALL_REDUCE, range.bucket, range.chunk};
        result = lane_add(&ddp->lanes[k % (size_t)ddp->lane_count], task);
    }
    pthread_cond_broadcast(&ddp->changed);
    pthread_mutex_unlock(&ddp->lock);
    return result;
}

enum tutti_result tti_ddp_lanes_wait(struct tutti_ddp *ddp)
{
    pthread_mutex_lock(&ddp->lock);
    while (ddp->error.code == TUTTI_OK && lanes_busy(ddp))
        pthread_cond_wait(&ddp->changed, &ddp->lock);
    struct tti_error error = ddp->error;
    pthread_mutex_unlock(&ddp->lock);
    return error.code == TUTTI_OK ? TUTTI_OK : tti_error_restore(&error);
}
