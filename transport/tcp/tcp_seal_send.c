/* The sending direction of a sealed stream (tcp_seal.h): one record at a time, of what the caller
 * offers. Without encryption the bytes of a large one go from where they lie, behind a head; a
 * record that the socket took in part goes on with the next call, which offers the same bytes. */
#include "base/crc32c.h"
#include "transport/tcp/tcp.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum {
    SEAL_ASK_BYTES = 256 * 1024,     /* so much is kept before it is asked for, ... */
    SEAL_ASK_LAST_BYTES = 16 * 1024, /* ... or this much, when there is nothing more to send */
    SEAL_RUNS = TTI_TCP_MAX_PIECES,
};

static void seal_copy(const struct iovec *run, size_t runs, uint8_t *to)
{
    for (size_t i = 0; i < runs; i++) {
        memcpy(to, run[i].iov_base, run[i].iov_len);
        to += run[i].iov_len;
    }
}

/* Encrypt the next bytes of the stream into `out`. */
static void seal_fill(struct tti_tcp_seal *seal, struct tti_tcp_record *record,
                      const struct iovec *run, size_t runs)
{
    uint8_t *body = seal->out + TTI_TCP_RECORD_BYTES;
    const uint8_t *from = runs == 1 ? run[0].iov_base : body;
    if (runs > 1)
        seal_copy(run, runs, body);
    tti_tcp_put_record(record, seal->out);
    tti_tcp_seal_encrypt(seal, seal->out, from, record->bytes, body);
    seal->out_bytes = TTI_TCP_RECORD_BYTES + record->bytes + TTI_TCP_TAG_BYTES;
    if (seal->seals & TTI_TCP_CHECKSUMS) {
        record->checksum = tti_crc32c(0, body, record->bytes + (size_t)TTI_TCP_TAG_BYTES);
        tti_tcp_put_record(record, seal->out);
    }
}

/* Sum the next bytes of the stream; few of them go to `out`, behind the head. */
static void seal_sum(struct tti_tcp_seal *seal, struct tti_tcp_record *record,
                     const struct iovec *run, size_t runs)
{
    uint8_t *body = seal->out + TTI_TCP_RECORD_BYTES;
    seal->out_bytes = TTI_TCP_RECORD_BYTES;
    if (record->bytes <= TTI_TCP_SEALED_TOGETHER) {
        seal_copy(run, runs, body);
        record->checksum = tti_crc32c(0, body, record->bytes);
        seal->out_bytes += record->bytes;
    } else {
        for (size_t i = 0; i < runs; i++)
            record->checksum = tti_crc32c(record->checksum, run[i].iov_base, run[i].iov_len);
        seal->body = record->bytes;
    }
    tti_tcp_put_record(record, seal->out);
}

/* The next record, of what `walk` has. Returns how many of its bytes are in `out`. */
static size_t seal_open(struct tti_tcp_seal *seal, struct tti_tcp_walk *walk)
{
    struct iovec run[SEAL_RUNS];
    /* In equal parts, so that none is small. */
    size_t parts = (walk->left + TTI_TCP_RECORD_BODY - 1) / TTI_TCP_RECORD_BODY;
    size_t bytes = parts > 1 ? (walk->left + parts - 1) / parts : walk->left;
    seal->unasked += bytes;
    bool asks = seal->unasked >= SEAL_ASK_BYTES ||
                (seal->unasked >= SEAL_ASK_LAST_BYTES && bytes == walk->left);
    struct tti_tcp_record record = {.bytes = (uint32_t)bytes,
                                    .asks = asks && seal->resumes,
                                    .from = seal->opened,
                                    .received = seal->checked};
    if (asks)
        seal->unasked = 0;
    seal->owes = false;
    seal->opened += bytes;
    seal->out_sent = 0;
    const size_t runs = tti_tcp_walk_runs(walk, bytes, run);
    if (seal->seals & TTI_TCP_ENCRYPTS)
        seal_fill(seal, &record, run, runs);
    else
        seal_sum(seal, &record, run, runs);
    return bytes - seal->body;
}

bool tti_tcp_seal_sends(const struct tti_tcp_seal *seal)
{
    return seal->out_sent < seal->out_bytes || seal->body > 0;
}

/* One sendmsg of the open record. False: the socket takes no more, or is lost (errno). */
static bool seal_push(struct tti_tcp_lane *lane, struct tti_tcp_walk *walk, size_t *taken)
{
    struct tti_tcp_seal *seal = lane->seal;
    struct iovec run[1 + SEAL_RUNS];
    size_t ours = seal->out_bytes - seal->out_sent;
    run[0] = (struct iovec){seal->out + seal->out_sent, ours};
    struct msghdr message = {.msg_iov = run,
                             .msg_iovlen = 1 + tti_tcp_walk_runs(walk, seal->body, run + 1)};
    const int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    ssize_t sent;
    do
        sent = seal->body == 0 ? send(lane->socket, run[0].iov_base, run[0].iov_len, flags)
                               : sendmsg(lane->socket, &message, flags);
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return false;
    size_t all = (size_t)sent, of_ours = all < ours ? all : ours;
    seal->out_sent += of_ours;
    seal->body -= all - of_ours;
    *taken += all - of_ours;
    tti_tcp_walk_on(walk, all - of_ours);
    errno = EAGAIN;
    return !tti_tcp_seal_sends(seal);
}

ssize_t tti_tcp_seal_send(struct tti_tcp_lane *lane, const struct iovec *vector, size_t count)
{
    struct tti_tcp_seal *seal = lane->seal;
    struct tti_tcp_walk walk = tti_tcp_walk(vector, count);
    size_t taken = 0;
    bool goes_on = true;
    while (goes_on) {
        if (!tti_tcp_seal_sends(seal)) {
            if (walk.left == 0 && !seal->owes)
                break;
            const size_t bytes = seal_open(seal, &walk);
            taken += bytes;
            tti_tcp_walk_on(&walk, bytes);
        }
        goes_on = seal_push(lane, &walk, &taken);
    }
    lane->owes = tti_tcp_seal_sends(seal);
    /* An error shows again at the next call, when what was taken is accounted for. */
    bool failed = !goes_on && errno != EAGAIN && errno != EWOULDBLOCK;
    return failed && taken == 0 ? -1 : (ssize_t)taken;
}
