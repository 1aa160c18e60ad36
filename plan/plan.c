/* Facts about collectives that every reader of a plan shares (plan/plan.h). */
#include "plan/plan.h"

#include <stdlib.h>

void tti_plan_destroy(struct tti_plan *plan)
{
    if (!plan)
        return;
    for (int lane = 0; plan->lanes && lane < plan->nlanes; lane++)
        free(plan->lanes[lane].steps);
    free(plan->lanes);
    free(plan->peers);
    free(plan);
}

void tti_shape(enum tutti_collective collective, int nranks, int rank, int root,
               uint32_t *in_blocks, uint32_t *out_blocks)
{
    uint32_t n = (uint32_t)nranks;
    bool at_root = rank == root;
    *in_blocks = 1;
    *out_blocks = 1;
    switch (collective) {
    case TUTTI_BROADCAST:
        *in_blocks = at_root ? 1 : 0;
        break;
    case TUTTI_REDUCE:
        *out_blocks = at_root ? 1 : 0;
        break;
    case TUTTI_REDUCE_SCATTER:
        *in_blocks = n;
        break;
    case TUTTI_ALL_GATHER:
        *out_blocks = n;
        break;
    case TUTTI_ALL_TO_ALL:
        *in_blocks = n;
        *out_blocks = n;
        break;
    case TUTTI_GATHER:
        *out_blocks = at_root ? n : 0;
        break;
    case TUTTI_SCATTER:
        *in_blocks = at_root ? n : 0;
        break;
    case TUTTI_ALL_REDUCE:
    case TUTTI_BARRIER:
    case TUTTI_SEND_RECV:
    case TUTTI_COLLECTIVE_COUNT:
        break;
    }
}

bool tti_reduces(enum tutti_collective collective)
{
    return collective == TUTTI_ALL_REDUCE || collective == TUTTI_REDUCE ||
           collective == TUTTI_REDUCE_SCATTER || collective == TUTTI_BARRIER;
}

bool tti_order_shows(enum tutti_collective collective)
{
    return tti_reduces(collective) && collective != TUTTI_BARRIER;
}

bool tti_in_place(enum tutti_collective collective, int nranks, int rank, int root,
                  uint32_t *in_block, uint32_t *out_block)
{
    uint32_t in_blocks = 0, out_blocks = 0;
    tti_shape(collective, nranks, rank, root, &in_blocks, &out_blocks);
    if (in_blocks == 0 || out_blocks == 0 || collective == TUTTI_SEND_RECV)
        return false;
    *in_block = in_blocks > 1 && out_blocks == 1 ? (uint32_t)rank : 0;
    *out_block = out_blocks > 1 && in_blocks == 1 ? (uint32_t)rank : 0;
    return true;
}

bool tti_plan_in_place(const struct tti_plan_spec *spec, uint32_t *in_block, uint32_t *out_block)
{
    return spec->collective != TUTTI_ALL_TO_ALL &&
           tti_in_place(spec->collective, spec->nranks, spec->rank, spec->root, in_block,
                        out_block);
}
