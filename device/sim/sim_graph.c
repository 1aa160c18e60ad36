/* Capture and graphs of the simulated device. A graph is the captured calls in their order, of all
 * streams that took part: one of the orders that the dependencies allow. It runs as one piece of
 * work of a stream; that branches may overlap on a GPU is not simulated. */
#include "device/sim/sim_state.h"

#include "base/memory.h"

#include <stdlib.h>

enum { MOST_JOINED = 32 };

struct tti_gpu_graph {
    _Atomic int holders;
    struct tti_gpu *gpu;
    pthread_mutex_t running; /* launches of one graph are ordered */
    struct tti_sim_op *first, **last;
};

struct tti_sim_capture {
    struct tti_gpu_graph *graph;
    struct tti_sim_stream *origin, *joined[MOST_JOINED];
    int joined_count;
    const char *spoilt; /* by what */
    uint64_t id;
};

static _Atomic uint64_t capture_ids;

static void graph_free(struct tti_gpu_graph *graph)
{
    for (struct tti_sim_op *op = graph->first, *next; op; op = next) {
        next = op->next;
        tti_sim_op_release(op);
    }
    pthread_mutex_destroy(&graph->running);
    free(graph);
}

enum tutti_result tti_sim_capture_begin(struct tti_gpu *gpu, tutti_stream handle)
{
    struct tti_sim_stream *stream = handle;
    if (!stream)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "the default stream cannot be captured; make a stream");
    if (tti_sim_stream_capture(stream))
        return TTI_FAIL(TUTTI_ERR_USAGE, "this stream is under capture already");
    struct tti_sim_capture *capture = tti_calloc(1, sizeof *capture);
    struct tti_gpu_graph *graph = tti_calloc(1, sizeof *graph);
    if (!capture || !graph) {
        free(capture);
        free(graph);
        return TUTTI_ERR_MEMORY;
    }
    pthread_mutex_init(&graph->running, NULL);
    graph->holders = 1;
    graph->gpu = gpu;
    graph->last = &graph->first;
    capture->graph = graph;
    capture->id = atomic_fetch_add(&capture_ids, 1) + 1;
    capture->origin = stream;
    tti_sim_stream_set_capture(stream, capture);
    return TUTTI_OK;
}

enum tutti_result tti_sim_capture_end(struct tti_gpu *gpu, tutti_stream handle,
                                      struct tti_gpu_graph **graph)
{
    (void)gpu;
    struct tti_sim_stream *stream = handle;
    struct tti_sim_capture *capture = stream ? tti_sim_stream_capture(stream) : NULL;
    if (!capture || capture->origin != stream)
        return TTI_FAIL(TUTTI_ERR_USAGE, "no capture was begun on this stream");
    tti_sim_stream_set_capture(stream, NULL);
    for (int i = 0; i < capture->joined_count; i++)
        tti_sim_stream_set_capture(capture->joined[i], NULL);
    enum tutti_result result = TUTTI_OK;
    if (capture->spoilt) {
        result = TTI_FAIL(TUTTI_ERR_USAGE, "the capture was spoilt by %s", capture->spoilt);
        graph_free(capture->graph);
    } else {
        *graph = capture->graph;
    }
    free(capture);
    return result;
}

enum tutti_result tti_sim_capture_id(struct tti_gpu *gpu, tutti_stream handle, uint64_t *id)
{
    (void)gpu;
    const struct tti_sim_capture *capture = handle ? tti_sim_stream_capture(handle) : NULL;
    *id = capture ? capture->id : 0;
    return TUTTI_OK;
}

enum tutti_result tti_sim_capture_add(struct tti_sim_capture *capture, const struct tti_sim_op *op)
{
    struct tti_sim_op *copy = tti_sim_op_copy(op);
    if (!copy)
        return TUTTI_ERR_MEMORY;
    *capture->graph->last = copy;
    capture->graph->last = &copy->next;
    return TUTTI_OK;
}

enum tutti_result tti_sim_capture_join(struct tti_sim_capture *capture,
                                       struct tti_sim_stream *stream)
{
    struct tti_sim_capture *now = tti_sim_stream_capture(stream);
    if (now == capture)
        return TUTTI_OK;
    if (now || capture->joined_count == MOST_JOINED)
        return TTI_FAIL(TUTTI_ERR_USAGE,
                        "a stream cannot join this capture: it is part of another, "
                        "or there are %d already",
                        MOST_JOINED);
    capture->joined[capture->joined_count++] = stream;
    tti_sim_stream_set_capture(stream, capture);
    return TUTTI_OK;
}

enum tutti_result tti_sim_capture_spoil(struct tti_sim_capture *capture, const char *by)
{
    capture->spoilt = by;
    return TTI_FAIL(TUTTI_ERR_USAGE, "%s cannot be done; end the capture first", by);
}

void tti_sim_graph_keep(struct tti_gpu_graph *graph)
{
    atomic_fetch_add(&graph->holders, 1);
}

void tti_sim_graph_destroy(struct tti_gpu_graph *graph)
{
    if (graph && atomic_fetch_sub(&graph->holders, 1) == 1)
        graph_free(graph);
}

enum tutti_result tti_sim_graph_launch(struct tti_gpu_graph *graph, tutti_stream stream)
{
    const struct tti_sim_op op = {.kind = TTI_SIM_GRAPH, .graph = graph};
    return tti_sim_enqueue(graph->gpu, stream, &op);
}

enum tutti_result tti_sim_graph_run(struct tti_gpu_graph *graph, const _Atomic uint64_t *give_up)
{
    enum tutti_result result = TUTTI_OK;
    pthread_mutex_lock(&graph->running);
    for (const struct tti_sim_op *op = graph->first; op && result == TUTTI_OK; op = op->next)
        result = tti_sim_op_run(op, give_up);
    pthread_mutex_unlock(&graph->running);
    return result;
}
