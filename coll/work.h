/* Work of a communicator: operations in the order of the calls, run one after another by whoever is
 * at hand: the caller that waits, or the progress thread once something is asynchronous. */
#ifndef TTI_COLL_WORK_H
#define TTI_COLL_WORK_H

#include "coll/operation.h"
#include "coll/turn.h"

#include <pthread.h>
#include <stdatomic.h>

struct tutti_comm;

/* One entry of the queue: a collective, or a batch of sends and receives. Shared by the queue and
 * the requests that wait for it. */
struct tti_work {
    struct tti_work *next;
    struct tutti_comm *comm;
    struct tti_operation *ops; /* count of them; a collective has one */
    size_t count;
    struct tti_operation single; /* where `ops` points for one */
    int references;
    bool done;
    uint64_t since;         /* when it was queued behind others; 0: nothing was before it */
    bool kept;              /* may be given again */
    bool awaited;           /* made, and not given yet: in the queue's list of these */
    uint32_t *signal;       /* NULL, or a word that becomes 1 when it is done */
    struct tti_error error; /* valid when done; code TUTTI_OK on success */
};

struct tti_work_queue {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* something queued, something done, or stopping */
    struct tti_work *head, *tail;
    uint32_t length; /* entries from head to tail */
    int waiters;     /* threads in a wait on `changed` ... */
    int wanting;     /* ... and of these, for their turn with nothing queued */
    struct tti_turn turn;
    bool started; /* the progress thread exists */
    bool stop;
    /* Made for streams and not given yet, oldest first. */
    struct tti_work *awaited, *awaited_tail;
    bool usable; /* created and not destroyed */
    pthread_t thread;
    int cpu; /* where that runs (progress.h); -1: anywhere */
    /* Whose device that thread looks after, next when, and whether it does right now (then without
     * the lock). */
    struct tutti_comm *device_of;
    uint64_t look_at;
    bool looks;
};

struct tutti_request {
    struct tti_work *work;     /* NULL: device memory, then */
    struct tti_gpu_mark *mark; /* ... a point on a stream (gpu/gpu_calls.h); NULL: it is over */
    struct tutti_comm *comm;   /* ... of this communicator */
};

enum tutti_result tti_work_queue_create(struct tti_work_queue *queue);
/* Finish what is queued, end the thread: what is given from now on is not run. Then release. */
void tti_work_queue_end(struct tti_work_queue *queue);
void tti_work_queue_destroy(struct tti_work_queue *queue);

/* Run one operation, or sends and receives at once, now, in the order of the queue, in the calling
 * thread if it can. */
enum tutti_result tti_work_run(struct tutti_comm *comm, const struct tti_operation *ops,
                               size_t count);

/* Between the two no operation of the communicator runs: for queries that use what operations use.
 * Waits for the operation in flight. */
void tti_work_pause(struct tutti_comm *comm);
void tti_work_resume(struct tutti_comm *comm);
/* The same if no operation runs and none waits; else false, and nothing to resume. */
bool tti_work_try_pause(struct tutti_comm *comm);

/* What is wrong with operations that is to be said before they are queued, since what fails while
 * it runs fails the communicator. USAGE, see tti_exchange_self. */
enum tutti_result tti_work_check(const struct tutti_comm *comm, const struct tti_operation *ops,
                                 size_t count);

/* Queue work (a copy of the operations) and return it with one reference for the caller. `thread`:
 * make sure that the progress thread runs it; otherwise somebody must call tti_work_wait. */
enum tutti_result tti_work_post(struct tutti_comm *comm, const struct tti_operation *ops,
                                size_t count, bool thread, struct tti_work **work);
/* Wait until done (running what is queued meanwhile), drop the reference, return the result. */
enum tutti_result tti_work_wait(struct tti_work *work);
enum tutti_result tti_work_test(struct tti_work *work);
void tti_work_keep(struct tti_work *work);
void tti_work_release(struct tti_work *work);

/* Work that is queued later, by tti_work_give, as often as wanted (one after another) if `kept`,
 * else once. When done the word `signal` becomes 1, after all that was stored before. Needs the
 * progress thread. A kept one is released in the end. Once the queue has ended only the word is
 * written, so that the stream goes on. */
enum tutti_result tti_work_make(struct tutti_comm *comm, const struct tti_operation *ops,
                                size_t count, uint32_t *signal, bool kept, struct tti_work **work);
void tti_work_give(struct tti_work *work);
/* What was made to be given once, and has not been, will not be: its stream's device has failed. */
void tti_work_forget(struct tutti_comm *comm);
/* The communicator has a device from now on: the progress thread exists, and while it has nothing
 * to run it asks now and then whether the device works still (tti_gpu_look_device). Until the
 * other, which waits for a question that is being asked. */
enum tutti_result tti_work_begin_device(struct tutti_comm *comm);
void tti_work_end_device(struct tutti_comm *comm);

/* Run one operation or batch: selection, plan, links, executor (operation by operation: run.c). */
enum tutti_result tti_run_work(struct tutti_comm *comm, const struct tti_operation *ops,
                               size_t count);
/* In the turn of the queue: run a blocking call on host memory whose arguments nobody has looked
 * at, if it came before on the fused path with the same buffers (fused.h). False: it did nothing.
 */
bool tti_run_again(struct tutti_comm *comm, const struct tti_operation *o,
                   enum tutti_result *result);
/* What run.c makes of a failure on the way: the text names the operation, and the communicator has
 * failed. */
enum tutti_result tti_run_failed(struct tutti_comm *comm, enum tutti_result result,
                                 const struct tti_label *label);

/* ---- turns of those who find nobody else, which is most (turn.h) ---- */

void tti_turn_end_wanted(struct tti_work_queue *queue);
/* The owner of the turn has seen that somebody wants it: it is OUT from here on, and says so under
 * the lock. */
void tti_turn_hand_over(struct tti_work_queue *queue);

/* False: somebody has the turn or wants it. */
static inline bool tti_turn_take_alone(struct tti_work_queue *queue)
{
    struct tti_turn *turn = &queue->turn;
    unsigned nobody = 0;
    if (tti_turn_of_owner(turn) && tti_turn_owned(turn)) {
        if (tti_turn_inside(turn))
            return false;
        if (__builtin_expect(tti_turn_say(turn, TTI_TURN_IN), 1))
            return true;
        tti_turn_hand_over(queue);
        return false;
    }
    return atomic_compare_exchange_strong_explicit(&turn->word, &nobody, TTI_TURN_TAKEN,
                                                   memory_order_acquire, memory_order_relaxed);
}

static inline void tti_turn_end_alone(struct tti_work_queue *queue)
{
    struct tti_turn *turn = &queue->turn;
    unsigned only = TTI_TURN_TAKEN;
    if (tti_turn_of_owner(turn) && tti_turn_inside(turn)) {
        if (__builtin_expect(tti_turn_say(turn, TTI_TURN_LEAVING), 1))
            atomic_store_explicit(&turn->inside, TTI_TURN_OUT, memory_order_release);
        else
            tti_turn_hand_over(queue);
    } else if (!atomic_compare_exchange_strong_explicit(&turn->word, &only, tti_turn_next(turn),
                                                        memory_order_release,
                                                        memory_order_relaxed)) {
        tti_turn_end_wanted(queue);
    }
}

#endif
