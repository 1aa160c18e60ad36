/* One local rank of a spawned job: its process and what it prints. For spawn.c. */
#ifndef TTI_LAUNCH_SPAWN_RANK_H
#define TTI_LAUNCH_SPAWN_RANK_H

#include "launch/spawn.h"

#include <signal.h>
#include <sys/types.h>

enum { TTI_SPAWN_LAST_LINES = 20, TTI_SPAWN_LINE_BYTES = 8192 };

/* Where lines go: our stdout or stderr, or a log file. Nothing here waits for who reads it: what
 * does not go at once is kept, and no more is to be read from ranks for it until that is gone. */
struct tti_spawn_sink {
    int fd;
    bool owned; /* to be closed */
    bool waits; /* a write might: only what poll promises */
    bool gone;  /* nobody reads it any more, and what comes is dropped */
    char *rest;
    size_t capacity;
    size_t begin; /* the bytes [begin, end) of rest are still to go */
    size_t end;
    uint64_t moved; /* when it last took some, or rest began */
};

/* A pipe from the rank, cut into lines. */
struct tti_spawn_stream {
    int fd; /* -1: closed, or not captured */
    struct tti_spawn_sink *sink;
    struct tti_spawn_sink log; /* its own, where there are log files */
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
    struct tti_spawn_sink *out; /* stdout and stderr */
    struct tti_spawn_sink *err;
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

/* spawn_orphans.c: processes that descend from this one, but were there before the first rank, of a
 * program that became this one by an exec: `exec tuttirun ... 2> >(tee log)`. */
struct tti_spawn_elders {
    pid_t *pids;
    size_t count;
    size_t capacity;
};
enum tutti_result tti_spawn_elders_find(struct tti_spawn_elders *elders);
/* It has been waited for: its number may become another's. */
void tti_spawn_elders_forget(struct tti_spawn_elders *elders, pid_t pid);
/* Kill the children of this process that are no elders: once the ranks are gone, orphans that it
 * inherited from them. How many there were, zombies included. */
int tti_spawn_kill_orphans(const struct tti_spawn_elders *elders);

/* spawn_output.c */
/* A sink for a descriptor that stays the caller's. */
void tti_spawn_sink_open(struct tti_spawn_sink *sink, int fd);
void tti_spawn_sink_close(struct tti_spawn_sink *sink);
bool tti_spawn_sink_holds(const struct tti_spawn_sink *sink);
void tti_spawn_sink_put(struct tti_spawn_sink *sink, const char *text, size_t bytes);
/* What goes now of what is kept. */
void tti_spawn_sink_flush(struct tti_spawn_sink *sink);
/* Give up on who reads it. */
void tti_spawn_sink_drop(struct tti_spawn_sink *sink);

enum tutti_result tti_spawn_stream_open(struct tti_spawn_stream *stream,
                                        const struct tti_spawn_setup *setup, int rank, int standard,
                                        int *child_fd);
/* Read what is there and pass on the lines, unless the sink holds some. */
void tti_spawn_stream_read(struct tti_spawn_stream *stream);
/* Pass on a last line without an end, and close. */
void tti_spawn_stream_close(struct tti_spawn_stream *stream);

#endif
