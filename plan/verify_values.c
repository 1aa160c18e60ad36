/* Symbolic values, interned (plan/verify_parts.h).
 *
 * Sets of ranks are bitsets kept once each; a value refers to its set by number. So equality of
 * values is equality of ids, and a copy is four bytes whatever the number of ranks. */
#include "plan/verify_parts.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* Open addressing, ids + 1 in power-of-two many places; at most half full. The next place to look
 * at is an odd number of places on, so that all are seen, and far, so that what lies side by side
 * (hash_value) moves side by side. */
struct values_table {
    uint32_t *place;
    size_t places;
};

enum { STRIDE = 0x1e3779b1, UNIONS = 256 };

struct set_union { /* remembered, since chunk after chunk is combined out of the same sets */
    uint32_t left, right, set;
    uint32_t count; /* 0: nothing is here */
};

struct tti_values {
    int nranks;
    size_t words; /* 64-bit words per set */
    uint64_t *sets;
    size_t set_count, set_capacity; /* capacity in words */
    uint64_t *scratch;              /* one set */
    struct tti_value *values;
    size_t value_count, value_capacity;
    struct values_table set_table, value_table;
    struct set_union unions[UNIONS];
    int alone; /* the rank whose own set was asked for last; -1: none was */
    uint32_t alone_set;
};

static uint64_t mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

static uint64_t hash_set(const struct tti_values *values, const uint64_t *set)
{
    uint64_t hash = 0;
    for (size_t w = 0; w < values->words; w++)
        hash = mix(hash ^ set[w]) + w;
    return hash;
}

/* Steps go from chunk to chunk with values that are alike but for it: those lie side by side, so
 * that a step finds its value in the line that the step before brought. */
static uint64_t hash_value(const struct tti_value *value)
{
    return mix(value->order ^ value->prefix ^
               mix(((uint64_t)value->set << 1) | (value->final ? 1u : 0u))) +
           value->chunk;
}

static uint64_t *set_at(const struct tti_values *values, uint32_t set)
{
    return values->sets + (size_t)set * values->words;
}

static uint64_t hash_of(const struct tti_values *values, const struct values_table *table,
                        uint32_t id)
{
    return table == &values->set_table ? hash_set(values, set_at(values, id))
                                       : hash_value(&values->values[id]);
}

static enum tutti_result table_reserve(const struct tti_values *values, struct values_table *table,
                                       size_t count)
{
    if (2 * count < table->places)
        return TUTTI_OK;
    size_t places = table->places ? 2 * table->places : 1024;
    uint32_t *place = tti_calloc(places, sizeof *place);
    if (!place)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < table->places; i++) {
        if (!table->place[i])
            continue;
        size_t at = hash_of(values, table, table->place[i] - 1) & (places - 1);
        while (place[at])
            at = (at + STRIDE) & (places - 1);
        place[at] = table->place[i];
    }
    free(table->place);
    table->place = place;
    table->places = places;
    return TUTTI_OK;
}

/* The number of a set, a new one when it is new. */
static enum tutti_result intern_set(struct tti_values *values, const uint64_t *set, uint32_t *id)
{
    struct values_table *table = &values->set_table;
    TTI_TRY(table_reserve(values, table, values->set_count + 1));
    size_t bytes = values->words * sizeof *set;
    size_t at = hash_set(values, set) & (table->places - 1);
    for (; table->place[at]; at = (at + STRIDE) & (table->places - 1)) {
        if (memcmp(set_at(values, table->place[at] - 1), set, bytes) == 0) {
            *id = table->place[at] - 1;
            return TUTTI_OK;
        }
    }
    void *sets = values->sets;
    TTI_TRY(tti_grow(&sets, &values->set_capacity, (values->set_count + 1) * values->words,
                     sizeof *values->sets));
    values->sets = sets;
    *id = (uint32_t)values->set_count++;
    memcpy(set_at(values, *id), set, bytes);
    table->place[at] = *id + 1;
    return TUTTI_OK;
}

static bool same_value(const struct tti_value *a, const struct tti_value *b)
{
    return a->chunk == b->chunk && a->set == b->set && a->final == b->final &&
           a->order == b->order && a->prefix == b->prefix;
}

static enum tutti_result intern_value(struct tti_values *values, const struct tti_value *value,
                                      uint32_t *id)
{
    struct values_table *table = &values->value_table;
    TTI_TRY(table_reserve(values, table, values->value_count + 1));
    size_t at = hash_value(value) & (table->places - 1);
    for (; table->place[at]; at = (at + STRIDE) & (table->places - 1)) {
        if (same_value(&values->values[table->place[at] - 1], value)) {
            *id = table->place[at] - 1;
            return TUTTI_OK;
        }
    }
    void *array = values->values;
    TTI_TRY(
        tti_grow(&array, &values->value_capacity, values->value_count + 1, sizeof *values->values));
    values->values = array;
    *id = (uint32_t)values->value_count++;
    values->values[*id] = *value;
    table->place[at] = *id + 1;
    return TUTTI_OK;
}

enum tutti_result tti_values_create(int nranks, struct tti_values **values)
{
    struct tti_values *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->nranks = nranks;
    made->alone = -1;
    made->words = ((size_t)nranks + 63) / 64;
    made->scratch = tti_calloc(made->words, sizeof *made->scratch);
    enum tutti_result result = made->scratch ? TUTTI_OK : TUTTI_ERR_MEMORY;
    struct tti_value nothing = {0};
    uint32_t id = 0;
    if (result == TUTTI_OK)
        result = intern_set(made, made->scratch, &nothing.set);
    if (result == TUTTI_OK)
        result = intern_value(made, &nothing, &id);
    if (result != TUTTI_OK) {
        tti_values_destroy(made);
        return result;
    }
    *values = made;
    return TUTTI_OK;
}

void tti_values_destroy(struct tti_values *values)
{
    if (!values)
        return;
    free(values->sets);
    free(values->scratch);
    free(values->values);
    free(values->set_table.place);
    free(values->value_table.place);
    free(values);
}

const struct tti_value *tti_value_at(const struct tti_values *values, uint32_t id)
{
    return &values->values[id];
}

bool tti_value_has(const struct tti_values *values, uint32_t id, int rank)
{
    const uint64_t *set = set_at(values, values->values[id].set);
    return (set[rank / 64] >> (rank % 64)) & 1;
}

int tti_value_common(const struct tti_values *values, uint32_t a, uint32_t b)
{
    const uint64_t *x = set_at(values, values->values[a].set);
    const uint64_t *y = set_at(values, values->values[b].set);
    for (size_t w = 0; w < values->words; w++)
        if (x[w] & y[w])
            return (int)(64 * w) + __builtin_ctzll(x[w] & y[w]);
    return -1;
}

int tti_value_lacks(const struct tti_values *values, uint32_t id)
{
    for (int rank = 0; rank < values->nranks; rank++)
        if (!tti_value_has(values, id, rank))
            return rank;
    return -1;
}

enum tutti_result tti_value_raw(struct tti_values *values, int rank, uint32_t chunk, uint32_t *id)
{
    if (values->alone != rank) {
        memset(values->scratch, 0, values->words * sizeof *values->scratch);
        values->scratch[rank / 64] = (uint64_t)1 << (rank % 64);
        values->alone = -1;
        TTI_TRY(intern_set(values, values->scratch, &values->alone_set));
        values->alone = rank;
    }
    const struct tti_value raw = {.chunk = chunk,
                                  .set = values->alone_set,
                                  .count = 1,
                                  .order = mix((uint64_t)rank + 1),
                                  .prefix = rank == 0};
    return intern_value(values, &raw, id);
}

static enum tutti_result unite(struct tti_values *values, uint32_t left, uint32_t right,
                               const struct set_union **made)
{
    struct set_union *u = &values->unions[mix((uint64_t)left << 32 | right) % UNIONS];
    *made = u;
    if (u->count > 0 && u->left == left && u->right == right)
        return TUTTI_OK;
    const uint64_t *x = set_at(values, left), *y = set_at(values, right);
    *u = (struct set_union){.left = left, .right = right};
    uint32_t count = 0;
    for (size_t w = 0; w < values->words; w++) {
        values->scratch[w] = x[w] | y[w];
        count += (uint32_t)__builtin_popcountll(values->scratch[w]);
    }
    TTI_TRY(intern_set(values, values->scratch, &u->set));
    u->count = count;
    return TUTTI_OK;
}

enum tutti_result tti_value_reduce(struct tti_values *values, uint32_t left, uint32_t right,
                                   uint32_t *id)
{
    const struct tti_value *a = &values->values[left], *b = &values->values[right];
    const struct set_union *both;
    const bool next =
        a->prefix > 0 && b->count == 1 && tti_value_has(values, right, (int)a->prefix);
    TTI_TRY(unite(values, a->set, b->set, &both));
    const struct tti_value sum = {.chunk = a->chunk,
                                  .set = both->set,
                                  .count = both->count,
                                  .order = mix(3 * a->order + b->order + 1),
                                  .prefix = next ? a->prefix + 1 : 0};
    return intern_value(values, &sum, id);
}

enum tutti_result tti_value_finish(struct tti_values *values, uint32_t value, uint32_t *id)
{
    struct tti_value finished = values->values[value];
    finished.final = true;
    return intern_value(values, &finished, id);
}
