/* What a plan costs apart from waiting: bytes that cores touch, and bytes that cross the lines of
 * hosts. Both are counted in the plans, so no algorithm states them. */
#ifndef TTI_COLL_WORK_MODEL_H
#define TTI_COLL_WORK_MODEL_H

#include "plan/plan.h"

/* Bytes per byte of a block where a message goes through a copy that its sender makes, of the rank
 * with the most of them: those that it reads and writes in its own buffers, and those that pass
 * between cores, a message's once at each end. */
struct tti_work_copied {
    double own, passed;
};

/* Of the busiest rank: steps, and bytes read and written per byte of a block. A message is read
 * where it lies (no copy at the sender): receiving touches 2 bytes a byte, combining 3. */
struct tti_work_model {
    double steps;
    double local; /* of these, the ones without a message */
    double touched;
    double receivers; /* ranks that it sends to; of more than 64 some are taken for one */
    double messages;  /* that it receives */
    double evenness;  /* touched bytes of the ranks on average / of the busiest; 1: all alike */
    struct tti_work_copied copied;
    /* Between hosts: bytes per byte of a block that one way of the busiest host's line carries (its
     * ranks' together), and whether some host hears from more than one other. Where a host has
     * several NICs that its ranks leave by (layout.gates), its line is all of them, and carries
     * what it would if all were as busy as the busiest is. `turned`: with a lane for each of them.
     */
    double crossing, turned;
    bool contended;
};

/* From the algorithm's own plans, with one lane (but for `turned`) and one slice. All ranks of
 * small communicators are looked at, a few of large ones; the answer depends on the spec alone
 * (rank is ignored). */
enum tutti_result tti_work_model_of(const struct tti_algorithm *algorithm,
                                    const struct tti_plan_spec *spec, struct tti_work_model *model);

#endif
