/* Plans already built for this rank, by collective, algorithm, root, lanes and slices. */
#ifndef TTI_COLL_PLAN_CACHE_H
#define TTI_COLL_PLAN_CACHE_H

#include "plan/plan.h"

struct tti_plan_entry {
    struct tti_plan *plan;
    uint8_t **transient; /* [lane][step]: the step's result is forwarded and never read again, so it
                            need not be stored */
};

struct tti_plan_cache {
    struct tti_plan_slot *slots;
    size_t capacity, used;
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
