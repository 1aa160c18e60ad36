/* The side that is called: accept, challenge, check, and hand the socket to its endpoint.
 *
 * A stranger who reaches the port costs one of a bounded number of places for a bounded time and a
 * fixed number of bytes; when all places are taken, further ones wait in the kernel's backlog. A
 * proven connection may come before this rank has called connect; it is parked until then. */
#include "base/children.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "transport/tcp/tcp.h"
#include "transport/tcp/tcp_socket.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ACCEPT_RETRY_NS = 100 * 1000 * 1000 };

/* ---- guests --------------------------------------------------------------------------------- */

static void accept_dismiss(struct tti_tcp_transport *transport, int index)
{
    tti_tcp_hang_up(transport, &transport->guest[index]->talk);
    free(transport->guest[index]);
    transport->guest[index] = transport->guest[--transport->guests];
    transport->guest[transport->guests] = NULL;
}

/* Takes the socket, whatever happens. */
static void accept_admit(struct tti_tcp_transport *transport, int socket,
                         const struct sockaddr_storage *from)
{
    struct tti_tcp_guest *guest = tti_calloc(1, sizeof *guest);
    if (!guest) {
        close(socket);
        return;
    }
    tti_tcp_socket_tune(socket);
    guest->talk.watch.kind = TTI_TCP_WATCH_TALK;
    guest->talk.socket = socket;
    guest->talk.due = true;
    guest->deadline_ns = tti_deadline_in(TTI_TCP_GUEST_SECONDS);
    tti_tcp_sockaddr_text(from, guest->talk.remote);
    tti_tcp_talk_say_challenge(&guest->talk);
    if (tti_tcp_watch_socket(transport, socket, &guest->talk.watch) != TUTTI_OK) {
        tti_tcp_talk_end(&guest->talk);
        free(guest);
        return;
    }
    transport->guest[transport->guests++] = guest;
}

static void accept_all(struct tti_tcp_transport *transport, uint64_t now)
{
    while (transport->accept_due && transport->guests < TTI_TCP_MAX_GUESTS &&
           now >= transport->retry_ns) {
        struct sockaddr_storage from;
        socklen_t bytes = sizeof from;
        int socket = tti_keep_from_children(accept4(transport->listener, (struct sockaddr *)&from,
                                                    &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (socket >= 0) {
            accept_admit(transport, socket, &from);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            transport->accept_due = false;
        } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            TTI_LOG(TTI_LOG_WARN,
                    "tcp: cannot accept a connection: %s; raise the limit of open "
                    "files (ulimit -n)",
                    strerror(errno));
            transport->retry_ns = now + ACCEPT_RETRY_NS;
        } /* others concern one connection that is gone already */
    }
}

static void accept_reject(const struct tti_tcp_guest *guest, const char *why)
{
    TTI_LOG(TTI_LOG_WARN, "tcp: closed a connection from %s: %s", guest->talk.remote, why);
}

/* The hello is in talk->in: check it, and make the answer. False: dismiss. */
static bool accept_hello(struct tti_tcp_transport *transport, struct tti_tcp_guest *guest)
{
    struct tti_tcp_talk *talk = &guest->talk;
    memcpy(talk->hello, talk->in, sizeof talk->hello);
    const char *wrong = tti_tcp_get_hello(talk->hello, &guest->hello);
    if (!wrong && !tti_tcp_talk_hello_proved(talk, transport->secret))
        wrong = "it did not prove the secret of the job";
    if (wrong) {
        accept_reject(guest, wrong);
        return false;
    }
    struct tti_tcp_answer answer = {.status = TTI_TCP_WELCOME};
    if (guest->hello.job != transport->job)
        answer.status = TTI_TCP_OTHER_JOB;
    else if (guest->hello.to != (uint32_t)transport->rank ||
             guest->hello.from >= (uint32_t)transport->nranks ||
             guest->hello.lanes > TUTTI_MAX_LANES * TTI_TCP_MAX_SOCKETS)
        answer.status = TTI_TCP_OTHER_RANK;
    else if (!tti_tcp_seals_agree(guest->hello.seals, transport->advert.seals))
        answer.status = TTI_TCP_OTHER_SEALS;
    if (answer.status == TTI_TCP_OTHER_SEALS) {
        accept_reject(guest, "it has another TUTTI_TCP_CHECKSUM or TUTTI_TCP_ENCRYPT");
    } else if (answer.status != TTI_TCP_WELCOME) {
        accept_reject(guest, "it looked for another communicator or rank");
    } else if (guest->hello.purpose != TTI_TCP_NEW) {
        const struct tti_tcp_lane *lane = tti_tcp_resume_greet(transport, &guest->hello);
        answer.status = lane ? TTI_TCP_WELCOME : TTI_TCP_GONE;
        answer.received = lane ? lane->received : 0;
        guest->cuts = lane ? lane->cuts : 0;
    }
    tti_tcp_talk_say_answer(talk, &answer, transport->secret);
    guest->greeted = true;
    guest->deadline_ns = tti_deadline_in(TTI_TCP_PROVEN_SECONDS);
    return true;
}

/* Into the queue of those that wait for connect, behind the others; a second socket for the same
 * lane replaces the first, which its peer gave up. False: no memory. */
static bool accept_park(struct tti_tcp_transport *transport, struct tti_tcp_guest *guest)
{
    struct tti_tcp_parked **at = &transport->parked;
    for (; *at; at = &(*at)->next) {
        if ((*at)->hello.id != guest->hello.id || (*at)->hello.lane != guest->hello.lane)
            continue;
        close((*at)->socket);
        (*at)->socket = guest->talk.socket;
        tti_tcp_talk_keys(&guest->talk, transport->secret, &(*at)->keys);
        memcpy((*at)->remote, guest->talk.remote, sizeof(*at)->remote);
        guest->talk.socket = -1;
        return true;
    }
    struct tti_tcp_parked *parked = tti_calloc(1, sizeof *parked);
    if (!parked)
        return false;
    parked->socket = guest->talk.socket;
    parked->hello = guest->hello;
    tti_tcp_talk_keys(&guest->talk, transport->secret, &parked->keys);
    memcpy(parked->remote, guest->talk.remote, sizeof parked->remote);
    guest->talk.socket = -1;
    *at = parked;
    return true;
}

/* The lane's stream goes on over the guest's socket, from what the peer has `received`. */
static void accept_go_on(struct tti_tcp_transport *transport, struct tti_tcp_guest *guest,
                         struct tti_tcp_lane *lane, uint64_t received)
{
    if (lane->endpoint->advert.host == transport->host)
        tti_tcp_socket_tune_local(guest->talk.socket);
    struct tti_tcp_keys keys;
    tti_tcp_talk_keys(&guest->talk, transport->secret, &keys);
    tti_tcp_resume_lane(lane, guest->talk.socket, guest->talk.remote, &keys, received);
    sodium_memzero(&keys, sizeof keys);
    guest->talk.socket = -1;
}

/* The lane was cut when the hello came, and is since, so its position is what the answer said. The
 * go of a connection that the peer has given up meanwhile may come when the lane is well. */
static void accept_resume(struct tti_tcp_transport *transport, struct tti_tcp_guest *guest)
{
    struct tti_tcp_lane *lane = tti_tcp_resume_greeted(transport, &guest->hello, guest->cuts);
    if (lane)
        accept_go_on(transport, guest, lane, guest->hello.received);
}

static bool accept_say_ready(const struct tti_tcp_guest *guest)
{
    uint8_t ready[TTI_TCP_READY_BYTES];
    tti_tcp_put_ready(ready);
    return send(guest->talk.socket, ready, sizeof ready, MSG_DONTWAIT | MSG_NOSIGNAL) ==
           (ssize_t)sizeof ready;
}

/* A peer whose endpoint is connected here, and who calls as if it were not, has not got the word
 * that it is: nothing went over that lane yet, so it begins anew, lane 0 with that word. False:
 * there is no such. */
static bool accept_anew(struct tti_tcp_transport *transport, struct tti_tcp_guest *guest)
{
    struct tti_tcp_lane *lane = tti_tcp_resume_anew(transport, &guest->hello);
    if (!lane)
        return false;
    if (lane->cut && lane->received == 0 && (lane->number > 0 || accept_say_ready(guest)))
        accept_go_on(transport, guest, lane, 0);
    return true;
}

/* Move on as far as the socket lets. False: this guest is done with, one way or the other. */
static bool accept_talk(struct tti_tcp_transport *transport, struct tti_tcp_guest *guest)
{
    struct tti_tcp_talk *talk = &guest->talk;
    while (talk->due) {
        enum tti_tcp_talk_state state = tti_tcp_talk_write(talk);
        if (state == TTI_TCP_TALK_DONE)
            state =
                tti_tcp_talk_read(talk, guest->greeted ? TTI_TCP_GO_BYTES : TTI_TCP_HELLO_BYTES);
        talk->due = state != TTI_TCP_TALK_MORE;
        if (!talk->due)
            break;
        if (state == TTI_TCP_TALK_CLOSED) { /* a proven one may, when it chose another address */
            if (!guest->greeted)
                accept_reject(guest, "it closed before it proved the secret of the job");
            return false;
        }
        if (!guest->greeted) {
            if (!accept_hello(transport, guest))
                return false;
            continue;
        }
        const char *wrong = tti_tcp_get_go(talk->in);
        if (wrong) {
            accept_reject(guest, wrong);
            return false;
        }
        tti_tcp_unwatch_socket(transport, talk->socket);
        if (guest->hello.purpose == TTI_TCP_RESUME)
            accept_resume(transport, guest);
        else if (guest->hello.purpose == TTI_TCP_NEW && !accept_anew(transport, guest))
            accept_park(transport, guest);
        return false;
    }
    return true;
}

uint64_t tti_tcp_accept_step(struct tti_tcp_transport *transport, uint64_t now)
{
    uint64_t wake = UINT64_MAX;
    accept_all(transport, now);
    for (int i = 0; i < transport->guests;) {
        struct tti_tcp_guest *guest = transport->guest[i];
        /* Talk before looking at the clock: we may be the ones who were late. */
        bool stays = accept_talk(transport, guest);
        if (stays && now >= guest->deadline_ns) {
            accept_reject(guest, guest->greeted ? "it did not go on in time"
                                                : "it did not prove the secret of the job in time");
            stays = false;
        }
        if (!stays) {
            accept_dismiss(transport, i);
            continue;
        }
        if (guest->deadline_ns < wake)
            wake = guest->deadline_ns;
        i++;
    }
    if (transport->accept_due && transport->guests < TTI_TCP_MAX_GUESTS) {
        uint64_t again = transport->retry_ns > now ? transport->retry_ns : now;
        if (again < wake)
            wake = again;
    }
    tti_tcp_accept_match(transport);
    return wake;
}

/* ---- parked connections ---------------------------------------------------------------------- */

/* The endpoint that waits for this socket, or NULL. */
static struct tti_tcp_endpoint *accept_endpoint(struct tti_tcp_transport *transport,
                                                const struct tti_tcp_hello *hello)
{
    struct tti_tcp_endpoint *free_one = NULL;
    for (struct tti_tcp_endpoint *e = transport->endpoint; e; e = e->next) {
        if (e->connects || e->state != TTI_TCP_CONNECTING || e->peer->rank != (int)hello->from)
            continue;
        if (e->id == hello->id)
            return e;
        if (e->id == 0)
            free_one = e; /* the list is newest first; the oldest is served first */
    }
    return free_one;
}

static void accept_give(struct tti_tcp_endpoint *endpoint, struct tti_tcp_parked *parked)
{
    const struct tti_tcp_hello *hello = &parked->hello;
    endpoint->id = hello->id;
    endpoint->resumes = hello->resumes;
    endpoint->seals = hello->seals; /* which agrees with ours */
    if (hello->lanes != endpoint->lanes) {
        close(parked->socket);
        tti_tcp_endpoint_fail(endpoint,
                              TTI_FAIL(TUTTI_ERR_PROTOCOL,
                                       "rank %d (%s) connects with %d lanes, this rank expects %d",
                                       endpoint->peer->rank, endpoint->peer->name, hello->lanes,
                                       endpoint->lanes));
        return;
    }
    struct tti_tcp_lane *lane = &endpoint->lane[hello->lane];
    if (lane->socket >= 0) { /* the peer gave up the first socket of this lane */
        tti_tcp_lane_stop(lane);
        endpoint->up--;
    }
    if (endpoint->advert.host == endpoint->transport->host)
        tti_tcp_socket_tune_local(parked->socket);
    lane->cuts = hello->cuts;
    tti_tcp_endpoint_lane_up(endpoint, hello->lane, parked->socket, parked->remote, &parked->keys);
    sodium_memzero(&parked->keys, sizeof parked->keys);
}

static bool accept_replaces(const struct tti_tcp_endpoint *endpoint,
                            const struct tti_tcp_hello *hello)
{
    return endpoint->id == hello->id && hello->lane < endpoint->lanes &&
           endpoint->lane[hello->lane].socket >= 0;
}

static void accept_match(struct tti_tcp_transport *transport, bool replacements)
{
    for (struct tti_tcp_parked **at = &transport->parked; *at;) {
        struct tti_tcp_parked *parked = *at;
        struct tti_tcp_endpoint *endpoint = accept_endpoint(transport, &parked->hello);
        if (!endpoint || (replacements && !accept_replaces(endpoint, &parked->hello))) {
            at = &parked->next;
            continue;
        }
        *at = parked->next;
        accept_give(endpoint, parked);
        free(parked);
    }
}

/* First those that replace a socket: the last lane to come up makes the endpoint connected, and it
 * would be so with a socket that its peer gave up. */
void tti_tcp_accept_match(struct tti_tcp_transport *transport)
{
    accept_match(transport, true);
    accept_match(transport, false);
}

void tti_tcp_accept_end(struct tti_tcp_transport *transport)
{
    while (transport->guests > 0)
        accept_dismiss(transport, 0);
    while (transport->parked) {
        struct tti_tcp_parked *parked = transport->parked;
        transport->parked = parked->next;
        close(parked->socket);
        free(parked);
    }
}
