/* One lane of one endpoint: a connected socket that carries fragments both ways.
 *
 * A fragment is a header (tag, length) and its bytes. Sending: straight from the caller's memory
 * when the socket takes it; what it does not take is queued, small fragments as a copy (so that
 * they are released at once), large ones as a pointer. Receiving: into `stage`, where peek shows
 * it, or by tti_tcp_lane_receive straight into the caller's memory.
 *
 * Sockets are registered edge-triggered, once, for both directions: `readable` says that a read may
 * give something, and stays set until a read comes back empty. tcp_send.c and tcp_receive.c. */
#ifndef TTI_TRANSPORT_TCP_LANE_H
#define TTI_TRANSPORT_TCP_LANE_H

#include "transport/tcp/tcp_talk.h"

enum {
    /* The stage, from the first read on: small until a read fills it or larger ranges come. */
    TTI_TCP_STAGE_SMALL = 64 * 1024,
    TTI_TCP_STAGE_BYTES = 256 * 1024,
    TTI_TCP_RING_BYTES = 64 * 1024, /* copies of small fragments and of headers */
    TTI_TCP_SMALL_BYTES = 16 * 1024,
    TTI_TCP_MAX_PIECES = 32,
};

/* A run of bytes waiting for the socket. */
struct tti_tcp_piece {
    const uint8_t *data;
    size_t bytes;
    bool borrowed;     /* the caller's memory, else the ring's */
    uint64_t released; /* borrowed: bytes of the lane that are the caller's again before this one */
};

struct tti_tcp_lane {
    struct tti_tcp_watch watch;
    int socket; /* -1: not connected */
    int number;
    struct tti_tcp_endpoint *endpoint;
    char remote[TTI_TCP_TEXT_BYTES];

    /* ---- sending ---- */
    uint64_t accepted;
    bool blocked;                  /* something is queued: the socket did not take it */
    int send_error;                /* errno that ended sending; 0: none */
    bool silent;                   /* ended because the peer is cut off: tcp_silence.c */
    uint8_t *ring;                 /* NULL until something is queued */
    uint64_t ring_head, ring_tail; /* bytes taken out and put in, ever */
    unsigned piece_head, pieces;
    struct tti_tcp_piece piece[TTI_TCP_MAX_PIECES];

    /* ---- receiving ---- */
    uint8_t *stage;      /* NULL until something is read */
    size_t stage_bytes;  /* of it: none, small or all */
    bool cramped;        /* a read filled it */
    size_t head, tail;   /* unread bytes of the stage */
    uint64_t tag;        /* of the fragment that is being read, */
    size_t left;         /* which has this many bytes to come; 0: a header is next */
    size_t shown;        /* bytes that the last peek showed and nobody consumed: they stay put */
    bool readable;       /* a read may give something */
    bool hung_up;        /* the kernel said that the peer is done writing */
    bool closed;         /* a read gave the end of the stream */
    int receive_error;   /* errno that ended receiving; 0: none */
    const char *garbled; /* what was wrong with the bytes that ended receiving; NULL: nothing */
};

/* Take over a connected socket. On failure the socket is still the caller's. */
enum tutti_result tti_tcp_lane_start(struct tti_tcp_lane *lane, int socket, const char *remote);
/* Close what is open and free; any state. */
void tti_tcp_lane_stop(struct tti_tcp_lane *lane);
/* The error that ended this lane, as a text that names the peer. */
enum tutti_result tti_tcp_lane_fail_sending(const struct tti_tcp_lane *lane);
enum tutti_result tti_tcp_lane_fail_receiving(const struct tti_tcp_lane *lane);

/* Nothing more is sent; what is queued is the caller's memory again. */
void tti_tcp_lane_end_sending(struct tti_tcp_lane *lane, int error);

/* The operations of plugin.h. `may_read`: a system call is worth it although `readable` is not set
 * (the caller spins on few lanes). */
enum tutti_result tti_tcp_lane_send(struct tti_tcp_lane *lane, uint64_t tag, const uint8_t *data,
                                    size_t bytes, size_t *accepted);
uint64_t tti_tcp_lane_released(const struct tti_tcp_lane *lane);
enum tutti_result tti_tcp_lane_peek(struct tti_tcp_lane *lane, bool may_read, uint64_t *tag,
                                    const void **data, size_t *bytes);
void tti_tcp_lane_consume(struct tti_tcp_lane *lane, size_t bytes);
enum tutti_result tti_tcp_lane_receive(struct tti_tcp_lane *lane, bool may_read, uint64_t *tag,
                                       uint8_t *into, size_t bytes, size_t *taken);

/* Offer what is queued to the socket once more; true when it took anything or failed. */
bool tti_tcp_lane_flush(struct tti_tcp_lane *lane);
/* Read into the stage if `readable`; true when there is more to peek, or an end, than before. */
bool tti_tcp_lane_refill(struct tti_tcp_lane *lane);

#endif
