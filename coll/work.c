/* The queue of operations and its progress thread (coll/work.h). */
#include "coll/work.h"

#include "base/memory.h"
#include "coll/comm.h"

#include <stdlib.h>
#include <string.h>

enum tutti_result tti_work_queue_create(struct tti_work_queue *queue)
{
    memset(queue, 0, sizeof *queue);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->changed, NULL);
    queue->usable = true;
    return TUTTI_OK;
}

static void queue_wake(struct tti_work_queue *queue)
{
    if (queue->waiters > 0)
        pthread_cond_broadcast(&queue->changed);
}

static void queue_wait(struct tti_work_queue *queue)
{
    queue->waiters++;
    pthread_cond_wait(&queue->changed, &queue->lock);
    queue->waiters--;
}

void tti_work_keep(struct tti_work *work)
{
    struct tti_work_queue *queue = &work->comm->queue;
    pthread_mutex_lock(&queue->lock);
    work->references++;
    pthread_mutex_unlock(&queue->lock);
}

static void work_unreference(struct tti_work *work)
{
    if (--work->references > 0)
        return;
    if (work->ops != &work->single)
        free(work->ops);
    free(work);
}

void tti_work_release(struct tti_work *work)
{
    struct tti_work_queue *queue = &work->comm->queue;
    pthread_mutex_lock(&queue->lock);
    work_unreference(work);
    pthread_mutex_unlock(&queue->lock);
}

/* Take the head of the queue and run it. The lock is held on entry and exit, not in between. */
static void queue_run_head(struct tti_work_queue *queue)
{
    struct tti_work *work = queue->head;
    queue->head = work->next;
    if (!queue->head)
        queue->tail = NULL;
    queue->busy = true;
    pthread_mutex_unlock(&queue->lock);
    enum tutti_result result = tti_run_work(work->comm, work->ops, work->count);
    pthread_mutex_lock(&queue->lock);
    queue->busy = false;
    if (result != TUTTI_OK)
        tti_error_save(&work->error, result);
    work->done = true;
    work_unreference(work);
    queue_wake(queue);
}

static void *queue_thread(void *argument)
{
    struct tti_work_queue *queue = argument;
    pthread_mutex_lock(&queue->lock);
    while (!queue->stop) {
        if (queue->head && !queue->busy)
            queue_run_head(queue);
        else
            queue_wait(queue);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

void tti_work_queue_destroy(struct tti_work_queue *queue)
{
    if (!queue->usable)
        return;
    pthread_mutex_lock(&queue->lock);
    while (queue->head || queue->busy) {
        if (queue->busy)
            queue_wait(queue);
        else
            queue_run_head(queue);
    }
    queue->stop = true;
    queue_wake(queue);
    pthread_mutex_unlock(&queue->lock);
    if (queue->started)
        pthread_join(queue->thread, NULL);
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->lock);
    queue->usable = false;
}

static enum tutti_result queue_start_thread(struct tti_work_queue *queue)
{
    if (queue->started)
        return TUTTI_OK;
    int error = pthread_create(&queue->thread, NULL, queue_thread, queue);
    if (error != 0)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "cannot start the progress thread: %s (see ulimit -u)",
                        strerror(error));
    queue->started = true;
    return TUTTI_OK;
}

static void queue_append(struct tti_work_queue *queue, struct tti_work *work)
{
    if (queue->tail)
        queue->tail->next = work;
    else
        queue->head = work;
    queue->tail = work;
}

enum tutti_result tti_work_post(struct tutti_comm *comm, const struct tti_operation *ops,
                                size_t count, bool thread, struct tti_work **work)
{
    struct tti_work_queue *queue = &comm->queue;
    struct tti_work *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->ops = count == 1 ? &made->single : tti_calloc(count, sizeof *made->ops);
    if (!made->ops) {
        free(made);
        return TUTTI_ERR_MEMORY;
    }
    memcpy(made->ops, ops, count * sizeof *ops);
    made->comm = comm;
    made->count = count;
    made->references = 2; /* the queue's and the caller's */
    pthread_mutex_lock(&queue->lock);
    enum tutti_result result = thread ? queue_start_thread(queue) : TUTTI_OK;
    if (result == TUTTI_OK) {
        queue_append(queue, made);
        queue_wake(queue);
    }
    pthread_mutex_unlock(&queue->lock);
    if (result != TUTTI_OK) {
        if (made->ops != &made->single)
            free(made->ops);
        free(made);
        return result;
    }
    *work = made;
    return TUTTI_OK;
}

enum tutti_result tti_work_wait(struct tti_work *work)
{
    struct tti_work_queue *queue = &work->comm->queue;
    pthread_mutex_lock(&queue->lock);
    while (!work->done) {
        if (queue->head && !queue->busy)
            queue_run_head(queue);
        else
            queue_wait(queue);
    }
    enum tutti_result result =
        work->error.code == TUTTI_OK ? TUTTI_OK : tti_error_restore(&work->error);
    work_unreference(work);
    pthread_mutex_unlock(&queue->lock);
    return result;
}

enum tutti_result tti_work_test(struct tti_work *work)
{
    struct tti_work_queue *queue = &work->comm->queue;
    pthread_mutex_lock(&queue->lock);
    enum tutti_result result = TUTTI_IN_PROGRESS;
    if (work->done)
        result = work->error.code == TUTTI_OK ? TUTTI_OK : tti_error_restore(&work->error);
    pthread_mutex_unlock(&queue->lock);
    return result;
}

enum tutti_result tti_work_run(struct tutti_comm *comm, const struct tti_operation *op)
{
    struct tti_work_queue *queue = &comm->queue;
    pthread_mutex_lock(&queue->lock);
    if (!queue->head && !queue->busy) {
        /* Nothing before it: run it here, with nothing allocated. */
        queue->busy = true;
        pthread_mutex_unlock(&queue->lock);
        enum tutti_result result = tti_run_work(comm, op, 1);
        pthread_mutex_lock(&queue->lock);
        queue->busy = false;
        queue_wake(queue);
        pthread_mutex_unlock(&queue->lock);
        return result;
    }
    pthread_mutex_unlock(&queue->lock);
    struct tti_work *work = NULL;
    TTI_TRY(tti_work_post(comm, op, 1, false, &work));
    return tti_work_wait(work);
}

void tti_work_pause(struct tutti_comm *comm)
{
    struct tti_work_queue *queue = &comm->queue;
    pthread_mutex_lock(&queue->lock);
    while (queue->busy)
        queue_wait(queue);
    queue->busy = true;
    pthread_mutex_unlock(&queue->lock);
}

void tti_work_resume(struct tutti_comm *comm)
{
    struct tti_work_queue *queue = &comm->queue;
    pthread_mutex_lock(&queue->lock);
    queue->busy = false;
    queue_wake(queue);
    pthread_mutex_unlock(&queue->lock);
}
