/* Connections to peers, made when a plan first needs them, and the queues of sends on them. */
#ifndef TTI_COLL_LINKS_H
#define TTI_COLL_LINKS_H

#include "coll/operation.h"
#include "coll/peers.h"

struct tti_send_record;

/* Sends on one lane of one link, oldest first; a plan's sends are handed to the transport in this
 * order. */
struct tti_send_queue {
    struct tti_send_record *head, *tail;
    uint64_t accepted; /* bytes that the transport took since the connection was made */
    struct tti_send_queue *next_active; /* list of queues with work, kept by the executor */
    struct tti_link *link;
    int lane;
    bool active;
};

enum { TTI_FIRST_NETWORK_RANK = 30 }; /* of transports: those below are memory (plugin.h) */

struct tti_link {
    int peer;
    const struct tutti_transport_ops *ops;
    void *endpoint; /* NULL: not begun */
    bool connected;
    tti_transport_await *await;         /* the transport's, or NULL */
    tti_transport_intact *intact;       /* the transport's, or NULL */
    tti_transport_abandoned *abandoned; /* the same */
    tti_transport_send *lend;           /* the transport's, or its send */
    size_t copies; /* fragments up to so many bytes are copied when they are accepted */
    /* Operations so far (tutti_send, tutti_recv), which numbers them; those that have tags. */
    uint64_t sends, receives;
    uint64_t tagged_sends, tagged_receives;
    uint64_t posts, waits; /* puts and signals to the peer, waits for its signals (window.h) */
    struct tti_send_queue queues[TUTTI_MAX_LANES];
};

struct tti_links {
    struct tti_link *all; /* by peer */
    int size;
    int lanes;
};

struct tutti_comm;

/* Is the link a piece of memory, and no network's? */
static inline bool tti_link_in_memory(const struct tti_link *link)
{
    return link->ops->rank < TTI_FIRST_NETWORK_RANK;
}

/* Were the bytes that peek has shown what was sent, now that they are used? */
static inline enum tutti_result tti_link_intact(const struct tti_link *link, int lane)
{
    return link->intact ? link->intact(link->endpoint, lane) : TUTTI_OK;
}

enum tutti_result tti_links_create(struct tti_links *links, int size, int lanes);
void tti_links_destroy(struct tti_links *links);

/* End all connections with their transports (which flush, at most a second each): no peer reads or
 * writes this rank's memory any more. */
void tti_links_end(struct tutti_comm *comm);

/* Connect to every one of `peers` (the own rank is skipped) that is not connected yet, by
 * `deadline`. Each of them does the same at its side. `label` names the operation in errors. */
enum tutti_result tti_links_connect(struct tutti_comm *comm, const int *peers, int count,
                                    uint64_t deadline, const struct tti_label *label);

/* The same in parts, for who has something to do meanwhile: begin and go on; *waiting counts those
 * that are not connected yet. And what to say when the deadline has passed. */
enum tutti_result tti_links_advance(struct tutti_comm *comm, const int *peers, int count,
                                    int *waiting);
enum tutti_result tti_links_timeout(struct tutti_comm *comm, const int *peers, int count,
                                    const struct tti_label *label);

/* Has a peer left, or been lost, that has yet to take what it was sent? Then the communicator is
 * failed. For who waits; what a peer has to say itself is told by peek. */
enum tutti_result tti_links_abandoned(struct tutti_comm *comm);

/* Let all transports of the communicator move. */
enum tutti_result tti_links_progress(struct tutti_comm *comm);

/* Sleep until something may have happened on any transport, the bootstrap or the communicator's
 * wake_fd, at most `most_ms`. */
void tti_links_sleep(struct tutti_comm *comm, int most_ms);

#endif
