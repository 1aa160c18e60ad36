/* Giving device memory back for a while (NCCL 2.30), and how much there is. All ranks take part, so
 * it is a job, as making a window is. Nothing is kept of what the memory held: between operations
 * it holds nothing. */
#include "nccl/nccl_comm.h"

static ncclResult_t suspend_run(struct tti_nccl_job *job)
{
    struct ncclComm *comm = job->comm;
    (void)tti_nccl_pending_collect(comm, true);
    const ncclResult_t result = tti_nccl_result(tti_comm_release_device(comm->tutti));
    pthread_mutex_lock(&comm->lock);
    comm->suspended = result == ncclSuccess;
    pthread_mutex_unlock(&comm->lock);
    return result;
}

static ncclResult_t resume_run(struct tti_nccl_job *job)
{
    return tti_nccl_result(tti_comm_prepare_device(job->comm->tutti, job->comm->device));
}

/* What has not run has not resumed. */
static void suspend_again(struct ncclComm *comm, ncclResult_t (*run)(struct tti_nccl_job *))
{
    if (run != resume_run)
        return;
    pthread_mutex_lock(&comm->lock);
    comm->suspended = true;
    pthread_mutex_unlock(&comm->lock);
}

void tti_nccl_resume_deny(struct tti_nccl_job *job)
{
    suspend_again(job->comm, job->run);
}

static ncclResult_t suspend_submit(ncclComm_t comm, ncclResult_t (*run)(struct tti_nccl_job *))
{
    struct tti_nccl_job *job = NULL;
    const ncclResult_t result = tti_nccl_job_new(comm, NULL, run, &job);
    if (result != ncclSuccess) {
        suspend_again(comm, run);
        tti_nccl_leave(comm);
        return tti_nccl_group_failed(result);
    }
    return tti_nccl_group_failed(tti_nccl_job_submit_living(job)); /* leaves */
}

ncclResult_t pncclCommSuspend(ncclComm_t comm, int flags)
{
    if (flags != NCCL_SUSPEND_MEM)
        return tti_nccl_group_failed(tti_nccl_fail(
            ncclInvalidArgument, "ncclCommSuspend: flags are 0x%x; expected NCCL_SUSPEND_MEM",
            (unsigned)flags));
    const ncclResult_t result = tti_nccl_enter(comm, "ncclCommSuspend");
    return result == ncclSuccess ? suspend_submit(comm, suspend_run)
                                 : tti_nccl_group_failed(result);
}
TTI_NCCL_ALSO(CommSuspend);

ncclResult_t pncclCommResume(ncclComm_t comm)
{
    const ncclResult_t result = tti_nccl_enter_suspended(comm, "ncclCommResume");
    if (result != ncclSuccess)
        return tti_nccl_group_failed(result);
    pthread_mutex_lock(&comm->lock);
    const bool suspended = comm->suspended;
    comm->suspended = false;
    pthread_mutex_unlock(&comm->lock);
    if (suspended)
        return suspend_submit(comm, resume_run);
    tti_nccl_leave(comm);
    return tti_nccl_group_failed(
        tti_nccl_fail(ncclInvalidUsage, "ncclCommResume: the communicator is not suspended"));
}
TTI_NCCL_ALSO(CommResume);

ncclResult_t pncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value)
{
    struct tutti_memory memory = {0};
    if (!value || (unsigned)stat > ncclStatGpuMemTotal)
        return tti_nccl_fail(ncclInvalidArgument, "ncclCommMemStats: statistic %d, value at %p",
                             (int)stat, (void *)value);
    ncclResult_t result = tti_nccl_enter_suspended(comm, "ncclCommMemStats");
    if (result != ncclSuccess)
        return result;
    result = tti_nccl_result(tutti_comm_memory(comm->tutti, &memory));
    pthread_mutex_lock(&comm->lock);
    const uint64_t values[] = {memory.device, comm->suspended, 0, memory.device};
    pthread_mutex_unlock(&comm->lock);
    tti_nccl_leave(comm);
    if (result == ncclSuccess)
        *value = values[stat];
    return result;
}
TTI_NCCL_ALSO(CommMemStats);
