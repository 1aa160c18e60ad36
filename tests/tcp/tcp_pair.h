/* Two ranks of the TCP transport in one process, driven by one thread. */
#ifndef TTI_TESTS_TCP_PAIR_H
#define TTI_TESTS_TCP_PAIR_H

#include "tutti/plugin.h"

extern const struct tutti_transport_ops tti_tcp_ops;

enum { PAIR_LANES = 2 };

struct tcp_pair {
    uint8_t secret[2][TUTTI_SECRET_BYTES];
    void *transport[2];
    void *endpoint[2];
    uint16_t port[2];
    struct tutti_peer peer[2];
    uint8_t address[2][TUTTI_ADDRESS_BYTES];
};

/* Open both and exchange addresses; secrets and jobs as given. Asserts. */
void tcp_pair_open(struct tcp_pair *pair, uint8_t secret_0, uint8_t secret_1, uint64_t job_0,
                   uint64_t job_1);
/* connect on both sides and advance until both are OK, one fails, or `seconds` are over; returns
 * what rank 0 got last. */
enum tutti_result tcp_pair_connect(struct tcp_pair *pair, double seconds);
/* Rank 0 sends `bytes` of a pattern on lane 1; rank 1 checks them. `meanwhile` (may be NULL) is
 * called now and then. */
void tcp_pair_stream(struct tcp_pair *pair, size_t bytes, void (*meanwhile)(struct tcp_pair *));
void tcp_pair_close(struct tcp_pair *pair);

#endif
