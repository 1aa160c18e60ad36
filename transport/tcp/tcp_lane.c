/* Beginning, end and errors of a lane (tcp_lane.h). */
#include "transport/tcp/tcp_lane.h"

#include "transport/tcp/tcp.h"
#include "transport/tcp/tcp_socket.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum tutti_result tti_tcp_lane_start(struct tti_tcp_lane *lane, int socket, const char *remote,
                                     const struct tti_tcp_keys *keys)
{
    if (lane->endpoint->seals)
        TTI_TRY(tti_tcp_seal_begin(lane, socket, keys));
    TTI_TRY(tti_tcp_watch_socket(lane->endpoint->transport, socket, &lane->watch));
    if (lane->endpoint->advert.host != lane->endpoint->transport->host)
        tti_tcp_socket_control(socket, lane->endpoint->transport->control);
    snprintf(lane->remote, sizeof lane->remote, "%s", remote);
    lane->socket = socket;
    lane->readable = true; /* bytes may have come before the watch */
    lane->hung_up = false;
    tti_tcp_zero_begin(lane);
    return TUTTI_OK;
}

void tti_tcp_lane_stop(struct tti_tcp_lane *lane)
{
    tti_tcp_zero_end(lane, 0);
    if (lane->socket >= 0) {
        tti_tcp_unwatch_socket(lane->endpoint->transport, lane->socket);
        close(lane->socket);
    }
    if (lane->blocked)
        lane->endpoint->transport->blocked--;
    tti_tcp_queue_drop(lane);
    tti_tcp_resume_end(lane);
    free(lane->stage);
    free(lane->ring);
    free(lane->saved);
    tti_tcp_seal_free(lane->seal);
    free(lane->zero);
    lane->seal = NULL;
    lane->zero = NULL;
    lane->socket = -1;
    lane->blocked = lane->owes = false;
    lane->stage = lane->ring = lane->saved = NULL;
    lane->stage_bytes = 0;
}

/* `error` 0: the peer ended the stream in order. */
static enum tutti_result lane_fail(const struct tti_tcp_lane *lane, int error)
{
    const struct tutti_peer *peer = lane->endpoint->peer;
    if (error == 0)
        return TTI_FAIL(TUTTI_ERR_PEER, "rank %d (%s) closed the connection (lane %d, %s)",
                        peer->rank, peer->name, lane->number, lane->remote);
    if (lane->silent)
        return TTI_FAIL(TUTTI_ERR_LINK,
                        "the connection to rank %d (%s) broke (lane %d, %s): nothing was "
                        "acknowledged for %d s; the network between the hosts is cut, or that host "
                        "is down",
                        peer->rank, peer->name, lane->number, lane->remote,
                        TTI_TCP_SILENCE_SECONDS);
    if (error == EBADMSG)
        return TTI_FAIL(TUTTI_ERR_LINK,
                        "the connection to rank %d (%s) broke (lane %d, %s): bytes of that rank "
                        "were changed on the way and do not fit their checksum (%u times in a "
                        "row); look for a faulty network card, switch or memory",
                        peer->rank, peer->name, lane->number, lane->remote, lane->seal->spoiled);
    if (error == EKEYREJECTED)
        return TTI_FAIL(TUTTI_ERR_LINK,
                        "the connection to rank %d (%s) broke (lane %d, %s): encrypted bytes of "
                        "that rank were changed, left out or repeated on the way, by an accident "
                        "or by somebody between the hosts",
                        peer->rank, peer->name, lane->number, lane->remote);
    char reason[128];
    const char *text = strerror_r(error, reason, sizeof reason);
    if (tti_tcp_errno_is_peer(error))
        return TTI_FAIL(TUTTI_ERR_PEER, "rank %d (%s) closed the connection (lane %d, %s: %s)",
                        peer->rank, peer->name, lane->number, lane->remote, text);
    return TTI_FAIL(TUTTI_ERR_LINK, "the connection to rank %d (%s) broke (lane %d, %s): %s",
                    peer->rank, peer->name, lane->number, lane->remote, text);
}

enum tutti_result tti_tcp_lane_fail_sending(const struct tti_tcp_lane *lane)
{
    return lane_fail(lane, lane->send_error);
}

enum tutti_result tti_tcp_lane_fail_receiving(const struct tti_tcp_lane *lane)
{
    const struct tutti_peer *peer = lane->endpoint->peer;
    if (lane->garbled)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "rank %d (%s) sent %s (lane %d, %s)", peer->rank,
                        peer->name, lane->garbled, lane->number, lane->remote);
    return lane_fail(lane, lane->receive_error);
}
