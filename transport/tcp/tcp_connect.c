/* The side that calls. Lane 0 finds the address: the peer's addresses are tried best first, the
 * next one as soon as one fails or keeps us waiting, and the first whose handshake completes wins.
 * The other lanes then connect to that address, all at once.
 *
 * Between hosts a connection that is lost while it is made is made again, for the time that one has
 * that is lost later (tcp_resume.c). Who is refused by a rank, or has reason to doubt who it talks
 * to, gives up at once. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "transport/tcp/tcp_attempt.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The next address is tried beside one when TCP has not answered for CONNECT_NEXT_NS, or when it
 * has but the rank is silent for CONNECT_SILENT_NS. */
#define CONNECT_NEXT_NS UINT64_C(300000000)
#define CONNECT_SILENT_NS UINT64_C(2000000000)
/* A lost connection is made again after this pause. */
#define CONNECT_AGAIN_NS UINT64_C(50000000)

/* "10.0.0.2:4444 (Connection refused), ..." */
static void connect_tried(const struct tti_tcp_endpoint *endpoint, char *text, size_t room)
{
    size_t used = 0;
    snprintf(text, room, "no address");
    for (int i = 0; i < endpoint->attempts && used + 1 < room; i++) {
        const struct tti_tcp_attempt *attempt = &endpoint->attempt[i];
        if (attempt->state != TTI_TCP_ATTEMPT_FAILED)
            continue;
        int more = snprintf(text + used, room - used, "%s%s (%s)", used ? ", " : "",
                            attempt->talk.remote, attempt->why);
        used += more > 0 ? (size_t)more : 0;
    }
}

static void connect_fail(struct tti_tcp_endpoint *endpoint)
{
    char tried[640];
    connect_tried(endpoint, tried, sizeof tried);
    tti_tcp_endpoint_fail(
        endpoint,
        TTI_FAIL(TUTTI_ERR_LINK,
                 "cannot connect rank %d to rank %d (%s): tried %s; check that this rank still "
                 "runs, that no firewall is between the hosts (TUTTI_TCP_PORTS) and that "
                 "TUTTI_IFNAME names interfaces that reach each other",
                 endpoint->transport->rank, endpoint->peer->rank, endpoint->peer->name, tried));
}

enum tutti_result tti_tcp_connect_begin(struct tti_tcp_endpoint *endpoint)
{
    const struct tti_tcp_transport *transport = endpoint->transport;
    endpoint->candidates =
        tti_tcp_candidates(transport->interface, transport->interfaces, transport->host,
                           &endpoint->advert, endpoint->candidate);
    int most = endpoint->candidates > endpoint->lanes ? endpoint->candidates : endpoint->lanes;
    endpoint->attempt = tti_calloc((size_t)most, sizeof *endpoint->attempt);
    if (!endpoint->attempt)
        return TUTTI_ERR_MEMORY;
    for (int i = 0; i < most; i++) {
        endpoint->attempt[i].talk.socket = -1;
        endpoint->attempt[i].candidate = i;
    }
    endpoint->attempts = endpoint->candidates;
    do
        randombytes_buf(&endpoint->id, sizeof endpoint->id);
    while (endpoint->id == 0);
    return TUTTI_OK;
}

void tti_tcp_connect_end(struct tti_tcp_endpoint *endpoint)
{
    for (int i = 0; i < endpoint->attempts; i++)
        tti_tcp_hang_up(endpoint->transport, &endpoint->attempt[i].talk);
    free(endpoint->attempt);
    endpoint->attempt = NULL;
    endpoint->attempts = 0;
}

/* ---- losing --------------------------------------------------------------------------------- */

static bool connect_has_time(struct tti_tcp_endpoint *endpoint, uint64_t now)
{
    if (endpoint->give_up_ns == 0)
        endpoint->give_up_ns = tti_deadline_in(TTI_TCP_RESUME_SECONDS);
    return now < endpoint->give_up_ns;
}

/* Is this attempt lost, and to be made again? */
static bool connect_retry(struct tti_tcp_endpoint *endpoint, struct tti_tcp_attempt *attempt,
                          uint64_t now)
{
    if (!endpoint->resumes || attempt->state != TTI_TCP_ATTEMPT_FAILED || !attempt->lost ||
        !connect_has_time(endpoint, now))
        return false;
    TTI_LOG(TTI_LOG_INFO,
            "tcp: lost a connection to rank %d (%s) while making it (lane %d, %s: %s); making "
            "another",
            endpoint->peer->rank, endpoint->peer->name, attempt->lane, attempt->talk.remote,
            attempt->why);
    attempt->state = TTI_TCP_ATTEMPT_PAUSED;
    attempt->wake_ns = now + CONNECT_AGAIN_NS;
    return true;
}

bool tti_tcp_connect_again(struct tti_tcp_endpoint *endpoint, int number)
{
    struct tti_tcp_lane *lane = &endpoint->lane[number];
    struct tti_tcp_attempt *attempt = &endpoint->attempt[number];
    if (!endpoint->resumes || !connect_has_time(endpoint, tti_now_ns()))
        return false;
    tti_error_save(&endpoint->error, tti_tcp_lane_fail_receiving(lane)); /* if nobody is there */
    tti_tcp_lane_stop(lane);
    lane->receive_error = 0;
    lane->cuts++;
    endpoint->up--;
    if (number == 0)
        endpoint->ready_have = 0;
    *attempt = (struct tti_tcp_attempt){.talk = {.socket = -1},
                                        .lane = number,
                                        .candidate = endpoint->chosen,
                                        .state = TTI_TCP_ATTEMPT_PAUSED};
    return true;
}

/* The acceptor says on lane 0 that it is ready, so nobody reads the others meanwhile; but one that
 * was lost before the acceptor had its go is what the acceptor waits for. Where bytes have come it
 * is ready, and lane 0 will tell; so may an end without a bye be, where lanes do not resume. */
static void connect_look(struct tti_tcp_endpoint *endpoint)
{
    for (int i = 1; i < endpoint->lanes && endpoint->state == TTI_TCP_CONNECTING; i++) {
        struct tti_tcp_lane *lane = &endpoint->lane[i];
        char byte;
        if (lane->socket < 0 || !lane->hung_up)
            continue;
        const ssize_t got = recv(lane->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        const bool lost = got < 0 ? errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR
                                  : got == 0 && endpoint->resumes;
        if (!lost)
            continue;
        lane->receive_error = got < 0 ? errno : 0;
        if (!tti_tcp_connect_again(endpoint, i))
            tti_tcp_endpoint_fail(endpoint, tti_tcp_lane_fail_receiving(lane));
    }
}

/* ---- calling -------------------------------------------------------------------------------- */

/* Hand the socket of a completed handshake to its lane. */
static void connect_won(struct tti_tcp_endpoint *endpoint, struct tti_tcp_attempt *attempt)
{
    int socket = attempt->talk.socket;
    struct tti_tcp_keys keys;
    tti_tcp_talk_keys(&attempt->talk, endpoint->transport->secret, &keys);
    attempt->talk.socket = -1;
    attempt->state = TTI_TCP_ATTEMPT_IDLE;
    tti_tcp_unwatch_socket(endpoint->transport, socket);
    tti_tcp_endpoint_lane_up(endpoint, attempt->lane, socket, attempt->talk.remote, &keys);
    sodium_memzero(&keys, sizeof keys);
}

/* Lane 0 has found an address: drop the other attempts, and call with the other lanes. */
static void connect_chose(struct tti_tcp_endpoint *endpoint, int chosen, uint64_t now)
{
    endpoint->chosen = endpoint->attempt[chosen].candidate;
    for (int i = 0; i < endpoint->attempts; i++)
        if (i != chosen)
            tti_tcp_hang_up(endpoint->transport, &endpoint->attempt[i].talk);
    connect_won(endpoint, &endpoint->attempt[chosen]);
    endpoint->attempts = endpoint->lanes;
    for (int i = 0; i < endpoint->lanes && endpoint->state == TTI_TCP_CONNECTING; i++) {
        endpoint->attempt[i] = (struct tti_tcp_attempt){
            .talk = {.socket = -1}, .lane = i, .candidate = endpoint->chosen};
        if (i > 0)
            tti_tcp_attempt_open(endpoint, &endpoint->attempt[i], now);
    }
}

/* Try the next address when the last one failed or has kept us waiting. */
static void connect_search(struct tti_tcp_endpoint *endpoint, uint64_t now)
{
    int alive = 0, started = 0;
    for (int i = 0; i < endpoint->attempts; i++) {
        struct tti_tcp_attempt *attempt = &endpoint->attempt[i];
        if (attempt->state == TTI_TCP_ATTEMPT_IDLE) {
            if (alive > 0 && now < endpoint->start_ns)
                break;
            tti_tcp_attempt_open(endpoint, attempt, now);
            endpoint->start_ns = now + CONNECT_NEXT_NS;
        }
        bool opening = attempt->state == TTI_TCP_ATTEMPT_OPENING;
        tti_tcp_attempt_talk(endpoint, attempt, now);
        if (opening && attempt->state == TTI_TCP_ATTEMPT_LISTENING)
            endpoint->start_ns = now + CONNECT_SILENT_NS;
        if (!opening && connect_retry(endpoint, attempt, now))
            endpoint->start_ns = now;
        if (attempt->state == TTI_TCP_ATTEMPT_WON) {
            connect_chose(endpoint, i, now);
            return;
        }
        alive += attempt->state != TTI_TCP_ATTEMPT_FAILED;
        started++;
    }
    if (alive == 0 && started == endpoint->attempts)
        connect_fail(endpoint);
    else if (started < endpoint->attempts)
        endpoint->wake_ns = endpoint->start_ns;
}

/* Who is gone after it had proved itself has ended the connection. */
static void connect_give_up(struct tti_tcp_endpoint *endpoint,
                            const struct tti_tcp_attempt *attempt)
{
    if (attempt->refused && endpoint->error.code != TUTTI_OK)
        tti_tcp_endpoint_fail(endpoint, tti_error_restore(&endpoint->error));
    else
        connect_fail(endpoint);
}

static void connect_rest(struct tti_tcp_endpoint *endpoint, uint64_t now)
{
    for (int i = 0; i < endpoint->attempts && endpoint->state == TTI_TCP_CONNECTING; i++) {
        struct tti_tcp_attempt *attempt = &endpoint->attempt[i];
        tti_tcp_attempt_talk(endpoint, attempt, now);
        if (attempt->state == TTI_TCP_ATTEMPT_WON)
            connect_won(endpoint, attempt);
        else if (attempt->state == TTI_TCP_ATTEMPT_FAILED && !connect_retry(endpoint, attempt, now))
            connect_give_up(endpoint, attempt);
    }
}

void tti_tcp_connect_step(struct tti_tcp_endpoint *endpoint, uint64_t now)
{
    endpoint->wake_ns = UINT64_MAX;
    if (endpoint->chosen < 0)
        connect_search(endpoint, now);
    if (endpoint->chosen >= 0 && endpoint->state == TTI_TCP_CONNECTING)
        connect_rest(endpoint, now);
    if (endpoint->up == endpoint->lanes && endpoint->state == TTI_TCP_CONNECTING)
        tti_tcp_endpoint_await_ready(endpoint);
    if (endpoint->chosen >= 0)
        connect_look(endpoint);
    if (endpoint->state != TTI_TCP_CONNECTING) {
        tti_tcp_connect_end(endpoint);
        return;
    }
    for (int i = 0; i < endpoint->attempts; i++) {
        const struct tti_tcp_attempt *attempt = &endpoint->attempt[i];
        bool waits =
            attempt->state == TTI_TCP_ATTEMPT_OPENING || attempt->state == TTI_TCP_ATTEMPT_PAUSED;
        if (waits && attempt->wake_ns < endpoint->wake_ns)
            endpoint->wake_ns = attempt->wake_ns;
    }
}
