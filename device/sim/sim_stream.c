/* Streams of the simulated device: a host thread each, that does what is queued, in order. What one
 * piece of work does is tti_sim_op_run below. */
#include "device/sim/sim_state.h"

#include "base/clock.h"
#include "base/futex.h"
#include "base/memory.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { DESTROY_SECONDS = 60, WORDWISE_BYTES = 4096 };

struct tti_sim_stream {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* for the thread */
    pthread_cond_t through; /* for those who wait for it */
    pthread_t thread;
    int device;
    struct tti_sim_op *first, **last;
    bool busy, ending;
    _Atomic uint64_t give_up; /* when waits end even so; 0: never */
    struct tti_error error;   /* the first */
    struct tti_sim_capture *capture;
};

static struct tti_sim_stream *stream_defaults[TTI_SIM_MOST_DEVICES];
static pthread_mutex_t stream_defaults_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- What is done -----------------------------------------------------------------------------
 */

/* Sleep if it is too early to go on; false: it is not. A word's writer wakes who sleeps on it if
 * it is a stream. */
static bool op_rest(const struct tti_sim_op *op, int round)
{
    if (op->kind == TTI_SIM_HOLD) {
        if (tti_sim_event_passed(op->event, op->value))
            return false;
        tti_sim_event_await(op->event, op->value, TTI_SIM_REST_NS);
        return true;
    }
    const uint32_t now = __atomic_load_n((const uint32_t *)op->src, __ATOMIC_ACQUIRE);
    if ((int32_t)(now - op->value) >= 0)
        return false;
    tti_futex_wait(op->src, now, tti_nap_ns(round));
    return true;
}

static enum tutti_result op_wait(const struct tti_sim_op *op, const _Atomic uint64_t *give_up)
{
    for (int round = 0; op_rest(op, round); round++) {
        const uint64_t end = atomic_load_explicit(give_up, memory_order_relaxed);
        if (end && tti_deadline_passed(end))
            return TTI_FAIL(TUTTI_ERR_TIMEOUT, "simulated device: a stream that is destroyed still "
                                               "waited for a word or an event");
    }
    return TUTTI_OK;
}

/* A GPU copies aligned words whole, so that flags may be read and raised by copies while others
 * look at them, and what a stream did before is seen first: short copies do so here, too. Long ones
 * are of data, which nobody writes meanwhile. */
static void op_copy(const struct tti_sim_op *op)
{
    const size_t word = sizeof(uint32_t);
    if (op->bytes > WORDWISE_BYTES || op->bytes % word || (uintptr_t)op->dst % word ||
        (uintptr_t)op->src % word) {
        memmove(op->dst, op->src, op->bytes);
        return;
    }
    const uint32_t *src = op->src;
    uint32_t *dst = op->dst;
    for (size_t i = 0; i < op->bytes / word; i++)
        __atomic_store_n(&dst[i], __atomic_load_n(&src[i], __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}

/* Of much that is cleared most is not touched: a communicator's arena. Whole pages that a file is
 * behind, as behind a device's memory, are given back, and read as zeros. */
static void op_fill(const struct tti_sim_op *op)
{
    enum { PAGE = 4096, MUCH = 256 << 10 };
    char *at = op->dst, *end = at + op->bytes;
    if (op->value == 0 && op->bytes >= MUCH) {
        char *from = at + (PAGE - (uintptr_t)at % PAGE) % PAGE, *to = end - (uintptr_t)end % PAGE;
        if (madvise(from, (size_t)(to - from), MADV_REMOVE) == 0) {
            memset(at, 0, (size_t)(from - at));
            at = to;
        }
    }
    memset(at, (int)op->value, (size_t)(end - at));
}

enum tutti_result tti_sim_op_run(const struct tti_sim_op *op, const _Atomic uint64_t *give_up)
{
    switch (op->kind) {
    case TTI_SIM_COPY:
        op_copy(op);
        return TUTTI_OK;
    case TTI_SIM_FILL:
        op_fill(op);
        return TUTTI_OK;
    case TTI_SIM_LAUNCH:
        return tti_sim_run(op->device, &op->launch);
    case TTI_SIM_CALL:
        op->call(op->dst);
        return TUTTI_OK;
    case TTI_SIM_WRITE:
        __atomic_store_n((uint32_t *)op->dst, op->value, __ATOMIC_RELEASE);
        tti_futex_wake(op->dst, INT_MAX);
        return TUTTI_OK;
    case TTI_SIM_RECORD: /* by the stream, or done: captured */
        return TUTTI_OK;
    case TTI_SIM_WAIT:
    case TTI_SIM_HOLD:
        return op_wait(op, give_up);
    case TTI_SIM_GRAPH:
        return tti_sim_graph_run(op->graph, give_up);
    }
    return TUTTI_OK;
}

struct tti_sim_op *tti_sim_op_copy(const struct tti_sim_op *op)
{
    enum { ALIGNED = 16 };
    const size_t args_at = (sizeof *op + ALIGNED - 1) / ALIGNED * ALIGNED;
    struct tti_sim_op *copy = tti_calloc(1, args_at + op->launch.args_bytes);
    if (!copy)
        return NULL;
    *copy = *op;
    copy->next = NULL;
    if (op->launch.args_bytes > 0) {
        copy->launch.args = (char *)copy + args_at;
        memcpy((char *)copy + args_at, op->launch.args, op->launch.args_bytes);
    }
    if (copy->event)
        tti_sim_event_keep(copy->event);
    if (copy->graph)
        tti_sim_graph_keep(copy->graph);
    return copy;
}

void tti_sim_op_release(struct tti_sim_op *op)
{
    if (op->event)
        tti_sim_event_destroy(op->event);
    if (op->graph)
        tti_sim_graph_destroy(op->graph);
    free(op);
}

/* ---- The thread -------------------------------------------------------------------------------
 */

static void *stream_main(void *argument)
{
    struct tti_sim_stream *stream = argument;
    pthread_mutex_lock(&stream->lock);
    for (;;) {
        struct tti_sim_op *op = stream->first;
        if (!op && stream->ending)
            break;
        if (!op) {
            pthread_cond_wait(&stream->changed, &stream->lock);
            continue;
        }
        stream->first = op->next;
        if (!stream->first)
            stream->last = &stream->first;
        stream->busy = true;
        const bool failed = stream->error.code != TUTTI_OK; /* which only this thread sets */
        /* After a failure only points are passed, so that nobody waits for this stream for ever.
         * Under the lock: who sees the last point passed finds the stream idle, and the reverse. */
        if (op->kind == TTI_SIM_RECORD) {
            if (failed)
                tti_sim_event_failed(op->event, &stream->error);
            tti_sim_event_reached(op->event, op->value);
            stream->busy = false;
        }
        pthread_mutex_unlock(&stream->lock);
        const enum tutti_result result =
            failed || op->kind == TTI_SIM_RECORD ? TUTTI_OK : tti_sim_op_run(op, &stream->give_up);
        tti_sim_op_release(op);
        pthread_mutex_lock(&stream->lock);
        stream->busy = false;
        if (result != TUTTI_OK && stream->error.code == TUTTI_OK)
            tti_error_save(&stream->error, result);
        if (!stream->first)
            pthread_cond_broadcast(&stream->through);
    }
    pthread_mutex_unlock(&stream->lock);
    return NULL;
}

static enum tutti_result stream_new(int device, struct tti_sim_stream **made)
{
    struct tti_sim_stream *stream = tti_calloc(1, sizeof *stream);
    if (!stream)
        return TUTTI_ERR_MEMORY;
    pthread_mutex_init(&stream->lock, NULL);
    pthread_cond_init(&stream->changed, NULL);
    tti_cond_init(&stream->through);
    stream->device = device;
    stream->last = &stream->first;
    const int error = pthread_create(&stream->thread, NULL, stream_main, stream);
    if (error) {
        pthread_cond_destroy(&stream->through);
        pthread_cond_destroy(&stream->changed);
        pthread_mutex_destroy(&stream->lock);
        free(stream);
        errno = error;
        return TTI_FAIL_ERRNO("simulated device: making a stream's thread");
    }
    *made = stream;
    return TUTTI_OK;
}

static void stream_end(struct tti_sim_stream *stream)
{
    if (!stream)
        return;
    atomic_store_explicit(&stream->give_up, tti_deadline_in(DESTROY_SECONDS), memory_order_relaxed);
    pthread_mutex_lock(&stream->lock);
    stream->ending = true;
    pthread_cond_signal(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    pthread_join(stream->thread, NULL);
    pthread_cond_destroy(&stream->through);
    pthread_cond_destroy(&stream->changed);
    pthread_mutex_destroy(&stream->lock);
    free(stream);
}

/* ---- Operations -------------------------------------------------------------------------------
 */

enum tutti_result tti_sim_stream_create(struct tti_gpu *gpu, tutti_stream *stream)
{
    struct tti_sim_stream *made = NULL;
    TTI_TRY(stream_new(gpu->device, &made));
    *stream = made;
    return TUTTI_OK;
}

void tti_sim_stream_destroy(struct tti_gpu *gpu, tutti_stream stream)
{
    (void)gpu;
    stream_end(stream);
}

void tti_sim_default_stream_end(struct tti_gpu *gpu)
{
    pthread_mutex_lock(&stream_defaults_lock);
    struct tti_sim_stream *stream = stream_defaults[gpu->device];
    stream_defaults[gpu->device] = NULL;
    pthread_mutex_unlock(&stream_defaults_lock);
    stream_end(stream);
}

enum tutti_result tti_sim_stream_of(int device, tutti_stream stream, struct tti_sim_stream **of)
{
    if (stream) {
        *of = stream;
        return TUTTI_OK;
    }
    enum tutti_result result = TUTTI_OK;
    pthread_mutex_lock(&stream_defaults_lock);
    if (!stream_defaults[device])
        result = stream_new(device, &stream_defaults[device]);
    *of = stream_defaults[device];
    pthread_mutex_unlock(&stream_defaults_lock);
    return result;
}

enum tutti_result tti_sim_stream_query(struct tti_gpu *gpu, tutti_stream handle)
{
    struct tti_sim_stream *stream;
    TTI_TRY(tti_sim_stream_of(gpu->device, handle, &stream));
    pthread_mutex_lock(&stream->lock);
    const bool idle = !stream->first && !stream->busy;
    struct tti_sim_capture *capture = stream->capture;
    const struct tti_error error = stream->error;
    pthread_mutex_unlock(&stream->lock);
    if (capture)
        return tti_sim_capture_spoil(capture, "waiting for a stream under capture");
    if (!idle)
        return TUTTI_IN_PROGRESS;
    return error.code == TUTTI_OK ? TUTTI_OK : tti_error_restore(&error);
}

void tti_sim_stream_rest(struct tti_gpu *gpu, tutti_stream handle)
{
    struct tti_sim_stream *stream;
    if (tti_sim_stream_of(gpu->device, handle, &stream) != TUTTI_OK)
        return;
    pthread_mutex_lock(&stream->lock);
    if (stream->first || stream->busy)
        (void)tti_cond_wait(&stream->through, &stream->lock, tti_now_ns() + TTI_SIM_REST_NS);
    pthread_mutex_unlock(&stream->lock);
}

enum tutti_result tti_sim_stream_device(tutti_stream stream, int *device)
{
    *device = stream ? ((const struct tti_sim_stream *)stream)->device : 0;
    return TUTTI_OK;
}

enum tutti_result tti_sim_stream_fits(const struct tti_gpu *gpu, tutti_stream stream,
                                      const char *what)
{
    int device = gpu->device;
    if (stream)
        TTI_TRY(tti_sim_stream_device(stream, &device));
    if (device != gpu->device)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "simulated device %d: %s cannot go on a stream of device %d", gpu->device,
                        what, device);
    return TUTTI_OK;
}

struct tti_sim_capture *tti_sim_stream_capture(struct tti_sim_stream *stream)
{
    pthread_mutex_lock(&stream->lock);
    struct tti_sim_capture *capture = stream->capture;
    pthread_mutex_unlock(&stream->lock);
    return capture;
}

void tti_sim_stream_set_capture(struct tti_sim_stream *stream, struct tti_sim_capture *capture)
{
    pthread_mutex_lock(&stream->lock);
    stream->capture = capture;
    pthread_mutex_unlock(&stream->lock);
}

enum tutti_result tti_sim_enqueue(struct tti_gpu *gpu, tutti_stream handle,
                                  const struct tti_sim_op *op)
{
    struct tti_sim_stream *stream;
    TTI_TRY(tti_sim_stream_of(gpu->device, handle, &stream));
    tti_gpu_count(gpu);
    struct tti_sim_capture *capture = tti_sim_stream_capture(stream);
    if (capture)
        return tti_sim_capture_add(capture, op);
    struct tti_sim_op *copy = tti_sim_op_copy(op);
    if (!copy)
        return TUTTI_ERR_MEMORY;
    pthread_mutex_lock(&stream->lock);
    *stream->last = copy;
    stream->last = &copy->next;
    pthread_cond_signal(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return TUTTI_OK;
}
