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
#include "coll/stage.h"

#include <stdbool.h>

struct tutti_comm;

enum {
    TTI_STAGED_RANKS = 64,
    TTI_STAGED_WINDOW = 64 << 10, /* bytes of a block that one covers */
    /* Windows kept where all wait for all: nobody gets far ahead, and so few stay in the caches of
     * the cores that fill and read them. */
    TTI_STAGED_MUTUAL = 4,
    TTI_STAGED_LARGE = 1 << 20, /* bytes that a root of larger broadcasts may be ahead */
    TTI_STAGED_AHEAD = 3,       /* operations that it gets ahead where nothing is said */
};

/* How many windows a root may keep for who is behind, in broadcasts of so many bytes. Whenever it
 * may not go on the cores change hands, and somebody's operation takes as long as all that the
 * others do in a turn. So either that happens to fewer than one operation in a hundred (broadcasts
 * of less than a window: the stage holds 128 to 256 of them, and the mean profits), or a turn is
 * short: `ahead` operations, as TUTTI_STAGED_AHEAD says, but never more than TTI_STAGED_LARGE bytes
 * (0: those). */
size_t tti_staged_windows(size_t bytes, size_t ahead);

/* Is there a staged way of this collective? */
bool tti_staged_serves(enum tutti_collective collective, int ranks);
/* Bytes of a block that a rank reads and writes, by block of the operation. */
double tti_staged_touched(enum tutti_collective collective, int ranks, double bytes);

enum tutti_result tti_staged(struct tutti_comm *comm, const struct tti_operation *o,
                             const struct tti_label *label);

#endif
