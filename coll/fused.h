/* Collectives over memory that every rank can map, without interpreting a plan: each rank reads its
 * share of all inputs once and stores the result into all outputs once, which are the fewest bytes
 * that can be touched.
 *
 * The equal of the plan that tti_fused_equal names: the same order of combination, so the same bits
 * (tests/coll/test_fused.c holds them together). Its messages are others, so all ranks take it or
 * none: TTI_PATH_FUSED is part of the tag. Read fused.c for the protocol, fused_share.c for what
 * moves where. TUTTI_FAST=0 switches it off, TUTTI_FUSED_FROM=0 on for every size. */
#ifndef TTI_COLL_FUSED_H
#define TTI_COLL_FUSED_H

#include "coll/operation.h"
#include "coll/selection.h"

struct tutti_comm;

enum { TTI_FUSED_RANKS = 64 };

/* The algorithm whose equal the fused path is; NULL: the collective has no fused path. */
const struct tti_algorithm *tti_fused_equal(enum tutti_collective collective);
/* Blocks of the operation's whole (the longer of IN and OUT). */
double tti_fused_blocks(enum tutti_collective collective, int ranks);
/* Blocks that the busiest rank reads and writes. */
double tti_fused_touched(enum tutti_collective collective, int ranks);

/* Whether memory was mappable lately, per collective: the same on all ranks. */
struct tti_fused_record {
    uint64_t served;
    unsigned refused; /* times in a row */
    unsigned skip;    /* operations until it is tried again */
};

/* Run the operation by the fused path. *served is false when some rank's memory cannot be mapped:
 * nothing was moved then, all ranks know, and the operation is to run by a plan. */
enum tutti_result tti_fused(struct tutti_comm *comm, const struct tti_operation *o,
                            const struct tti_selection *selection, const struct tti_label *label,
                            bool *served);

/* ---- between fused.c and fused_share.c ---- */

/* Which ranks' buffers the others use. */
enum tti_fused_whose { TTI_FUSED_NOBODY, TTI_FUSED_ROOT, TTI_FUSED_ALL };
enum tti_fused_whose tti_fused_in(enum tutti_collective collective);
enum tti_fused_whose tti_fused_out(enum tutti_collective collective);

/* By rank: where its buffers are in this process; NULL for those that nobody else uses. */
struct tti_fused_views {
    const void *in[TTI_FUSED_RANKS];
    void *out[TTI_FUSED_RANKS];
};

/* This rank's share of the work. */
void tti_fused_share(struct tutti_comm *comm, const struct tti_operation *o,
                     const struct tti_fused_views *views);

#endif
