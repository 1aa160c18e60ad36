/* One conversation of the handshake, as both ends hold it: a few fixed-size messages over a
 * non-blocking socket, and the proofs that both know the secret of the job.
 *
 *     acceptor -> connector   challenge   a nonce
 *     connector -> acceptor   hello       who and which lane, a nonce, MAC(challenge, hello)
 *     acceptor -> connector   answer      a status, MAC(challenge, hello, answer)
 *     connector -> acceptor   go          this socket was chosen (others may be dropped)
 *     acceptor -> connector   ready       on lane 0, when all lanes are there and the acceptor has
 *                                         called connect, too
 *
 * A lane that lost its connection goes on over another one with the same messages but the last: the
 * hello and the answer then say how much of the lane's stream each side has (tcp_resume.c).
 *
 * The MACs are HMAC-SHA512-256 under the secret, each with a label of its own, so that neither can
 * be sent back as the other; the secret is never on the wire. After that the sockets carry
 * fragments in both directions. Used by tcp_accept.c and tcp_connect.c. */
#ifndef TTI_TRANSPORT_TCP_TALK_H
#define TTI_TRANSPORT_TCP_TALK_H

#include "transport/tcp/tcp_address.h"
#include "transport/tcp/tcp_wire.h"

/* What epoll events point to: says what it is, and collects what was reported. */
enum tti_tcp_watch_kind {
    TTI_TCP_WATCH_LISTENER,
    TTI_TCP_WATCH_TIMER,
    TTI_TCP_WATCH_TALK,
    TTI_TCP_WATCH_LANE,
};

struct tti_tcp_watch {
    enum tti_tcp_watch_kind kind;
};

struct tti_tcp_talk {
    struct tti_tcp_watch watch;
    int socket;
    bool due;    /* the socket may have changed since the last read or write came back empty */
    size_t have; /* bytes of the message being read */
    uint8_t in[TTI_TCP_HELLO_BYTES]; /* never holds bytes beyond one message */
    size_t out_bytes, out_sent;
    uint8_t out[TTI_TCP_HELLO_BYTES];
    uint8_t challenge[TTI_TCP_CHALLENGE_BYTES]; /* as on the wire, for the MACs */
    uint8_t hello[TTI_TCP_HELLO_BYTES];
    char remote[TTI_TCP_TEXT_BYTES];
};

enum tti_tcp_talk_state {
    TTI_TCP_TALK_MORE,   /* not yet; wait for the socket */
    TTI_TCP_TALK_DONE,   /* the message is complete */
    TTI_TCP_TALK_CLOSED, /* the other end closed; errno is 0 or the error of the socket */
};

/* Read one message of `bytes` into talk->in; after DONE the next read begins a new one. */
enum tti_tcp_talk_state tti_tcp_talk_read(struct tti_tcp_talk *talk, size_t bytes);
/* Send what is left of talk->out. */
enum tti_tcp_talk_state tti_tcp_talk_write(struct tti_tcp_talk *talk);
/* Close the socket, if there is one. */
void tti_tcp_talk_end(struct tti_tcp_talk *talk);

/* Both ends: make the messages that carry proofs (into talk->out) and check the other's. The
 * challenge and hello of this talk must be in their places. */
void tti_tcp_talk_say_challenge(struct tti_tcp_talk *talk);
void tti_tcp_talk_say_hello(struct tti_tcp_talk *talk, struct tti_tcp_hello *hello,
                            const uint8_t *secret);
bool tti_tcp_talk_hello_proved(const struct tti_tcp_talk *talk, const uint8_t *secret);
void tti_tcp_talk_say_answer(struct tti_tcp_talk *talk, const struct tti_tcp_answer *answer,
                             const uint8_t *secret);
bool tti_tcp_talk_answer_proved(const struct tti_tcp_talk *talk, const uint8_t *secret);
void tti_tcp_talk_say_go(struct tti_tcp_talk *talk);

/* What encrypts the two directions of one connection. No two connections share keys: both nonces
 * of their handshakes, which are drawn at random, go into them. */
enum { TTI_TCP_KEY_BYTES = 32 };
struct tti_tcp_keys {
    uint8_t connector[TTI_TCP_KEY_BYTES], acceptor[TTI_TCP_KEY_BYTES]; /* of what it sends */
};
/* After the hello. */
void tti_tcp_talk_keys(const struct tti_tcp_talk *talk, const uint8_t *secret,
                       struct tti_tcp_keys *keys);

#endif
