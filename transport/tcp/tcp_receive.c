/* The receiving half of a lane (tcp_lane.h).
 *
 * Invariants: the stage's unread bytes [head, tail) continue the stream; `left` bytes of them (or
 * of those to come) belong to the fragment whose header was read last. Bytes shown by peek do not
 * move until they are consumed. */
#include "transport/tcp/tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

enum {
    RECEIVE_BEHIND =
        16 * 1024,             /* read with the caller's bytes: the next headers, small fragments */
    RECEIVE_DIRECT = 4 * 1024, /* smaller ranges go through the stage, with all that came */
    RECEIVE_SCARCE = RECEIVE_BEHIND + 2 * RECEIVE_DIRECT, /* a stage's, where memory is out */
};

static size_t receive_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- the socket ----------------------------------------------------------------------------- */

/* From what was saved of a lost connection; the next read may be of the socket again. */
static size_t receive_saved(struct tti_tcp_lane *lane, const struct iovec *vector, int count)
{
    size_t got = 0;
    for (int i = 0; i < count; i++) {
        size_t part = receive_least(lane->saved_tail - lane->saved_head, vector[i].iov_len);
        memcpy(vector[i].iov_base, lane->saved + lane->saved_head, part);
        lane->saved_head += part;
        got += part;
    }
    if (lane->saved_head == lane->saved_tail) {
        free(lane->saved);
        lane->saved = NULL;
        lane->saved_head = lane->saved_tail = 0;
    }
    lane->readable = true;
    return got;
}

ssize_t tti_tcp_lane_read(struct tti_tcp_lane *lane, struct iovec *vector, size_t count)
{
    struct msghdr message = {.msg_iov = vector, .msg_iovlen = count};
    if (lane->seal)
        return tti_tcp_seal_receive(lane, vector, count);
    return count == 1 ? recv(lane->socket, vector->iov_base, vector->iov_len, MSG_DONTWAIT)
                      : recvmsg(lane->socket, &message, MSG_DONTWAIT);
}

/* Say what came, where the peer has asked. */
static void receive_acknowledge(struct tti_tcp_lane *lane)
{
    if (lane->seal && lane->seal->owes)
        lane->endpoint->transport->news |= tti_tcp_lane_flush(lane);
}

/* One read that never blocks; 0 when there is nothing now, or when the stream ended (which is
 * recorded in the lane). */
static size_t receive_vector(struct tti_tcp_lane *lane, struct iovec *vector, int count)
{
    size_t asked = 0;
    if (lane->saved)
        return receive_saved(lane, vector, count);
    for (int i = 0; i < count; i++)
        asked += vector[i].iov_len;
    while (lane->socket >= 0) {
        ssize_t got = tti_tcp_lane_read(lane, vector, (size_t)count);
        if (got > 0) {
            lane->received += (size_t)got;
            /* A short read emptied the socket; an end that was announced is still to be read. */
            lane->readable = (size_t)got == asked || lane->hung_up || lane->seal;
            return (size_t)got;
        }
        if (got < 0 && errno == EINTR)
            continue;
        lane->readable = lane->seal && lane->seal->waits;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        lane->readable = false;
        if (tti_tcp_lane_cut(lane, got == 0 ? 0 : errno)) {
            lane->readable = lane->saved != NULL;
            return 0;
        }
        if (got == 0)
            lane->closed = true;
        else
            lane->receive_error = errno;
        return 0;
    }
    lane->readable = false;
    return 0;
}

static bool receive_ended(const struct tti_tcp_lane *lane)
{
    return lane->garbled || ((lane->closed || lane->receive_error) && !lane->saved);
}

/* See that the stage has at least so many bytes. It stays where it is while its bytes are shown or
 * a record is half read there, and as small as it is where there is no memory for a larger one. A
 * connection may be read for the first time when memory is out: then it begins with little. */
static bool receive_stage(struct tti_tcp_lane *lane, size_t least)
{
    size_t bytes = least > TTI_TCP_STAGE_SMALL ? TTI_TCP_STAGE_BYTES : TTI_TCP_STAGE_SMALL;
    const bool stays = lane->shown > 0 || (lane->seal && lane->seal->staged > 0);
    if (lane->stage_bytes >= least || (stays && lane->stage))
        return true;
    uint8_t *made = malloc(bytes);
    if (!made && !lane->stage && !lane->seal)
        made = malloc(bytes = RECEIVE_SCARCE);
    if (!made) {
        lane->receive_error = lane->stage ? lane->receive_error : ENOMEM;
        return lane->stage != NULL;
    }
    if (lane->stage)
        memcpy(made, lane->stage + lane->head, lane->tail - lane->head);
    free(lane->stage);
    lane->stage = made;
    lane->stage_bytes = bytes;
    lane->tail -= lane->head;
    lane->head = 0;
    return true;
}

/* Make room at the end of the stage by moving what is unread to its start. */
static void receive_compact(struct tti_tcp_lane *lane)
{
    if (lane->shown > 0 || lane->head == 0)
        return;
    size_t unread = lane->tail - lane->head;
    if (unread > 1024 && lane->tail < lane->stage_bytes)
        return;
    memmove(lane->stage, lane->stage + lane->head, unread);
    lane->head = 0;
    lane->tail = unread;
}

/* Append to the stage what the socket has; true when it had something. */
static bool receive_fill(struct tti_tcp_lane *lane)
{
    if (!receive_stage(lane, lane->cramped || lane->seal ? TTI_TCP_STAGE_BYTES : 1))
        return false;
    receive_compact(lane);
    if (lane->tail == lane->stage_bytes || receive_ended(lane))
        return false;
    struct iovec vector = {lane->stage + lane->tail, lane->stage_bytes - lane->tail};
    if (lane->seal) {
        lane->seal->fills = lane->tail == 0;
        lane->seal->skip = 0;
    }
    size_t got = receive_vector(lane, &vector, 1);
    lane->tail += got;
    if (lane->seal) {
        lane->seal->fills = false;
        lane->head += lane->seal->skip;
        lane->tail += lane->seal->skip;
    }
    lane->cramped |= lane->tail == lane->stage_bytes;
    return got > 0;
}

bool tti_tcp_lane_refill(struct tti_tcp_lane *lane)
{
    receive_acknowledge(lane);
    if (!lane->readable || receive_ended(lane))
        return false;
    if (lane->seal)
        lane->seal->drains = true;
    bool more = receive_fill(lane) || receive_ended(lane);
    if (lane->seal)
        lane->seal->drains = false;
    receive_acknowledge(lane);
    return more;
}

/* ---- fragments ------------------------------------------------------------------------------ */

/* Read the next header if it is next and complete. */
static void receive_parse(struct tti_tcp_lane *lane)
{
    uint32_t length = 0;
    if (lane->left > 0 || lane->garbled || lane->tail - lane->head < TTI_TCP_HEADER_BYTES)
        return;
    lane->garbled = tti_tcp_get_header(lane->stage + lane->head, &lane->tag, &length);
    if (lane->garbled)
        return;
    lane->left = length;
    lane->head += TTI_TCP_HEADER_BYTES;
    lane->closed |= length == 0; /* it said bye */
}

/* How many of `have` bytes may be handed out, by the rule of TUTTI_FRAGMENT_UNIT: all of what is
 * `wanted`, or whole units. */
static size_t receive_whole(size_t have, size_t wanted)
{
    return have >= wanted ? wanted : have - have % TUTTI_FRAGMENT_UNIT;
}

static size_t receive_staged(struct tti_tcp_lane *lane)
{
    receive_parse(lane);
    if (lane->garbled)
        return 0;
    return receive_whole(lane->tail - lane->head, lane->left);
}

enum tutti_result tti_tcp_lane_peek(struct tti_tcp_lane *lane, bool may_read, uint64_t *tag,
                                    const void **data, size_t *bytes)
{
    size_t ready = receive_staged(lane);
    /* Peeking again at the same bytes asks for more of them. */
    bool wants_more = ready == 0 || (ready == lane->shown && ready < lane->left);
    if (wants_more && (may_read || lane->readable) && receive_fill(lane))
        ready = receive_staged(lane);
    receive_acknowledge(lane);
    if (ready == 0) {
        if (receive_ended(lane))
            return tti_tcp_lane_fail_receiving(lane);
        *bytes = 0;
        return TUTTI_OK;
    }
    lane->shown = ready;
    *tag = lane->tag;
    *data = lane->stage + lane->head;
    *bytes = ready;
    return TUTTI_OK;
}

void tti_tcp_lane_consume(struct tti_tcp_lane *lane, size_t bytes)
{
    lane->head += bytes;
    lane->left -= bytes;
    lane->shown = 0;
    if (lane->head == lane->tail)
        lane->head = lane->tail = 0;
}

/* ---- into the caller's memory --------------------------------------------------------------- */

/* The stage holds less than a unit of the current fragment, and nothing behind it. Read the rest of
 * what is wanted behind those bytes, and what follows into the stage. Returns bytes taken. */
static size_t receive_known(struct tti_tcp_lane *lane, uint8_t *into, size_t bytes)
{
    size_t begun = lane->tail - lane->head;
    size_t wanted = receive_least(bytes, lane->left);
    if (!receive_stage(lane, 1))
        return 0;
    if (begun > 0)
        memcpy(into, lane->stage + lane->head, begun);
    /* The staged bytes are kept at the front of the stage until something came. */
    struct iovec vector[2] = {{into + begun, wanted - begun},
                              {lane->stage + TUTTI_FRAGMENT_UNIT, RECEIVE_BEHIND}};
    memmove(lane->stage, lane->stage + lane->head, begun);
    lane->head = 0;
    lane->tail = begun;
    size_t got = receive_vector(lane, vector, 2);
    if (got == 0)
        return 0;
    size_t have = receive_least(begun + got, wanted);
    size_t taken = receive_whole(have, wanted);
    size_t behind = begun + got - have;
    lane->left -= taken;
    lane->head = lane->tail = TUTTI_FRAGMENT_UNIT;
    if (have > taken) { /* a begun unit; nothing is behind it */
        lane->head -= have - taken;
        memcpy(lane->stage + lane->head, into + taken, have - taken);
    }
    lane->tail += behind;
    if (lane->head == lane->tail)
        lane->head = lane->tail = 0;
    return taken;
}

/* A header is next, and the stage holds less than one. Read it and, in the hope that the fragment
 * is as long as what is wanted, the bytes behind it straight into `into`. What turns out not to
 * belong there goes back to the stage, which has room for all of it. Returns bytes taken. */
static size_t receive_hoped(struct tti_tcp_lane *lane, uint8_t *into, size_t bytes)
{
    size_t begun = lane->tail - lane->head;
    const size_t besides = TTI_TCP_HEADER_BYTES + RECEIVE_BEHIND;
    if (!receive_stage(lane, receive_least(bytes + besides, TTI_TCP_STAGE_BYTES)))
        return 0;
    size_t hoped = receive_least(bytes, lane->stage_bytes - besides);
    memmove(lane->stage, lane->stage + lane->head, begun);
    lane->head = 0;
    lane->tail = begun;
    struct iovec vector[3] = {{lane->stage + begun, TTI_TCP_HEADER_BYTES - begun},
                              {into, hoped},
                              {lane->stage + TTI_TCP_HEADER_BYTES, RECEIVE_BEHIND}};
    size_t got = receive_vector(lane, vector, 3);
    if (begun + got < TTI_TCP_HEADER_BYTES) {
        lane->tail += got;
        return 0;
    }
    size_t payload = begun + got - TTI_TCP_HEADER_BYTES;
    size_t direct = receive_least(payload, hoped);
    size_t behind = payload - direct;
    lane->tail = TTI_TCP_HEADER_BYTES;
    receive_parse(lane);
    size_t taken = 0;
    if (!lane->garbled)
        taken = receive_whole(direct, receive_least(bytes, lane->left));
    size_t back = direct - taken;
    memmove(lane->stage + TTI_TCP_HEADER_BYTES + back, lane->stage + TTI_TCP_HEADER_BYTES, behind);
    memcpy(lane->stage + TTI_TCP_HEADER_BYTES, into + taken, back);
    lane->tail += back + behind;
    lane->left -= taken;
    if (lane->head == lane->tail)
        lane->head = lane->tail = 0;
    return taken;
}

/* From the stage; 0 when it holds no whole unit. */
static size_t receive_copy(struct tti_tcp_lane *lane, uint8_t *into, size_t bytes)
{
    receive_parse(lane);
    if (lane->garbled)
        return 0;
    size_t taken = receive_whole(lane->tail - lane->head, receive_least(bytes, lane->left));
    if (taken > 0) {
        memcpy(into, lane->stage + lane->head, taken);
        tti_tcp_lane_consume(lane, taken);
    }
    return taken;
}

enum tutti_result tti_tcp_lane_receive(struct tti_tcp_lane *lane, bool may_read, uint64_t *tag,
                                       uint8_t *into, size_t bytes, size_t *taken)
{
    lane->shown = 0;
    size_t got = receive_copy(lane, into, bytes);
    if (got == 0 && !receive_ended(lane) && (may_read || lane->readable)) {
        if (bytes < RECEIVE_DIRECT) {
            if (receive_fill(lane))
                got = receive_copy(lane, into, bytes);
        } else if (lane->left > 0) {
            got = receive_known(lane, into, bytes);
        } else {
            got = receive_hoped(lane, into, bytes);
        }
    }
    receive_acknowledge(lane);
    if (got == 0 && receive_ended(lane))
        return tti_tcp_lane_fail_receiving(lane);
    if (got > 0)
        *tag = lane->tag;
    *taken = got;
    return TUTTI_OK;
}
