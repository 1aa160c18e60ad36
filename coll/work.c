/* The queue of operations and its progress thread (coll/work.h). */
#include "coll/work.h"

#include "base/memory.h"
#include "coll/comm.h"
#include "coll/executor.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/progress.h"

#include <stdlib.h>
#include <string.h>

enum tutti_result tti_work_queue_create(struct tti_work_queue *queue)
{
    memset(queue, 0, sizeof *queue);
    pthread_mutex_init(&queue->lock, NULL);
    tti_cond_init(&queue->changed);
    tti_turn_begin(&queue->turn);
    queue->cpu = -1;
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

/* ---- turns: only who has it runs operations ---- */

/* Under the lock. */
static void turn_want(struct tti_work_queue *queue)
{
    atomic_fetch_or_explicit(&queue->turn.word, TTI_TURN_WANTED, memory_order_relaxed);
}

/* Under the lock; false: somebody has it, and will wake the waiters. */
static bool turn_take(struct tti_work_queue *queue)
{
    struct tti_turn *turn = &queue->turn;
    turn_want(queue);
    if (!tti_turn_disown(turn) ||
        atomic_fetch_or_explicit(&turn->word, TTI_TURN_TAKEN, memory_order_acquire) &
            TTI_TURN_TAKEN)
        return false;
    turn->alone = 0;
    return true;
}

/* Under the lock. */
static void turn_end(struct tti_work_queue *queue)
{
    unsigned gone = TTI_TURN_TAKEN;
    if (!queue->head && queue->wanting == 0)
        gone |= TTI_TURN_WANTED;
    atomic_fetch_and_explicit(&queue->turn.word, ~gone, memory_order_release);
    queue_wake(queue);
}

/* Under the lock, which is released while waiting. */
static void turn_await(struct tti_work_queue *queue)
{
    queue->wanting++;
    while (!turn_take(queue))
        queue_wait(queue);
    queue->wanting--;
}

void tti_turn_end_wanted(struct tti_work_queue *queue)
{
    pthread_mutex_lock(&queue->lock);
    turn_end(queue);
    pthread_mutex_unlock(&queue->lock);
}

void tti_turn_hand_over(struct tti_work_queue *queue)
{
    struct tti_turn *turn = &queue->turn;
    pthread_mutex_lock(&queue->lock);
    atomic_store_explicit(&turn->inside, TTI_TURN_OUT, memory_order_release);
    if (atomic_load_explicit(&turn->word, memory_order_relaxed) & TTI_TURN_OWNED) {
        (void)tti_turn_disown(turn);
        turn_end(queue); /* nobody else has it: that would have been after OWNED */
    }
    pthread_mutex_unlock(&queue->lock);
}

/* ---- work ---- */

void tti_work_keep(struct tti_work *work)
{
    struct tti_work_queue *queue = &work->comm->queue;
    pthread_mutex_lock(&queue->lock);
    work->references++;
    pthread_mutex_unlock(&queue->lock);
}

/* Out of the list of what streams have not given yet: they mostly give the oldest. */
static void work_arrived(struct tti_work *work)
{
    struct tti_work_queue *queue = &work->comm->queue;
    if (!work->awaited)
        return;
    work->awaited = false;
    struct tti_work *before = NULL;
    for (struct tti_work *at = queue->awaited; at != work; at = at->next)
        before = at;
    *(before ? &before->next : &queue->awaited) = work->next;
    if (queue->awaited_tail == work)
        queue->awaited_tail = before;
}

static void work_free(struct tti_work *work)
{
    free((void *)(uintptr_t)work->ops[0].blocks);
    if (work->ops != &work->single)
        free(work->ops);
    free(work);
}

/* Under the lock. */
static void work_unreference(struct tti_work *work)
{
    if (--work->references > 0)
        return;
    work_arrived(work);
    work_free(work);
}

void tti_work_release(struct tti_work *work)
{
    struct tti_work_queue *queue = &work->comm->queue;
    pthread_mutex_lock(&queue->lock);
    work_unreference(work);
    pthread_mutex_unlock(&queue->lock);
}

/* Under the lock: one more or less, for those who look. */
static void queue_count(struct tti_work_queue *queue, struct tutti_comm *comm, int more)
{
    queue->length += (uint32_t)more;
    if (comm->recorder.page)
        atomic_store_explicit(&comm->recorder.page->queued, queue->length, memory_order_relaxed);
}

/* Take the head of the queue and run it, in a turn that is taken and ends here. The lock is held on
 * entry and exit, not in between. */
static void queue_run_head(struct tti_work_queue *queue)
{
    struct tti_work *work = queue->head;
    queue->head = work->next;
    if (!queue->head)
        queue->tail = NULL;
    queue_count(queue, work->comm, -1);
    work->comm->recorder.ring[0].since = work->since;
    pthread_mutex_unlock(&queue->lock);
    enum tutti_result result = tti_run_work(work->comm, work->ops, work->count);
    work->comm->recorder.ring[0].since = 0;
    pthread_mutex_lock(&queue->lock);
    if (result != TUTTI_OK)
        tti_error_save(&work->error, result);
    work->done = true;
    uint32_t *signal = work->signal;
    work_unreference(work);
    turn_end(queue);
    if (signal)
        __atomic_store_n(signal, 1, __ATOMIC_RELEASE); /* the device's: no _Atomic */
}

/* Wait for something to run, and look after the device now and then: what a stream was to give
 * comes no more if that has failed, and the others wait for it. (Others may wake this thread more
 * often than it looks.) Under the lock, which is released meanwhile. */
static void queue_watch(struct tti_work_queue *queue)
{
    enum { LOOK_MS = 50 };
    queue->waiters++;
    (void)tti_cond_wait(&queue->changed, &queue->lock, queue->look_at);
    queue->waiters--;
    struct tutti_comm *comm = queue->device_of;
    if (!tti_deadline_passed(queue->look_at) || !comm || queue->stop)
        return;
    queue->look_at = tti_deadline_in(LOOK_MS / 1e3);
    queue->looks = true;
    pthread_mutex_unlock(&queue->lock);
    tti_gpu_look_device(comm);
    pthread_mutex_lock(&queue->lock);
    queue->looks = false;
    queue_wake(queue);
}

static void *queue_thread(void *argument)
{
    struct tti_work_queue *queue = argument;
    pthread_mutex_lock(&queue->lock);
    while (!queue->stop) {
        if (queue->head && turn_take(queue))
            queue_run_head(queue);
        else if (queue->device_of)
            queue_watch(queue);
        else
            queue_wait(queue);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

/* Under the lock, which is released while waiting: take the turn, and wait until an owner that it
 * was taken from as it left has left. That is a few instructions, or as long as it is not run. */
static void queue_take(struct tti_work_queue *queue)
{
    turn_await(queue);
    while (atomic_load_explicit(&queue->turn.inside, memory_order_acquire) != TTI_TURN_OUT) {
        pthread_mutex_unlock(&queue->lock);
        tti_nap(0);
        pthread_mutex_lock(&queue->lock);
    }
}

void tti_work_queue_end(struct tti_work_queue *queue)
{
    if (!queue->usable)
        return;
    pthread_mutex_lock(&queue->lock);
    /* Nothing can be queued between the last look and `stop`: the lock is kept from there on. */
    for (queue_take(queue); queue->head; queue_take(queue))
        queue_run_head(queue);
    turn_end(queue);
    queue->stop = true;
    queue_wake(queue);
    pthread_mutex_unlock(&queue->lock);
    if (queue->started)
        pthread_join(queue->thread, NULL);
    queue->started = false;
}

void tti_work_queue_destroy(struct tti_work_queue *queue)
{
    if (!queue->usable)
        return;
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->lock);
    queue->usable = false;
}

static enum tutti_result queue_start_thread(struct tti_work_queue *queue)
{
    if (queue->started)
        return TUTTI_OK;
    int error = tti_progress_thread(&queue->thread, queue->cpu, queue_thread, queue);
    if (error != 0)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "cannot start the progress thread: %s (see ulimit -u)",
                        strerror(error));
    (void)pthread_setname_np(queue->thread, "tutti-progress"); /* for ps -T and top -H */
    queue->started = true;
    return TUTTI_OK;
}

static void queue_append(struct tti_work_queue *queue, struct tti_work *work)
{
    work->since = queue->head ? tti_now_ns() : 0;
    queue_count(queue, work->comm, 1);
    if (queue->tail)
        queue->tail->next = work;
    else
        queue->head = work;
    queue->tail = work;
}

/* With one reference. */
static struct tti_work *work_new(struct tutti_comm *comm, const struct tti_operation *ops,
                                 size_t count)
{
    struct tti_work *made = tti_calloc(1, sizeof *made);
    if (!made)
        return NULL;
    made->ops = count == 1 ? &made->single : tti_calloc(count, sizeof *made->ops);
    if (!made->ops) {
        free(made);
        return NULL;
    }
    memcpy(made->ops, ops, count * sizeof *ops);
    /* An operation on uneven blocks is the only one of its work. */
    if (tti_blocks_copy(ops[0].blocks, &made->ops[0].blocks) != TUTTI_OK) {
        work_free(made);
        return NULL;
    }
    made->comm = comm;
    made->count = count;
    made->references = 1;
    return made;
}

enum tutti_result tti_work_make(struct tutti_comm *comm, const struct tti_operation *ops,
                                size_t count, uint32_t *signal, bool kept, struct tti_work **work)
{
    struct tti_work_queue *queue = &comm->queue;
    struct tti_work *made = work_new(comm, ops, count);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->signal = signal;
    made->kept = kept;
    made->awaited = !kept;
    if (made->awaited) {
        pthread_mutex_lock(&queue->lock);
        if (queue->awaited_tail)
            queue->awaited_tail->next = made;
        else
            queue->awaited = made;
        queue->awaited_tail = made;
        pthread_mutex_unlock(&queue->lock);
    }
    *work = made;
    return TUTTI_OK;
}

void tti_work_forget(struct tutti_comm *comm)
{
    pthread_mutex_lock(&comm->queue.lock);
    while (comm->queue.awaited)
        work_unreference(comm->queue.awaited);
    pthread_mutex_unlock(&comm->queue.lock);
}

void tti_work_give(struct tti_work *work)
{
    struct tti_work_queue *queue = &work->comm->queue;
    pthread_mutex_lock(&queue->lock);
    work_arrived(work);
    if (queue->stop) {
        uint32_t *signal = work->signal;
        if (!work->kept)
            work_unreference(work);
        pthread_mutex_unlock(&queue->lock);
        if (signal)
            __atomic_store_n(signal, 1, __ATOMIC_RELEASE);
        return;
    }
    work->references += work->kept;
    work->next = NULL;
    work->done = false;
    work->error.code = TUTTI_OK;
    queue_append(queue, work);
    turn_want(queue);
    queue_wake(queue);
    pthread_mutex_unlock(&queue->lock);
}

enum tutti_result tti_work_begin_device(struct tutti_comm *comm)
{
    struct tti_work_queue *queue = &comm->queue;
    pthread_mutex_lock(&queue->lock);
    enum tutti_result result = queue_start_thread(queue);
    if (result == TUTTI_OK) {
        queue->device_of = comm;
        queue_wake(queue);
    }
    pthread_mutex_unlock(&queue->lock);
    return result;
}

void tti_work_end_device(struct tutti_comm *comm)
{
    struct tti_work_queue *queue = &comm->queue;
    pthread_mutex_lock(&queue->lock);
    queue->device_of = NULL;
    while (queue->looks)
        queue_wait(queue);
    pthread_mutex_unlock(&queue->lock);
}

enum tutti_result tti_work_check(const struct tutti_comm *comm, const struct tti_operation *ops,
                                 size_t count)
{
    if (ops[0].collective != TUTTI_SEND_RECV || ops[0].alone != TTI_NOT_ALONE)
        return TUTTI_OK;
    return tti_exchange_self(comm, ops, count, NULL, NULL);
}

enum tutti_result tti_work_post(struct tutti_comm *comm, const struct tti_operation *ops,
                                size_t count, bool thread, struct tti_work **work)
{
    struct tti_work_queue *queue = &comm->queue;
    struct tti_work *made = work_new(comm, ops, count);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->references = 2; /* the queue's and the caller's */
    pthread_mutex_lock(&queue->lock);
    enum tutti_result result = thread ? queue_start_thread(queue) : TUTTI_OK;
    if (result == TUTTI_OK) {
        queue_append(queue, made);
        turn_want(queue);
        queue_wake(queue);
    }
    pthread_mutex_unlock(&queue->lock);
    if (result != TUTTI_OK) {
        work_free(made);
        return result;
    }
    *work = made;
    return TUTTI_OK;
}

enum tutti_result tti_work_wait(struct tti_work *work)
{
    struct tti_work_queue *queue = &work->comm->queue;
    if (work->comm->forked) /* whoever was to run it is in the parent */
        return tti_comm_check(work->comm);
    pthread_mutex_lock(&queue->lock);
    while (!work->done) {
        if (queue->head && turn_take(queue))
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
    if (work->comm->forked)
        return tti_comm_check(work->comm);
    pthread_mutex_lock(&queue->lock);
    enum tutti_result result = TUTTI_IN_PROGRESS;
    if (work->done)
        result = work->error.code == TUTTI_OK ? TUTTI_OK : tti_error_restore(&work->error);
    pthread_mutex_unlock(&queue->lock);
    return result;
}

enum tutti_result tti_work_run(struct tutti_comm *comm, const struct tti_operation *ops,
                               size_t count)
{
    struct tti_work_queue *queue = &comm->queue;
    if (tti_turn_take_alone(queue)) {
        /* Nothing before it: run it here, with nothing allocated. */
        enum tutti_result result = tti_run_work(comm, ops, count);
        tti_turn_end_alone(queue);
        return result;
    }
    struct tti_work *work = NULL;
    TTI_TRY(tti_work_post(comm, ops, count, false, &work));
    return tti_work_wait(work);
}

void tti_work_pause(struct tutti_comm *comm)
{
    struct tti_work_queue *queue = &comm->queue;
    if (tti_turn_take_alone(queue))
        return;
    pthread_mutex_lock(&queue->lock);
    turn_await(queue);
    pthread_mutex_unlock(&queue->lock);
}

bool tti_work_try_pause(struct tutti_comm *comm)
{
    struct tti_work_queue *queue = &comm->queue;
    if (tti_turn_take_alone(queue))
        return true;
    if (tti_turn_inside(&queue->turn) || !tti_turn_owned(&queue->turn))
        return false;
    /* It belongs to another thread, which has no use for it now. */
    pthread_mutex_lock(&queue->lock);
    const bool taken = tti_turn_owned(&queue->turn) && turn_take(queue);
    pthread_mutex_unlock(&queue->lock);
    return taken;
}

void tti_work_resume(struct tutti_comm *comm)
{
    tti_turn_end_alone(&comm->queue);
}
