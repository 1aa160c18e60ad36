/* One local rank of a spawned job: its process and what it prints. For spawn.c. */
#ifndef TTI_LAUNCH_SPAWN_RANK_H
#define TTI_LAUNCH_SPAWN_RANK_H

#include "launch/spawn.h"

#include <signal.h>
#include <sys/types.h>

enum { TTI_SPAWN_LAST_LINES = 20, TTI_SPAWN_LINE_BYTES = 8192 };

/* A pipe from the rank, cut into lines. */
struct tti_spawn_stream {
    int fd;     /* -1: closed, or not captured */
    int target; /* where the lines go: our stdout or stderr, or a log file (owned) */
    bool owned;
    char prefix[24];
    size_t used;
    char line[TTI_SPAWN_LINE_BYTES];
    char *last[TTI_SPAWN_LAST_LINES]; /* ring of the last lines, kept for stderr */
    size_t last_count;                /* lines seen */
    bool keep;
};

struct tti_spawn_rank {
    int rank;
    pid_t pid; /* 0: not running */
    int status;
    struct tti_spawn_stream out;
    struct tti_spawn_stream err;
};

/* What the children of one round share. */
struct tti_spawn_setup {
    const struct tti_spawn *spawn;
    int restarts;
    const char *master_addr;
    int master_port;
    const char *secret; /* hexadecimal; NULL: as the environment says */
    const char *run_id;
    int listen_fd; /* for rank 0; -1 */
    sigset_t mask; /* the signal mask and SIGPIPE's action that children start with */
    struct sigaction on_pipe;
};

/* spawn_rank.c. *missing is errno of an exec that failed (then the result is OK and no process
 * runs). */
enum tutti_result tti_spawn_rank_start(struct tti_spawn_rank *rank,
                                       const struct tti_spawn_setup *setup, int local_rank,
                                       int *missing);
/* Close pipes and files, forget lines. The process must be gone. */
void tti_spawn_rank_clear(struct tti_spawn_rank *rank);
/* Kill children of this process that it did not start: orphans that it inherited. */
void tti_spawn_kill_orphans(void);

/* spawn_output.c */
enum tutti_result tti_spawn_stream_open(struct tti_spawn_stream *stream,
                                        const struct tti_spawn_setup *setup, int rank, int standard,
                                        int *child_fd);
/* Read what is there and pass on the lines; false when our reader is gone (EPIPE). */
bool tti_spawn_stream_read(struct tti_spawn_stream *stream);
/* Pass on a last line without an end, and close. */
bool tti_spawn_stream_close(struct tti_spawn_stream *stream);
/* All bytes to a descriptor that may be non-blocking; false for EPIPE. */
bool tti_spawn_write(int fd, const char *text, size_t bytes);

#endif
