/* Starting one local rank (launch/spawn_rank.h).
 *
 * Each rank leads a process group of its own, so that its helpers can be ended with it, and dies
 * with this process (PR_SET_PDEATHSIG). Everything that the child needs is made before the fork;
 * between fork and exec it only makes system calls. */
#include "launch/spawn_rank.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANK_VARIABLES = 24 };

/* Our variables, in front of those of this process that they do not replace. */
struct rank_environment {
    char text[RANK_VARIABLES][320];
    int count;
    char **list;
};

static void rank_set(struct rank_environment *own, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void rank_set(struct rank_environment *own, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(own->text[own->count], sizeof own->text[0], format, args);
    va_end(args);
    own->count++;
}

static bool rank_replaces(const struct rank_environment *own, const char *variable)
{
    /* Not set for all; never inherited from an outer launcher. */
    if (strncmp(variable, "TUTTI_LISTEN_FD=", 16) == 0 ||
        strncmp(variable, "TUTTI_MEETING=", 14) == 0)
        return true;
    for (int i = 0; i < own->count; i++) {
        size_t name = strcspn(own->text[i], "=") + 1;
        if (strncmp(own->text[i], variable, name) == 0)
            return true;
    }
    return false;
}

static enum tutti_result rank_environment_fill(struct rank_environment *own,
                                               const struct tti_spawn_setup *setup, int local_rank)
{
    const struct tti_spawn *spawn = setup->spawn;
    int rank = spawn->node_rank * spawn->nproc + local_rank;
    rank_set(own, "RANK=%d", rank);
    rank_set(own, "WORLD_SIZE=%d", spawn->nnodes * spawn->nproc);
    rank_set(own, "LOCAL_RANK=%d", local_rank);
    rank_set(own, "LOCAL_WORLD_SIZE=%d", spawn->nproc);
    rank_set(own, "GROUP_RANK=%d", spawn->node_rank);
    rank_set(own, "GROUP_WORLD_SIZE=%d", spawn->nnodes);
    rank_set(own, "MASTER_ADDR=%s", setup->master_addr);
    rank_set(own, "MASTER_PORT=%d", setup->master_port);
    if (setup->meeting_port)
        rank_set(own, "TUTTI_MEETING=%d:%d", setup->master_port, setup->meeting_port);
    rank_set(own, "TUTTI_RUN_ID=%s", setup->run_id);
    rank_set(own, "TUTTI_RESTART_COUNT=%d", setup->restarts);
    rank_set(own, "TORCHELASTIC_RESTART_COUNT=%d", setup->restarts);
    rank_set(own, "TORCHELASTIC_MAX_RESTARTS=%d", spawn->max_restarts);
    if (setup->secret)
        rank_set(own, "TUTTI_SECRET=%s", setup->secret);
    if (rank == 0 && setup->listen_fd >= 0)
        rank_set(own, "TUTTI_LISTEN_FD=%d", setup->listen_fd);

    size_t inherited = 0;
    while (environ[inherited])
        inherited++;
    own->list = tti_calloc(inherited + RANK_VARIABLES + 1, sizeof *own->list);
    if (!own->list)
        return TUTTI_ERR_MEMORY;
    size_t used = 0;
    for (int i = 0; i < own->count; i++)
        own->list[used++] = own->text[i];
    for (size_t i = 0; i < inherited; i++)
        if (!rank_replaces(own, environ[i]))
            own->list[used++] = environ[i];
    return TUTTI_OK;
}

/* In the child: system calls only. */
static void rank_child(const struct tti_spawn_setup *setup, char **environment, pid_t parent,
                       int local_rank, int in, int out, int err, bool leads, int report)
{
    (void)setpgid(0, 0);
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
        _exit(127);
    (void)sigaction(SIGPIPE, &setup->on_pipe, NULL);
    (void)sigprocmask(SIG_SETMASK, &setup->mask, NULL);
    if ((in >= 0 && dup2(in, STDIN_FILENO) < 0) || (out >= 0 && dup2(out, STDOUT_FILENO) < 0) ||
        (err >= 0 && dup2(err, STDERR_FILENO) < 0))
        _exit(127);
    if (leads && setup->listen_fd >= 0)
        (void)fcntl(setup->listen_fd, F_SETFD, 0);
    /* Refused only when the CPUs were taken away since they were looked up: then it runs anywhere.
     */
    if (setup->spawn->cpus)
        (void)sched_setaffinity(0, sizeof(cpu_set_t), &setup->spawn->cpus[local_rank]);
    execvpe(setup->spawn->argv[0], setup->spawn->argv, environment);
    int failed = errno;
    ssize_t ignored = write(report, &failed, sizeof failed);
    (void)ignored;
    _exit(127);
}

/* Standard input: the first rank has ours, unless it is a terminal, which a process group in the
 * background cannot read. */
static int rank_stdin(int local_rank)
{
    if (local_rank == 0 && !isatty(STDIN_FILENO))
        return -1;
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static enum tutti_result rank_fork(struct tti_spawn_rank *rank, const struct tti_spawn_setup *setup,
                                   int local_rank, char **environment, int out, int err,
                                   int *missing)
{
    int report[2];
    int failed = 0;
    pid_t parent = getpid();
    if (pipe2(report, O_CLOEXEC) != 0)
        return TTI_FAIL_ERRNO("pipe for starting rank %d", rank->rank);
    int in = rank_stdin(local_rank);
    pid_t pid = fork();
    if (pid == 0)
        rank_child(setup, environment, parent, local_rank, in, out, err, rank->rank == 0,
                   report[1]);
    int saved = errno;
    close(report[1]);
    if (in >= 0)
        close(in);
    if (pid < 0) {
        close(report[0]);
        errno = saved;
        return TTI_FAIL_ERRNO("cannot start a process for rank %d", rank->rank);
    }
    (void)setpgid(pid, pid); /* here too, so that it holds from now on */
    ssize_t got = 0;
    do
        got = read(report[0], &failed, sizeof failed);
    while (got < 0 && errno == EINTR);
    close(report[0]);
    if (got == (ssize_t)sizeof failed) {
        (void)waitpid(pid, NULL, 0);
        *missing = failed;
    } else {
        rank->pid = pid;
    }
    return TUTTI_OK;
}

enum tutti_result tti_spawn_rank_start(struct tti_spawn_rank *rank,
                                       const struct tti_spawn_setup *setup, int local_rank,
                                       int *missing)
{
    struct rank_environment *own = tti_calloc(1, sizeof *own);
    int out = -1;
    int err = -1;
    if (!own)
        return TUTTI_ERR_MEMORY;
    rank->rank = setup->spawn->node_rank * setup->spawn->nproc + local_rank;
    rank->pid = 0;
    rank->status = 0;
    enum tutti_result result = rank_environment_fill(own, setup, local_rank);
    if (result == TUTTI_OK)
        result = tti_spawn_stream_open(&rank->out, setup, rank->rank, STDOUT_FILENO, &out);
    if (result == TUTTI_OK)
        result = tti_spawn_stream_open(&rank->err, setup, rank->rank, STDERR_FILENO, &err);
    if (result == TUTTI_OK)
        result = rank_fork(rank, setup, local_rank, own->list, out, err, missing);
    if (out >= 0)
        close(out);
    if (err >= 0)
        close(err);
    free(own->list);
    free(own);
    return result;
}

static void rank_stream_clear(struct tti_spawn_stream *stream)
{
    if (stream->fd >= 0)
        close(stream->fd);
    tti_spawn_sink_close(&stream->log);
    for (int i = 0; i < TTI_SPAWN_LAST_LINES; i++)
        free(stream->last[i]);
    memset(stream, 0, sizeof *stream);
    stream->fd = -1;
}

void tti_spawn_rank_clear(struct tti_spawn_rank *rank)
{
    rank_stream_clear(&rank->out);
    rank_stream_clear(&rank->err);
    rank->pid = 0;
}
