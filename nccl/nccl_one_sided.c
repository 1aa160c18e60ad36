/* What one rank does alone (NCCL 2.29): puts into windows, signals, waits for them. */
#include "nccl/nccl_comm.h"

/* NCCL's signals have an index and a context; ours a number. */
enum { SIGNALS_EACH = 8, CONTEXTS = TUTTI_SIGNALS / SIGNALS_EACH };

enum tutti_result tti_nccl_alone_plain(const struct tti_nccl_call *c)
{
    const enum tutti_type type = (enum tutti_type)c->type;
    if (c->alone == TTI_PUT)
        return tutti_put(c->in, c->count, type, c->root, c->window, c->offset, c->signal);
    if (c->alone == TTI_SIGNAL)
        return tutti_signal(c->root, c->signal, c->comm->tutti);
    return tutti_wait_signal(c->root, c->signal, c->signals, c->comm->tutti);
}

enum tutti_result tti_nccl_alone_async(const struct tti_nccl_call *c, tutti_stream stream,
                                       tutti_request **request)
{
    const enum tutti_type type = (enum tutti_type)c->type;
    if (c->alone == TTI_PUT)
        return tutti_put_async(c->in, c->count, type, c->root, c->window, c->offset, c->signal,
                               stream, request);
    if (c->alone == TTI_SIGNAL)
        return tutti_signal_async(c->root, c->signal, c->comm->tutti, stream, request);
    return tutti_wait_signal_async(c->root, c->signal, c->signals, c->comm->tutti, stream, request);
}

/* Contexts that the program has asked for; 1 if it has not. */
static int contexts(const struct ncclComm *comm)
{
    const int asked = comm->config.numRmaCtx;
    return asked == NCCL_CONFIG_UNDEF_INT || asked < 1 ? 1 : asked < CONTEXTS ? asked : CONTEXTS;
}

/* Our number of a signal. */
static ncclResult_t signal_of(const struct ncclComm *comm, const char *what, int index, int context,
                              int *signal)
{
    ncclResult_t result = tti_nccl_comm_check(comm, what);
    if (result != ncclSuccess)
        return result;
    if (index < 0 || index >= SIGNALS_EACH || context < 0 || context >= contexts(comm))
        return tti_nccl_fail(ncclInvalidArgument,
                             "%s: signal %d of context %d; there are signals 0 to %d of contexts 0 "
                             "to %d (ncclConfig_t.numRmaCtx, up to %d)",
                             what, index, context, SIGNALS_EACH - 1, contexts(comm) - 1, CONTEXTS);
    *signal = context * SIGNALS_EACH + index;
    return ncclSuccess;
}

/* What puts and signals have in common, in a call that the rest comes into. */
static ncclResult_t alone_call(const char *what, enum tti_alone alone, int peer, int index,
                               int context, unsigned flags, ncclComm_t comm, cudaStream_t stream,
                               struct tti_nccl_call *call)
{
    *call = (struct tti_nccl_call){.collective = TUTTI_SEND_RECV,
                                   .alone = alone,
                                   .type = ncclUint8,
                                   .root = peer,
                                   .comm = comm,
                                   .stream = stream};
    const ncclResult_t result = signal_of(comm, what, index, context, &call->signal);
    if (result == ncclSuccess && flags != 0)
        return tti_nccl_fail(ncclInvalidArgument, "%s: flags are 0x%x; expected 0", what, flags);
    return result;
}

ncclResult_t pncclPutSignal(const void *localbuff, size_t count, ncclDataType_t datatype, int peer,
                            ncclWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                            unsigned int flags, ncclComm_t comm, cudaStream_t stream)
{
    struct tti_nccl_call c;
    ncclResult_t result =
        alone_call("ncclPutSignal", TTI_PUT, peer, sigIdx, ctx, flags, comm, stream, &c);
    c.in = localbuff;
    c.count = count;
    c.type = datatype;
    c.offset = peerWinOffset;
    if (result == ncclSuccess && !(c.window = tti_nccl_window(comm, peerWin)))
        result =
            tti_nccl_fail(ncclInvalidArgument, "ncclPutSignal: %p is no window of the communicator",
                          (void *)peerWin);
    return result == ncclSuccess ? tti_nccl_call(c) : tti_nccl_group_failed(result);
}
TTI_NCCL_ALSO(PutSignal);

ncclResult_t pncclSignal(int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm,
                         cudaStream_t stream)
{
    struct tti_nccl_call c;
    const ncclResult_t result =
        alone_call("ncclSignal", TTI_SIGNAL, peer, sigIdx, ctx, flags, comm, stream, &c);
    return result == ncclSuccess ? tti_nccl_call(c) : tti_nccl_group_failed(result);
}
TTI_NCCL_ALSO(Signal);

static ncclResult_t wait_check(int count, const ncclWaitSignalDesc_t *all, ncclComm_t comm)
{
    int signal = 0, size = 0;
    ncclResult_t result = tti_nccl_comm_check(comm, "ncclWaitSignal");
    if (result != ncclSuccess)
        return result;
    if (count < 1 || !all)
        return tti_nccl_fail(ncclInvalidArgument,
                             "ncclWaitSignal: %d descriptions at %p; expected one or more", count,
                             (const void *)all);
    (void)pncclCommCount(comm, &size);
    for (int i = 0; i < count; i++) {
        if (all[i].opCnt < 1 || all[i].peer < 0 || all[i].peer >= size)
            return tti_nccl_fail(ncclInvalidArgument,
                                 "ncclWaitSignal: description %d is of %d signals from rank %d; "
                                 "expected 1 or more, from a rank from 0 to %d",
                                 i, all[i].opCnt, all[i].peer, size - 1);
        result = signal_of(comm, "ncclWaitSignal", all[i].sigIdx, all[i].ctx, &signal);
        if (result != ncclSuccess)
            return result;
    }
    return ncclSuccess;
}

/* All of them, which is each of them: what was waited for does not count again, in any order. */
ncclResult_t pncclWaitSignal(int nDesc, ncclWaitSignalDesc_t *signalDescs, ncclComm_t comm,
                             cudaStream_t stream)
{
    ncclResult_t worst = wait_check(nDesc, signalDescs, comm);
    if (worst != ncclSuccess)
        return tti_nccl_group_failed(worst);
    for (int i = 0; i < nDesc; i++) {
        struct tti_nccl_call c = {.collective = TUTTI_SEND_RECV,
                                  .alone = TTI_WAIT_SIGNAL,
                                  .type = ncclUint8,
                                  .root = signalDescs[i].peer,
                                  .comm = comm,
                                  .stream = stream,
                                  .signals = (uint64_t)signalDescs[i].opCnt};
        (void)signal_of(comm, "ncclWaitSignal", signalDescs[i].sigIdx, signalDescs[i].ctx,
                        &c.signal);
        const ncclResult_t result = tti_nccl_call(c);
        if (result != ncclSuccess && result != ncclInProgress)
            return result;
        worst = result == ncclInProgress ? result : worst;
    }
    return worst;
}
TTI_NCCL_ALSO(WaitSignal);
