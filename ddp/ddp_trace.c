/* A recording of what lanes do and when gradients are ready, written as a Chrome trace
 * (tutti/ddp.h).
 *
 * Recording takes what fits: events beyond the most that viewers can bear are left out, and so is
 * what memory does not hold. Nothing fails because of it, a trace is only a picture. */
#include "base/clock.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "ddp/ddp_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { TRACE_MOST = 200000 };

enum trace_kind {
    TRACE_TASK,
    TRACE_READY,
    TRACE_BACKWARD,
    TRACE_WAIT,
};

struct trace_event {
    enum trace_kind kind;
    enum tti_ddp_action action;
    int lane;
    size_t what; /* the bucket, or the tensor */
    size_t chunk;
    size_t bytes;
    uint64_t start, end;
};

struct tti_ddp_recording {
    bool on;
    struct trace_event *events;
    size_t count, capacity;
};

void tti_ddp_recording_free(struct tti_ddp_recording *recording)
{
    if (recording)
        free(recording->events);
    free(recording);
}

static void trace_add(struct tutti_ddp *ddp, struct trace_event event)
{
    struct tti_ddp_recording *r = ddp->recording;
    if (!r || !r->on || r->count == TRACE_MOST)
        return;
    if (tti_grow((void **)&r->events, &r->capacity, r->count + 1, sizeof event) == TUTTI_OK)
        r->events[r->count++] = event;
}

void tti_ddp_record(struct tutti_ddp *ddp, const struct tti_ddp_lane *lane,
                    const struct tti_ddp_task *task, uint64_t start, uint64_t end)
{
    trace_add(ddp, (struct trace_event){TRACE_TASK, task->action, lane->number,
                                        (size_t)task->bucket, task->chunk, lane->sent, start, end});
}

void tti_ddp_record_ready(struct tutti_ddp *ddp, size_t tensor)
{
    uint64_t when = ddp->tensors[tensor].ready_ns;
    trace_add(
        ddp, (struct trace_event){.kind = TRACE_READY, .what = tensor, .start = when, .end = when});
}

void tti_ddp_record_pass(struct tutti_ddp *ddp)
{
    const struct tti_ddp_clock *c = &ddp->clock;
    trace_add(ddp, (struct trace_event){
                       .kind = TRACE_BACKWARD, .start = c->begin, .end = c->backward_end});
    trace_add(ddp,
              (struct trace_event){.kind = TRACE_WAIT, .start = c->backward_end, .end = c->end});
}

enum tutti_result tutti_ddp_trace(tutti_ddp *ddp, bool on)
{
    if (!ddp)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_trace: ddp is NULL");
    pthread_mutex_lock(&ddp->lock);
    if (on && !ddp->recording)
        ddp->recording = tti_calloc(1, sizeof *ddp->recording);
    if (ddp->recording)
        ddp->recording->on = on;
    bool made = ddp->recording || !on;
    pthread_mutex_unlock(&ddp->lock);
    return made ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

/* ---- writing ---- */

static double trace_us(uint64_t ns)
{
    return (double)ns / 1e3;
}

static void trace_head(FILE *out, const struct tutti_ddp *ddp, const char *name, const char *phase,
                       int thread, uint64_t start)
{
    fprintf(out, ",\n{\"name\": ");
    tti_json_write_text(out, name);
    fprintf(out, ", \"ph\": \"%s\", \"pid\": %d, \"tid\": %d, \"ts\": ", phase, ddp->rank, thread);
    tti_json_write_number(out, trace_us(start));
}

static void trace_slice(FILE *out, const struct tutti_ddp *ddp, const struct trace_event *e,
                        const char *name, int thread)
{
    trace_head(out, ddp, name, "X", thread, e->start);
    fprintf(out, ", \"dur\": ");
    tti_json_write_number(out, trace_us(e->end - e->start));
}

static void trace_event_write(FILE *out, const struct tutti_ddp *ddp, const struct trace_event *e)
{
    static const char *const actions[] = {"all-reduce", "reduce-scatter", "all-gather", "hook",
                                          "gather values"};
    char name[64];
    switch (e->kind) {
    case TRACE_TASK:
        snprintf(name, sizeof name, "%s %zu.%zu", actions[e->action], e->what, e->chunk);
        trace_slice(out, ddp, e, name, e->lane + 1);
        fprintf(out, ", \"args\": {\"bucket\": %zu, \"chunk\": %zu, \"bytes\": %zu}}", e->what,
                e->chunk, e->bytes);
        return;
    case TRACE_READY:
        trace_head(out, ddp, ddp->tensors[e->what].name, "i", 0, e->start);
        fprintf(out, ", \"s\": \"t\"}");
        return;
    case TRACE_BACKWARD:
    case TRACE_WAIT:
        trace_slice(out, ddp, e, e->kind == TRACE_WAIT ? "wait" : "forward and backward", 0);
        fprintf(out, "}");
        return;
    }
}

static void trace_names(FILE *out, const struct tutti_ddp *ddp)
{
    fprintf(out,
            "{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": %d, \"args\": "
            "{\"name\": \"rank %d\"}}",
            ddp->rank, ddp->rank);
    for (int t = 0; t <= ddp->lane_count + (ddp->value_lane != NULL); t++) {
        char name[32] = "training";
        if (t > 0)
            snprintf(name, sizeof name, t > ddp->lane_count ? "values" : "lane %d", t - 1);
        fprintf(out,
                ",\n{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": %d, \"tid\": %d, "
                "\"args\": {\"name\": \"%s\"}}",
                ddp->rank, t, name);
    }
}

enum tutti_result tutti_ddp_trace_write(tutti_ddp *ddp, const char *path)
{
    if (!ddp || !path)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_trace_write: %s is NULL",
                        ddp ? "path" : "ddp");
    FILE *out = fopen(path, "w");
    if (!out)
        return TTI_FAIL_ERRNO("tutti_ddp_trace_write: %s cannot be written", path);
    fprintf(out, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n");
    pthread_mutex_lock(&ddp->lock);
    trace_names(out, ddp);
    size_t count = ddp->recording ? ddp->recording->count : 0;
    for (size_t i = 0; i < count; i++)
        trace_event_write(out, ddp, &ddp->recording->events[i]);
    pthread_mutex_unlock(&ddp->lock);
    fprintf(out, "\n]}\n");
    bool failed = ferror(out);
    if (fclose(out) != 0 || failed)
        return TTI_FAIL_ERRNO("tutti_ddp_trace_write: %s could not be written", path);
    pthread_mutex_lock(&ddp->lock);
    if (ddp->recording)
        ddp->recording->count = 0;
    pthread_mutex_unlock(&ddp->lock);
    return TUTTI_OK;
}
