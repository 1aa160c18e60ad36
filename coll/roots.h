/* Broadcasts, or reduces, of several roots in a group whose calls have no order among each other,
 * as NCCL's have none: how its users write an all-gather and a reduce-scatter of blocks that differ
 * in size. On device memory that all ranks reach all are at work at once: broadcasts become
 * messages of kernels that run at the same time, reduces one reduce-scatter, whose blocks may lie
 * anywhere. One after another each would have a kernel of its own, and only its root's links at
 * work. */
#ifndef TTI_COLL_ROOTS_H
#define TTI_COLL_ROOTS_H

#include "coll/operation.h"

struct tutti_comm;

/* Some of the calls of a group. Whether they go together follows from what all ranks know alike:
 * roots, counts, types and operators. */
struct tti_roots {
    struct tutti_comm *comm;
    struct tti_operation like; /* one of them: collective, type and operator count */
    size_t calls, count;       /* of the calls, and of those that move something */
    uint64_t roots;
    size_t bytes, most; /* of all, of the largest */
};

static inline void tti_roots_begin(struct tti_roots *r, struct tutti_comm *comm)
{
    *r = (struct tti_roots){.comm = comm};
}
/* One more, if it may be one of them: false, and nothing changed, if not. */
bool tti_roots_take(struct tti_roots *r, const struct tti_operation *o);
/* Do they pay together? Not one alone, nor such as one of them outweighs: its root would have all
 * of it to itself. */
bool tti_roots_suit(const struct tti_roots *r);

/* The most operations that they become at this rank. */
size_t tti_roots_room(const struct tti_roots *r);
/* Adds what one of them becomes to the *count operations that there are. */
enum tutti_result tti_roots_add(const struct tutti_comm *comm, const struct tti_operation *o,
                                struct tti_operation *ops, size_t *count);
/* Frees what they hold. */
void tti_roots_end(struct tti_operation *ops, size_t count);

#endif
