/* Learning-rate schedules (tutti/ddp.h): pure functions of the step, so that a resumed run needs
 * nothing but the step's number. */
#include "base/error.h"
#include "tutti/ddp.h"

#include <math.h>

static const double schedule_pi = 3.14159265358979323846;

static enum tutti_result schedule_check(const struct tutti_schedule *s)
{
    if (s->kind < TUTTI_CONSTANT || s->kind > TUTTI_WSD)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "schedule: %d is no kind", (int)s->kind);
    if (!(s->peak >= 0 && isfinite(s->peak)) || !(s->final >= 0 && isfinite(s->final)))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "schedule: peak %g and final %g must be finite and not negative", s->peak,
                        s->final);
    if (s->kind != TUTTI_CONSTANT && (s->total == 0 || s->warmup > s->total))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "schedule: %s needs total steps (%llu), and warmup (%llu) within them",
                        tutti_schedule_name(s->kind), (unsigned long long)s->total,
                        (unsigned long long)s->warmup);
    if (s->kind == TUTTI_WSD && s->decay > s->total - s->warmup)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "schedule: warmup %llu and decay %llu are more than total %llu",
                        (unsigned long long)s->warmup, (unsigned long long)s->decay,
                        (unsigned long long)s->total);
    return TUTTI_OK;
}

enum tutti_result tutti_schedule_rate(const struct tutti_schedule *s, uint64_t step, double *rate)
{
    TTI_TRY(schedule_check(s));
    if (step < s->warmup) {
        *rate = s->peak * (double)(step + 1) / (double)s->warmup;
        return TUTTI_OK;
    }
    if (s->kind == TUTTI_CONSTANT) {
        *rate = s->peak;
        return TUTTI_OK;
    }
    if (step >= s->total) {
        *rate = s->final;
        return TUTTI_OK;
    }
    const uint64_t from = s->kind == TUTTI_WSD ? s->total - s->decay : s->warmup;
    const double done = step < from ? 0 : (double)(step - from) / (double)(s->total - from);
    const double left = s->kind == TUTTI_COSINE ? 0.5 * (1 + cos(schedule_pi * done)) : 1 - done;
    *rate = s->final + (s->peak - s->final) * left;
    return TUTTI_OK;
}

double tutti_schedule_scaled(double rate, size_t batch, size_t reference_batch)
{
    return rate * (double)batch / (double)reference_batch;
}

const char *tutti_schedule_name(enum tutti_schedule_kind kind)
{
    static const char *const names[] = {"constant", "linear", "cosine", "wsd"};
    return kind >= TUTTI_CONSTANT && kind <= TUTTI_WSD ? names[kind] : "unknown schedule";
}
