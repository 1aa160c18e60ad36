/* In which order chunks are reduced: a pure function (ddp/ddp_state.h).
 *
 * Buckets become full in the order of the backward pass, last layers first; the forward pass needs
 * the first layers first. While communication keeps up the order is that of being full. When chunks
 * queue up, those that are needed first pass the others, and since a chunk is small they pass soon.
 * The order is worked out from one rank's times and then the same for all: an order that each rank
 * made from its own times would differ. (The idea of small parts and priorities: Peng et al.,
 * "A generic communication scheduler for distributed DNN training acceleration", SOSP 2019.) */
#include "ddp/ddp_state.h"

static bool schedule_better(const struct tti_ddp_load *a, const struct tti_ddp_load *b)
{
    return a->needed < b->needed;
}

/* The bucket whose next chunk goes at time `now`: of the full ones that which is needed first; if
 * none is full, the next to be. `done` chunks are gone. */
static size_t schedule_next(const struct tti_ddp_load *loads, size_t count, size_t *const done,
                            double now)
{
    size_t best = count, soonest = count;
    for (size_t b = 0; b < count; b++) {
        if (done[b] == loads[b].chunks)
            continue;
        if (soonest == count || loads[b].full_s < loads[soonest].full_s)
            soonest = b;
        if (loads[b].full_s <= now && (best == count || schedule_better(&loads[b], &loads[best])))
            best = b;
    }
    return best < count ? best : soonest;
}

void tti_ddp_schedule(const struct tti_ddp_load *loads, size_t count, size_t *done,
                      struct tti_ddp_range *order)
{
    double now = 0;
    size_t total = 0;
    for (size_t b = 0; b < count; b++) {
        total += loads[b].chunks;
        done[b] = 0;
    }
    for (size_t k = 0; k < total; k++) {
        size_t b = schedule_next(loads, count, done, now);
        now = loads[b].full_s > now ? loads[b].full_s : now;
        now += loads[b].chunk_s;
        order[k] = (struct tti_ddp_range){(int)b, done[b]++};
    }
}
