/* What goes over a bootstrap connection: frames of a 32-byte header and a body, little-endian.
 *
 *   client                                server (rank 0)
 *   HELLO  rank, size, nonce      ->
 *                                 <-      CHALLENGE  nonce, proof that the server has the secret
 *   PROOF  that the client has it ->
 *                                 <-      WELCOME  or a NOTICE why not
 *                                 <-      START  when all ranks are there
 *   GATHER  round, blob           ->
 *                                 <-      GATHERED  round, all blobs
 *   NOTICE  code, text            ->  ->  NOTICE  to all others (code PEER, no text: a death)
 *   BYE                           ->  ->  BYE  to all others
 *   ASK  code, text               ->  ->  ASK  to all: what are you doing?
 *   REPORT  what it did last      ->
 *                                 <-      NOTICE  the verdict, to all (waited_ms is 1)
 *
 *   client                                desk (who made the id, launch/desk.h)
 *   SEEK  rank, size, nonce       ->
 *                                 <-      CHALLENGE
 *   PROOF                         ->
 *                                 <-      PLACE  where rank 0 is, as soon as that is known
 *   PLACE  where it is (rank 0)   ->
 *                                 <-      WELCOME  or a NOTICE why not
 *
 * The secret itself never travels. Pure functions over bytes: no sockets here, and a fuzzer on the
 * parser. Read next: boot_server.c. */
#ifndef TTI_LAUNCH_BOOT_WIRE_H
#define TTI_LAUNCH_BOOT_WIRE_H

#include "launch/boot.h"

enum {
    TTI_BOOT_HEADER_BYTES = 32,
    TTI_BOOT_NONCE_BYTES = 32,
    TTI_BOOT_PROOF_BYTES = 32,
    TTI_BOOT_HELLO_BYTES = TTI_BOOT_NONCE_BYTES + 4,
    TTI_BOOT_CHALLENGE_BYTES = TTI_BOOT_NONCE_BYTES + TTI_BOOT_PROOF_BYTES,
    TTI_BOOT_TEXT_BYTES = 900,
    TTI_BOOT_GATHER_BYTES = 1 << 20,
    TTI_BOOT_RANKS = 1 << 16,
    TTI_BOOT_PLACE_BYTES = 159, /* struct tti_meeting.host without its end */
};

enum tti_boot_type {
    TTI_BOOT_HELLO = 1,
    TTI_BOOT_CHALLENGE = 2,
    TTI_BOOT_PROOF = 3,
    TTI_BOOT_START = 4,
    TTI_BOOT_GATHER = 5,
    TTI_BOOT_GATHERED = 6,
    TTI_BOOT_NOTICE = 7,
    TTI_BOOT_BYE = 8,
    TTI_BOOT_WELCOME = 9,
    TTI_BOOT_ASK = 10,
    TTI_BOOT_REPORT = 11,
    TTI_BOOT_SEEK = 12,
    TTI_BOOT_PLACE = 13,
};

struct tti_boot_frame {
    enum tti_boot_type type;
    int rank;           /* HELLO, SEEK, NOTICE, BYE: whom it is about */
    uint32_t code;      /* GATHER(ED): round; NOTICE, ASK: enum tutti_result; PLACE: port;
                         * a desk's CHALLENGE: its host (tti_desk_host) */
    uint32_t waited_ms; /* NOTICE: not 0 for a verdict; HELLO, SEEK, GATHER: how long it waited, */
    uint32_t wait_ms;   /* and how long it will yet */
    uint64_t bytes;     /* of the body */
};

enum tti_boot_direction { TTI_BOOT_TO_SERVER, TTI_BOOT_TO_CLIENT };

void tti_boot_frame_encode(const struct tti_boot_frame *frame, uint8_t header[static 32]);
/* PROTOCOL unless it is a frame that may travel in this direction, with a body in bounds. */
enum tutti_result tti_boot_frame_parse(const uint8_t header[static 32],
                                       enum tti_boot_direction direction,
                                       struct tti_boot_frame *frame);

/* The size that a HELLO body names; PROTOCOL when it makes no sense with `rank`. */
void tti_boot_hello_encode(const uint8_t nonce[static 32], int size, uint8_t body[static 36]);
enum tutti_result tti_boot_hello_parse(const uint8_t body[static 36], int rank, int *size);

/* Who proves that it has the secret. No proof of one serves as another's. */
enum tti_boot_role { TTI_BOOT_SERVER, TTI_BOOT_RANK, TTI_BOOT_DESK, TTI_BOOT_SEEKER };

/* HMAC over role, rank, the body of HELLO or SEEK, and the challenger's nonce. */
void tti_boot_proof(const uint8_t secret[static 32], enum tti_boot_role role, int rank,
                    const uint8_t hello[static 36], const uint8_t nonce[static 32],
                    uint8_t proof[static 32]);
bool tti_boot_proof_equal(const uint8_t a[static 32], const uint8_t b[static 32]);

/* Copy a text of `bytes` bytes into one of `room`, printable and NUL-terminated. */
void tti_boot_text_copy(char *to, size_t room, const void *from, size_t bytes);

/* Milliseconds as seconds for a text (%.4g): 59999 ms are 60 s. */
double tti_boot_seconds(uint64_t ms);

/* "rank 2" or "ranks 2, 5" of those where present[k] is false; the first eight and a count. */
void tti_boot_missing_text(const bool *present, int size, char *text, size_t room, int *first,
                           int *count);

#endif
