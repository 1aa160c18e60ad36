/* Ids (launch/environment.h): a meeting as printable text, "tutti1:<secret>:<port>:<host>".
 *
 * Making an id takes a port at once, so that it is ours when the text leaves this process. Its
 * socket listens to nobody yet and waits in a list here until rank 0 claims it; if that is another
 * process of this host, it can listen on the port by itself. */
#include "launch/id.h"

#include "base/config.h"
#include "base/memory.h"
#include "launch/boot_socket.h"
#include "launch/environment.h"
#include "launch/interface.h"

#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char id_prefix[] = "tutti1:";

/* A socket that waits for its rank 0. */
struct id_waiting {
    struct id_waiting *next;
    uint8_t secret[TTI_SECRET_BYTES];
    int fd;
};

static pthread_mutex_t id_lock = PTHREAD_MUTEX_INITIALIZER;
static struct id_waiting *id_waiting_list;

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
    char hex[2 * TTI_SECRET_BYTES + 1];
    sodium_bin2hex(hex, sizeof hex, meeting->secret, sizeof meeting->secret);
    memset(id, 0, sizeof *id);
    snprintf(id->text, sizeof id->text, "%s%s:%u:%s", id_prefix, hex, (unsigned)meeting->port,
             meeting->host);
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
    char port_text[8] = "";
    const char *port = id->text + port_at;
    const char *host = strchr(port, ':');
    long number = 0;
    if (host && (size_t)(host - port) < sizeof port_text)
        memcpy(port_text, port, (size_t)(host - port));
    TTI_TRY(tti_parse_int("the port in the id", port_text, 1, 65535, &number));
    host = host ? host + 1 : "";
    if (!*host || strlen(host) >= sizeof made.host)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "the host in the id is %s",
                        *host ? "too long" : "empty");
    made.port = (uint16_t)number;
    snprintf(made.host, sizeof made.host, "%s", host);
    *meeting = made;
    return TUTTI_OK;
}

enum tutti_result tti_id_make(const char *address, struct tutti_id *id)
{
    struct tti_meeting meeting = {.ports = 1, .listen_fd = -1};
    if (sodium_init() < 0)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "libsodium finds no source of random numbers");
    if (address && strlen(address) >= sizeof meeting.host)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "the address \"%.40s...\" is too long", address);
    if (address && *address)
        snprintf(meeting.host, sizeof meeting.host, "%s", address);
    else
        TTI_TRY(tti_interface_best(meeting.host, sizeof meeting.host));
    struct id_waiting *waiting = tti_calloc(1, sizeof *waiting);
    if (!waiting)
        return TUTTI_ERR_MEMORY;
    randombytes_buf(meeting.secret, sizeof meeting.secret);
    enum tutti_result result = tti_socket_hold(meeting.host, &waiting->fd, &meeting.port);
    if (result != TUTTI_OK) {
        free(waiting);
        return result;
    }
    memcpy(waiting->secret, meeting.secret, sizeof waiting->secret);
    pthread_mutex_lock(&id_lock);
    waiting->next = id_waiting_list;
    id_waiting_list = waiting;
    pthread_mutex_unlock(&id_lock);
    tti_id_format(&meeting, id);
    return TUTTI_OK;
}

enum tutti_result tti_meeting_from_id(const struct tutti_id *id, int rank,
                                      struct tti_meeting *meeting)
{
    struct tti_meeting made;
    if (sodium_init() < 0)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "libsodium finds no source of random numbers");
    TTI_TRY(tti_id_parse(id, &made));
    struct id_waiting *claimed = NULL;
    pthread_mutex_lock(&id_lock);
    for (struct id_waiting **at = &id_waiting_list; rank == 0 && *at; at = &(*at)->next)
        if (memcmp((*at)->secret, made.secret, sizeof made.secret) == 0) {
            claimed = *at;
            *at = claimed->next;
            break;
        }
    pthread_mutex_unlock(&id_lock);
    enum tutti_result result = TUTTI_OK;
    if (claimed) {
        result = tti_socket_begin(claimed->fd);
        if (result == TUTTI_OK)
            made.listen_fd = claimed->fd;
        else
            close(claimed->fd);
    }
    free(claimed);
    *meeting = made;
    return result;
}
