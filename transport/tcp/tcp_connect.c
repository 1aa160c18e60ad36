/* The side that calls. Lane 0 finds the address: the peer's addresses are tried best first, the
 * next one as soon as one fails or keeps us waiting, and the first whose handshake completes wins.
 * The other lanes then connect to that address, all at once. */
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

/* TCP gets CONNECT_NS for one address. The next address is tried beside it when TCP has not
 * answered for CONNECT_NEXT_NS, or when it has but the rank is silent for CONNECT_SILENT_NS. */
#define CONNECT_SECOND_NS UINT64_C(1000000000)
#define CONNECT_NS (10 * CONNECT_SECOND_NS)
#define CONNECT_NEXT_NS (3 * CONNECT_SECOND_NS / 10)
#define CONNECT_SILENT_NS (2 * CONNECT_SECOND_NS)
/* An address whose rank lost patience with us is tried again, this often and after this pause. */
#define CONNECT_TRIES 5
#define CONNECT_PATIENCE_NS (TTI_TCP_GUEST_SECONDS * CONNECT_SECOND_NS / 2)
#define CONNECT_RETRY_NS (CONNECT_SECOND_NS / 10)

enum attempt_state {
    ATTEMPT_IDLE,
    ATTEMPT_OPENING,   /* TCP connects */
    ATTEMPT_LISTENING, /* waits for the challenge */
    ATTEMPT_PROVING,   /* has said hello, waits for the answer */
    ATTEMPT_GOING,     /* the go is on its way */
    ATTEMPT_PAUSED,    /* tries again at wake_ns */
    ATTEMPT_WON,
    ATTEMPT_FAILED,
};

struct tti_tcp_attempt {
    struct tti_tcp_talk talk;
    enum attempt_state state;
    int candidate;
    int lane;
    int tries;
    uint64_t begun_ns;
    uint64_t wake_ns; /* OPENING: its deadline; PAUSED: when to go on */
    char why[80];     /* FAILED */
};

/* ---- one attempt ---------------------------------------------------------------------------- */

static void connect_give_up(struct tti_tcp_attempt *attempt, const char *why)
{
    tti_tcp_talk_end(&attempt->talk);
    attempt->state = ATTEMPT_FAILED;
    snprintf(attempt->why, sizeof attempt->why, "%s", why);
    TTI_LOG(TTI_LOG_DEBUG, "tcp: %s: %s", attempt->talk.remote, why);
}

static void connect_give_up_errno(struct tti_tcp_attempt *attempt, int error)
{
    char reason[80];
    connect_give_up(attempt, strerror_r(error, reason, sizeof reason));
}

/* The other end hung up in the handshake. One that waited for long lost patience because this rank
 * was busy elsewhere, and deserves another call; one that hung up at once does not want us. */
static void connect_again(struct tti_tcp_attempt *attempt, uint64_t now)
{
    tti_tcp_talk_end(&attempt->talk);
    if (now - attempt->begun_ns < CONNECT_PATIENCE_NS || ++attempt->tries >= CONNECT_TRIES) {
        connect_give_up(attempt, "it hung up before it proved the secret of the job");
        return;
    }
    attempt->state = ATTEMPT_PAUSED;
    attempt->wake_ns = now + CONNECT_RETRY_NS;
}

static void connect_open(struct tti_tcp_endpoint *endpoint, struct tti_tcp_attempt *attempt,
                         uint64_t now)
{
    struct tti_tcp_transport *transport = endpoint->transport;
    const struct tti_tcp_candidate *candidate = &endpoint->candidate[attempt->candidate];
    const struct tti_tcp_address *from =
        candidate->from >= 0 ? &transport->interface[candidate->from].address : NULL;
    struct sockaddr_storage address;
    tti_tcp_sockaddr(&candidate->to, endpoint->advert.port, &address);
    tti_tcp_sockaddr_text(&address, attempt->talk.remote);
    attempt->talk.watch.kind = TTI_TCP_WATCH_TALK;
    attempt->talk.have = attempt->talk.out_bytes = attempt->talk.out_sent = 0;
    attempt->talk.socket = tti_tcp_socket_connect(from, &candidate->to, endpoint->advert.port);
    if (attempt->talk.socket < 0) {
        connect_give_up_errno(attempt, errno);
        return;
    }
    if (tti_tcp_watch_socket(transport, attempt->talk.socket, &attempt->talk.watch) != TUTTI_OK) {
        connect_give_up(attempt, tti_error_text());
        return;
    }
    attempt->state = ATTEMPT_OPENING;
    attempt->talk.due = false;
    attempt->begun_ns = now;
    attempt->wake_ns = now + CONNECT_NS;
}

/* Has TCP connected? */
static void connect_opened(struct tti_tcp_attempt *attempt, uint64_t now)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    int error = 0;
    socklen_t error_bytes = sizeof error;
    if (getsockopt(attempt->talk.socket, SOL_SOCKET, SO_ERROR, &error, &error_bytes) != 0)
        error = errno;
    if (error)
        connect_give_up_errno(attempt, error);
    else if (getpeername(attempt->talk.socket, (struct sockaddr *)&address, &bytes) == 0)
        attempt->state = ATTEMPT_LISTENING;
    else if (now >= attempt->wake_ns)
        connect_give_up_errno(attempt, ETIMEDOUT);
    else
        attempt->talk.due = false;
}

static void connect_challenged(struct tti_tcp_endpoint *endpoint, struct tti_tcp_attempt *attempt)
{
    struct tti_tcp_transport *transport = endpoint->transport;
    const char *wrong = tti_tcp_get_challenge(attempt->talk.in);
    if (wrong) {
        connect_give_up(attempt, wrong);
        return;
    }
    struct tti_tcp_hello hello = {.lane = (uint8_t)attempt->lane,
                                  .lanes = (uint8_t)endpoint->lanes,
                                  .job = transport->job,
                                  .from = (uint32_t)transport->rank,
                                  .to = (uint32_t)endpoint->peer->rank,
                                  .id = endpoint->id};
    memcpy(attempt->talk.challenge, attempt->talk.in, sizeof attempt->talk.challenge);
    tti_tcp_talk_say_hello(&attempt->talk, &hello, transport->secret);
    attempt->state = ATTEMPT_PROVING;
}

static void connect_answered(struct tti_tcp_endpoint *endpoint, struct tti_tcp_attempt *attempt)
{
    enum tti_tcp_status status = TTI_TCP_WELCOME;
    const char *wrong = tti_tcp_get_answer(attempt->talk.in, &status);
    if (!wrong && !tti_tcp_talk_answer_proved(&attempt->talk, endpoint->transport->secret))
        wrong = "it did not prove the secret of the job";
    if (!wrong && status != TTI_TCP_WELCOME)
        wrong = status == TTI_TCP_OTHER_JOB ? "it belongs to another communicator"
                                            : "it is another rank";
    if (wrong) {
        connect_give_up(attempt, wrong);
        return;
    }
    tti_tcp_talk_say_go(&attempt->talk);
    attempt->state = ATTEMPT_GOING;
}

/* Move on as far as the socket and the clock let. */
static void connect_talk(struct tti_tcp_endpoint *endpoint, struct tti_tcp_attempt *attempt,
                         uint64_t now)
{
    if (attempt->state == ATTEMPT_PAUSED && now >= attempt->wake_ns)
        connect_open(endpoint, attempt, now);
    if (attempt->state == ATTEMPT_OPENING && (attempt->talk.due || now >= attempt->wake_ns))
        connect_opened(attempt, now);
    while (attempt->talk.due &&
           (attempt->state == ATTEMPT_LISTENING || attempt->state == ATTEMPT_PROVING ||
            attempt->state == ATTEMPT_GOING)) {
        enum tti_tcp_talk_state state = tti_tcp_talk_write(&attempt->talk);
        if (state == TTI_TCP_TALK_DONE && attempt->state == ATTEMPT_GOING) {
            attempt->state = ATTEMPT_WON;
            return;
        }
        if (state == TTI_TCP_TALK_DONE)
            state = tti_tcp_talk_read(&attempt->talk, attempt->state == ATTEMPT_LISTENING
                                                          ? TTI_TCP_CHALLENGE_BYTES
                                                          : TTI_TCP_ANSWER_BYTES);
        attempt->talk.due = state != TTI_TCP_TALK_MORE;
        if (state == TTI_TCP_TALK_MORE)
            return;
        if (state == TTI_TCP_TALK_CLOSED)
            connect_again(attempt, now);
        else if (attempt->state == ATTEMPT_LISTENING)
            connect_challenged(endpoint, attempt);
        else
            connect_answered(endpoint, attempt);
    }
}

/* ---- an endpoint ---------------------------------------------------------------------------- */

/* "10.0.0.2:4444 (Connection refused), ..." */
static void connect_tried(const struct tti_tcp_endpoint *endpoint, char *text, size_t room)
{
    size_t used = 0;
    snprintf(text, room, "no address");
    for (int i = 0; i < endpoint->attempts && used + 1 < room; i++) {
        const struct tti_tcp_attempt *attempt = &endpoint->attempt[i];
        if (attempt->state != ATTEMPT_FAILED)
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
        tti_tcp_talk_end(&endpoint->attempt[i].talk);
    free(endpoint->attempt);
    endpoint->attempt = NULL;
    endpoint->attempts = 0;
}

/* Hand the socket of a completed handshake to its lane. */
static void connect_won(struct tti_tcp_endpoint *endpoint, struct tti_tcp_attempt *attempt)
{
    int socket = attempt->talk.socket;
    attempt->talk.socket = -1;
    attempt->state = ATTEMPT_IDLE;
    tti_tcp_unwatch_socket(endpoint->transport, socket);
    tti_tcp_endpoint_lane_up(endpoint, attempt->lane, socket, attempt->talk.remote);
}

/* Lane 0 has found an address: drop the other attempts, and call with the other lanes. */
static void connect_chose(struct tti_tcp_endpoint *endpoint, int chosen, uint64_t now)
{
    endpoint->chosen = endpoint->attempt[chosen].candidate;
    for (int i = 0; i < endpoint->attempts; i++)
        if (i != chosen)
            tti_tcp_talk_end(&endpoint->attempt[i].talk);
    connect_won(endpoint, &endpoint->attempt[chosen]);
    endpoint->attempts = endpoint->lanes;
    for (int i = 0; i < endpoint->lanes && endpoint->state == TTI_TCP_CONNECTING; i++) {
        endpoint->attempt[i] = (struct tti_tcp_attempt){
            .talk = {.socket = -1}, .lane = i, .candidate = endpoint->chosen};
        if (i > 0)
            connect_open(endpoint, &endpoint->attempt[i], now);
    }
}

/* Try the next address when the last one failed or has kept us waiting. */
static void connect_search(struct tti_tcp_endpoint *endpoint, uint64_t now)
{
    int alive = 0, started = 0;
    for (int i = 0; i < endpoint->attempts; i++) {
        struct tti_tcp_attempt *attempt = &endpoint->attempt[i];
        if (attempt->state == ATTEMPT_IDLE) {
            if (alive > 0 && now < endpoint->start_ns)
                break;
            connect_open(endpoint, attempt, now);
            endpoint->start_ns = now + CONNECT_NEXT_NS;
        }
        bool opening = attempt->state == ATTEMPT_OPENING;
        connect_talk(endpoint, attempt, now);
        if (opening && attempt->state == ATTEMPT_LISTENING)
            endpoint->start_ns = now + CONNECT_SILENT_NS;
        if (attempt->state == ATTEMPT_WON) {
            connect_chose(endpoint, i, now);
            return;
        }
        alive += attempt->state != ATTEMPT_FAILED;
        started++;
    }
    if (alive == 0 && started == endpoint->attempts)
        connect_fail(endpoint);
    else if (started < endpoint->attempts)
        endpoint->wake_ns = endpoint->start_ns;
}

static void connect_rest(struct tti_tcp_endpoint *endpoint, uint64_t now)
{
    for (int i = 0; i < endpoint->attempts && endpoint->state == TTI_TCP_CONNECTING; i++) {
        struct tti_tcp_attempt *attempt = &endpoint->attempt[i];
        connect_talk(endpoint, attempt, now);
        if (attempt->state == ATTEMPT_WON)
            connect_won(endpoint, attempt);
        else if (attempt->state == ATTEMPT_FAILED)
            connect_fail(endpoint);
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
    if (endpoint->state != TTI_TCP_CONNECTING) {
        tti_tcp_connect_end(endpoint);
        return;
    }
    for (int i = 0; i < endpoint->attempts; i++) {
        const struct tti_tcp_attempt *attempt = &endpoint->attempt[i];
        bool waits = attempt->state == ATTEMPT_OPENING || attempt->state == ATTEMPT_PAUSED;
        if (waits && attempt->wake_ns < endpoint->wake_ns)
            endpoint->wake_ns = attempt->wake_ns;
    }
}
