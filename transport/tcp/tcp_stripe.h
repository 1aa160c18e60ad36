/* A lane over several sockets (TUTTI_TCP_SOCKETS): for lines of which one connection gets only a
 * part, because a cloud limits each flow, a switch spreads flows over links, or a window is smaller
 * than the path.
 *
 * Each socket is a struct tti_tcp_lane, with a stream, acknowledgements, seal and resumption of its
 * own. A stripe sends fragment after fragment by one of them until it has carried
 * TTI_TCP_STRIPE_TURN bytes, then by the next, round and round; the receiver counts the same bytes
 * and so knows from which socket the next fragment comes. Nothing on the wire says it, and no
 * fragment waits in memory for one that overtook it: what comes early waits in its socket.
 *
 * Taking turns gives every socket the same share, so a slow one slows the lane. Numbered fragments
 * sent by whoever has room would not; but then what comes early must be stored, and would land in
 * the caller's memory at the wrong place before its number is read. */
#ifndef TTI_TRANSPORT_TCP_STRIPE_H
#define TTI_TRANSPORT_TCP_STRIPE_H

#include "transport/tcp/tcp_lane.h"

enum {
    TTI_TCP_STRIPE_TURN = 64 * 1024,
    TTI_TCP_STRIPE_MOST = 128 * 1024, /* bytes of a fragment: large ones go by several sockets */
    TTI_TCP_STRIPE_RUNS = TTI_TCP_MAX_SOCKETS * TTI_TCP_MAX_PIECES,
};

/* Bytes of the lane that went by one socket, one after another. */
struct tti_tcp_run {
    uint64_t from; /* of what that socket accepted */
    uint64_t bytes;
    unsigned socket;
};

struct tti_tcp_stripe {
    struct tti_tcp_lane *lane; /* `sockets` of them */
    unsigned sockets;
    unsigned to, from;    /* whose turn it is to send, and to be received from */
    uint64_t sent, taken; /* in that turn */
    uint64_t done;        /* bytes of runs that are released and forgotten */
    unsigned head, runs;  /* those that are not */
    struct tti_tcp_run run[TTI_TCP_STRIPE_RUNS];
};

/* The operations of plugin.h, as those of tcp_lane.h. */
enum tutti_result tti_tcp_stripe_send(struct tti_tcp_stripe *stripe, uint64_t tag,
                                      const uint8_t *data, size_t bytes, size_t *accepted);
uint64_t tti_tcp_stripe_released(struct tti_tcp_stripe *stripe);
/* Room for another fragment? */
bool tti_tcp_stripe_room(struct tti_tcp_stripe *stripe);
enum tutti_result tti_tcp_stripe_peek(struct tti_tcp_stripe *stripe, bool may_read, uint64_t *tag,
                                      const void **data, size_t *bytes);
void tti_tcp_stripe_consume(struct tti_tcp_stripe *stripe, size_t bytes);
enum tutti_result tti_tcp_stripe_receive(struct tti_tcp_stripe *stripe, bool may_read,
                                         uint64_t *tag, uint8_t *into, size_t bytes, size_t *taken);

#endif
