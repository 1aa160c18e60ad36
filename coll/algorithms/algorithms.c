/* The table of algorithms (coll/algorithms/algorithms.h). */
#include "coll/algorithms/algorithms.h"

#include <string.h>

#define ALGORITHMS(ENTRY) ENTRY(tti_ring_all_reduce)

#define DECLARE(name) extern const struct tti_algorithm name;
ALGORITHMS(DECLARE)
#define ADDRESS(name) &name,
static const struct tti_algorithm *const table[] = {ALGORITHMS(ADDRESS)};

const struct tti_algorithm *tti_algorithm_at(enum tutti_collective collective, int index)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i]->collective == collective && index-- == 0)
            return table[i];
    return NULL;
}

const struct tti_algorithm *tti_algorithm_find(enum tutti_collective collective, const char *name)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (table[i]->collective == collective && strcmp(table[i]->name, name) == 0)
            return table[i];
    return NULL;
}
