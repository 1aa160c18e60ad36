/* What dumps of several ranks say together (tools/dump_merge.h).
 *
 * Times of different hosts are compared by their clocks of the day, as these were when the
 * communicator was made: good to what the hosts' clocks are set to. A rank that has no time for a
 * collective did not wait there: if others did, it came last, when their wait was over. */
#include "tools/dump_merge.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { CALL_BYTES = 160, VERDICT_BYTES = 2000 };

const char *tti_merge_time(double ns, char *text, size_t bytes)
{
    static const struct {
        double ns;
        const char *unit;
    } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}, {1, "ns"}};
    size_t u = 0;
    while (u < 3 && ns < units[u].ns)
        u++;
    snprintf(text, bytes, "%.3g %s", ns / units[u].ns, units[u].unit);
    return text;
}

/* ---- each rank ---- */

static void show_operation(const struct tti_dump *d, const struct tti_logged *op, FILE *out)
{
    char what[CALL_BYTES], time[32];
    const double now = (double)d->book.now_ns, start = (double)op->start_ns;
    fprintf(out, "    %s", tti_logged_text(op, what, sizeof what));
    if (*tti_record_path_name(op->path))
        fprintf(out, " [%s]", tti_record_path_name(op->path));
    if (tti_logged_runs(op) && op->start_ns)
        fprintf(out, ", runs for %s", tti_merge_time(now - start, time, sizeof time));
    else if (tti_logged_runs(op))
        fprintf(out, ", runs");
    else if (op->start_ns && op->end_ns > op->start_ns)
        fprintf(out, ", %s in %s", op->failed ? "failed" : "done",
                tti_merge_time((double)op->end_ns - start, time, sizeof time));
    else
        fprintf(out, ", %s", op->failed ? "failed" : "done");
    if (op->waits_for >= 0)
        fprintf(out, ", %s %s rank %d", tti_logged_runs(op) ? "waits for" : "last waited for",
                op->sends                    ? "room at"
                : op->alone != TTI_NOT_ALONE ? "signals of"
                                             : "data of",
                op->waits_for);
    fprintf(out, "\n");
}

static void show_rank(const struct tti_dump *d, int last, FILE *out)
{
    fprintf(out, "  rank %d (%s): %llu operations", d->rank, d->name,
            (unsigned long long)(d->book.begun[0] + d->book.begun[1]));
    if (d->queued)
        fprintf(out, ", %lu queued", (unsigned long)d->queued);
    fprintf(out, "%s%s\n", d->failed ? "; failed: " : "", d->error);
    const size_t shown = d->book.count < (size_t)last ? d->book.count : (size_t)last;
    for (size_t i = d->book.count - shown; i < d->book.count; i++)
        show_operation(d, &d->book.ops[i], out);
}

/* ---- who comes late ---- */

struct late {
    uint64_t times; /* came last */
    double *by_ns;  /* by how much: one for each time */
};

static int late_order(const void *left, const void *right)
{
    const double *a = left, *b = right;
    return (*a > *b) - (*a < *b);
}

/* The collective of this number in a dump, or NULL. Numbers rise in a dump. */
static const struct tti_logged *merge_find(const struct tti_dump *d, uint64_t sequence)
{
    size_t low = 0, high = d->book.host_count;
    for (size_t i = low; i < high; i++) { /* sends and receives are in between */
        const struct tti_logged *op = &d->book.ops[i];
        if (op->collective != TUTTI_SEND_RECV && op->sequence == sequence)
            return op;
    }
    return NULL;
}

/* When the rank entered the collective: its time, or the end of the others' wait. */
static bool merge_entries(const struct tti_dump *dumps, size_t count, uint64_t sequence,
                          int *last_rank, double *late_ns)
{
    double first = 0, last = 0, over = 0;
    size_t timed = 0, untimed = 0, last_at = 0, untimed_at = 0;
    for (size_t r = 0; r < count; r++) {
        const struct tti_logged *op = merge_find(&dumps[r], sequence);
        if (!op || tti_logged_runs(op) || op->failed)
            return false;
        if (op->start_ns == 0) {
            untimed++;
            untimed_at = r;
            continue;
        }
        const double at = tti_dump_wall(&dumps[r], op->start_ns);
        const double end = tti_dump_wall(&dumps[r], op->end_ns);
        if (timed == 0 || at < first)
            first = at;
        if (timed == 0 || at > last) {
            last = at;
            last_at = r;
        }
        over = op->end_ns > TTI_RECORD_UNTIMED && end > over ? end : over;
        timed++;
    }
    if (timed == 0 || untimed > 1)
        return false;
    *last_rank = (int)(untimed ? untimed_at : last_at);
    *late_ns = untimed ? over - first : last - first;
    return *late_ns > 0;
}

void tti_merge_stragglers(const struct tti_dump *dumps, size_t count, FILE *out)
{
    struct late *late = tti_calloc(count, sizeof *late);
    uint64_t seen = 0;
    char time[32];
    for (size_t r = 0; late && r < count; r++)
        late[r].by_ns = tti_calloc(dumps[0].book.count + 1, sizeof *late[r].by_ns);
    for (size_t i = 0; late && i < dumps[0].book.host_count; i++) {
        const struct tti_logged *op = &dumps[0].book.ops[i];
        int rank = 0;
        double by = 0;
        if (op->collective == TUTTI_SEND_RECV ||
            !merge_entries(dumps, count, op->sequence, &rank, &by))
            continue;
        seen++;
        if (late[rank].by_ns)
            late[rank].by_ns[late[rank].times++] = by;
    }
    if (seen > 0)
        fprintf(out, "  Who entered last, of %llu collectives that have times:\n",
                (unsigned long long)seen);
    for (size_t r = 0; late && r < count; r++) {
        if (late[r].times > 0) {
            qsort(late[r].by_ns, late[r].times, sizeof(double), late_order);
            fprintf(out, "    rank %d: %llu times (%.0f%%), %s after the first (median)\n",
                    dumps[r].rank, (unsigned long long)late[r].times,
                    100.0 * (double)late[r].times / (double)seen,
                    tti_merge_time(late[r].by_ns[late[r].times / 2], time, sizeof time));
        }
        free(late[r].by_ns);
    }
    free(late);
}

/* ---- all of them ---- */

static bool show_missing(const struct tti_logbook *books, int size, FILE *out)
{
    int missing = 0;
    for (int r = 0; r < size; r++) {
        if (books[r].state == TTI_LOGBOOK_THERE)
            continue;
        fprintf(out, missing++ == 0 ? "  No dump of rank %d" : ", %d", r);
    }
    if (missing)
        fprintf(out, "\n");
    return missing > 0;
}

enum tutti_result tti_merge_show(struct tti_dump *dumps, size_t count, int last, FILE *out,
                                 bool *wrong)
{
    const int size = dumps[0].size;
    char text[VERDICT_BYTES];
    const struct tti_dump *failed = NULL;
    struct tti_logbook *books = tti_calloc((size_t)size, sizeof *books);
    if (!books)
        return TUTTI_ERR_MEMORY;
    for (int r = 0; r < size; r++)
        books[r].state = TTI_LOGBOOK_UNSEEN;
    for (size_t i = 0; i < count; i++) {
        if (dumps[i].size != size || (i > 0 && dumps[i].rank == dumps[i - 1].rank)) {
            free(books);
            return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                            "two dumps of rank %d of communicator %016llx, or of different sizes; "
                            "give one of each rank",
                            dumps[i].rank, (unsigned long long)dumps[i].job);
        }
        books[dumps[i].rank] = dumps[i].book;
        books[dumps[i].rank].name = dumps[i].name;
        failed = dumps[i].failed && !failed ? &dumps[i] : failed;
    }
    fprintf(out, "Communicator %016llx: %d ranks of %s on %d host%s\n",
            (unsigned long long)dumps[0].job, size, dumps[0].program, dumps[0].hosts,
            dumps[0].hosts == 1 ? "" : "s");
    (void)show_missing(books, size, out);
    const enum tti_finding finding = tti_verdict(books, size, text, sizeof text);
    *wrong = failed || finding != TTI_FINDING_NONE;
    if (failed && finding != TTI_FINDING_MISMATCH) { /* what was seen then */
        fprintf(out, "  WRONG: %s.\n", failed->error);
    } else if (finding != TTI_FINDING_NONE) {
        fprintf(out, "  WRONG: %s.\n", text);
    } else {
        fprintf(out, "  Nothing is wrong as far as the dumps show.\n");
    }
    tti_merge_stragglers(dumps, count, out);
    for (size_t i = 0; i < count && last > 0; i++)
        show_rank(&dumps[i], last, out);
    free(books);
    return TUTTI_OK;
}
