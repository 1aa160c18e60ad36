/* Puts and signals from one rank alone (NCCL 2.29), and giving memory back for a while (2.30): not
 * supported; each call says so and what to use instead. */
#include "nccl/nccl_comm.h"

#define REFUSE_PUTS(name)                                                                       \
    tti_nccl_fail(ncclInvalidUsage,                                                             \
                  "%s: puts and signals into windows are not supported by Tutti; use ncclSend " \
                  "and ncclRecv",                                                               \
                  name)

ncclResult_t pncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer,
                            ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                            unsigned int flags, ncclComm_t comm, cudaStream_t stream)
{
    (void)localbuff, (void)count, (void)datatype, (void)peer, (void)peerWin, (void)peerWinOffset;
    (void)sigIdx, (void)ctx, (void)flags, (void)comm, (void)stream;
    return tti_nccl_group_failed(REFUSE_PUTS("ncclPutSignal"));
}
TTI_NCCL_ALSO(PutSignal);

ncclResult_t pncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                         cudaStream_t stream)
{
    (void)peer, (void)sigIdx, (void)ctx, (void)flags, (void)comm, (void)stream;
    return tti_nccl_group_failed(REFUSE_PUTS("ncclSignal"));
}
TTI_NCCL_ALSO(Signal);

ncclResult_t pncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm,
                             cudaStream_t stream)
{
    (void)nDesc, (void)signalDescs, (void)comm, (void)stream;
    return tti_nccl_group_failed(REFUSE_PUTS("ncclWaitSignal"));
}
TTI_NCCL_ALSO(WaitSignal);

static ncclResult_t suspend_refused(ncclComm_t comm, const char *what)
{
    ncclResult_t result = tti_nccl_comm_check(comm, what);
    if (result != ncclSuccess)
        return result;
    return tti_nccl_fail(ncclInvalidUsage,
                         "%s: a communicator's device memory stays until it is destroyed; how much "
                         "it may be is set by TUTTI_DEVICE_MEMORY",
                         what);
}

ncclResult_t pncclCommSuspend(ncclComm_t comm, int flags)
{
    (void)flags;
    return suspend_refused(comm, "ncclCommSuspend");
}
TTI_NCCL_ALSO(CommSuspend);

ncclResult_t pncclCommResume(ncclComm_t comm)
{
    return suspend_refused(comm, "ncclCommResume");
}
TTI_NCCL_ALSO(CommResume);

ncclResult_t pncclCommMemStats(ncclComm_t comm, ncclCommMemStat_t stat, uint64_t *value)
{
    struct tutti_memory memory = {0};
    if (!value || (unsigned)stat > ncclStatGpuMemTotal)
        return tti_nccl_fail(ncclInvalidArgument, "ncclCommMemStats: statistic %d, value at %p",
                             (int)stat, (void *)value);
    ncclResult_t result = tti_nccl_enter(comm, "ncclCommMemStats");
    if (result != ncclSuccess)
        return result;
    result = tti_nccl_result(tutti_comm_memory(comm->tutti, &memory));
    tti_nccl_leave(comm);
    if (result == ncclSuccess)
        *value = stat == ncclStatGpuMemPersist || stat == ncclStatGpuMemTotal ? memory.device : 0;
    return result;
}
TTI_NCCL_ALSO(CommMemStats);
