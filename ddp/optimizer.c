/* Optimizers over flat arrays (tutti/ddp.h): SGD and AdamW on float32 masters.
 *
 * A slice is walked in blocks that stay in the first cache: widen the gradient, step the masters,
 * round them into the parameters. The loops are plain, for the compiler to vectorise; the build
 * forbids contraction (-ffp-contract=off), so that vector bodies and scalar tails give the same
 * bits. Read next: sampler.c, schedule.c. */
#include "ddp/optimizer_terms.h"

#include "device/reduce.h"

#include <math.h>

enum { BLOCK = 2048 };

int tutti_optimizer_states(const struct tutti_optimizer *o)
{
    if (o->kind == TUTTI_ADAMW)
        return 2;
    return o->momentum != 0 ? 1 : 0;
}

static bool optimizer_share(float value)
{
    return value >= 0 && value < 1;
}

enum tutti_result tti_optimizer_check(const struct tutti_optimizer *o, uint64_t step,
                                      const struct tutti_optimizer_slice *s)
{
    if (o->size != sizeof *o)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "optimizer: size is %zu; start from one of "
                        "the INIT macros",
                        o->size);
    if (o->kind != TUTTI_SGD && o->kind != TUTTI_ADAMW)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "optimizer: %d is no kind", (int)o->kind);
    if (step == 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "optimizer: steps count from 1");
    if (!(o->lr >= 0) || !isfinite(o->lr) || !(o->weight_decay >= 0) || !isfinite(o->weight_decay))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "optimizer: lr %g and weight_decay %g must be finite "
                        "and not negative",
                        (double)o->lr, (double)o->weight_decay);
    if (o->kind == TUTTI_SGD && !(o->momentum >= 0 && isfinite(o->momentum)))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "optimizer: momentum %g must not be negative",
                        (double)o->momentum);
    if (o->kind == TUTTI_SGD && o->nesterov && (o->momentum == 0 || o->dampening != 0))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "optimizer: Nesterov needs momentum, and dampening 0");
    if (o->kind == TUTTI_ADAMW &&
        !(optimizer_share(o->beta1) && optimizer_share(o->beta2) && o->epsilon >= 0))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "optimizer: beta1 %g and beta2 %g must be in [0, 1), "
                        "epsilon %g not negative",
                        (double)o->beta1, (double)o->beta2, (double)o->epsilon);
    if (s->type != TUTTI_FLOAT32 && s->type != TUTTI_FLOAT16 && s->type != TUTTI_BFLOAT16)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "optimizer: parameters are float32, float16 or bfloat16, not %s",
                        tutti_type_name(s->type));
    if (s->type != TUTTI_FLOAT32 && !s->master)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "optimizer: %s parameters need float32 masters",
                        tutti_type_name(s->type));
    if (s->count > 0 && (!s->param || !s->grad))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "optimizer: param or grad is NULL");
    for (int i = 0; i < tutti_optimizer_states(o); i++)
        if (s->count > 0 && !s->states[i])
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "optimizer: states[%d] is NULL", i);
    return TUTTI_OK;
}

struct tti_train_terms tti_optimizer_terms(const struct tutti_optimizer *o, uint64_t step,
                                           const struct tutti_optimizer_slice *s)
{
    struct tti_train_terms t = {.scale = s->grad_scale};
    double decay = s->no_decay ? 0 : o->weight_decay;
    if (o->kind == TUTTI_SGD) {
        t.decay = (float)decay;
        t.momentum = step == 1 ? 0 : o->momentum;
        t.keep = step == 1 ? 1 : (float)(1.0 - o->dampening);
        t.rate = o->lr;
        t.nesterov = o->nesterov ? o->momentum : 0;
        return t;
    }
    t.decay = (float)(1.0 - (double)o->lr * decay);
    t.beta1 = o->beta1;
    t.new1 = (float)(1.0 - o->beta1);
    t.beta2 = o->beta2;
    t.new2 = (float)(1.0 - o->beta2);
    t.rate = (float)(o->lr / (1.0 - pow(o->beta1, (double)step)));
    t.root = (float)(1.0 / sqrt(1.0 - pow(o->beta2, (double)step)));
    t.epsilon = o->epsilon;
    return t;
}

static void optimizer_plain_sgd(const struct tti_train_terms *t, float *restrict p,
                                const float *restrict grad, size_t count)
{
    const float scale = t->scale, decay = t->decay, rate = t->rate;
    for (size_t i = 0; i < count; i++)
        p[i] -= rate * (grad[i] * scale + decay * p[i]);
}

static void optimizer_momentum(const struct tti_train_terms *t, float *restrict p,
                               const float *restrict grad, float *restrict buffer, size_t count)
{
    const float scale = t->scale, decay = t->decay, rate = t->rate;
    const float momentum = t->momentum, keep = t->keep, nesterov = t->nesterov;
    if (nesterov != 0)
        for (size_t i = 0; i < count; i++) {
            const float g = grad[i] * scale + decay * p[i];
            buffer[i] = momentum * buffer[i] + keep * g;
            p[i] -= rate * (g + nesterov * buffer[i]);
        }
    else
        for (size_t i = 0; i < count; i++) {
            const float g = grad[i] * scale + decay * p[i];
            buffer[i] = momentum * buffer[i] + keep * g;
            p[i] -= rate * buffer[i];
        }
}

static void optimizer_adamw(const struct tti_train_terms *terms, float *restrict p,
                            const float *restrict grad, float *restrict m, float *restrict v,
                            size_t count)
{
    const struct tti_train_terms t = *terms;
    for (size_t i = 0; i < count; i++) {
        const float g = grad[i] * t.scale;
        m[i] = t.beta1 * m[i] + t.new1 * g;
        v[i] = t.beta2 * v[i] + t.new2 * (g * g);
        p[i] = p[i] * t.decay - t.rate * (m[i] / (sqrtf(v[i]) * t.root + t.epsilon));
    }
}

enum tutti_result tutti_optimizer_step(const struct tutti_optimizer *o, uint64_t step,
                                       const struct tutti_optimizer_slice *s)
{
    float widened[BLOCK];
    TTI_TRY(tti_optimizer_check(o, step, s));
    const struct tti_train_terms t = tti_optimizer_terms(o, step, s);
    const size_t bytes = tutti_type_size(s->type);
    for (size_t at = 0; at < s->count; at += BLOCK) {
        const size_t count = s->count - at < BLOCK ? s->count - at : BLOCK;
        char *param = (char *)s->param + at * bytes;
        const void *grad = (const char *)s->grad + at * bytes;
        float *p = s->master ? s->master + at : (float *)(void *)param;
        if (s->type != TUTTI_FLOAT32) {
            tti_convert(widened, TUTTI_FLOAT32, grad, s->type, count, NULL);
            grad = widened;
        }
        if (o->kind == TUTTI_ADAMW)
            optimizer_adamw(&t, p, grad, s->states[0] + at, s->states[1] + at, count);
        else if (o->momentum != 0)
            optimizer_momentum(&t, p, grad, s->states[0] + at, count);
        else
            optimizer_plain_sgd(&t, p, grad, count);
        if (s->master)
            tti_convert(param, s->type, s->master + at, TUTTI_FLOAT32, count, NULL);
    }
    return TUTTI_OK;
}
