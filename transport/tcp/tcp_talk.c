/* Messages and proofs of the handshake (tcp_talk.h). */
#include "transport/tcp/tcp_talk.h"

#include "tutti/plugin.h"

#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

_Static_assert(crypto_auth_KEYBYTES == TUTTI_SECRET_BYTES, "the secret is the key");
_Static_assert(crypto_auth_BYTES == TTI_TCP_MAC_BYTES, "a MAC has this many bytes on the wire");
_Static_assert(crypto_auth_BYTES == TTI_TCP_KEY_BYTES, "a MAC is as good as a key");

enum tti_tcp_talk_state tti_tcp_talk_read(struct tti_tcp_talk *talk, size_t bytes)
{
    while (talk->have < bytes) {
        ssize_t got = recv(talk->socket, talk->in + talk->have, bytes - talk->have, MSG_DONTWAIT);
        if (got > 0) {
            talk->have += (size_t)got;
            continue;
        }
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return TTI_TCP_TALK_MORE;
        if (got == 0)
            errno = 0;
        return TTI_TCP_TALK_CLOSED;
    }
    talk->have = 0;
    return TTI_TCP_TALK_DONE;
}

enum tti_tcp_talk_state tti_tcp_talk_write(struct tti_tcp_talk *talk)
{
    while (talk->out_sent < talk->out_bytes) {
        ssize_t sent = send(talk->socket, talk->out + talk->out_sent,
                            talk->out_bytes - talk->out_sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent >= 0) {
            talk->out_sent += (size_t)sent;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return TTI_TCP_TALK_MORE;
        return TTI_TCP_TALK_CLOSED;
    }
    return TTI_TCP_TALK_DONE;
}

void tti_tcp_talk_end(struct tti_tcp_talk *talk)
{
    if (talk->socket >= 0)
        close(talk->socket);
    talk->socket = -1;
}

/* ---- proofs --------------------------------------------------------------------------------- */

static void talk_queue(struct tti_tcp_talk *talk, size_t bytes)
{
    talk->out_bytes = bytes;
    talk->out_sent = 0;
}

/* What a MAC covers: its label, the challenge, the hello's claim and, in the acceptor's, the
 * hello's MAC and the answer's claim. `cover` has room for all of it; returns the bytes used. */
enum { TALK_LABEL_BYTES = 24, TALK_COVER_BYTES = 256 };

static size_t talk_cover(const char *label, const struct tti_tcp_talk *talk, size_t hello_bytes,
                         const uint8_t *answer, uint8_t cover[TALK_COVER_BYTES])
{
    size_t used = 0;
    memset(cover, 0, TALK_LABEL_BYTES);
    memcpy(cover, label, strlen(label));
    used += TALK_LABEL_BYTES;
    memcpy(cover + used, talk->challenge, sizeof talk->challenge);
    used += sizeof talk->challenge;
    memcpy(cover + used, talk->hello, hello_bytes);
    used += hello_bytes;
    if (answer) {
        memcpy(cover + used, answer, TTI_TCP_ANSWER_CLAIM_BYTES);
        used += TTI_TCP_ANSWER_CLAIM_BYTES;
    }
    return used;
}

_Static_assert(TALK_LABEL_BYTES + TTI_TCP_CHALLENGE_BYTES + TTI_TCP_HELLO_BYTES +
                       TTI_TCP_ANSWER_CLAIM_BYTES <=
                   TALK_COVER_BYTES,
               "a MAC's input fits");

static size_t talk_cover_hello(const struct tti_tcp_talk *talk, uint8_t cover[TALK_COVER_BYTES])
{
    return talk_cover("tutti tcp connector", talk, TTI_TCP_HELLO_CLAIM_BYTES, NULL, cover);
}

static size_t talk_cover_answer(const struct tti_tcp_talk *talk, const uint8_t *answer,
                                uint8_t cover[TALK_COVER_BYTES])
{
    return talk_cover("tutti tcp acceptor", talk, TTI_TCP_HELLO_BYTES, answer, cover);
}

void tti_tcp_talk_say_challenge(struct tti_tcp_talk *talk)
{
    uint8_t nonce[TTI_TCP_NONCE_BYTES];
    randombytes_buf(nonce, sizeof nonce);
    tti_tcp_put_challenge(nonce, talk->challenge);
    memcpy(talk->out, talk->challenge, sizeof talk->challenge);
    talk_queue(talk, sizeof talk->challenge);
}

void tti_tcp_talk_say_hello(struct tti_tcp_talk *talk, struct tti_tcp_hello *hello,
                            const uint8_t *secret)
{
    uint8_t cover[TALK_COVER_BYTES];
    randombytes_buf(hello->nonce, sizeof hello->nonce);
    tti_tcp_put_hello(hello, talk->hello);
    size_t covered = talk_cover_hello(talk, cover);
    crypto_auth(talk->hello + TTI_TCP_HELLO_CLAIM_BYTES, cover, covered, secret);
    memcpy(talk->out, talk->hello, sizeof talk->hello);
    talk_queue(talk, sizeof talk->hello);
}

bool tti_tcp_talk_hello_proved(const struct tti_tcp_talk *talk, const uint8_t *secret)
{
    uint8_t cover[TALK_COVER_BYTES];
    size_t covered = talk_cover_hello(talk, cover);
    return crypto_auth_verify(talk->hello + TTI_TCP_HELLO_CLAIM_BYTES, cover, covered, secret) == 0;
}

void tti_tcp_talk_say_answer(struct tti_tcp_talk *talk, const struct tti_tcp_answer *answer,
                             const uint8_t *secret)
{
    uint8_t cover[TALK_COVER_BYTES];
    tti_tcp_put_answer(answer, talk->out);
    size_t covered = talk_cover_answer(talk, talk->out, cover);
    crypto_auth(talk->out + TTI_TCP_ANSWER_CLAIM_BYTES, cover, covered, secret);
    talk_queue(talk, TTI_TCP_ANSWER_BYTES);
}

bool tti_tcp_talk_answer_proved(const struct tti_tcp_talk *talk, const uint8_t *secret)
{
    uint8_t cover[TALK_COVER_BYTES];
    size_t covered = talk_cover_answer(talk, talk->in, cover);
    return crypto_auth_verify(talk->in + TTI_TCP_ANSWER_CLAIM_BYTES, cover, covered, secret) == 0;
}

void tti_tcp_talk_say_go(struct tti_tcp_talk *talk)
{
    tti_tcp_put_go(talk->out);
    talk_queue(talk, TTI_TCP_GO_BYTES);
}

static void talk_key(const char *label, const struct tti_tcp_talk *talk, const uint8_t *secret,
                     uint8_t *key)
{
    uint8_t cover[TALK_COVER_BYTES];
    size_t covered = talk_cover(label, talk, TTI_TCP_HELLO_BYTES, NULL, cover);
    crypto_auth(key, cover, covered, secret);
}

void tti_tcp_talk_keys(const struct tti_tcp_talk *talk, const uint8_t *secret,
                       struct tti_tcp_keys *keys)
{
    talk_key("tutti tcp connector key", talk, secret, keys->connector);
    talk_key("tutti tcp acceptor key", talk, secret, keys->acceptor);
}
