/* Somebody on the wire between two ranks of one process (tcp_pair.h): relays what the sockets of
 * rank 0 and rank 1 say to each other, keeps a copy, and alters it as told. */
#ifndef TTI_TESTS_TCP_BETWEEN_H
#define TTI_TESTS_TCP_BETWEEN_H

#include "tests/tcp/tcp_pair.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    BETWEEN_SOCKETS = 64,
    BETWEEN_CAPTURE = 4 << 20,
    BETWEEN_HANDSHAKE = 120, /* bytes that the connector says in one */
};

struct tcp_between {
    uint16_t port, to;
    int listener;
    int socket[2 * BETWEEN_SOCKETS]; /* 2k: rank 0's k-th, 2k + 1: its other end */
    int sockets;
    uint64_t passed; /* bytes that rank 0 said after its handshakes */
    pthread_t thread;
    atomic_bool stop;

    /* Of the bytes that rank 0 says behind its handshakes: */
    uint64_t flip_every;             /* every so many of them one has a wrong bit; 0: none */
    unsigned flips;                  /* this often at most */
    uint64_t repeat_from, repeat_to; /* these are said twice */

    atomic_bool holds;      /* of what rank 0 says, from now on only ... */
    atomic_size_t may_pass; /* ... so many bytes go on, until it no longer holds */

    unsigned cut_which; /* bit k: the k-th connection is reset ... */
    uint64_t cut_after; /* ... when so many bytes have passed, of both sides */
    uint64_t went[BETWEEN_SOCKETS];
    atomic_uint cut;

    uint8_t *capture; /* the first BETWEEN_CAPTURE bytes in both directions */
    atomic_size_t captured;
    atomic_uint flipped, repeated;
};

/* Between the ranks of an opened pair that has not connected yet. Asserts. */
void tcp_between_begin(struct tcp_between *between, struct tcp_pair *pair);
void tcp_between_end(struct tcp_between *between);
/* Do these bytes occur in what was captured? */
bool tcp_between_saw(const struct tcp_between *between, const void *bytes, size_t count);

#endif
