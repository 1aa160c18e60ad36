/* Streams, events and graphs of the fake CUDA driver (fake_cuda.c). They are the simulated
 * device's, with what NVIDIA's driver makes callers wait for and refuses (CUDA's documentation: API
 * synchronization behavior, stream capture, cuLaunchHostFunc): a copy that has pageable memory at
 * an end returns when its stream has come that far; freeing memory waits for all that is queued on
 * the device; a function called by a stream may not use the driver. So code that would wait for
 * itself on a GPU does so here, and is told. */
#include "tests/device/fake_cuda.h"

#include "base/clock.h"

#include <pthread.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STREAMS = 1024, PATIENCE_SECONDS = 60 };
/* Commands that a stream holds: some 1000, seen in points so many apart. */
enum { QUEUE_MARKS = 8, QUEUE_STEP = 128 };

static void *at(tti_cu_ptr address)
{
    return (void *)(uintptr_t)address;
}

/* ---- Captures ---------------------------------------------------------------------------------
 */

/* Stricter than the driver: while anybody captures, what may be unsafe (allocations, queries and so
 * on) is refused to every thread that has not said that it knows. */
static _Atomic int captures;
static __thread unsigned capture_mode;
bool fake_refused(void)
{
    return captures > 0 && capture_mode != TTI_CU_CAPTURE_RELAXED;
}
DRIVER cuThreadExchangeStreamCaptureMode(unsigned *mode)
{
    const unsigned before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return TTI_CU_OK;
}

/* ---- Waiting for the device -------------------------------------------------------------------
 */

/* Those there are, and (NULL) the default streams in use. Held while one may come under capture, so
 * that nothing is recorded there by mistake. */
static struct {
    int device;
    tti_cu_stream stream;
    unsigned commands;
    struct tti_gpu_event *marks[QUEUE_MARKS];
} streams[MOST_STREAMS];
static int stream_count;
static pthread_mutex_t stream_lock = PTHREAD_MUTEX_INITIALIZER;

/* Under the lock. */
static int stream_find(int device, tti_cu_stream stream)
{
    for (int i = 0; i < stream_count; i++)
        if (streams[i].device == device && streams[i].stream == stream)
            return i;
    return -1;
}

static void stream_note(int device, tti_cu_stream stream)
{
    pthread_mutex_lock(&stream_lock);
    if (stream_find(device, stream) < 0 && stream_count < MOST_STREAMS) {
        memset(&streams[stream_count], 0, sizeof streams[stream_count]);
        streams[stream_count].device = device;
        streams[stream_count++].stream = stream;
    }
    pthread_mutex_unlock(&stream_lock);
}

/* The device's default stream is made at its first use. */
static tti_cu_stream stream_used(tti_cu_stream stream)
{
    if (!stream && fake_now())
        stream_note(fake_now()->device, NULL);
    return stream;
}

/* A point in the stream, if it is not under capture. */
static struct tti_gpu_event *stream_point(tti_cu_stream stream)
{
    struct tti_gpu_event *event = NULL;
    uint64_t capture = 0;
    (void)fake_ops()->capture_id(fake_now(), stream, &capture);
    if (capture || fake_ops()->event_create(fake_now(), 0, &event) != TUTTI_OK)
        return NULL;
    (void)fake_ops()->event_record(event, stream);
    return event;
}

/* Waits for the point and lets it go. */
static unsigned point_wait(struct tti_gpu_event *event, const char *what)
{
    if (!event)
        return TTI_CU_OK;
    const enum tutti_result result =
        tti_gpu_event_wait(fake_now(), event, tti_deadline_in(PATIENCE_SECONDS), what);
    if (result == TUTTI_ERR_TIMEOUT)
        fprintf(stderr,
                "the fake CUDA driver: %s waits for work that does not end; on a GPU it would wait "
                "for ever\n",
                what);
    fake_ops()->event_destroy(event);
    return result == TUTTI_ERR_TIMEOUT ? FAKE_UNKNOWN : TTI_CU_OK;
}

unsigned fake_drain(const char *what)
{
    struct tti_gpu_event *points[MOST_STREAMS];
    unsigned code = TTI_CU_OK;
    int count = 0;
    if (!fake_now())
        return TTI_CU_NO_CONTEXT;
    pthread_mutex_lock(&stream_lock);
    for (int i = 0; i < stream_count; i++)
        if (streams[i].device == fake_now()->device)
            points[count++] = stream_point(streams[i].stream);
    pthread_mutex_unlock(&stream_lock);
    for (int i = 0; i < count; i++) {
        const unsigned now = point_wait(points[i], what);
        code = code == TTI_CU_OK ? now : code;
    }
    return code;
}

unsigned fake_finish(tti_cu_stream stream, const char *what)
{
    pthread_mutex_lock(&stream_lock);
    struct tti_gpu_event *point = stream_point(stream);
    pthread_mutex_unlock(&stream_lock);
    return point_wait(point, what);
}

/* ---- Queues -----------------------------------------------------------------------------------
 *
 * A stream takes some 1000 commands, and then a call waits for room. Whether the driver lets other
 * threads of the context in meanwhile is written nowhere, nor for copies of pageable memory, which
 * wait inside the driver as well: here it does not. So who waits inside the driver for a rank whose
 * thread has still to call it is found out. */

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;

/* CUDA_SCALE_LAUNCH_QUEUES=0.25x: fewer. */
static unsigned queue_step(void)
{
    const char *text = getenv("CUDA_SCALE_LAUNCH_QUEUES");
    const double scale = text ? atof(text) : 1;
    return scale > 0 && scale < 1 ? (unsigned)(QUEUE_STEP * scale) : QUEUE_STEP;
}

/* Under the queue's lock: the mark to be recorded now, which is reached; NULL: none. */
static unsigned queue_mark(tti_cu_stream stream, struct tti_gpu_event **mark)
{
    struct tti_gpu_event **place = NULL;
    pthread_mutex_lock(&stream_lock);
    const int i = stream_find(fake_now()->device, stream);
    const unsigned step = queue_step();
    if (i >= 0 && ++streams[i].commands % step == 0)
        place = &streams[i].marks[streams[i].commands / step % QUEUE_MARKS];
    if (place && !*place && fake_ops()->event_create(fake_now(), 0, place) != TUTTI_OK)
        place = NULL;
    *mark = place ? *place : NULL;
    pthread_mutex_unlock(&stream_lock);
    if (!*mark || tti_gpu_event_wait(fake_now(), *mark, tti_deadline_in(PATIENCE_SECONDS),
                                     "the fake driver") == TUTTI_OK)
        return TTI_CU_OK;
    fprintf(stderr, "the fake CUDA driver: a stream's queue is full and does not move; on a GPU "
                    "the call might never return\n");
    return FAKE_UNKNOWN;
}

unsigned fake_queue_begin(tti_cu_stream stream)
{
    struct tti_gpu_event *mark = NULL;
    uint64_t capture = 0;
    pthread_mutex_lock(&queue_lock);
    if (!fake_now() || (stream && (fake_ops()->capture_id(fake_now(), stream, &capture), capture)))
        return TTI_CU_OK;
    const unsigned result = queue_mark(stream_used(stream), &mark);
    if (result == TTI_CU_OK && mark)
        (void)fake_ops()->event_record(mark, stream);
    return result;
}

void fake_queue_end(void)
{
    pthread_mutex_unlock(&queue_lock);
}

/* Not for us, but for programs that are tested on us (fake_cudart.c). */
DRIVER cuCtxSynchronize(void)
{
    return fake_refused() ? (unsigned)TTI_CU_CAPTURE_FIRST : fake_drain("cuCtxSynchronize");
}

static bool pageable(tti_cu_ptr address)
{
    struct tti_gpu_pointer info;
    return fake_ops()->pointer(at(address), &info) == TUTTI_OK && info.kind == TTI_MEMORY_HOST;
}

/* ---- Streams ----------------------------------------------------------------------------------
 */

DRIVER cuStreamCreate(tti_cu_stream *stream, unsigned flags)
{
    (void)flags;
    const unsigned result =
        IN_CONTEXT(fake_ops()->stream_create(fake_now(), (tutti_stream *)(void *)stream));
    if (result == TTI_CU_OK)
        stream_note(fake_now()->device, *stream);
    return result;
}
DRIVER cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return fake_now() ? TTI_CU_OK : TTI_CU_NO_CONTEXT;
}
DRIVER cuStreamCreateWithPriority(tti_cu_stream *stream, unsigned flags, int priority)
{
    return priority == -5 ? cuStreamCreate(stream, flags) : TTI_CU_INVALID_VALUE;
}
DRIVER cuStreamDestroy_v2(tti_cu_stream stream)
{
    pthread_mutex_lock(&stream_lock);
    const int i = stream_find(fake_now()->device, stream);
    for (int k = 0; i >= 0 && k < QUEUE_MARKS; k++)
        fake_ops()->event_destroy(streams[i].marks[k]);
    if (i >= 0)
        streams[i] = streams[--stream_count];
    pthread_mutex_unlock(&stream_lock);
    fake_ops()->stream_destroy(fake_now(), stream);
    return TTI_CU_OK;
}
DRIVER cuStreamQuery(tti_cu_stream stream)
{
    return SAFE_IN_CONTEXT(fake_ops()->stream_query(fake_now(), stream));
}
/* Of the default stream: the current one's. */
DRIVER cuStreamGetCtx(tti_cu_stream stream, tti_cu_context *context)
{
    int device = 0;
    if (!stream && !fake_now())
        return TTI_CU_NO_CONTEXT;
    if (stream)
        (void)fake_ops()->stream_device(stream, &device);
    *context = fake_context(stream ? device : fake_now()->device);
    return TTI_CU_OK;
}
DRIVER cuStreamGetId(tti_cu_stream stream, unsigned long long *id)
{
    *id = (unsigned long long)(uintptr_t)stream;
    return fake_now() ? TTI_CU_OK : TTI_CU_NO_CONTEXT;
}
DRIVER cuStreamSynchronize(tti_cu_stream stream)
{
    return SAFE_IN_CONTEXT(tti_gpu_stream_wait(
        fake_now(), stream, tti_deadline_in(PATIENCE_SECONDS), "the fake driver"));
}
/* A word that the device cannot reach, managed memory, or what is not aligned is refused. */
static bool bad_word(tti_cu_ptr word)
{
    struct tti_gpu_pointer info;
    return word % sizeof(uint32_t) != 0 || fake_ops()->pointer(at(word), &info) != TUTTI_OK ||
           info.kind == TTI_MEMORY_HOST || info.kind == TTI_MEMORY_MANAGED;
}
DRIVER cuStreamWriteValue32_v2(tti_cu_stream stream, tti_cu_ptr word, uint32_t value,
                               unsigned flags)
{
    if (flags != 0 || bad_word(word))
        return TTI_CU_INVALID_VALUE;
    unsigned result;
    QUEUED(result, stream,
           fake_ops()->stream_write(fake_now(), at(word), value, stream_used(stream)));
    return result;
}
DRIVER cuStreamWaitValue32_v2(tti_cu_stream stream, tti_cu_ptr word, uint32_t value, unsigned flags)
{
    if (flags != TTI_CU_WAIT_GEQ || bad_word(word))
        return TTI_CU_INVALID_VALUE;
    unsigned result;
    QUEUED(result, stream,
           fake_ops()->stream_wait(fake_now(), at(word), value, stream_used(stream)));
    return result;
}
DRIVER cuMemcpyAsync(tti_cu_ptr dst, tti_cu_ptr src, size_t bytes, tti_cu_stream stream)
{
    unsigned result = fake_queue_begin(stream);
    if (result == TTI_CU_OK)
        result =
            IN_CONTEXT(fake_ops()->copy(fake_now(), at(dst), at(src), bytes, stream_used(stream)));
    if (result == TTI_CU_OK && (pageable(dst) || pageable(src)))
        result = fake_finish(stream, "a copy of pageable memory");
    fake_queue_end();
    return result;
}
DRIVER cuMemsetD8Async(tti_cu_ptr dst, unsigned char byte, size_t bytes, tti_cu_stream stream)
{
    unsigned result;
    if (pageable(dst))
        return TTI_CU_INVALID_VALUE;
    QUEUED(result, stream, fake_ops()->fill(fake_now(), at(dst), byte, bytes, stream_used(stream)));
    return result;
}
/* Of words whose bytes are alike. */
DRIVER cuMemsetD32Async(tti_cu_ptr dst, unsigned word, size_t words, tti_cu_stream stream)
{
    const unsigned char byte = (unsigned char)word;
    if (word != byte * 0x01010101u)
        return TTI_CU_NOT_SUPPORTED;
    return cuMemsetD8Async(dst, byte, words * sizeof word, stream);
}

/* ---- Functions called by streams --------------------------------------------------------------
 */

struct fake_call {
    void (*function)(void *);
    void *argument;
    bool again; /* by a graph */
    struct fake_call *next;
};
static _Atomic(struct fake_call *) calls_kept; /* for ever: nobody says when a graph's are over */
static __thread bool inside_call;

bool fake_in_call(void)
{
    return inside_call;
}

static void call_run(void *argument)
{
    struct fake_call *call = argument;
    inside_call = true;
    call->function(call->argument);
    inside_call = false;
    if (!call->again)
        free(call);
}

DRIVER cuLaunchHostFunc(tti_cu_stream stream, void (*function)(void *), void *argument)
{
    uint64_t capture = 0;
    if (!fake_now())
        return TTI_CU_NO_CONTEXT;
    struct fake_call *call = calloc(1, sizeof *call);
    if (!call)
        return TTI_CU_OUT_OF_MEMORY;
    (void)fake_ops()->capture_id(fake_now(), stream, &capture);
    *call = (struct fake_call){.function = function, .argument = argument, .again = capture != 0};
    if (call->again) {
        call->next = calls_kept;
        while (!atomic_compare_exchange_weak(&calls_kept, &call->next, call)) {
        }
    }
    unsigned result;
    QUEUED(result, stream, fake_ops()->host_call(fake_now(), call_run, call, stream_used(stream)));
    return result;
}

/* ---- Events and graphs ------------------------------------------------------------------------
 */

DRIVER cuIpcGetEventHandle(tti_cu_handle *handle, tti_cu_event event)
{
    return fake_code(fake_ops()->event_export((struct tti_gpu_event *)(void *)event, handle));
}
DRIVER cuIpcOpenEventHandle(tti_cu_event *event, tti_cu_handle handle)
{
    return IN_CONTEXT(
        fake_ops()->event_import(fake_now(), &handle, (struct tti_gpu_event **)(void *)event));
}
DRIVER cuEventCreate(tti_cu_event *event, unsigned flags)
{
    if ((flags & TTI_CU_EVENT_INTERPROCESS) && !(flags & TTI_CU_EVENT_NO_TIMING))
        return TTI_CU_INVALID_VALUE;
    const int ours = (flags & TTI_CU_EVENT_NO_TIMING ? 0 : TTI_EVENT_TIMING) |
                     (flags & TTI_CU_EVENT_INTERPROCESS ? TTI_EVENT_INTERPROCESS : 0);
    return IN_CONTEXT(
        fake_ops()->event_create(fake_now(), ours, (struct tti_gpu_event **)(void *)event));
}
DRIVER cuEventDestroy_v2(tti_cu_event event)
{
    fake_ops()->event_destroy((struct tti_gpu_event *)(void *)event);
    return TTI_CU_OK;
}
DRIVER cuEventRecord(tti_cu_event event, tti_cu_stream stream)
{
    unsigned result;
    QUEUED(result, stream,
           fake_ops()->event_record((struct tti_gpu_event *)(void *)event, stream_used(stream)));
    return result;
}
DRIVER cuEventQuery(tti_cu_event event)
{
    if (fake_ended())
        return TTI_CU_DEINITIALIZED;
    return SAFE_IN_CONTEXT(fake_ops()->event_query((struct tti_gpu_event *)(void *)event));
}
DRIVER cuStreamWaitEvent(tti_cu_stream stream, tti_cu_event event, unsigned flags)
{
    (void)flags;
    pthread_mutex_lock(&stream_lock);
    const unsigned result =
        IN_CONTEXT(fake_ops()->event_hold((struct tti_gpu_event *)(void *)event, stream));
    pthread_mutex_unlock(&stream_lock);
    return result;
}
DRIVER cuEventElapsedTime(float *milliseconds, tti_cu_event from, tti_cu_event to)
{
    double seconds = 0;
    const unsigned result = IN_CONTEXT(fake_ops()->event_elapsed(
        (struct tti_gpu_event *)(void *)from, (struct tti_gpu_event *)(void *)to, &seconds));
    *milliseconds = (float)(seconds * 1e3);
    return result;
}
DRIVER cuStreamBeginCapture_v2(tti_cu_stream stream, unsigned mode)
{
    if (mode > TTI_CU_CAPTURE_RELAXED)
        return TTI_CU_INVALID_VALUE;
    if (!stream) /* the default stream cannot be captured */
        return TTI_CU_CAPTURE_FIRST;
    pthread_mutex_lock(&stream_lock);
    const unsigned result = IN_CONTEXT(fake_ops()->capture_begin(fake_now(), stream));
    pthread_mutex_unlock(&stream_lock);
    captures += result == TTI_CU_OK;
    return result;
}
DRIVER cuStreamEndCapture(tti_cu_stream stream, tti_cu_graph *graph)
{
    captures--;
    return IN_CONTEXT(
        fake_ops()->capture_end(fake_now(), stream, (struct tti_gpu_graph **)(void *)graph));
}
DRIVER cuStreamGetCaptureInfo_v2(tti_cu_stream stream, unsigned *status, unsigned long long *id,
                                 void *graph, void *nodes, void *count)
{
    uint64_t found = 0;
    const unsigned result = IN_CONTEXT(fake_ops()->capture_id(fake_now(), stream, &found));
    *status = found != 0;
    *id = found;
    return graph || nodes || count ? TTI_CU_INVALID_VALUE : result;
}
/* The graph that was captured is the one that runs: it lives as long as the latter. */
DRIVER cuGraphInstantiateWithFlags(tti_cu_exec *exec, tti_cu_graph graph, unsigned long long flags)
{
    *exec = (tti_cu_exec)(void *)graph;
    return flags == 0 ? TTI_CU_OK : TTI_CU_INVALID_VALUE;
}
DRIVER cuGraphUpload(tti_cu_exec exec, tti_cu_stream stream)
{
    (void)stream;
    return exec ? TTI_CU_OK : TTI_CU_INVALID_HANDLE;
}
DRIVER cuGraphDestroy(tti_cu_graph graph)
{
    return graph ? TTI_CU_OK : TTI_CU_INVALID_HANDLE;
}
DRIVER cuGraphLaunch(tti_cu_exec exec, tti_cu_stream stream)
{
    unsigned result;
    QUEUED(result, stream,
           fake_ops()->graph_launch((struct tti_gpu_graph *)(void *)exec, stream_used(stream)));
    return result;
}
DRIVER cuGraphExecDestroy(tti_cu_exec exec)
{
    fake_ops()->graph_destroy((struct tti_gpu_graph *)(void *)exec);
    return TTI_CU_OK;
}
