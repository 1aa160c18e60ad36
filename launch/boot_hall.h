/* The bootstrap server's state, and what it does with what the ranks say: let in, gather, relay.
 * The thread and its poll loop around it are in boot_server.c. Everything here runs on that thread.
 */
#ifndef TTI_LAUNCH_BOOT_HALL_H
#define TTI_LAUNCH_BOOT_HALL_H

#include "launch/boot_crowd.h"
#include "launch/boot_socket.h"

#include <pthread.h>
#include <stdatomic.h>

/* How long a failed join is told to latecomers: more than they pause between attempts. */
#define TTI_BOOT_STAY_S 0.5

struct tti_boot_server {
    pthread_t thread;
    int wake_fd;
    struct sockaddr_storage own;
    socklen_t own_bytes;
    char where[TTI_SOCKET_TEXT_BYTES];
    uint16_t port;
    _Atomic uint64_t leave_by;                    /* 0 until the owner wants the thread to end */
    _Atomic(const struct tti_boot_watch *) watch; /* rank 0's; NULL at first */
    struct tti_boot_held held;                    /* frames for ranks, until all have been sent */

    /* From here on the thread's own. */
    int listen_fd;
    int size;
    uint8_t secret[TTI_SECRET_BYTES];
    uint64_t join_by;
    uint32_t join_ms; /* how long the rank that waits no longer than join_by has waited in all */
    bool started;     /* all were there */
    bool failed;      /* all were told of a failure, and this is it */
    uint64_t stay_by; /* do not end before: for those who are still on their way to hear it */
    struct tti_boot_frame failure;
    char failure_text[TTI_BOOT_TEXT_BYTES];
    bool *joined; /* by rank: was there once */
    bool *come;   /* by rank: has given its blob in this round */
    int joined_count;
    int come_count;
    uint32_t round;
    struct tti_boot_blob *gathered; /* of this round, from the first blob on */
    size_t round_bytes;
    uint64_t round_by;
    uint32_t round_ms;
    /* While ranks are asked what they are doing; reports NULL otherwise. */
    struct tti_boot_report *reports; /* by rank */
    bool *left;                      /* by rank: said goodbye */
    int asker;
    enum tutti_result ask_code;
    char ask_text[TTI_BOOT_TEXT_BYTES + 1];
    uint64_t answer_by;
    struct tti_boot_crowd crowd;
};

/* Read what the connection has to say, and act on it. */
void tti_boot_hall_read(struct tti_boot_server *s, struct tti_boot_conn *conn);
/* A failure that concerns everybody; `rank` is whom it is about. */
void tti_boot_hall_fail(struct tti_boot_server *s, int rank, enum tutti_result code,
                        const char *text);
/* ---- boot_ask.c ---- */

/* A rank asks; a rank begins to report, and has. */
void tti_boot_hall_ask(struct tti_boot_server *s, const struct tti_boot_conn *conn);
bool tti_boot_hall_report_begin(struct tti_boot_server *s, struct tti_boot_conn *conn);
void tti_boot_hall_report_end(struct tti_boot_server *s, const struct tti_boot_conn *conn);
/* Tell all what the reports that have come make together. */
void tti_boot_hall_verdict(struct tti_boot_server *s);
/* Drop the reports. */
void tti_boot_hall_forget(struct tti_boot_server *s);

/* To every rank that is there, but `except`. */
void tti_boot_hall_tell(struct tti_boot_server *s, const struct tti_boot_frame *frame,
                        const void *body, int except);

/* Stop listening. */
void tti_boot_hall_close_door(struct tti_boot_server *s);

#endif
