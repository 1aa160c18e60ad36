/* The receiving direction of a sealed stream (tcp_seal.h).
 *
 * Records are read into `in`, checked there and handed out from it. Large ones that are not
 * encrypted are read straight to where they are wanted, when all of one is there: of one that does
 * not fit its checksum nothing is reported as received, and what lies there is garbage. */
#include "base/crc32c.h"
#include "transport/tcp/tcp.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
    SEAL_DIRECT_BYTES = 4 * 1024,
    SEAL_PATIENCE = 32, /* looks for the rest of a record, before what is there is read */
};

static size_t seal_least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- checking ------------------------------------------------------------------------------- */

/* From here on nothing is opened. With checksums what does not fit is an accident. */
static bool seal_refuse(struct tti_tcp_seal *seal)
{
    seal->spoiled++;
    seal->error = seal->seals & TTI_TCP_CHECKSUMS ? EBADMSG : EKEYREJECTED;
    return false;
}

/* The record is whole and right: take note of what it says. */
static bool seal_note(struct tti_tcp_lane *lane)
{
    struct tti_tcp_seal *seal = lane->seal;
    const struct tti_tcp_record *record = &seal->record;
    if (record->from != seal->checked)
        return seal_refuse(seal); /* something is missing, or came twice */
    if (seal->resumes && record->received > lane->gone) {
        seal->error = EPROTO;
        return false;
    }
    seal->headed = false;
    seal->waited = 0;
    seal->spoiled = record->bytes > 0 ? 0 : seal->spoiled;
    seal->checked += record->bytes;
    seal->owes |= record->asks;
    if (seal->resumes && record->received > lane->kept) {
        tti_tcp_queue_trim(lane, record->received);
        lane->endpoint->transport->news = true; /* memory may be free again: nobody may sleep */
    }
    return true;
}

/* The body of the record, in `in`. */
static bool seal_check(struct tti_tcp_seal *seal, uint8_t *body, size_t bytes)
{
    uint8_t head[TTI_TCP_RECORD_BYTES];
    struct tti_tcp_record record = seal->record;
    if ((seal->seals & TTI_TCP_CHECKSUMS) && tti_crc32c(0, body, bytes) != record.checksum)
        return seal_refuse(seal);
    if (!(seal->seals & TTI_TCP_ENCRYPTS))
        return true;
    record.checksum = 0; /* which was made last */
    tti_tcp_put_record(&record, head);
    if (tti_tcp_seal_decrypt(seal, head, body, record.bytes))
        return true;
    seal->spoiled++;
    seal->error = EKEYREJECTED; /* no accident: it fits its checksum, if there is one */
    return false;
}

static size_t seal_body_bytes(const struct tti_tcp_seal *seal)
{
    return seal->record.bytes +
           (seal->seals & TTI_TCP_ENCRYPTS ? (size_t)TTI_TCP_TAG_BYTES : (size_t)0);
}

/* Open the next record if it is whole. False: it is not, or is wrong (seal->error). */
static bool seal_next(struct tti_tcp_lane *lane)
{
    struct tti_tcp_seal *seal = lane->seal;
    uint8_t *at = seal->in + seal->in_head;
    size_t have = seal->in_tail - seal->in_head;
    if (seal->error)
        return false;
    if (!seal->headed) {
        if (have < TTI_TCP_RECORD_BYTES)
            return false;
        if (tti_tcp_get_record(at, &seal->record))
            return seal_refuse(seal);
        seal->headed = true;
        seal->in_head += TTI_TCP_RECORD_BYTES;
        at += TTI_TCP_RECORD_BYTES;
        have -= TTI_TCP_RECORD_BYTES;
    }
    size_t body = seal_body_bytes(seal);
    if (have < body || !seal_check(seal, at, body) || !seal_note(lane))
        return false;
    seal->plain = at;
    seal->plain_bytes = seal->record.bytes;
    seal->in_head += body;
    return true;
}

/* ---- reading -------------------------------------------------------------------------------- */

static ssize_t seal_recv(int socket, struct iovec *vector, size_t count)
{
    struct msghdr message = {.msg_iov = vector, .msg_iovlen = count};
    ssize_t got;
    do
        got = recvmsg(socket, &message, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    return got;
}

/* More of the record that has begun, and what is behind it, into `in`. */
static ssize_t seal_read(struct tti_tcp_lane *lane)
{
    struct tti_tcp_seal *seal = lane->seal;
    size_t have = seal->in_tail - seal->in_head;
    size_t wanted = seal->headed ? seal_body_bytes(seal) - have : 0;
    memmove(seal->in, seal->in + seal->in_head, have);
    seal->in_head = 0;
    seal->in_tail = have;
    struct iovec vector = {seal->in + have, wanted + TTI_TCP_AHEAD_BYTES};
    ssize_t got = seal_recv(lane->socket, &vector, 1);
    seal->in_tail += got > 0 ? (size_t)got : 0;
    return got;
}

static uint32_t seal_sum(const struct tti_tcp_walk *walk, size_t bytes)
{
    struct iovec run[4];
    uint32_t sum = 0;
    size_t runs = tti_tcp_walk_runs(walk, bytes, run);
    for (size_t i = 0; i < runs; i++)
        sum = tti_crc32c(sum, run[i].iov_base, run[i].iov_len);
    return sum;
}

/* To the front of `walk`, or (`back`) from there. */
static void seal_move(const struct tti_tcp_walk *walk, uint8_t *data, size_t bytes, bool back)
{
    struct iovec run[4];
    size_t runs = tti_tcp_walk_runs(walk, bytes, run);
    for (size_t i = 0; i < runs; i++) {
        memcpy(back ? data : run[i].iov_base, back ? run[i].iov_base : data, run[i].iov_len);
        data += run[i].iov_len;
    }
}

/* All of the record that has begun, to `walk`, and the head of the next one to `in`. */
static ssize_t seal_read_direct(struct tti_tcp_lane *lane, const struct tti_tcp_walk *walk)
{
    struct tti_tcp_seal *seal = lane->seal;
    struct iovec run[5];
    struct tti_tcp_walk rest = *walk;
    size_t begun = seal->in_tail - seal->in_head, bytes = seal->record.bytes;
    seal_move(walk, seal->in + seal->in_head, begun, false);
    tti_tcp_walk_on(&rest, begun);
    size_t runs = tti_tcp_walk_runs(&rest, bytes - begun, run);
    run[runs] = (struct iovec){seal->in, TTI_TCP_RECORD_BYTES};
    ssize_t got = seal_recv(lane->socket, run, runs + 1);
    if (got <= 0)
        return got;
    size_t have = begun + (size_t)got;
    seal->in_head = 0;
    if (have < bytes) { /* less than the socket promised */
        seal_move(walk, seal->in, have, true);
        seal->in_tail = have;
        errno = EAGAIN;
        return -1;
    }
    seal->in_tail = have - bytes;
    if (seal_sum(walk, bytes) != seal->record.checksum)
        seal_refuse(seal);
    if (seal->error || !seal_note(lane)) {
        errno = seal->error;
        return -1;
    }
    return (ssize_t)bytes;
}

enum seal_way { SEAL_READ, SEAL_READ_DIRECT, SEAL_WAIT };

/* The record that has begun is read straight to its place when all of it is there. If it is not,
 * looking again is cheaper than a copy; but the window may be full, or the end have come. */
static enum seal_way seal_choose(struct tti_tcp_lane *lane, const struct tti_tcp_walk *walk)
{
    struct tti_tcp_seal *seal = lane->seal;
    int there = 0;
    size_t begun = seal->in_tail - seal->in_head;
    if ((seal->seals & TTI_TCP_ENCRYPTS) || !seal->headed ||
        seal->record.bytes < SEAL_DIRECT_BYTES || walk->left < seal->record.bytes ||
        ioctl(lane->socket, FIONREAD, &there) != 0)
        return SEAL_READ;
    if (there >= (int)(seal->record.bytes - begun))
        return SEAL_READ_DIRECT;
    seal->waited = there == seal->seen ? seal->waited + 1 : 0;
    seal->seen = there;
    return seal->drains || seal->waited >= SEAL_PATIENCE ? SEAL_READ : SEAL_WAIT;
}

/* ---- handing out ---------------------------------------------------------------------------- */

static size_t seal_hand_out(struct tti_tcp_seal *seal, struct tti_tcp_walk *walk)
{
    size_t bytes = seal_least(seal->plain_bytes, walk->left);
    seal_move(walk, (uint8_t *)(uintptr_t)seal->plain, bytes, false);
    tti_tcp_walk_on(walk, bytes);
    seal->plain += bytes;
    seal->plain_bytes -= bytes;
    return bytes;
}

ssize_t tti_tcp_seal_receive(struct tti_tcp_lane *lane, const struct iovec *vector, size_t count)
{
    struct tti_tcp_seal *seal = lane->seal;
    struct tti_tcp_walk walk = tti_tcp_walk(vector, count);
    size_t got = 0;
    seal->waits = false;
    for (;;) {
        got += seal_hand_out(seal, &walk);
        if (walk.left > 0 && seal_next(lane))
            continue;
        if (got > 0)
            return (ssize_t)got;
        if (seal->error) {
            errno = seal->error;
            return -1;
        }
        enum seal_way way = seal_choose(lane, &walk);
        seal->waits = way == SEAL_WAIT;
        if (way == SEAL_WAIT) {
            errno = EAGAIN;
            return -1;
        }
        ssize_t read = way == SEAL_READ ? seal_read(lane) : seal_read_direct(lane, &walk);
        if (read <= 0 || way == SEAL_READ_DIRECT)
            return read;
    }
}
