/* One connection under way (tcp_attempt.h). */
#include "transport/tcp/tcp_attempt.h"

#include "base/log.h"
#include "transport/tcp/tcp_socket.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* TCP gets CONNECT_NS for one address, unless the attempt says otherwise. */
#define CONNECT_SECOND_NS UINT64_C(1000000000)
#define CONNECT_NS (10 * CONNECT_SECOND_NS)
/* An address whose rank lost patience with us is tried again, this often and after this pause. */
#define CONNECT_TRIES 5
#define CONNECT_PATIENCE_NS (TTI_TCP_GUEST_SECONDS * CONNECT_SECOND_NS / 2)
#define CONNECT_RETRY_NS (CONNECT_SECOND_NS / 10)

static void attempt_give_up(struct tti_tcp_endpoint *endpoint, struct tti_tcp_attempt *attempt,
                            const char *why)
{
    tti_tcp_hang_up(endpoint->transport, &attempt->talk);
    attempt->state = TTI_TCP_ATTEMPT_FAILED;
    attempt->refused = attempt->told = attempt->lost = attempt->foreign = false;
    snprintf(attempt->why, sizeof attempt->why, "%s", why);
    TTI_LOG(TTI_LOG_DEBUG, "tcp: %s: %s", attempt->talk.remote, why);
}

static void attempt_give_up_errno(struct tti_tcp_endpoint *endpoint,
                                  struct tti_tcp_attempt *attempt, int error)
{
    char reason[80];
    attempt_give_up(endpoint, attempt, strerror_r(error, reason, sizeof reason));
    attempt->refused = error == ECONNREFUSED;
}

/* The connection ended in the handshake, by an error (errno) or because the other end hung up (0).
 * One that waited for long lost patience because this rank was busy elsewhere, and deserves another
 * call; one that hung up at once does not want us. */
static void attempt_again(struct tti_tcp_endpoint *endpoint, struct tti_tcp_attempt *attempt,
                          int error, uint64_t now)
{
    const bool said_hello = attempt->state == TTI_TCP_ATTEMPT_PROVING;
    const bool at_once = now - attempt->begun_ns < CONNECT_PATIENCE_NS;
    tti_tcp_hang_up(endpoint->transport, &attempt->talk);
    if (at_once || ++attempt->tries >= CONNECT_TRIES) {
        if (error)
            attempt_give_up_errno(endpoint, attempt, error);
        else
            attempt_give_up(endpoint, attempt, "it hung up before it proved the secret of the job");
        attempt->lost = error != 0;
        attempt->foreign = error == 0 && said_hello && at_once;
        return;
    }
    attempt->state = TTI_TCP_ATTEMPT_PAUSED;
    attempt->wake_ns = now + CONNECT_RETRY_NS;
}

void tti_tcp_attempt_open(struct tti_tcp_endpoint *endpoint, struct tti_tcp_attempt *attempt,
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
        attempt_give_up_errno(endpoint, attempt, errno);
        return;
    }
    if (tti_tcp_watch_socket(transport, attempt->talk.socket, &attempt->talk.watch) != TUTTI_OK) {
        attempt_give_up(endpoint, attempt, tti_error_text());
        return;
    }
    attempt->state = TTI_TCP_ATTEMPT_OPENING;
    attempt->talk.due = false;
    attempt->begun_ns = now;
    attempt->wake_ns = now + (attempt->patience_ns ? attempt->patience_ns : CONNECT_NS);
}

/* Has TCP connected? */
static void attempt_opened(struct tti_tcp_endpoint *endpoint, struct tti_tcp_attempt *attempt,
                           uint64_t now)
{
    struct sockaddr_storage address;
    socklen_t bytes = sizeof address;
    int error = 0;
    socklen_t error_bytes = sizeof error;
    if (getsockopt(attempt->talk.socket, SOL_SOCKET, SO_ERROR, &error, &error_bytes) != 0)
        error = errno;
    if (error) {
        attempt_give_up_errno(endpoint, attempt, error);
        attempt->lost = !attempt->refused;
    } else if (getpeername(attempt->talk.socket, (struct sockaddr *)&address, &bytes) == 0) {
        attempt->state = TTI_TCP_ATTEMPT_LISTENING;
    } else if (now >= attempt->wake_ns) {
        attempt_give_up_errno(endpoint, attempt, ETIMEDOUT);
        attempt->lost = true;
    } else {
        attempt->talk.due = false;
    }
}

static void attempt_challenged(struct tti_tcp_endpoint *endpoint, struct tti_tcp_attempt *attempt)
{
    struct tti_tcp_transport *transport = endpoint->transport;
    const char *wrong = tti_tcp_get_challenge(attempt->talk.in);
    if (wrong) {
        attempt_give_up(endpoint, attempt, wrong);
        return;
    }
    struct tti_tcp_hello hello = {.lane = (uint8_t)attempt->lane,
                                  .lanes = (uint8_t)endpoint->lanes,
                                  .job = transport->job,
                                  .from = (uint32_t)transport->rank,
                                  .to = (uint32_t)endpoint->peer->rank,
                                  .id = endpoint->id,
                                  .resumes = endpoint->resumes,
                                  .seals = endpoint->seals,
                                  .purpose = (uint8_t)attempt->purpose,
                                  .cuts = endpoint->lane[attempt->lane].cuts};
    if (attempt->purpose == TTI_TCP_RESUME)
        hello.received = endpoint->lane[attempt->lane].received;
    memcpy(attempt->talk.challenge, attempt->talk.in, sizeof attempt->talk.challenge);
    tti_tcp_talk_say_hello(&attempt->talk, &hello, transport->secret);
    attempt->state = TTI_TCP_ATTEMPT_PROVING;
}

static void attempt_answered(struct tti_tcp_endpoint *endpoint, struct tti_tcp_attempt *attempt)
{
    static const char *const refusals[TTI_TCP_STATUS_COUNT] = {
        [TTI_TCP_OTHER_JOB] = "it belongs to another communicator",
        [TTI_TCP_OTHER_RANK] = "it is another rank",
        [TTI_TCP_GONE] = "it has ended this connection",
        [TTI_TCP_OTHER_SEALS] = "it has another TUTTI_TCP_CHECKSUM or TUTTI_TCP_ENCRYPT",
    };
    const char *wrong = tti_tcp_get_answer(attempt->talk.in, &attempt->answer);
    if (!wrong && !tti_tcp_talk_answer_proved(&attempt->talk, endpoint->transport->secret))
        wrong = "it did not prove the secret of the job";
    bool proved = !wrong;
    if (proved)
        wrong = refusals[attempt->answer.status];
    if (wrong) {
        attempt_give_up(endpoint, attempt, wrong);
        attempt->refused = attempt->told = proved; /* that peer is no more */
        attempt->foreign = !proved;
        return;
    }
    if (attempt->purpose == TTI_TCP_ASK) { /* the answer is all that was wanted */
        attempt->state = TTI_TCP_ATTEMPT_WON;
        return;
    }
    tti_tcp_talk_say_go(&attempt->talk);
    attempt->state = TTI_TCP_ATTEMPT_GOING;
}

void tti_tcp_attempt_talk(struct tti_tcp_endpoint *endpoint, struct tti_tcp_attempt *attempt,
                          uint64_t now)
{
    if (attempt->state == TTI_TCP_ATTEMPT_PAUSED && now >= attempt->wake_ns)
        tti_tcp_attempt_open(endpoint, attempt, now);
    if (attempt->state == TTI_TCP_ATTEMPT_OPENING && (attempt->talk.due || now >= attempt->wake_ns))
        attempt_opened(endpoint, attempt, now);
    while (attempt->talk.due &&
           (attempt->state == TTI_TCP_ATTEMPT_LISTENING ||
            attempt->state == TTI_TCP_ATTEMPT_PROVING || attempt->state == TTI_TCP_ATTEMPT_GOING)) {
        enum tti_tcp_talk_state state = tti_tcp_talk_write(&attempt->talk);
        if (state == TTI_TCP_TALK_DONE && attempt->state == TTI_TCP_ATTEMPT_GOING) {
            attempt->state = TTI_TCP_ATTEMPT_WON;
            return;
        }
        if (state == TTI_TCP_TALK_DONE)
            state = tti_tcp_talk_read(&attempt->talk, attempt->state == TTI_TCP_ATTEMPT_LISTENING
                                                          ? TTI_TCP_CHALLENGE_BYTES
                                                          : TTI_TCP_ANSWER_BYTES);
        attempt->talk.due = state != TTI_TCP_TALK_MORE;
        if (state == TTI_TCP_TALK_MORE)
            return;
        if (state == TTI_TCP_TALK_CLOSED)
            attempt_again(endpoint, attempt, errno, now);
        else if (attempt->state == TTI_TCP_ATTEMPT_LISTENING)
            attempt_challenged(endpoint, attempt);
        else
            attempt_answered(endpoint, attempt);
    }
}
