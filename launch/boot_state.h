/* The ranks' end of the bootstrap, inside: what boot.c and boot_watch.c share. */
#ifndef TTI_LAUNCH_BOOT_STATE_H
#define TTI_LAUNCH_BOOT_STATE_H

#include "launch/boot_server.h"

#include <pthread.h>
#include <stdatomic.h>

struct tti_boot {
    int rank;
    int size;
    int fd; /* -1: one rank */
    struct tti_boot_server *server;
    const char *const *names;
    bool *left;     /* by rank: said goodbye */
    bool *dead;     /* by rank: its death was told; in the memory of `left` */
    int first_left; /* the first of them; -1 */

    pthread_mutex_t send_lock; /* whole frames only; guards `broken` */
    bool broken;               /* a frame went out in part: nothing may follow */
    atomic_bool notified;

    /* From here on under `lock`: whoever is at hand receives. */
    pthread_mutex_t lock;
    struct tti_error failure;
    int failure_rank;
    bool failed;

    uint8_t header[TTI_BOOT_HEADER_BYTES];
    size_t header_have;
    struct tti_boot_frame frame;
    size_t body_have;
    char text[TTI_BOOT_TEXT_BYTES];
    bool started;
    bool ended;        /* nothing comes any more */
    bool asked;        /* a report is owed */
    uint64_t asked_ns; /* since when; 0: it was never asked */
    uint32_t round;
    char *gather_to; /* where GATHERED of this round goes; NULL when nobody waits for it */
    size_t gather_bytes;

    /* boot_watch.c */
    struct tti_boot_watch watch;
    _Atomic bool watching; /* `watch` is complete */
    bool thread_runs;
    int stop_fd; /* -1 */
    pthread_t thread;
};

/* Take in what is there, under the lock; never blocks. Owes a report afterwards if asked for one:
 * tti_boot_answer. */
void tti_boot_turn(struct tti_boot *boot);
/* Send the report that is owed, if one is. */
void tti_boot_answer(struct tti_boot *boot);
/* A whole frame, by the deadline; any thread. */
enum tutti_result tti_boot_send(struct tti_boot *boot, const struct tti_boot_frame *frame,
                                const void *body, uint64_t deadline);
/* End the thread, if there is one. */
void tti_boot_watch_stop(struct tti_boot *boot);

#endif
