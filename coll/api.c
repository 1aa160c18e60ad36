/* The public operations: make an operation of the arguments, check it, run or queue it. */
#include "base/memory.h"
#include "coll/algorithms/algorithms.h"
#include "coll/api_call.h"
#include "coll/comm.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/group.h"
#include "coll/small_plan.h"
#include "device/memory.h"

#include <stdlib.h>
#include <string.h>

/* Queue it on its stream. */
static enum tutti_result api_device(tutti_comm *comm, const struct tti_operation *operation,
                                    tutti_stream stream, tutti_request **request)
{
    enum tutti_result result = tti_gpu_room(comm, stream);
    if (result != TUTTI_OK)
        return TTI_CONTEXT(result, "%s", tti_operation_name(operation));
    if (!request)
        return tti_gpu_call(comm, operation, 1, &stream, 1, NULL);
    struct tutti_request *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->comm = comm;
    result = tti_gpu_call(comm, operation, 1, &stream, 1, &made->mark);
    if (result != TUTTI_OK) {
        free(made);
        return result;
    }
    *request = made;
    return TUTTI_OK;
}

enum tutti_result tti_api_nothing(tutti_comm *comm, tutti_request **request)
{
    if (comm->gpu)
        tti_gpu_ask(comm, false);
    TTI_TRY(tti_comm_works(comm));
    if (!request)
        return TUTTI_OK;
    struct tutti_request *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->comm = comm;
    *request = made;
    return TUTTI_OK;
}

/* This and api_part are the two halves of tti_api_call, for uneven.c apart, and without a call
 * there, where every message comes by. */
static inline enum tutti_result api_begin(tutti_comm *comm, const struct tti_operation *operation,
                                          bool async, tutti_stream stream, tutti_request **request)
{
    if (!comm)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: comm is NULL", tti_operation_name(operation));
    if (comm->forked)
        return tti_comm_check(comm);
    if (stream && !comm->gpu)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "%s: a stream was given, but no device is in use: NVIDIA's driver was not "
                        "loaded in this process when the communicator was made; use CUDA before, "
                        "or set TUTTI_DEVICE=cuda",
                        tti_operation_name(operation));
    if (async && !stream && !request)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "%s: request is NULL; without a stream it is needed to "
                        "know when the buffers are free again",
                        tti_operation_name(operation));
    return TUTTI_OK;
}

static inline enum tutti_result api_part(tutti_comm *comm, struct tti_operation *operation,
                                         bool async, tutti_stream stream, tutti_request **request)
{
    TTI_TRY(tti_operation_check(operation, comm));
    tti_operation_keep_factor(operation, comm);
    bool device = false;
    if (comm->gpu)
        TTI_TRY(tti_gpu_takes(comm, operation, stream, &device));
    if (tti_group_open())
        return tti_group_add(comm, operation, device, async, stream, async ? request : NULL);
    if (device)
        return api_device(comm, operation, stream, async ? request : NULL);
    if (tti_gpu_drops(comm, operation))
        return tti_api_nothing(comm, async ? request : NULL);
    TTI_TRY(tti_work_check(comm, operation, 1));
    if (comm->gpu)
        TTI_TRY(tti_gpu_before_host(comm));
    if (!async)
        return tti_work_run(comm, operation, 1);
    struct tutti_request *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    enum tutti_result result = tti_work_post(comm, operation, 1, true, &made->work);
    if (result != TUTTI_OK) {
        free(made);
        return result;
    }
    *request = made;
    return TUTTI_OK;
}

enum tutti_result tti_api_call(tutti_comm *comm, struct tti_operation *operation, bool async,
                               tutti_stream stream, tutti_request **request)
{
    TTI_TRY(api_begin(comm, operation, async, stream, request));
    return api_part(comm, operation, async, stream, request);
}

enum tutti_result tti_api_begin(tutti_comm *comm, const struct tti_operation *operation, bool async,
                                tutti_stream stream, tutti_request **request)
{
    return api_begin(comm, operation, async, stream, request);
}

enum tutti_result tti_api_part(tutti_comm *comm, struct tti_operation *operation, bool async,
                               tutti_stream stream, tutti_request **request)
{
    return api_part(comm, operation, async, stream, request);
}

/* A blocking call: at once if it is like one before (small_plan.h, fused.h). No message is: they
 * are numbered. */
static inline enum tutti_result api_blocking(tutti_comm *comm, struct tti_operation *operation)
{
    enum tutti_result known;
    if (comm && !comm->gpu && !tti_group_open() && tti_call_known(comm, operation, &known))
        return known;
    return tti_api_call(comm, operation, false, NULL, NULL);
}

/* ---- the operations: each in a form that waits and one that does not ---- */

static inline struct tti_operation api_moving(enum tutti_collective collective, const void *in,
                                              void *out, size_t count, enum tutti_type type,
                                              int root)
{
    return tti_operation_of(collective, in, out, count, type, (enum tutti_op)0, root);
}

static inline struct tti_operation api_receiving(void *out, size_t count, enum tutti_type type,
                                                 int peer)
{
    struct tti_operation operation = api_moving(TUTTI_SEND_RECV, NULL, out, count, type, peer);
    operation.receives = true;
    return operation;
}

static inline struct tti_operation api_barrier(tutti_comm *comm)
{
    uint8_t *token = comm ? &comm->token : NULL;
    return tti_operation_of(TUTTI_BARRIER, token, token, 1, TUTTI_UINT8, TUTTI_MAX, 0);
}

enum tutti_result tutti_all_reduce(const void *in, void *out, size_t count, enum tutti_type type,
                                   enum tutti_op op, tutti_comm *comm)
{
    struct tti_operation operation =
        tti_operation_of(TUTTI_ALL_REDUCE, in, out, count, type, op, 0);
    return api_blocking(comm, &operation);
}

enum tutti_result tutti_all_reduce_async(const void *in, void *out, size_t count,
                                         enum tutti_type type, enum tutti_op op, tutti_comm *comm,
                                         tutti_stream stream, tutti_request **request)
{
    struct tti_operation operation =
        tti_operation_of(TUTTI_ALL_REDUCE, in, out, count, type, op, 0);
    return tti_api_call(comm, &operation, true, stream, request);
}

enum tutti_result tutti_broadcast(const void *in, void *out, size_t count, enum tutti_type type,
                                  int root, tutti_comm *comm)
{
    struct tti_operation operation = api_moving(TUTTI_BROADCAST, in, out, count, type, root);
    return api_blocking(comm, &operation);
}

enum tutti_result tutti_broadcast_async(const void *in, void *out, size_t count,
                                        enum tutti_type type, int root, tutti_comm *comm,
                                        tutti_stream stream, tutti_request **request)
{
    struct tti_operation operation = api_moving(TUTTI_BROADCAST, in, out, count, type, root);
    return tti_api_call(comm, &operation, true, stream, request);
}

enum tutti_result tutti_reduce(const void *in, void *out, size_t count, enum tutti_type type,
                               enum tutti_op op, int root, tutti_comm *comm)
{
    struct tti_operation operation = tti_operation_of(TUTTI_REDUCE, in, out, count, type, op, root);
    return api_blocking(comm, &operation);
}

enum tutti_result tutti_reduce_async(const void *in, void *out, size_t count, enum tutti_type type,
                                     enum tutti_op op, int root, tutti_comm *comm,
                                     tutti_stream stream, tutti_request **request)
{
    struct tti_operation operation = tti_operation_of(TUTTI_REDUCE, in, out, count, type, op, root);
    return tti_api_call(comm, &operation, true, stream, request);
}

enum tutti_result tutti_reduce_scatter(const void *in, void *out, size_t count,
                                       enum tutti_type type, enum tutti_op op, tutti_comm *comm)
{
    struct tti_operation operation =
        tti_operation_of(TUTTI_REDUCE_SCATTER, in, out, count, type, op, 0);
    return api_blocking(comm, &operation);
}

enum tutti_result tutti_reduce_scatter_async(const void *in, void *out, size_t count,
                                             enum tutti_type type, enum tutti_op op,
                                             tutti_comm *comm, tutti_stream stream,
                                             tutti_request **request)
{
    struct tti_operation operation =
        tti_operation_of(TUTTI_REDUCE_SCATTER, in, out, count, type, op, 0);
    return tti_api_call(comm, &operation, true, stream, request);
}

enum tutti_result tutti_all_gather(const void *in, void *out, size_t count, enum tutti_type type,
                                   tutti_comm *comm)
{
    struct tti_operation operation = api_moving(TUTTI_ALL_GATHER, in, out, count, type, 0);
    return api_blocking(comm, &operation);
}

enum tutti_result tutti_all_gather_async(const void *in, void *out, size_t count,
                                         enum tutti_type type, tutti_comm *comm,
                                         tutti_stream stream, tutti_request **request)
{
    struct tti_operation operation = api_moving(TUTTI_ALL_GATHER, in, out, count, type, 0);
    return tti_api_call(comm, &operation, true, stream, request);
}

enum tutti_result tutti_all_to_all(const void *in, void *out, size_t count, enum tutti_type type,
                                   tutti_comm *comm)
{
    struct tti_operation operation = api_moving(TUTTI_ALL_TO_ALL, in, out, count, type, 0);
    return api_blocking(comm, &operation);
}

enum tutti_result tutti_all_to_all_async(const void *in, void *out, size_t count,
                                         enum tutti_type type, tutti_comm *comm,
                                         tutti_stream stream, tutti_request **request)
{
    struct tti_operation operation = api_moving(TUTTI_ALL_TO_ALL, in, out, count, type, 0);
    return tti_api_call(comm, &operation, true, stream, request);
}

enum tutti_result tutti_gather(const void *in, void *out, size_t count, enum tutti_type type,
                               int root, tutti_comm *comm)
{
    struct tti_operation operation = api_moving(TUTTI_GATHER, in, out, count, type, root);
    return api_blocking(comm, &operation);
}

enum tutti_result tutti_gather_async(const void *in, void *out, size_t count, enum tutti_type type,
                                     int root, tutti_comm *comm, tutti_stream stream,
                                     tutti_request **request)
{
    struct tti_operation operation = api_moving(TUTTI_GATHER, in, out, count, type, root);
    return tti_api_call(comm, &operation, true, stream, request);
}

enum tutti_result tutti_scatter(const void *in, void *out, size_t count, enum tutti_type type,
                                int root, tutti_comm *comm)
{
    struct tti_operation operation = api_moving(TUTTI_SCATTER, in, out, count, type, root);
    return api_blocking(comm, &operation);
}

enum tutti_result tutti_scatter_async(const void *in, void *out, size_t count, enum tutti_type type,
                                      int root, tutti_comm *comm, tutti_stream stream,
                                      tutti_request **request)
{
    struct tti_operation operation = api_moving(TUTTI_SCATTER, in, out, count, type, root);
    return tti_api_call(comm, &operation, true, stream, request);
}

enum tutti_result tutti_send(const void *in, size_t count, enum tutti_type type, int peer,
                             tutti_comm *comm)
{
    struct tti_operation operation = api_moving(TUTTI_SEND_RECV, in, NULL, count, type, peer);
    return tti_api_call(comm, &operation, false, NULL, NULL);
}

enum tutti_result tutti_send_async(const void *in, size_t count, enum tutti_type type, int peer,
                                   tutti_comm *comm, tutti_stream stream, tutti_request **request)
{
    struct tti_operation operation = api_moving(TUTTI_SEND_RECV, in, NULL, count, type, peer);
    return tti_api_call(comm, &operation, true, stream, request);
}

enum tutti_result tutti_recv(void *out, size_t count, enum tutti_type type, int peer,
                             tutti_comm *comm)
{
    struct tti_operation operation = api_receiving(out, count, type, peer);
    return tti_api_call(comm, &operation, false, NULL, NULL);
}

enum tutti_result tutti_recv_async(void *out, size_t count, enum tutti_type type, int peer,
                                   tutti_comm *comm, tutti_stream stream, tutti_request **request)
{
    struct tti_operation operation = api_receiving(out, count, type, peer);
    return tti_api_call(comm, &operation, true, stream, request);
}

enum tutti_result tutti_barrier(tutti_comm *comm)
{
    struct tti_operation operation = api_barrier(comm);
    return api_blocking(comm, &operation);
}

enum tutti_result tutti_barrier_async(tutti_comm *comm, tutti_stream stream,
                                      tutti_request **request)
{
    struct tti_operation operation = api_barrier(comm);
    return tti_api_call(comm, &operation, true, stream, request);
}

/* ---- requests ---- */

enum tutti_result tutti_test(tutti_request *request)
{
    if (!request)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_test: request is NULL");
    if (!request->work && !request->mark)
        return tti_comm_check(request->comm);
    return request->work ? tti_work_test(request->work)
                         : tti_gpu_mark_test(request->comm, request->mark);
}

enum tutti_result tutti_wait(tutti_request *request)
{
    if (!request)
        return TUTTI_OK;
    enum tutti_result result = request->work   ? tti_work_wait(request->work)
                               : request->mark ? tti_gpu_mark_wait(request->comm, request->mark)
                                               : tti_comm_check(request->comm);
    free(request);
    return result;
}

enum tutti_result tutti_wait_all(tutti_request **requests, size_t count)
{
    struct tti_error first = {.code = TUTTI_OK};
    for (size_t i = 0; i < count; i++) {
        enum tutti_result result = tutti_wait(requests[i]);
        if (result != TUTTI_OK && first.code == TUTTI_OK)
            tti_error_save(&first, result);
    }
    return first.code == TUTTI_OK ? TUTTI_OK : tti_error_restore(&first);
}

/* ---- memory ---- */

enum tutti_result tutti_alloc(size_t bytes, void **memory)
{
    if (!memory)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_alloc: memory is NULL");
    return tti_region_alloc(bytes, memory);
}

void tutti_free(void *memory)
{
    if (memory)
        (void)tti_region_free(memory);
}

enum tutti_result tutti_register(void *memory, size_t bytes)
{
    if (!memory)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_register: memory is NULL");
    return tti_region_register(memory, bytes);
}

enum tutti_result tutti_deregister(void *memory)
{
    return tti_region_deregister(memory);
}

/* ---- operators ---- */

enum tutti_result tutti_premul_sum_create(tutti_comm *comm, enum tutti_type type,
                                          const void *scalar, enum tutti_op *op)
{
    size_t size = tutti_type_size(type);
    if (!comm || !scalar || !op || !size)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "tutti_premul_sum_create: comm, scalar or op is NULL, or %d is no type",
                        (int)type);
    for (int i = 0; i < TTI_MAX_USER_OPS; i++) {
        struct tti_user_op *user = &comm->user_ops[i];
        int none = TTI_USER_OP_FREE;
        if (!atomic_compare_exchange_strong(&user->state, &none, TTI_USER_OP_MADE))
            continue;
        user->type = type;
        memcpy(user->scalar, scalar, size);
        atomic_store_explicit(&user->state, TTI_USER_OP_READY, memory_order_release);
        *op = (enum tutti_op)(TUTTI_OP_USER + i);
        return TUTTI_OK;
    }
    return TTI_FAIL(TUTTI_ERR_USAGE,
                    "tutti_premul_sum_create: all %d operators of this communicator are in use; "
                    "destroy some with tutti_op_destroy",
                    TTI_MAX_USER_OPS);
}

enum tutti_result tutti_op_destroy(tutti_comm *comm, enum tutti_op op)
{
    unsigned index = (unsigned)op - TUTTI_OP_USER;
    int ready = TTI_USER_OP_READY;
    if (!comm || (unsigned)op < TUTTI_OP_USER || index >= TTI_MAX_USER_OPS ||
        !atomic_compare_exchange_strong(&comm->user_ops[index].state, &ready, TTI_USER_OP_FREE))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "tutti_op_destroy: %d is no operator of this communicator", (int)op);
    return TUTTI_OK;
}

/* ---- names ---- */

const char *tutti_algorithm_name(enum tutti_collective collective, int index)
{
    const struct tti_algorithm *algorithm = index < 0 ? NULL : tti_algorithm_at(collective, index);
    return algorithm ? algorithm->name : NULL;
}

const char *tutti_transport_name(int index)
{
    const struct tutti_transport_ops *ops = index < 0 ? NULL : tti_transport_at(index);
    return ops ? ops->name : NULL;
}
