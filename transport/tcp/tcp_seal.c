/* Beginning and end of a sealed stream, and the encryption of one record (tcp_seal.h). */
#include "transport/tcp/tcp_seal.h"

#include "base/memory.h"
#include "transport/tcp/tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

_Static_assert(crypto_aead_chacha20poly1305_ietf_KEYBYTES == TTI_TCP_KEY_BYTES, "a key");
_Static_assert(crypto_aead_aes256gcm_KEYBYTES == TTI_TCP_KEY_BYTES, "a key");
_Static_assert(crypto_aead_chacha20poly1305_ietf_ABYTES == TTI_TCP_TAG_BYTES, "a tag");
_Static_assert(crypto_aead_aes256gcm_ABYTES == TTI_TCP_TAG_BYTES, "a tag");

enum { SEAL_NONCE_BYTES = 12 };
_Static_assert(crypto_aead_chacha20poly1305_ietf_NPUBBYTES == SEAL_NONCE_BYTES, "a nonce");
_Static_assert(crypto_aead_aes256gcm_NPUBBYTES == SEAL_NONCE_BYTES, "a nonce");

bool tti_tcp_seal_has_aes(void)
{
    return crypto_aead_aes256gcm_is_available() != 0;
}

/* ---- beginning and end ---------------------------------------------------------------------- */

static void seal_key(struct tti_tcp_cipher *cipher, const uint8_t *key, unsigned seals)
{
    memcpy(cipher->key, key, sizeof cipher->key);
    cipher->count = 0;
    if (seals & TTI_TCP_AES)
        crypto_aead_aes256gcm_beforenm(&cipher->aes, cipher->key);
}

static struct tti_tcp_seal *seal_create(unsigned seals)
{
    bool encrypts = seals & TTI_TCP_ENCRYPTS;
    struct tti_tcp_seal *seal = tti_calloc_aligned(16, 1, sizeof *seal);
    if (!seal)
        return NULL;
    seal->in = tti_calloc(1, TTI_TCP_SEALED_BYTES + TTI_TCP_AHEAD_BYTES);
    seal->out = tti_calloc(1, encrypts ? (size_t)TTI_TCP_SEALED_BYTES
                                       : (size_t)TTI_TCP_RECORD_BYTES + TTI_TCP_SEALED_TOGETHER);
    if (!seal->in || !seal->out) {
        tti_tcp_seal_free(seal);
        return NULL;
    }
    return seal;
}

void tti_tcp_seal_free(struct tti_tcp_seal *seal)
{
    if (!seal)
        return;
    free(seal->in);
    free(seal->out);
    sodium_memzero(seal, sizeof *seal);
    free(seal);
}

enum tutti_result tti_tcp_seal_begin(struct tti_tcp_lane *lane, int socket,
                                     const struct tti_tcp_keys *keys)
{
    const int on = 1;
    const struct tti_tcp_endpoint *endpoint = lane->endpoint;
    if (!lane->seal)
        lane->seal = seal_create(endpoint->seals);
    if (!lane->seal)
        return TUTTI_ERR_MEMORY;
    struct tti_tcp_seal *seal = lane->seal;
    *seal = (struct tti_tcp_seal){.seals = endpoint->seals,
                                  .resumes = endpoint->resumes,
                                  .opened = lane->gone,
                                  .checked = lane->received,
                                  .spoiled = seal->spoiled,
                                  .out = seal->out,
                                  .in = seal->in};
    /* Each read says what is there beyond; where the kernel does not, it is asked. */
    setsockopt(socket, IPPROTO_TCP, TCP_INQ, &on, sizeof on);
    lane->owes = false;
    if (seal->seals & TTI_TCP_ENCRYPTS) {
        bool connects = endpoint->connects;
        seal_key(&seal->seals_with, connects ? keys->connector : keys->acceptor, seal->seals);
        seal_key(&seal->opens_with, connects ? keys->acceptor : keys->connector, seal->seals);
    }
    return TUTTI_OK;
}

/* ---- one record ----------------------------------------------------------------------------- */

static void seal_nonce(struct tti_tcp_cipher *cipher, uint8_t nonce[SEAL_NONCE_BYTES])
{
    memset(nonce, 0, SEAL_NONCE_BYTES);
    for (int i = 0; i < 8; i++)
        nonce[i] = (uint8_t)(cipher->count >> (8 * i));
    cipher->count++;
}

void tti_tcp_seal_encrypt(struct tti_tcp_seal *seal, const uint8_t head[TTI_TCP_RECORD_BYTES],
                          const uint8_t *from, size_t bytes, uint8_t *to)
{
    uint8_t nonce[SEAL_NONCE_BYTES];
    struct tti_tcp_cipher *with = &seal->seals_with;
    seal_nonce(with, nonce);
    if (seal->seals & TTI_TCP_AES)
        crypto_aead_aes256gcm_encrypt_detached_afternm(
            to, to + bytes, NULL, from, bytes, head, TTI_TCP_RECORD_BYTES, NULL, nonce, &with->aes);
    else
        crypto_aead_chacha20poly1305_ietf_encrypt_detached(
            to, to + bytes, NULL, from, bytes, head, TTI_TCP_RECORD_BYTES, NULL, nonce, with->key);
}

bool tti_tcp_seal_decrypt(struct tti_tcp_seal *seal, const uint8_t head[TTI_TCP_RECORD_BYTES],
                          uint8_t *data, size_t bytes)
{
    uint8_t nonce[SEAL_NONCE_BYTES];
    struct tti_tcp_cipher *with = &seal->opens_with;
    seal_nonce(with, nonce);
    if (seal->seals & TTI_TCP_AES)
        return crypto_aead_aes256gcm_decrypt_detached_afternm(data, NULL, data, bytes, data + bytes,
                                                              head, TTI_TCP_RECORD_BYTES, nonce,
                                                              &with->aes) == 0;
    return crypto_aead_chacha20poly1305_ietf_decrypt_detached(data, NULL, data, bytes, data + bytes,
                                                              head, TTI_TCP_RECORD_BYTES, nonce,
                                                              with->key) == 0;
}

/* ---- walks ---------------------------------------------------------------------------------- */

struct tti_tcp_walk tti_tcp_walk(const struct iovec *vector, size_t count)
{
    struct tti_tcp_walk walk = {.vector = vector};
    for (size_t i = 0; i < count; i++)
        walk.left += vector[i].iov_len;
    return walk;
}

void tti_tcp_walk_on(struct tti_tcp_walk *walk, size_t bytes)
{
    walk->left -= bytes;
    walk->offset += bytes;
    while (walk->left > 0 && walk->offset >= walk->vector->iov_len) {
        walk->offset -= walk->vector->iov_len;
        walk->vector++;
    }
}

size_t tti_tcp_walk_runs(const struct tti_tcp_walk *walk, size_t bytes, struct iovec *out)
{
    const struct iovec *run = walk->vector;
    size_t count = 0, offset = walk->offset;
    for (; bytes > 0; run++, offset = 0) {
        size_t part = run->iov_len - offset;
        part = part < bytes ? part : bytes;
        if (part == 0)
            continue;
        out[count].iov_base = (uint8_t *)run->iov_base + offset;
        out[count++].iov_len = part;
        bytes -= part;
    }
    return count;
}
