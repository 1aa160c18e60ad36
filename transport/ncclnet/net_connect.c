/* Connections over a plugin of NCCL's (ncclnet.h): the tcp connection first, then the handles of
 * both ends' listeners over it, then the plugin's connections; and their end. */
#include "transport/ncclnet/ncclnet.h"

#include "base/clock.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

extern const struct tutti_transport_ops tti_tcp_ops;

enum { TAG_HANDLES = 1, TAG_GOODBYE = 2, ADDRESS_HEAD = 8 };
static const double FLUSH_SECONDS = 1;

static enum tutti_result connect_failed(const struct tti_net_endpoint *endpoint, const char *what,
                                        int failed)
{
    return TTI_FAIL(TUTTI_ERR_LINK, "ncclnet: the plugin %s cannot %s rank %d (%s): result %d",
                    tti_net_name(), what, endpoint->peer.rank, endpoint->peer.name, failed);
}

enum tutti_result tti_net_endpoint_connect(void *object, const struct tutti_peer *peer, int lanes,
                                           void **out)
{
    struct tti_net_transport *transport = object;
    struct tti_net_endpoint *made =
        tti_calloc(1, sizeof *made + (size_t)lanes * sizeof made->lane[0]);
    if (!made)
        return TUTTI_ERR_MEMORY;
    made->transport = transport;
    made->lanes = lanes;
    made->peer = *peer; /* tcp's part of the address */
    made->peer.address = (const char *)peer->address + ADDRESS_HEAD;
    made->peer.address_bytes = peer->address_bytes - ADDRESS_HEAD;
    enum tutti_result result = tti_tcp_ops.connect(transport->tcp, &made->peer, 1, &made->tcp);
    if (result != TUTTI_OK) {
        free(made);
        return result;
    }
    made->next = transport->endpoint;
    transport->endpoint = made;
    *out = made;
    return TUTTI_OK;
}

/* ---- handles ---- */

static enum tutti_result connect_listen(struct tti_net_endpoint *endpoint, char *handles)
{
    struct tti_net_transport *transport = endpoint->transport;
    for (int i = 0; i < endpoint->lanes; i++) {
        char *handle = handles + (size_t)i * TTI_NET_HANDLE_BYTES;
        int failed = tti_net_listen(transport->context, transport->device, handle,
                                    &endpoint->lane[i].listener);
        if (failed)
            return connect_failed(endpoint, "listen for", failed);
    }
    return TUTTI_OK;
}

/* At most 16 lanes of 128 bytes: tcp takes that in one piece into an empty connection. */
static enum tutti_result connect_tell(struct tti_net_endpoint *endpoint)
{
    char handles[TUTTI_MAX_LANES * TTI_NET_HANDLE_BYTES] = {0};
    const size_t bytes = (size_t)endpoint->lanes * TTI_NET_HANDLE_BYTES;
    TTI_TRY(connect_listen(endpoint, handles));
    TTI_TRY(tti_tcp_ops.send(endpoint->tcp, 0, TAG_HANDLES, handles, bytes, &endpoint->sent));
    if (endpoint->sent != bytes)
        return TTI_FAIL(TUTTI_ERR_LINK,
                        "ncclnet: the connection to rank %d (%s) took %zu of %zu "
                        "bytes of handles",
                        endpoint->peer.rank, endpoint->peer.name, endpoint->sent, bytes);
    return TUTTI_OK;
}

/* Bytes that tcp has, copied behind those that have come before, of `total`. */
static enum tutti_result connect_hear(struct tti_net_endpoint *endpoint, uint64_t expected,
                                      char *into, size_t stride, size_t total)
{
    while (endpoint->come < total) {
        const void *data = NULL;
        uint64_t tag = 0;
        size_t bytes = 0;
        TTI_TRY(tti_tcp_ops.peek(endpoint->tcp, 0, &tag, &data, &bytes));
        if (bytes == 0)
            return TUTTI_IN_PROGRESS;
        if (tag != expected || bytes > total - endpoint->come)
            return TTI_FAIL(TUTTI_ERR_PROTOCOL,
                            "ncclnet: rank %d (%s) sent what makes no sense beside the plugin",
                            endpoint->peer.rank, endpoint->peer.name);
        const size_t unit = total / (size_t)endpoint->lanes;
        for (size_t i = 0; i < bytes; i++, endpoint->come++)
            into[endpoint->come / unit * stride + endpoint->come % unit] = ((const char *)data)[i];
        tti_tcp_ops.consume(endpoint->tcp, 0, bytes);
    }
    return TUTTI_OK;
}

static enum tutti_result connect_join(struct tti_net_endpoint *endpoint)
{
    struct tti_net_transport *transport = endpoint->transport;
    bool all = true;
    for (int i = 0; i < endpoint->lanes; i++) {
        struct tti_net_lane *lane = &endpoint->lane[i];
        int failed = 0;
        if (!lane->out.comm)
            failed = tti_net_connect(transport->context, transport->device, lane->handle,
                                     &lane->out.comm);
        if (failed)
            return connect_failed(endpoint, "connect to", failed);
        if (!lane->in.comm)
            failed = tti_net_accept(lane->listener, &lane->in.comm);
        if (failed)
            return connect_failed(endpoint, "accept", failed);
        if (!lane->out.comm || !lane->in.comm)
            all = false;
        else if (!lane->in.key)
            TTI_TRY(tti_net_lane_open(endpoint, lane));
        if (lane->in.key)
            (void)tti_net_lane_move(endpoint, lane);
    }
    return all ? TUTTI_OK : TUTTI_IN_PROGRESS;
}

enum tutti_result tti_net_endpoint_advance(void *object)
{
    struct tti_net_endpoint *endpoint = object;
    const size_t handles = (size_t)endpoint->lanes * TTI_NET_HANDLE_BYTES;
    if (endpoint->state == TTI_NET_MEETING) {
        TTI_TRY(tti_tcp_ops.advance(endpoint->tcp));
        TTI_TRY(connect_tell(endpoint));
        endpoint->state = TTI_NET_HANDLES;
    }
    if (endpoint->state == TTI_NET_HANDLES) {
        TTI_TRY(connect_hear(endpoint, TAG_HANDLES, endpoint->lane[0].handle,
                             sizeof endpoint->lane[0], handles));
        endpoint->come = 0;
        endpoint->state = TTI_NET_JOINING;
    }
    if (endpoint->state == TTI_NET_JOINING) {
        tti_net_endpoint_hear(endpoint);
        const enum tutti_result result = connect_join(endpoint);
        if (result == TUTTI_IN_PROGRESS && (endpoint->died || endpoint->goodbye))
            return TTI_FAIL(TUTTI_ERR_PEER, "rank %d (%s) left while connecting",
                            endpoint->peer.rank, endpoint->peer.name);
        TTI_TRY(result);
        endpoint->state = TTI_NET_UP;
        endpoint->transport->news = true;
    }
    return TUTTI_OK;
}

/* ---- the end ---- */

void tti_net_endpoint_hear(struct tti_net_endpoint *endpoint)
{
    if (endpoint->goodbye || endpoint->died)
        return;
    const size_t total = (size_t)endpoint->lanes * sizeof endpoint->lane[0].last;
    const enum tutti_result result = connect_hear(
        endpoint, TAG_GOODBYE, (char *)&endpoint->lane[0].last, sizeof endpoint->lane[0], total);
    endpoint->goodbye = result == TUTTI_OK;
    endpoint->died = result != TUTTI_OK && result != TUTTI_IN_PROGRESS;
    endpoint->transport->news |= endpoint->goodbye || endpoint->died;
}

static void disconnect_flush(struct tti_net_endpoint *endpoint)
{
    const uint64_t deadline = tti_deadline_in(FLUSH_SECONDS);
    uint64_t counts[TUTTI_MAX_LANES];
    bool all = false;
    size_t accepted = 0;
    while (!all && !tti_deadline_passed(deadline)) {
        all = true;
        (void)tti_tcp_ops.progress(endpoint->transport->tcp);
        tti_net_endpoint_hear(endpoint);
        for (int i = 0; i < endpoint->lanes; i++) {
            struct tti_net_lane *lane = &endpoint->lane[i];
            (void)tti_net_lane_move(endpoint, lane);
            all &= lane->out.failed || lane->out.done == lane->out.filled;
            counts[i] = lane->out.filled;
        }
        all |= endpoint->goodbye || endpoint->died; /* nobody reads it */
    }
    if (!endpoint->died)
        (void)tti_tcp_ops.send(endpoint->tcp, 0, TAG_GOODBYE, counts,
                               (size_t)endpoint->lanes * sizeof counts[0], &accepted);
}

void tti_net_endpoint_disconnect(void *object)
{
    struct tti_net_endpoint *endpoint = object;
    struct tti_net_endpoint **link = &endpoint->transport->endpoint;
    while (*link != endpoint)
        link = &(*link)->next;
    *link = endpoint->next;
    if (endpoint->state == TTI_NET_UP)
        disconnect_flush(endpoint);
    tti_tcp_ops.disconnect(endpoint->tcp);
    for (int i = 0; i < endpoint->lanes; i++)
        tti_net_lane_close(&endpoint->lane[i]);
    free(endpoint);
}
