/* What the files of the shm transport share. layout.h has the memory, shm.c the life of a
 * transport, door.c how peers are let in, connect.c how a connection is made, channel.c messages
 * and descriptors over its socket, lane_send.c and lane_receive.c the hot operations, lane_ways.c
 * how copies go, lane_share.c what both ends copy at once, regions.c mapped memory of peers,
 * reach.c its use by the caller. */
#ifndef TTI_TRANSPORT_SHM_SHM_H
#define TTI_TRANSPORT_SHM_SHM_H

#include "base/error.h"
#include "device/copy_trial.h"
#include "transport/shm/layout.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

/* TUTTI_SHM_CMA: which fragments peers read with process_vm_readv. */
enum shm_memory {
    SHM_MEMORY_NONE = 0,
    SHM_MEMORY_ALL = 1,
    SHM_MEMORY_LENT = 2, /* those that the caller lends */
};

/* TUTTI_SHM_*, read when a transport opens. */
struct shm_settings {
    size_t piece_bytes;  /* the most in one piece */
    size_t piece_narrow; /* all pieces of a lane and direction that go the narrow way */
    size_t piece_ring;   /* ... and the wide one */
    int ways;            /* that pieces may go; 1: what `way` says */
    enum shm_way way;
    size_t region_from; /* fragments from this size refer to a region, if they lie in one */
    size_t memory_from; /* ... are read by process_vm_readv, if they do not */
    size_t share_from;  /* ... of such the sender may write one half into the receiver's memory */
    size_t share_bytes_a_ns; /* an offer to do so is old after a nanosecond for so many bytes */
    size_t ahead_most;   /* the largest piece of one who is not answered that is fetched ahead */
    size_t tail_most;    /* bytes of a tail, ... */
    size_t tail_in_row;  /* those that one uses who is not answered, ... */
    size_t pieces_shift; /* ... and behind a page where a ring begins, in segments made here */
    bool nearest_there;  /* the pages of the nearest pieces are, once connected */
    size_t ahead_pieces; /* larger than SHM_TAIL_LEAST, that such a one has room for */
    size_t near_bytes;   /* room for pieces that keep near, at most, unless two need more */
    /* Ranks share cores: who is not answered goes through more of the ring. Where lines come back
     * slowly, too, it has few large pieces under way, and other ways than the narrow one are tried
     * for pieces that take long. */
    bool shares_cores, slow_lines;
    /* A pair whose lines come back quickly: pieces larger than SHM_LARGE_PIECE and smaller than
     * SHM_FULL_PIECE go the wide way unless the narrow one proves quicker, and so do those larger
     * than SHM_NEAR_PIECE of who is not answered; of the first lane, while it works alone: several
     * would take more than the caches have. All others go the narrow way while that is quick. */
    bool wide_first;
    enum shm_memory memory;
    bool strings; /* the CPU moves short strings of bytes well: send_copy */
};

enum {
    SHM_REFERENCE_MOST = 1 << 20, /* bytes of one fragment by reference: memory comes back soon */
    SHM_STAGE_BYTES = 256 << 10,  /* read at once for peek; fits a level-2 cache */
    SHM_MAX_MAPPINGS = 4096,      /* regions of one peer */
    SHM_NONCE_BYTES = 16,
    SHM_WAY_TURN = 64 << 10,   /* bytes of pieces between two looks at how they go */
    SHM_WAY_PAGES = 256 << 10, /* bytes of the wide ring that are made there at a time */
    SHM_WAY_LATE = 8,          /* turns besides a lap, for the peer to tell what a way takes it */
    SHM_WIDE_STAYS = 64 << 10, /* bytes behind a wide piece in which narrow ones go on there */
    SHM_SHARED_FROM = 4 << 10, /* pieces that ranks that share cores try ways for, if answered */
    SHM_ROW_FROM = 32 << 10,   /* such that are not answered send a larger piece than this */
    SHM_ROW_PIECES = 4,        /* ... only with fewer than so many under way */
    SHM_ALONE_AFTER = 8,       /* pieces in a row of one lane until it is taken to work alone */
    SHM_WIDE_MOST = 16 << 20,  /* bytes of all wide rings of a lane and direction together */
    SHM_RING_MOST = 1 << 30,   /* bytes of a ring: 1024 slots of a MiB */
};

/* ---- the local socket ----------------------------------------------------------------------- */

enum shm_message_kind {
    SHM_HELLO = 1,   /* higher to lower rank; segment, eventfd */
    SHM_WELCOME = 2, /* the answer; eventfd */
    SHM_REGION = 3,  /* id, bytes, sparse; the memfd */
    SHM_GONE = 4,    /* id */
    SHM_DEVICE = 5,  /* a device's memory (cuda_ipc/passing.c) */
};

struct shm_message {
    uint64_t magic;
    uint32_t kind;
    uint32_t lanes;
    uint64_t job;
    int32_t from, to;
    uint64_t piece_narrow;
    uint64_t piece_ring; /* of the segment that comes with a hello, as the next two */
    uint32_t tail_most, pieces_shift;
    uint64_t id, bytes;
    uint64_t sparse; /* not 0: to be mapped without huge pages */
    uint64_t nonce_address;
    uint8_t nonce[SHM_NONCE_BYTES];
    uint8_t secret[TUTTI_SECRET_BYTES];
};

enum { SHM_MESSAGE_FDS = 2 };

enum shm_io {
    SHM_IO_DONE,
    SHM_IO_LATER, /* nothing there, or no room */
    SHM_IO_END,   /* the other side has closed */
    SHM_IO_LOST,  /* its descriptors were lost; the last error is set */
    SHM_IO_BAD,   /* not a message; the last error is set */
};

enum shm_io tti_shm_message_send(int socket, const struct shm_message *message, const int *fds,
                                 int count);
/* Takes one message; fds[0..*count) are the caller's. */
enum shm_io tti_shm_message_take(int socket, struct shm_message *message, int fds[SHM_MESSAGE_FDS],
                                 int *count);
/* The process at the other end: false if it is another user's. */
bool tti_shm_peer_credentials(int socket, pid_t *pid);

/* ---- endpoints ------------------------------------------------------------------------------ */

/* What epoll points to. */
enum shm_source_kind {
    SHM_SOURCE_WAKE,
    SHM_SOURCE_LISTENER,
    SHM_SOURCE_GUEST,
    SHM_SOURCE_ENDPOINT
};
struct shm_source {
    enum shm_source_kind kind;
};

struct shm_sent {
    uint64_t piece_end; /* of the piece ring, after this line */
    uint32_t bytes;
    uint16_t pieces; /* `pieces_sent`, this line included */
    bool copied;     /* the caller's memory is free already */
};

/* A fragment that the peer reads by process_vm_readv. */
struct shm_lent {
    uint64_t number; /* of its line */
    const unsigned char *data;
};

/* How pieces of one class of sizes go. */
struct shm_ways {
    struct tti_copy_trial trial;
    bool timed;       /* in this turn, */
    size_t done;      /* ... of which so many bytes are done, */
    size_t of;        /* ... and so many were copied from the caller's memory */
    uint64_t ns;      /* ... in this time */
    unsigned settled; /* turns before a trial that are over */
    unsigned late;    /* timed turns in a row of a way of which the peer has not told yet */
};
_Static_assert((int)SHM_WAYS <= (int)TTI_TRIAL_WAYS, "there are trials of so many ways");

struct shm_out {
    struct shm_line *lines;
    unsigned char *tails;
    unsigned char *pieces;
    const _Atomic uint64_t *acked;
    const _Atomic uint64_t *took; /* [SHM_SIZES]: what pieces take the peer */
    struct shm_share *share;      /* the peer's offer */
    uint64_t sent, freed;         /* lines published, and of these consumed by the peer, */
    uint64_t known_freed;         /* ... when arm told last */
    uint64_t counted;             /* lines that are in `released`; at least `freed` */
    uint64_t asked;               /* `sent` when a tail was last asked for */
    uint64_t released;
    uint64_t piece_head, piece_tail; /* bytes of the ring ever taken and freed */
    size_t tail_bytes;               /* of the last message, if it went through a tail */
    size_t piece_bytes;              /* ... if it went as a short piece */
    unsigned row;                    /* messages in a row without an answer */
    struct shm_sent log[SHM_LINES];
    struct shm_lent *lent; /* SHM_LINES of them, once there was one; or NULL */
    size_t tail_most;      /* bytes of a tail, and of those that go there in a row */
    size_t tail_in_row;
    struct shm_ways ways[SHM_SIZES];
    uint64_t wide_head;    /* behind the last piece that went the wide way; 0: none */
    size_t there;          /* bytes of the ring whose pages are, for the wide way */
    bool all_there;        /* since the last piece all: the next line says so */
    unsigned char *bounce; /* room for a piece that is to go around the caches; or NULL */
    bool bounced;          /* what was reserved is there */
    uint16_t pieces_sent, pieces_freed;
    uint64_t beside; /* lines of the second lane when the first one's last piece was sent, ... */
    unsigned shared; /* ... and pieces until this one works alone; of others not 0 */
};

enum { SHM_SAMPLES = 8 };

struct shm_in {
    const struct shm_line *lines;
    const unsigned char *tails;
    const unsigned char *pieces;
    size_t tail_bytes; /* of the last fragment, if it came in a tail: the next one may too */
    _Atomic uint64_t *ack;
    _Atomic uint64_t *took;   /* [SHM_SIZES] */
    struct shm_share *share;  /* our offer */
    bool share_over;          /* the peer may still look at the last one: no more offers */
    unsigned share_missed;    /* offers in a row that were not taken, */
    unsigned share_pause;     /* so that as many fragments go without one */
    uint64_t consumed, known; /* lines handed back; lines that the caller has been told of */
    unsigned row;             /* fragments in a row without an answer */
    /* The oldest fragment, checked. */
    bool open;
    enum shm_kind kind;
    uint64_t tag;
    const unsigned char *data; /* its first byte, unless it lies in the peer's own memory */
    uint64_t address;          /* where it lies there */
    size_t bytes, offset;
    struct shm_mapping *mapping;
    unsigned char *stage; /* holds [stage_from, stage_to) of the fragment */
    size_t stage_from, stage_to;
    size_t tail_most; /* bytes of a tail */
    size_t there;     /* bytes of the ring whose pages are mapped, for the wide way */
    /* When the oldest fragment was opened, if its sender wants to know, and its way. */
    uint64_t began_ns;
    enum shm_way way;
    uint16_t sample[SHM_SIZES][SHM_WAYS][SHM_SAMPLES];
    uint8_t samples[SHM_SIZES][SHM_WAYS];
};

struct shm_lane {
    struct shm_out out;
    struct shm_in in;
};

struct shm_mapping {
    struct shm_mapping *next;
    uint64_t id;
    unsigned char *base;
    size_t bytes;
    int uses; /* lanes whose oldest fragment lies in it, and holds (reach.c) */
    bool gone;
    bool writable;
};

/* A region that the peer knows (or that cannot be passed to it). */
struct shm_passed {
    uint64_t id;
    bool usable;
    uint64_t offered; /* in which exchange of offers the peer was last given it to write to */
};

enum { SHM_READABLE = 8 }; /* a power of two: ranges that are known to be so */

/* Memory of this process that others can read with process_vm_readv. */
struct shm_readable {
    uintptr_t from, to;
};

enum { SHM_HOLDS = 4 }; /* ranges of one peer that are mapped at a time */

enum shm_state {
    SHM_KNOCKING,  /* to connect, when the peer's queue has room, and the kernel for a hello */
    SHM_WAITING,   /* for the peer's welcome, or for its hello */
    SHM_WELCOMING, /* a guest has been taken over: to answer, when the kernel has room for that */
    SHM_READY,
    SHM_FAILED, /* `error` says why */
};

struct shm_endpoint {
    struct shm_source source;
    struct shm_endpoint *next;
    struct shm_transport *transport;
    const struct tutti_peer *peer;
    int side; /* ours */
    int lanes;
    enum shm_state state;
    struct tti_error error;
    int socket; /* -1 when closed */
    int bell;   /* the peer's eventfd */
    pid_t pid;
    bool ended;                 /* the socket has: the peer died or closed */
    bool known_end;             /* as far as the caller has been told */
    enum shm_state known_state; /* likewise */
    bool peer_reads;            /* it can process_vm_readv us */
    uint8_t nonce[SHM_NONCE_BYTES];

    void *segment;
    size_t segment_bytes;
    size_t piece_ring;
    struct shm_side *ours, *theirs;
    struct shm_hold *our_hold, *their_hold;
    struct shm_lane *lane;

    struct shm_mapping *mappings; /* most recently used first */
    int mapping_count;
    struct shm_mapping *held[SHM_HOLDS]; /* until unmap */
    int held_count;
    struct shm_passed *passed;
    size_t passed_count, passed_capacity;
    size_t passed_last;
    /* An exchange: offers up to our unmap, after which the next offer begins another. The peer has
     * let go of those before, or we would not be here. */
    uint64_t exchange;
    bool exchange_over;

    size_t tail_most, pieces_shift; /* as the segment's maker says */
};

/* Somebody who has connected but is no endpoint yet. */
struct shm_guest {
    struct shm_source source;
    struct shm_guest *next;
    int socket;
    pid_t pid;
    bool has_hello;
    uint64_t deadline; /* to say hello */
    struct shm_message hello;
    int fds[SHM_MESSAGE_FDS];
};

/* What `address` writes. Local sockets reach within one kernel and network namespace, and we serve
 * one user. */
struct shm_address {
    char boot[40];
    uint64_t net_device, net_inode;
    uint64_t user;
    char name[64];
};

struct shm_transport {
    struct shm_transport *next; /* regions.c: all of the process */
    const struct tutti_transport_env *env;
    struct shm_settings settings;
    int epoll, wake, listener;
    bool fences;          /* membarrier works: the others' reaches us */
    bool fences_for_both; /* ours reaches them: they need not fence when they publish to us */
    int64_t fence_all_ns; /* what that takes us, each time; */
    int64_t saved_ns;     /* and what it has saved, on the whole, of late (sleep.c) ... */
    uint64_t taken;       /* ... until so many messages */
    struct shm_source wake_source, listener_source;
    struct shm_address own;
    bool deaf; /* the listener is out of epoll: no descriptors for those who knock */
    struct shm_readable readable[SHM_READABLE]; /* the last ones that were looked at */
    unsigned readable_next;
    struct shm_endpoint *endpoints;
    struct shm_guest *guests;
    int guest_count;
    unsigned calls;
    uint64_t looked_ns;
    bool look; /* sockets must be looked at */
    bool armed;
    uint64_t owed; /* rings of `wake` by those who have cleared a flag, not read yet */
    /* Regions that are gone and that peers must be told of; written by any thread. */
    pthread_mutex_t gone_lock;
    _Atomic uint64_t gone_count;
    uint64_t *gone;
    size_t gone_capacity;
};

/* ---- door.c --------------------------------------------------------------------------------- */

enum tutti_result tti_shm_listen(struct shm_transport *self);
enum tutti_result tti_shm_address(void *transport, void *address, size_t *bytes);
bool tti_shm_reaches(void *transport, const struct tutti_peer *peer);
socklen_t tti_shm_socket_name(const char *name, struct sockaddr_un *address);
/* Is the message from a rank of this job to this rank? Takes the same time wherever the secrets
 * differ. */
bool tti_shm_proven(const struct shm_transport *self, const struct shm_message *message);
void tti_shm_accept_all(struct shm_transport *self);
void tti_shm_guest_ready(struct shm_transport *self, struct shm_guest *guest);
void tti_shm_guest_drop(struct shm_transport *self, struct shm_guest *guest);

/* ---- connect.c ------------------------------------------------------------------------------ */

enum tutti_result tti_shm_connect(void *transport, const struct tutti_peer *peer, int lanes,
                                  void **endpoint);
enum tutti_result tti_shm_advance(void *endpoint);
/* If the peer is among the guests: complete the connection. */
void tti_shm_take_guest(struct shm_endpoint *self);
/* Messages and the end of the socket of an endpoint. */
void tti_shm_endpoint_ready(struct shm_endpoint *self);
/* Free all that an endpoint has; it must be out of the transport's list. */
void tti_shm_endpoint_free(struct shm_endpoint *self);

/* ---- shm.c ---------------------------------------------------------------------------------- */

/* Look at all sockets that have something. */
void tti_shm_look(struct shm_transport *self);
/* The ranks of this host, if these are known apart from those of others. */
int tti_shm_ranks(const struct tutti_transport_env *env);
bool tti_shm_watch(struct shm_transport *self, int fd, struct shm_source *source);
/* Close a socket that may be watched. Closing alone would not end that while somebody else has the
 * descriptor, as a child does between its start and its exec, and what it points to is freed. */
void tti_shm_hang_up(const struct shm_transport *self, int socket);
/* Record why an endpoint is of no more use; returns the code. */
enum tutti_result tti_shm_break(struct shm_endpoint *self, enum tutti_result code);
enum tutti_result tti_shm_fail_gone(struct shm_endpoint *self);

/* ---- sleep.c -------------------------------------------------------------------------------- */

/* See tti_transport_prepare. */
void tti_shm_prepare(void);
void tti_shm_fences_begin(struct shm_transport *self);
/* It runs, and has not slept lately: should it fence for both when it does? */
void tti_shm_stays_awake(struct shm_transport *self);
/* Between a store and a load that the peer does in the other order, rarely: a fence, unless the
 * peer calls tti_shm_fence_all between its own. */
static inline void tti_shm_fence_pairwise(const struct shm_endpoint *self)
{
    if (self->transport->fences && tti_load_acquire(&self->theirs->fences))
        atomic_signal_fence(memory_order_seq_cst);
    else
        tti_full_fence();
}
/* Fence in all processes that have registered for it, this one included. */
bool tti_shm_fence_all(void);
/* After publishing something: wake the peer if it sleeps. */
void tti_shm_wake(struct shm_endpoint *self);
static inline void tti_shm_ring(struct shm_endpoint *self)
{
    tti_shm_fence_pairwise(self); /* with tti_shm_arm: it sees our news, or we see it asleep */
    if (__builtin_expect(atomic_load_explicit(&self->theirs->sleeping, memory_order_relaxed), 0))
        tti_shm_wake(self);
}
int tti_shm_fd(void *transport);
bool tti_shm_arm(void *transport);
void tti_shm_disarm(void *transport);

/* ---- lane_send.c, lane_receive.c ------------------------------------------------------------ */

enum tutti_result tti_shm_send(void *endpoint, int lane, uint64_t tag, const void *data,
                               size_t bytes, size_t *accepted);
uint64_t tti_shm_released(void *endpoint, int lane);
enum tutti_result tti_shm_abandoned(void *endpoint);
enum tutti_result tti_shm_lend(void *endpoint, int lane, uint64_t tag, const void *data,
                               size_t bytes, size_t *accepted);
size_t tti_shm_copies(void *endpoint);

/* ---- lane_ways.c: how pieces go ------------------------------------------------------------- */

/* Is it sent by who is not answered, where that makes a difference? */
static inline bool shm_in_row(const struct shm_endpoint *self, const struct shm_out *out)
{
    return self->transport->settings.shares_cores && out->row >= SHM_ROW;
}
/* Is it found out by trying how a piece of so many bytes that is sent now goes? Where ranks share
 * cores small ones of a row go through all of the ring anyway; where lines come back quickly small
 * ones have nothing to gain, or less than what looking at the clock costs. */
static inline bool shm_tries(const struct shm_endpoint *self, const struct shm_out *out,
                             size_t bytes)
{
    const struct shm_settings *settings = &self->transport->settings;
    if (settings->ways <= 1)
        return false;
    if (settings->shares_cores)
        return shm_in_row(self, out) ? bytes > SHM_LARGE_PIECE : bytes >= SHM_SHARED_FROM;
    if (!settings->wide_first || bytes >= SHM_FULL_PIECE)
        return true;
    const bool row = out->row >= SHM_ROW && bytes > SHM_NEAR_PIECE;
    return out->shared == 0 && (bytes > SHM_LARGE_PIECE || row);
}
/* Trials number the ways from the one with which they begin, which wins where others are not
 * clearly quicker. */
static inline enum shm_way shm_way_tried(const struct shm_settings *settings, int size, int number)
{
    static const uint8_t wide_first[SHM_WAYS] = {SHM_WIDE, SHM_NARROW, SHM_AROUND};
    return (enum shm_way)(settings->wide_first && size < SHM_SIZES - 1 ? wide_first[number]
                                                                       : number);
}
/* Its way. */
static inline enum shm_way shm_way_of(const struct shm_endpoint *self, const struct shm_out *out,
                                      size_t bytes)
{
    const struct shm_settings *settings = &self->transport->settings;
    const int size = shm_size_of(bytes);
    if (shm_tries(self, out, bytes))
        return shm_way_tried(settings, size, out->ways[size].trial.way);
    return settings->way;
}
/* Before a piece of so many bytes is copied or built at the present place: its pages. */
void tti_shm_piece_pages(const struct shm_endpoint *self, struct shm_out *out, size_t bytes);
/* Copy into the ring, at the present place: the caller's bytes, or what was built in the bounce
 * buffer. The first returns what the line of that piece has for an id. */
uint64_t tti_shm_copy_piece(const struct shm_endpoint *self, struct shm_out *out, const void *data,
                            size_t bytes);
void tti_shm_copy_bounced(const struct shm_endpoint *self, struct shm_out *out, size_t bytes);
/* A piece has been sent, copied or built, of which shm_tries was true. */
void tti_shm_piece_sent(const struct shm_endpoint *self, struct shm_out *out, size_t bytes);
/* Room for a piece that cannot be built in the ring, because it is to go around the caches; NULL
 * without memory for it. */
unsigned char *tti_shm_bounce(struct shm_endpoint *self, struct shm_out *out);
/* The peer has opened a piece whose line has this id, at `where` in the ring, ... */
void tti_shm_piece_opened(const struct shm_endpoint *self, struct shm_in *in, uint64_t id,
                          size_t where);
/* ... and is through with it. */
void tti_shm_piece_read(struct shm_in *in);

/* reads.c; `proc`: where /proc is. */
uint64_t tti_shm_reads(void *transport);
bool tti_shm_yama_lets(const char *proc);
/* ... and does the call pass the filters of this process? */
bool tti_shm_call_passes(void);
size_t tti_shm_reserve(void *endpoint, int lane, size_t want, void **room);
enum tutti_result tti_shm_commit(void *endpoint, int lane, uint64_t tag, size_t bytes);
/* Take note of what the peer has consumed; false when its count makes no sense. */
bool tti_shm_collect(struct shm_out *out);

enum tutti_result tti_shm_intact(void *endpoint, int lane);
enum tutti_result tti_shm_peek(void *endpoint, int lane, uint64_t *tag, const void **data,
                               size_t *bytes);
void tti_shm_consume(void *endpoint, int lane, size_t bytes);
enum tutti_result tti_shm_receive(void *endpoint, int lane, uint64_t *tag, void *into, size_t bytes,
                                  size_t *taken);
bool tti_shm_await(void *endpoint, int lane, unsigned turns);
/* Lines that have arrived, at least the ones known. */
uint64_t tti_shm_arrived(const struct shm_in *in);

/* ---- lane_share.c --------------------------------------------------------------------------- */

/* Offer the peer to write the end of what is received into `bytes` from `into` on, out of the open
 * fragment, which lies in its memory. Returns the bytes that the caller reads itself: all of them
 * when nothing is offered, else tti_shm_share_end must follow. */
size_t tti_shm_share_offer(const struct shm_endpoint *self, struct shm_in *in, void *into,
                           size_t bytes);
/* From here on nobody writes there. *written: the peer has written all that was offered. Waits for
 * a peer that is writing; LINK, after a minute: it might still. */
enum tutti_result tti_shm_share_end(struct shm_endpoint *self, struct shm_in *in, bool *written);
/* The next line will name this memory. */
void tti_shm_share_note(struct shm_out *out, const void *data);
/* Write what the peer offers, if it does. */
void tti_shm_share_help(const struct shm_endpoint *self, const struct shm_out *out);

/* ---- reach.c -------------------------------------------------------------------------------- */

bool tti_shm_offer(void *endpoint, const void *data, size_t bytes, struct tutti_place *place);
enum tutti_result tti_shm_map(void *endpoint, const struct tutti_place *place, size_t bytes,
                              void **address);
void tti_shm_unmap(void *endpoint);
enum tutti_result tti_shm_withdraw(void *endpoint, int wait_ms);

/* ---- regions.c ------------------------------------------------------------------------------ */

enum tutti_result tti_shm_regions_join(struct shm_transport *self);
void tti_shm_regions_leave(struct shm_transport *self);
/* Does [data, data + bytes) lie in a region that the peer can map? Passes it on if it is new. */
bool tti_shm_region_refer(struct shm_endpoint *self, const void *data, size_t bytes, uint64_t *id,
                          uint64_t *offset);
/* Tell peers of regions that are gone. */
void tti_shm_regions_tell(struct shm_transport *self);
/* The peer has passed a region, or says that one is gone. Takes the descriptor. */
enum tutti_result tti_shm_region_map(struct shm_endpoint *self, const struct shm_message *message,
                                     int fd);
void tti_shm_region_unmap(struct shm_endpoint *self, uint64_t id);
/* A region of the peer by id; NULL when it has not been passed. */
struct shm_mapping *tti_shm_region_mapped(struct shm_endpoint *self, uint64_t id);
/* The same, after a look into the socket, where its descriptor was put before it was named. */
struct shm_mapping *tti_shm_region_expect(struct shm_endpoint *self, uint64_t id);
void tti_shm_region_done(struct shm_endpoint *self, struct shm_mapping *mapping);
void tti_shm_regions_free(struct shm_endpoint *self);

#endif
