/* The table of algorithms (coll/algorithms/algorithms.h). */
#include "coll/algorithms/algorithms.h"

#include <string.h>

#define ALGORITHMS(ENTRY)                      \
    ENTRY(tti_ring_all_reduce)                 \
    ENTRY(tti_tree_all_reduce)                 \
    ENTRY(tti_recursive_doubling_all_reduce)   \
    ENTRY(tti_rabenseifner_all_reduce)         \
    ENTRY(tti_one_shot_all_reduce)             \
    ENTRY(tti_two_shot_all_reduce)             \
    ENTRY(tti_hierarchical_all_reduce)         \
    ENTRY(tti_hierarchical_halving_all_reduce) \
    ENTRY(tti_ordered_chain_all_reduce)        \
    ENTRY(tti_ordered_bruck_all_reduce)        \
    ENTRY(tti_chain_broadcast)                 \
    ENTRY(tti_tree_broadcast)                  \
    ENTRY(tti_scatter_gather_broadcast)        \
    ENTRY(tti_chain_reduce)                    \
    ENTRY(tti_tree_reduce)                     \
    ENTRY(tti_direct_reduce)                   \
    ENTRY(tti_ring_reduce_scatter)             \
    ENTRY(tti_direct_reduce_scatter)           \
    ENTRY(tti_bruck_reduce_scatter)            \
    ENTRY(tti_hierarchical_reduce_scatter)     \
    ENTRY(tti_ring_all_gather)                 \
    ENTRY(tti_direct_all_gather)               \
    ENTRY(tti_bruck_all_gather)                \
    ENTRY(tti_hierarchical_all_gather)         \
    ENTRY(tti_direct_all_to_all)               \
    ENTRY(tti_bruck_all_to_all)                \
    ENTRY(tti_direct_gather)                   \
    ENTRY(tti_tree_gather)                     \
    ENTRY(tti_direct_scatter)                  \
    ENTRY(tti_tree_scatter)                    \
    ENTRY(tti_dissemination_barrier)           \
    ENTRY(tti_direct_barrier)

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
