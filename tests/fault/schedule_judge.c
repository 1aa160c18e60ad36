/* Judging what came of a schedule (schedule.h). */
#include "tests/fault/schedule.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void judge_bad(struct schedule_verdict *verdict, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void judge_bad(struct schedule_verdict *verdict, const char *format, ...)
{
    va_list arguments;
    if (!verdict->good)
        return;
    verdict->good = false;
    va_start(arguments, format);
    vsnprintf(verdict->why, sizeof verdict->why, format, arguments);
    va_end(arguments);
}

/* Does it speak of this rank? */
static bool judge_names(const char *text, int rank)
{
    char name[24];
    snprintf(name, sizeof name, "rank %d ", rank);
    return strstr(text, name) != NULL;
}

static void judge_rank(const struct schedule *s, int rank, const struct schedule_end *end,
                       struct schedule_verdict *verdict)
{
    bool dead = verdict->died && rank == s->victim;
    if (end->shrink_failed)
        judge_bad(verdict, "rank %d: %s", rank, end->text);
    if (dead)
        return;
    if (end->wrong > 0 && end->result == TUTTI_OK && s->trouble != TROUBLE_CORRUPT)
        judge_bad(verdict, "rank %d: no error, but %zu elements are wrong", rank, end->wrong);
    if (end->result == TUTTI_OK)
        return;
    verdict->errors++;
    verdict->longest = end->seconds > verdict->longest ? end->seconds : verdict->longest;
    bool message = s->trouble != TROUBLE_KILL && s->trouble != TROUBLE_STALL;
    if (message || judge_names(end->text, s->victim))
        verdict->named++;
    else
        snprintf(verdict->nameless, sizeof verdict->nameless, "rank %d after %.2f s: %s", rank,
                 end->seconds, end->text);
    if (end->result < TUTTI_ERR_LINK || end->result > TUTTI_ERR_ABORTED ||
        !strstr(end->text, "rank "))
        judge_bad(verdict, "rank %d: error %d: %s", rank, (int)end->result, end->text);
    if (verdict->died && !judge_names(end->text, s->victim))
        judge_bad(verdict, "rank %d is not told that rank %d died: %s", rank, s->victim, end->text);
}

void schedule_judge(const struct schedule *s, const struct schedule_end *ends,
                    struct schedule_verdict *verdict)
{
    struct fault_counts c = ends[s->victim].counts;
    *verdict = (struct schedule_verdict){.good = true, .died = c.died, .steps = c.steps};
    verdict->trouble = c.died || c.stalled || c.dropped || c.truncated || c.forged || c.lost;
    for (int r = 0; r < s->ranks; r++)
        judge_rank(s, r, &ends[r], verdict);
    if (!verdict->trouble && verdict->errors > 0 && !c.corrupted)
        for (int r = 0; r < s->ranks; r++) {
            verdict->slow |=
                ends[r].result == TUTTI_ERR_TIMEOUT && s->timeout_s < SCHEDULE_PATIENCE;
            if (ends[r].result != TUTTI_OK)
                judge_bad(verdict, "nothing went wrong, but rank %d says: %s", r, ends[r].text);
        }
    /* What befell messages to the victim is seen by it, at least; death by whom it owes something.
     * A standstill, or a message of which nobody waits for more, may come too late to matter. */
    if ((c.dropped || c.truncated || c.forged || c.lost) && verdict->errors == 0)
        judge_bad(verdict, "a message was lost or wrong, and nobody has an error");
    /* Of a message that came wrong, the victim knows its sender. Of a standstill, those who wait
     * for it; with a short deadline on a busy machine that may be a rank that has not run since. */
    const bool nameless = (c.died || c.stalled) && verdict->errors > 0 && verdict->named == 0;
    verdict->slow |= nameless && !c.died && s->timeout_s < SCHEDULE_PATIENCE;
    if (nameless)
        judge_bad(verdict, "nobody names rank %d: %s", s->victim, ends[s->victim ? 0 : 1].text);
}
