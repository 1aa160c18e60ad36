/* Operations: NCCL's arguments become ours. What they wait for differs:
 *
 * - Device memory is queued on the stream, and NULL is one. Page-locked memory likewise, if CUDA is
 *   in use.
 * - Host memory: over when the call returns (or ncclGroupEnd); on a communicator that does not
 *   block, when ncclCommGetAsyncError says ncclSuccess.
 * - The simulated device, stream NULL: as host memory, since there is nothing else that a program
 *   could wait for.
 *
 * Read next: nccl_group.c. */
#include "nccl/nccl_comm.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* ---- ours ---- */

static enum tutti_result call_plain(const struct tti_nccl_call *c, enum tutti_op op)
{
    const enum tutti_type type = (enum tutti_type)c->type;
    tutti_comm *comm = c->comm->tutti;
    if (c->alone != TTI_NOT_ALONE)
        return tti_nccl_alone_plain(c);
    switch (c->collective) {
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce(c->in, c->out, c->count, type, op, comm);
    case TUTTI_BROADCAST:
        return tutti_broadcast(c->in, c->out, c->count, type, c->root, comm);
    case TUTTI_REDUCE:
        return tutti_reduce(c->in, c->out, c->count, type, op, c->root, comm);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter(c->in, c->out, c->count, type, op, comm);
    case TUTTI_ALL_GATHER:
        return tutti_all_gather(c->in, c->out, c->count, type, comm);
    case TUTTI_ALL_TO_ALL:
        return tutti_all_to_all(c->in, c->out, c->count, type, comm);
    case TUTTI_GATHER:
        return tutti_gather(c->in, c->out, c->count, type, c->root, comm);
    case TUTTI_SCATTER:
        return tutti_scatter(c->in, c->out, c->count, type, c->root, comm);
    default:
        return c->receives ? tutti_recv(c->out, c->count, type, c->root, comm)
                           : tutti_send(c->in, c->count, type, c->root, comm);
    }
}

static enum tutti_result call_async(const struct tti_nccl_call *c, enum tutti_op op,
                                    tutti_stream stream, tutti_request **request)
{
    const enum tutti_type type = (enum tutti_type)c->type;
    tutti_comm *comm = c->comm->tutti;
    if (c->alone != TTI_NOT_ALONE)
        return tti_nccl_alone_async(c, stream, request);
    switch (c->collective) {
    case TUTTI_ALL_REDUCE:
        return tutti_all_reduce_async(c->in, c->out, c->count, type, op, comm, stream, request);
    case TUTTI_BROADCAST:
        return tutti_broadcast_async(c->in, c->out, c->count, type, c->root, comm, stream, request);
    case TUTTI_REDUCE:
        return tutti_reduce_async(c->in, c->out, c->count, type, op, c->root, comm, stream,
                                  request);
    case TUTTI_REDUCE_SCATTER:
        return tutti_reduce_scatter_async(c->in, c->out, c->count, type, op, comm, stream, request);
    case TUTTI_ALL_GATHER:
        return tutti_all_gather_async(c->in, c->out, c->count, type, comm, stream, request);
    case TUTTI_ALL_TO_ALL:
        return tutti_all_to_all_async(c->in, c->out, c->count, type, comm, stream, request);
    case TUTTI_GATHER:
        return tutti_gather_async(c->in, c->out, c->count, type, c->root, comm, stream, request);
    case TUTTI_SCATTER:
        return tutti_scatter_async(c->in, c->out, c->count, type, c->root, comm, stream, request);
    default:
        return c->receives
                   ? tutti_recv_async(c->out, c->count, type, c->root, comm, stream, request)
                   : tutti_send_async(c->in, c->count, type, c->root, comm, stream, request);
    }
}

/* ---- operators ---- */

/* A factor in device memory is read in the order of the stream, which therefore is waited for. */
static enum tutti_result call_read_factor(const struct tti_nccl_call *c, const void *factor,
                                          uint64_t *value)
{
    const struct tti_gpu_ops *ops = c->comm->gpu_ops;
    struct tti_gpu_pointer info = {.kind = TTI_MEMORY_HOST};
    struct tti_gpu *gpu = NULL;
    const size_t bytes = tutti_type_size((enum tutti_type)c->type);
    uint64_t capture = 0;
    if (ops)
        TTI_TRY(ops->pointer(factor, &info));
    *value = 0;
    if (info.kind == TTI_MEMORY_HOST) {
        memcpy(value, factor, bytes);
        return TUTTI_OK;
    }
    TTI_TRY(ops->open(c->comm->device, &gpu));
    enum tutti_result result = c->stream ? ops->capture_id(gpu, c->stream, &capture) : TUTTI_OK;
    if (result == TUTTI_OK && capture)
        result = TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                          "a pre-multiplied sum whose factor lies in device memory cannot be "
                          "captured; give the factor with ncclScalarHostImmediate");
    /* First: the copy, to memory that is not page-locked, waits inside of the driver, without a
     * deadline, and may keep out the rank that the stream waits for. */
    if (result == TUTTI_OK)
        result = tti_comm_stream_wait(c->comm->tutti, gpu, c->stream, "reading a factor");
    if (result == TUTTI_OK)
        result = ops->copy(gpu, value, factor, bytes, c->stream);
    if (result == TUTTI_OK)
        result = tti_comm_stream_wait(c->comm->tutti, gpu, c->stream, "reading a factor");
    ops->close(gpu);
    return result;
}

/* The operator as ours; *made: it is for this call alone. */
static enum tutti_result call_op(const struct tti_nccl_call *c, enum tutti_op *op, bool *made)
{
    const unsigned user = (unsigned)c->op - ncclNumOps;
    *made = false;
    if ((unsigned)c->op < ncclNumOps) {
        *op = (enum tutti_op)c->op;
        return TUTTI_OK;
    }
    *op = (enum tutti_op)(TUTTI_OP_USER + user);
    if (user >= TTI_NCCL_USER_OPS || !c->comm->factors[user])
        return TUTTI_OK; /* ours, or none: the check will say */
    uint64_t value = 0;
    if (c->comm->factor_types[user] != c->type)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "the operator was made for %s, the data are %s",
                        tutti_type_name((enum tutti_type)c->comm->factor_types[user]),
                        tutti_type_name((enum tutti_type)c->type));
    TTI_TRY(call_read_factor(c, c->comm->factors[user], &value));
    TTI_TRY(tutti_premul_sum_create(c->comm->tutti, (enum tutti_type)c->type, &value, op));
    *made = true;
    return TUTTI_OK;
}

ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *op, void *scalar, ncclDataType_t datatype,
                                       ncclScalarResidence_t residence, ncclComm_t comm)
{
    const uint64_t unknown = 0;
    enum tutti_op made = TUTTI_SUM;
    if (!op || !scalar || (unsigned)datatype >= ncclNumTypes || (unsigned)residence > 1)
        return tti_nccl_fail(ncclInvalidArgument,
                             "ncclRedOpCreatePreMulSum: op %p, scalar %p, type %d or residence %d "
                             "is wrong",
                             (void *)op, scalar, (int)datatype, (int)residence);
    ncclResult_t result = tti_nccl_enter(comm, "ncclRedOpCreatePreMulSum");
    if (result != ncclSuccess)
        return result;
    pthread_mutex_lock(&comm->lock);
    enum tutti_result own =
        tutti_premul_sum_create(comm->tutti, (enum tutti_type)datatype,
                                residence == ncclScalarHostImmediate ? scalar : &unknown, &made);
    if (own == TUTTI_OK) {
        const unsigned user = (unsigned)made - TUTTI_OP_USER;
        comm->factors[user] = residence == ncclScalarDevice ? scalar : NULL;
        comm->factor_types[user] = datatype;
        *op = (ncclRedOp_t)(ncclNumOps + user);
    }
    pthread_mutex_unlock(&comm->lock);
    tti_nccl_leave(comm);
    return tti_nccl_result(own);
}
TTI_NCCL_ALSO(RedOpCreatePreMulSum);

ncclResult_t pncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    const unsigned user = (unsigned)op - ncclNumOps;
    ncclResult_t result = tti_nccl_enter(comm, "ncclRedOpDestroy");
    if (result != ncclSuccess)
        return result;
    pthread_mutex_lock(&comm->lock);
    enum tutti_result own = TUTTI_ERR_ARGUMENT;
    if ((unsigned)op < ncclNumOps || user >= TTI_NCCL_USER_OPS)
        own = TTI_FAIL(TUTTI_ERR_ARGUMENT, "ncclRedOpDestroy: %d is no operator that was created",
                       (int)op);
    else
        own = tutti_op_destroy(comm->tutti, (enum tutti_op)(TUTTI_OP_USER + user));
    if (own == TUTTI_OK)
        comm->factors[user] = NULL;
    pthread_mutex_unlock(&comm->lock);
    tti_nccl_leave(comm);
    return tti_nccl_result(own);
}
TTI_NCCL_ALSO(RedOpDestroy);

/* ---- one call ---- */

/* Is it device memory that the call is about? Any buffer tells. */
static bool call_on_device(const struct tti_nccl_call *c)
{
    struct tti_gpu_pointer info;
    const void *any = c->in ? c->in : c->out;
    return c->comm->gpu_ops && any && c->count > 0 &&
           c->comm->gpu_ops->pointer(any, &info) == TUTTI_OK && info.kind != TTI_MEMORY_HOST;
}

/* The host would read what only the device can. */
static ncclResult_t call_not_late(const struct tti_nccl_call *c)
{
    struct ncclComm *comm = c->comm;
    const void *any = c->in ? c->in : c->out;
    if (comm->gpu_ops || c->count == 0 || !any ||
        any == atomic_load_explicit(&comm->on_host, memory_order_relaxed))
        return ncclSuccess;
    if (tti_nccl_late_device(any))
        return tti_nccl_fail(ncclInvalidUsage,
                             "%s: the buffer %p is device memory, but NVIDIA's driver was not "
                             "loaded in this process when the communicator was made; use CUDA "
                             "before (cudaSetDevice, for one), or set TUTTI_DEVICE=cuda",
                             tutti_collective_name(c->collective), any);
    atomic_store_explicit(&comm->on_host, any, memory_order_relaxed);
    return ncclSuccess;
}

/* Keep a request for ncclCommGetAsyncError. */
static enum tutti_result call_pend(struct ncclComm *comm, tutti_request *request)
{
    struct tti_nccl_pending *made = tti_calloc(1, sizeof *made);
    if (!made) {
        (void)tutti_wait(request);
        return TUTTI_ERR_MEMORY;
    }
    made->request = request;
    pthread_mutex_lock(&comm->lock);
    struct tti_nccl_pending **end = &comm->pending;
    while (*end)
        end = &(*end)->next;
    *end = made;
    pthread_mutex_unlock(&comm->lock);
    return TUTTI_OK;
}

/* Asynchronous, with a request that somebody waits for. */
static ncclResult_t call_requested(const struct tti_nccl_call *c, enum tutti_op op,
                                   tutti_stream stream)
{
    tutti_request *request = NULL;
    if (tti_nccl_group_open()) {
        tutti_request **place = tti_nccl_group_request(c->comm);
        return tti_nccl_result(place ? call_async(c, op, stream, place) : TUTTI_ERR_MEMORY);
    }
    ncclResult_t result = tti_nccl_result(call_async(c, op, stream, &request));
    if (result != ncclSuccess)
        return result;
    if (c->comm->blocking)
        return tti_nccl_result(tutti_wait(request));
    result = tti_nccl_result(call_pend(c->comm, request));
    return result == ncclSuccess ? ncclInProgress : result;
}

static ncclResult_t call_begin(const struct tti_nccl_call *c, enum tutti_op op)
{
    struct ncclComm *comm = c->comm;
    const bool simulated = comm->stream && !c->stream && call_on_device(c);
    if (simulated)
        return call_requested(c, op, comm->stream);
    if (c->stream)
        return tti_nccl_result(call_async(c, op, c->stream, NULL));
    if (!comm->blocking && !call_on_device(c))
        return call_requested(c, op, NULL);
    return tti_nccl_result(call_plain(c, op));
}

/* What only moves data may have another type at each rank, if there are as many bytes. */
static void call_bytes(struct tti_nccl_call *c)
{
    const bool reduces = c->collective == TUTTI_ALL_REDUCE || c->collective == TUTTI_REDUCE ||
                         c->collective == TUTTI_REDUCE_SCATTER;
    const size_t each = tutti_type_size((enum tutti_type)c->type);
    if (reduces || c->alone != TTI_NOT_ALONE || c->count > SIZE_MAX / each)
        return;
    c->count *= each;
    c->type = ncclUint8;
}

static ncclResult_t call_entered(struct tti_nccl_call *c)
{
    enum tutti_op op = TUTTI_SUM;
    bool made = false;
    if ((unsigned)c->type >= ncclNumTypes)
        return tti_nccl_fail(ncclInvalidArgument, "%s: %d is no data type",
                             tutti_collective_name(c->collective), (int)c->type);
    call_bytes(c);
    ncclResult_t result = call_not_late(c);
    if (result == ncclSuccess)
        result = tti_nccl_result(call_op(c, &op, &made));
    if (result != ncclSuccess)
        return result;
    result = call_begin(c, op);
    if (made)
        (void)tutti_op_destroy(c->comm->tutti, op);
    if (result != ncclSuccess && result != ncclInProgress)
        return result;
    /* In a group the communicator stays entered until the end. */
    if (tti_nccl_group_open())
        return tti_nccl_group_note(c);
    return result;
}

/* CUDA's handles of the two default streams, cudaStreamLegacy, which is what NULL is here, and
 * cudaStreamPerThread. Without CUDA there is but one. */
static tutti_stream call_stream(const struct ncclComm *comm, tutti_stream stream)
{
    const uintptr_t handles = comm->gpu_ops == tti_gpu_cuda() ? 1 : 2;
    return (uintptr_t)stream <= handles ? NULL : stream;
}

ncclResult_t tti_nccl_call(struct tti_nccl_call c)
{
    ncclResult_t result = tti_nccl_enter(c.comm, tutti_collective_name(c.collective));
    if (result != ncclSuccess)
        return tti_nccl_group_failed(result);
    c.stream = call_stream(c.comm, c.stream);
    result = call_entered(&c);
    const bool failed = result != ncclSuccess && result != ncclInProgress;
    if (failed || !tti_nccl_group_open())
        tti_nccl_leave(c.comm);
    return failed ? tti_nccl_group_failed(result) : result;
}

static struct tti_nccl_call call_of(enum tutti_collective collective, const void *in, void *out,
                                    size_t count, ncclDataType_t type, ncclComm_t comm,
                                    cudaStream_t stream)
{
    return (struct tti_nccl_call){.collective = collective,
                                  .in = in,
                                  .out = out,
                                  .count = count,
                                  .type = type,
                                  .comm = comm,
                                  .stream = stream};
}

/* ---- the operations ---- */

ncclResult_t pncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                            ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                            cudaStream_t stream)
{
    struct tti_nccl_call c =
        call_of(TUTTI_ALL_REDUCE, sendbuff, recvbuff, count, datatype, comm, stream);
    c.op = op;
    return tti_nccl_call(c);
}
TTI_NCCL_ALSO(AllReduce);

ncclResult_t pncclBroadcast(const void *sendbuff, void *recvbuff, size_t count,
                            ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    struct tti_nccl_call c =
        call_of(TUTTI_BROADCAST, sendbuff, recvbuff, count, datatype, comm, stream);
    c.root = root;
    return tti_nccl_call(c);
}
TTI_NCCL_ALSO(Broadcast);

ncclResult_t pncclBcast(void *buff, size_t count, ncclDataType_t datatype, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    return pncclBroadcast(buff, buff, count, datatype, root, comm, stream);
}
TTI_NCCL_ALSO(Bcast);

ncclResult_t pncclReduce(const void *sendbuff, void *recvbuff, size_t count,
                         ncclDataType_t datatype, ncclRedOp_t op, int root, ncclComm_t comm,
                         cudaStream_t stream)
{
    struct tti_nccl_call c =
        call_of(TUTTI_REDUCE, sendbuff, recvbuff, count, datatype, comm, stream);
    c.op = op;
    c.root = root;
    return tti_nccl_call(c);
}
TTI_NCCL_ALSO(Reduce);

ncclResult_t pncclAllGather(const void *sendbuff, void *recvbuff, size_t sendcount,
                            ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    return tti_nccl_call(
        call_of(TUTTI_ALL_GATHER, sendbuff, recvbuff, sendcount, datatype, comm, stream));
}
TTI_NCCL_ALSO(AllGather);

ncclResult_t pncclReduceScatter(const void *sendbuff, void *recvbuff, size_t recvcount,
                                ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
                                cudaStream_t stream)
{
    struct tti_nccl_call c =
        call_of(TUTTI_REDUCE_SCATTER, sendbuff, recvbuff, recvcount, datatype, comm, stream);
    c.op = op;
    return tti_nccl_call(c);
}
TTI_NCCL_ALSO(ReduceScatter);

ncclResult_t pncclAlltoAll(const void *sendbuff, void *recvbuff, size_t count,
                           ncclDataType_t datatype, ncclComm_t comm, cudaStream_t stream)
{
    return tti_nccl_call(
        call_of(TUTTI_ALL_TO_ALL, sendbuff, recvbuff, count, datatype, comm, stream));
}
TTI_NCCL_ALSO(AlltoAll);

ncclResult_t pncclGather(const void *sendbuff, void *recvbuff, size_t count,
                         ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    struct tti_nccl_call c =
        call_of(TUTTI_GATHER, sendbuff, recvbuff, count, datatype, comm, stream);
    c.root = root;
    return tti_nccl_call(c);
}
TTI_NCCL_ALSO(Gather);

ncclResult_t pncclScatter(const void *sendbuff, void *recvbuff, size_t count,
                          ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream)
{
    struct tti_nccl_call c =
        call_of(TUTTI_SCATTER, sendbuff, recvbuff, count, datatype, comm, stream);
    c.root = root;
    return tti_nccl_call(c);
}
TTI_NCCL_ALSO(Scatter);

ncclResult_t pncclSend(const void *sendbuff, size_t count, ncclDataType_t datatype, int peer,
                       ncclComm_t comm, cudaStream_t stream)
{
    struct tti_nccl_call c =
        call_of(TUTTI_SEND_RECV, sendbuff, NULL, count, datatype, comm, stream);
    c.root = peer;
    return tti_nccl_call(c);
}
TTI_NCCL_ALSO(Send);

ncclResult_t pncclRecv(void *recvbuff, size_t count, ncclDataType_t datatype, int peer,
                       ncclComm_t comm, cudaStream_t stream)
{
    struct tti_nccl_call c =
        call_of(TUTTI_SEND_RECV, NULL, recvbuff, count, datatype, comm, stream);
    c.root = peer;
    c.receives = true;
    return tti_nccl_call(c);
}
TTI_NCCL_ALSO(Recv);
