/* A lane that lost its connection goes on over another one, without loss or duplication.
 *
 * Both sides count the bytes of the lane's stream. What a kernel has acknowledged its process still
 * reads, after the loss too (Linux hands out what it has before it reports an error), so the sender
 * keeps only what is not acknowledged (tcp_queue.c). When a connection is lost each side reads what
 * is left of it; the side that called before calls again, over any pair of addresses; in the
 * handshake each says how many bytes of the stream it has, and the other goes on from there.
 *
 * The side that is called asks at once over a connection of its own whether the peer is there: the
 * answer makes the peer call, if it did not notice the loss; where nobody listens any more the peer
 * has died, and that is said at once; so it has where a rank of another job listens, to which the
 * kernel gave the port. Both talk as in tcp_talk.h, so no stranger can take part. A
 * stream that ends in order ends with a bye, which is how its end differs from a loss. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "transport/tcp/tcp_attempt.h"

#include <errno.h>
#include <linux/filter.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define RESUME_SECOND_NS UINT64_C(1000000000)
#define RESUME_PATIENCE_NS RESUME_SECOND_NS /* for one address */
#define RESUME_AGAIN_NS                                                                  \
    (RESUME_SECOND_NS / 20)            /* after a failure, and between two questions ... \
                                        */
#define RESUME_ASK_NS RESUME_SECOND_NS /* ... of which the last was answered */

enum {
    RESUME_SPOILED = 8,  /* records in a row that do not fit their checksums, until it fails */
    RESUME_FOREIGNS = 3, /* attempts in a row that met another job: one hello may be spoiled */
};

/* ---- losing --------------------------------------------------------------------------------- */

/* The socket may be in order, and the loss our own opinion: from here on nothing that comes is
 * taken in, and so acknowledged, any more. Closing it resets the connection: an orderly end would
 * stand in line behind what the peer has no room for, and never get there, as its word that there
 * is room again is not taken in either. What the peer has received it reads all the same. */
static void resume_shut(int socket)
{
    struct sock_filter nothing = BPF_STMT(BPF_RET | BPF_K, 0);
    struct sock_fprog program = {1, &nothing};
    const struct linger reset = {.l_onoff = 1, .l_linger = 0};
    setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
    setsockopt(socket, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

/* Read what the socket still has. False: no memory. */
static bool resume_save(struct tti_tcp_lane *lane)
{
    enum { SAVE_STEP = 256 * 1024 };
    size_t room = lane->saved_tail;
    for (;;) {
        if (room - lane->saved_tail < SAVE_STEP / 2) {
            room += SAVE_STEP;
            uint8_t *more = realloc(lane->saved, room);
            if (!more)
                return false;
            lane->saved = more;
        }
        struct iovec rest = {lane->saved + lane->saved_tail, room - lane->saved_tail};
        ssize_t got = tti_tcp_lane_read(lane, &rest, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        lane->saved_tail += (size_t)got;
        lane->received += (size_t)got;
    }
    if (lane->saved_tail == 0) {
        free(lane->saved);
        lane->saved = NULL;
    }
    return true;
}

/* Byte `at` of what is read and not handed out. */
static uint8_t resume_byte(const struct tti_tcp_lane *lane, size_t at)
{
    size_t staged = lane->tail - lane->head;
    return at < staged ? lane->stage[lane->head + at]
                       : lane->saved[lane->saved_head + (at - staged)];
}

/* Does what came end with a bye? */
static bool resume_said_bye(const struct tti_tcp_lane *lane)
{
    size_t all = lane->tail - lane->head + lane->saved_tail - lane->saved_head;
    for (size_t at = lane->left; at + TTI_TCP_HEADER_BYTES <= all;) {
        uint8_t header[TTI_TCP_HEADER_BYTES];
        uint64_t tag = 0;
        uint32_t length = 0;
        for (size_t i = 0; i < sizeof header; i++)
            header[i] = resume_byte(lane, at + i);
        if (tti_tcp_get_header(header, &tag, &length))
            return false; /* found out when it is read */
        if (length == 0)
            return true;
        at += sizeof header + length;
    }
    return false;
}

/* Over another connection it would be the same. */
static bool resume_is_hopeless(const struct tti_tcp_lane *lane, int error)
{
    return error == EKEYREJECTED || error == EPROTO ||
           (error == EBADMSG && lane->seal->spoiled >= RESUME_SPOILED);
}

/* The peer's addresses, of which `chosen` is the one that it is at, as far as that is known: who
 * was called sees where the call came from. */
static void resume_candidates(struct tti_tcp_lane *lane)
{
    struct tti_tcp_endpoint *endpoint = lane->endpoint;
    const struct tti_tcp_transport *transport = endpoint->transport;
    const char *end = strrchr(lane->remote, ':');
    if (endpoint->candidates == 0)
        endpoint->candidates =
            tti_tcp_candidates(transport->interface, transport->interfaces, transport->host,
                               &endpoint->advert, endpoint->candidate);
    for (int i = 0; i < endpoint->candidates && !endpoint->connects && end; i++) {
        struct sockaddr_storage address;
        char text[TTI_TCP_TEXT_BYTES];
        const size_t bytes = (size_t)(end - lane->remote) + 1; /* but for the port */
        tti_tcp_sockaddr(&endpoint->candidate[i].to, endpoint->advert.port, &address);
        tti_tcp_sockaddr_text(&address, text);
        if (strncmp(text, lane->remote, bytes) == 0)
            endpoint->chosen = i;
    }
}

bool tti_tcp_lane_cut(struct tti_tcp_lane *lane, int error)
{
    struct tti_tcp_endpoint *endpoint = lane->endpoint;
    struct tti_tcp_transport *transport = endpoint->transport;
    if (!endpoint->resumes || endpoint->state != TTI_TCP_CONNECTED || lane->closed ||
        lane->said_bye || lane->garbled || lane->socket < 0 || resume_is_hopeless(lane, error))
        return false;
    if (!lane->mend)
        lane->mend = tti_calloc(1, sizeof *lane->mend);
    if (!lane->mend)
        return false;
    lane->mend->talk.socket = -1;
    resume_shut(lane->socket);
    if (lane->seal) {
        lane->seal->drains = true;
        lane->seal->fills = false; /* the read that found the end may have been to the stage */
    }
    if (!resume_save(lane))
        return false;
    lane->owes = false;
    tti_tcp_unwatch_socket(transport, lane->socket);
    tti_tcp_zero_end(lane, 0);
    close(lane->socket);
    lane->socket = -1;
    lane->readable = lane->saved != NULL;
    lane->hung_up = false;
    transport->news = true;
    if (resume_said_bye(lane)) {
        lane->closed = true;
        tti_tcp_lane_end_sending(lane, 0); /* what it has not read it never will */
        return true;
    }
    TTI_LOG(TTI_LOG_INFO,
            "tcp: lost the connection to rank %d (%s) (lane %d, %s: %s); making another",
            endpoint->peer->rank, endpoint->peer->name, lane->number, lane->remote,
            error == EBADMSG ? "bytes that do not fit their checksum"
            : error          ? strerror(error)
                             : "it was closed");
    resume_candidates(lane);
    *lane->mend = (struct tti_tcp_attempt){
        .talk = {.socket = -1},
        .purpose = endpoint->connects ? TTI_TCP_RESUME : TTI_TCP_ASK,
        .candidate = endpoint->chosen >= 0 ? endpoint->chosen : 0,
        .lane = lane->number,
        .patience_ns = RESUME_PATIENCE_NS,
    };
    lane->cut = true;
    lane->cut_error = error;
    lane->cuts++;
    lane->give_up_ns = tti_now_ns() + TTI_TCP_RESUME_SECONDS * RESUME_SECOND_NS;
    transport->cut++;
    transport->control_due = true;
    return true;
}

/* ---- ending --------------------------------------------------------------------------------- */

void tti_tcp_resume_end(struct tti_tcp_lane *lane)
{
    if (lane->cut)
        lane->endpoint->transport->cut--;
    lane->cut = false;
    if (lane->mend)
        tti_tcp_hang_up(lane->endpoint->transport, &lane->mend->talk);
    free(lane->mend);
    lane->mend = NULL;
}

/* There is no way to go on. `error` 0: the peer has ended. */
static void resume_fail(struct tti_tcp_lane *lane, int error)
{
    tti_tcp_resume_end(lane);
    if (error == 0)
        lane->closed = true;
    lane->receive_error = error;
    tti_tcp_lane_end_sending(lane, error);
    lane->endpoint->transport->news = true;
}

/* ---- going on ------------------------------------------------------------------------------- */

void tti_tcp_resume_lane(struct tti_tcp_lane *lane, int socket, const char *remote,
                         const struct tti_tcp_keys *keys, uint64_t received)
{
    if (!tti_tcp_queue_rewind(lane, received)) {
        close(socket);
        tti_tcp_resume_end(lane);
        lane->garbled = "an impossible position to go on from";
        tti_tcp_lane_end_sending(lane, EPROTO);
        return;
    }
    if (tti_tcp_lane_start(lane, socket, remote, keys) != TUTTI_OK) {
        close(socket);
        resume_fail(lane, ENOMEM);
        return;
    }
    tti_tcp_resume_end(lane);
    lane->silent = false;
    lane->endpoint->transport->news = true;
    TTI_LOG(TTI_LOG_INFO, "tcp: the connection to rank %d (%s) goes on (lane %d, %s)",
            lane->endpoint->peer->rank, lane->endpoint->peer->name, lane->number, lane->remote);
    tti_tcp_lane_flush(lane);
}

static void resume_won(struct tti_tcp_lane *lane, uint64_t now)
{
    struct tti_tcp_attempt *mend = lane->mend;
    if (mend->purpose == TTI_TCP_ASK) { /* the peer lives, and calls */
        tti_tcp_hang_up(lane->endpoint->transport, &mend->talk);
        mend->foreigns = 0;
        mend->state = TTI_TCP_ATTEMPT_PAUSED;
        mend->wake_ns = now + RESUME_ASK_NS;
        lane->give_up_ns = now + TTI_TCP_RESUME_SECONDS * RESUME_SECOND_NS;
        return;
    }
    int socket = mend->talk.socket;
    struct tti_tcp_keys keys;
    char remote[TTI_TCP_TEXT_BYTES];
    tti_tcp_talk_keys(&mend->talk, lane->endpoint->transport->secret, &keys);
    memcpy(remote, mend->talk.remote, sizeof remote);
    mend->talk.socket = -1;
    lane->endpoint->chosen = mend->candidate;
    tti_tcp_unwatch_socket(lane->endpoint->transport, socket);
    tti_tcp_resume_lane(lane, socket, remote, &keys, mend->answer.received);
    sodium_memzero(&keys, sizeof keys);
}

/* Is there another process, and does its kernel have us wait? Then it is busy: that may take long.
 */
static bool resume_is_heard(const struct tti_tcp_attempt *mend)
{
    return mend->state == TTI_TCP_ATTEMPT_LISTENING || mend->state == TTI_TCP_ATTEMPT_PROVING ||
           mend->state == TTI_TCP_ATTEMPT_GOING;
}

/* Take note of how it failed. True: it is certain that the peer is no more. It may have said so, or
 * nobody listens at its port any more, or another job; but only where it was: any other of its
 * addresses may be closed to us, or lead to another machine. */
static bool resume_judge(const struct tti_tcp_lane *lane)
{
    const struct tti_tcp_endpoint *endpoint = lane->endpoint;
    struct tti_tcp_attempt *mend = lane->mend;
    const bool there = endpoint->chosen < 0 || mend->candidate == endpoint->chosen ||
                       endpoint->advert.host == endpoint->transport->host;
    if (there)
        mend->foreigns = mend->foreign ? mend->foreigns + 1 : 0;
    return (mend->refused && (mend->told || there)) || mend->foreigns >= RESUME_FOREIGNS;
}

/* Returns when to look again at the latest. */
static uint64_t resume_step(struct tti_tcp_lane *lane, uint64_t now)
{
    struct tti_tcp_endpoint *endpoint = lane->endpoint;
    struct tti_tcp_attempt *mend = lane->mend;
    if (mend->state == TTI_TCP_ATTEMPT_IDLE && endpoint->candidates > 0)
        tti_tcp_attempt_open(endpoint, mend, now);
    if (resume_is_heard(mend) && now - mend->begun_ns >= RESUME_PATIENCE_NS) /* it has us wait */
        lane->give_up_ns = now + TTI_TCP_RESUME_SECONDS * RESUME_SECOND_NS;
    tti_tcp_attempt_talk(endpoint, mend, now);
    if (mend->state == TTI_TCP_ATTEMPT_WON) {
        resume_won(lane, now);
        return lane->cut ? lane->mend->wake_ns : UINT64_MAX;
    }
    if (resume_is_heard(mend))
        return UINT64_MAX;
    if (mend->state == TTI_TCP_ATTEMPT_FAILED && resume_judge(lane)) {
        resume_fail(lane, lane->cut_error == EBADMSG ? EBADMSG : 0);
        return UINT64_MAX;
    }
    if (now >= lane->give_up_ns) {
        resume_fail(lane, lane->cut_error ? lane->cut_error : ETIMEDOUT);
        return UINT64_MAX;
    }
    if (mend->state == TTI_TCP_ATTEMPT_FAILED) { /* over the next pair of addresses, soon */
        mend->candidate = (mend->candidate + 1) % endpoint->candidates;
        mend->state = TTI_TCP_ATTEMPT_PAUSED;
        mend->wake_ns = now + RESUME_AGAIN_NS;
    }
    if (mend->state ==
        TTI_TCP_ATTEMPT_IDLE) /* none of the peer's addresses can be asked: it calls */
        return lane->give_up_ns;
    return mend->wake_ns < lane->give_up_ns ? mend->wake_ns : lane->give_up_ns;
}

uint64_t tti_tcp_resume_all(struct tti_tcp_transport *transport, uint64_t now)
{
    uint64_t wake = UINT64_MAX;
    for (struct tti_tcp_endpoint *e = transport->endpoint; e; e = e->next)
        for (int i = 0; e->state == TTI_TCP_CONNECTED && i < e->lanes; i++) {
            uint64_t next = e->lane[i].cut ? resume_step(&e->lane[i], now) : UINT64_MAX;
            wake = next < wake ? next : wake;
        }
    return wake;
}

/* ---- being called --------------------------------------------------------------------------- */

/* The lane whose other end says hello; NULL: there is none. */
static struct tti_tcp_lane *resume_meant(struct tti_tcp_transport *transport,
                                         const struct tti_tcp_hello *hello, bool connects)
{
    for (struct tti_tcp_endpoint *e = transport->endpoint; e; e = e->next)
        if (e->id == hello->id && e->peer->rank == (int)hello->from && e->connects == connects &&
            e->resumes && hello->lane < e->lanes)
            return &e->lane[hello->lane];
    return NULL;
}

/* The peer knows that the connection is lost: so it is. Who asks later compares how often each has
 * lost one; as one side may lose a connection that the other never had, both take the greater. */
static void resume_follow(struct tti_tcp_lane *lane, const struct tti_tcp_hello *hello)
{
    if (!lane->cut)
        (void)tti_tcp_lane_cut(lane, 0);
    if (lane->cut && lane->cuts < hello->cuts)
        lane->cuts = hello->cuts;
}

struct tti_tcp_lane *tti_tcp_resume_greet(struct tti_tcp_transport *transport,
                                          const struct tti_tcp_hello *hello)
{
    const bool asks = hello->purpose == TTI_TCP_ASK;
    struct tti_tcp_lane *lane = resume_meant(transport, hello, asks);
    struct tti_tcp_endpoint *e = lane ? lane->endpoint : NULL;
    if (e && e->state == TTI_TCP_CONNECTING && asks) { /* it is connected, and we have not heard */
        if (lane->number == 0 && e->up == e->lanes && lane->cuts < hello->cuts)
            (void)tti_tcp_connect_again(e, 0);
        return lane;
    }
    if (!e || e->state != TTI_TCP_CONNECTED)
        return NULL;
    if (!asks || lane->cuts < hello->cuts)
        resume_follow(lane, hello);
    if (asks)
        return lane->closed || lane->send_error ? NULL : lane;
    return lane->cut ? lane : NULL;
}

struct tti_tcp_lane *tti_tcp_resume_greeted(struct tti_tcp_transport *transport,
                                            const struct tti_tcp_hello *hello, unsigned cuts)
{
    struct tti_tcp_lane *lane = resume_meant(transport, hello, false);
    return lane && lane->cut && lane->cuts == cuts ? lane : NULL;
}

struct tti_tcp_lane *tti_tcp_resume_anew(struct tti_tcp_transport *transport,
                                         const struct tti_tcp_hello *hello)
{
    struct tti_tcp_lane *lane = resume_meant(transport, hello, false);
    if (!lane || lane->endpoint->state != TTI_TCP_CONNECTED)
        return NULL;
    resume_follow(lane, hello);
    return lane;
}
