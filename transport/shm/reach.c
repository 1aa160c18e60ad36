/* shm: memory that the peer reads and writes itself (offer, map, unmap, withdraw of plugin.h).
 *
 * Regions cross as those of fragments do (regions.c); here the caller learns the address. Who maps
 * says so in `held` before it looks whether the other side has withdrawn; who withdraws says that
 * first and then looks at `held`: one of the two sees the other. A peer that holds on although it
 * was asked to let go (it is stopped, or very slow) keeps the old pages: the region gets fresh ones
 * with the same contents at the same addresses. */
#include "transport/shm/shm.h"

#include "base/clock.h"
#include "device/memory.h"

#include <poll.h>

bool tti_shm_offer(void *endpoint, const void *data, size_t bytes, struct tutti_place *place)
{
    struct shm_endpoint *self = endpoint;
    uint64_t id = 0, offset = 0;
    if (self->state != SHM_READY || !tti_shm_region_refer(self, data, bytes, &id, &offset))
        return false;
    if (self->exchange_over || self->exchange == 0)
        self->exchange++;
    self->exchange_over = false;
    self->passed[self->passed_last].offered = self->exchange;
    *place = (struct tutti_place){id, offset};
    return true;
}

static enum tutti_result reach_refuse(struct shm_endpoint *self, const char *what)
{
    return tti_shm_break(self, TTI_FAIL(TUTTI_ERR_PROTOCOL, "rank %d (%s) offered %s",
                                        self->peer->rank, self->peer->name, what));
}

enum tutti_result tti_shm_map(void *endpoint, const struct tutti_place *place, size_t bytes,
                              void **address)
{
    struct shm_endpoint *self = endpoint;
    if (self->state == SHM_FAILED)
        return tti_error_restore(&self->error);
    if (self->held_count == 0) {
        atomic_store_explicit(&self->our_hold->held, 1, memory_order_relaxed);
        tti_shm_fence_pairwise(self); /* with tti_shm_withdraw */
    }
    if (tti_load_acquire(&self->theirs->withdrawn) ||
        tti_load_acquire(&self->theirs->left) != SHM_THERE) {
        tti_shm_unmap(self);
        return TTI_FAIL(TUTTI_ERR_PEER, "rank %d (%s) closed its communicator", self->peer->rank,
                        self->peer->name);
    }
    struct shm_mapping *mapping = tti_shm_region_expect(self, place->region);
    if (self->state == SHM_FAILED)
        return tti_error_restore(&self->error);
    if (!mapping)
        return reach_refuse(self, "a memory region that it has not passed");
    if (place->offset > mapping->bytes || bytes > mapping->bytes - place->offset)
        return reach_refuse(self, "a range beyond the end of its memory region");
    if (!mapping->writable)
        return reach_refuse(self, "a memory region that cannot be written to");
    if (self->held_count == SHM_HOLDS)
        return TTI_FAIL(TUTTI_ERR_INTERNAL, "more than %d ranges of rank %d mapped at a time",
                        SHM_HOLDS, self->peer->rank);
    mapping->uses++;
    self->held[self->held_count++] = mapping;
    *address = mapping->base + place->offset;
    return TUTTI_OK;
}

void tti_shm_unmap(void *endpoint)
{
    struct shm_endpoint *self = endpoint;
    for (int i = 0; i < self->held_count; i++)
        tti_shm_region_done(self, self->held[i]);
    self->held_count = 0;
    self->exchange_over = true;
    tti_store_release(&self->our_hold->held, 0);
}

/* Give what was offered to the peer in this exchange fresh pages. What was offered before is not
 * touched by a peer that is merely slow, and other communicators may have it in use. */
static enum tutti_result reach_cut_off(struct shm_endpoint *self)
{
    enum tutti_result result = TUTTI_OK;
    for (size_t i = 0; i < self->passed_count; i++) {
        if (self->exchange == 0 || self->passed[i].offered != self->exchange)
            continue;
        enum tutti_result renewed = tti_region_renew(self->passed[i].id);
        result = result == TUTTI_OK ? renewed : result;
    }
    return result;
}

enum tutti_result tti_shm_withdraw(void *endpoint, int wait_ms)
{
    enum { NAP_MS = 1 };
    struct shm_endpoint *self = endpoint;
    uint64_t deadline = tti_deadline_in(wait_ms / 1e3);
    if (!self->ours)
        return TUTTI_OK;
    tti_store_release(&self->ours->withdrawn, 1);
    tti_full_fence(); /* pairs with the one in tti_shm_map; or this does for both: */
    if (self->transport->fences && !tti_shm_fence_all())
        return reach_cut_off(self); /* nobody knows then what the peer sees */
    while (tti_load_acquire(&self->their_hold->held)) {
        if (self->socket >= 0)
            tti_shm_endpoint_ready(self);
        if (self->ended) /* the process is gone, and its mappings with it; or it has let go */
            break;
        if (tti_deadline_passed(deadline))
            return reach_cut_off(self);
        (void)poll(NULL, 0, NAP_MS);
    }
    return TUTTI_OK;
}
