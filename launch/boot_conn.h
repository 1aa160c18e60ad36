/* One connection as the bootstrap server, or the desk, sees it: frames in, a queue of shared blobs
 * out. Nothing here blocks; only the thread that listens uses it. */
#ifndef TTI_LAUNCH_BOOT_CONN_H
#define TTI_LAUNCH_BOOT_CONN_H

#include "launch/boot_wire.h"

#include <pthread.h>

/* What blobs take from malloc, for another thread to ask: whoever has the lock finds each blob
 * both in memory and counted, or neither. */
struct tti_boot_held {
    pthread_mutex_t lock;
    size_t bytes;
};
size_t tti_boot_held_bytes(struct tti_boot_held *held);

/* A whole frame on its way to one or many connections, which share it. */
struct tti_boot_blob {
    int refs;
    struct tti_boot_held *held; /* where it is counted; NULL: nowhere */
    size_t bytes;
    uint8_t data[];
};

/* A blob with one reference: the header, then the body (zeroes where body is NULL). `held` counts
 * it, and must outlive it; may be NULL. */
struct tti_boot_blob *tti_boot_blob_create(const struct tti_boot_frame *frame, const void *body,
                                           struct tti_boot_held *held);
void tti_boot_blob_release(struct tti_boot_blob *blob);

enum tti_boot_state {
    TTI_BOOT_CONN_STRANGER, /* nothing said yet */
    TTI_BOOT_CONN_CALLED,   /* said hello, was challenged */
    TTI_BOOT_CONN_JOINED,   /* proved that it belongs here */
    TTI_BOOT_CONN_REFUSED,  /* to be closed when its queue is empty */
    TTI_BOOT_CONN_SERVED,   /* the same, and all is well */
};

struct tti_boot_conn {
    int fd; /* -1: closed, to be swept */
    enum tti_boot_state state;
    int rank;          /* from CALLED on */
    uint64_t deadline; /* for the handshake and for the last words */
    char peer[80];     /* address, for messages */
    uint64_t door;     /* by which it came in */
    uint32_t total_ms; /* the rank's own wait for the join: all of it, and its end */
    uint64_t join_by;
    uint8_t hello[TTI_BOOT_HELLO_BYTES];
    uint8_t nonce[TTI_BOOT_NONCE_BYTES];

    uint8_t header[TTI_BOOT_HEADER_BYTES];
    size_t header_have;
    struct tti_boot_frame frame;
    uint8_t *body; /* where the body goes: `small`, or set by the owner after ..._HEADER */
    size_t body_have;
    bool skip; /* set after ..._HEADER: read the body and forget it */
    uint8_t small[1024];

    struct tti_boot_blob **queue;
    size_t queue_capacity;
    size_t queue_count;
    size_t sent; /* bytes of queue[0] */
};

enum tti_boot_input {
    TTI_BOOT_INPUT_MORE,   /* all read that there is */
    TTI_BOOT_INPUT_HEADER, /* frame is set; give `body` a place if 1024 bytes are not enough */
    TTI_BOOT_INPUT_FRAME,  /* frame and body are complete */
    TTI_BOOT_INPUT_CLOSED, /* end of stream, or an error of the socket */
    TTI_BOOT_INPUT_WRONG,  /* bytes that are no frame; the text is in the last error */
};

struct tti_boot_conn *tti_boot_conn_create(int fd, uint64_t deadline);
void tti_boot_conn_destroy(struct tti_boot_conn *conn);
/* Close it, and say why in the log; NULL: not worth a line. */
void tti_boot_conn_drop(struct tti_boot_conn *conn, const char *why);
/* Its HELLO or SEEK has come: keep it, answer with the proof of `role` and `code`, wait for its
 * own. */
enum tutti_result tti_boot_conn_challenge(struct tti_boot_conn *conn,
                                          const uint8_t secret[static 32], enum tti_boot_role role,
                                          uint32_t code);
/* Its PROOF has come: is it right? */
bool tti_boot_conn_proves(const struct tti_boot_conn *conn, const uint8_t secret[static 32],
                          enum tti_boot_role role);
/* Read on, at most to the next event. */
enum tti_boot_input tti_boot_conn_read(struct tti_boot_conn *conn);
/* Queue (taking a reference) and send what goes at once. MEMORY, or LINK when the socket failed. */
enum tutti_result tti_boot_conn_send(struct tti_boot_conn *conn, struct tti_boot_blob *blob);
enum tutti_result tti_boot_conn_flush(struct tti_boot_conn *conn);
/* It cannot be written on: what it has said is still read, and then its end. */
void tti_boot_conn_hush(struct tti_boot_conn *conn);
/* As send, for a frame that is for this connection alone. */
enum tutti_result tti_boot_conn_tell(struct tti_boot_conn *conn, const struct tti_boot_frame *frame,
                                     const void *body);

#endif
