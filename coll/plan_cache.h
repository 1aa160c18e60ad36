/* Plans already built for this rank, by collective, algorithm, root, lanes and slices. */
#ifndef TTI_COLL_PLAN_CACHE_H
#define TTI_COLL_PLAN_CACHE_H

#include "plan/plan.h"

/* What the executor may make of a step. */
enum tti_step_trait {
    TTI_STEP_PLAIN = 0,
    TTI_STEP_PASSES, /* its result is forwarded and never read again, so it need not be stored */
    TTI_STEP_FOLDS,  /* it receives into a slot for the step behind it, which combines that with
                        something, and nobody else: the two can be one */
};

struct tti_plan_entry {
    struct tti_plan *plan;
    uint8_t **traits; /* [lane][step]: enum tti_step_trait */
};

/* What builds a plan instead of the algorithm alone. */
typedef enum tutti_result tti_plan_build(void *context, const struct tti_algorithm *algorithm,
                                         const struct tti_plan_spec *spec, struct tti_plan **plan);

struct tti_plan_cache {
    struct tti_plan_slot *slots;
    size_t capacity, used;
    tti_plan_build *build; /* NULL: the algorithm */
    void *context;
};

/* The plan of `algorithm` for `spec`, built on first use. The entry is
 * valid until the next call, its plan until the cache is destroyed. */
enum tutti_result tti_plan_cache_get(struct tti_plan_cache *cache,
                                     const struct tti_algorithm *algorithm,
                                     const struct tti_plan_spec *spec,
                                     const struct tti_plan_entry **entry);
/* Bytes of the heap that it takes. */
size_t tti_plan_cache_bytes(const struct tti_plan_cache *cache);
void tti_plan_cache_destroy(struct tti_plan_cache *cache);

#endif
