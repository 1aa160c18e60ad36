/* Laying the ranks' last operations side by side (coll/verdict.h).
 *
 * Calls that differ come first: whatever waits there is follows from them. Only where all fit does
 * it matter who waits for whom (verdict_waits.c). */
#include "base/memory.h"
#include "coll/verdict_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { SHOWN_CLASSES = 4 };

/* ---- words ---- */

void tti_say(struct tti_saying *v, const char *format, ...)
{
    va_list args;
    if (v->used + 1 >= v->room)
        return;
    va_start(args, format);
    const int more = vsnprintf(v->text + v->used, v->room - v->used, format, args);
    va_end(args);
    if (more > 0)
        v->used += (size_t)more;
    if (v->used >= v->room)
        v->used = v->room - 1;
}

void tti_say_rank(struct tti_saying *v, int rank)
{
    const char *name = v->books[rank].name;
    tti_say(v, name ? "rank %d (%s)" : "rank %d", rank, name);
}

int tti_say_ranks(struct tti_saying *v, const bool *set)
{
    int count = 0, shown = 0;
    for (int r = 0; r < v->size; r++)
        count += set[r];
    for (int r = 0; r < v->size && shown < TTI_SHOWN_RANKS; r++) {
        if (!set[r])
            continue;
        if (count == 1)
            tti_say_rank(v, r);
        else
            tti_say(v, "%s%d", shown == 0 ? "ranks " : ", ", r);
        shown++;
    }
    if (count > shown)
        tti_say(v, " and %d more", count - shown);
    return count;
}

/* ---- collectives that differ ---- */

bool tti_logbook_entered(const struct tti_logbook *book, const struct tti_logged *op, bool device)
{
    size_t begin = device ? book->host_count : 0, end = device ? book->count : book->host_count;
    for (size_t i = begin; i < end; i++)
        if (book->ops[i].collective != TUTTI_SEND_RECV && book->ops[i].sequence >= op->sequence)
            return true;
    return false;
}

struct call {
    const struct tti_logged *op;
    int rank;
    bool device;
};

static int call_order(const void *left, const void *right)
{
    const struct call *a = left, *b = right;
    if (a->device != b->device)
        return a->device ? 1 : -1;
    if (a->op->sequence != b->op->sequence)
        return a->op->sequence < b->op->sequence ? -1 : 1;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static size_t calls_gather(const struct tti_saying *v, struct call *calls)
{
    size_t count = 0;
    for (int r = 0; r < v->size; r++)
        for (size_t i = 0; i < v->books[r].count; i++)
            if (v->books[r].ops[i].collective != TUTTI_SEND_RECV)
                calls[count++] = (struct call){&v->books[r].ops[i], r, i >= v->books[r].host_count};
    qsort(calls, count, sizeof *calls, call_order);
    return count;
}

/* Say who made the same call as calls[first], if nobody said so before; `said` by place. */
static void say_class(struct tti_saying *v, const struct call *calls, size_t first, size_t count,
                      bool *said, bool *set)
{
    char what[TTI_CALL_BYTES];
    memset(set, 0, (size_t)v->size * sizeof *set);
    for (size_t i = first; i < count; i++)
        if (tti_logged_same(calls[i].op, calls[first].op)) {
            set[calls[i].rank] = true;
            said[i] = true;
        }
    if (v->used > 0)
        tti_say(v, ", ");
    tti_say_ranks(v, set);
    tti_say(v, " called %s%s", tti_logged_text(calls[first].op, what, sizeof what),
            calls[first].device ? " on device memory" : "");
}

/* Of calls[0 .. count) with one number, the class that has the fewest and was not said; `count` if
 * all were. */
static size_t calls_rarest(const struct call *calls, size_t count, const bool *said)
{
    size_t best = count, fewest = count + 1;
    for (size_t i = 0; i < count; i++) {
        size_t same = 0;
        for (size_t j = 0; j < count && !said[i]; j++)
            same += tti_logged_same(calls[i].op, calls[j].op);
        if (!said[i] && same < fewest) {
            best = i;
            fewest = same;
        }
    }
    return best;
}

static bool calls_say(struct tti_saying *v, const struct call *calls, size_t count)
{
    bool *said = tti_calloc(count + (size_t)v->size, sizeof *said), *set = said + count;
    size_t next = 0;
    if (!said)
        return false;
    for (int shown = 0; shown < SHOWN_CLASSES; shown++) {
        next = calls_rarest(calls, count, said);
        if (next == count)
            break;
        /* From the first of the class on. */
        size_t first = 0;
        while (said[first] || !tti_logged_same(calls[first].op, calls[next].op))
            first++;
        say_class(v, calls, first, count, said, set);
    }
    memset(set, 0, (size_t)v->size * sizeof *set);
    for (int r = 0; r < v->size; r++)
        set[r] = v->books[r].state == TTI_LOGBOOK_THERE &&
                 !tti_logbook_entered(&v->books[r], calls[0].op, calls[0].device);
    if (memchr(set, true, (size_t)v->size)) {
        tti_say(v, "; not yet there: ");
        tti_say_ranks(v, set);
    }
    tti_say(v, "; all ranks must make the same calls in the same order");
    free(said);
    return true;
}

/* These ranks' calls with one number are the same: were all before it? */
static bool calls_history(struct tti_saying *v, const struct call *calls, size_t count)
{
    char what[TTI_CALL_BYTES];
    const uint32_t usual = calls[0].op->queued_us;
    bool *set = tti_calloc((size_t)v->size, sizeof *set), differ = false;
    for (size_t i = 0; set && i < count; i++) {
        const uint32_t other = calls[i].op->queued_us;
        set[calls[i].rank] = other && usual && other != usual;
        differ = differ || set[calls[i].rank];
    }
    if (differ) {
        tti_say_ranks(v, set);
        tti_say(v, " made other calls on device memory than ");
        tti_say_rank(v, calls[0].rank);
        tti_say(v, ", somewhere before %s; all ranks must make the same calls in the same order",
                tti_logged_text(calls[0].op, what, sizeof what));
    }
    free(set);
    return differ;
}

static bool find_calls(struct tti_saying *v, bool on_host)
{
    size_t total = 0;
    for (int r = 0; r < v->size; r++)
        total += v->books[r].count;
    struct call *calls = tti_calloc(total, sizeof *calls);
    if (!calls)
        return false;
    const size_t count = calls_gather(v, calls);
    bool found = false;
    for (size_t begin = 0, end = 0; begin < count && !found; begin = end) {
        bool same = true, graphs = false;
        for (end = begin; end < count && calls[end].op->sequence == calls[begin].op->sequence &&
                          calls[end].device == calls[begin].device;
             end++) {
            same = same && tti_logged_same(calls[begin].op, calls[end].op);
            graphs = graphs || calls[end].op->graphs;
        }
        if (graphs || (!on_host && !calls[begin].device))
            continue;
        if (!same)
            found = calls_say(v, calls + begin, end - begin);
        else if (calls[begin].device)
            found = calls_history(v, calls + begin, end - begin);
    }
    free(calls);
    return found;
}

/* ---- sends and receives that differ ---- */

/* The partner of a send or receive of rank `rank`, or NULL. */
static const struct tti_logged *pair_partner(const struct tti_saying *v, int rank,
                                             const struct tti_logged *op)
{
    if (op->root >= v->size)
        return NULL;
    const struct tti_logbook *book = &v->books[op->root];
    for (size_t i = 0; i < book->host_count; i++) {
        const struct tti_logged *other = &book->ops[i];
        if (tti_logged_pairs(other) && other->root == rank && other->receives != op->receives &&
            other->sequence == op->sequence)
            return other;
    }
    return NULL;
}

static bool find_pairs(struct tti_saying *v)
{
    char what[TTI_CALL_BYTES];
    for (int r = 0; r < v->size; r++) {
        for (size_t i = 0; i < v->books[r].host_count; i++) {
            const struct tti_logged *op = &v->books[r].ops[i];
            if (!tti_logged_pairs(op) || op->receives)
                continue;
            const struct tti_logged *other = pair_partner(v, r, op);
            if (!other || (other->count == op->count && other->type == op->type))
                continue;
            tti_say_rank(v, r);
            tti_say(v, " called %s, ", tti_logged_text(op, what, sizeof what));
            tti_say_rank(v, op->root);
            tti_say(v, " called %s; counts and types of a send and its receive must agree",
                    tti_logged_text(other, what, sizeof what));
            return true;
        }
    }
    return false;
}

enum tti_finding tti_verdict(const struct tti_logbook *books, int size, char *text, size_t room)
{
    struct tti_saying v = {books, size, text, room, 0};
    if (room > 0)
        text[0] = '\0';
    return find_calls(&v, true) || find_pairs(&v) ? TTI_FINDING_MISMATCH : tti_find_waits(&v);
}

enum tti_finding tti_verdict_device(const struct tti_logbook *books, int size, char *text,
                                    size_t room)
{
    struct tti_saying v = {books, size, text, room, 0};
    if (room > 0)
        text[0] = '\0';
    return find_calls(&v, false) ? TTI_FINDING_MISMATCH : TTI_FINDING_NONE;
}
