/* fault: a transport that lets another one carry the bytes and misbehaves on the way, as
 * TUTTI_FAULT says (fault_settings.h) and by a seed that it logs. For tests, and for who wants to
 * see what a program does when its network fails:
 *
 *     TUTTI_TRANSPORT=fault TUTTI_FAULT=over=shm,rank=1,kill=500 tuttirun -n 4 ./program
 *
 * Chances are drawn for each lane from (seed, rank, peer, lane), so what happens to the k-th piece
 * of a lane does not depend on how threads are scheduled. Everything but death and standstill is
 * done by the receiver: to the library it looks as if the network had done it. */
#ifndef TTI_TRANSPORT_FAULT_H
#define TTI_TRANSPORT_FAULT_H

#include "transport/fault/fault_settings.h"
#include "tutti/plugin.h"

/* What was done, by one rank. */
struct fault_counts {
    uint64_t steps; /* pieces sent and received */
    uint64_t delayed, dropped, truncated, corrupted, forged, lost;
    bool stalled, died;
};

/* For tests whose ranks are threads. `die` takes the place of SIGKILL: the transport is dead when
 * it returns. `closing` is told what was done. Either may be NULL. Set while no communicator is. */
struct fault_hooks {
    void (*die)(int rank);
    void (*closing)(int rank, const struct fault_counts *counts);
};
void tti_fault_hooks(const struct fault_hooks *hooks);

/* ---- inside ---- */

enum fault_fate {
    FAULT_PASS = 0,
    FAULT_CORRUPT,
    FAULT_FORGE,
    FAULT_TRUNCATE,
};

struct fault_lane {
    uint64_t random;
    uint64_t accepted; /* bytes that the carrier took */
    uint64_t until;    /* nothing is shown before; 0: no such time */
    bool decided;      /* about what the carrier shows now: */
    enum fault_fate fate;
    uint64_t bit; /* ... the wrong one */
    size_t left;  /* ... bytes that are still shown before silence */
    bool silent;  /* from here on nothing is shown */
    void *copy;   /* where wrong bytes are shown */
    size_t copy_bytes;
};

struct fault_transport;

struct fault_endpoint {
    struct fault_endpoint *next;
    struct fault_transport *transport;
    void *inner;
    struct tutti_peer peer; /* as the carrier knows it */
    bool wanted;            /* the settings are about this peer */
    bool lost;
    uint64_t until; /* of all lanes */
    int lanes;
    struct fault_lane lane[];
};

struct fault_transport {
    const struct tutti_transport_env *env;
    const struct tutti_transport_ops *ops; /* of the carrier */
    void *inner;
    struct fault_settings settings;
    struct fault_counts counts;
    struct fault_endpoint *endpoints;
    bool mine;        /* this rank misbehaves */
    int epoll, timer; /* -1 where nothing is ever late */
};

extern const struct fault_hooks *tti_fault_hooked; /* never NULL */

/* fault_lane.c: the hot operations. */
enum tutti_result tti_fault_send(void *endpoint, int lane, uint64_t tag, const void *data,
                                 size_t bytes, size_t *accepted);
uint64_t tti_fault_released(void *endpoint, int lane);
enum tutti_result tti_fault_peek(void *endpoint, int lane, uint64_t *tag, const void **data,
                                 size_t *bytes);
enum tutti_result tti_fault_intact(void *endpoint, int lane);
enum tutti_result tti_fault_abandoned(void *endpoint);
void tti_fault_consume(void *endpoint, int lane, size_t bytes);
enum tutti_result tti_fault_receive(void *endpoint, int lane, uint64_t *tag, void *into,
                                    size_t bytes, size_t *taken);
/* When the first thing that is held back may be shown; 0: nothing is. */
uint64_t tti_fault_next(const struct fault_transport *self);

#endif
