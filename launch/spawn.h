/* Starting local ranks and minding them: what tuttirun and `allreduce_bench --ranks` share.
 *
 * Children get torchrun's variables (RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR,
 * MASTER_PORT, ...), the job's secret, and rank 0 the listening socket where there is one. They die
 * with their parent (PR_SET_PDEATHSIG). */
#ifndef TTI_LAUNCH_SPAWN_H
#define TTI_LAUNCH_SPAWN_H

#include "base/error.h"
#include "launch/boot.h"

#include <sched.h>

struct tti_spawn {
    char *const *argv; /* NULL-terminated; argv[0] is looked up in PATH */
    int nproc;         /* ranks on this host */
    int nnodes;        /* hosts */
    int node_rank;
    const char *master_addr; /* NULL: 127.0.0.1, standalone */
    int master_port;         /* 0: any free one (standalone only) */
    int max_restarts;
    bool elastic; /* a rank that fails does not end the others; the job is well if one ends well */
    const char *log_dir;   /* NULL: output is passed on */
    bool prefix;           /* put "[rank] " before each line of the ranks' output */
    const char *program;   /* "tuttirun", before the launcher's own messages */
    double grace_s;        /* between SIGTERM and SIGKILL when the job is ended; 0: 5 s */
    const cpu_set_t *cpus; /* of each of the nproc ranks, where it runs; NULL: anywhere */
};

/* Run the job to its end; returns the exit status for the launcher: 0, or the first failing rank's
 * status (128 + signal for a death by signal). Forwards SIGINT, SIGTERM, SIGHUP, SIGUSR1 and
 * SIGUSR2. When a rank fails the others are ended, and the failure is the last thing printed on
 * stderr, with that rank's last lines. Nothing is left running but children that the process had
 * before. Output waits for who reads it; once a signal has told the job to end, 2 s. A restart that
 * was announced, and waits for the reader, is taken back by such a signal, with a line that says
 * so. */
enum tutti_result tti_spawn_run(const struct tti_spawn *spawn, int *status);

#endif
