/* Plans recast for another use than they were built for: ranks that are a part of a communicator
 * run a plan for as many, and contributions that are sums already stay accumulators. Used where
 * operations go in levels (coll/column.h). */
#ifndef TTI_PLAN_RECAST_H
#define TTI_PLAN_RECAST_H

#include "plan/plan.h"

/* Rank r of the plan is rank names[r] from now on, for its peers. The spec, and with
 * it the blocks of IN and OUT, stay as they were. */
void tti_plan_rename(struct tti_plan *plan, const int *names);

/* From now on IN of these plans, of all n ranks of an operation, holds accumulators, as SCRATCH and
 * SLOT do: who receives what was sent from IN is told so (TTI_MSG_ACC). Plans that combine nothing
 * stay as they are. UNSUPPORTED: a plan puts a contribution into OUT, which has no room for it; the
 * plans are then of no use. MEMORY. */
enum tutti_result tti_plan_widen(struct tti_plan *const *plans, int n);

#endif
