/* Messages of a lane (ncclnet.h): a header with the tag, then the bytes, in registered slots. What
 * is sent is copied into a slot, and so is the caller's again at once; receives stand posted for
 * all slots that nobody reads. The plugin keeps messages in order. */
#include "transport/ncclnet/ncclnet.h"

#include "base/clock.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static const uint64_t SILENCE_NS = 1000000000; /* of tcp, after which the plugin's failure counts */

/* ---- opening and closing ---- */

static enum tutti_result ring_open(struct tti_net_endpoint *endpoint, struct tti_net_ring *ring)
{
    enum { PAGE = 4096 };
    const size_t bytes = (size_t)TTI_NET_SLOTS * TTI_NET_SLOT;
    ring->memory = tti_calloc_aligned(PAGE, bytes, 1);
    if (!ring->memory)
        return TUTTI_ERR_MEMORY;
    int failed = tti_net_register(ring->comm, ring->memory, bytes, &ring->key);
    if (failed)
        return TTI_FAIL(TUTTI_ERR_SYSTEM,
                        "ncclnet: the plugin %s cannot register %zu bytes for rank %d (result %d)",
                        tti_net_name(), bytes, endpoint->peer.rank, failed);
    return TUTTI_OK;
}

static void ring_close(struct tti_net_ring *ring)
{
    if (ring->key)
        tti_net_deregister(ring->comm, ring->key);
    ring->key = NULL;
}

enum tutti_result tti_net_lane_open(struct tti_net_endpoint *endpoint, struct tti_net_lane *lane)
{
    TTI_TRY(ring_open(endpoint, &lane->out));
    TTI_TRY(ring_open(endpoint, &lane->in));
    tti_net_close(NULL, NULL, lane->listener);
    lane->listener = NULL;
    return TUTTI_OK;
}

/* The plugin is through with the memory once its connections are closed. */
void tti_net_lane_close(struct tti_net_lane *lane)
{
    ring_close(&lane->out);
    ring_close(&lane->in);
    tti_net_close(lane->out.comm, lane->in.comm, lane->listener);
    free(lane->out.memory);
    free(lane->in.memory);
}

/* ---- moving ---- */

static char *ring_slot(const struct tti_net_ring *ring, uint64_t number)
{
    return ring->memory + number % TTI_NET_SLOTS * TTI_NET_SLOT;
}

static bool ring_test(struct tti_net_ring *ring)
{
    bool moved = false;
    while (!ring->failed && ring->done < ring->posted) {
        const unsigned at = ring->done % TTI_NET_SLOTS;
        int over = 0, bytes = 0;
        ring->failed = tti_net_test(ring->request[at], &over, &bytes);
        if (ring->failed || !over)
            break;
        ring->bytes[at] = (size_t)bytes;
        ring->done++;
        moved = true;
    }
    return moved;
}

static bool lane_move_out(struct tti_net_lane *lane)
{
    struct tti_net_ring *ring = &lane->out;
    while (!ring->failed && ring->posted < ring->filled) {
        const unsigned at = ring->posted % TTI_NET_SLOTS;
        ring->failed = tti_net_send(ring->comm, ring_slot(ring, ring->posted), ring->bytes[at],
                                    ring->key, &ring->request[at]);
        if (ring->failed || !ring->request[at])
            break;
        ring->posted++;
    }
    return ring_test(ring);
}

static bool lane_move_in(struct tti_net_lane *lane)
{
    struct tti_net_ring *ring = &lane->in;
    while (!ring->failed && ring->posted - ring->filled < TTI_NET_SLOTS) {
        const unsigned at = ring->posted % TTI_NET_SLOTS;
        ring->failed = tti_net_receive(ring->comm, ring_slot(ring, ring->posted), TTI_NET_SLOT,
                                       ring->key, &ring->request[at]);
        if (ring->failed || !ring->request[at])
            break;
        ring->posted++;
    }
    return ring_test(ring);
}

bool tti_net_lane_move(struct tti_net_endpoint *endpoint, struct tti_net_lane *lane)
{
    bool moved = lane_move_out(lane);
    moved |= lane_move_in(lane);
    if ((lane->out.failed || lane->in.failed) && !endpoint->failed_ns)
        endpoint->failed_ns = tti_now_ns();
    endpoint->transport->news |= moved;
    return moved;
}

/* ---- for the caller ---- */

/* The peer is gone, or the plugin says so. It fails at our end when the peer closes, too: why, tcp
 * knows a moment later. */
static enum tutti_result lane_gone(const struct tti_net_endpoint *endpoint,
                                   const struct tti_net_lane *lane)
{
    const struct tutti_peer *peer = &endpoint->peer;
    if (endpoint->goodbye || endpoint->died)
        return TTI_FAIL(TUTTI_ERR_PEER, "rank %d (%s) %s", peer->rank, peer->name,
                        endpoint->goodbye ? "has left" : "died, or its connection broke");
    if (endpoint->failed_ns && tti_now_ns() - endpoint->failed_ns > SILENCE_NS)
        return TTI_FAIL(TUTTI_ERR_LINK,
                        "ncclnet: the plugin %s failed between here and rank %d (%s): result %d",
                        tti_net_name(), peer->rank, peer->name,
                        lane->in.failed ? lane->in.failed : lane->out.failed);
    return TUTTI_OK;
}

enum tutti_result tti_net_lane_send(void *object, int index, uint64_t tag, const void *data,
                                    size_t bytes, size_t *accepted)
{
    struct tti_net_endpoint *endpoint = object;
    struct tti_net_lane *lane = &endpoint->lane[index];
    struct tti_net_ring *ring = &lane->out;
    size_t taken = 0;
    TTI_TRY(lane_gone(endpoint, lane));
    if (ring->filled - ring->done == TTI_NET_SLOTS)
        (void)tti_net_lane_move(endpoint, lane);
    while (taken < bytes && ring->filled - ring->done < TTI_NET_SLOTS) {
        const size_t piece = bytes - taken < TTI_NET_PAYLOAD ? bytes - taken : TTI_NET_PAYLOAD;
        char *slot = ring_slot(ring, ring->filled);
        memcpy(slot, &tag, sizeof tag);
        memcpy(slot + TTI_NET_HEADER, (const char *)data + taken, piece);
        ring->bytes[ring->filled % TTI_NET_SLOTS] = TTI_NET_HEADER + piece;
        ring->filled++;
        taken += piece;
    }
    lane->accepted += taken;
    (void)lane_move_out(lane);
    *accepted = taken;
    return TUTTI_OK;
}

uint64_t tti_net_lane_released(void *object, int index)
{
    return ((struct tti_net_endpoint *)object)->lane[index].accepted;
}

enum tutti_result tti_net_lane_peek(void *object, int index, uint64_t *tag, const void **data,
                                    size_t *bytes)
{
    struct tti_net_endpoint *endpoint = object;
    struct tti_net_lane *lane = &endpoint->lane[index];
    struct tti_net_ring *ring = &lane->in;
    *bytes = 0;
    if (ring->filled == ring->done)
        (void)tti_net_lane_move(endpoint, lane);
    if (ring->filled == ring->done) {
        /* What the peer sent before its goodbye is on its way still. */
        if (endpoint->goodbye && ring->done < lane->last && !ring->failed)
            return TUTTI_OK;
        return lane_gone(endpoint, lane);
    }
    const size_t size = ring->bytes[ring->filled % TTI_NET_SLOTS];
    const char *slot = ring_slot(ring, ring->filled);
    if (size <= TTI_NET_HEADER || size > TTI_NET_SLOT)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "ncclnet: rank %d (%s) sent a message of %zu bytes",
                        endpoint->peer.rank, endpoint->peer.name, size);
    memcpy(tag, slot, sizeof *tag);
    *data = slot + TTI_NET_HEADER + lane->at;
    *bytes = size - TTI_NET_HEADER - lane->at;
    return TUTTI_OK;
}

void tti_net_lane_consume(void *object, int index, size_t bytes)
{
    struct tti_net_endpoint *endpoint = object;
    struct tti_net_lane *lane = &endpoint->lane[index];
    struct tti_net_ring *ring = &lane->in;
    lane->at += bytes;
    if (lane->at < ring->bytes[ring->filled % TTI_NET_SLOTS] - TTI_NET_HEADER)
        return;
    lane->at = 0;
    ring->filled++;
    (void)lane_move_in(lane); /* its slot receives again */
}
