/* Collectives in shared memory between more ranks than cores: each rank copies its input once, into
 * memory of the communicator's, and hands all peers references to the copy; each combines or copies
 * what it needs from where it lies.
 *
 * With cores to spare, plans and the fused path are faster. But where the core must first go to
 * another rank before a message can be answered, what counts is how often that happens: here once
 * in an operation, because nobody waits until peers have read (the copy stays valid after the
 * return), while the fused path takes two such turns and trees one for each level.
 *
 * The equal of what tti_fused_equal names, with the same order of combination and so the same bits;
 * tests/coll/test_staged.c holds them together. The messages are others, so all ranks take it or
 * none: TTI_PATH_STAGED is part of the tag. TUTTI_FAST=0 switches it off. */
#ifndef TTI_COLL_STAGED_H
#define TTI_COLL_STAGED_H

#include "coll/operation.h"

#include <stdbool.h>

struct tutti_comm;

/* A broadcast's root runs ahead by all slots, and each time that it must wait for them the cores
 * change hands: so a MiB of them, and not a quarter (4 ranks on 2 cores, 256 KiB: 20 us and now
 * 13). Where all wait for all nobody gets far ahead; there few slots stay in the caches of the
 * cores that fill and read them. */
enum {
    TTI_STAGED_RANKS = 64,
    TTI_STAGED_SLOTS = 16,
    TTI_STAGED_SLOTS_MUTUAL = 4,
    TTI_STAGED_SLOT_BYTES = 64 << 10
};

/* Of a communicator; made by the first operation that uses it. */
struct tti_stage {
    char *memory;    /* a region: the slots */
    uint64_t filled; /* slots, since the beginning */
    uint64_t served; /* operations */
    /* A slot may be filled again when so many bytes of each link are released. */
    uint64_t ends[TTI_STAGED_SLOTS][TTI_STAGED_RANKS];
};

/* Is there a staged way of this collective? */
bool tti_staged_serves(enum tutti_collective collective, int ranks);
/* Bytes of a block that a rank reads and writes, by block of the operation. */
double tti_staged_touched(enum tutti_collective collective, int ranks);

enum tutti_result tti_staged(struct tutti_comm *comm, const struct tti_operation *o,
                             const struct tti_label *label);

void tti_stage_destroy(struct tti_stage *stage);

#endif
