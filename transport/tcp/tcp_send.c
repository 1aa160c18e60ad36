/* The sending half of a lane (tcp_lane.h). */
#include "base/memory.h"
#include "transport/tcp/tcp.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

/* ---- the queue ------------------------------------------------------------------------------ */

static struct tti_tcp_piece *send_piece(struct tti_tcp_lane *lane, unsigned index)
{
    return &lane->piece[(lane->piece_head + index) % TTI_TCP_MAX_PIECES];
}

static size_t send_ring_room(const struct tti_tcp_lane *lane)
{
    return TTI_TCP_RING_BYTES - (size_t)(lane->ring_tail - lane->ring_head);
}

/* Most sockets take all they are given, and need no ring. */
static bool send_ring(struct tti_tcp_lane *lane)
{
    if (!lane->ring)
        lane->ring = tti_calloc(1, TTI_TCP_RING_BYTES);
    if (!lane->ring)
        lane->send_error = ENOMEM; /* the fragment cannot be finished */
    return lane->ring != NULL;
}

/* Copy into the ring. The caller has seen that there is room, and two free pieces. */
static void send_queue_copy(struct tti_tcp_lane *lane, const uint8_t *data, size_t bytes)
{
    while (bytes > 0) {
        size_t at = (size_t)(lane->ring_tail % TTI_TCP_RING_BYTES);
        size_t part = TTI_TCP_RING_BYTES - at;
        if (part > bytes)
            part = bytes;
        memcpy(lane->ring + at, data, part);
        struct tti_tcp_piece *last = lane->pieces ? send_piece(lane, lane->pieces - 1) : NULL;
        if (last && !last->borrowed && last->data + last->bytes == lane->ring + at)
            last->bytes += part;
        else
            *send_piece(lane, lane->pieces++) =
                (struct tti_tcp_piece){.data = lane->ring + at, .bytes = part};
        lane->ring_tail += part;
        data += part;
        bytes -= part;
    }
}

/* The last `rest` bytes of `data`, which end at `accepted` in the count of the lane. */
static void send_queue_data(struct tti_tcp_lane *lane, const uint8_t *data, size_t bytes,
                            size_t rest)
{
    if (bytes <= TTI_TCP_SMALL_BYTES)
        send_queue_copy(lane, data + (bytes - rest), rest);
    else if (rest > 0)
        *send_piece(lane, lane->pieces++) =
            (struct tti_tcp_piece){.data = data + (bytes - rest),
                                   .bytes = rest,
                                   .borrowed = true,
                                   .released = lane->accepted - rest};
}

/* Can a header and `bytes` of data be queued? At worst the header and a copy wrap around. */
static bool send_room(const struct tti_tcp_lane *lane, size_t bytes)
{
    size_t copied = TTI_TCP_HEADER_BYTES + (bytes <= TTI_TCP_SMALL_BYTES ? bytes : 0);
    return lane->pieces + 3 <= TTI_TCP_MAX_PIECES && send_ring_room(lane) >= copied;
}

/* `sent` more bytes are the kernel's. */
static void send_taken(struct tti_tcp_lane *lane, size_t sent)
{
    while (sent > 0) {
        struct tti_tcp_piece *piece = send_piece(lane, 0);
        size_t part = sent < piece->bytes ? sent : piece->bytes;
        piece->data += part;
        piece->bytes -= part;
        sent -= part;
        if (piece->borrowed)
            piece->released += part;
        else
            lane->ring_head += part;
        if (piece->bytes == 0) {
            lane->piece_head = (lane->piece_head + 1) % TTI_TCP_MAX_PIECES;
            lane->pieces--;
        }
    }
}

static void send_set_blocked(struct tti_tcp_lane *lane, bool blocked)
{
    struct tti_tcp_transport *transport = lane->endpoint->transport;
    if (blocked != lane->blocked)
        transport->blocked += blocked ? 1 : -1;
    lane->blocked = blocked;
}

/* ---- the socket ----------------------------------------------------------------------------- */

/* One sendmsg that never blocks nor signals: bytes taken, 0 when the socket is full, -1 with
 * lane->send_error set. */
static ssize_t send_vector(struct tti_tcp_lane *lane, struct iovec *vector, size_t count)
{
    struct msghdr message = {.msg_iov = vector, .msg_iovlen = count};
    for (;;) {
        ssize_t sent = sendmsg(lane->socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent >= 0)
            return sent;
        if (errno == EINTR)
            continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return 0;
        lane->send_error = errno;
        return -1;
    }
}

/* Sending has failed for good: nothing that is queued will go any more, so its memory is the
 * caller's again. Who wants something from this peer is told by its next send or peek. */
static void send_drop(struct tti_tcp_lane *lane)
{
    lane->pieces = 0;
    lane->ring_head = lane->ring_tail;
    send_set_blocked(lane, false);
}

void tti_tcp_lane_end_sending(struct tti_tcp_lane *lane, int error)
{
    lane->send_error = error;
    send_drop(lane);
}

bool tti_tcp_lane_flush(struct tti_tcp_lane *lane)
{
    struct iovec vector[TTI_TCP_MAX_PIECES];
    size_t offered = 0;
    if (lane->pieces == 0 || lane->send_error)
        return false;
    for (unsigned i = 0; i < lane->pieces; i++) {
        const struct tti_tcp_piece *piece = send_piece(lane, i);
        vector[i].iov_base = (void *)(uintptr_t)piece->data;
        vector[i].iov_len = piece->bytes;
        offered += piece->bytes;
    }
    ssize_t sent = send_vector(lane, vector, lane->pieces);
    if (sent < 0) {
        send_drop(lane);
        return true;
    }
    send_taken(lane, (size_t)sent);
    send_set_blocked(lane, (size_t)sent < offered);
    return sent > 0;
}

enum tutti_result tti_tcp_lane_send(struct tti_tcp_lane *lane, uint64_t tag, const uint8_t *data,
                                    size_t bytes, size_t *accepted)
{
    uint8_t header[TTI_TCP_HEADER_BYTES];
    size_t sent = 0;
    if (lane->send_error || lane->closed)
        return tti_tcp_lane_fail_sending(lane);
    if (bytes > TTI_TCP_MAX_FRAGMENT)
        bytes = TTI_TCP_MAX_FRAGMENT;
    if (!send_room(lane, bytes)) {
        *accepted = 0;
        return TUTTI_OK;
    }
    tti_tcp_put_header(tag, (uint32_t)bytes, header);
    if (lane->pieces == 0) {
        struct iovec vector[2] = {{header, sizeof header}, {(void *)(uintptr_t)data, bytes}};
        ssize_t took = send_vector(lane, vector, 2);
        if (took < 0)
            return tti_tcp_lane_fail_sending(lane);
        sent = (size_t)took;
    }
    if (sent < sizeof header + bytes && !send_ring(lane))
        return tti_tcp_lane_fail_sending(lane);
    lane->accepted += bytes;
    if (sent < sizeof header) {
        send_queue_copy(lane, header + sent, sizeof header - sent);
        sent = sizeof header;
    }
    if (sent < sizeof header + bytes)
        send_queue_data(lane, data, bytes, sizeof header + bytes - sent);
    if (lane->pieces > 0)
        send_set_blocked(lane, true);
    *accepted = bytes;
    return TUTTI_OK;
}

/* What is the caller's again is everything before the first borrowed piece: counts are in the order
 * of the lane, so a copied fragment behind a borrowed one waits for it. */
uint64_t tti_tcp_lane_released(const struct tti_tcp_lane *lane)
{
    for (unsigned i = 0; i < lane->pieces; i++) {
        const struct tti_tcp_piece *piece =
            &lane->piece[(lane->piece_head + i) % TTI_TCP_MAX_PIECES];
        if (piece->borrowed)
            return piece->released;
    }
    return lane->accepted;
}
