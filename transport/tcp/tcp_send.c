/* The sending half of a lane (tcp_lane.h). */
#include "base/clock.h"
#include "transport/tcp/tcp.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

/* Up to here header and bytes go as one piece: copying them costs less than having the kernel read
 * a vector (8 B to 1 KiB: 4% to 7% of an exchange, with the receiver's share of it). */
enum { SEND_TOGETHER_BYTES = 4 * 1024 };
/* A sealed fragment is a record: while the peer reads one, the next is made. Those that are only
 * summed are as long as fits one: a small segment at its end and its calls cost 3 us on loopback.
 * In rows they fill three of loopback's segments, with heads, and are not longer than what is read
 * straight to its place (tcp_receive.c). */
enum {
    SEND_SUMMED_ALONE = 256 * 1024,
    SEND_SUMMED = 3067 * TUTTI_FRAGMENT_UNIT,
    SEND_ENCRYPTED = 128 * 1024,
};
_Static_assert((int)SEND_SUMMED_ALONE + (int)TTI_TCP_HEADER_BYTES <= (int)TTI_TCP_RECORD_BODY,
               "it fits");

static void send_set_blocked(struct tti_tcp_lane *lane, bool blocked)
{
    struct tti_tcp_transport *transport = lane->endpoint->transport;
    if (blocked != lane->blocked)
        transport->blocked += blocked ? 1 : -1;
    lane->blocked = blocked;
}

/* Sending has failed for good: nothing that is queued will go any more, so its memory is the
 * caller's again. Who wants something from this peer is told by its next send or peek. */
void tti_tcp_lane_end_sending(struct tti_tcp_lane *lane, int error)
{
    lane->send_error = error;
    lane->owes = false;
    tti_tcp_zero_end(lane, 0);
    tti_tcp_queue_drop(lane);
    send_set_blocked(lane, false);
}

/* One system call that never blocks nor signals: bytes of the stream taken, 0 when the socket is
 * full or was lost, -1 with lane->send_error set. `keeps`: what it takes stays queued and in place
 * until the kernel is through with it. */
static ssize_t send_vector(struct tti_tcp_lane *lane, struct iovec *vector, size_t count,
                           bool keeps)
{
    int flags = MSG_DONTWAIT | MSG_NOSIGNAL | (keeps ? MSG_ZEROCOPY : 0);
    struct msghdr message = {.msg_iov = vector, .msg_iovlen = count};
    for (;;) {
        ssize_t sent = lane->seal   ? tti_tcp_seal_send(lane, vector, count)
                       : count == 1 ? send(lane->socket, vector->iov_base, vector->iov_len, flags)
                                    : sendmsg(lane->socket, &message, flags);
        if (sent > 0 && (flags & MSG_ZEROCOPY))
            tti_tcp_zero_note(lane, lane->gone);
        if (sent >= 0)
            return sent;
        if (errno == ENOBUFS && (flags & MSG_ZEROCOPY)) { /* too much under way for its books */
            flags &= ~MSG_ZEROCOPY;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK || tti_tcp_lane_cut(lane, errno))
            return 0;
        lane->send_error = errno;
        return -1;
    }
}

bool tti_tcp_lane_flush(struct tti_tcp_lane *lane)
{
    struct iovec vector[TTI_TCP_MAX_PIECES];
    size_t offered = 0;
    const bool asked = lane->seal && lane->seal->owes, waited = tti_tcp_lane_waits(lane);
    if (!(waited || asked) || lane->send_error || lane->socket < 0)
        return false;
    size_t count = tti_tcp_queue_unsent(lane, vector, &offered);
    ssize_t sent = send_vector(lane, vector, count, tti_tcp_zero_wants(lane, offered));
    if (sent < 0) {
        tti_tcp_lane_end_sending(lane, lane->send_error);
        return true;
    }
    tti_tcp_queue_sent(lane, (size_t)sent);
    send_set_blocked(lane, tti_tcp_lane_waits(lane));
    return sent > 0 || (waited && !tti_tcp_lane_waits(lane)); /* either may release memory */
}

/* A fragment that nothing is queued before: as send_vector. */
static ssize_t send_first(struct tti_tcp_lane *lane, const uint8_t *header, const uint8_t *data,
                          size_t bytes)
{
    struct iovec vector[2] = {{(void *)(uintptr_t)header, TTI_TCP_HEADER_BYTES},
                              {(void *)(uintptr_t)data, bytes}};
    uint8_t together[TTI_TCP_HEADER_BYTES + SEND_TOGETHER_BYTES];
    if (bytes > SEND_TOGETHER_BYTES || lane->seal) /* a record goes as one piece anyway */
        return send_vector(lane, vector, 2, false);
    memcpy(together, header, TTI_TCP_HEADER_BYTES);
    memcpy(together + TTI_TCP_HEADER_BYTES, data, bytes);
    vector[0] = (struct iovec){together, TTI_TCP_HEADER_BYTES + bytes};
    return send_vector(lane, vector, 1, false);
}

/* How much of what is offered becomes one fragment: in sealed streams equal parts, none small. */
static size_t send_part(const struct tti_tcp_lane *lane, size_t bytes)
{
    const struct tti_tcp_seal *seal = lane->seal;
    const size_t most = !seal                            ? (size_t)TTI_TCP_MAX_FRAGMENT
                        : seal->seals & TTI_TCP_ENCRYPTS ? (size_t)SEND_ENCRYPTED
                                                         : (size_t)SEND_SUMMED;
    const bool alone = bytes <= SEND_SUMMED_ALONE && most == SEND_SUMMED;
    if (bytes <= most || alone)
        return bytes;
    if (!seal)
        return most;
    const size_t parts = (bytes + most - 1) / most, part = (bytes + parts - 1) / parts;
    return (part + TUTTI_FRAGMENT_UNIT - 1) / TUTTI_FRAGMENT_UNIT * TUTTI_FRAGMENT_UNIT;
}

enum tutti_result tti_tcp_lane_send(struct tti_tcp_lane *lane, uint64_t tag, const uint8_t *data,
                                    size_t bytes, size_t *accepted)
{
    uint8_t header[TTI_TCP_HEADER_BYTES];
    size_t sent = 0;
    if (lane->send_error || lane->closed)
        return tti_tcp_lane_fail_sending(lane);
    bytes = send_part(lane, bytes);
    if (!tti_tcp_queue_room(lane, bytes)) {
        *accepted = 0;
        return TUTTI_OK;
    }
    tti_tcp_put_header(tag, (uint32_t)bytes, header);
    const bool keeps = tti_tcp_zero_wants(lane, bytes) && !tti_tcp_lane_waits(lane);
    if (!keeps && !tti_tcp_lane_waits(lane) && lane->socket >= 0) {
        ssize_t took = send_first(lane, header, data, bytes);
        if (took < 0 || lane->closed) /* closed: lost in this moment, and its last word is a bye */
            return tti_tcp_lane_fail_sending(lane);
        sent = (size_t)took;
    }
    if (sent == sizeof header + bytes && !lane->endpoint->resumes && lane->pieces == 0) {
        lane->accepted += bytes;
        lane->last = bytes;
        lane->kept = lane->gone = lane->put += sent;
    } else if (!tti_tcp_queue_put(lane, header, data, bytes)) {
        lane->send_error = ENOMEM; /* the fragment cannot be finished */
        return tti_tcp_lane_fail_sending(lane);
    } else {
        tti_tcp_queue_sent(lane, sent);
    }
    if (keeps)
        (void)tti_tcp_lane_flush(lane);
    if (lane->send_error)
        return tti_tcp_lane_fail_sending(lane);
    if (tti_tcp_lane_waits(lane))
        send_set_blocked(lane, true);
    *accepted = bytes;
    return TUTTI_OK;
}

/* Before the word that this side is ready the peer understands no other: there it just hangs up. */
void tti_tcp_lane_bye(struct tti_tcp_lane *lane)
{
    uint8_t header[TTI_TCP_HEADER_BYTES];
    const struct tti_tcp_endpoint *endpoint = lane->endpoint;
    const bool awaited = !endpoint->connects && endpoint->state != TTI_TCP_CONNECTED;
    if (!endpoint->resumes || awaited || lane->said_bye || lane->send_error || lane->socket < 0 ||
        !tti_tcp_queue_room(lane, 0))
        return;
    tti_tcp_put_bye(header);
    lane->said_bye = tti_tcp_queue_put(lane, header, NULL, 0);
}

/* Has the caller waited for an acknowledgement for as long as a copy takes, which gives it its
 * memory at once? Time counts, not calls: between two of them another rank may have had the core. A
 * kernel acknowledges late what its process does not read, 40 ms if nothing else happens, and that
 * process may wait for its own memory likewise. */
static bool send_has_waited(struct tti_tcp_lane *lane)
{
    enum { COPY_NS_PER_KIB = 100 };
    const uint64_t now = tti_now_ns();
    if (lane->asked_ns == 0)
        lane->asked_ns = now;
    return now - lane->asked_ns >= (lane->gone - lane->kept) * COPY_NS_PER_KIB / 1024;
}

/* What is the caller's again is everything before the first borrowed piece: counts are in the order
 * of the lane, so a copied fragment behind a borrowed one waits for it. The last copied one counts
 * when the socket has it: who has its memory back may go where nobody looks after this lane (to
 * another communicator, say), and the peer would wait for ever. Who asks for what is only to be
 * acknowledged gets it by a copy before long. */
uint64_t tti_tcp_lane_released(struct tti_tcp_lane *lane)
{
    if (lane->kept < lane->gone) { /* sent, and kept nevertheless */
        const bool waited = send_has_waited(lane);
        if (waited || !lane->seal || !tti_tcp_lane_waits(lane)) /* to look there is to read all */
            tti_tcp_queue_look(lane);
        if (waited)
            tti_tcp_queue_own(lane);
    }
    for (unsigned i = 0; i < lane->pieces; i++) {
        const struct tti_tcp_piece *piece =
            &lane->piece[(lane->piece_head + i) % TTI_TCP_MAX_PIECES];
        if (piece->kind == TTI_TCP_BORROWED)
            return piece->released;
    }
    return tti_tcp_lane_waits(lane) ? lane->accepted - lane->last : lane->accepted;
}
