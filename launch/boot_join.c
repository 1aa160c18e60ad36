/* Finding and joining the bootstrap server (launch/boot_join.h).
 *
 * Until the deadline, round after round with a growing pause: every port of the range at every
 * address of the host. Between them this rank waits at the desk (launch/desk.h), if there is one,
 * to be told that rank 0 has come, and where. */
#include "launch/boot_join.h"

#include "base/children.h"
#include "base/clock.h"
#include "base/log.h"
#include "launch/boot_socket.h"
#include "launch/desk.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double ANSWER_S = 10; /* for a server to answer, at most */
static const double CONNECT_S = 3; /* for one address to accept */
static const double DESK_S = 0.5;  /* for the desk, meanwhile rank 0 may have come */
static const double AGAIN_S = 1;   /* until the desk that has answered is asked again */

/* What came of the attempts, for the text of the failure. */
struct join_log {
    int attempts;
    double patience_s; /* for an answer: on a range of ports, little at first */
    bool foreign;      /* somebody answered who is not of this job */
    char last[160];
    struct tti_error verdict; /* the job has failed: no use in trying on */
    int desk_fd;              /* waits to be told; -1 */
    uint64_t desk_after;      /* then it may be asked again */
    bool asked;               /* was there once */
    struct tti_meeting place; /* what it was told; port 0: nothing */
};

static uint64_t join_within(const struct tti_boot_join *join, double seconds)
{
    uint64_t limit = tti_deadline_in(seconds);
    return limit < join->caller.deadline ? limit : join->caller.deadline;
}

/* What the server makes of our proof. A connection that ends here was one stranger too many: try
 * again. *told is set when the job has failed. */
static enum tutti_result join_verdict(const struct tti_boot_join *join, int fd, bool *told)
{
    uint8_t header[TTI_BOOT_HEADER_BYTES];
    char raw[TTI_BOOT_TEXT_BYTES];
    char text[TTI_BOOT_TEXT_BYTES + 1];
    struct tti_boot_frame frame;
    if (tti_socket_receive(fd, header, sizeof header, join->caller.deadline) != 0)
        return TTI_FAIL(TUTTI_ERR_LINK, "no welcome: %s", strerror(errno));
    TTI_TRY(tti_boot_frame_parse(header, TTI_BOOT_TO_CLIENT, &frame));
    if (frame.type == TTI_BOOT_WELCOME)
        return TUTTI_OK;
    if (frame.type != TTI_BOOT_NOTICE ||
        tti_socket_receive(fd, raw, (size_t)frame.bytes, join->caller.deadline) != 0)
        return TTI_FAIL(TUTTI_ERR_LINK, "no welcome, and no reason");
    tti_boot_text_copy(text, sizeof text, raw, (size_t)frame.bytes);
    *told = true;
    if (*text)
        return TTI_FAIL((enum tutti_result)frame.code, "%s", text);
    return TTI_FAIL((enum tutti_result)frame.code, "rank %d died before all had joined",
                    frame.rank);
}

static enum tutti_result join_handshake(const struct tti_boot_join *join, int fd, double patience_s,
                                        bool *foreign, bool *told)
{
    TTI_TRY(tti_boot_prove(&join->caller, fd, false, join_within(join, patience_s), foreign, NULL));
    return join_verdict(join, fd, told);
}

/* Note why an attempt failed. That somebody else answered says most, and what the deadline cut off
 * least. */
static void join_note(const struct tti_boot_join *join, struct join_log *log, bool foreign,
                      const char *why)
{
    if (!log->last[0] || foreign || (!log->foreign && !tti_deadline_passed(join->caller.deadline)))
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
static int join_meeting(const struct tti_boot_join *join, const struct tti_meeting *meeting,
                        struct join_log *log)
{
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
        if (tti_deadline_passed(join->caller.deadline) || log->verdict.code != TUTTI_OK)
            break;
    }
    return fd;
}

static int join_round(const struct tti_boot_join *join, struct join_log *log)
{
    int fd = -1;
    if (join->own)
        return join_try(join, join->own, join->own_bytes, log);
    if (log->place.port)
        fd = join_meeting(join, &log->place, log);
    return fd < 0 && log->verdict.code == TUTTI_OK ? join_meeting(join, join->meeting, log) : fd;
}

/* Wait a while, or until the desk says where rank 0 is, or closes because rank 0 is where the id
 * says. What it said may be over by the time this rank gets there: it is asked again. */
static void join_pause(const struct tti_boot_join *join, struct join_log *log, int pause_ms)
{
    const struct tti_meeting *meeting = join->meeting;
    struct tti_desk_found found;
    if (!join->own && meeting->desk && log->desk_fd < 0 && tti_deadline_passed(log->desk_after) &&
        tti_desk_visit(meeting, &join->caller, join_within(join, DESK_S), &log->desk_fd, &found) ==
            TUTTI_OK)
        log->asked = true;
    struct pollfd desk = {.fd = log->desk_fd, .events = POLLIN};
    if (poll(&desk, 1, tti_deadline_ms(join->caller.deadline, pause_ms)) <= 0)
        return;
    const enum tutti_result result = tti_desk_hear(desk.fd, &log->place, join_within(join, DESK_S));
    if (result == TUTTI_OK)
        TTI_LOG(TTI_LOG_INFO, "bootstrap: the id's maker says that rank 0 is at %s, port %u",
                log->place.host, (unsigned)log->place.port);
    close(log->desk_fd);
    log->desk_fd = -1;
    log->desk_after = tti_deadline_in(AGAIN_S);
    if (result == TUTTI_ERR_SYSTEM) /* no room: as if there were no desk, until then */
        (void)poll(NULL, 0, tti_deadline_ms(join->caller.deadline, pause_ms));
}

/* Nobody let this rank in. */
static enum tutti_result join_failed(const struct tti_boot_join *join, const struct join_log *log)
{
    const struct tti_meeting *meeting = log->place.port ? &log->place : join->meeting;
    const char *advice = "see that rank 0 runs, that the address is its own and that no "
                         "firewall is between";
    char where[TTI_SOCKET_TEXT_BYTES];
    struct tti_boot_frame waits = {0};
    if (log->foreign)
        advice = "see that all ranks have the same secret and that no other job uses the port";
    else if (log->asked && !log->place.port)
        advice = "nor has the process that made the id heard of it: see that rank 0 runs";
    tti_boot_waits(join->caller.begin, join->caller.deadline, &waits);
    tti_socket_meeting_text(meeting->host, meeting->port, meeting->ports, where, sizeof where);
    return TTI_FAIL(TUTTI_ERR_LINK,
                    "rank %d of %d did not reach rank 0 at %s within %.4g s (%d attempts, the last "
                    "one: %s); %s",
                    join->caller.rank, join->caller.size, where,
                    tti_boot_seconds((uint64_t)waits.waited_ms + waits.wait_ms), log->attempts,
                    log->last, advice);
}

static enum tutti_result join_rounds(const struct tti_boot_join *join, struct join_log *log,
                                     int *fd)
{
    int pause_ms = 1; /* rank 0 is often as far as we are */
    for (;;) {
        int made = join_round(join, log);
        if (made >= 0) {
            *fd = made;
            return TUTTI_OK;
        }
        if (log->verdict.code != TUTTI_OK)
            return tti_error_restore(&log->verdict);
        if (tti_socket_cancelled())
            return TTI_FAIL(TUTTI_ERR_ABORTED, "rank %d of %d was aborted while it joined",
                            join->caller.rank, join->caller.size);
        if (tti_deadline_passed(join->caller.deadline))
            return join_failed(join, log);
        join_pause(join, log, pause_ms);
        pause_ms = pause_ms >= 100 ? 200 : pause_ms * 2;
        log->patience_s = log->patience_s * 2 < ANSWER_S ? log->patience_s * 2 : ANSWER_S;
    }
}

enum tutti_result tti_boot_join(const struct tti_boot_join *join, int *fd)
{
    struct join_log log = {.desk_fd = -1};
    /* A stranger that accepts and says nothing must not hold up the way to the next port. */
    log.patience_s = join->meeting->ports > 1 && !join->own ? 0.5 : ANSWER_S;
    enum tutti_result result = join_rounds(join, &log, fd);
    if (log.desk_fd >= 0)
        close(log.desk_fd);
    return result;
}
