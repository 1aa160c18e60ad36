/* The connections of a thread that listens: the bootstrap server's, and the desk's. Who has not
 * joined is bounded in number, time and bytes: the oldest stranger makes room for the newest. */
#ifndef TTI_LAUNCH_BOOT_CROWD_H
#define TTI_LAUNCH_BOOT_CROWD_H

#include "launch/boot_conn.h"

#include <poll.h>

/* Seconds for a handshake, and for last words. */
#define TTI_BOOT_HANDSHAKE_S 10.0

enum { TTI_BOOT_STRANGERS = 64 }; /* beside one for each rank */

/* Zero at first; only the thread uses it. */
struct tti_boot_crowd {
    struct tti_boot_conn **conns;
    size_t capacity;
    size_t count;
    struct pollfd *polls;
    size_t poll_capacity;
};

/* What the owner does with a connection that has something to say, or has ended. */
typedef void tti_boot_crowd_read(void *owner, struct tti_boot_conn *conn);

/* Wait until `next` for one of the `count` descriptors of the owner, whose events are in
 * crowd->polls[0 ..] afterwards (-1 is passed over), or a connection; then let the connections
 * speak. */
enum tutti_result tti_boot_crowd_turn(struct tti_boot_crowd *crowd, const int *fds, size_t count,
                                      uint64_t next, tti_boot_crowd_read *read, void *owner);
/* Let in who knocks at listen_fd; `door` goes into the connection. At most `most` who have not
 * joined. */
void tti_boot_crowd_accept(struct tti_boot_crowd *crowd, int listen_fd, uint64_t door, size_t most);
/* Drop who is late, forget who is gone; the next time to look, at most `next`. */
uint64_t tti_boot_crowd_sweep(struct tti_boot_crowd *crowd, uint64_t now, uint64_t next);
/* End all, and the memory. */
void tti_boot_crowd_end(struct tti_boot_crowd *crowd);

#endif
