/* Sealed streams: with TUTTI_TCP_CHECKSUM or TUTTI_TCP_ENCRYPT a lane's stream crosses the wire in
 * records, each of which is checked whole before a byte of it is handed out.
 *
 *     head (32 bytes, tcp_wire.h) | up to 256 KiB and a header | encrypted: a tag of 16 bytes
 *
 * Checksums are CRC-32C, from the sender's memory to the receiver's. They show accidents: a record
 * that does not fit costs the lane its connection, and where lanes outlive theirs (tcp_resume.c)
 * the stream goes on over another from the last byte that was right. For that the sender keeps what
 * the receiver has not acknowledged: each record says what its sender has received and checked,
 * and one that asks is answered at once. (A kernel's acknowledgement, which is enough for a
 * stream that is not sealed, comes before the check.)
 *
 * Encryption is ChaCha20-Poly1305 or, where both processors have the instructions, AES-256-GCM, by
 * libsodium; the tag covers the head. Each direction of each connection has a key of its own
 * (tcp_talk.h) and numbers its records, which makes their nonces: none is used twice, also not
 * after a loss, when the stream goes on over another connection. A record that was altered, left
 * out, repeated or made up ends the lane with an error. With checksums, too, an accident is told
 * from that, and healed.
 *
 * To the rest of the lane this is a pair of functions in place of sendmsg and recvmsg. tcp_seal.c
 * has one record, tcp_seal_send.c and tcp_seal_receive.c the two directions. */
#ifndef TTI_TRANSPORT_TCP_SEAL_H
#define TTI_TRANSPORT_TCP_SEAL_H

#include "base/error.h"
#include "transport/tcp/tcp_talk.h"

#include <sodium.h>
#include <sys/types.h>
#include <sys/uio.h>

enum {
    TTI_TCP_TAG_BYTES = 16,
    TTI_TCP_SEALED_BYTES = TTI_TCP_RECORD_BYTES + TTI_TCP_RECORD_BODY + TTI_TCP_TAG_BYTES,
    TTI_TCP_SEALED_TOGETHER = 4 * 1024 + 64, /* so few bytes go with the head, as one piece */
    TTI_TCP_AHEAD_BYTES = 16 * 1024, /* read behind a record, or before its length is known */
};

struct tti_tcp_lane;

/* One direction of one connection. */
struct tti_tcp_cipher {
    crypto_aead_aes256gcm_state aes;
    uint8_t key[TTI_TCP_KEY_BYTES];
    uint64_t count; /* of records: the next one's nonce */
};

struct tti_tcp_seal {
    struct tti_tcp_cipher seals_with, opens_with;
    unsigned seals; /* enum tti_tcp_seals */
    bool resumes;   /* the receiver acknowledges, and the sender keeps */

    /* ---- sending ---- */
    bool owes; /* the peer has asked what we have */
    uint8_t *out;
    size_t out_bytes, out_sent; /* of `out`: a head, or all of a record */
    size_t body;     /* bytes of the open record that are still to be sent from the stream */
    uint64_t opened; /* position in the stream behind the last record */
    size_t unasked;  /* bytes of the stream since the last record that asked */

    /* ---- receiving ---- */
    uint8_t *in;
    size_t in_head, in_tail; /* what is read and not opened, of `in` */
    const uint8_t *plain; /* of the record that was opened last, what is not handed out; in `in` */
    size_t plain_bytes;
    int there;        /* at least so many bytes are in the socket */
    size_t expects;   /* the bytes of the last record that had any */
    uint64_t checked; /* position in the stream behind the last record that was right */
    struct tti_tcp_record record;
    unsigned waited;  /* looks in vain for the rest of a record */
    int seen;         /* bytes that the last of them found */
    int error;        /* why nothing is opened any more: EBADMSG, EKEYREJECTED, EPROTO */
    unsigned spoiled; /* records that were not right, since the last that was */
    bool headed;      /* `record` is the head of the bytes at in_head */
    bool hurried;     /* it was read before all of it was there, in vain */
    bool waits;       /* the socket has bytes that are left there until the rest has come */
    bool drains;      /* it is to be read empty nevertheless */
    bool fills;       /* the next read is to the lane's stage, which is empty and stays in place */
    uint8_t *stage;   /* where the record that has begun is, with its head, in place of `in`: */
    size_t staged;    /* bytes of it and behind it; 0: none is there */
    size_t summed;    /* bytes of its body that `sum` is of */
    uint32_t sum;
    size_t skip; /* a read to the stage: so many bytes are before those of the stream */
};

/* What a socket's keys and the stream's positions begin with; makes *seal when it is NULL. */
enum tutti_result tti_tcp_seal_begin(struct tti_tcp_lane *lane, int socket,
                                     const struct tti_tcp_keys *keys);
void tti_tcp_seal_free(struct tti_tcp_seal *seal);
/* Can this machine do AES-256-GCM? */
bool tti_tcp_seal_has_aes(void);

/* In place of sendmsg and recvmsg, never blocking: bytes of the stream, 0 when the socket takes
 * nothing (send) or the stream has ended (receive), or -1 with errno. Bytes that send has taken may
 * lie in `out`: the lane waits then (lane->owes). */
ssize_t tti_tcp_seal_send(struct tti_tcp_lane *lane, const struct iovec *vector, size_t count);
ssize_t tti_tcp_seal_receive(struct tti_tcp_lane *lane, const struct iovec *vector, size_t count);

/* A record is open that the socket has not taken whole. */
bool tti_tcp_seal_sends(const struct tti_tcp_seal *seal);

/* ---- for these files ------------------------------------------------------------------------ */

/* A walk over the bytes of a vector. */
struct tti_tcp_walk {
    const struct iovec *vector;
    size_t offset; /* into its first run */
    size_t left;   /* bytes from there on */
};

struct tti_tcp_walk tti_tcp_walk(const struct iovec *vector, size_t count);
void tti_tcp_walk_on(struct tti_tcp_walk *walk, size_t bytes);
/* The next `bytes` as runs in `out`, which has room for the vector; returns how many. */
size_t tti_tcp_walk_runs(const struct tti_tcp_walk *walk, size_t bytes, struct iovec *out);

/* Encrypt `bytes` at `from` to `to` (which may be the same) and put the tag behind them. */
void tti_tcp_seal_encrypt(struct tti_tcp_seal *seal, const uint8_t head[TTI_TCP_RECORD_BYTES],
                          const uint8_t *from, size_t bytes, uint8_t *to);
/* In place; false: the tag does not fit. */
bool tti_tcp_seal_decrypt(struct tti_tcp_seal *seal, const uint8_t head[TTI_TCP_RECORD_BYTES],
                          uint8_t *data, size_t bytes);

#endif
