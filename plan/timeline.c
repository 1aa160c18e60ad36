/* The Trace Event format, as Perfetto and chrome://tracing read it: one JSON object with an array
 * of events; "M" names processes and threads, "X" is a slice, "s" and "f" are the ends of an arrow.
 * Times are microseconds. */
#include "plan/timeline.h"

#include "base/c_locale.h"
#include "base/memory.h"
#include "plan/simulate.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct tti_timeline {
    struct tti_timeline_slice *slices;
    size_t nslices, slices_capacity;
    struct tti_timeline_end *ends;
    size_t nends, ends_capacity;
    int ranks;
    int lanes;
};

enum tutti_result tti_timeline_create(struct tti_timeline **timeline)
{
    struct tti_timeline *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    *timeline = made;
    return TUTTI_OK;
}

void tti_timeline_destroy(struct tti_timeline *timeline)
{
    if (!timeline)
        return;
    free(timeline->slices);
    free(timeline->ends);
    free(timeline);
}

enum tutti_result tti_timeline_begin(struct tti_timeline *timeline, int ranks, int lanes,
                                     size_t steps, uint64_t messages)
{
    uint64_t events = steps + 2 * messages;
    if (events > TTI_TIMELINE_EVENTS_MAX)
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "cannot record a timeline of %llu events: trace viewers stop at about %d; "
                        "simulate fewer ranks, lanes or slices",
                        (unsigned long long)events, TTI_TIMELINE_EVENTS_MAX);
    void *slices = timeline->slices, *ends = timeline->ends;
    TTI_TRY(tti_grow(&slices, &timeline->slices_capacity, steps, sizeof *timeline->slices));
    timeline->slices = slices;
    TTI_TRY(tti_grow(&ends, &timeline->ends_capacity, 2 * messages, sizeof *timeline->ends));
    timeline->ends = ends;
    timeline->nslices = timeline->nends = 0;
    timeline->ranks = ranks;
    timeline->lanes = lanes;
    return TUTTI_OK;
}

enum tutti_result tti_timeline_step(struct tti_timeline *timeline,
                                    const struct tti_timeline_slice *slice)
{
    void *slices = timeline->slices;
    TTI_TRY(tti_grow(&slices, &timeline->slices_capacity, timeline->nslices + 1, sizeof *slice));
    timeline->slices = slices;
    timeline->slices[timeline->nslices++] = *slice;
    return TUTTI_OK;
}

enum tutti_result tti_timeline_flow(struct tti_timeline *timeline,
                                    const struct tti_timeline_end *end)
{
    void *ends = timeline->ends;
    TTI_TRY(tti_grow(&ends, &timeline->ends_capacity, timeline->nends + 1, sizeof *end));
    timeline->ends = ends;
    timeline->ends[timeline->nends++] = *end;
    return TUTTI_OK;
}

/* ---- writing ---- */

static const char *step_name(const struct tti_step *step)
{
    bool forwards = step->flags & TTI_FORWARD;
    switch ((enum tti_step_kind)step->kind) {
    case TTI_COPY:
        return forwards ? "copy, send" : "copy";
    case TTI_REDUCE:
        return forwards ? "reduce, send" : "reduce";
    case TTI_SEND:
        return "send";
    case TTI_RECV:
        return forwards ? "receive, send" : "receive";
    case TTI_RECV_REDUCE:
        break;
    }
    return forwards ? "receive-reduce, send" : "receive-reduce";
}

static void write_names(FILE *file, const struct tti_timeline *timeline)
{
    for (int rank = 0; rank < timeline->ranks; rank++) {
        fprintf(file,
                "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank "
                "%d\"}},\n"
                "{\"ph\":\"M\",\"name\":\"process_sort_index\",\"pid\":%d,\"args\":{\"sort_index\":"
                "%d}},\n",
                rank, rank, rank, rank);
        for (int lane = 0; lane < timeline->lanes; lane++)
            fprintf(file,
                    "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{"
                    "\"name\":\"lane %d\"}},\n",
                    rank, lane, lane);
    }
}

static void write_slice(FILE *file, const struct tti_timeline_slice *slice)
{
    const struct tti_step *step = &slice->step;
    fprintf(file,
            "{\"ph\":\"X\",\"cat\":\"step\",\"name\":\"%s\",\"pid\":%d,\"tid\":%d,\"ts\":%.6f,"
            "\"dur\":%.6f,\"args\":{\"chunk\":%u,\"chunks\":%u",
            step_name(step), slice->rank, slice->lane, slice->start * 1e6,
            (slice->end - slice->start) * 1e6, step->chunk, step->nchunks);
    if (step->kind == TTI_RECV || step->kind == TTI_RECV_REDUCE)
        fprintf(file, ",\"from\":%d", step->from);
    if (step->kind == TTI_SEND || (step->flags & TTI_FORWARD))
        fprintf(file, ",\"to\":%d,\"bytes_sent\":%.0f", step->to, slice->bytes);
    fputs("}},\n", file);
}

static void write_end(FILE *file, const struct tti_timeline_end *end)
{
    fprintf(file,
            "{\"ph\":\"%s\",%s\"cat\":\"message\",\"name\":\"message\",\"id\":%u,\"pid\":%d,"
            "\"tid\":%d,\"ts\":%.6f},\n",
            end->arrives ? "f" : "s", end->arrives ? "\"bp\":\"e\"," : "", end->id, end->rank,
            end->lane, end->time * 1e6);
}

enum tutti_result tti_timeline_write(const struct tti_timeline *timeline, const char *path)
{
    FILE *file = fopen(path, "w");
    if (!file)
        return TTI_FAIL_ERRNO("cannot open timeline file %s for writing", path);
    struct tti_c_locale locale = tti_c_locale_enter();
    fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", file);
    write_names(file, timeline);
    for (size_t i = 0; i < timeline->nslices; i++)
        write_slice(file, &timeline->slices[i]);
    for (size_t i = 0; i < timeline->nends; i++)
        write_end(file, &timeline->ends[i]);
    fputs("{\"ph\":\"M\",\"name\":\"trace\",\"pid\":0,\"args\":{\"name\":\"Tutti "
          "simulation\"}}\n]}\n",
          file);
    tti_c_locale_leave(locale);
    int failed = ferror(file), why = errno;
    if (fclose(file) != 0 || failed) {
        errno = failed ? why : errno;
        return TTI_FAIL_ERRNO("cannot write timeline file %s", path);
    }
    return TUTTI_OK;
}
