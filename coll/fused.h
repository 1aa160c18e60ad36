/* Collectives over memory that every rank can map, without interpreting a plan: each rank reads its
 * share of all inputs once and stores the result into all outputs once, which are the fewest bytes
 * that can be touched.
 *
 * The equal of the plan that tti_fused_equal names: the same order of combination, so the same
 * bits. Its messages are others, so all ranks take it or none (TTI_PATH_FUSED is part of the tag).
 */
#ifndef TTI_COLL_FUSED_H
#define TTI_COLL_FUSED_H

#include "plan/plan.h"

enum { TTI_FUSED_RANKS = 64 };

/* The algorithm whose equal the fused path is; NULL: the collective has no fused path. */
const struct tti_algorithm *tti_fused_equal(enum tutti_collective collective);
/* Blocks of the operation's whole (the longer of IN and OUT). */
double tti_fused_blocks(enum tutti_collective collective, int ranks);
/* Blocks that the busiest rank reads and writes. */
double tti_fused_touched(enum tutti_collective collective, int ranks);

#endif
