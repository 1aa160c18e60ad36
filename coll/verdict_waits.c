/* Who is waited for, where ranks' calls fit together (coll/verdict.h).
 *
 * Each rank that is in an operation waits for somebody; going from one to the next leads to one who
 * waits for nobody: the cause. What was found first counts; four causes are enough. Or it leads
 * round in a circle: then those on it are the ones to look at, not those who wait for them. */
#include "base/memory.h"
#include "coll/verdict_internal.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN_CAUSES = 4 };

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
static double seconds_waited(const struct tti_saying *v, const struct tti_logged *op)
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
static void say_missing(struct tti_saying *v, const struct tti_logged *op, int waiter, bool device,
                        double seconds)
{
    char what[TTI_CALL_BYTES];
    struct tti_logged wanted = *op;
    wanted.receives = !op->receives;
    wanted.root = waiter;
    if (op->alone == TTI_WAIT_SIGNAL)
        tti_say(v, " has not sent all of the %llu signals %d for which rank %d has waited %.3g s",
                (unsigned long long)op->count, op->signal, waiter, seconds);
    else if (op->alone != TTI_NOT_ALONE)
        tti_say(v, " has not taken %s of rank %d for %.3g s",
                tti_logged_text(op, what, sizeof what), waiter, seconds);
    else if (op->collective == TUTTI_SEND_RECV)
        tti_say(v, " has not called %s for %.3g s", tti_logged_text(&wanted, what, sizeof what),
                seconds);
    else
        tti_say(v, " has not entered %s%s for %.3g s", tti_logged_text(op, what, sizeof what),
                device ? " on device memory" : "", seconds);
}

static void say_absent(struct tti_saying *v, const struct cause *cause)
{
    const struct tti_logbook *book = &v->books[cause->rank];
    const struct tti_logbook *waiter = cause->waiter >= 0 ? &v->books[cause->waiter] : NULL;
    const struct tti_logged *op = waiter ? tti_logbook_current(waiter) : NULL;
    const struct tti_logged *last = tti_logbook_finished(book);
    char what[TTI_CALL_BYTES];
    if (!op)
        return;
    const double seconds = seconds_waited(v, op);
    const struct tti_logged *own = tti_logbook_current(book);
    if (own) {
        tti_say(v, " is in %s itself, and waits for nobody: it may be busy, or be held up",
                tti_logged_text(own, what, sizeof what));
        return;
    }
    const bool device = op_on_device(waiter, op);
    if (op->collective != TUTTI_SEND_RECV && tti_logbook_entered(book, op, device)) {
        tti_say(v, " is through with %s, in which rank %d still waits for it",
                tti_logged_text(op, what, sizeof what), cause->waiter);
        return;
    }
    say_missing(v, op, cause->waiter, device, seconds);
    if (last && book->begun[0] > 0)
        tti_say(v, "; last finished %s", tti_logged_text(last, what, sizeof what));
    else
        tti_say(v, "; it has finished no operation yet");
}

static void say_cause(struct tti_saying *v, const struct cause *cause)
{
    const struct tti_logbook *book = &v->books[cause->rank];
    tti_say_rank(v, cause->rank);
    if (book->state == TTI_LOGBOOK_LEFT)
        tti_say(v, " has left the communicator");
    else if (book->state == TTI_LOGBOOK_UNSEEN)
        tti_say(v, ", of which nothing is known here, is waited for");
    else if (book->state == TTI_LOGBOOK_SILENT || book->stopped)
        tti_say(v, book->stopped ? " is stopped, by a signal or a debugger"
                                 : " does not answer: it is stopped, or cut off");
    else
        say_absent(v, cause);
}

/* From `rank` along the waits to one who waits for nobody, or does not say for whom. False: round
 * in a circle, or `rank` itself does not say. `seen` is by rank, all false at first. */
static bool wait_follow(const struct tti_saying *v, int rank, bool *seen, struct cause *cause)
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
static int wait_furthest(const struct tti_saying *v)
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

static int find_causes(const struct tti_saying *v, struct cause *causes, bool *seen)
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
                          !tti_logbook_entered(book, op, op_on_device(&v->books[furthest], op));
        if (late || book->state == TTI_LOGBOOK_SILENT || book->stopped)
            cause_add(causes, &count, (struct cause){r, furthest});
    }
    return count;
}

/* "; ranks 0, 1 wait in all_reduce #57 (...): rank 0 for rank 1, rank 1 for rank 2": the ranks in
 * one operation. */
static void say_waiters(struct tti_saying *v, const struct tti_logged *op, bool *set)
{
    char what[TTI_CALL_BYTES];
    int shown = 0, count = 0;
    memset(set, 0, (size_t)v->size * sizeof *set);
    for (int r = 0; r < v->size; r++) {
        const struct tti_logged *own = tti_logbook_current(&v->books[r]);
        set[r] = own && own->sequence == op->sequence && own->collective == op->collective &&
                 (own->collective != TUTTI_SEND_RECV || own == op);
        count += set[r];
    }
    tti_say(v, "; ");
    tti_say_ranks(v, set);
    tti_say(v, " wait%s in %s", count == 1 ? "s" : "", tti_logged_text(op, what, sizeof what));
    for (int r = 0; r < v->size && shown < TTI_SHOWN_RANKS; r++) {
        const int peer = set[r] ? tti_logbook_waits_for(&v->books[r]) : -1;
        if (peer >= 0)
            tti_say(v, "%srank %d for rank %d", shown++ ? ", " : ": ", r, peer);
    }
}

/* A rank on the circle in which waits end, or -1: nobody's waits do, as far as is known. */
static int wait_circle(const struct tti_saying *v)
{
    for (int r = 0; r < v->size; r++) {
        int rank = r;
        for (int steps = 0; rank >= 0 && rank < v->size && steps < v->size; steps++)
            rank = tti_logbook_waits_for(&v->books[rank]);
        if (rank >= 0 && rank < v->size)
            return rank;
    }
    return -1;
}

/* "rank 2 for rank 3, rank 3 for rank 2": all that is to be said of some jobs whose ranks are each
 * in another call (sends in a ring). */
static void say_circle(struct tti_saying *v, int circle)
{
    int rank = circle;
    for (int shown = 0; shown < TTI_SHOWN_RANKS; shown++) {
        const int next = tti_logbook_waits_for(&v->books[rank]);
        tti_say(v, "%srank %d for rank %d", shown ? ", " : ": ", rank, next);
        rank = next;
        if (rank == circle)
            return;
    }
    tti_say(v, " and so on");
}

/* The operations that ranks wait in, two of them at most; first those of the circle at `circle`
 * (-1: there is none). */
static void say_all_waiters(struct tti_saying *v, int circle, bool *set)
{
    const struct tti_logged *said[2] = {NULL, NULL};
    int count = 0, at = circle;
    for (int i = circle < 0 ? v->size : 0; i < 2 * v->size && count < 2; i++) {
        const int r = i < v->size ? at : i - v->size;
        const struct tti_logged *op = tti_logbook_current(&v->books[r]);
        if (i < v->size)
            at = tti_logbook_waits_for(&v->books[r]);
        if (!op || op == said[0] ||
            (count > 0 && op->sequence == said[0]->sequence &&
             op->collective == said[0]->collective && op->collective != TUTTI_SEND_RECV))
            continue;
        said[count++] = op;
        say_waiters(v, op, set);
    }
}

enum tti_finding tti_find_waits(struct tti_saying *v)
{
    struct cause causes[SHOWN_CAUSES];
    bool *set = tti_calloc((size_t)v->size, sizeof *set);
    if (!set)
        return TTI_FINDING_NONE;
    const int count = find_causes(v, causes, set);
    enum tti_finding finding = count > 0 ? TTI_FINDING_BEHIND : TTI_FINDING_NONE;
    for (int i = 0; i < count; i++) {
        tti_say(v, "%s", i ? "; " : "");
        say_cause(v, &causes[i]);
    }
    int signals = 0;
    for (int r = 0; r < v->size; r++) {
        const struct tti_logged *op = tti_logbook_current(&v->books[r]);
        signals += op && op->alone == TTI_WAIT_SIGNAL;
    }
    const int circle = count == 0 ? wait_circle(v) : -1;
    if (circle >= 0) {
        finding = TTI_FINDING_CIRCLE;
        tti_say(v,
                signals > 0
                    ? "ranks wait for each other, or one for itself: a signal is missing, or comes "
                      "after a call that needs it"
                    : "ranks wait for each other in calls that fit, so a message is lost or held "
                      "up");
        say_circle(v, circle);
    }
    if (finding != TTI_FINDING_NONE)
        say_all_waiters(v, circle, set);
    free(set);
    return finding;
}
