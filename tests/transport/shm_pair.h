/* Two shm transports in one thread, connected; the tests reach into rank 1 to play a hostile peer.
 */
#ifndef TTI_TESTS_TRANSPORT_SHM_PAIR_H
#define TTI_TESTS_TRANSPORT_SHM_PAIR_H

#include "device/cpu_caches.h"
#include "transport/shm/shm.h"

struct shm_pair {
    struct tutti_transport_env env[2];
    void *transport[2];
    struct tutti_peer peer[2];
    uint8_t address[2][TUTTI_ADDRESS_BYTES];
    void *endpoint[2];
    int lanes; /* 1 when opened; may be changed until they are connected */
};

/* The table of shm, and the secret of every pair. */
const struct tutti_transport_ops *shm_pair_ops(void);
extern const uint8_t shm_pair_secret[TUTTI_SECRET_BYTES];

/* Abort when something fails that has no reason to. */
void shm_pair_open(struct shm_pair *pair);
void shm_pair_connect(struct shm_pair *pair);
void shm_pair_close(struct shm_pair *pair);

/* The bytes beside a line that a pair should have on this processor. */
static inline size_t shm_pair_tail(void)
{
    const enum tti_cpu_kind kind = tti_cpu_kind();
    return kind == TTI_CPU_CLUSTERS || kind == TTI_CPU_FIRST_CLUSTERS ? SHM_TAIL_BYTES
                                                                      : SHM_TAIL_LEAST;
}

#endif
