/* One local rank of a spawned job: its process and what it prints. For spawn.c. */
#ifndef TTI_LAUNCH_SPAWN_RANK_H
#define TTI_LAUNCH_SPAWN_RANK_H

#include "launch/spawn.h"
#include "launch/spawn_output.h"

#include <signal.h>
#include <sys/types.h>

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
    int master_port;    /* for what the ranks' program lets meet by itself, as PyTorch does */
    int meeting_port;   /* where communicators of all ranks meet; 0: at master_port */
    const char *secret; /* hexadecimal; NULL: as the environment says */
    const char *run_id;
    struct tti_spawn_output *output;
    int listen_fd; /* for rank 0, on meeting_port; -1 */
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

#endif
