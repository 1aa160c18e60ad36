/* The engine of the traffic checks: verified messages between this rank and its peers, in both
 * directions and on several lanes at once.
 *
 * Sizes, tags and bytes follow from (sender, receiver, lane, message), so both sides know them. The
 * sender overwrites a buffer as soon as `released` says that it may: a transport that releases too
 * early delivers wrong bytes. Every rule of plugin.h about numbers is checked on the way. */
#ifndef TTI_TESTS_CONFORMANCE_EXCHANGE_H
#define TTI_TESTS_CONFORMANCE_EXCHANGE_H

#include "tests/conformance/conformance.h"

enum conf_how {
    CONF_RECEIVE = 1,  /* take with `receive` instead of peek and consume */
    CONF_PARTIAL = 2,  /* peek twice, consume a part */
    CONF_RESERVE = 4,  /* send with reserve and commit */
    CONF_SLEEP = 8,    /* sleep when there is nothing to do, else yield */
    CONF_SLOW = 16,    /* take only now and then */
    CONF_REGION = 32,  /* send from library-allocated memory */
    CONF_ONE_WAY = 64, /* only rank 0 sends */
    CONF_LEND = 128,   /* now and then with `lend` instead of send */
};

struct conf_traffic {
    int messages; /* per lane and direction */
    int lanes;
    int buffers;    /* messages under way per lane, 1..4 */
    size_t largest; /* bytes of the largest message */
    size_t skew;    /* start of buffers, beyond 64-byte alignment */
    unsigned how;   /* enum conf_how */
    /* Bytes of a message, 1..largest. */
    size_t (*size)(uint64_t random, int message);
};

/* With all peers that are connected; returns when both sides have everything. */
void conf_exchange(struct conf_rank *me, const struct conf_traffic *traffic);

/* Bytes [offset, offset + bytes) of the message with this tag: write them, compare them (returns
 * the first wrong offset, or SIZE_MAX). */
void conf_fill(uint64_t tag, size_t offset, void *data, size_t bytes);
size_t conf_compare(uint64_t tag, size_t offset, const void *data, size_t bytes);

/* One message on one lane, waiting as needed. Accepted is not released: the memory must stay as it
 * is until the peer has taken the message. */
void conf_send_message(struct conf_rank *me, int peer, int lane, uint64_t tag, void *data,
                       size_t bytes);
void conf_take_message(struct conf_rank *me, int peer, int lane, uint64_t tag, size_t bytes);
/* The same, but false when the transport says that the peer has gone before all of it came. */
bool conf_take_unless_gone(struct conf_rank *me, int peer, int lane, uint64_t tag, size_t bytes);

#endif
