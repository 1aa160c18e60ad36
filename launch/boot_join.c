/* Finding and joining the bootstrap server (launch/boot_join.h).
 *
 * Until the deadline, round after round with a growing pause: every port of the range at every
 * address of the host. Who answers must prove that it knows the job's secret before this rank
 * proves anything. */
#include "launch/boot_join.h"

#include "base/children.h"
#include "base/clock.h"
#include "launch/boot_socket.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double ANSWER_S = 10; /* for a server to answer, at most */
static const double CONNECT_S = 3; /* for one address to accept */

/* What came of the attempts, for the text of the failure. */
struct join_log {
    int attempts;
    double patience_s; /* for an answer: on a range of ports, little at first */
    bool foreign;      /* somebody answered who is not of this job */
    char last[160];
    struct tti_error verdict; /* the job has failed: no use in trying on */
};

void tti_boot_waits(uint64_t begin, uint64_t deadline, struct tti_boot_frame *frame)
{
    uint64_t waited = (tti_now_ns() - begin) / 1000000u;
    frame->wait_ms = (uint32_t)tti_deadline_ms(deadline, INT32_MAX);
    frame->waited_ms = waited > INT32_MAX ? INT32_MAX : (uint32_t)waited;
}

static uint64_t join_within(const struct tti_boot_join *join, double seconds)
{
    uint64_t limit = tti_deadline_in(seconds);
    return limit < join->deadline ? limit : join->deadline;
}

/* What the server makes of our proof. A connection that ends here was one stranger too many: try
 * again. *told is set when the job has failed. */
static enum tutti_result join_verdict(const struct tti_boot_join *join, int fd, bool *told)
{
    uint8_t header[TTI_BOOT_HEADER_BYTES];
    char raw[TTI_BOOT_TEXT_BYTES];
    char text[TTI_BOOT_TEXT_BYTES + 1];
    struct tti_boot_frame frame;
    if (tti_socket_receive(fd, header, sizeof header, join->deadline) != 0)
        return TTI_FAIL(TUTTI_ERR_LINK, "no welcome: %s", strerror(errno));
    TTI_TRY(tti_boot_frame_parse(header, TTI_BOOT_TO_CLIENT, &frame));
    if (frame.type == TTI_BOOT_WELCOME)
        return TUTTI_OK;
    if (frame.type != TTI_BOOT_NOTICE ||
        tti_socket_receive(fd, raw, (size_t)frame.bytes, join->deadline) != 0)
        return TTI_FAIL(TUTTI_ERR_LINK, "no welcome, and no reason");
    tti_boot_text_copy(text, sizeof text, raw, (size_t)frame.bytes);
    *told = true;
    if (*text)
        return TTI_FAIL((enum tutti_result)frame.code, "%s", text);
    return TTI_FAIL((enum tutti_result)frame.code, "rank %d died before all had joined",
                    frame.rank);
}

/* Both proofs, theirs first. */
static enum tutti_result join_handshake(const struct tti_boot_join *join, int fd, double patience_s,
                                        bool *foreign, bool *told)
{
    struct tti_boot_frame frame = {
        .type = TTI_BOOT_HELLO, .rank = join->rank, .bytes = TTI_BOOT_HELLO_BYTES};
    uint8_t hello[TTI_BOOT_HEADER_BYTES + TTI_BOOT_HELLO_BYTES];
    uint8_t *hello_body = hello + TTI_BOOT_HEADER_BYTES;
    uint8_t answer[TTI_BOOT_HEADER_BYTES + TTI_BOOT_CHALLENGE_BYTES];
    uint8_t nonce[TTI_BOOT_NONCE_BYTES];
    uint8_t proof[TTI_BOOT_HEADER_BYTES + TTI_BOOT_PROOF_BYTES];
    uint64_t deadline = join_within(join, patience_s);

    tti_boot_waits(join->begin, join->deadline, &frame);
    tti_boot_frame_encode(&frame, hello);
    randombytes_buf(nonce, sizeof nonce);
    tti_boot_hello_encode(nonce, join->size, hello_body);
    if (tti_socket_send(fd, hello, sizeof hello, deadline) != 0 ||
        tti_socket_receive(fd, answer, sizeof answer, deadline) != 0)
        return TTI_FAIL(TUTTI_ERR_LINK, "no answer: %s", strerror(errno));
    if (tti_boot_frame_parse(answer, TTI_BOOT_TO_CLIENT, &frame) != TUTTI_OK ||
        frame.type != TTI_BOOT_CHALLENGE) {
        *foreign = true;
        return TTI_FAIL(TUTTI_ERR_LINK, "what listens there is not Tutti");
    }
    const uint8_t *theirs = answer + TTI_BOOT_HEADER_BYTES;
    tti_boot_proof(join->meeting->secret, true, join->rank, hello_body, theirs, proof);
    if (!tti_boot_proof_equal(proof, theirs + TTI_BOOT_NONCE_BYTES)) {
        *foreign = true;
        return TTI_FAIL(TUTTI_ERR_LINK, "the Tutti job that listens there has another secret");
    }
    frame = (struct tti_boot_frame){
        .type = TTI_BOOT_PROOF, .rank = join->rank, .bytes = TTI_BOOT_PROOF_BYTES};
    tti_boot_frame_encode(&frame, proof);
    tti_boot_proof(join->meeting->secret, false, join->rank, hello_body, theirs,
                   proof + TTI_BOOT_HEADER_BYTES);
    if (tti_socket_send(fd, proof, sizeof proof, deadline) != 0)
        return TTI_FAIL(TUTTI_ERR_LINK, "connection lost: %s", strerror(errno));
    return join_verdict(join, fd, told);
}

/* Note why an attempt failed. That somebody else answered says most, and what the deadline cut off
 * least. */
static void join_note(const struct tti_boot_join *join, struct join_log *log, bool foreign,
                      const char *why)
{
    if (!log->last[0] || foreign || (!log->foreign && !tti_deadline_passed(join->deadline)))
        snprintf(log->last, sizeof log->last, "%s", why);
    log->foreign = log->foreign || foreign;
}

/* One address: a connection, or -1 and the reason noted. */
static int join_try(const struct tti_boot_join *join, const struct sockaddr *address,
                    socklen_t bytes, struct join_log *log)
{
    log->attempts++;
    int fd =
        tti_keep_from_children(tti_socket_connect(address, bytes, join_within(join, CONNECT_S)));
    if (fd < 0) {
        join_note(join, log, false, strerror(errno));
        return -1;
    }
    bool foreign = false;
    bool told = false;
    enum tutti_result result = join_handshake(join, fd, log->patience_s, &foreign, &told);
    if (result == TUTTI_OK)
        return fd;
    if (told)
        tti_error_save(&log->verdict, result);
    join_note(join, log, foreign, tti_error_text());
    close(fd);
    return -1;
}

/* Every port at every address, once. */
static int join_round(const struct tti_boot_join *join, struct join_log *log)
{
    if (join->own)
        return join_try(join, join->own, join->own_bytes, log);
    const struct tti_meeting *meeting = join->meeting;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    int fd = -1;
    for (int i = 0; i < meeting->ports && meeting->port + i <= 65535 && fd < 0; i++) {
        struct addrinfo *found = NULL;
        char port[16];
        snprintf(port, sizeof port, "%d", meeting->port + i);
        int failed = getaddrinfo(meeting->host, port, &hints, &found);
        if (failed) {
            log->attempts++;
            snprintf(log->last, sizeof log->last, "name lookup: %s", gai_strerror(failed));
            return -1;
        }
        for (struct addrinfo *at = found; at && fd < 0; at = at->ai_next)
            fd = join_try(join, at->ai_addr, at->ai_addrlen, log);
        freeaddrinfo(found);
        if (tti_deadline_passed(join->deadline) || log->verdict.code != TUTTI_OK)
            break;
    }
    return fd;
}

enum tutti_result tti_boot_join(const struct tti_boot_join *join, int *fd)
{
    const struct tti_meeting *meeting = join->meeting;
    struct join_log log = {0};
    int pause_ms = 1; /* rank 0 is often as far as we are */
    /* A stranger that accepts and says nothing must not hold up the way to the next port. */
    log.patience_s = join->meeting->ports > 1 && !join->own ? 0.5 : ANSWER_S;
    for (;;) {
        int made = join_round(join, &log);
        if (made >= 0) {
            *fd = made;
            return TUTTI_OK;
        }
        if (log.verdict.code != TUTTI_OK)
            return tti_error_restore(&log.verdict);
        if (tti_deadline_passed(join->deadline))
            break;
        (void)poll(NULL, 0, tti_deadline_ms(join->deadline, pause_ms));
        pause_ms = pause_ms >= 100 ? 200 : pause_ms * 2;
        log.patience_s = log.patience_s * 2 < ANSWER_S ? log.patience_s * 2 : ANSWER_S;
    }
    char where[TTI_SOCKET_TEXT_BYTES];
    struct tti_boot_frame waits = {0};
    tti_boot_waits(join->begin, join->deadline, &waits);
    tti_socket_meeting_text(meeting->host, meeting->port, meeting->ports, where, sizeof where);
    return TTI_FAIL(TUTTI_ERR_LINK,
                    "rank %d of %d did not reach rank 0 at %s within %.4g s (%d attempts, the last "
                    "one: %s); %s",
                    join->rank, join->size, where,
                    tti_boot_seconds((uint64_t)waits.waited_ms + waits.wait_ms), log.attempts,
                    log.last,
                    log.foreign ? "see that all ranks have the same secret and that no other job "
                                  "uses the port"
                                : "see that rank 0 runs, that the address is its own and that no "
                                  "firewall is between");
}
