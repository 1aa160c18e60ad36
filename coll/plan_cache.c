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
    struct tti_plan_cache grown = {.capacity = cache->capacity ? 2 * cache->capacity : 32,
                                   .used = cache->used};
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
    for (int lane = 0; entry->transient && lane < entry->plan->nlanes; lane++)
        free(entry->transient[lane]);
    free(entry->transient);
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

/* A forwarded SLOT result that is overwritten, or never touched again, before anyone reads it. */
static bool step_is_transient(const struct tti_lane *lane, size_t s)
{
    const struct tti_step *step = &lane->steps[s];
    if (step->kind != TTI_RECV_REDUCE || !(step->flags & TTI_FORWARD) ||
        step->dst.buffer != TTI_SLOT)
        return false;
    for (size_t later = s + 1; later < lane->count; later++) {
        if (step_reads_slot(&lane->steps[later], step->dst.index))
            return false;
        if (lane->steps[later].kind != TTI_SEND && lane->steps[later].dst.buffer == TTI_SLOT &&
            lane->steps[later].dst.index == step->dst.index)
            return true;
    }
    return true;
}

static enum tutti_result entry_create(struct tti_plan *plan, struct tti_plan_entry *entry)
{
    entry->plan = plan;
    entry->transient = tti_calloc((size_t)plan->nlanes, sizeof *entry->transient);
    if (!entry->transient)
        return TUTTI_ERR_MEMORY;
    for (int lane = 0; lane < plan->nlanes; lane++) {
        size_t count = plan->lanes[lane].count;
        entry->transient[lane] = tti_calloc(count, 1);
        if (!entry->transient[lane])
            return TUTTI_ERR_MEMORY;
        for (size_t s = 0; s < count; s++)
            entry->transient[lane][s] = step_is_transient(&plan->lanes[lane], s);
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
        TTI_TRY(algorithm->plan(spec, &plan));
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
                   tti_heap_bytes(plan->peers) + tti_heap_bytes(entry->transient);
    for (int lane = 0; lane < plan->nlanes; lane++)
        bytes += tti_heap_bytes(plan->lanes[lane].steps) + tti_heap_bytes(entry->transient[lane]);
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
