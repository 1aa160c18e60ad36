/* Groups (coll/group.h). At the end the calls of each communicator become work: a run of sends and
 * receives one batch, every collective one entry, in the order of the calls. */
#include "coll/group.h"

#include "base/memory.h"
#include "coll/comm.h"
#include "coll/gpu/gpu_calls.h"
#include "coll/roots.h"

#include <stdlib.h>
#include <string.h>

struct group_call {
    struct tutti_comm *comm;
    struct tti_operation operation;
    bool device;
    bool async;
    bool dropped; /* tti_gpu_drops: no part of a batch, nor between two */
    tutti_stream stream;
    struct tutti_request **request;
    struct tti_work *work; /* the first call of a batch holds the reference */
    bool posted;
    bool alone; /* one of several roots' that are better run one after another */
};

enum { GROUP_FEW = 8 };
struct group {
    int depth;
    bool any_order;                          /* its calls have none */
    bool several;                            /* it runs, and has several communicators */
    bool owns;                               /* blocks of some calls */
    struct group_call few[GROUP_FEW], *more; /* all lie in `more` once there are others */
    size_t count, capacity;                  /* of `more` */
    enum tutti_result failed;                /* an error while collecting */
    struct tti_error error;
};

static _Thread_local struct group group;

static struct group_call *group_calls(void)
{
    return group.more ? group.more : group.few;
}

static enum tutti_result group_grow(void)
{
    if (!group.more && group.count < GROUP_FEW)
        return TUTTI_OK;
    void *more = group.more;
    TTI_TRY(tti_grow(&more, &group.capacity, group.count + 1, sizeof *group.more));
    if (!group.more)
        memcpy(more, group.few, sizeof group.few);
    group.more = more;
    return TUTTI_OK;
}

bool tti_group_several(void)
{
    return group.several;
}

size_t tti_group_place(void)
{
    return group.count;
}

void tti_group_return(size_t place)
{
    for (size_t i = place; i < group.count && group.owns; i++)
        free((void *)(uintptr_t)group_calls()[i].operation.blocks);
    if (group.count > place)
        group.count = place;
}

static void group_clear(void)
{
    tti_group_return(0);
    free(group.more);
    group.more = NULL;
    group.capacity = 0;
    group.any_order = group.owns = false;
    group.depth = 0;
}

bool tti_group_open(void)
{
    return group.depth > 0;
}

void tti_group_any_order(void)
{
    group.any_order = true;
}

enum tutti_result tti_group_refuse(const char *call)
{
    if (!tti_group_open())
        return TUTTI_OK;
    return TTI_FAIL(TUTTI_ERR_USAGE,
                    "%s: not between tutti_group_start and tutti_group_end, as it waits for the "
                    "other ranks",
                    call);
}

enum tutti_result tti_group_add(struct tutti_comm *comm, const struct tti_operation *operation,
                                bool device, bool async, tutti_stream stream,
                                struct tutti_request **request)
{
    enum tutti_result result = group_grow();
    /* Every field is named: see tti_operation_of. */
    const struct tti_blocks *blocks = NULL;
    if (result == TUTTI_OK && operation->blocks)
        result = tti_blocks_copy(operation->blocks, &blocks);
    if (result != TUTTI_OK) {
        group.failed = result;
        tti_error_save(&group.error, result);
        return result;
    }
    struct group_call *call = &group_calls()[group.count++];
    *call = (struct group_call){.comm = comm,
                                .operation = *operation,
                                .device = device,
                                .async = async,
                                .dropped = tti_gpu_drops(comm, operation),
                                .stream = stream,
                                .request = request,
                                .work = NULL,
                                .posted = false,
                                .alone = false};
    if (blocks) { /* a store in the midst of others that are read as one soon takes its time */
        call->operation.blocks = blocks;
        group.owns = true;
    }
    return TUTTI_OK;
}

enum tutti_result tutti_group_start(void)
{
    if (group.depth++ == 0) {
        group.count = 0;
        group.failed = TUTTI_OK;
    }
    return TUTTI_OK;
}

static bool group_several_comms(void)
{
    const struct group_call *calls = group_calls();
    for (size_t i = 1; i < group.count; i++)
        if (calls[i].comm != calls[0].comm)
            return true;
    return false;
}

static bool group_joins(const struct group_call *first, const struct group_call *call)
{
    return call->comm == first->comm && call->device == first->device && !call->dropped &&
           first->operation.collective == TUTTI_SEND_RECV &&
           call->operation.collective == TUTTI_SEND_RECV &&
           first->operation.alone == TTI_NOT_ALONE && call->operation.alone == TTI_NOT_ALONE;
}

/* Fill in a request for a call that was posted; frees it on failure. */
static enum tutti_result group_request(const struct group_call *call, struct tti_work *work,
                                       struct tutti_request *request)
{
    if (call->device) {
        enum tutti_result result = tti_gpu_mark_make(call->comm, call->stream, &request->mark);
        if (result != TUTTI_OK) {
            free(request);
            return result;
        }
    } else {
        tti_work_keep(work);
    }
    request->work = work;
    request->comm = call->comm;
    return TUTTI_OK;
}

/* The operations that are posted at once, and the streams of the calls that they are of. */
struct group_batch {
    struct tti_operation few[GROUP_FEW], *ops;
    tutti_stream few_streams[GROUP_FEW], *streams;
    size_t count, stream_count;
};

static enum tutti_result batch_begin(struct group_batch *batch, size_t most)
{
    batch->ops = batch->few;
    batch->streams = batch->few_streams;
    batch->count = batch->stream_count = 0;
    if (most <= GROUP_FEW)
        return TUTTI_OK;
    batch->ops = tti_calloc(most, sizeof *batch->ops);
    batch->streams = tti_calloc(most, sizeof *batch->streams);
    return batch->ops && batch->streams ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static void batch_end(struct group_batch *batch)
{
    if (batch->ops != batch->few)
        free(batch->ops);
    if (batch->streams != batch->few_streams)
        free(batch->streams);
}

static void batch_fill(struct group_batch *batch, size_t first)
{
    const struct group_call *calls = group_calls(), *head = &calls[first];
    for (size_t i = first; i < group.count; i++) {
        const struct group_call *call = &calls[i];
        const bool between = call->comm == head->comm && !call->dropped;
        if (i > first && between && !group_joins(head, call))
            break;
        if (i == first || (group_joins(head, call) && !call->posted)) {
            batch->ops[batch->count] = call->operation;
            batch->count++;
            batch->streams[batch->stream_count++] = call->stream;
        }
    }
}

static enum tutti_result batch_post(const struct group_batch *batch, struct group_call *head,
                                    bool thread)
{
    if (head->device)
        return tti_gpu_call(head->comm, batch->ops, batch->count, batch->streams,
                            batch->stream_count, NULL);
    TTI_TRY(tti_work_check(head->comm, batch->ops, batch->count));
    if (head->comm->gpu)
        TTI_TRY(tti_gpu_before_host(head->comm));
    /* All there is, and it is waited for: here, if it can be. */
    if (!thread && batch->count == group.count)
        return tti_work_run(head->comm, batch->ops, batch->count);
    return tti_work_post(head->comm, batch->ops, batch->count, thread, &head->work);
}

/* Who asked for a request has it when the call is posted. */
static enum tutti_result group_answer(const struct group_call *call, struct tti_work *work)
{
    if (!call->request)
        return TUTTI_OK;
    struct tutti_request *request = tti_calloc(1, sizeof *request);
    if (!request)
        return TUTTI_ERR_MEMORY; /* the work itself is waited for by the group */
    TTI_TRY(group_request(call, work, request));
    *call->request = request;
    return TUTTI_OK;
}

/* Post call `first` and, when it is a send or receive, all others of its communicator up to that
 * communicator's next collective, put, signal or wait. */
static enum tutti_result group_post(size_t first, bool thread)
{
    struct group_call *calls = group_calls(), *head = &calls[first];
    struct group_batch batch;
    enum tutti_result result = batch_begin(&batch, group.count - first);
    if (result == TUTTI_OK) {
        batch_fill(&batch, first);
        result = batch_post(&batch, head, thread);
    }
    batch_end(&batch);
    TTI_TRY(result);
    for (size_t i = first, seen = 0; seen < batch.count; i++) {
        struct group_call *call = &calls[i];
        if (i != first && !group_joins(head, call))
            continue;
        call->posted = true;
        seen++;
        TTI_TRY(group_answer(call, head->work));
    }
    return TUTTI_OK;
}

/* ---- broadcasts or reduces of several roots, all at once ---- */

/* The next call from `from` on that is one of them, or group.count: no other of the communicator's
 * comes between. */
static size_t roots_next(struct tti_roots *r, size_t from)
{
    const struct group_call *calls = group_calls();
    while (from < group.count && (calls[from].comm != r->comm || calls[from].dropped))
        from++;
    const bool taken = from < group.count && calls[from].device && !calls[from].posted &&
                       tti_roots_take(r, &calls[from].operation);
    return taken ? from : group.count;
}

static enum tutti_result roots_fill(struct group_batch *batch, size_t first,
                                    struct tutti_comm *comm)
{
    const struct group_call *calls = group_calls();
    struct tti_roots again;
    tti_roots_begin(&again, comm);
    for (size_t i = first; (i = roots_next(&again, i)) < group.count; i++) {
        TTI_TRY(tti_roots_add(comm, &calls[i].operation, batch->ops, &batch->count));
        if (calls[i].operation.count > 0)
            batch->streams[batch->stream_count++] = calls[i].stream;
    }
    return TUTTI_OK;
}

static enum tutti_result roots_post(size_t first, const struct tti_roots *found)
{
    struct group_call *calls = group_calls();
    struct tti_roots again;
    struct group_batch batch;
    const size_t room = tti_roots_room(found);
    enum tutti_result result = batch_begin(&batch, room > found->calls ? room : found->calls);
    if (result == TUTTI_OK)
        result = roots_fill(&batch, first, found->comm);
    if (result == TUTTI_OK)
        result = tti_gpu_call(found->comm, batch.ops, batch.count, batch.streams,
                              batch.stream_count, NULL);
    tti_roots_end(batch.ops, batch.count);
    batch_end(&batch);
    tti_roots_begin(&again, found->comm);
    for (size_t i = first; result == TUTTI_OK && (i = roots_next(&again, i)) < group.count; i++) {
        calls[i].posted = true;
        result = group_answer(&calls[i], NULL);
    }
    return result;
}

/* *posted stays false where they are better run one after another: all of them then, since the last
 * few would look as if they were not. */
static enum tutti_result group_post_roots(size_t first, bool *posted)
{
    struct group_call *calls = group_calls();
    struct tti_roots found;
    *posted = false;
    if (!calls[first].device || calls[first].alone)
        return TUTTI_OK;
    tti_roots_begin(&found, calls[first].comm);
    for (size_t i = first; (i = roots_next(&found, i)) < group.count; i++)
        calls[i].alone = true;
    *posted = tti_roots_suit(&found);
    return *posted ? roots_post(first, &found) : TUTTI_OK;
}

/* Blocking calls are waited for here; asynchronous ones have their requests. */
static enum tutti_result group_collect(enum tutti_result result)
{
    const struct group_call *calls = group_calls();
    bool waits[2] = {false, false};
    for (size_t i = 0; i < group.count; i++)
        waits[calls[i].async] = true;
    for (size_t i = 0; i < group.count; i++) {
        struct tti_work *work = calls[i].work;
        if (!work)
            continue;
        if (!waits[0] && result == TUTTI_OK) {
            tti_work_release(work);
            continue;
        }
        struct tti_error before;
        tti_error_save(&before, result);
        enum tutti_result one = tti_work_wait(work);
        if (result == TUTTI_OK)
            result = one;
        else
            (void)tti_error_restore(&before);
    }
    return result;
}

static enum tutti_result group_room(size_t from, size_t end)
{
    for (size_t i = from; i < end; i++) {
        const struct group_call *call = &group_calls()[i];
        const enum tutti_result result =
            call->device ? tti_gpu_room(call->comm, call->stream) : TUTTI_OK;
        if (result != TUTTI_OK)
            return TTI_CONTEXT(result, "%s", tti_operation_name(&call->operation));
    }
    return TUTTI_OK;
}

/* Who asked for a request gets one, that of the stream's point now if there is a stream. */
static enum tutti_result group_drop(const struct group_call *call)
{
    if (!call->request)
        return TUTTI_OK;
    struct tutti_request *request = tti_calloc(1, sizeof *request);
    if (!request)
        return TUTTI_ERR_MEMORY;
    request->comm = call->comm;
    const enum tutti_result result = call->device ? tti_gpu_call(call->comm, &call->operation, 1,
                                                                 &call->stream, 1, &request->mark)
                                                  : TUTTI_OK;
    if (result == TUTTI_OK)
        *call->request = request;
    else
        free(request);
    return result;
}

static enum tutti_result group_run(void)
{
    const struct group_call *calls = group_calls();
    bool async = false;
    for (size_t i = 0; i < group.count; i++)
        async |= calls[i].async;
    const bool several = group.several = group_several_comms();
    const bool thread = async || several;
    /* What several communicators queue may wait for each other: no waiting between them. */
    enum tutti_result result = group_room(0, several ? group.count : 0);
    for (size_t i = 0; i < group.count && result == TUTTI_OK; i++) {
        if (calls[i].posted || calls[i].dropped)
            continue;
        result = several ? TUTTI_OK : group_room(i, i + 1);
        if (result != TUTTI_OK && i > 0) /* what is queued cannot be taken back */
            result = tti_comm_fail(calls[i].comm, result);
        bool gone = false;
        if (result == TUTTI_OK && group.any_order)
            result = group_post_roots(i, &gone);
        if (result == TUTTI_OK && !gone)
            result = group_post(i, thread);
    }
    for (size_t i = 0; i < group.count && result == TUTTI_OK; i++)
        result = calls[i].dropped ? group_drop(&calls[i]) : TUTTI_OK;
    group.several = false;
    return group_collect(result);
}

enum tutti_result tutti_group_end(void)
{
    if (group.depth == 0)
        return TTI_FAIL(TUTTI_ERR_USAGE, "tutti_group_end without tutti_group_start");
    if (--group.depth > 0)
        return TUTTI_OK;
    enum tutti_result result =
        group.failed != TUTTI_OK ? tti_error_restore(&group.error) : group_run();
    group_clear();
    return result;
}

void tti_group_forget(const struct tutti_comm *comm)
{
    const struct group_call *calls = group_calls();
    size_t first = 0;
    while (first < group.count && calls[first].comm != comm)
        first++;
    if (first == group.count)
        return;
    if (group.failed == TUTTI_OK) {
        group.failed = TTI_FAIL(TUTTI_ERR_USAGE,
                                "the communicator of %s was destroyed before tutti_group_end; no "
                                "call of the group was run",
                                tti_operation_name(&calls[first].operation));
        tti_error_save(&group.error, group.failed);
    }
    tti_group_return(0);
}

void tti_group_discard(void)
{
    group_clear();
}
