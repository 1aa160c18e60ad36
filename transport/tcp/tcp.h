/* Inside the TCP transport: one object per rank and communicator, its endpoints, and the control
 * plane that makes connections. Everything runs on the thread that calls in; nothing blocks but
 * close. Read next: tcp.c (the operations), tcp_lane.h (the hot path), tcp_talk.h (the handshake).
 */
#ifndef TTI_TRANSPORT_TCP_H
#define TTI_TRANSPORT_TCP_H

#include "base/error.h"
#include "transport/tcp/tcp_address.h"
#include "transport/tcp/tcp_socket.h"
#include "transport/tcp/tcp_stripe.h"
#include "transport/tcp/tcp_talk.h"
#include "tutti/plugin.h"

enum {
    TTI_TCP_MAX_GUESTS = 128, /* connections that have proved nothing yet */
    TTI_TCP_GUEST_SECONDS = 5,
    TTI_TCP_PROVEN_SECONDS = 60, /* for the last step of those that have */
    TTI_TCP_SILENCE_SECONDS = 15,
    TTI_TCP_QUIET_SECONDS = 3,   /* the same, where another connection can take over, */
    TTI_TCP_RESUME_SECONDS = 12, /* for which there is this much time */
};

/* The connector's side of one socket under way: tcp_attempt.h. */
struct tti_tcp_attempt;

enum tti_tcp_endpoint_state {
    TTI_TCP_CONNECTING,
    TTI_TCP_CONNECTED,
    TTI_TCP_FAILED,
};

struct tti_tcp_endpoint {
    struct tti_tcp_transport *transport;
    struct tti_tcp_endpoint *next;
    const struct tutti_peer *peer;
    struct tti_tcp_advert advert; /* the peer's */
    enum tti_tcp_endpoint_state state;
    struct tti_error error;        /* FAILED */
    int lanes;                     /* sockets: the caller's lanes times as many as each has */
    struct tti_tcp_stripe *stripe; /* the caller's lanes; NULL where each has one socket */
    int up;                        /* lanes that have their socket */
    size_t ready_have; /* connector: bytes of the acceptor's ready that came on lane 0 */
    uint8_t ready[TTI_TCP_READY_BYTES];
    bool connects;     /* this side connects: it has the lower rank */
    bool resumes;      /* lanes outlive their connections: tcp_resume.c */
    uint8_t seals;     /* how their streams are sealed: enum tti_tcp_seals */
    uint64_t id;       /* of the sockets that belong together; acceptor: 0 until the first came */
    uint64_t wake_ns;  /* the control plane has something to do at this time */
    uint64_t start_ns; /* when the next address may be tried */
    int candidates;
    int chosen; /* the candidate that won, -1 before; who is called finds it out after a loss */
    struct tti_tcp_candidate candidate[TTI_TCP_MAX_ADDRESSES];
    int attempts;
    struct tti_tcp_attempt *attempt; /* while connecting */
    uint64_t give_up_ns; /* connections lost in the making are made again until then; 0: none yet */
    struct tti_tcp_lane lane[];
};

/* An accepted connection that has not proved itself yet: tcp_accept.c. */
struct tti_tcp_guest {
    struct tti_tcp_talk talk;
    bool greeted; /* its hello was right; the go is next */
    struct tti_tcp_hello hello;
    unsigned cuts; /* RESUME: of its lane, when it was told how much of the stream is here */
    uint64_t deadline_ns;
};

/* A proven connection that waits for this side's connect, oldest first. */
struct tti_tcp_parked {
    struct tti_tcp_parked *next;
    int socket;
    struct tti_tcp_hello hello;
    struct tti_tcp_keys keys;
    char remote[TTI_TCP_TEXT_BYTES];
};

struct tti_tcp_transport {
    uint64_t job;
    uint8_t secret[TUTTI_SECRET_BYTES];
    int rank;
    char name[96]; /* "host:pid" */
    int nranks;
    int max_lanes;
    uint64_t host;
    struct tti_tcp_interface *interface; /* those we may use */
    size_t interfaces;
    struct tti_tcp_advert advert; /* ours */

    int epoll;
    int timer; /* fires at timer_ns; UINT64_MAX: not set */
    uint64_t timer_ns;
    int listener;
    struct tti_tcp_watch timer_watch;
    struct tti_tcp_watch listener_watch;
    bool control_due;  /* a listener, timer or talk event came in */
    bool accept_due;   /* the listener may have more */
    uint64_t retry_ns; /* accept failed for want of resources: again at this time */

    int guests;
    struct tti_tcp_guest *guest[TTI_TCP_MAX_GUESTS];
    struct tti_tcp_parked *parked;
    struct tti_tcp_endpoint *endpoint;
    int connecting;                      /* endpoints in that state */
    int cut;                             /* lanes whose connection is made again */
    char control[TTI_TCP_CONTROL_BYTES]; /* TUTTI_TCP_CONGESTION; "": the system's */
    int zero_copy;                       /* TUTTI_TCP_ZEROCOPY: enum tti_tcp_zero_mode */
    uint64_t zero_by; /* until when its lanes wait for the kernel as they end; 0: not all end yet */
    int resume;       /* TUTTI_TCP_RESUME: -1 between hosts, 0 never, 1 always */
    int *lingering;   /* sockets of ended endpoints whose data the peer may still have to read */
    size_t lingerings, lingering_room;

    /* ---- the hot path's policy: tcp.c ---- */
    int blocked;          /* lanes with something queued */
    unsigned empty_peeks; /* since the last progress */
    unsigned skipped;     /* progress calls since events were collected */
    bool direct;          /* peeks read their socket without being told to */
    bool collect;         /* collect events at the next progress, whatever the policy */
    uint64_t silence_ns;  /* when to look next whether a peer is cut off */
    bool news;            /* something a caller may wait for happened since the last arm */
};

/* What the caller knows of one of its lanes is kept with the lane's first socket. */
static inline struct tti_tcp_lane *tti_tcp_known(struct tti_tcp_endpoint *endpoint, int lane)
{
    return endpoint->stripe ? endpoint->stripe[lane].lane : &endpoint->lane[lane];
}

/* ---- tcp.c: events -------------------------------------------------------------------------- */

/* Watch a socket for all that happens to it, edge-triggered. */
enum tutti_result tti_tcp_watch_socket(struct tti_tcp_transport *transport, int socket,
                                       struct tti_tcp_watch *watch);
/* Before it is closed: a child between fork and exec may hold it open, and then it has events. */
void tti_tcp_unwatch_socket(struct tti_tcp_transport *transport, int socket);
/* Both, of a talk; nothing if it has no socket. */
void tti_tcp_hang_up(struct tti_tcp_transport *transport, struct tti_tcp_talk *talk);
/* Take what epoll has: mark lanes, flush queues, and run the control plane if it has something. */
void tti_tcp_collect(struct tti_tcp_transport *transport);
/* The next time at which the timer fires; UINT64_MAX: none. */
void tti_tcp_set_timer(struct tti_tcp_transport *transport, uint64_t wake_ns);
/* Move all connections under way, and set the timer for what cannot move yet. */
void tti_tcp_control(struct tti_tcp_transport *transport);

/* ---- tcp_sleep.c: the operations of plugin.h that have to do with it --------------------------
 */

uint64_t tti_tcp_released(void *endpoint, int lane);
enum tutti_result tti_tcp_abandoned(void *endpoint);
bool tti_tcp_arm(void *transport);
void tti_tcp_disarm(void *transport);

/* ---- tcp_accept.c: the side that is called --------------------------------------------------- */

/* Accept, talk, expire. Returns when it wants to be called again at the latest. */
uint64_t tti_tcp_accept_step(struct tti_tcp_transport *transport, uint64_t now);
/* Give parked sockets to the endpoints that wait for them. */
void tti_tcp_accept_match(struct tti_tcp_transport *transport);
void tti_tcp_accept_end(struct tti_tcp_transport *transport);

/* ---- tcp_connect.c: the side that calls ------------------------------------------------------ */

/* Work out the candidates and begin. */
enum tutti_result tti_tcp_connect_begin(struct tti_tcp_endpoint *endpoint);
void tti_tcp_connect_step(struct tti_tcp_endpoint *endpoint, uint64_t now);
void tti_tcp_connect_end(struct tti_tcp_endpoint *endpoint);
/* Both sides: one more lane has its socket. The last one makes the acceptor's endpoint CONNECTED
 * and tells the connector so. On failure the endpoint is FAILED and the socket closed. */
void tti_tcp_endpoint_lane_up(struct tti_tcp_endpoint *endpoint, int lane, int socket,
                              const char *remote, const struct tti_tcp_keys *keys);
/* The connection of a lane was lost before the acceptor's word that it is ready came (the lane's
 * receive_error says how): call again. False: this endpoint does not resume, or for too long. */
bool tti_tcp_connect_again(struct tti_tcp_endpoint *endpoint, int lane);
/* Connector, with all lanes up: CONNECTED once the acceptor has said that it is ready. */
void tti_tcp_endpoint_await_ready(struct tti_tcp_endpoint *endpoint);
/* Make FAILED of an endpoint, with the calling thread's last error. */
void tti_tcp_endpoint_fail(struct tti_tcp_endpoint *endpoint, enum tutti_result code);

/* ---- tcp_resume.c: lanes that go on over another connection -----------------------------------
 */

/* Move all lanes that are cut. Returns when it wants to be called again at the latest. */
uint64_t tti_tcp_resume_all(struct tti_tcp_transport *transport, uint64_t now);
/* The lane that a proven hello is for, cut if it was not, its stream's position final; NULL: gone.
 */
struct tti_tcp_lane *tti_tcp_resume_greet(struct tti_tcp_transport *transport,
                                          const struct tti_tcp_hello *hello);
/* The same lane when the go comes, if it still waits since that hello, with so many cuts; NULL: it
 * has gone on over another connection, and this one is of no use. */
struct tti_tcp_lane *tti_tcp_resume_greeted(struct tti_tcp_transport *transport,
                                            const struct tti_tcp_hello *hello, unsigned cuts);
/* The lane of a connected endpoint that a proven hello begins again, cut; NULL: there is none. */
struct tti_tcp_lane *tti_tcp_resume_anew(struct tti_tcp_transport *transport,
                                         const struct tti_tcp_hello *hello);
/* Go on over a socket (which it takes), from what the peer has `received`. */
void tti_tcp_resume_lane(struct tti_tcp_lane *lane, int socket, const char *remote,
                         const struct tti_tcp_keys *keys, uint64_t received);
/* Stop trying; any state. */
void tti_tcp_resume_end(struct tti_tcp_lane *lane);

/* ---- tcp_silence.c: the side that hears nothing ---------------------------------------------- */

/* End lanes on which nothing has been acknowledged for TTI_TCP_SILENCE_SECONDS, though much was
 * sent. Looks once a second, whatever often it is called. */
void tti_tcp_silence_look(struct tti_tcp_transport *transport);
/* Has the peer's kernel been asked several times, and said nothing for so long? */
bool tti_tcp_silence_cut(int socket, uint32_t seconds);

/* ---- tcp_close.c: letting go ------------------------------------------------------------------
 */

/* Flush all lanes, tell the peers, and wait until they have what was sent: `seconds` at most. */
void tti_tcp_drain(struct tti_tcp_transport *transport, double seconds);
/* End a lane without waiting; its socket stays open until the transport closes if the peer may not
 * have all of what was sent. */
void tti_tcp_let_go(struct tti_tcp_lane *lane);

#endif
