/* Who is inside a communicator, what state it is in, and its end (nccl_comm.h).
 *
 * Rank 0's communicator serves the others of its communicator as the place where they say goodbye.
 * A program that ends the ranks of several devices one after the other, in one thread, may begin
 * with rank 0: it is kept then until the last of this process has ended. */
#include "nccl/nccl_comm.h"

#include "base/clock.h"
#include "device/reclaim.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

enum { PATIENCE_S = 10 }; /* for threads that are inside when the communicator ends */

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct ncclComm *all_living;
static struct ncclComm *all_kept; /* of rank 0, ended by the program */

/* ---- forks ---- */

static _Atomic unsigned forks;

static void forks_child(void)
{
    forks++;
}

void tti_nccl_forks_begin(void)
{
    (void)pthread_atfork(NULL, NULL, forks_child);
}

unsigned tti_nccl_process(void)
{
    return forks;
}

/* One that this process has from its parent: there is nothing to end here. */
static bool comm_inherited(const struct ncclComm *comm)
{
    return comm->magic == TTI_NCCL_COMM_MAGIC && comm->process != forks;
}

/* ---- entering ---- */

ncclResult_t tti_nccl_comm_check(const struct ncclComm *comm, const char *what)
{
    if (!comm)
        return tti_nccl_fail(ncclInvalidArgument, "%s: comm is NULL", what);
    if (comm->magic != TTI_NCCL_COMM_MAGIC)
        return tti_nccl_fail(ncclInvalidArgument, "%s: comm is no communicator, or was destroyed",
                             what);
    if (comm_inherited(comm))
        return tti_nccl_fail(ncclInvalidUsage,
                             "%s: the communicator belongs to the process that this one (%d) was "
                             "forked from; a child makes its own",
                             what, (int)getpid());
    return ncclSuccess;
}

/* Under the lock. */
static const char *enter_refusal(const struct ncclComm *comm)
{
    if (comm->ending || comm->finalized)
        return "the communicator was finalized, destroyed or aborted";
    if (comm->jobs > 0)
        return "the communicator is not ready: ncclCommGetAsyncError says ncclInProgress";
    if (!comm->tutti)
        return "the communicator could not be made";
    return NULL;
}

/* What is entered for: the communicator works, or may be suspended, or has only to be there. */
enum enter_for { ENTER_WORK, ENTER_SUSPENDED, ENTER_LISTS };

static ncclResult_t enter(struct ncclComm *comm, const char *what, enum enter_for why)
{
    ncclResult_t result = tti_nccl_comm_check(comm, what);
    if (result != ncclSuccess)
        return result;
    pthread_mutex_lock(&comm->lock);
    const bool there = why == ENTER_LISTS && comm->tutti && !comm->ending;
    const char *refusal = there ? NULL : enter_refusal(comm);
    if (!refusal && why == ENTER_WORK && comm->suspended)
        refusal = "the communicator is suspended; ncclCommResume makes it work again";
    if (!refusal)
        comm->inside++;
    pthread_mutex_unlock(&comm->lock);
    return refusal ? tti_nccl_fail(ncclInvalidUsage, "%s: %s", what, refusal) : ncclSuccess;
}

ncclResult_t tti_nccl_enter(struct ncclComm *comm, const char *what)
{
    return enter(comm, what, ENTER_WORK);
}

ncclResult_t tti_nccl_enter_suspended(struct ncclComm *comm, const char *what)
{
    return enter(comm, what, ENTER_SUSPENDED);
}

ncclResult_t tti_nccl_enter_lists(struct ncclComm *comm, const char *what)
{
    return enter(comm, what, ENTER_LISTS);
}

void tti_nccl_leave(struct ncclComm *comm)
{
    pthread_mutex_lock(&comm->lock);
    comm->inside--;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
}

ncclResult_t tti_nccl_pending_collect(struct ncclComm *comm, bool wait)
{
    for (;;) {
        pthread_mutex_lock(&comm->lock);
        struct tti_nccl_pending *first = comm->pending;
        const bool over = first && (wait || tutti_test(first->request) != TUTTI_IN_PROGRESS);
        if (over)
            comm->pending = first->next;
        pthread_mutex_unlock(&comm->lock);
        if (!first)
            return ncclSuccess;
        if (!over)
            return ncclInProgress;
        ncclResult_t result = tti_nccl_result(tutti_wait(first->request));
        free(first);
        if (result != ncclSuccess)
            (void)tti_nccl_comm_failed(comm, result);
    }
}

/* ---- the end ---- */

void tti_nccl_comm_enlist(struct ncclComm *comm)
{
    pthread_mutex_lock(&all_lock);
    comm->next = all_living;
    all_living = comm;
    pthread_mutex_unlock(&all_lock);
}

static struct ncclComm *list_other(struct ncclComm *list, const struct ncclComm *comm)
{
    for (; list; list = list->next)
        if (list != comm && tti_comm_number(list->tutti) == tti_comm_number(comm->tutti))
            return list;
    return NULL;
}

static void list_remove(struct ncclComm **list, const struct ncclComm *comm)
{
    while (*list && *list != comm)
        list = &(*list)->next;
    if (*list)
        *list = comm->next;
}

static void comm_free(struct ncclComm *comm)
{
    tutti_comm_destroy(comm->tutti);
    tti_nccl_buffers_free(comm);
    if (comm->stream)
        comm->gpu_ops->stream_destroy(comm->gpu, comm->stream);
    if (comm->gpu) {
        tti_gpu_retire_device(comm->gpu);
        tti_gpu_reclaim(comm->gpu_ops);
    }
    pthread_cond_destroy(&comm->changed);
    pthread_mutex_destroy(&comm->lock);
    comm->magic = 0;
    free(comm);
}

void tti_nccl_comm_release(struct ncclComm *comm)
{
    struct ncclComm *kept = NULL;
    bool keep = false;
    if (comm->tutti) {
        pthread_mutex_lock(&all_lock);
        list_remove(&all_living, comm);
        const bool last = !list_other(all_living, comm);
        keep = comm->rank == 0 && !last;
        if (keep) {
            comm->next = all_kept;
            all_kept = comm;
        } else if (last && (kept = list_other(all_kept, comm))) {
            list_remove(&all_kept, kept);
        }
        pthread_mutex_unlock(&all_lock);
    }
    if (!keep)
        comm_free(comm);
    if (kept)
        comm_free(kept);
}

/* Until nobody is inside; false when that took too long. */
static bool end_wait(struct ncclComm *comm)
{
    uint64_t deadline = tti_deadline_in(PATIENCE_S);
    int failed = 0;
    pthread_mutex_lock(&comm->lock);
    while (comm->inside > 0 && failed != ETIMEDOUT)
        failed = tti_cond_wait(&comm->changed, &comm->lock, deadline);
    const bool empty = comm->inside == 0;
    pthread_mutex_unlock(&comm->lock);
    return empty;
}

/* Under the lock; what was there to abort is entered. */
static struct ncclComm *child_give_up(struct ncclComm *comm)
{
    for (struct tti_nccl_job *job = comm->children; job; job = job->sibling) {
        struct ncclComm *child = job->comm;
        if (job->told)
            continue;
        pthread_mutex_lock(&child->lock);
        child->given_up = true;
        job->told = child->tutti != NULL; /* else whoever makes it sees that it is given up */
        child->inside += job->told;
        pthread_mutex_unlock(&child->lock);
        if (job->told)
            return child;
    }
    return NULL;
}

/* Of what is made of it, too, nobody waits for others any more. The communicator is entered. */
static void children_give_up(struct ncclComm *comm, const char *what)
{
    struct ncclComm *child = NULL;
    do {
        pthread_mutex_lock(&comm->lock);
        child = child_give_up(comm);
        pthread_mutex_unlock(&comm->lock);
        if (child) {
            tutti_comm_abort(child->tutti, what);
            tti_nccl_leave(child);
        }
    } while (child);
}

/* Nobody enters from here on. `*left`: it is being made and was aborted, so nothing remains to be
 * done: who takes it from its job frees it. */
static ncclResult_t end_begin(struct ncclComm *comm, const char *what, bool abort, bool *left)
{
    ncclResult_t result = tti_nccl_comm_check(comm, what);
    if (result != ncclSuccess)
        return result;
    pthread_mutex_lock(&comm->lock);
    const bool already = comm->ending;
    *left = abort && comm->making && !already;
    comm->ending = true;
    comm->orphan |= *left;
    comm->given_up |= abort;
    const bool made = comm->tutti;
    const bool tells = *left ? made : abort; /* the others, or what is made of it */
    comm->inside += tells;
    pthread_mutex_unlock(&comm->lock);
    if (tells && *left)
        tutti_comm_abort(comm->tutti, what);
    else if (tells)
        children_give_up(comm, what);
    if (tells)
        tti_nccl_leave(comm);
    if (already)
        return tti_nccl_fail(ncclInvalidUsage, "%s: the communicator is being ended already", what);
    return ncclSuccess;
}

static ncclResult_t end_now(struct ncclComm *comm, const char *what)
{
    (void)tti_nccl_pending_collect(comm, true);
    if (!end_wait(comm)) {
        tutti_comm_abort(comm->tutti, "a thread was inside when it was destroyed");
        (void)tti_nccl_pending_collect(comm, true);
        if (!end_wait(comm)) /* freeing it under somebody's feet would be worse */
            return tti_nccl_fail(ncclInvalidUsage,
                                 "%s: a thread has not left the communicator, or a group with its "
                                 "operations is open; its memory is not freed",
                                 what);
    }
    tti_nccl_comm_release(comm);
    return ncclSuccess;
}

ncclResult_t pncclCommDestroy(ncclComm_t comm)
{
    bool left = false;
    if (!comm || comm_inherited(comm))
        return ncclSuccess;
    /* Nobody but this thread, at the group's end, would do what there would be to wait for. */
    ncclResult_t result = end_begin(comm, "ncclCommDestroy", tti_nccl_group_makes(comm), &left);
    if (result != ncclSuccess || left)
        return result;
    pthread_mutex_lock(&comm->lock);
    while (comm->jobs > 0) /* bounded: they have deadlines */
        pthread_cond_wait(&comm->changed, &comm->lock);
    pthread_mutex_unlock(&comm->lock);
    return end_now(comm, "ncclCommDestroy");
}
TTI_NCCL_ALSO(CommDestroy);

ncclResult_t pncclCommAbort(ncclComm_t comm)
{
    bool left = false;
    if (!comm || comm_inherited(comm))
        return ncclSuccess;
    ncclResult_t result = end_begin(comm, "ncclCommAbort", true, &left);
    if (result != ncclSuccess || left)
        return result;
    tutti_comm_abort(comm->tutti, "ncclCommAbort");
    /* Freeing may wait for work of another one that is aborted next. */
    return tti_nccl_group_ends(comm) ? ncclSuccess : end_now(comm, "ncclCommAbort");
}
TTI_NCCL_ALSO(CommAbort);

ncclResult_t tti_nccl_comm_end_aborted(struct ncclComm *comm)
{
    return end_now(comm, "ncclCommAbort");
}

/* ---- short of the end ---- */

static ncclResult_t finalize_run(struct tti_nccl_job *job)
{
    struct ncclComm *comm = job->comm;
    (void)tti_nccl_pending_collect(comm, true);
    const enum tutti_result settled = tti_comm_settle(comm->tutti);
    pthread_mutex_lock(&comm->lock);
    const bool revoked = comm->revoked;
    pthread_mutex_unlock(&comm->lock);
    return settled == TUTTI_OK || revoked || tti_comm_unharmed(comm->tutti)
               ? ncclSuccess
               : tti_nccl_result(settled);
}

ncclResult_t pncclCommFinalize(ncclComm_t comm)
{
    if (!comm)
        return ncclSuccess;
    ncclResult_t result = tti_nccl_enter(comm, "ncclCommFinalize");
    if (result != ncclSuccess)
        return result;
    struct tti_nccl_job *job = calloc(1, sizeof *job);
    pthread_mutex_lock(&comm->lock);
    comm->finalized = true;
    comm->jobs += job != NULL;
    pthread_mutex_unlock(&comm->lock);
    if (!job) {
        tti_nccl_leave(comm);
        return tti_nccl_fail(ncclSystemError, "ncclCommFinalize: no memory");
    }
    *job = (struct tti_nccl_job){.run = finalize_run, .comm = comm, .lives = true, .counted = true};
    if (!comm->blocking)
        return tti_nccl_job_start(job); /* leaves */
    tti_nccl_job_run(job);
    result = job->result;
    tti_nccl_job_free(job);
    return result;
}
TTI_NCCL_ALSO(CommFinalize);

/* What is under way keeps others out, not this: it is what shall end. `*made`: there is something
 * to abort, and the communicator is entered for that. */
static ncclResult_t revoke_begin(struct ncclComm *comm, bool *made)
{
    ncclResult_t result = tti_nccl_comm_check(comm, "ncclCommRevoke");
    if (result != ncclSuccess)
        return result;
    pthread_mutex_lock(&comm->lock);
    const char *refusal = enter_refusal(comm);
    if (!comm->ending && !comm->finalized && comm->jobs > 0)
        refusal = NULL;
    *made = !refusal && comm->tutti;
    comm->inside += *made;
    comm->given_up |= !refusal && comm->making;
    pthread_mutex_unlock(&comm->lock);
    return refusal ? tti_nccl_fail(ncclInvalidUsage, "ncclCommRevoke: %s", refusal) : ncclSuccess;
}

ncclResult_t pncclCommRevoke(ncclComm_t comm, int revokeFlags)
{
    bool made = false;
    if (!comm)
        return ncclSuccess;
    if (revokeFlags != NCCL_REVOKE_DEFAULT)
        return tti_nccl_fail(ncclInvalidArgument,
                             "ncclCommRevoke: flags are 0x%x; expected NCCL_REVOKE_DEFAULT",
                             (unsigned)revokeFlags);
    ncclResult_t result = revoke_begin(comm, &made);
    if (result != ncclSuccess || !made)
        return result;
    children_give_up(comm, "ncclCommRevoke");
    tutti_comm_abort(comm->tutti, "ncclCommRevoke");
    (void)tti_nccl_pending_collect(comm, true);
    pthread_mutex_lock(&comm->lock);
    comm->revoked = !comm->given_up; /* else its making fails, which it tells */
    pthread_mutex_unlock(&comm->lock);
    tti_nccl_leave(comm);
    return ncclSuccess;
}
TTI_NCCL_ALSO(CommRevoke);

/* ---- questions ---- */

ncclResult_t pncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError)
{
    ncclResult_t result = tti_nccl_comm_check(comm, "ncclCommGetAsyncError");
    if (result != ncclSuccess)
        return result;
    if (!asyncError)
        return tti_nccl_fail(ncclInvalidArgument, "ncclCommGetAsyncError: asyncError is NULL");
    pthread_mutex_lock(&comm->lock);
    const bool busy = comm->jobs > 0;
    const bool asks = !busy && comm->tutti && !comm->revoked && comm->state == ncclSuccess;
    comm->inside += asks;
    pthread_mutex_unlock(&comm->lock);
    ncclResult_t now = busy ? ncclInProgress : ncclSuccess;
    if (asks) {
        now = tti_nccl_pending_collect(comm, false);
        const enum tutti_result own = tutti_comm_error(comm->tutti);
        if (own != TUTTI_OK && !tti_comm_spared(comm->tutti)) /* NCCL's is for one's own work */
            (void)tti_nccl_comm_failed(comm, tti_nccl_result(own));
        tti_nccl_leave(comm);
    }
    pthread_mutex_lock(&comm->lock);
    if (!busy && comm->state != ncclSuccess && !comm->revoked)
        now = comm->state;
    pthread_mutex_unlock(&comm->lock);
    *asyncError = now;
    return ncclSuccess;
}
TTI_NCCL_ALSO(CommGetAsyncError);

static ncclResult_t comm_ask(ncclComm_t comm, const char *what, int offset, int *value)
{
    ncclResult_t result = tti_nccl_comm_check(comm, what);
    if (result != ncclSuccess)
        return result;
    if (!value)
        return tti_nccl_fail(ncclInvalidArgument, "%s: the pointer to the result is NULL", what);
    pthread_mutex_lock(&comm->lock);
    const int values[] = {comm->nranks, comm->device, comm->rank};
    *value = values[offset];
    pthread_mutex_unlock(&comm->lock);
    return ncclSuccess;
}

ncclResult_t pncclCommCount(const ncclComm_t comm, int *count)
{
    return comm_ask(comm, "ncclCommCount", 0, count);
}
TTI_NCCL_ALSO(CommCount);

ncclResult_t pncclCommCuDevice(const ncclComm_t comm, int *device)
{
    return comm_ask(comm, "ncclCommCuDevice", 1, device);
}
TTI_NCCL_ALSO(CommCuDevice);

ncclResult_t pncclCommUserRank(const ncclComm_t comm, int *rank)
{
    return comm_ask(comm, "ncclCommUserRank", 2, rank);
}
TTI_NCCL_ALSO(CommUserRank);
