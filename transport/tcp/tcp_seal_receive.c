/* The receiving direction of a sealed stream (tcp_seal.h).
 *
 * Records are read into `in`, checked there and handed out from it. Large ones that are not
 * encrypted are read straight to where they are wanted, when all of one is there or comes at once:
 * of one that does not fit its checksum nothing is reported as received, and what lies there is
 * garbage. Large ones mostly come in rows, all alike, so behind one the head of the next and its
 * bytes are read at once, in the hope that it is as long; else they are moved to `in`.
 *
 * What goes to the lane's stage is read there, head and all, and stays: the stage is ours, so what
 * has come of a record is read and summed while the rest is on its way. */
#include "base/crc32c.h"
#include "transport/tcp/tcp.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum {
    SEAL_DIRECT_BYTES = 4 * 1024,
    SEAL_UNASKED_BYTES = 60 * 1024, /* fit one of loopback's segments: all is there, or nothing */
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
    seal->hurried = false;
    seal->waited = 0;
    seal->spoiled = record->bytes > 0 ? 0 : seal->spoiled;
    seal->checked += record->bytes;
    seal->expects = record->bytes > 0 ? record->bytes : seal->expects;
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

/* Have the head of the next record. False: it is not whole, or is wrong (seal->error). */
static bool seal_head(struct tti_tcp_seal *seal)
{
    if (seal->headed)
        return true;
    if (seal->in_tail - seal->in_head < TTI_TCP_RECORD_BYTES)
        return false;
    if (tti_tcp_get_record(seal->in + seal->in_head, &seal->record))
        return seal_refuse(seal);
    seal->headed = true;
    seal->in_head += TTI_TCP_RECORD_BYTES;
    return true;
}

/* Open the next record if it is whole. False: it is not, or is wrong (seal->error). */
static bool seal_next(struct tti_tcp_lane *lane)
{
    struct tti_tcp_seal *seal = lane->seal;
    if (seal->error || !seal_head(seal))
        return false;
    uint8_t *at = seal->in + seal->in_head;
    size_t body = seal_body_bytes(seal);
    if (seal->in_tail - seal->in_head < body || !seal_check(seal, at, body) || !seal_note(lane))
        return false;
    seal->plain = at;
    seal->plain_bytes = seal->record.bytes;
    seal->in_head += body;
    return true;
}

/* ---- reading -------------------------------------------------------------------------------- */

/* What the kernel says, with what it hands out, of how much there is beyond. */
static int seal_beyond(struct msghdr *message)
{
    int there = 0;
    const struct cmsghdr *said = CMSG_FIRSTHDR(message);
    if (said && said->cmsg_level == SOL_TCP && said->cmsg_type == TCP_CM_INQ)
        memcpy(&there, CMSG_DATA(said), sizeof there);
    return there;
}

static ssize_t seal_recv(struct tti_tcp_lane *lane, struct iovec *vector, size_t count)
{
    union {
        struct cmsghdr align;
        uint8_t bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = vector,
                             .msg_iovlen = count,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    ssize_t got;
    do
        got = count == 1 ? recv(lane->socket, vector->iov_base, vector->iov_len, MSG_DONTWAIT)
                         : recvmsg(lane->socket, &message, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    lane->seal->there = count > 1 && got > 0 ? seal_beyond(&message) : 0;
    return got;
}

/* Are so many bytes there? Else *there says how many are. */
static bool seal_is_there(struct tti_tcp_lane *lane, size_t bytes, int *there)
{
    struct tti_tcp_seal *seal = lane->seal;
    *there = seal->there;
    if (*there >= (int)bytes)
        return true;
    if (ioctl(lane->socket, FIONREAD, there) != 0)
        *there = 0;
    seal->there = *there;
    return *there >= (int)bytes;
}

/* More of the record that has begun, and up to so many bytes behind it, into `in`. */
static ssize_t seal_read(struct tti_tcp_lane *lane, size_t ahead)
{
    struct tti_tcp_seal *seal = lane->seal;
    size_t have = seal->in_tail - seal->in_head;
    size_t wanted = seal->headed ? seal_body_bytes(seal) - have : 0;
    memmove(seal->in, seal->in + seal->in_head, have);
    seal->in_head = 0;
    seal->in_tail = have;
    struct iovec vector = {seal->in + have, wanted + ahead};
    ssize_t got = seal_recv(lane, &vector, 1);
    seal->in_tail += got > 0 ? (size_t)got : 0;
    return got;
}

/* The sum of what has `sum`, and behind it so many bytes of `walk`. */
static uint32_t seal_sum(uint32_t sum, const struct tti_tcp_walk *walk, size_t bytes)
{
    struct iovec run[4];
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

/* The record lies where it is wanted. Returns its bytes, or -1 and errno when it is not right. */
static ssize_t seal_take(struct tti_tcp_lane *lane, uint32_t sum)
{
    struct tti_tcp_seal *seal = lane->seal;
    const size_t bytes = seal->record.bytes;
    if (sum != seal->record.checksum)
        seal_refuse(seal);
    if (seal->error || !seal_note(lane)) {
        errno = seal->error;
        return -1;
    }
    return (ssize_t)bytes;
}

/* A head to `in`, a record that is hoped to be as long as the last one to `walk`, and the next head
 * to `in`. *took: the bytes of the record, if it was no longer; 0: all is in `in` now. */
static ssize_t seal_read_hoped(struct tti_tcp_lane *lane, const struct tti_tcp_walk *walk,
                               ssize_t *took)
{
    struct tti_tcp_seal *seal = lane->seal;
    struct iovec run[6] = {{seal->in, TTI_TCP_RECORD_BYTES}};
    const size_t hoped = seal->expects, runs = 1 + tti_tcp_walk_runs(walk, hoped, run + 1);
    uint8_t *behind = seal->in + TTI_TCP_RECORD_BYTES;
    *took = 0;
    run[runs] = (struct iovec){behind, TTI_TCP_RECORD_BYTES};
    const ssize_t got = seal_recv(lane, run, runs + 1);
    if (got <= 0)
        return got;
    const size_t head = seal_least((size_t)got, TTI_TCP_RECORD_BYTES);
    const size_t body = seal_least((size_t)got - head, hoped), next = (size_t)got - head - body;
    seal->in_head = 0;
    seal->in_tail = head;
    const bool whole = seal_head(seal) && seal->record.bytes > 0 && seal->record.bytes <= body;
    const size_t bytes = whole ? seal->record.bytes : 0;
    struct tti_tcp_walk rest = *walk;
    tti_tcp_walk_on(&rest, bytes);
    memmove(behind + body - bytes, behind, next);
    seal_move(&rest, behind, body - bytes, true);
    seal->in_tail += body - bytes + next;
    if (whole)
        *took = seal_take(lane, seal_sum(0, walk, bytes));
    return whole ? *took : got;
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
    ssize_t got = seal_recv(lane, run, runs + 1);
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
    return seal_take(lane, seal_sum(0, walk, bytes));
}

/* The record that has begun, to `walk`, as it comes: what is there is read and summed while the
 * rest is on its way. All in one call, as nobody knows whether the next one has the same place; if
 * the rest stays away, what has come goes on in `in`. That is tried once a record: on a slow line
 * what has come would be moved to and fro. */
static ssize_t seal_read_coming(struct tti_tcp_lane *lane, const struct tti_tcp_walk *walk)
{
    struct tti_tcp_seal *seal = lane->seal;
    const size_t bytes = seal->record.bytes;
    struct tti_tcp_walk rest = *walk;
    size_t have = 0, more = seal->in_tail - seal->in_head;
    uint32_t sum = 0;
    unsigned looks = 0;
    ssize_t got = -1;
    seal->hurried = true;
    seal_move(walk, seal->in + seal->in_head, more, false);
    seal->in_head = 0;
    while (looks < SEAL_PATIENCE) {
        struct iovec run[5];
        const size_t new = seal_least(more, bytes - have);
        sum = seal_sum(sum, &rest, new);
        tti_tcp_walk_on(&rest, new);
        have += new;
        seal->in_tail = more - new; /* of the next head */
        if (have == bytes)
            return seal_take(lane, sum);
        const size_t runs = tti_tcp_walk_runs(&rest, bytes - have, run);
        run[runs] = (struct iovec){seal->in, TTI_TCP_RECORD_BYTES};
        got = seal_recv(lane, run, runs + 1);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK))
            break;
        more = got < 0 ? 0 : (size_t)got;
        looks = got < 0 ? looks + 1 : 0;
    }
    const int error = errno;
    seal_move(walk, seal->in, have, true);
    seal->in_tail = have;
    errno = error;
    return got;
}

enum seal_way {
    SEAL_READ,
    SEAL_READ_HEAD,
    SEAL_READ_HOPED,
    SEAL_READ_DIRECT,
    SEAL_READ_COMING,
    SEAL_WAIT,    /* for the rest of the record */
    SEAL_NOTHING, /* is there */
};

/* Looking in vain: so long that what is there is to be read, come what may? */
static bool seal_waited(struct tti_tcp_seal *seal, int there)
{
    seal->waited = there == seal->seen ? seal->waited + 1 : 0;
    seal->seen = there;
    return seal->drains || seal->waited >= SEAL_PATIENCE;
}

/* Nothing is read of the next record, which may be as long as the last one. */
static enum seal_way seal_hope(struct tti_tcp_lane *lane, int there)
{
    struct tti_tcp_seal *seal = lane->seal;
    if (there >= SEAL_DIRECT_BYTES)
        return SEAL_READ_HEAD;
    if (there == 0 && !lane->hung_up && !seal_waited(seal, there))
        return SEAL_NOTHING;
    seal->waited = 0;
    return SEAL_READ;
}

/* The record that has begun is read straight to its place when all of it is there. If it is not,
 * looking again is cheaper than a copy; but the window may be full, or the end have come. */
static enum seal_way seal_choose(struct tti_tcp_lane *lane, const struct tti_tcp_walk *walk)
{
    struct tti_tcp_seal *seal = lane->seal;
    int there = 0;
    const size_t begun = seal->in_tail - seal->in_head;
    const size_t bytes = seal->headed ? seal->record.bytes : seal->expects;
    if ((seal->seals & TTI_TCP_ENCRYPTS) || (!seal->headed && begun > 0) ||
        bytes < SEAL_DIRECT_BYTES || walk->left < bytes)
        return SEAL_READ;
    if (!seal->headed &&
        (bytes <= SEAL_UNASKED_BYTES || seal_is_there(lane, TTI_TCP_RECORD_BYTES + bytes, &there)))
        return SEAL_READ_HOPED;
    if (!seal->headed)
        return seal_hope(lane, there);
    if (seal_is_there(lane, bytes - begun, &there))
        return SEAL_READ_DIRECT;
    if (there >= SEAL_DIRECT_BYTES && !seal->hurried && !seal->drains && !tti_tcp_seal_sends(seal))
        return SEAL_READ_COMING;
    return seal_waited(seal, there) ? SEAL_READ : SEAL_WAIT;
}

/* ---- in the stage --------------------------------------------------------------------------- */

/* May the next record be read to where all of `vector` is? */
static bool seal_may_fill(const struct tti_tcp_seal *seal)
{
    return seal->fills && !(seal->seals & TTI_TCP_ENCRYPTS) && !seal->error &&
           seal->plain_bytes == 0 &&
           (seal->staged > 0 ||
            (!seal->headed && seal->in_tail - seal->in_head <= TTI_TCP_RECORD_BYTES));
}

/* What has come of a record in the stage goes on in `in`. */
static void seal_unstage(struct tti_tcp_seal *seal)
{
    memcpy(seal->in, seal->stage, seal->staged);
    seal->in_head = seal->headed ? TTI_TCP_RECORD_BYTES : 0;
    seal->in_tail = seal->staged;
    seal->staged = 0;
}

/* Sum what has come since. Returns whether all of the record is there. */
static bool seal_sum_staged(struct tti_tcp_seal *seal)
{
    const char *wrong = NULL;
    if (!seal->headed && seal->staged >= TTI_TCP_RECORD_BYTES) {
        wrong = tti_tcp_get_record(seal->stage, &seal->record);
        seal->headed = !wrong;
        seal->summed = 0;
        seal->sum = 0;
    }
    if (wrong)
        return seal_refuse(seal);
    if (!seal->headed)
        return false;
    const size_t have = seal_least(seal->staged - TTI_TCP_RECORD_BYTES, seal->record.bytes);
    seal->sum = tti_crc32c(seal->sum, seal->stage + TTI_TCP_RECORD_BYTES + seal->summed,
                           have - seal->summed);
    seal->summed = have;
    return have == seal->record.bytes;
}

/* The record in the stage is whole. What came behind it goes to `in`, where it is opened next. */
static ssize_t seal_take_staged(struct tti_tcp_lane *lane)
{
    struct tti_tcp_seal *seal = lane->seal;
    const ssize_t bytes = seal_take(lane, seal->sum);
    if (bytes < 0)
        return bytes;
    const size_t end = TTI_TCP_RECORD_BYTES + (size_t)bytes;
    seal->in_head = 0;
    seal->in_tail = seal->staged - end;
    memcpy(seal->in, seal->stage + end, seal->in_tail);
    seal->staged = 0;
    seal->skip = TTI_TCP_RECORD_BYTES;
    return bytes;
}

/* Read on in the stage. Returns the bytes of a record, which lie behind its head; 0: the stream has
 * ended; -1 and errno; or -2: read in another way, as the record has no bytes or no room. */
static ssize_t seal_fill(struct tti_tcp_lane *lane, const struct iovec *vector)
{
    struct tti_tcp_seal *seal = lane->seal;
    if (seal->staged == 0) {
        seal->stage = vector->iov_base;
        seal->staged = seal->in_tail - seal->in_head;
        memcpy(seal->stage, seal->in + seal->in_head, seal->staged);
        seal->in_head = seal->in_tail = 0;
    }
    for (;;) {
        if (seal_sum_staged(seal))
            return seal->record.bytes > 0 ? seal_take_staged(lane) : -2;
        if (seal->error) {
            errno = seal->error;
            return -1;
        }
        const size_t body = seal->headed ? seal->record.bytes : seal->expects;
        const size_t ahead =
            body < SEAL_DIRECT_BYTES ? (size_t)TTI_TCP_AHEAD_BYTES : (size_t)TTI_TCP_RECORD_BYTES;
        const size_t most = TTI_TCP_RECORD_BYTES + body + ahead;
        if (most > vector->iov_len)
            return -2;
        struct iovec rest = {seal->stage + seal->staged, most - seal->staged};
        const ssize_t got = seal_recv(lane, &rest, 1);
        if (got <= 0)
            return got;
        seal->staged += (size_t)got;
    }
}

/* ---- handing out ---------------------------------------------------------------------------- */

static size_t seal_hand_out(struct tti_tcp_seal *seal, struct tti_tcp_walk *walk)
{
    size_t bytes = seal_least(seal->plain_bytes, walk->left);
    seal_move(walk, (uint8_t *)(uintptr_t)seal->plain, bytes, false);
    tti_tcp_walk_on(walk, bytes);
    if (bytes > 0) /* else it may be NULL */
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
    seal->skip = 0;
    if (seal_may_fill(seal)) {
        const ssize_t filled = seal_fill(lane, vector);
        if (filled != -2)
            return filled;
    }
    if (seal->staged > 0)
        seal_unstage(seal);
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
        const enum seal_way way = seal_choose(lane, &walk);
        ssize_t read = -1, took = 0;
        seal->waits = way == SEAL_WAIT;
        errno = EAGAIN;
        if (way == SEAL_READ)
            read = seal_read(lane, TTI_TCP_AHEAD_BYTES);
        else if (way == SEAL_READ_HEAD)
            read = seal_read(lane, TTI_TCP_RECORD_BYTES);
        else if (way == SEAL_READ_HOPED)
            read = seal_read_hoped(lane, &walk, &took);
        else if (way == SEAL_READ_DIRECT)
            read = took = seal_read_direct(lane, &walk);
        else if (way == SEAL_READ_COMING)
            read = took = seal_read_coming(lane, &walk);
        if (read <= 0 || took > 0)
            return read;
    }
}
