/* See plan/recast.h. */
#include "plan/recast.h"

#include "base/memory.h"

#include <stdlib.h>

/* ---- names ---- */

static int recast_name(const int *names, int rank)
{
    return rank < 0 ? rank : names[rank];
}

static int recast_compare(const void *a, const void *b)
{
    const int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

void tti_plan_rename(struct tti_plan *plan, const int *names)
{
    for (int lane = 0; lane < plan->nlanes; lane++)
        for (size_t s = 0; s < plan->lanes[lane].count; s++) {
            struct tti_step *step = &plan->lanes[lane].steps[s];
            step->from = recast_name(names, step->from);
            step->to = recast_name(names, step->to);
        }
    for (int p = 0; p < plan->npeers; p++)
        plan->peers[p] = names[plan->peers[p]];
    qsort(plan->peers, (size_t)plan->npeers, sizeof *plan->peers, recast_compare);
}

/* ---- contributions that are accumulators ---- */

/* How far the messages from each rank to each are looked through, on one lane: [from * n + to]. */
struct widen {
    struct tti_plan *const *plans;
    int n, lane;
    size_t *next;
};

static const struct tti_lane *widen_lane(const struct widen *w, int rank)
{
    const struct tti_plan *plan = w->plans[rank];
    return w->lane < plan->nlanes ? &plan->lanes[w->lane] : NULL;
}

/* The buffer that the next message from a rank leaves; false: it sends no more. */
static bool widen_sent(const struct widen *w, int from, int to, unsigned *buffer)
{
    const struct tti_lane *lane = widen_lane(w, from);
    size_t *next = &w->next[from * w->n + to];
    for (; lane && *next < lane->count; ++*next) {
        const struct tti_step *step = &lane->steps[*next];
        if (step->to != to)
            continue;
        ++*next;
        *buffer = step->kind == TTI_SEND ? step->src.buffer : step->dst.buffer;
        return true;
    }
    return false;
}

static bool widen_receives(const struct tti_step *step)
{
    return step->kind == TTI_RECV || step->kind == TTI_RECV_REDUCE;
}

/* Does the step read a contribution here? */
static bool widen_reads(const struct tti_step *step)
{
    return step->kind != TTI_SEND && step->kind != TTI_RECV &&
           (step->src.buffer == TTI_IN ||
            (step->kind == TTI_REDUCE && step->src2.buffer == TTI_IN));
}

static enum tutti_result widen_step(const struct widen *w, int rank, struct tti_step *step)
{
    bool contribution = widen_reads(step);
    if (widen_receives(step)) {
        unsigned buffer = TTI_OUT;
        if (!widen_sent(w, step->from, rank, &buffer))
            return TTI_FAIL(TUTTI_ERR_INTERNAL, "rank %d receives what rank %d does not send", rank,
                            step->from);
        if (buffer == TTI_IN) {
            step->flags |= TTI_MSG_ACC;
            contribution = true;
        }
    }
    if (contribution && step->dst.buffer == TTI_OUT && !(step->flags & TTI_FINAL))
        return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                        "rank %d puts a contribution where only results have room", rank);
    return TUTTI_OK;
}

static enum tutti_result widen_rank(const struct widen *w, int rank)
{
    const struct tti_lane *lane = widen_lane(w, rank);
    for (size_t s = 0; lane && s < lane->count; s++)
        TTI_TRY(widen_step(w, rank, &lane->steps[s]));
    return TUTTI_OK;
}

enum tutti_result tti_plan_widen(struct tti_plan *const *plans, int n)
{
    if (!plans[0]->reduces)
        return TUTTI_OK;
    enum tutti_result result = TUTTI_OK;
    for (int lane = 0; result == TUTTI_OK && lane < plans[0]->nlanes; lane++) {
        struct widen w = {.plans = plans, .n = n, .lane = lane};
        w.next = tti_calloc((size_t)n * (size_t)n, sizeof *w.next);
        if (!w.next)
            return TUTTI_ERR_MEMORY;
        for (int rank = 0; result == TUTTI_OK && rank < n; rank++)
            result = widen_rank(&w, rank);
        free(w.next);
    }
    return result;
}
