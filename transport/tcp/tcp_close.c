/* Letting go of connections so that the peer gets all that was sent to it.
 *
 * Closing a socket that has unread input sends a reset. A reset that overtakes nothing is harmless
 * (Linux hands out what it has received before it reports one), so it is enough to wait, for a
 * bounded time, until the peer's kernel has acknowledged everything. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/tcp_socket.h"

#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum {
    CLOSE_POLL_MS = 2,
    CLOSE_STILL_MS = 250, /* and four times there and back: nothing more will be acknowledged */
    CLOSE_SILENT_S = 1,   /* a peer that has said nothing for so long, while asked, is cut off */
    CLOSE_ZERO_MS = 1000, /* for memory that the kernel still reads: its owner may change it next;
                             of all lanes together, when all end */
};

/* Bytes that the peer's kernel has not acknowledged; 0 when that cannot be known. */
static int close_under_way(int socket)
{
    int bytes = 0;
    return ioctl(socket, SIOCOUTQ, &bytes) == 0 ? bytes : 0;
}

/* Throw away what has come. True when the peer has ended, too. */
static bool close_discard(int socket)
{
    char scratch[16384];
    for (int i = 0; i < 64; i++) {
        ssize_t got = recv(socket, scratch, sizeof scratch, MSG_DONTWAIT);
        if (got > 0 || (got < 0 && errno == EINTR))
            continue;
        return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    }
    return false;
}

/* One look at a socket with nothing left to send. True when it can be closed. */
static bool close_settled(int socket)
{
    return close_discard(socket) || close_under_way(socket) == 0;
}

void tti_tcp_let_go(struct tti_tcp_lane *lane)
{
    struct tti_tcp_transport *transport = lane->endpoint->transport;
    if (lane->socket < 0) {
        tti_tcp_lane_stop(lane);
        return;
    }
    tti_tcp_lane_bye(lane);
    tti_tcp_lane_flush(lane);
    if (lane->socket < 0) { /* lost in this moment */
        tti_tcp_lane_stop(lane);
        return;
    }
    tti_tcp_unwatch_socket(transport, lane->socket);
    tti_tcp_zero_end(lane, transport->zero_by ? tti_deadline_ms(transport->zero_by, CLOSE_ZERO_MS)
                                              : (int)CLOSE_ZERO_MS);
    shutdown(lane->socket, SHUT_WR);
    if (!lane->send_error && !close_settled(lane->socket) &&
        tti_grow((void **)&transport->lingering, &transport->lingering_room,
                 transport->lingerings + 1, sizeof *transport->lingering) == TUTTI_OK) {
        transport->lingering[transport->lingerings++] = lane->socket;
        lane->socket = -1;
    }
    tti_tcp_lane_stop(lane);
}

/* ---- all at once ---------------------------------------------------------------------------- */

struct close_item {
    struct tti_tcp_lane *lane; /* NULL: one of the lingering */
    int socket;
    bool told;         /* the peer knows that this is the end */
    bool vain;         /* given up */
    int under_way;     /* at the last look */
    uint64_t still_by; /* the kernel of a living peer would have acknowledged some of them */
};

/* Told everything, and no byte more is acknowledged: the line is cut, or the peer's kernel has no
 * room because its process does not read. What the kernel here has it goes on sending. */
static bool close_in_vain(struct close_item *item)
{
    const int under_way = close_under_way(item->socket);
    if (item->still_by == 0 || under_way != item->under_way) {
        const double back_and_forth_s = tti_tcp_socket_round_trip(item->socket);
        item->under_way = under_way;
        item->still_by = tti_deadline_in(CLOSE_STILL_MS / 1e3 + 4 * back_and_forth_s);
    }
    item->vain = tti_deadline_passed(item->still_by);
    return item->vain;
}

/* Returns true when nothing is left to wait for. `wait`: what poll should look for. */
static bool close_step(struct close_item *item, short *wait)
{
    *wait = POLLIN;
    if (item->lane && !item->told) {
        tti_tcp_lane_bye(item->lane);
        tti_tcp_lane_flush(item->lane);
        if (item->lane->send_error || item->lane->socket < 0)
            return true;
        if (tti_tcp_lane_waits(item->lane)) {
            *wait = POLLIN | POLLOUT;
            item->vain = tti_tcp_silence_cut(item->socket, CLOSE_SILENT_S);
            return item->vain || close_discard(item->socket);
        }
    }
    if (!item->told)
        shutdown(item->socket, SHUT_WR);
    item->told = true;
    return close_settled(item->socket) || close_in_vain(item);
}

static size_t close_collect(struct tti_tcp_transport *transport, struct close_item *item)
{
    size_t count = 0;
    for (struct tti_tcp_endpoint *e = transport->endpoint; e; e = e->next)
        for (int i = 0; i < e->lanes; i++)
            if (e->lane[i].socket >= 0)
                item[count++] =
                    (struct close_item){.lane = &e->lane[i], .socket = e->lane[i].socket};
    for (size_t i = 0; i < transport->lingerings; i++)
        item[count++] = (struct close_item){.socket = transport->lingering[i], .told = true};
    return count;
}

void tti_tcp_drain(struct tti_tcp_transport *transport, double seconds)
{
    size_t most = transport->lingerings;
    for (struct tti_tcp_endpoint *e = transport->endpoint; e; e = e->next)
        most += (size_t)e->lanes;
    struct close_item *item = tti_calloc(most, sizeof *item);
    struct pollfd *wait = tti_calloc(most, sizeof *wait);
    uint64_t deadline = tti_deadline_in(seconds);
    size_t left = item && wait ? close_collect(transport, item) : 0, vain = 0;
    while (left > 0) {
        for (size_t i = 0; i < left;) {
            wait[i].fd = item[i].socket;
            if (!close_step(&item[i], &wait[i].events)) {
                i++;
                continue;
            }
            vain += item[i].vain;
            item[i] = item[--left];
        }
        if (left == 0 || tti_deadline_passed(deadline))
            break;
        poll(wait, left, tti_deadline_ms(deadline, CLOSE_POLL_MS));
    }
    if (left + vain > 0)
        TTI_LOG(TTI_LOG_WARN,
                "tcp: closing %zu connections whose peers did not take all that was sent to them",
                left + vain);
    free(item);
    free(wait);
    for (size_t i = 0; i < transport->lingerings; i++)
        close(transport->lingering[i]);
    transport->lingerings = 0;
    transport->zero_by = tti_deadline_in(CLOSE_ZERO_MS / 1e3);
}
