/* Endpoints: connect, advance, disconnect, and what both sides do when a lane has its socket. */
#include "transport/tcp/tcp_endpoint.h"

#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- becoming connected ---------------------------------------------------------------------- */

/* The interface that has this address, as far as we can tell. */
static void endpoint_interface(const struct sockaddr_storage *address, char name[IF_NAMESIZE])
{
    struct tti_tcp_interface *list = NULL;
    size_t count = 0;
    uint8_t bytes[16] = {0};
    const uint8_t *v6 = ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr.s6_addr;
    bool mapped = address->ss_family == AF_INET6 &&
                  IN6_IS_ADDR_V4MAPPED((const struct in6_addr *)(const void *)v6);
    if (address->ss_family == AF_INET)
        memcpy(bytes, &((const struct sockaddr_in *)(const void *)address)->sin_addr, 4);
    else
        memcpy(bytes, mapped ? v6 + 12 : v6, mapped ? 4 : 16);
    snprintf(name, IF_NAMESIZE, "?");
    if (tti_tcp_interfaces(&list, &count) != TUTTI_OK)
        return;
    for (size_t i = 0; i < count; i++)
        if (memcmp(list[i].address.bytes, bytes, sizeof bytes) == 0)
            memcpy(name, list[i].name, IF_NAMESIZE);
    free(list);
}

/* "rank 0 -> rank 1 (node2:4711) over eth0 10.0.0.1:38211 -> 10.0.0.2:4444, 2 sockets" */
static void endpoint_log(const struct tti_tcp_endpoint *endpoint)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    char interface[IF_NAMESIZE], local[TTI_TCP_TEXT_BYTES];
    if (!tti_log_enabled(TTI_LOG_INFO))
        return;
    memset(&address, 0, sizeof address);
    if (getsockname(endpoint->lane[0].socket, (struct sockaddr *)&address, &bytes) != 0)
        return;
    tti_tcp_sockaddr_text(&address, local);
    endpoint_interface(&address, interface);
    TTI_LOG(TTI_LOG_INFO, "tcp: rank %d %s rank %d (%s) over %s %s %s %s, %d socket%s",
            endpoint->transport->rank, endpoint->connects ? "->" : "<-", endpoint->peer->rank,
            endpoint->peer->name, interface, local, endpoint->connects ? "->" : "<-",
            endpoint->lane[0].remote, endpoint->lanes, endpoint->lanes == 1 ? "" : "s");
}

static void endpoint_settle(struct tti_tcp_endpoint *endpoint, enum tti_tcp_endpoint_state state)
{
    endpoint->state = state;
    endpoint->transport->connecting--;
    endpoint->transport->news = true;
}

static void endpoint_connected(struct tti_tcp_endpoint *endpoint)
{
    endpoint_settle(endpoint, TTI_TCP_CONNECTED);
    endpoint_log(endpoint);
}

void tti_tcp_endpoint_fail(struct tti_tcp_endpoint *endpoint, enum tutti_result code)
{
    tti_error_save(&endpoint->error, code);
    endpoint_settle(endpoint, TTI_TCP_FAILED);
}

/* The socket is fresh: it takes these few bytes at once, or it is broken. */
static void endpoint_say_ready(struct tti_tcp_endpoint *endpoint)
{
    struct tti_tcp_lane *lane = &endpoint->lane[0];
    uint8_t ready[TTI_TCP_READY_BYTES];
    tti_tcp_put_ready(ready);
    ssize_t sent = send(lane->socket, ready, sizeof ready, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == (ssize_t)sizeof ready) {
        endpoint_connected(endpoint);
        return;
    }
    if (endpoint->resumes) { /* lost: the connector calls again */
        tti_tcp_lane_stop(lane);
        endpoint->up--;
        return;
    }
    lane->send_error = sent < 0 ? errno : EPIPE;
    tti_tcp_endpoint_fail(endpoint, tti_tcp_lane_fail_sending(lane));
}

void tti_tcp_endpoint_lane_up(struct tti_tcp_endpoint *endpoint, int lane, int socket,
                              const char *remote, const struct tti_tcp_keys *keys)
{
    enum tutti_result result = tti_tcp_lane_start(&endpoint->lane[lane], socket, remote, keys);
    if (result != TUTTI_OK) {
        close(socket);
        tti_tcp_endpoint_fail(endpoint, TTI_CONTEXT(result, "connecting to rank %d (%s)",
                                                    endpoint->peer->rank, endpoint->peer->name));
        return;
    }
    if (++endpoint->up == endpoint->lanes && !endpoint->connects)
        endpoint_say_ready(endpoint);
}

void tti_tcp_endpoint_await_ready(struct tti_tcp_endpoint *endpoint)
{
    struct tti_tcp_lane *lane = &endpoint->lane[0];
    while (endpoint->ready_have < TTI_TCP_READY_BYTES) {
        ssize_t got = recv(lane->socket, endpoint->ready + endpoint->ready_have,
                           TTI_TCP_READY_BYTES - endpoint->ready_have, MSG_DONTWAIT);
        if (got > 0) {
            endpoint->ready_have += (size_t)got;
            continue;
        }
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        lane->receive_error = got < 0 ? errno : 0;
        if (tti_tcp_connect_again(endpoint, 0))
            return;
        tti_tcp_endpoint_fail(endpoint, tti_tcp_lane_fail_receiving(lane));
        return;
    }
    lane->garbled = tti_tcp_get_ready(endpoint->ready);
    if (lane->garbled) {
        tti_tcp_endpoint_fail(endpoint, tti_tcp_lane_fail_receiving(lane));
        return;
    }
    endpoint_connected(endpoint);
}

/* ---- the operations -------------------------------------------------------------------------- */

/* Ranks that do not want the same are told so on both sides, before they talk. */
static enum tutti_result endpoint_agree(const struct tti_tcp_transport *transport,
                                        const struct tutti_peer *peer,
                                        const struct tti_tcp_advert *advert)
{
    uint8_t ours = transport->advert.seals, theirs = advert->seals;
    if (tti_tcp_seals_agree(ours & theirs, ours) && tti_tcp_seals_agree(ours & theirs, theirs))
        return TUTTI_OK;
    return TTI_FAIL(TUTTI_ERR_USAGE,
                    "rank %d (%s) has TUTTI_TCP_CHECKSUM=%d and TUTTI_TCP_ENCRYPT=%d, rank %d (%s) "
                    "has TUTTI_TCP_CHECKSUM=%d and TUTTI_TCP_ENCRYPT=%d; set them alike on all "
                    "ranks",
                    transport->rank, transport->name, (ours & TTI_TCP_CHECKSUMS) != 0,
                    (ours & TTI_TCP_ENCRYPTS) != 0, peer->rank, peer->name,
                    (theirs & TTI_TCP_CHECKSUMS) != 0, (theirs & TTI_TCP_ENCRYPTS) != 0);
}

static void endpoint_free(struct tti_tcp_endpoint *endpoint)
{
    free(endpoint->stripe);
    free(endpoint);
}

static struct tti_tcp_endpoint *endpoint_create(struct tti_tcp_transport *transport,
                                                const struct tutti_peer *peer,
                                                const struct tti_tcp_advert *advert, int lanes)
{
    const int sockets =
        transport->advert.sockets < advert->sockets ? transport->advert.sockets : advert->sockets;
    struct tti_tcp_endpoint *endpoint =
        tti_calloc(1, sizeof *endpoint + (size_t)(lanes * sockets) * sizeof endpoint->lane[0]);
    if (endpoint && sockets > 1)
        endpoint->stripe = tti_calloc((size_t)lanes, sizeof *endpoint->stripe);
    if (!endpoint || (sockets > 1 && !endpoint->stripe)) {
        free(endpoint);
        return NULL;
    }
    for (int i = 0; endpoint->stripe && i < lanes; i++) {
        endpoint->stripe[i].lane = &endpoint->lane[i * sockets];
        endpoint->stripe[i].sockets = (unsigned)sockets;
    }
    lanes *= sockets;
    endpoint->transport = transport;
    endpoint->peer = peer;
    endpoint->advert = *advert;
    endpoint->lanes = lanes;
    endpoint->chosen = -1;
    endpoint->connects = transport->rank < peer->rank;
    /* What stays within a host is not lost on the way; the acceptor does as the connector says. */
    endpoint->resumes =
        transport->resume >= 0 ? transport->resume > 0 : advert->host != transport->host;
    endpoint->seals = transport->advert.seals & advert->seals;
    endpoint->wake_ns = UINT64_MAX;
    for (int i = 0; i < lanes; i++) {
        endpoint->lane[i].watch.kind = TTI_TCP_WATCH_LANE;
        endpoint->lane[i].endpoint = endpoint;
        endpoint->lane[i].number = i;
        endpoint->lane[i].socket = -1;
    }
    return endpoint;
}

enum tutti_result tti_tcp_connect(void *object, const struct tutti_peer *peer, int lanes,
                                  void **out)
{
    struct tti_tcp_transport *transport = object;
    struct tti_tcp_advert advert;
    if (lanes < 1 || lanes > transport->max_lanes)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "connecting to rank %d (%s) with %d lanes: expected 1 "
                        "to %d",
                        peer->rank, peer->name, lanes, transport->max_lanes);
    if (peer->rank == transport->rank)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "rank %d does not connect to itself over TCP",
                        peer->rank);
    const char *wrong = tti_tcp_get_advert(peer->address, peer->address_bytes, &advert);
    if (wrong)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "rank %d (%s) gave %s for its TCP address", peer->rank,
                        peer->name, wrong);
    TTI_TRY(endpoint_agree(transport, peer, &advert));
    struct tti_tcp_endpoint *endpoint = endpoint_create(transport, peer, &advert, lanes);
    if (!endpoint)
        return TUTTI_ERR_MEMORY;
    if (endpoint->connects) {
        enum tutti_result result = tti_tcp_connect_begin(endpoint);
        if (result != TUTTI_OK) {
            endpoint_free(endpoint);
            return result;
        }
    }
    endpoint->next = transport->endpoint;
    transport->endpoint = endpoint;
    transport->connecting++;
    tti_tcp_control(transport);
    *out = endpoint;
    return TUTTI_OK;
}

enum tutti_result tti_tcp_advance(void *object)
{
    struct tti_tcp_endpoint *endpoint = object;
    if (endpoint->state == TTI_TCP_CONNECTING)
        tti_tcp_collect(endpoint->transport);
    if (endpoint->state == TTI_TCP_FAILED)
        return tti_error_restore(&endpoint->error);
    return endpoint->state == TTI_TCP_CONNECTED ? TUTTI_OK : TUTTI_IN_PROGRESS;
}

void tti_tcp_disconnect(void *object)
{
    struct tti_tcp_endpoint *endpoint = object;
    struct tti_tcp_transport *transport = endpoint->transport;
    struct tti_tcp_endpoint **at = &transport->endpoint;
    while (*at != endpoint)
        at = &(*at)->next;
    *at = endpoint->next;
    if (endpoint->state == TTI_TCP_CONNECTING)
        transport->connecting--;
    tti_tcp_connect_end(endpoint);
    for (int i = 0; i < endpoint->lanes; i++)
        tti_tcp_let_go(&endpoint->lane[i]);
    endpoint_free(endpoint);
}
