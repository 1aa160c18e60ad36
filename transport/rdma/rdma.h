/* Inside the RDMA transport: one object per rank and communicator, its rails (ports of RDMA
 * devices) and its endpoints. Everything runs on the thread that calls in; nothing blocks but
 * close, and the kernel while it looks for a neighbour on RoCE (up to a second, as a queue pair is
 * joined; half of the time at most, and rdma_rejoin.c keeps trials from it).
 *
 * How bytes move. Each side of a connection has, per lane, a ring of slots in registered memory.
 * The sender writes a fragment (a header of 16 bytes and up to `slot_bytes`) into the next slot of
 * its peer's ring by RDMA write with immediate, small ones inline, large ones out of registered
 * memory where they lie in some, else from a registered copy. The immediate says which slot of
 * which lane, since fragments of one lane go over all queue pairs in turn and may overtake each
 * other. The receiver shows the slot where it is, and gives it back by credits: in the headers of
 * its own fragments, or in a message of its own when half a ring is owed. A sender without credits
 * waits, so there is always a receive posted for what comes, however slow the receiver is.
 *
 * How ranks meet. A connection of the TCP transport (proven by the job's secret) carries queue pair
 * numbers and keys, and stays: its end is how a dead peer is noticed by a rank that only receives.
 *
 * Read next: rdma_wire.h, rdma_endpoint.c (meeting), rdma_lane.c (the hot path), rdma_poll.c,
 * rdma_failover.c (a queue pair that breaks), rdma_rejoin.c (another in its place). */
#ifndef TTI_TRANSPORT_RDMA_H
#define TTI_TRANSPORT_RDMA_H

#include "base/error.h"
#include "transport/rdma/rdma_wire.h"
#include "transport/rdma/verbs.h"
#include "tutti/plugin.h"

#include <pthread.h>

enum {
    TTI_RDMA_LINE_BYTES = 64,    /* in front of each slot; the header is its end */
    TTI_RDMA_HEADER_BYTES = 16,  /* struct tti_rdma_header */
    TTI_RDMA_INLINE_BYTES = 220, /* asked for: what the header and a small fragment take */
    TTI_RDMA_SPARE = 8, /* receives and sends of a queue pair beyond what may be under way */
    TTI_RDMA_BLOCK_BUFFERS = 8,
    TTI_RDMA_MAX_BLOCKS = 16,
    TTI_RDMA_TRIAL_BYTES = 4096, /* of the largest packet */
};

/* ---- the machine: rdma_rail.c --------------------------------------------------------------- */

struct tti_rdma_rail {
    char device[IBV_SYSFS_NAME_MAX];
    uint8_t number; /* of the port, from 1 */
    uint8_t gid_index;
    struct tti_rdma_port port; /* as the peers know it */
    char address[64];          /* the GID as a text */
    struct ibv_context *context;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    int cq_room, cq_used, cq_most;
    bool armed;     /* the next completion will be an event */
    bool port_down; /* the device said so */
    /* rdma_qp.c: a queue pair could not be joined; when that is tried again (0: the last could),
     * and until when it is not where others carry. */
    uint64_t join_ns, rest_ns;
    uint64_t trial_ns; /* rdma_rejoin.c: when the next trial may begin */
};

/* Memory registered with every rail. */
struct tti_rdma_memory {
    void *base;
    size_t bytes;
    struct ibv_mr *mr[TTI_RDMA_MAX_RAILS];
};

/* A registered region of the caller's (device/memory.h), by its id. */
struct tti_rdma_region {
    uint64_t id;
    bool usable; /* false: registration was refused, and is not tried again */
    struct tti_rdma_memory memory;
};

/* A device's memory, by the id of its allocation. */
struct tti_rdma_device {
    uint64_t id;
    struct tti_rdma_memory memory;
};

/* Registered room for a fragment and its header, while it is on its way. */
struct tti_rdma_buffer {
    struct tti_rdma_buffer *next;
    uint8_t *line;
    const struct tti_rdma_memory *memory;
};

struct tti_rdma_block {
    struct tti_rdma_memory memory;
    struct tti_rdma_buffer buffer[TTI_RDMA_BLOCK_BUFFERS];
};

/* What stands before each fragment. Both ends have the same order of bytes: the hello has seen to
 * it. */
struct tti_rdma_header {
    uint64_t tag;
    uint32_t bytes;
    uint32_t credit; /* fragments of the other direction that were consumed */
};

/* ---- one connection ------------------------------------------------------------------------- */

struct tti_rdma_sent {
    uint32_t bytes;
    bool flying;   /* posted and not completed */
    bool lent;     /* from the caller's memory, and flying */
    bool device;   /* lent: a device's */
    bool waits;    /* its queue pair broke: it is written again as soon as one has room */
    uint8_t qp;    /* by which it went */
    uint32_t last; /* bytes of its last write; those before it, if any, are of `piece` bytes */
    struct tti_rdma_buffer *buffer;
    const void *data; /* lent: where it lies */
    /* Inline: header and bytes, should they have to go again. */
    uint8_t kept[TTI_RDMA_INLINE_BYTES];
};

/* Counts of fragments run on for ever, and wrap. */
struct tti_rdma_lane {
    uint32_t posted;            /* fragments given to the devices */
    uint32_t credited;          /* of these, consumed by the peer */
    uint32_t landed;            /* the first so many have completed */
    uint32_t let_go;            /* the first so many are the caller's memory again, ... */
    uint64_t released;          /* ... which are so many bytes */
    struct tti_rdma_sent *sent; /* `window` of them */
    struct tti_rdma_buffer *reserved;

    uint32_t consumed;
    uint32_t told;   /* of these, credited to the peer */
    uint32_t offset; /* bytes of the current fragment that were handed back */
    bool owes;       /* a credit message did not find room */
    uint8_t *ring;
    bool *arrived; /* by slot */
};

struct tti_rdma_qp {
    struct tti_rdma_endpoint *endpoint;
    struct tti_rdma_rail *rail;
    int peer_port; /* index into the peer's advert */
    struct ibv_qp *qp;
    uint32_t psn;
    uint32_t mtu; /* bytes of a full packet; 0: not connected yet */
    uint32_t peer_number, peer_key;
    uint32_t place; /* in the transport's table, and its number there: the upper half of wr_id */
    int room;       /* of the send queue */
    int depth;
    int spent;           /* receives to be posted anew */
    uint64_t refused_ns; /* the first time that it could not be joined */
    /* rdma_failover.c: it carries nothing; that was said, here and there; its work waits for
     * others. */
    bool lost, said_lost, peer_lost, moved;
    /* rdma_rejoin.c: it shall be made again; has been, here and there; takes in what comes. */
    bool rejoin, renewed, peer_renewed, joined, peer_joined;
    bool again;               /* none was left: begin as soon as both sides have let go of it */
    bool hopeless;            /* none is left, and making this one again is given up */
    bool trial;               /* others carry: it has to prove itself first, ... */
    int tried;                /* ... by so many sends, which are under way */
    uint64_t back_ns;         /* when it was made again last */
    uint64_t try_ns, wait_ns; /* lost: when it is tried next; how long that was put off */
};

enum tti_rdma_state {
    TTI_RDMA_MEETING,  /* the control connection is being made */
    TTI_RDMA_TELLING,  /* has said hello */
    TTI_RDMA_JOINING,  /* has heard the peer's; its queue pairs are being joined to these */
    TTI_RDMA_READYING, /* can receive, and has said so */
    TTI_RDMA_UP,
    TTI_RDMA_FAILED,
};

struct tti_rdma_endpoint {
    struct tti_rdma_transport *transport;
    struct tti_rdma_endpoint *next;
    const struct tutti_peer *peer;
    struct tutti_peer control_peer; /* the same, with the address of the control connection */
    struct tti_rdma_advert advert;  /* the peer's */
    enum tti_rdma_state state;
    struct tti_error error; /* FAILED */
    void *control;
    uint8_t heard[TTI_RDMA_HELLO_BYTES]; /* a message of the control connection */
    size_t heard_bytes;
    bool ready;   /* the peer can receive */
    bool ended;   /* the control connection is at its end */
    bool goodbye; /* the peer has said how much there was */
    uint64_t ended_ns;
    struct tti_rdma_goodbye last;
    struct tti_rdma_hello theirs;
    uint32_t window; /* fragments of a lane under way, at most: a power of two */
    int inline_most; /* bytes of a fragment that goes inline */
    int lanes;
    int qps;
    int joined;                    /* JOINING: the first so many are */
    int usual;                     /* the first so many carry; the others when all of these broke */
    int lost;                      /* queue pairs that carry nothing any more */
    uint64_t none_ns;              /* since when that is all of them; 0: it is not */
    bool repeats;                  /* fragments may come twice: a queue pair broke at some time */
    int complaints;                /* of the own device, and no send has succeeded since */
    uint32_t oversize;             /* bytes of the smallest packet of which it complained, ... */
    int oversized;                 /* ... so often, with none of the size acknowledged since */
    int waiting;                   /* fragments that are to be written again */
    uint32_t landings;             /* sends that succeeded, ... */
    uint32_t watched;              /* ... as of the last look at which there were others, ... */
    uint64_t watched_ns;           /* ... or nothing was under way */
    uint32_t piece;                /* bytes of one write; 0: fragments are written whole */
    int pieces;                    /* writes that a fragment takes, at most */
    int flying;                    /* sends that have not completed */
    int owing;                     /* lanes that owe a credit message */
    struct tti_rdma_memory memory; /* rings, then headers for fragments sent in place */
    uint8_t *headers;
    uint8_t *trial; /* behind these: what nobody reads, for writes that prove a queue pair */
    struct tti_rdma_qp qp[TTI_RDMA_MAX_QPS];
    struct tti_rdma_lane lane[];
};

struct tti_rdma_settings {
    long slots, qps, gid_index, pkey_index, roce, traffic_class, service_level;
    size_t slot_bytes;
    double outage_s;
    uint8_t timeout; /* as the queue pair wants it */
};

struct tti_rdma_transport {
    const struct tti_verbs *verbs;
    struct tutti_transport_env env; /* that of the control connections */
    int max_lanes;
    void *tcp;
    struct tti_rdma_settings settings;
    int rails;
    struct tti_rdma_rail rail[TTI_RDMA_MAX_RAILS];
    struct tti_rdma_endpoint *endpoint;
    struct tti_rdma_endpoint *leaving; /* disconnected, with sends under way */
    struct tti_rdma_qp **table;        /* by place; NULL: free */
    size_t places;
    uint32_t births; /* queue pairs ever made */

    struct tti_rdma_block *block[TTI_RDMA_MAX_BLOCKS];
    int blocks;
    struct tti_rdma_buffer *free_buffers;
    struct tti_rdma_region *region;
    size_t regions, region_room, region_last;
    uint64_t regions_gone;       /* as last seen */
    pthread_mutex_t device_lock; /* of the next: other threads register, too */
    struct tti_rdma_device *device;
    size_t devices, device_room;

    int epoll;
    int connecting;   /* endpoints that are not UP or FAILED */
    unsigned skipped; /* calls of progress since the control connections were looked at */
    uint64_t looked_ns, watched_ns;
    bool look;      /* at the next progress */
    bool unsettled; /* the control connections were used since their arm had nothing to tell */
    bool news;      /* something a caller may wait for happened since the last arm */
};

/* What wr_id says of a work request, beside the queue pair. */
enum tti_rdma_work {
    TTI_RDMA_WORK_RECEIVE = 0,
    TTI_RDMA_WORK_FRAGMENT = 1,
    TTI_RDMA_WORK_CREDIT = 2,
    TTI_RDMA_WORK_PIECE = 3, /* of a fragment, but its end */
};
enum { TTI_RDMA_COUNT_BITS = 24, TTI_RDMA_COUNT_MASK = (1 << TTI_RDMA_COUNT_BITS) - 1 };

/* The immediate: kind, lane and the low bits of a count. */
static inline uint32_t tti_rdma_immediate(enum tti_rdma_work kind, int lane, uint32_t count)
{
    return ((uint32_t)kind << 30) | ((uint32_t)lane << TTI_RDMA_COUNT_BITS) |
           (count & TTI_RDMA_COUNT_MASK);
}

static inline uint64_t tti_rdma_work_id(const struct tti_rdma_qp *qp, uint32_t immediate)
{
    return (uint64_t)qp->place << 32 | immediate;
}

/* ---- rdma_rail.c ---------------------------------------------------------------------------- */

/* Is there a port that could be used? UNSUPPORTED with what is missing. */
enum tutti_result tti_rdma_probe(const struct tti_verbs *verbs);
/* Open the ports that TUTTI_RDMA_DEVICES allows this rank. */
enum tutti_result tti_rdma_rails_open(struct tti_rdma_transport *self);
void tti_rdma_rails_close(struct tti_rdma_transport *self);
/* Room for `more` completions. */
enum tutti_result tti_rdma_rail_reserve(struct tti_rdma_transport *self, struct tti_rdma_rail *rail,
                                        int more);
/* Take what the devices have to tell of themselves. */
void tti_rdma_rails_hear(struct tti_rdma_transport *self);

/* ---- rdma_gid.c ----------------------------------------------------------------------------- */

/* Choose the entry of the port's table of GIDs; false when there is none. */
bool tti_rdma_gid_choose(const struct tti_rdma_transport *self, struct tti_rdma_rail *rail,
                         int entries);
/* The GID as a text, and the prefix of the network when it is an IPv4 address. */
void tti_rdma_gid_network(struct tti_rdma_rail *rail);

/* ---- rdma_memory.c -------------------------------------------------------------------------- */

enum tutti_result tti_rdma_register(struct tti_rdma_transport *self, void *base, size_t bytes,
                                    int access, const char *what, struct tti_rdma_memory *memory);
void tti_rdma_deregister(struct tti_rdma_transport *self, struct tti_rdma_memory *memory);
enum tutti_result tti_rdma_memory_join(void);
/* The registration that holds all of these bytes, made now if they lie in a region; else NULL. */
const struct tti_rdma_memory *tti_rdma_memory_find(struct tti_rdma_transport *self,
                                                   const void *data, size_t bytes);
/* Let go of regions that are gone. */
void tti_rdma_memory_sweep(struct tti_rdma_transport *self);
/* NULL when all are in use. */
struct tti_rdma_buffer *tti_rdma_buffer_take(struct tti_rdma_transport *self);
void tti_rdma_buffer_give(struct tti_rdma_transport *self, struct tti_rdma_buffer *buffer);
void tti_rdma_memory_free(struct tti_rdma_transport *self);

/* ---- rdma_device.c: memory of GPUs ----------------------------------------------------------- */

enum tutti_result tti_rdma_device_register(void *transport,
                                           const struct tutti_device_memory *memory);
void tti_rdma_device_forget(void *transport, uint64_t id);
/* The registration that holds all of these bytes. */
bool tti_rdma_device_find(struct tti_rdma_transport *self, const void *data, size_t bytes,
                          struct tti_rdma_memory *memory);
void tti_rdma_device_free(struct tti_rdma_transport *self);

/* ---- rdma_qp.c ------------------------------------------------------------------------------ */

enum tutti_result tti_rdma_qp_create(struct tti_rdma_qp *qp);
/* To where it can receive and send; its receives are posted. IN_PROGRESS: the way to the peer's is
 * not there, or another's by this rail was not a moment ago: call again; an error once it has not
 * been for `patience_s` (0: at once). May block, for about a second: of all that are refused one at
 * a time is tried, and then none for as long as it blocked. */
enum tutti_result tti_rdma_qp_join(struct tti_rdma_qp *qp, double patience_s);
void tti_rdma_qp_destroy(struct tti_rdma_qp *qp);
/* Another in the place of one that broke and has given back all that was posted; not connected. */
enum tutti_result tti_rdma_qp_renew(struct tti_rdma_qp *qp);
/* Post the receives that were spent. */
enum tutti_result tti_rdma_qp_replenish(struct tti_rdma_qp *qp);
/* An error that names both ends of `qp`; `format` says what was tried or happened. */
enum tutti_result tti_rdma_qp_fail(const struct tti_rdma_qp *qp, enum tutti_result code,
                                   const char *what, const char *advice);

/* ---- rdma_endpoint.c ------------------------------------------------------------------------ */

enum tutti_result tti_rdma_connect(void *transport, const struct tutti_peer *peer, int lanes,
                                   void **endpoint);
enum tutti_result tti_rdma_advance(void *endpoint);
void tti_rdma_disconnect(void *endpoint);
/* What this rank's ports are; without a control connection. */
void tti_rdma_own_advert(const struct tti_rdma_transport *self, struct tti_rdma_advert *advert);
/* Look at the control connections. */
void tti_rdma_control(struct tti_rdma_transport *self);
/* Make FAILED of an endpoint, with the calling thread's last error. The first error stays. */
void tti_rdma_endpoint_fail(struct tti_rdma_endpoint *endpoint, enum tutti_result code);
/* What could not be done at once: queue pairs made again, fragments and credits that wait. */
void tti_rdma_endpoint_work(struct tti_rdma_endpoint *endpoint);
/* Say goodbye and free it, whatever is under way. */
void tti_rdma_endpoint_free(struct tti_rdma_endpoint *endpoint);
/* Free those of the leaving whose sends have completed. */
void tti_rdma_leaving_step(struct tti_rdma_transport *self);

/* A message of the control connection. */
enum tutti_result tti_rdma_endpoint_say(struct tti_rdma_endpoint *endpoint, const uint8_t *bytes,
                                        size_t size);

/* ---- rdma_failover.c: a queue pair that breaks ------------------------------------------------
 */

/* Nothing goes by this queue pair any more, says the calling thread's last error: the own device's
 * complaint, or the peer's word. True: others take over, or it is made again; false: neither. Of a
 * complaint, `packet` is the largest packet of what was not acknowledged. */
bool tti_rdma_lose(struct tti_rdma_qp *qp, bool complaint, uint32_t packet);
/* Does the link carry small packets, and none that are larger? */
bool tti_rdma_has_hole(const struct tti_rdma_endpoint *endpoint);
/* The peer has said so. */
void tti_rdma_lose_heard(struct tti_rdma_qp *qp);
/* Another of its sends has ended. */
void tti_rdma_failover_step(struct tti_rdma_qp *qp);
/* The endpoint has failed: nothing goes again, and its memory is let go. */
void tti_rdma_failover_end(struct tti_rdma_endpoint *endpoint);
/* Write fragments again that wait for it. */
void tti_rdma_again(struct tti_rdma_endpoint *endpoint);

/* ---- rdma_rejoin.c: another in its place ------------------------------------------------------
 */

/* Look whether any connection has sends under way that take long: those go on in pieces. */
void tti_rdma_watch(struct tti_rdma_transport *self);
/* As far as can be gone now. */
void tti_rdma_rejoin_step(struct tti_rdma_endpoint *endpoint);
/* It was lost: when is it tried again, should others carry on? */
void tti_rdma_rejoin_later(struct tti_rdma_qp *qp);
/* The peer has let go of one that is being made again. */
void tti_rdma_rejoin_off(struct tti_rdma_qp *qp);
/* A send of a trial has ended. */
void tti_rdma_tried(struct tti_rdma_qp *qp, bool success);
/* The peer has said something of one of the queue pairs. */
void tti_rdma_heard(struct tti_rdma_endpoint *endpoint, const struct tti_rdma_word *word);
enum tutti_result tti_rdma_say(struct tti_rdma_qp *qp, enum tti_rdma_saying saying);

/* ---- rdma_lane.c ---------------------------------------------------------------------------- */

enum tutti_result tti_rdma_send(void *endpoint, int lane, uint64_t tag, const void *data,
                                size_t bytes, size_t *accepted);
enum tutti_result tti_rdma_device_send(void *endpoint, int lane, uint64_t tag, const void *data,
                                       size_t bytes, size_t *accepted);
uint64_t tti_rdma_released(void *endpoint, int lane);
enum tutti_result tti_rdma_abandoned(void *endpoint);
size_t tti_rdma_reserve(void *endpoint, int lane, size_t want, void **room);
enum tutti_result tti_rdma_commit(void *endpoint, int lane, uint64_t tag, size_t bytes);
enum tutti_result tti_rdma_peek(void *endpoint, int lane, uint64_t *tag, const void **data,
                                size_t *bytes);
bool tti_rdma_await(void *endpoint, int lane, unsigned turns);
void tti_rdma_consume(void *endpoint, int lane, size_t bytes);
/* Tell the peer what it may send again, where that did not find room before. */
void tti_rdma_pay(struct tti_rdma_endpoint *endpoint);
/* The send of `fragment` (its low bits) has ended, well or not. */
void tti_rdma_fragment_landed(struct tti_rdma_endpoint *endpoint, int lane, uint32_t fragment);
/* A fragment, or credits, came. False: the peer does what no Tutti does. */
bool tti_rdma_fragment_arrived(struct tti_rdma_endpoint *endpoint, int lane, uint32_t fragment);
bool tti_rdma_credit_arrived(struct tti_rdma_endpoint *endpoint, int lane, uint32_t consumed);
size_t tti_rdma_stride(size_t slot_bytes);

/* ---- rdma_write.c --------------------------------------------------------------------------- */

static inline struct tti_rdma_sent *tti_rdma_sent_at(struct tti_rdma_endpoint *self,
                                                     struct tti_rdma_lane *lane, uint32_t fragment)
{
    return &lane->sent[fragment & (self->window - 1)];
}

static inline struct ibv_sge tti_rdma_piece(const void *data, size_t bytes, uint32_t key)
{
    return (struct ibv_sge){(uintptr_t)data, (uint32_t)bytes, key};
}

/* By which queue pair it goes; not all of them are lost. */
struct tti_rdma_qp *tti_rdma_lane_qp(struct tti_rdma_endpoint *self, int lane, uint32_t fragment);
/* Does one carry anything, and has it room? */
bool tti_rdma_may_write(struct tti_rdma_endpoint *self, int lane, uint32_t fragment);
/* Where the header of a fragment lies that is sent in place. */
uint8_t *tti_rdma_header_place(const struct tti_rdma_endpoint *self, int lane, uint32_t fragment);
/* Write a fragment of a lane into its slot: `all` bytes, header and data, lie in `whole`. An error
 * has made the endpoint fail. */
enum tutti_result tti_rdma_write(struct tti_rdma_endpoint *self, int lane, uint32_t fragment,
                                 const struct ibv_sge *whole, size_t all, bool in_line);
/* Once more, by a queue pair that may be another: tti_rdma_may_write has said so. */
enum tutti_result tti_rdma_fragment_again(struct tti_rdma_endpoint *self, int lane,
                                          uint32_t fragment);

/* ---- rdma_poll.c ---------------------------------------------------------------------------- */

/* Take all completions that there are. */
void tti_rdma_poll(struct tti_rdma_transport *self);

#endif
