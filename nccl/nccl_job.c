/* Jobs, what may take long: where they run, and how a communicator that one makes gets from it to
 * the program, while others end it or what it is made of (nccl_comm.h). */
#include "nccl/nccl_comm.h"

#include "base/memory.h"
#include "base/stay_loaded.h"
#include "launch/boot.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- running ---- */

void tti_nccl_job_free(struct tti_nccl_job *job)
{
    tti_nccl_wishes_free(job->wishes);
    free(job->excluded);
    free(job);
}

static void job_enter_parent(struct tti_nccl_job *job)
{
    if (!job->parent)
        return;
    pthread_mutex_lock(&job->parent->lock);
    job->sibling = job->parent->children;
    job->parent->children = job;
    if (job->parent->ending && job->parent->given_up) /* since it was entered */
        job->comm->given_up = true;
    pthread_mutex_unlock(&job->parent->lock);
}

/* Who ends the parent does not come to the new communicator any more. */
static void job_unlink(struct tti_nccl_job *job)
{
    if (!job->parent)
        return;
    pthread_mutex_lock(&job->parent->lock);
    struct tti_nccl_job **link = &job->parent->children;
    while (*link && *link != job)
        link = &(*link)->sibling;
    if (*link)
        *link = job->sibling;
    pthread_mutex_unlock(&job->parent->lock);
}

void tti_nccl_job_leave_parent(struct tti_nccl_job *job)
{
    if (!job->parent)
        return;
    job_unlink(job);
    pthread_mutex_lock(&job->parent->lock);
    job->parent->jobs -= job->apart;
    pthread_mutex_unlock(&job->parent->lock);
    tti_nccl_leave(job->parent);
}

static void job_run(struct tti_nccl_job *job)
{
    struct ncclComm *comm = job->comm;
    tti_log_rank(comm->rank);
    (void)tti_boot_cancel_by(&comm->given_up);
    tti_comm_by_device(comm->device); /* a thread of its own has no device current */
    job->result = job->run(job);
    tti_comm_by_device(-1);
    (void)tti_boot_cancel_by(NULL);
    if (job->result != ncclSuccess) {
        snprintf(job->text, sizeof job->text, "%s", tti_nccl_text());
        if (!job->lives || job->result != ncclInvalidArgument)
            tti_nccl_comm_failed(comm, job->result);
    }
    if (!job->lives)
        return;
    pthread_mutex_lock(&comm->lock);
    comm->jobs -= job->counted;
    comm->inside--;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
}

void tti_nccl_job_run(struct tti_nccl_job *job)
{
    job_run(job);
    tti_nccl_job_leave_parent(job);
}

/* Whose a communicator is when its making is over. */
enum taken { TAKEN_BY_PROGRAM, TAKEN_BY_NOBODY, TAKEN_BY_ABORT, TAKEN_BY_DESTROY };

/* From its job. One that is not wanted, or was aborted, is freed; the thread that destroys one has
 * waited for this, and frees it itself. */
static enum taken comm_taken(struct ncclComm *comm, bool wanted)
{
    pthread_mutex_lock(&comm->lock);
    while (comm->inside > 1) /* whoever tells the others that it ends; nobody else gets in */
        pthread_cond_wait(&comm->changed, &comm->lock);
    const bool aborted = comm->orphan && comm->given_up;
    const bool destroyed = comm->ending && !comm->orphan;
    const bool frees = comm->orphan || (!wanted && !destroyed);
    comm->ending |= frees;
    comm->making = false;
    comm->jobs--;
    comm->inside--;
    pthread_cond_broadcast(&comm->changed);
    pthread_mutex_unlock(&comm->lock);
    if (frees)
        tti_nccl_comm_release(comm);
    if (aborted || destroyed)
        return aborted ? TAKEN_BY_ABORT : TAKEN_BY_DESTROY;
    return frees ? TAKEN_BY_NOBODY : TAKEN_BY_PROGRAM;
}

/* Nothing was made after a failure, and by a split without a colour. */
static ncclResult_t job_hand_over(struct tti_nccl_job *job)
{
    struct ncclComm *comm = job->comm;
    const enum taken taken = comm_taken(comm, job->result == ncclSuccess && comm->tutti);
    if (taken != TAKEN_BY_PROGRAM && *job->handle == comm)
        *job->handle = NULL;
    if (job->result != ncclSuccess || taken < TAKEN_BY_ABORT)
        return job->result;
    snprintf(job->text, sizeof job->text, "the communicator was %s while it was made",
             taken == TAKEN_BY_ABORT ? "aborted" : "destroyed");
    return taken == TAKEN_BY_ABORT ? ncclRemoteError : ncclInvalidUsage;
}

ncclResult_t tti_nccl_job_finish(struct tti_nccl_job *job)
{
    const ncclResult_t result = job->lives ? job->result : job_hand_over(job);
    if (result != ncclSuccess)
        (void)tti_nccl_fail(result, "%s", job->text);
    tti_nccl_job_free(job);
    return result;
}

static void *job_thread(void *argument)
{
    struct tti_nccl_job *job = argument;
    while (job) {
        struct tti_nccl_job *after = job->after;
        job_run(job);
        job_unlink(job); /* what is taken may be freed */
        if (!job->lives)
            (void)comm_taken(job->comm, true); /* ncclCommGetAsyncError tells how it went */
        tti_nccl_job_leave_parent(job); /* last: whoever asks the parent alone uses the new one */
        tti_nccl_job_free(job);
        job = after;
    }
    return NULL;
}

/* Two such jobs over one communicator would take each other's messages: as with NCCL the program
 * waits for the parent, too, as for one that exists and does something itself. */
static void job_occupy(struct tti_nccl_job *job)
{
    struct ncclComm *busy = job->lives ? job->comm : job->parent;
    if (!busy || job->counted)
        return;
    pthread_mutex_lock(&busy->lock);
    busy->jobs++;
    job->apart = !job->lives;
    job->counted = job->lives;
    pthread_mutex_unlock(&busy->lock);
}

ncclResult_t tti_nccl_job_start(struct tti_nccl_job *job)
{
    sigset_t all, before;
    pthread_attr_t detached;
    pthread_t thread;
    tti_stay_loaded(); /* a program that hears of the end may unload at once */
    for (struct tti_nccl_job *one = job; one; one = one->after)
        job_occupy(one);
    sigfillset(&all);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&thread, &detached, job_thread, job);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    if (!failed)
        return ncclInProgress;
    (void)job_thread(job); /* better late than not at all */
    return ncclInProgress;
}

static ncclResult_t job_submit(struct tti_nccl_job *job)
{
    if (tti_nccl_group_open()) {
        tti_nccl_group_add_job(job);
        return ncclSuccess;
    }
    if (!tti_nccl_job_waits(job))
        return tti_nccl_job_start(job);
    tti_nccl_job_run(job);
    return tti_nccl_job_finish(job);
}

ncclResult_t tti_nccl_job_submit(struct tti_nccl_job *job)
{
    struct ncclComm *comm = job->comm;
    comm->inside = comm->jobs = 1;
    comm->making = true;
    job_enter_parent(job);
    *job->handle = comm;
    return job_submit(job);
}

ncclResult_t tti_nccl_job_submit_living(struct tti_nccl_job *job)
{
    job->lives = true;
    return job_submit(job);
}

ncclResult_t tti_nccl_job_new(struct ncclComm *comm, ncclComm_t *handle,
                              ncclResult_t (*run)(struct tti_nccl_job *), struct tti_nccl_job **job)
{
    struct tti_nccl_job *made = tti_calloc(1, sizeof *made);
    if (!made)
        return tti_nccl_result(TUTTI_ERR_MEMORY);
    made->run = run;
    made->comm = comm;
    made->handle = handle;
    *job = made;
    return ncclSuccess;
}
