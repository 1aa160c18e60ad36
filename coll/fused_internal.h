/* One operation on the fused path, between fused.c and fused_again.c. */
#ifndef TTI_COLL_FUSED_INTERNAL_H
#define TTI_COLL_FUSED_INTERNAL_H

#include "coll/comm.h"
#include "coll/exec_internal.h"
#include "coll/fused.h"

#include <stddef.h>

/* The first message; shorter by `edges` and what follows where there are none. */
struct tti_fused_offer {
    uint32_t mappable; /* 0: nothing that follows means anything */
    uint32_t edged;
    struct tutti_place in, out;
    struct tutti_place aside;
    struct tti_fused_edges edges;
};
enum { TTI_FUSED_OFFER_SHORT = offsetof(struct tti_fused_offer, aside) };

struct tti_fused_done {
    uint64_t done;
};

struct tti_fused_run {
    struct tutti_comm *comm;
    const struct tti_operation *o;
    uint64_t tag;
    unsigned idle;
    uint64_t deadline; /* 0: nothing had to be waited for long enough to look at the clock */
    size_t size;       /* of an element */
    size_t in_count, out_count; /* elements of what others use; 0: nothing */
    uint64_t renewals;
    bool offered;
    const struct tti_fused_again *unnoted; /* not NULL: it has no record yet, and is one of these */
    bool in_apart, out_apart; /* to some peer only whole pages can be offered, so to all */
    struct tti_fused_offer mine[TTI_FUSED_RANKS], theirs[TTI_FUSED_RANKS];
    struct tti_fused_edges edges;
    struct tti_fused_views views;
};

void tti_fused_begin(struct tti_fused_run *f, struct tutti_comm *comm,
                     const struct tti_operation *o, int algorithm, const struct tti_label *label);
/* What `result` means for the communicator: it takes note of whether it was served, or gets the
 * caller's buffers back. Returns it. */
enum tutti_result tti_fused_end(struct tti_fused_run *f, enum tutti_result result, bool served);

enum tutti_result tti_fused_send(struct tti_fused_run *f, int peer, const void *message,
                                 size_t bytes);
/* `bytes` of a message; or an offer, whose length is its own. */
enum tutti_result tti_fused_receive(struct tti_fused_run *f, int peer, void *message, size_t bytes,
                                    struct tti_fused_offer *offer);

/* Wait a moment for the peer's message, and take it if it is just what is expected: most are, and
 * are then looked at where they lie. False: nothing was taken. */
static inline bool tti_fused_heard(struct tti_fused_run *f, int peer, const void *expected,
                                   size_t bytes)
{
    const struct tti_link *link = &f->comm->links.all[peer];
    const void *data = NULL;
    size_t ready = 0;
    uint64_t tag = 0;
    enum tutti_result result = link->ops->peek(link->endpoint, 0, &tag, &data, &ready);
    if (result == TUTTI_OK && ready == 0 && tti_exec_await(f->comm, link))
        result = link->ops->peek(link->endpoint, 0, &tag, &data, &ready);
    if (result != TUTTI_OK || ready != bytes || tag != f->tag ||
        __builtin_memcmp(data, expected, bytes) != 0)
        return false;
    link->ops->consume(link->endpoint, 0, bytes);
    f->idle = 0;
    return true;
}
/* The operation has its record from here on, if it had none. */
void tti_fused_noted(struct tti_fused_run *f);

/* Elements of a buffer of `rank` that others use. */
size_t tti_fused_used(const struct tti_fused_run *f, int rank, bool out);
/* Bytes of all buffers on this host. */
size_t tti_fused_touches(const struct tti_fused_run *f);
/* The same for tti_copy_expect: they share the cache with whatever else there is. */
static inline size_t tti_fused_and_others(size_t bytes)
{
    return bytes + bytes / 4;
}
/* After all offers (f->mine, f->theirs): map, do the share, and tell each other; or, if not all
 * were `mappable`, nothing. */
enum tutti_result tti_fused_rest(struct tti_fused_run *f, bool mappable);
/* The end of it: nothing of the peers' is touched any more; tell them, and hear it of all. */
enum tutti_result tti_fused_through(struct tti_fused_run *f);
/* Were the pages that the peers stored to the ones that are here now? */
enum tutti_result tti_fused_check_pages(struct tti_fused_run *f);
/* The operation was served: keep what it found, if one like it can do with that. `regions`: what
 * tti_region_changes said before. */
void tti_fused_keep(const struct tti_fused_run *f, const struct tti_selection *selection,
                    uint64_t regions);

#endif
