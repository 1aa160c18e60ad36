/* Ids (launch/environment.h): a meeting as printable text, "tutti1:<secret>:<port>:<host>", or with
 * "<port>,<desk>".
 *
 * Making an id takes a port at once, so that it is ours when the text leaves this process. Its
 * socket listens to nobody yet until rank 0 claims it; if that is another process of this host, it
 * can listen on the port by itself. On another host it tells the others where it is at the desk
 * (launch/desk.h). */
#include "launch/id.h"

#include "base/config.h"
#include "launch/boot_socket.h"
#include "launch/desk.h"
#include "launch/environment.h"
#include "launch/interface.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char id_prefix[] = "tutti1:";

enum tutti_result tti_secret_parse(const char *what, const char *text, size_t length,
                                   uint8_t secret[static TTI_SECRET_BYTES])
{
    size_t bytes = 0;
    const char *end = NULL;
    uint8_t parsed[TTI_SECRET_BYTES];
    if (length != 2 * TTI_SECRET_BYTES ||
        sodium_hex2bin(parsed, sizeof parsed, text, length, NULL, &bytes, &end) != 0 ||
        bytes != TTI_SECRET_BYTES || end != text + length)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s is not a secret of 64 hexadecimal digits", what);
    memcpy(secret, parsed, sizeof parsed);
    sodium_memzero(parsed, sizeof parsed);
    return TUTTI_OK;
}

void tti_id_format(const struct tti_meeting *meeting, struct tutti_id *id)
{
    char hex[2 * TTI_SECRET_BYTES + 1], desk[8] = "";
    if (meeting->desk)
        snprintf(desk, sizeof desk, ",%u", (unsigned)meeting->desk);
    sodium_bin2hex(hex, sizeof hex, meeting->secret, sizeof meeting->secret);
    memset(id, 0, sizeof *id);
    snprintf(id->text, sizeof id->text, "%s%s:%u%s:%s", id_prefix, hex, (unsigned)meeting->port,
             desk, meeting->host);
    sodium_memzero(hex, sizeof hex);
}

enum tutti_result tti_id_parse(const struct tutti_id *id, struct tti_meeting *meeting)
{
    size_t length = strnlen(id->text, sizeof id->text);
    size_t prefix = sizeof id_prefix - 1;
    size_t port_at = prefix + 2 * (size_t)TTI_SECRET_BYTES + 1;
    struct tti_meeting made = {.ports = 1, .listen_fd = -1};
    if (length == sizeof id->text || length <= port_at ||
        memcmp(id->text, id_prefix, prefix) != 0 || id->text[port_at - 1] != ':')
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "the id is not one that tutti_id_create made (tutti1:<secret>:<port>:"
                        "<host>); was it cut, or from another version?");
    TTI_TRY(tti_secret_parse("the id's second field", id->text + prefix,
                             2 * (size_t)TTI_SECRET_BYTES, made.secret));
    char port_text[16] = "";
    const char *port = id->text + port_at;
    const char *host = strchr(port, ':');
    long number = 0, desk = 0;
    if (host && (size_t)(host - port) < sizeof port_text)
        memcpy(port_text, port, (size_t)(host - port));
    char *comma = strchr(port_text, ',');
    if (comma) {
        *comma = '\0';
        TTI_TRY(tti_parse_int("the second port in the id", comma + 1, 1, 65535, &desk));
    }
    TTI_TRY(tti_parse_int("the port in the id", port_text, 1, 65535, &number));
    host = host ? host + 1 : "";
    if (!*host || strlen(host) >= sizeof made.host)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "the host in the id is %s",
                        *host ? "too long" : "empty");
    made.port = (uint16_t)number;
    made.desk = (uint16_t)desk;
    snprintf(made.host, sizeof made.host, "%s", host);
    *meeting = made;
    return TUTTI_OK;
}

enum tutti_result tti_id_make(const char *address, bool anywhere, struct tutti_id *id)
{
    struct tti_meeting meeting = {.ports = 1, .listen_fd = -1};
    int held = -1;
    if (sodium_init() < 0)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "libsodium finds no source of random numbers");
    if (address && strlen(address) >= sizeof meeting.host)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "the address \"%.40s...\" is too long", address);
    if (address && *address)
        snprintf(meeting.host, sizeof meeting.host, "%s", address);
    else
        TTI_TRY(tti_interface_best(meeting.host, sizeof meeting.host));
    randombytes_buf(meeting.secret, sizeof meeting.secret);
    TTI_TRY(tti_socket_hold(meeting.host, 0, &held, &meeting.port));
    enum tutti_result result = tti_desk_add(&meeting, held, anywhere);
    if (result != TUTTI_OK) {
        close(held);
        return result;
    }
    tti_id_format(&meeting, id);
    return TUTTI_OK;
}

enum tutti_result tti_meeting_from_id(const struct tutti_id *id, int rank,
                                      struct tti_meeting *meeting)
{
    struct tti_meeting made;
    bool alone = false;
    if (sodium_init() < 0)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "libsodium finds no source of random numbers");
    TTI_TRY(tti_id_parse(id, &made));
    if (rank == 0) {
        TTI_TRY(tti_desk_claim(made.secret, &made.listen_fd, &alone));
        if (alone)
            made.desk = 0;
        made.away = made.desk && made.listen_fd < 0 && !tti_socket_is_here(made.host);
    }
    *meeting = made;
    return TUTTI_OK;
}

void tti_id_forget(const struct tutti_id *id)
{
    struct tti_meeting made;
    if (tti_id_parse(id, &made) == TUTTI_OK)
        tti_desk_forget(made.secret);
}
