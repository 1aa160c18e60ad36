/* How fast two cores tell each other something: what no collective among them can beat. */
#ifndef BENCH_COMPARE_FLIGHT_H
#define BENCH_COMPARE_FLIGHT_H

#include "bench/compare/peer_sweep.h"

/* A cache line from one core to another, one way: half of a round trip. Prints {"hop_ns": ...}. */
int flight_hop(int cores);

/* Two cores, each telling the other that it has begun: no operation in which each needs something
 * of the other takes less. Prints the same row for every size of the options. */
int flight_exchange(int cores, const struct peer_options *options);

#endif
