/* Dumps as Chrome's trace events (tools/dump_merge.h): ui.perfetto.dev and chrome://tracing show
 * them. An operation without times becomes an instant where its neighbours leave room. */
#include "base/json_read.h"
#include "tools/dump_merge.h"

enum { CALL_BYTES = 160 };

static void trace_names(const struct tti_dump *d, FILE *out)
{
    fprintf(out,
            "{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %d, \"tid\": %d, "
            "\"args\": {\"name\": \"rank %d of %d (",
            d->host, d->rank, d->rank, d->size);
    for (const char *at = d->name; *at; at++)
        putc(*at == '"' || *at == '\\' ? '_' : *at, out);
    fprintf(out, ")\"}},\n");
    fprintf(out,
            "{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, "
            "\"args\": {\"name\": \"host %d\"}}",
            d->host, d->host);
}

/* Where on the rank's clock it lies: [*begin, *end], nanoseconds; `last` is where the one before
 * ended. */
static void trace_place(const struct tti_dump *d, const struct tti_logged *op, double last,
                        double *begin, double *end)
{
    *begin = op->start_ns ? (double)op->start_ns : last;
    *end = tti_logged_runs(op)               ? (double)d->book.now_ns
           : op->end_ns > TTI_RECORD_UNTIMED ? (double)op->end_ns
                                             : *begin;
    if (*begin < last)
        *begin = last;
    if (*end < *begin)
        *end = *begin;
}

static void trace_operation(const struct tti_dump *d, const struct tti_logged *op, bool device,
                            double begin, double end, double origin, FILE *out)
{
    char what[CALL_BYTES];
    const double at = ((double)d->made_wall_us * 1e3 - origin) + (begin - (double)d->made_ns);
    fprintf(out, ",\n{\"ph\": \"X\", \"name\": ");
    tti_json_write_text(out, tti_logged_text(op, what, sizeof what));
    fprintf(out,
            ", \"cat\": \"%s\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, "
            "\"args\": {\"state\": \"%s\", \"path\": \"%s\", \"timed\": %s, "
            "\"queued_us\": %lu, \"waits_for\": %d}}",
            device ? "device" : "host", d->host, device ? d->rank + d->size : d->rank, at / 1e3,
            (end - begin) / 1e3,
            tti_logged_runs(op) ? "runs"
            : op->failed        ? "failed"
                                : "done",
            tti_record_path_name(op->path), op->start_ns ? "true" : "false",
            (unsigned long)op->queued_us, op->waits_for);
}

enum tutti_result tti_merge_trace(const struct tti_dump *dumps, size_t count, FILE *out)
{
    double origin = 0;
    for (size_t i = 0; i < count; i++) {
        const double made = (double)dumps[i].made_wall_us * 1e3;
        origin = i == 0 || made < origin ? made : origin;
    }
    fprintf(out, "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n");
    for (size_t i = 0; i < count; i++) {
        const struct tti_dump *d = &dumps[i];
        double last = (double)d->made_ns;
        fprintf(out, "%s", i ? ",\n" : "");
        trace_names(d, out);
        for (size_t k = 0; k < d->book.count; k++) {
            double begin = 0, end = 0;
            if (k == d->book.host_count)
                last = (double)d->made_ns;
            trace_place(d, &d->book.ops[k], last, &begin, &end);
            trace_operation(d, &d->book.ops[k], k >= d->book.host_count, begin, end, origin, out);
            last = d->book.ops[k].collective == TUTTI_SEND_RECV ? begin : end;
        }
    }
    fprintf(out, "\n]}\n");
    return ferror(out) ? TTI_FAIL(TUTTI_ERR_SYSTEM, "the trace could not be written") : TUTTI_OK;
}
