/* What the fault transport is to do: TUTTI_FAULT, a comma list of NAME=VALUE.
 *
 *     over=NAME       the transport that carries the bytes: inproc, shm, rdma or tcp (required)
 *     seed=N          of all chances; drawn and logged when it is not given
 *     rank=R          only this rank misbehaves (default: all)
 *     peer=R          ... and only towards this peer
 *     delay=P:MS      a fragment comes up to MS milliseconds late, with everything of its peer
 *     reorder=P:MS    the same, but other lanes overtake it
 *     drop=P          a fragment and all that follow it on the lane are never delivered
 *     truncate=P      the same, but its first bytes are
 *     corrupt=P       a bit of a fragment's bytes is wrong
 *     forge=P         a bit of a fragment's tag is wrong
 *     lose=P          the connection is lost when a fragment arrives: both sides get an error
 *     stall=K         from the K-th fragment on (sent or received, of all peers) the rank is deaf
 *                     and dumb
 *     kill=K          at its K-th fragment the rank dies (SIGKILL, or what a test puts there)
 *
 * P is a chance from 0 to 1 for each fragment received; MS up to 60000; K and N whole numbers. */
#ifndef TTI_TRANSPORT_FAULT_SETTINGS_H
#define TTI_TRANSPORT_FAULT_SETTINGS_H

#include "base/error.h"

#include <stdbool.h>

enum { FAULT_OVER_BYTES = 32, FAULT_MOST_MS = 60000 };

struct fault_settings {
    char over[FAULT_OVER_BYTES];
    bool seeded;
    uint64_t seed;
    int rank, peer; /* -1: any */
    double delay, reorder, drop, truncate, corrupt, forge, lose;
    double delay_ms, reorder_ms;
    uint64_t stall, kill; /* 0: never */
};

/* Errors: ARGUMENT, naming the variable, the item and what may stand there. */
enum tutti_result tti_fault_settings_parse(const char *text, struct fault_settings *settings);

#endif
