/* Broadcasts of several roots in a group whose calls have no order among each other, as NCCL's have
 * none: how its users write an all-gather of blocks that differ in size. On device memory, between
 * ranks of one host, they go as messages, all at once by one kernel, where one after another each
 * would have a kernel of its own and only its root's links at work. */
#ifndef TTI_COLL_BROADCASTS_H
#define TTI_COLL_BROADCASTS_H

#include "coll/operation.h"

struct tutti_comm;

/* Some of the calls of a group. Whether they go as messages follows from what all ranks know alike:
 * roots, counts and types. */
struct tti_broadcasts {
    struct tutti_comm *comm;
    size_t calls, count; /* of the broadcasts, and of those that move something */
    uint64_t roots;
    size_t bytes, most; /* of all, of the largest */
};

static inline void tti_broadcasts_begin(struct tti_broadcasts *b, struct tutti_comm *comm)
{
    *b = (struct tti_broadcasts){.comm = comm};
}
/* One more, if it may be one of them: false, and nothing changed, if not. */
bool tti_broadcasts_take(struct tti_broadcasts *b, const struct tti_operation *o);
/* Do they pay as messages? Not one alone, nor such as one of them outweighs: its root would send it
 * to each of the others by itself. */
bool tti_broadcasts_suit(const struct tti_broadcasts *b);
/* The most messages that a broadcast becomes at a rank. */
size_t tti_broadcasts_room(const struct tti_broadcasts *b);
/* Those of one broadcast at this rank; returns their number. */
size_t tti_broadcasts_messages(const struct tutti_comm *comm, const struct tti_operation *o,
                               struct tti_operation *messages);

#endif
