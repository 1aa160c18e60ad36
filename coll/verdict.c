/* Laying the ranks' last operations side by side (coll/verdict.h).
 *
 * Calls that differ come first: whatever waits there is follows from them. Otherwise each rank that
 * is in an operation waits for somebody; going from one to the next leads to one who waits for
 * nobody: the cause. What was found first counts; four causes are enough. */
#include "coll/verdict.h"

#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { SHOWN_RANKS = 8, SHOWN_CAUSES = 4, SHOWN_CLASSES = 4, CALL_BYTES = 160 };

struct verdict {
    const struct tti_logbook *books;
    int size;
    char *text;
    size_t room, used;
};

/* ---- words ---- */

static void say(struct verdict *v, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct verdict *v, const char *format, ...)
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

static void say_rank(struct verdict *v, int rank)
{
    const char *name = v->books[rank].name;
    say(v, name ? "rank %d (%s)" : "rank %d", rank, name);
}

/* "rank 2 (a:7)" or "ranks 0, 1, 3" of those that are set. Returns how many. */
static int say_ranks(struct verdict *v, const bool *set)
{
    int count = 0, shown = 0;
    for (int r = 0; r < v->size; r++)
        count += set[r];
    for (int r = 0; r < v->size && shown < SHOWN_RANKS; r++) {
        if (!set[r])
            continue;
        if (count == 1)
            say_rank(v, r);
        else
            say(v, "%s%d", shown == 0 ? "ranks " : ", ", r);
        shown++;
    }
    if (count > shown)
        say(v, " and %d more", count - shown);
    return count;
}

/* ---- what one rank is at ---- */

/* The latest that runs: on host memory, else on device memory. In a group of sends and receives it
 * is one whose peer is known to keep it waiting. */
const struct tti_logged *tti_logbook_current(const struct tti_logbook *book)
{
    const struct tti_logged *found = NULL;
    for (size_t i = book->host_count; i-- > 0 && tti_logged_runs(&book->ops[i]);)
        if (!found || (found->waits_for < 0 && book->ops[i].waits_for >= 0))
            found = &book->ops[i];
    for (size_t i = book->host_count; !found && i < book->count; i++)
        if (tti_logged_runs(&book->ops[i]))
            found = &book->ops[i];
    return found;
}

int tti_logbook_waits_for(const struct tti_logbook *book)
{
    const struct tti_logged *op = tti_logbook_current(book);
    if (!op)
        return -1;
    return op->waits_for < 0 && op->collective == TUTTI_SEND_RECV ? op->root : op->waits_for;
}

const struct tti_logged *tti_logbook_finished(const struct tti_logbook *book)
{
    const struct tti_logged *found = NULL;
    for (size_t i = 0; i < book->host_count; i++)
        if (!tti_logged_runs(&book->ops[i]))
            found = &book->ops[i];
    for (size_t i = book->host_count; !found && i < book->count; i++)
        if (!tti_logged_runs(&book->ops[i]))
            found = &book->ops[i];
    return found;
}

/* ---- collectives that differ ---- */

/* Has the rank entered the collective? */
static bool rank_entered(const struct tti_logbook *book, const struct tti_logged *op, bool device)
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

static size_t calls_gather(const struct verdict *v, struct call *calls)
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
static void say_class(struct verdict *v, const struct call *calls, size_t first, size_t count,
                      bool *said, bool *set)
{
    char what[CALL_BYTES];
    memset(set, 0, (size_t)v->size * sizeof *set);
    for (size_t i = first; i < count; i++)
        if (tti_logged_same(calls[i].op, calls[first].op)) {
            set[calls[i].rank] = true;
            said[i] = true;
        }
    if (v->used > 0)
        say(v, ", ");
    say_ranks(v, set);
    say(v, " called %s%s", tti_logged_text(calls[first].op, what, sizeof what),
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

static bool calls_say(struct verdict *v, const struct call *calls, size_t count)
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
                 !rank_entered(&v->books[r], calls[0].op, calls[0].device);
    if (memchr(set, true, (size_t)v->size)) {
        say(v, "; not yet there: ");
        say_ranks(v, set);
    }
    say(v, "; all ranks must make the same calls in the same order");
    free(said);
    return true;
}

/* These ranks' calls with one number are the same: were all before it? */
static bool calls_history(struct verdict *v, const struct call *calls, size_t count)
{
    char what[CALL_BYTES];
    const uint32_t usual = calls[0].op->queued_us;
    bool *set = tti_calloc((size_t)v->size, sizeof *set), differ = false;
    for (size_t i = 0; set && i < count; i++) {
        const uint32_t other = calls[i].op->queued_us;
        set[calls[i].rank] = other && usual && other != usual;
        differ = differ || set[calls[i].rank];
    }
    if (differ) {
        say_ranks(v, set);
        say(v, " made other calls on device memory than ");
        say_rank(v, calls[0].rank);
        say(v, ", somewhere before %s; all ranks must make the same calls in the same order",
            tti_logged_text(calls[0].op, what, sizeof what));
    }
    free(set);
    return differ;
}

static bool find_calls(struct verdict *v, bool on_host)
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
        bool same = true;
        for (end = begin; end < count && calls[end].op->sequence == calls[begin].op->sequence &&
                          calls[end].device == calls[begin].device;
             end++)
            same = same && tti_logged_same(calls[begin].op, calls[end].op);
        if (!on_host && !calls[begin].device)
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
static const struct tti_logged *pair_partner(const struct verdict *v, int rank,
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

static bool find_pairs(struct verdict *v)
{
    char what[CALL_BYTES];
    for (int r = 0; r < v->size; r++) {
        for (size_t i = 0; i < v->books[r].host_count; i++) {
            const struct tti_logged *op = &v->books[r].ops[i];
            if (!tti_logged_pairs(op) || op->receives)
                continue;
            const struct tti_logged *other = pair_partner(v, r, op);
            if (!other || (other->count == op->count && other->type == op->type))
                continue;
            say_rank(v, r);
            say(v, " called %s, ", tti_logged_text(op, what, sizeof what));
            say_rank(v, op->root);
            say(v, " called %s; counts and types of a send and its receive must agree",
                tti_logged_text(other, what, sizeof what));
            return true;
        }
    }
    return false;
}

/* ---- who is waited for ---- */

/* Whose waits end at `rank`: the last rank of the chain before it; -1. */
struct cause {
    int rank, waiter;
};

static double seconds_in(const struct tti_logbook *book, const struct tti_logged *op)
{
    return op->start_ns && book->now_ns > op->start_ns ? (double)(book->now_ns - op->start_ns) / 1e9
                                                       : 0;
}

/* The longest that a rank has been in the operation that `op` is. */
static double seconds_waited(const struct verdict *v, const struct tti_logged *op)
{
    double most = 0;
    for (int r = 0; r < v->size; r++) {
        const struct tti_logged *own = tti_logbook_current(&v->books[r]);
        if (!own || own->collective != op->collective || own->sequence != op->sequence)
            continue;
        const double seconds = seconds_in(&v->books[r], own);
        most = seconds > most ? seconds : most;
    }
    return most;
}

static bool op_on_device(const struct tti_logbook *book, const struct tti_logged *op)
{
    return op >= book->ops + book->host_count;
}

/* What the rank has not done that `op`, of rank `waiter`, waits for. */
static void say_missing(struct verdict *v, const struct tti_logged *op, int waiter, bool device,
                        double seconds)
{
    char what[CALL_BYTES];
    struct tti_logged wanted = *op;
    wanted.receives = !op->receives;
    wanted.root = waiter;
    if (op->alone == TTI_WAIT_SIGNAL)
        say(v, " has not sent all of the %llu signals %d for which rank %d has waited %.3g s",
            (unsigned long long)op->count, op->signal, waiter, seconds);
    else if (op->alone != TTI_NOT_ALONE)
        say(v, " has not taken %s of rank %d for %.3g s", tti_logged_text(op, what, sizeof what),
            waiter, seconds);
    else if (op->collective == TUTTI_SEND_RECV)
        say(v, " has not called %s for %.3g s", tti_logged_text(&wanted, what, sizeof what),
            seconds);
    else
        say(v, " has not entered %s%s for %.3g s", tti_logged_text(op, what, sizeof what),
            device ? " on device memory" : "", seconds);
}

static void say_absent(struct verdict *v, const struct cause *cause)
{
    const struct tti_logbook *book = &v->books[cause->rank];
    const struct tti_logbook *waiter = cause->waiter >= 0 ? &v->books[cause->waiter] : NULL;
    const struct tti_logged *op = waiter ? tti_logbook_current(waiter) : NULL;
    const struct tti_logged *last = tti_logbook_finished(book);
    char what[CALL_BYTES];
    if (!op)
        return;
    const double seconds = seconds_waited(v, op);
    const struct tti_logged *own = tti_logbook_current(book);
    if (own) {
        say(v, " is in %s itself, and waits for nobody: it may be busy, or be held up",
            tti_logged_text(own, what, sizeof what));
        return;
    }
    const bool device = op_on_device(waiter, op);
    if (op->collective != TUTTI_SEND_RECV && rank_entered(book, op, device)) {
        say(v, " is through with %s, in which rank %d still waits for it",
            tti_logged_text(op, what, sizeof what), cause->waiter);
        return;
    }
    say_missing(v, op, cause->waiter, device, seconds);
    if (last && book->begun[0] > 0)
        say(v, "; last finished %s", tti_logged_text(last, what, sizeof what));
    else
        say(v, "; it has finished no operation yet");
}

static void say_cause(struct verdict *v, const struct cause *cause)
{
    const struct tti_logbook *book = &v->books[cause->rank];
    say_rank(v, cause->rank);
    if (book->state == TTI_LOGBOOK_LEFT)
        say(v, " has left the communicator");
    else if (book->state == TTI_LOGBOOK_UNSEEN)
        say(v, ", of which nothing is known here, is waited for");
    else if (book->state == TTI_LOGBOOK_SILENT || book->stopped)
        say(v, book->stopped ? " is stopped, by a signal or a debugger"
                             : " does not answer: it is stopped, or cut off");
    else
        say_absent(v, cause);
}

/* From `rank` along the waits to one who waits for nobody, or does not say for whom. False: round
 * in a circle, or `rank` itself does not say. `seen` is by rank, all false at first. */
static bool wait_follow(const struct verdict *v, int rank, bool *seen, struct cause *cause)
{
    for (int before = -1; !seen[rank];) {
        seen[rank] = true;
        const int next = tti_logbook_waits_for(&v->books[rank]);
        if (next < 0 || next >= v->size) {
            *cause = (struct cause){rank, before};
            return before >= 0;
        }
        const struct tti_logbook *book = &v->books[next];
        if (book->state != TTI_LOGBOOK_THERE || book->stopped || !tti_logbook_current(book)) {
            *cause = (struct cause){next, rank};
            return true;
        }
        before = rank;
        rank = next;
    }
    return false;
}

/* A rank in the collective of the highest number, or -1. */
static int wait_furthest(const struct verdict *v)
{
    int found = -1;
    uint64_t most = 0;
    for (int r = 0; r < v->size; r++) {
        const struct tti_logged *op = tti_logbook_current(&v->books[r]);
        if (op && op->collective != TUTTI_SEND_RECV && op->sequence > most) {
            most = op->sequence;
            found = r;
        }
    }
    return found;
}

static void cause_add(struct cause *causes, int *count, struct cause cause)
{
    for (int i = 0; i < *count; i++)
        if (causes[i].rank == cause.rank)
            return;
    if (*count < SHOWN_CAUSES)
        causes[(*count)++] = cause;
}

static int find_causes(const struct verdict *v, struct cause *causes, bool *seen)
{
    int count = 0;
    const int furthest = wait_furthest(v);
    for (int r = 0; r < v->size; r++) {
        struct cause cause;
        memset(seen, 0, (size_t)v->size * sizeof *seen);
        if (tti_logbook_current(&v->books[r]) && wait_follow(v, r, seen, &cause))
            cause_add(causes, &count, cause);
    }
    for (int r = 0; r < v->size; r++) {
        const struct tti_logbook *book = &v->books[r];
        const struct tti_logged *op =
            furthest >= 0 ? tti_logbook_current(&v->books[furthest]) : NULL;
        const bool late = book->state == TTI_LOGBOOK_THERE && op && !tti_logbook_current(book) &&
                          !rank_entered(book, op, op_on_device(&v->books[furthest], op));
        if (late || book->state == TTI_LOGBOOK_SILENT || book->stopped)
            cause_add(causes, &count, (struct cause){r, furthest});
    }
    return count;
}

/* "; ranks 0, 1 wait in all_reduce #57 (...): rank 0 for rank 1, rank 1 for rank 2": the ranks in
 * one operation. */
static void say_waiters(struct verdict *v, const struct tti_logged *op, bool *set)
{
    char what[CALL_BYTES];
    int shown = 0, count = 0;
    memset(set, 0, (size_t)v->size * sizeof *set);
    for (int r = 0; r < v->size; r++) {
        const struct tti_logged *own = tti_logbook_current(&v->books[r]);
        set[r] = own && own->sequence == op->sequence && own->collective == op->collective &&
                 (own->collective != TUTTI_SEND_RECV || own == op);
        count += set[r];
    }
    say(v, "; ");
    say_ranks(v, set);
    say(v, " wait%s in %s", count == 1 ? "s" : "", tti_logged_text(op, what, sizeof what));
    for (int r = 0; r < v->size && shown < SHOWN_RANKS; r++) {
        const int peer = set[r] ? tti_logbook_waits_for(&v->books[r]) : -1;
        if (peer >= 0)
            say(v, "%srank %d for rank %d", shown++ ? ", " : ": ", r, peer);
    }
}

/* The operations that ranks wait in, two of them at most. */
static void say_all_waiters(struct verdict *v, bool *set)
{
    const struct tti_logged *said[2] = {NULL, NULL};
    int count = 0;
    for (int r = 0; r < v->size && count < 2; r++) {
        const struct tti_logged *op = tti_logbook_current(&v->books[r]);
        if (!op || (count > 0 && op->sequence == said[0]->sequence &&
                    op->collective == said[0]->collective && op->collective != TUTTI_SEND_RECV))
            continue;
        said[count++] = op;
        say_waiters(v, op, set);
    }
}

static enum tti_finding find_waits(struct verdict *v)
{
    struct cause causes[SHOWN_CAUSES];
    bool *set = tti_calloc((size_t)v->size, sizeof *set);
    if (!set)
        return TTI_FINDING_NONE;
    const int count = find_causes(v, causes, set);
    enum tti_finding finding = count > 0 ? TTI_FINDING_BEHIND : TTI_FINDING_NONE;
    for (int i = 0; i < count; i++) {
        say(v, "%s", i ? "; " : "");
        say_cause(v, &causes[i]);
    }
    int waiting = 0, signals = 0;
    for (int r = 0; r < v->size; r++) {
        const struct tti_logged *op = tti_logbook_current(&v->books[r]);
        waiting += tti_logbook_waits_for(&v->books[r]) >= 0;
        signals += op && op->alone == TTI_WAIT_SIGNAL;
    }
    if (count == 0 && waiting > 0) {
        finding = TTI_FINDING_CIRCLE;
        say(v, signals > 0
                   ? "ranks wait for each other, or one for itself: a signal is missing, or comes "
                     "after a call that needs it"
                   : "ranks wait for each other in calls that fit, so a message is lost or held "
                     "up");
    }
    if (finding != TTI_FINDING_NONE)
        say_all_waiters(v, set);
    free(set);
    return finding;
}

enum tti_finding tti_verdict(const struct tti_logbook *books, int size, char *text, size_t room)
{
    struct verdict v = {books, size, text, room, 0};
    if (room > 0)
        text[0] = '\0';
    return find_calls(&v, true) || find_pairs(&v) ? TTI_FINDING_MISMATCH : find_waits(&v);
}

enum tti_finding tti_verdict_device(const struct tti_logbook *books, int size, char *text,
                                    size_t room)
{
    struct verdict v = {books, size, text, room, 0};
    if (room > 0)
        text[0] = '\0';
    return find_calls(&v, false) ? TTI_FINDING_MISMATCH : TTI_FINDING_NONE;
}
