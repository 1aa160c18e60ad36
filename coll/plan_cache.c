/* A small hash table of plans (coll/plan_cache.h). */
#include "coll/plan_cache.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

struct tti_plan_slot {
    const struct tti_algorithm *algorithm; /* NULL: free */
    int root, lanes, slices;
    struct tti_plan_entry entry;
};

static size_t cache_hash(const struct tti_algorithm *algorithm, int root, int lanes, int slices)
{
    uint64_t hash = (uint64_t)(uintptr_t)algorithm >> 4;
    hash = hash * 1000003u + (uint64_t)root;
    hash = hash * 1000003u + (uint64_t)lanes;
    hash = hash * 1000003u + (uint64_t)slices;
    return (size_t)(hash ^ hash >> 29);
}

static struct tti_plan_slot *cache_find(const struct tti_plan_cache *cache,
                                        const struct tti_algorithm *algorithm,
                                        const struct tti_plan_spec *spec)
{
    size_t at = cache_hash(algorithm, spec->root, spec->lanes, spec->slices);
    for (;; at++) {
        struct tti_plan_slot *slot = &cache->slots[at & (cache->capacity - 1)];
        if (!slot->algorithm || (slot->algorithm == algorithm && slot->root == spec->root &&
                                 slot->lanes == spec->lanes && slot->slices == spec->slices))
            return slot;
    }
}

static enum tutti_result cache_grow(struct tti_plan_cache *cache)
{
    struct tti_plan_cache grown = *cache;
    grown.capacity = cache->capacity ? 2 * cache->capacity : 32;
    grown.slots = tti_calloc(grown.capacity, sizeof *grown.slots);
    if (!grown.slots)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < cache->capacity; i++) {
        const struct tti_plan_slot *old = &cache->slots[i];
        struct tti_plan_spec spec = {.root = old->root, .lanes = old->lanes, .slices = old->slices};
        if (old->algorithm)
            *cache_find(&grown, old->algorithm, &spec) = *old;
    }
    free(cache->slots);
    *cache = grown;
    return TUTTI_OK;
}

static void entry_destroy(struct tti_plan_entry *entry)
{
    for (int lane = 0; entry->traits && lane < entry->plan->nlanes; lane++)
        free(entry->traits[lane]);
    free(entry->traits);
    tti_plan_destroy(entry->plan);
}

static bool step_reads_slot(const struct tti_step *step, uint32_t slot)
{
    bool sends = step->kind == TTI_SEND;
    bool reads_src = sends || step->kind == TTI_COPY || step->kind == TTI_REDUCE ||
                     step->kind == TTI_RECV_REDUCE;
    if (reads_src && step->src.buffer == TTI_SLOT && step->src.index == slot)
        return true;
    return step->kind == TTI_REDUCE && step->src2.buffer == TTI_SLOT && step->src2.index == slot;
}

/* Is a slot read in the steps from `first` on before it is overwritten? */
static bool lane_reads_slot(const struct tti_lane *lane, size_t first, uint32_t slot)
{
    for (size_t s = first; s < lane->count; s++) {
        const struct tti_step *step = &lane->steps[s];
        if (step_reads_slot(step, slot))
            return true;
        if (step->kind != TTI_SEND && step->dst.buffer == TTI_SLOT && step->dst.index == slot)
            return false;
    }
    return false;
}

/* A forwarded SLOT result that is overwritten, or never touched again, before anyone reads it. */
static bool step_passes(const struct tti_lane *lane, size_t s)
{
    const struct tti_step *step = &lane->steps[s];
    return step->kind == TTI_RECV_REDUCE && (step->flags & TTI_FORWARD) &&
           step->dst.buffer == TTI_SLOT && !lane_reads_slot(lane, s + 1, step->dst.index);
}

static bool ref_is_slot(struct tti_ref ref, uint32_t slot)
{
    return ref.buffer == TTI_SLOT && ref.index == slot;
}

/* A RECV into a slot, and behind it the REDUCE that alone reads it. */
static bool step_folds(const struct tti_lane *lane, size_t s)
{
    const struct tti_step *step = &lane->steps[s], *next = step + 1;
    const uint32_t slot = step->dst.index;
    if (step->kind != TTI_RECV || step->dst.buffer != TTI_SLOT || s + 1 == lane->count ||
        next->kind != TTI_REDUCE || ((step->flags | next->flags) & TTI_FORWARD) ||
        next->chunk != step->chunk || next->nchunks != step->nchunks ||
        ref_is_slot(next->src, slot) == ref_is_slot(next->src2, slot))
        return false;
    return ref_is_slot(next->dst, slot) || !lane_reads_slot(lane, s + 2, slot);
}

static enum tutti_result entry_create(struct tti_plan *plan, struct tti_plan_entry *entry)
{
    entry->plan = plan;
    entry->traits = tti_calloc((size_t)plan->nlanes, sizeof *entry->traits);
    if (!entry->traits)
        return TUTTI_ERR_MEMORY;
    for (int lane = 0; lane < plan->nlanes; lane++) {
        size_t count = plan->lanes[lane].count;
        entry->traits[lane] = tti_calloc(count, 1);
        if (!entry->traits[lane])
            return TUTTI_ERR_MEMORY;
        for (size_t s = 0; s < count; s++)
            entry->traits[lane][s] = step_passes(&plan->lanes[lane], s)  ? TTI_STEP_PASSES
                                     : step_folds(&plan->lanes[lane], s) ? TTI_STEP_FOLDS
                                                                         : TTI_STEP_PLAIN;
    }
    return TUTTI_OK;
}

enum tutti_result tti_plan_cache_get(struct tti_plan_cache *cache,
                                     const struct tti_algorithm *algorithm,
                                     const struct tti_plan_spec *spec,
                                     const struct tti_plan_entry **entry)
{
    if (cache->capacity == 0 || 2 * cache->used >= cache->capacity)
        TTI_TRY(cache_grow(cache));
    struct tti_plan_slot *slot = cache_find(cache, algorithm, spec);
    if (!slot->algorithm) {
        struct tti_plan *plan = NULL;
        TTI_TRY(cache->build ? cache->build(cache->context, algorithm, spec, &plan)
                             : algorithm->plan(spec, &plan));
        enum tutti_result result = entry_create(plan, &slot->entry);
        if (result != TUTTI_OK) {
            entry_destroy(&slot->entry);
            memset(slot, 0, sizeof *slot);
            return result;
        }
        slot->algorithm = algorithm;
        slot->root = spec->root;
        slot->lanes = spec->lanes;
        slot->slices = spec->slices;
        cache->used++;
    }
    *entry = &slot->entry;
    return TUTTI_OK;
}

static size_t entry_bytes(const struct tti_plan_entry *entry)
{
    const struct tti_plan *plan = entry->plan;
    size_t bytes = tti_heap_bytes(plan) + tti_heap_bytes(plan->lanes) +
                   tti_heap_bytes(plan->peers) + tti_heap_bytes(entry->traits);
    for (int lane = 0; lane < plan->nlanes; lane++)
        bytes += tti_heap_bytes(plan->lanes[lane].steps) + tti_heap_bytes(entry->traits[lane]);
    return bytes;
}

size_t tti_plan_cache_bytes(const struct tti_plan_cache *cache)
{
    size_t bytes = tti_heap_bytes(cache->slots);
    for (size_t i = 0; i < cache->capacity; i++)
        if (cache->slots[i].algorithm)
            bytes += entry_bytes(&cache->slots[i].entry);
    return bytes;
}

void tti_plan_cache_destroy(struct tti_plan_cache *cache)
{
    for (size_t i = 0; i < cache->capacity; i++)
        if (cache->slots[i].algorithm)
            entry_destroy(&cache->slots[i].entry);
    free(cache->slots);
    memset(cache, 0, sizeof *cache);
}
