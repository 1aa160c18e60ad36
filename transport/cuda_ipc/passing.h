/* Descriptors from ranks to ranks of a host, for memory of devices that goes by descriptor: a rank
 * opens a door (a local socket with an abstract name), tells all others where it is, and then all
 * give and take at once. Nothing stays open afterwards. Uses the messages of shm (channel.c). */
#ifndef TTI_TRANSPORT_CUDA_IPC_PASSING_H
#define TTI_TRANSPORT_CUDA_IPC_PASSING_H

#include "base/error.h"

#include <stdint.h>

/* Where a rank's door is, and what who knocks must know. Plain bytes, to be told to ranks alone. */
struct tti_passing_door {
    char name[48];
    uint8_t key[32];
};

/* Listen at a new door; *listener is the caller's. */
enum tutti_result tti_passing_open(struct tti_passing_door *door, int *listener);

/* One rank's part in an exchange among `count` ranks, in which all take part. */
struct tti_passing {
    int self, count;
    int listener; /* of the own door */
    const struct tti_passing_door *doors;
    const int *give; /* by rank: for it; -1: nothing */
    int *take;       /* by rank: -1, where one comes; anything else: none is expected. Filled in */
};

/* May block until the deadline. After a failure, nothing was taken. The descriptors of `give` stay
 * the caller's, those of `take` become it. PEER: a rank did not come to the door. */
enum tutti_result tti_passing_exchange(const struct tti_passing *p, uint64_t deadline);

#endif
