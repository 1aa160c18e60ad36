/* What crosses the wire, byte by byte: the address that ranks hand to each other, the five messages
 * of the handshake, the header in front of each fragment, and the head of a record, where streams
 * are sealed (tcp_seal.h). Pure functions over byte arrays (no
 * sockets, no keys): everything a stranger can make us parse is here, and tests/tcp/fuzz_tcp_wire.c
 * drives it. Numbers are little-endian. Next: tcp_talk.h (the handshake), tcp_lane.h (fragments).
 */
#ifndef TTI_TRANSPORT_TCP_WIRE_H
#define TTI_TRANSPORT_TCP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TTI_TCP_VERSION = 5,
    TTI_TCP_MAX_SOCKETS = 8,    /* of a lane */
    TTI_TCP_MAX_ADDRESSES = 20, /* what fits in TUTTI_ADDRESS_BYTES */
    TTI_TCP_ADVERT_HEAD_BYTES = 24,
    TTI_TCP_ADVERT_ENTRY_BYTES = 24,
    TTI_TCP_NONCE_BYTES = 32,
    TTI_TCP_MAC_BYTES = 32,
    TTI_TCP_CHALLENGE_BYTES = 8 + TTI_TCP_NONCE_BYTES,
    TTI_TCP_HELLO_CLAIM_BYTES = 48 + TTI_TCP_NONCE_BYTES, /* what the hello's MAC covers of it */
    TTI_TCP_HELLO_BYTES = TTI_TCP_HELLO_CLAIM_BYTES + TTI_TCP_MAC_BYTES,
    TTI_TCP_ANSWER_CLAIM_BYTES = 16,
    TTI_TCP_ANSWER_BYTES = TTI_TCP_ANSWER_CLAIM_BYTES + TTI_TCP_MAC_BYTES,
    TTI_TCP_GO_BYTES = 8,
    TTI_TCP_READY_BYTES = 8,
    TTI_TCP_HEADER_BYTES = 16,
    TTI_TCP_MAX_FRAGMENT = 1 << 30,
    TTI_TCP_RECORD_BYTES = 32,             /* the head of a record */
    TTI_TCP_RECORD_BODY = 256 * 1024 + 64, /* the most of the stream that one carries */
};

/* How the streams of an endpoint are sealed, as a set; 0: not at all. */
enum tti_tcp_seals {
    TTI_TCP_CHECKSUMS = 1, /* records have a CRC-32C */
    TTI_TCP_ENCRYPTS = 2,  /* records are encrypted: ChaCha20-Poly1305, */
    TTI_TCP_AES = 4,       /* or AES-256-GCM, where both processors have it */
    TTI_TCP_SEALS = 7,
};

/* May a connection be sealed like this, from the view of a rank with these in its advert? */
bool tti_tcp_seals_agree(uint8_t seals, uint8_t ours);

/* One address of an interface. */
struct tti_tcp_address {
    uint8_t family; /* 4 or 6 */
    uint8_t prefix; /* bits that are the network's */
    bool loopback;
    uint32_t speed;    /* Mbit/s, 0: not known */
    uint8_t bytes[16]; /* in network order; IPv4 uses 4 and leaves the others 0 */
};

/* What a rank tells the others: how to reach its listener. */
struct tti_tcp_advert {
    uint64_t host; /* equal on ranks that share a kernel and a network namespace */
    uint16_t port;
    uint8_t seals;   /* what this rank wants, and AES if it could */
    uint8_t sockets; /* of a lane, 1 to TTI_TCP_MAX_SOCKETS; of two ranks the fewer count */
    int count;
    struct tti_tcp_address address[TTI_TCP_MAX_ADDRESSES]; /* best first */
};

/* What a connection is made for. */
enum tti_tcp_purpose {
    TTI_TCP_NEW = 0,    /* a lane of an endpoint that comes about */
    TTI_TCP_RESUME = 1, /* a lane that lost its connection goes on */
    TTI_TCP_ASK = 2,    /* the side that is called: are you there? then call again */
    TTI_TCP_PURPOSES = 3,
};

/* Connector to acceptor, second message of the handshake. */
struct tti_tcp_hello {
    uint8_t lane;  /* the socket's number, */
    uint8_t lanes; /* and how many there are */
    uint64_t job;
    uint32_t from;
    uint32_t to;
    uint64_t id;     /* the same on all lanes of one endpoint */
    uint8_t resumes; /* the endpoint's lanes can go on over another connection (tcp_resume.c) */
    uint8_t purpose;
    uint8_t seals;
    uint32_t cuts;     /* how often this side has lost the lane's connection */
    uint64_t received; /* RESUME: bytes of the lane's stream that the connector has */
    uint8_t nonce[TTI_TCP_NONCE_BYTES];
};

enum tti_tcp_status {
    TTI_TCP_WELCOME = 0,
    TTI_TCP_OTHER_JOB = 1,
    TTI_TCP_OTHER_RANK = 2,
    TTI_TCP_GONE = 3, /* RESUME, ASK: that endpoint has ended */
    TTI_TCP_OTHER_SEALS = 4,
    TTI_TCP_STATUS_COUNT = 5,
};

/* Acceptor to connector, third message. */
struct tti_tcp_answer {
    enum tti_tcp_status status;
    uint64_t received; /* RESUME: bytes of the lane's stream that the acceptor has */
};

/* What is in front of each run of a sealed stream. */
struct tti_tcp_record {
    uint32_t bytes;    /* of the stream, that follow; 0: it says only what was received */
    bool asks;         /* the sender wants to hear soon what was received */
    uint64_t from;     /* position in the stream of the first of them */
    uint64_t received; /* bytes of the other direction's stream that its sender has, and checked */
    uint32_t checksum; /* of the bytes behind the head, as they are on the wire; 0 without */
};

/* Writers fill exactly the bytes named above (the advert: what they return). Readers give NULL when
 * the bytes are well formed, else what is wrong with them; outputs are written only then. */
size_t tti_tcp_put_advert(const struct tti_tcp_advert *advert, uint8_t *bytes);
const char *tti_tcp_get_advert(const uint8_t *bytes, size_t size, struct tti_tcp_advert *advert);

void tti_tcp_put_challenge(const uint8_t nonce[TTI_TCP_NONCE_BYTES], uint8_t *bytes);
const char *tti_tcp_get_challenge(const uint8_t *bytes);

void tti_tcp_put_hello(const struct tti_tcp_hello *hello, uint8_t *bytes); /* without the MAC */
const char *tti_tcp_get_hello(const uint8_t *bytes, struct tti_tcp_hello *hello);

void tti_tcp_put_answer(const struct tti_tcp_answer *answer, uint8_t *bytes); /* without the MAC */
const char *tti_tcp_get_answer(const uint8_t *bytes, struct tti_tcp_answer *answer);

void tti_tcp_put_go(uint8_t *bytes);
const char *tti_tcp_get_go(const uint8_t *bytes);

void tti_tcp_put_ready(uint8_t *bytes);
const char *tti_tcp_get_ready(const uint8_t *bytes);

/* `length` payload bytes follow, 1 .. TTI_TCP_MAX_FRAGMENT. */
void tti_tcp_put_header(uint64_t tag, uint32_t length, uint8_t *bytes);
/* *length is 0 for the last header of a stream, by which its sender says that it ends here. */
void tti_tcp_put_bye(uint8_t *bytes);
const char *tti_tcp_get_header(const uint8_t *bytes, uint64_t *tag, uint32_t *length);

/* The head has a checksum of its own, so that its length can be relied upon before the rest came.
 */
void tti_tcp_put_record(const struct tti_tcp_record *record, uint8_t *bytes);
const char *tti_tcp_get_record(const uint8_t *bytes, struct tti_tcp_record *record);

#endif
