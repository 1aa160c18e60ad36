/* What two ranks of one process share: a ring of fragments for each lane and direction, and a bell
 * for each side. Connections are found by (job, lower rank, higher rank) in a table of the process.
 *
 * Who writes what: the producer of a ring writes `sent` and the slots from consumed + SLOTS on; the
 * consumer writes `consumed`. Everything else is set under the table's lock before `joined`. */
#ifndef TTI_TRANSPORT_INPROC_CONNECTION_H
#define TTI_TRANSPORT_INPROC_CONNECTION_H

#include "base/atomic.h"
#include "base/error.h"
#include "tutti/plugin.h"

enum {
    INPROC_SLOTS = 64, /* fragments under way, a power of two */
    INPROC_COPY = 128, /* fragments up to this size are copied: their memory is free at once */
};

struct inproc_fragment {
    uint64_t tag;
    const void *data; /* the sender's memory, or `copy` */
    size_t bytes;
    char copy[INPROC_COPY];
};

struct inproc_ring {
    _Alignas(TTI_CACHE_LINE) _Atomic uint64_t sent;     /* fragments published so far */
    _Alignas(TTI_CACHE_LINE) _Atomic uint64_t consumed; /* fragments handed back so far */
    _Alignas(TTI_CACHE_LINE) struct inproc_fragment slots[INPROC_SLOTS];
};

/* Wakes one transport. Lives until the last holder drops it, as peers may ring it late. */
struct inproc_bell {
    _Atomic uint64_t sleeping;
    _Atomic uint64_t holders;
    int fd; /* eventfd */
};

enum inproc_left {
    INPROC_THERE = 0,
    INPROC_LEFT = 1, /* closed; whatever is unread stays readable */
    INPROC_CUT = 2,  /* closed with fragments unread whose memory is gone */
};

/* Sides: 0 is the lower rank, 1 the higher. rings[side * lanes + lane] carries what that side
 * sends. */
struct inproc_connection {
    struct inproc_connection *next; /* in the table, while both sides are not there yet */
    uint64_t job;
    int ranks[2];
    int lanes;
    int holders; /* under the table's lock */
    uint8_t secret[TUTTI_SECRET_BYTES];
    struct inproc_bell *bell[2];
    _Atomic uint64_t joined[2];
    _Atomic uint64_t left[2]; /* enum inproc_left */
    struct inproc_ring *rings;
    _Atomic uint64_t withdrawn[2]; /* the other side must not map this side's memory any more */
    struct {
        _Alignas(TTI_CACHE_LINE) _Atomic uint64_t held; /* this side uses the other's memory now */
    } hold[2];
};

enum tutti_result tti_inproc_bell_create(struct inproc_bell **bell);
void tti_inproc_bell_drop(struct inproc_bell *bell);
/* After publishing something: wake the bell's owner if it sleeps. */
void tti_inproc_bell_ring(struct inproc_bell *bell);

/* Find or make the connection of `env` with `peer` and join it as the side that the ranks give.
 * Errors: MEMORY, PROTOCOL (the other side has another secret or another number of lanes). */
enum tutti_result tti_inproc_connection_join(const struct tutti_transport_env *env, int peer,
                                             int lanes, struct inproc_bell *bell,
                                             struct inproc_connection **connection);
/* Say how `side` leaves, wake the other side, and let go. */
void tti_inproc_connection_leave(struct inproc_connection *connection, int side,
                                 enum inproc_left how);

#endif
