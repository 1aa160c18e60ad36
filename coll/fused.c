/* The fused path (coll/fused.h). */
#include "coll/fused.h"

#include <stddef.h>

const struct tti_algorithm *tti_fused_equal(enum tutti_collective collective)
{
    (void)collective; /* none has it yet */
    return NULL;
}

double tti_fused_blocks(enum tutti_collective collective, int ranks)
{
    switch (collective) {
    case TUTTI_ALL_REDUCE:
    case TUTTI_BROADCAST:
    case TUTTI_REDUCE:
        return 1;
    default:
        return ranks;
    }
}

double tti_fused_touched(enum tutti_collective collective, int ranks)
{
    double n = ranks;
    switch (collective) {
    case TUTTI_ALL_REDUCE:
        return 2;
    case TUTTI_BROADCAST:
    case TUTTI_REDUCE:
        return (n + 1) / n;
    case TUTTI_ALL_TO_ALL:
        return 2 * n;
    case TUTTI_GATHER:
    case TUTTI_SCATTER:
        return 2;
    default:
        return n + 1;
    }
}
