/* The bytes of a lane's stream, from `send` until nobody needs them (tcp_lane.h).
 *
 * Where nothing resumes, that is until the socket has taken them. Where lanes resume, it is until
 * the peer's kernel has acknowledged them: what it has, its process gets, even when the connection
 * is lost (tcp_resume.c). Acknowledgements are TCP's own (SIOCOUTQ), so none are sent; they are
 * looked at when room or memory is wanted. What is sealed is kept until the peer has checked it,
 * and says so (tcp_seal.h). Memory is the caller's again when it is acknowledged, or copied. */
#include "base/memory.h"
#include "transport/tcp/tcp.h"

#include <linux/sockios.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

static struct tti_tcp_piece *queue_piece(struct tti_tcp_lane *lane, unsigned index)
{
    return &lane->piece[(lane->piece_head + index) % TTI_TCP_MAX_PIECES];
}

static size_t queue_ring_room(const struct tti_tcp_lane *lane)
{
    return TTI_TCP_RING_BYTES - (size_t)(lane->ring_tail - lane->ring_head);
}

/* Header and data may each be two pieces, where the ring ends in their midst. */
static bool queue_fits(const struct tti_tcp_lane *lane, size_t bytes)
{
    size_t copied = TTI_TCP_HEADER_BYTES + (bytes <= TTI_TCP_SMALL_BYTES ? bytes : 0);
    return lane->pieces + 4 <= TTI_TCP_MAX_PIECES && queue_ring_room(lane) >= copied;
}

bool tti_tcp_queue_room(struct tti_tcp_lane *lane, size_t bytes)
{
    if (queue_fits(lane, bytes))
        return true;
    tti_tcp_queue_look(lane);
    return queue_fits(lane, bytes);
}

static void queue_append(struct tti_tcp_lane *lane, struct tti_tcp_piece piece)
{
    *queue_piece(lane, lane->pieces++) = piece;
    lane->put += piece.bytes;
}

/* Into the ring, as a longer last piece where it continues that one. */
static void queue_copy(struct tti_tcp_lane *lane, const uint8_t *data, size_t bytes)
{
    while (bytes > 0) {
        size_t at = (size_t)(lane->ring_tail % TTI_TCP_RING_BYTES);
        size_t part = TTI_TCP_RING_BYTES - at;
        part = part < bytes ? part : bytes;
        memcpy(lane->ring + at, data, part);
        struct tti_tcp_piece *last = lane->pieces ? queue_piece(lane, lane->pieces - 1) : NULL;
        if (last && last->kind == TTI_TCP_RING && last->data + last->bytes == lane->ring + at) {
            if (lane->unsent == lane->pieces) {
                lane->unsent--;
                lane->unsent_offset = last->bytes;
            }
            last->bytes += part;
            lane->put += part;
        } else {
            queue_append(lane, (struct tti_tcp_piece){
                                   .data = lane->ring + at, .bytes = part, .kind = TTI_TCP_RING});
        }
        lane->ring_tail += part;
        data += part;
        bytes -= part;
    }
}

bool tti_tcp_queue_put(struct tti_tcp_lane *lane, const uint8_t *header, const uint8_t *data,
                       size_t bytes)
{
    if (!lane->ring)
        lane->ring = tti_calloc(1, TTI_TCP_RING_BYTES);
    if (!lane->ring)
        return false;
    queue_copy(lane, header, TTI_TCP_HEADER_BYTES);
    if (bytes <= TTI_TCP_SMALL_BYTES)
        queue_copy(lane, data, bytes);
    else
        queue_append(lane, (struct tti_tcp_piece){.data = data,
                                                  .bytes = bytes,
                                                  .kind = TTI_TCP_BORROWED,
                                                  .released = lane->accepted});
    lane->accepted += bytes;
    lane->last = bytes;
    return true;
}

size_t tti_tcp_queue_unsent(const struct tti_tcp_lane *lane, struct iovec *vector, size_t *bytes)
{
    size_t count = 0, offset = lane->unsent_offset;
    *bytes = 0;
    for (unsigned i = lane->unsent; i < lane->pieces; i++, offset = 0) {
        const struct tti_tcp_piece *piece =
            &lane->piece[(lane->piece_head + i) % TTI_TCP_MAX_PIECES];
        vector[count].iov_base = (void *)(uintptr_t)(piece->data + offset);
        vector[count].iov_len = piece->bytes - offset;
        *bytes += vector[count++].iov_len;
    }
    return count;
}

void tti_tcp_queue_sent(struct tti_tcp_lane *lane, size_t bytes)
{
    lane->gone += bytes;
    while (bytes > 0) {
        size_t left = queue_piece(lane, lane->unsent)->bytes - lane->unsent_offset;
        size_t part = left < bytes ? left : bytes;
        lane->unsent_offset += part;
        bytes -= part;
        if (part == left) {
            lane->unsent++;
            lane->unsent_offset = 0;
        }
    }
    lane->asked_ns = 0;
    if (!lane->endpoint->resumes)
        tti_tcp_queue_trim(lane, lane->gone);
}

void tti_tcp_queue_trim(struct tti_tcp_lane *lane, uint64_t position)
{
    position = tti_tcp_zero_hold(lane, position);
    while (lane->kept < position) {
        struct tti_tcp_piece *piece = queue_piece(lane, 0);
        uint64_t wanted = position - lane->kept;
        size_t part = wanted < piece->bytes ? (size_t)wanted : piece->bytes;
        piece->data += part;
        piece->bytes -= part;
        lane->kept += part;
        if (piece->kind == TTI_TCP_BORROWED)
            piece->released += part;
        else if (piece->kind == TTI_TCP_RING)
            lane->ring_head += part;
        if (lane->unsent == 0)
            lane->unsent_offset -= part;
        if (piece->bytes > 0)
            continue;
        free(piece->owned);
        lane->piece_head = (lane->piece_head + 1) % TTI_TCP_MAX_PIECES;
        lane->pieces--;
        lane->unsent -= lane->unsent > 0;
    }
}

void tti_tcp_queue_look(struct tti_tcp_lane *lane)
{
    int under_way = 0;
    tti_tcp_zero_reap(lane);
    if (!lane->endpoint->resumes)
        tti_tcp_queue_trim(lane, lane->gone);
    if (lane->seal && lane->endpoint->resumes && lane->kept < lane->gone) {
        lane->readable = true; /* the peer's word comes in the stream, with what else has come */
        lane->endpoint->transport->news |= tti_tcp_lane_refill(lane);
        return;
    }
    if (!lane->endpoint->resumes || lane->socket < 0 || lane->kept == lane->gone ||
        ioctl(lane->socket, SIOCOUTQ, &under_way) != 0 || under_way < 0)
        return;
    uint64_t sent = lane->gone - lane->kept;
    if ((uint64_t)under_way < sent)
        tti_tcp_queue_trim(lane, lane->gone - (uint64_t)under_way);
}

void tti_tcp_queue_own(struct tti_tcp_lane *lane)
{
    const uint64_t held = tti_tcp_zero_hold(lane, UINT64_MAX);
    uint64_t end = lane->kept;
    for (unsigned i = 0; i < lane->unsent; i++) {
        struct tti_tcp_piece *piece = queue_piece(lane, i);
        end += piece->bytes;
        if (end > held) /* the kernel still reads it */
            return;
        void *copy = piece->kind == TTI_TCP_BORROWED ? malloc(piece->bytes) : NULL;
        if (!copy) /* not the caller's, or there is no memory: released when it is acknowledged */
            continue;
        memcpy(copy, piece->data, piece->bytes);
        piece->data = piece->owned = copy;
        piece->kind = TTI_TCP_OWNED;
    }
}

size_t tti_tcp_queue_heap(const struct tti_tcp_lane *lane)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < lane->pieces; i++)
        bytes += tti_heap_bytes(lane->piece[(lane->piece_head + i) % TTI_TCP_MAX_PIECES].owned);
    return bytes + tti_heap_bytes(lane->ring);
}

bool tti_tcp_queue_rewind(struct tti_tcp_lane *lane, uint64_t position)
{
    if (position < lane->kept || position > lane->gone)
        return false;
    tti_tcp_queue_trim(lane, position);
    lane->gone = position;
    lane->unsent = 0;
    lane->unsent_offset = 0;
    return true;
}

void tti_tcp_queue_drop(struct tti_tcp_lane *lane)
{
    for (unsigned i = 0; i < lane->pieces; i++)
        free(queue_piece(lane, i)->owned);
    lane->pieces = lane->unsent = 0;
    lane->unsent_offset = 0;
    lane->ring_head = lane->ring_tail;
    lane->kept = lane->gone = lane->put;
}
