/* One lane of one endpoint: a connected socket that carries fragments both ways.
 *
 * A fragment is a header (tag, length) and its bytes; headers and bytes are the lane's stream.
 * Sending: straight from the caller's memory when the socket takes it; what it does not take is
 * queued, small fragments as a copy (so that they are released at once), large ones as a pointer.
 * Receiving: into `stage`, where peek shows it, or by tti_tcp_lane_receive straight into the
 * caller's memory.
 *
 * The stream outlives its socket where the endpoint resumes (tcp_resume.c): what the peer may not
 * have stays queued, and both sides count the bytes of the stream.
 *
 * Sockets are registered edge-triggered, once, for both directions: `readable` says that a read may
 * give something, and stays set until a read comes back empty. tcp_send.c, tcp_queue.c and
 * tcp_receive.c. */
#ifndef TTI_TRANSPORT_TCP_LANE_H
#define TTI_TRANSPORT_TCP_LANE_H

#include "transport/tcp/tcp_seal.h"
#include "transport/tcp/tcp_talk.h"
#include "transport/tcp/tcp_zero.h"

#include <sys/uio.h>

enum {
    /* The stage, from the first read on: small until a read fills it or larger ranges come (less
     * where memory is out). */
    TTI_TCP_STAGE_SMALL = 64 * 1024,
    TTI_TCP_STAGE_BYTES = 260 * 1024,
    TTI_TCP_RING_BYTES = 64 * 1024, /* copies of small fragments and of headers */
    TTI_TCP_SMALL_BYTES = 16 * 1024,
    TTI_TCP_MAX_PIECES = 64,
};

enum tti_tcp_piece_kind {
    TTI_TCP_RING,     /* in the lane's ring */
    TTI_TCP_BORROWED, /* the caller's memory */
    TTI_TCP_OWNED,    /* a copy of such, on the heap */
};

/* A run of bytes of the stream that is queued or kept. */
struct tti_tcp_piece {
    const uint8_t *data;
    size_t bytes;
    void *owned; /* OWNED: what to free */
    enum tti_tcp_piece_kind kind;
    uint64_t released; /* BORROWED: bytes of the lane that are the caller's again before this one */
};

struct tti_tcp_lane {
    struct tti_tcp_watch watch;
    int socket; /* -1: not connected */
    int number;
    struct tti_tcp_endpoint *endpoint;
    char remote[TTI_TCP_TEXT_BYTES];
    struct tti_tcp_seal *seal; /* NULL: the stream crosses the wire as it is */
    struct tti_tcp_zero *zero; /* NULL: the kernel copies what it is given */

    /* ---- sending ---- */
    uint64_t accepted;
    size_t last;    /* of them: the last fragment */
    uint64_t told;  /* ... and what the caller was told last to be its own again */
    bool refused;   /* it was told last that there is no room */
    int send_error; /* errno that ended sending; 0: none */
    bool blocked;   /* something is queued: the socket did not take it */
    bool silent;    /* ended because the peer is cut off: tcp_silence.c */
    bool said_bye;
    bool owes;                     /* a record has begun that the socket has not taken whole */
    uint8_t *ring;                 /* NULL until something is queued */
    uint64_t ring_head, ring_tail; /* bytes taken out and put in, ever */
    /* Positions in the stream: what is before `kept` is forgotten, the queue's pieces hold kept to
     * put, and what is before `gone` was handed to the socket. kept == gone where nothing resumes,
     * but for bytes that the kernel has not copied (tcp_zero.h). */
    uint64_t kept, gone, put;
    unsigned piece_head, pieces;
    unsigned unsent;      /* index of the piece that `gone` lies in; pieces: none */
    uint64_t asked_ns;    /* since when what is sent and not acknowledged is wanted back; 0: not */
    size_t unsent_offset; /* how far into piece `unsent` */
    struct tti_tcp_piece piece[TTI_TCP_MAX_PIECES];

    /* ---- receiving ---- */
    uint8_t *stage;     /* NULL until something is read */
    size_t stage_bytes; /* of it: none, small or all, or little */
    size_t head, tail;  /* unread bytes of the stage */
    uint64_t tag;       /* of the fragment that is being read, */
    size_t left;        /* which has this many bytes to come; 0: a header is next */
    size_t shown;       /* bytes that the last peek showed and nobody consumed: they stay put */
    uint64_t received;  /* bytes of the stream that came over sockets */
    uint8_t *saved;     /* those of them that wait for a read: of a socket that was lost */
    size_t saved_head, saved_tail;
    bool cramped;        /* a read filled the stage */
    bool readable;       /* a read may give something */
    bool hung_up;        /* the kernel said that the peer is done writing */
    bool closed;         /* the stream ended in order */
    int receive_error;   /* errno that ended receiving; 0: none */
    const char *garbled; /* what was wrong with the bytes that ended receiving; NULL: nothing */

    /* ---- without a socket: tcp_resume.c ---- */
    bool cut;            /* the connection was lost, and is being made again */
    int cut_error;       /* errno that says why, 0: it just ended */
    uint64_t give_up_ns; /* until when */
    unsigned cuts;       /* so many times, or as the peer counts them, if that is more */
    struct tti_tcp_attempt *mend;
};

/* Take over a connected socket. On failure the socket is still the caller's. */
enum tutti_result tti_tcp_lane_start(struct tti_tcp_lane *lane, int socket, const char *remote,
                                     const struct tti_tcp_keys *keys);
/* Close what is open and free; any state. */
void tti_tcp_lane_stop(struct tti_tcp_lane *lane);
/* The error that ended this lane, as a text that names the peer. */
enum tutti_result tti_tcp_lane_fail_sending(const struct tti_tcp_lane *lane);
enum tutti_result tti_tcp_lane_fail_receiving(const struct tti_tcp_lane *lane);

/* Nothing more is sent; what is queued is the caller's memory again. */
void tti_tcp_lane_end_sending(struct tti_tcp_lane *lane, int error);
/* tcp_resume.c: the socket is done with, for the reason `error` (errno, 0: it ended). True when it
 * is made again; false: this lane does not resume, or the peer or we said bye; nothing has changed.
 */
bool tti_tcp_lane_cut(struct tti_tcp_lane *lane, int error);

/* The operations of plugin.h. `may_read`: a system call is worth it although `readable` is not set
 * (the caller spins on few lanes). */
enum tutti_result tti_tcp_lane_send(struct tti_tcp_lane *lane, uint64_t tag, const uint8_t *data,
                                    size_t bytes, size_t *accepted);
uint64_t tti_tcp_lane_released(struct tti_tcp_lane *lane);
enum tutti_result tti_tcp_lane_peek(struct tti_tcp_lane *lane, bool may_read, uint64_t *tag,
                                    const void **data, size_t *bytes);
void tti_tcp_lane_consume(struct tti_tcp_lane *lane, size_t bytes);
enum tutti_result tti_tcp_lane_receive(struct tti_tcp_lane *lane, bool may_read, uint64_t *tag,
                                       uint8_t *into, size_t bytes, size_t *taken);

/* One read of the stream that never blocks, as recvmsg(2). */
ssize_t tti_tcp_lane_read(struct tti_tcp_lane *lane, struct iovec *vector, size_t count);
/* Offer what is queued, and what the peer has asked, to the socket once more; true when it took
 * anything or failed. */
bool tti_tcp_lane_flush(struct tti_tcp_lane *lane);
/* Read into the stage if `readable`; true when there is more to peek, or an end, than before. */
bool tti_tcp_lane_refill(struct tti_tcp_lane *lane);
/* The last thing that is sent on a lane that resumes. */
void tti_tcp_lane_bye(struct tti_tcp_lane *lane);
/* Is something queued that the socket has not taken? */
static inline bool tti_tcp_lane_waits(const struct tti_tcp_lane *lane)
{
    return lane->gone < lane->put || lane->owes;
}

/* ---- tcp_queue.c: the stream's bytes, from `send` until nobody needs them ----------------------
 */

/* Room for a fragment of so many bytes? */
bool tti_tcp_queue_room(struct tti_tcp_lane *lane, size_t bytes);
/* Append a header and a fragment. False: no memory (nothing was appended). */
bool tti_tcp_queue_put(struct tti_tcp_lane *lane, const uint8_t *header, const uint8_t *data,
                       size_t bytes);
/* Fill `vector` (TTI_TCP_MAX_PIECES) with what the socket has not taken; returns how many runs, and
 * in *bytes how many bytes. */
size_t tti_tcp_queue_unsent(const struct tti_tcp_lane *lane, struct iovec *vector, size_t *bytes);
/* The socket took so many more bytes. */
void tti_tcp_queue_sent(struct tti_tcp_lane *lane, size_t bytes);
/* The peer has all of the stream before `position`. */
void tti_tcp_queue_trim(struct tti_tcp_lane *lane, uint64_t position);
/* Trim what the peer's kernel has acknowledged. */
void tti_tcp_queue_look(struct tti_tcp_lane *lane);
/* Make copies of what is sent but not acknowledged, so that the caller has its memory back. */
void tti_tcp_queue_own(struct tti_tcp_lane *lane);
/* Bytes on the heap: copies that wait for the peer's acknowledgement, and the ring. */
size_t tti_tcp_queue_heap(const struct tti_tcp_lane *lane);
/* Over a new socket, send again from `position` on. False: that is not in the queue. */
bool tti_tcp_queue_rewind(struct tti_tcp_lane *lane, uint64_t position);
/* Forget everything. */
void tti_tcp_queue_drop(struct tti_tcp_lane *lane);

#endif
