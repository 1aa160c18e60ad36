/* Windows: memory of each rank that the others may write to alone (tutti_put). What is done at a
 * target is post.h's; here is what a call means. */
#ifndef TTI_COLL_WINDOW_H
#define TTI_COLL_WINDOW_H

#include "coll/operation.h"
#include "device/gpu.h"
#include "device/memory.h"

struct tti_post;

struct tutti_window {
    struct tutti_window *next; /* of the post's list */
    struct tutti_comm *comm;
    uint64_t number; /* the same on all ranks */
    char *memory;
    size_t bytes;
    bool device;     /* `memory` is, and the host may not touch it ... */
    int index;       /* ... of this one */
    uint64_t region; /* that it is in; 0: none */
    size_t *sizes;   /* bytes, by rank */
    /* By rank: where its memory lies for stores of this rank; `memory` NULL: by message. */
    struct tti_region_map *direct;
};

/* One that is in no list. NULL is allowed. */
void tti_window_free(struct tutti_window *window);
/* Run a checked put, signal or wait, in the communicator's turn. */
enum tutti_result tti_window_run(struct tutti_comm *comm, const struct tti_operation *o);

#endif
