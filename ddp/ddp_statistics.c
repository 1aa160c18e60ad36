/* How much of the communication was hidden behind the backward pass (tutti/ddp.h).
 *
 * A clock runs while at least one lane has a collective under way. What it shows when the caller
 * comes to wait is hidden; the time until wait returns is exposed. */
#include "base/clock.h"
#include "base/memory.h"
#include "ddp/ddp_state.h"

#include <string.h>

static uint64_t clock_busy(const struct tti_ddp_clock *clock, uint64_t now)
{
    return clock->busy + (clock->busy_since ? now - clock->busy_since : 0);
}

void tti_ddp_clock_begin(struct tutti_ddp *ddp)
{
    ddp->clock = (struct tti_ddp_clock){.begin = tti_now_ns()};
}

void tti_ddp_clock_work(struct tutti_ddp *ddp, int lanes)
{
    struct tti_ddp_clock *clock = &ddp->clock;
    uint64_t now = tti_now_ns();
    clock->busy = clock_busy(clock, now);
    clock->working += lanes;
    clock->busy_since = clock->working > 0 ? now : 0;
}

void tti_ddp_clock_backward(struct tutti_ddp *ddp)
{
    ddp->clock.backward_end = tti_now_ns();
    ddp->clock.hidden = clock_busy(&ddp->clock, ddp->clock.backward_end);
}

static void times_add(struct tutti_ddp_times *sum, const struct tutti_ddp_times *t)
{
    sum->pass_s += t->pass_s;
    sum->busy_s += t->busy_s;
    sum->hidden_s += t->hidden_s;
    sum->exposed_s += t->exposed_s;
    sum->bytes += t->bytes;
    sum->collectives += t->collectives;
}

void tti_ddp_clock_end(struct tutti_ddp *ddp)
{
    struct tti_ddp_clock *clock = &ddp->clock;
    clock->end = tti_now_ns();
    ddp->last = (struct tutti_ddp_times){
        .pass_s = 1e-9 * (double)(clock->backward_end - clock->begin),
        .busy_s = 1e-9 * (double)clock_busy(clock, clock->end),
        .hidden_s = 1e-9 * (double)clock->hidden,
        .exposed_s = 1e-9 * (double)(clock->end - clock->backward_end),
        .bytes = clock->bytes,
        .collectives = clock->collectives,
    };
    times_add(&ddp->total, &ddp->last);
}

enum tutti_result tutti_ddp_statistics(tutti_ddp *ddp, struct tutti_ddp_statistics *statistics)
{
    if (!ddp || !statistics)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "tutti_ddp_statistics: %s is NULL",
                        ddp ? "statistics" : "ddp");
    pthread_mutex_lock(&ddp->lock);
    *statistics = (struct tutti_ddp_statistics){
        .steps = ddp->steps,
        .buckets = ddp->bucket_count,
        .gradient_bytes = ddp->gradient_bytes,
        .gradient_bytes_most = ddp->gradient_bytes_most,
        .value_bytes = ddp->value_bytes,
        .value_bytes_most = ddp->value_bytes_most,
        .last = ddp->last,
        .total = ddp->total,
    };
    pthread_mutex_unlock(&ddp->lock);
    return TUTTI_OK;
}
