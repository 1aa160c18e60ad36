/* Groups (nccl_comm.h). Between ncclGroupStart and ncclGroupEnd two things are collected:
 * operations, in a group of ours, and jobs, which make communicators or windows. Jobs of one group
 * need each other (one thread makes the ranks of several devices), so they run at the same time. */
#include "nccl/nccl_comm.h"

#include "base/memory.h"
#include "coll/group.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* An operation that was collected. */
struct noted {
    struct noted *next;
    struct ncclComm *comm; /* entered */
    enum tutti_collective collective;
    size_t count;
    enum tutti_type type;
    bool receives; /* of a message */
};

/* A request that the group, or later ncclCommGetAsyncError, waits for. */
struct awaited {
    struct awaited *next;
    struct ncclComm *comm;
    struct tti_nccl_pending *pending;
};

/* A communicator that was aborted, of which the rest is done when the others of the group are. */
struct ended {
    struct ended *next;
    struct ncclComm *comm;
};

struct nccl_group {
    int depth;
    ncclResult_t failed;
    char text[TTI_ERROR_TEXT_BYTES];
    struct noted *noted, **noted_end;
    struct awaited *awaited, **awaited_end;
    struct tti_nccl_job *jobs, **jobs_end;
    struct ended *ended, **ended_end;
};

static _Thread_local struct nccl_group group;

bool tti_nccl_group_open(void)
{
    return group.depth > 0;
}

ncclResult_t tti_nccl_group_failed(ncclResult_t code)
{
    const bool failed = code != ncclSuccess && code != ncclInProgress;
    if (failed && group.depth > 0 && group.failed == ncclSuccess) {
        group.failed = code;
        memcpy(group.text, tti_nccl_text(), sizeof group.text);
    }
    return code;
}

/* ---- collecting ---- */

void tti_nccl_group_add_job(struct tti_nccl_job *job)
{
    *group.jobs_end = job;
    group.jobs_end = &job->next;
}

struct tti_nccl_job *tti_nccl_group_job(const struct ncclComm *comm,
                                        ncclResult_t (*run)(struct tti_nccl_job *))
{
    struct tti_nccl_job *job = group.depth > 0 ? group.jobs : NULL;
    while (job && (job->comm != comm || job->run != run))
        job = job->next;
    return job;
}

bool tti_nccl_group_makes(const struct ncclComm *comm)
{
    const struct tti_nccl_job *job = group.depth > 0 ? group.jobs : NULL;
    while (job && (job->comm != comm || job->lives))
        job = job->next;
    return job != NULL;
}

ncclResult_t tti_nccl_group_note(const struct tti_nccl_call *call)
{
    struct noted *made = tti_calloc(1, sizeof *made);
    if (!made)
        return tti_nccl_result(TUTTI_ERR_MEMORY);
    *made = (struct noted){.comm = call->comm,
                           .collective = call->collective,
                           .count = call->count,
                           .type = (enum tutti_type)call->type,
                           .receives = call->receives};
    *group.noted_end = made;
    group.noted_end = &made->next;
    return ncclSuccess;
}

tutti_request **tti_nccl_group_request(struct ncclComm *comm)
{
    struct awaited *made = tti_calloc(1, sizeof *made);
    struct tti_nccl_pending *pending = tti_calloc(1, sizeof *pending);
    if (!made || !pending) {
        free(made);
        free(pending);
        return NULL;
    }
    made->comm = comm;
    made->pending = pending;
    *group.awaited_end = made;
    group.awaited_end = &made->next;
    return &pending->request;
}

bool tti_nccl_group_ends(struct ncclComm *comm)
{
    struct ended *made = group.depth > 0 ? tti_calloc(1, sizeof *made) : NULL;
    if (!made)
        return false;
    made->comm = comm;
    *group.ended_end = made;
    group.ended_end = &made->next;
    return true;
}

ncclResult_t pncclGroupStart(void)
{
    if (group.depth++ > 0)
        return ncclSuccess;
    group.failed = ncclSuccess;
    group.noted_end = &group.noted;
    group.awaited_end = &group.awaited;
    group.jobs_end = &group.jobs;
    group.ended_end = &group.ended;
    const ncclResult_t result = tti_nccl_result(tutti_group_start());
    tti_group_any_order(); /* NCCL's own takes the largest first */
    return result;
}
TTI_NCCL_ALSO(GroupStart);

/* ---- jobs ---- */

static void *group_thread(void *argument)
{
    for (struct tti_nccl_job *job = argument; job; job = job->after)
        tti_nccl_job_run(job);
    return NULL;
}

/* The communicator whose links the job uses: its parent's, or those of one that exists. */
static const struct ncclComm *job_over(const struct tti_nccl_job *job)
{
    return job->lives ? job->comm : job->parent;
}

/* Several jobs over one communicator: in the order of the calls, as on all ranks. */
static void group_chain_jobs(void)
{
    struct tti_nccl_job **link = &group.jobs;
    while (*link) {
        struct tti_nccl_job *job = *link, *first = group.jobs;
        while (first != job && (!job_over(job) || job_over(first) != job_over(job)))
            first = first->next;
        if (first == job) {
            link = &job->next;
            continue;
        }
        *link = job->next;
        while (first->after)
            first = first->after;
        first->after = job;
    }
}

/* A chain that has a job that blocks is waited for, with those that need not be. */
static bool group_waits(const struct tti_nccl_job *job)
{
    while (job && !tti_nccl_job_waits(job))
        job = job->after;
    return job != NULL;
}

/* All at the same time, each that blocks in a thread that is waited for. */
static void group_start_jobs(void)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (struct tti_nccl_job *job = group.jobs; job; job = job->next) {
        const bool last = !job->next;
        if (group_waits(job) && !last)
            job->has_thread = pthread_create(&job->thread, NULL, group_thread, job) == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static ncclResult_t group_end_job(struct tti_nccl_job *job)
{
    if (!job->has_thread && !group_waits(job))
        return tti_nccl_job_start(job);
    if (job->has_thread)
        pthread_join(job->thread, NULL);
    else
        (void)group_thread(job);
    ncclResult_t worst = ncclSuccess;
    char text[TTI_ERROR_TEXT_BYTES];
    while (job) {
        struct tti_nccl_job *after = job->after;
        const ncclResult_t result = tti_nccl_job_finish(job);
        if (worst == ncclSuccess && result != ncclSuccess)
            memcpy(text, tti_nccl_text(), sizeof text);
        worst = worst == ncclSuccess ? result : worst;
        job = after;
    }
    return worst == ncclSuccess ? ncclSuccess : tti_nccl_fail(worst, "%s", text);
}

static ncclResult_t group_run_jobs(void)
{
    ncclResult_t worst = ncclSuccess;
    char text[TTI_ERROR_TEXT_BYTES];
    group_chain_jobs();
    group_start_jobs();
    /* Those without a thread first: others wait for them. */
    for (int round = 0; round < 2; round++) {
        struct tti_nccl_job **link = &group.jobs;
        while (*link) {
            struct tti_nccl_job *job = *link;
            if (round == 0 && job->has_thread) {
                link = &job->next;
                continue;
            }
            *link = job->next;
            ncclResult_t result = group_end_job(job);
            const bool first = worst == ncclSuccess || worst == ncclInProgress;
            if (result != ncclSuccess && first) {
                worst = result;
                memcpy(text, tti_nccl_text(), sizeof text);
            }
        }
    }
    if (worst != ncclSuccess && worst != ncclInProgress)
        return tti_nccl_fail(worst, "%s", text);
    return worst;
}

/* Jobs that do not run after all: their communicators end before they began. */
static void group_drop_jobs(void)
{
    while (group.jobs) {
        struct tti_nccl_job *job = group.jobs;
        group.jobs = job->next;
        tti_nccl_job_leave_parent(job);
        if (job->lives) {
            tti_nccl_wishes_deny(job);
            tti_nccl_resume_deny(job);
            tti_nccl_leave(job->comm);
        }
        (void)tti_nccl_job_finish(job); /* nothing was made */
    }
}

/* ---- the end ---- */

/* Requests: those of communicators that block are waited for, the others handed on. */
static ncclResult_t group_await(bool ran)
{
    ncclResult_t worst = ncclSuccess;
    while (group.awaited) {
        struct awaited *at = group.awaited;
        group.awaited = at->next;
        if (!ran || !at->pending->request) {
            free(at->pending);
        } else if (at->comm->blocking) {
            ncclResult_t result = tti_nccl_result(tutti_wait(at->pending->request));
            worst = worst == ncclSuccess || worst == ncclInProgress ? result : worst;
            free(at->pending);
        } else {
            pthread_mutex_lock(&at->comm->lock);
            struct tti_nccl_pending **end = &at->comm->pending;
            while (*end)
                end = &(*end)->next;
            *end = at->pending;
            pthread_mutex_unlock(&at->comm->lock);
            worst = worst == ncclSuccess ? ncclInProgress : worst;
        }
        free(at);
    }
    return worst;
}

/* The group is over, and nobody of it is inside a communicator any more. */
static ncclResult_t group_leave(void)
{
    struct ended *ended = group.ended;
    ncclResult_t worst = ncclSuccess;
    while (group.noted) {
        struct noted *noted = group.noted;
        group.noted = noted->next;
        tti_nccl_leave(noted->comm);
        free(noted);
    }
    memset(&group, 0, sizeof group);
    while (ended) {
        struct ended *next = ended->next;
        const ncclResult_t result = tti_nccl_comm_end_aborted(ended->comm);
        worst = worst == ncclSuccess ? result : worst;
        free(ended);
        ended = next;
    }
    return worst;
}

static ncclResult_t group_forget(void)
{
    tti_group_discard();
    group_drop_jobs();
    (void)group_await(false);
    const ncclResult_t failed = group.failed;
    char text[TTI_ERROR_TEXT_BYTES];
    memcpy(text, group.text, sizeof text);
    const ncclResult_t ended = group_leave();
    return failed == ncclSuccess ? ended : tti_nccl_fail(failed, "%s", text);
}

ncclResult_t pncclGroupEnd(void)
{
    if (group.depth == 0)
        return tti_nccl_fail(ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--group.depth > 0)
        return ncclSuccess;
    if (group.failed != ncclSuccess)
        return group_forget();
    ncclResult_t result = tti_nccl_result(tutti_group_end());
    const ncclResult_t awaited = group_await(true);
    if (result == ncclSuccess)
        result = awaited;
    /* Not with our group open: what a job does must not be collected. */
    const ncclResult_t jobs = group_run_jobs();
    const ncclResult_t ended = group_leave();
    result = result == ncclSuccess ? jobs : result;
    return result == ncclSuccess ? ended : result;
}
TTI_NCCL_ALSO(GroupEnd);

static ncclResult_t predict_one(struct ncclComm *comm, enum tutti_collective collective,
                                size_t count, enum tutti_type type, double *microseconds)
{
    struct tutti_choice choice = {.predicted_us = 0};
    const ncclResult_t result =
        count == 0
            ? ncclSuccess
            : tti_nccl_result(tutti_comm_choice(comm->tutti, collective, count, type, &choice));
    *microseconds += choice.predicted_us;
    return result;
}

/* What a group has for a communicator: its collectives one after another; its messages, which go at
 * the same time, as an all-to-all of as many bytes as this rank sends, or receives if that is more.
 */
static ncclResult_t predict_comm(struct ncclComm *comm, double *microseconds)
{
    size_t sent = 0, received = 0;
    for (const struct noted *at = group.noted; at; at = at->next) {
        if (at->comm != comm)
            continue;
        ncclResult_t result = ncclSuccess;
        if (at->collective == TUTTI_SEND_RECV)
            *(at->receives ? &received : &sent) += at->count * tutti_type_size(at->type);
        else
            result = predict_one(comm, at->collective, at->count, at->type, microseconds);
        if (result != ncclSuccess)
            return result;
    }
    const size_t most = sent > received ? sent : received, peers = (size_t)comm->nranks - 1;
    return predict_one(comm, TUTTI_ALL_TO_ALL, peers ? (most + peers - 1) / peers : 0, TUTTI_UINT8,
                       microseconds);
}

/* Communicators side by side. */
static ncclResult_t group_predict(float *microseconds)
{
    double most = 0;
    for (const struct noted *at = group.noted; at; at = at->next) {
        double sum = 0;
        const ncclResult_t result = predict_comm(at->comm, &sum);
        if (result != ncclSuccess)
            return result;
        most = sum > most ? sum : most;
    }
    *microseconds = (float)most;
    return ncclSuccess;
}

ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *simInfo)
{
    const ncclSimInfo_t none = NCCL_SIM_INFO_INITIALIZER;
    if (group.depth == 0)
        return tti_nccl_fail(ncclInvalidUsage, "ncclGroupSimulateEnd without ncclGroupStart");
    if (simInfo && (simInfo->magic != none.magic || simInfo->size < sizeof *simInfo))
        (void)tti_nccl_group_failed(
            tti_nccl_fail(ncclInvalidArgument,
                          "the ncclSimInfo_t has size %zu and magic 0x%x; begin with "
                          "NCCL_SIM_INFO_INITIALIZER",
                          simInfo->size, simInfo->magic));
    if (group.depth > 1) {
        group.depth--;
        return group.failed;
    }
    float microseconds = 0;
    tti_group_discard();
    if (group.failed == ncclSuccess)
        (void)tti_nccl_group_failed(group_predict(&microseconds));
    if (group.failed == ncclSuccess && simInfo)
        simInfo->estimatedTime = microseconds;
    group.depth--;
    return group_forget();
}
TTI_NCCL_ALSO(GroupSimulateEnd);
