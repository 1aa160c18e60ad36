/* What ranks do at the desk (launch/desk.h): ask where rank 0 is, or tell it. */
#include "launch/desk.h"

#include "base/children.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/host.h"
#include "base/log.h"
#include "launch/boot_socket.h"
#include "launch/interface.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const double VISIT_S = 3; /* for the desk to accept and to answer */
static const double TELL_S = 10; /* for its word on what it was told */
enum { VISIT_PAUSE_MS = 100 };

uint32_t tti_desk_host(void)
{
    const uint64_t host = tti_host_identity();
    return (uint32_t)(host ^ host >> 32);
}

enum tutti_result tti_desk_visit(const struct tti_meeting *meeting,
                                 const struct tti_boot_caller *caller, uint64_t until, int *fd,
                                 struct tti_desk_found *found)
{
    bool foreign = false;
    uint32_t host = 0;
    *found = (struct tti_desk_found){0};
    const int made = tti_keep_from_children(tti_socket_reach(meeting->host, meeting->desk, until));
    found->refused = made < 0 && errno == ECONNREFUSED;
    if (made < 0)
        return TTI_FAIL(TUTTI_ERR_LINK, "%s", strerror(errno));
    enum tutti_result result = tti_boot_prove(caller, made, true, until, &foreign, &host);
    if (result == TUTTI_OK)
        *fd = made;
    else
        close(made);
    found->here = result == TUTTI_OK && host == tti_desk_host();
    return result;
}

/* The next frame of the desk, with its body as a text. */
static enum tutti_result visit_receive(int fd, struct tti_boot_frame *frame, char *text,
                                       size_t room, uint64_t until)
{
    uint8_t header[TTI_BOOT_HEADER_BYTES];
    char raw[TTI_BOOT_TEXT_BYTES];
    if (tti_socket_receive(fd, header, sizeof header, until) != 0)
        return TTI_FAIL(TUTTI_ERR_LINK, "no word: %s", strerror(errno));
    TTI_TRY(tti_boot_frame_parse(header, TTI_BOOT_TO_CLIENT, frame));
    if (frame->bytes > sizeof raw)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "an answer of %llu bytes",
                        (unsigned long long)frame->bytes);
    if (tti_socket_receive(fd, raw, (size_t)frame->bytes, until) != 0)
        return TTI_FAIL(TUTTI_ERR_LINK, "half a word: %s", strerror(errno));
    tti_boot_text_copy(text, room, raw, (size_t)frame->bytes);
    return TUTTI_OK;
}

enum tutti_result tti_desk_hear(int fd, struct tti_meeting *place, uint64_t until)
{
    struct tti_boot_frame frame;
    char text[sizeof place->host];
    TTI_TRY(visit_receive(fd, &frame, text, sizeof text, until));
    if (frame.type == TTI_BOOT_NOTICE)
        return TTI_FAIL((enum tutti_result)frame.code, "%s", text);
    if (frame.type != TTI_BOOT_PLACE || !text[0])
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "the answer of the id's maker makes no sense");
    memcpy(place->host, text, sizeof place->host);
    place->port = (uint16_t)frame.code;
    place->ports = 1;
    return TUTTI_OK;
}

/* The address of this host that the others shall use. */
static enum tutti_result visit_address(int fd, char *host, size_t room)
{
    struct sockaddr_storage own;
    socklen_t bytes = sizeof own;
    if (tti_config_text("TUTTI_IFNAME"))
        return tti_interface_best(host, room);
    if (getsockname(fd, (struct sockaddr *)&own, &bytes) != 0)
        return TTI_FAIL_ERRNO("asking a connection for its address");
    if (getnameinfo((struct sockaddr *)&own, bytes, host, (socklen_t)room, NULL, 0,
                    NI_NUMERICHOST) != 0)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "a connection's address has no text");
    return TUTTI_OK;
}

enum tutti_result tti_desk_arrive(const struct tti_boot_caller *caller, struct tti_meeting *at,
                                  int *fd)
{
    char desk[TTI_SOCKET_TEXT_BYTES], host[sizeof at->host];
    struct tti_desk_found found;
    int visit = -1;
    tti_socket_meeting_text(at->host, at->desk, 1, desk, sizeof desk);
    for (;;) {
        uint64_t until = tti_deadline_in(VISIT_S);
        until = until < caller->deadline ? until : caller->deadline;
        if (tti_desk_visit(at, caller, until, &visit, &found) == TUTTI_OK)
            break;
        if (found.refused) {
            TTI_LOG(TTI_LOG_INFO, "bootstrap: nobody is at %s, where the id was made", desk);
            *fd = -1;
            return TUTTI_OK;
        }
        if (tti_socket_cancelled())
            return TTI_FAIL(TUTTI_ERR_ABORTED, "rank 0 was aborted on its way to %s", desk);
        if (tti_deadline_passed(caller->deadline))
            return TTI_FAIL(TUTTI_ERR_LINK,
                            "the id was made on another host, and its maker was not reached at %s: "
                            "%s; see that it lives and that no firewall is between",
                            desk, tti_error_text());
        (void)poll(NULL, 0, tti_deadline_ms(caller->deadline, VISIT_PAUSE_MS));
    }
    *fd = visit;
    if (found.here)
        return TUTTI_OK;
    enum tutti_result result = visit_address(visit, host, sizeof host);
    if (result != TUTTI_OK) {
        close(visit);
        *fd = -1;
        return result;
    }
    memcpy(at->host, host, sizeof at->host);
    at->port = 0;
    at->ports = 1;
    return TUTTI_OK;
}

enum tutti_result tti_desk_tell(const struct tti_boot_caller *caller, int fd, const char *host,
                                uint16_t port)
{
    struct tti_boot_frame frame = {
        .type = TTI_BOOT_PLACE, .code = port, .bytes = strnlen(host, TTI_BOOT_PLACE_BYTES)};
    uint8_t header[TTI_BOOT_HEADER_BYTES];
    char text[TTI_BOOT_TEXT_BYTES + 1];
    uint64_t until = tti_deadline_in(TELL_S);
    until = until < caller->deadline ? until : caller->deadline;
    tti_boot_waits(caller->begin, caller->deadline, &frame);
    tti_boot_frame_encode(&frame, header);
    if (tti_socket_send(fd, header, sizeof header, until) != 0 ||
        tti_socket_send(fd, host, (size_t)frame.bytes, until) != 0)
        return TTI_FAIL(TUTTI_ERR_LINK, "the id's maker was not told where rank 0 is: %s",
                        strerror(errno));
    TTI_TRY(visit_receive(fd, &frame, text, sizeof text, until));
    if (frame.type == TTI_BOOT_NOTICE)
        return TTI_FAIL((enum tutti_result)frame.code, "%s", text);
    if (frame.type != TTI_BOOT_WELCOME)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "the answer of the id's maker makes no sense");
    return TUTTI_OK;
}
