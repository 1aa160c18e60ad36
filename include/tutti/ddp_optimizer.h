/* What changes parameters: optimizers over flat arrays, which samples a rank takes, learning rates.
 * Part of tutti/ddp.h, whose rules hold here, and usable without a tutti_ddp: everything here is
 * local. docs/ddp.md is the guide. */
#ifndef TUTTI_DDP_OPTIMIZER_H
#define TUTTI_DDP_OPTIMIZER_H

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Optimizers over flat arrays ------------------------------------------------------------ *
 * One step of an optimizer over some elements of a parameter: a whole one, or the slice that this
 * rank keeps. Each element is computed alone, in float32, with the same operations wherever it
 * stands: however parameters are cut into slices, the bits are the same. */

enum tutti_optimizer_kind {
    TUTTI_SGD = 0,
    TUTTI_ADAMW = 1,
};

/* Settings, as PyTorch names them. Start from TUTTI_SGD_INIT or TUTTI_ADAMW_INIT. */
struct tutti_optimizer {
    size_t size; /* sizeof(struct tutti_optimizer): lets the struct grow */
    enum tutti_optimizer_kind kind;
    float lr;           /* learning rate; a schedule sets it before each step */
    float weight_decay; /* SGD: added to the gradient (L2); AdamW: decoupled */
    float momentum;     /* SGD; 0: none, and no state */
    float dampening;    /* SGD with momentum */
    bool nesterov;      /* SGD with momentum, without dampening */
    float beta1, beta2; /* AdamW */
    float epsilon;      /* AdamW */
};
#define TUTTI_SGD_INIT                                                                        \
    {                                                                                         \
        sizeof(struct tutti_optimizer), TUTTI_SGD, 0.01f, 0, 0, 0, false, 0.9f, 0.999f, 1e-8f \
    }
#define TUTTI_ADAMW_INIT                                                                      \
    {                                                                                         \
        sizeof(struct tutti_optimizer), TUTTI_ADAMW, 1e-3f, 0.01f, 0, 0, false, 0.9f, 0.999f, \
            1e-8f                                                                             \
    }

/* Elements of one parameter, all arrays with `count` of them. They may not overlap. */
struct tutti_optimizer_slice {
    size_t count;
    enum tutti_type type; /* of param and grad: float32, float16 or bfloat16 */
    void *param;          /* in and out */
    const void *grad;     /* in */
    float *master;        /* in and out: float32 parameters, of which `param` is a rounded copy;
                             NULL: `param` itself is stepped, and must be float32 */
    float *states[2];     /* in and out, zero before the first step: SGD momentum: {buffer, -};
                             AdamW: {first moment, second moment} */
    float grad_scale;     /* the gradient is multiplied by it first (clipping, averaging); 1 */
    bool no_decay;        /* no weight decay here (biases, norms) */
};

/* How many of a slice's states the optimizer uses: 0, 1 or 2. */
TUTTI_API int tutti_optimizer_states(const struct tutti_optimizer *optimizer);

/* Step number `step` (1 for the first) over one slice, with g = grad * grad_scale, p = master or
 * param, w = weight_decay:
 *   SGD:    g += w p;  b = momentum b + (1 - dampening) g  (b = g in step 1);
 *           p -= lr (nesterov ? g + momentum b : momentum ? b : g)
 *   AdamW:  p *= 1 - lr w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;
 *           p -= lr / (1 - beta1^step) * m / (sqrt(v / (1 - beta2^step)) + epsilon)
 * Then param = p, rounded to nearest even. Local; any thread. Errors: TUTTI_ERR_ARGUMENT for
 * settings that make no sense, with nothing changed. Cost: one pass over memory.
 * Sources: Sutskever et al. 2013; Kingma and Ba 2015 (arXiv 1412.6980); Loshchilov and Hutter 2019
 * (arXiv 1711.05101). */
TUTTI_API enum tutti_result tutti_optimizer_step(const struct tutti_optimizer *optimizer,
                                                 uint64_t step,
                                                 const struct tutti_optimizer_slice *slice);

/* ---- Order of samples ----------------------------------------------------------------------- *
 * Which samples of a data set a rank takes, with the semantics, and with shuffling the very order,
 * of PyTorch's DistributedSampler (the order for less than 214,748,364 samples, which is UINT32_MAX
 * / 20: from there on PyTorch shuffles in another way since January 2025): each epoch is a
 * permutation drawn from seed + epoch; its length is made a multiple of the ranks by repeating its
 * head, or by dropping its tail; rank r takes places r, r + ranks, ... The position is a number of
 * samples that all ranks have taken together, so that a run goes on from it with another number of
 * ranks: the rest of the epoch is dealt out among them. */

typedef struct tutti_sampler tutti_sampler;

/* Start from TUTTI_SAMPLER_INIT; `samples` is needed. */
struct tutti_sampler_options {
    size_t size;    /* sizeof(struct tutti_sampler_options) */
    size_t samples; /* in the data set, at least 1 and less than 2^31 */
    int rank, ranks;
    uint64_t seed;
    bool in_order;  /* do not shuffle */
    bool drop_last; /* drop what does not divide; else repeat the head */
};
#define TUTTI_SAMPLER_INIT                                             \
    {                                                                  \
        sizeof(struct tutti_sampler_options), 0, 0, 1, 0, false, false \
    }

TUTTI_API enum tutti_result tutti_sampler_create(const struct tutti_sampler_options *options,
                                                 tutti_sampler **sampler);
TUTTI_API void tutti_sampler_destroy(tutti_sampler *sampler);

/* Go to the place in `epoch` before which all ranks together have taken `position` samples (0: the
 * beginning). All ranks go to the same. TUTTI_ERR_ARGUMENT beyond the end of the data. */
TUTTI_API enum tutti_result tutti_sampler_seek(tutti_sampler *sampler, uint64_t epoch,
                                               uint64_t position);
/* Samples that this rank still takes in this epoch: the same on all ranks. */
TUTTI_API size_t tutti_sampler_left(const tutti_sampler *sampler);
/* The next at most `count` samples of this rank, 0 .. samples-1; *taken is less at the end of an
 * epoch, and 0 after it. The next epoch begins by tutti_sampler_seek. */
TUTTI_API enum tutti_result tutti_sampler_next(tutti_sampler *sampler, size_t count,
                                               size_t *indices, size_t *taken);
/* Where the sampler stands, for a checkpoint and tutti_sampler_seek. */
TUTTI_API void tutti_sampler_position(const tutti_sampler *sampler, uint64_t *epoch,
                                      uint64_t *position);

/* ---- Learning rates ------------------------------------------------------------------------- */

enum tutti_schedule_kind {
    TUTTI_CONSTANT = 0, /* the peak */
    TUTTI_LINEAR = 1,   /* from the peak in a straight line to the final rate */
    TUTTI_COSINE = 2,   /* half a cosine from the peak to the final rate */
    TUTTI_WSD = 3,      /* warm-up, stable, decay: the peak, then linear over the last `decay` */
};

/* In steps. Start from zeros; `peak` and, but for TUTTI_CONSTANT, `total` are needed. */
struct tutti_schedule {
    enum tutti_schedule_kind kind;
    double peak;     /* the highest rate */
    double final;    /* the rate from step `total` on (not TUTTI_CONSTANT) */
    uint64_t warmup; /* steps of linear warm-up before: peak * (step + 1) / warmup */
    uint64_t total;  /* steps of the run, warm-up included */
    uint64_t decay;  /* TUTTI_WSD: steps of the decay at the end */
};

/* The rate for the step after `step` finished ones (0: the first). TUTTI_ERR_ARGUMENT for a
 * schedule that makes no sense (named). */
TUTTI_API enum tutti_result tutti_schedule_rate(const struct tutti_schedule *schedule,
                                                uint64_t step, double *rate);
/* The rule of linear scaling (arXiv 1706.02677): rate * batch / reference_batch. Warm-up belongs
 * to it. */
TUTTI_API double tutti_schedule_scaled(double rate, size_t batch, size_t reference_batch);
/* "constant", "linear", "cosine", "wsd"; "unknown schedule" otherwise. */
TUTTI_API const char *tutti_schedule_name(enum tutti_schedule_kind kind);

#ifdef __cplusplus
}
#endif
#endif
