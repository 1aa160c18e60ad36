/* Sending without a copy into the kernel (TUTTI_TCP_ZEROCOPY): MSG_ZEROCOPY.
 *
 * The kernel then keeps the pages of what it was given, and says on the socket's error queue when
 * it needs them no more: when the peer's kernel has acknowledged them. Until then those bytes stay
 * queued (tcp_queue.c) and are not the caller's, header and copies in the lane's ring included.
 *
 * Where bytes cannot leave without a copy (loopback, virtual cables) the kernel makes one after
 * all, later, and says so; a connection that hears that again and again stops asking.
 *
 * A connection that is given up while the kernel has pages is reset: it must not send what the
 * caller writes into its memory next. */
#ifndef TTI_TRANSPORT_TCP_ZERO_H
#define TTI_TRANSPORT_TCP_ZERO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TTI_TCP_ZERO_BYTES = 32 * 1024, /* the least that is worth the bookkeeping */
    TTI_TCP_ZERO_CALLS = 64,        /* under way: a power of two */
};

/* TUTTI_TCP_ZEROCOPY. */
enum tti_tcp_zero_mode {
    TTI_TCP_ZERO_NEVER = 0,
    TTI_TCP_ZERO_WHERE_IT_WORKS = 1,
    TTI_TCP_ZERO_ALWAYS = 2, /* also where the kernel copies: to measure and to test */
};

struct tti_tcp_lane;

/* Of one socket. Calls are numbered as the kernel numbers them. */
struct tti_tcp_zero {
    uint32_t first, next; /* the oldest that has not ended, and the next one's number */
    unsigned copied;      /* so many in a row were copied after all */
    bool always, off;
    bool ended[TTI_TCP_ZERO_CALLS];
    uint64_t from[TTI_TCP_ZERO_CALLS]; /* position in the stream of the call's first byte */
};

/* For a new socket of the lane, where the setting and the kernel allow it. */
void tti_tcp_zero_begin(struct tti_tcp_lane *lane);
/* Should a call with so many bytes be one without a copy? */
bool tti_tcp_zero_wants(const struct tti_tcp_lane *lane, size_t bytes);
/* Such a call has begun to send at this position of the stream. */
void tti_tcp_zero_note(struct tti_tcp_lane *lane, uint64_t from);
/* Take what the kernel has to say. */
void tti_tcp_zero_reap(struct tti_tcp_lane *lane);
/* `position`, or where the bytes begin that the kernel still has. */
uint64_t tti_tcp_zero_hold(const struct tti_tcp_lane *lane, uint64_t position);
/* The socket is given up, and what was sent over it is the caller's memory from here on: wait so
 * long for the kernel to be through, then make it forget the rest. */
void tti_tcp_zero_end(struct tti_tcp_lane *lane, int wait_ms);

#endif
