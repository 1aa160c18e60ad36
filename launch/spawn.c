/* A job of local ranks, from start to end (launch/spawn.h): one thread, one poll loop over the
 * ranks' output and a signalfd.
 *
 * When a rank fails, the others first get SETTLE_S to notice and say so themselves; then SIGTERM,
 * then, after the grace, SIGKILL. A rank's process group ends with the rank, and orphans come to us
 * (PR_SET_CHILD_SUBREAPER), so nothing outlives the job. Who reads our output and stands still
 * holds up the ranks' output, but neither signals nor deaths. Read next: spawn_rank.c,
 * spawn_output.h, spawn_orphans.c.
 */
#include "launch/spawn.h"

#include "base/clock.h"
#include "base/memory.h"
#include "launch/boot_socket.h"
#include "launch/boot_wire.h"
#include "launch/spawn_rank.h"

#include <errno.h>
#include <poll.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

static const double SETTLE_S = 1;
static const double GRACE_S = 5;
static const double ORPHANS_S = 2;

enum job_phase { JOB_RUNS, JOB_SETTLES, JOB_TERMINATES, JOB_KILLS };

struct job {
    const struct tti_spawn *spawn;
    struct tti_spawn_setup setup;
    struct tti_spawn_rank *ranks;
    struct tti_spawn_elders elders;
    struct tti_spawn_output output;
    struct pollfd *polls;
    int signal_fd;
    int held_fd;               /* keeps MASTER_PORT for the ranks; -1 */
    int held_meeting_fd;       /* keeps rank 0's port between its meetings; -1 */
    struct sigaction on_child; /* as they were before */
    int subreaper;
    char secret[2 * TTI_SECRET_BYTES + 1];
    char run_id[17];

    enum job_phase phase; /* of this round */
    uint64_t phase_ends;
    int running;
    int well;        /* ranks that ended with status 0 */
    int signalled;   /* the signal that ends the job; 0 */
    int first;       /* index of the rank that failed first; -1 */
    int missing;     /* errno of the program that could not be run; 0 */
    bool print_gone; /* who reads our output is gone */
};

/* ---- Signals and phases --------------------------------------------------------------------- */

static void job_signal_ranks(struct job *job, int number)
{
    for (int i = 0; i < job->spawn->nproc; i++)
        if (job->ranks[i].pid > 0) {
            (void)kill(-job->ranks[i].pid, number);
            if (number == SIGTERM || number == SIGINT || number == SIGHUP)
                (void)kill(-job->ranks[i].pid, SIGCONT); /* a stopped one must hear it */
        }
}

static double job_grace(const struct job *job)
{
    return job->spawn->grace_s > 0 ? job->spawn->grace_s : GRACE_S;
}

static void job_enter(struct job *job, enum job_phase phase)
{
    job->phase = phase;
    job->phase_ends = UINT64_MAX;
    if (phase == JOB_SETTLES)
        job->phase_ends = tti_deadline_in(SETTLE_S);
    if (phase == JOB_TERMINATES)
        job->phase_ends = tti_deadline_in(job_grace(job));
    if (phase == JOB_KILLS)
        job_signal_ranks(job, SIGKILL);
}

static void job_terminate(struct job *job)
{
    job_signal_ranks(job, SIGTERM);
    job_enter(job, JOB_TERMINATES);
}

static void job_on_clock(struct job *job)
{
    if (!tti_deadline_passed(job->phase_ends))
        return;
    if (job->phase == JOB_SETTLES)
        job_terminate(job);
    else
        job_enter(job, JOB_KILLS);
}

static void job_on_signal(struct job *job, int number)
{
    if (number == SIGCHLD)
        return;
    bool ends = number == SIGINT || number == SIGTERM || number == SIGHUP;
    if (!ends) {
        job_signal_ranks(job, number);
        return;
    }
    if (job->signalled) { /* asked twice */
        job_enter(job, JOB_KILLS);
        return;
    }
    job->signalled = number;
    job->output.told = tti_now_ns();
    job_signal_ranks(job, number);
    if (job->phase < JOB_TERMINATES)
        job_enter(job, JOB_TERMINATES);
}

/* ---- Deaths --------------------------------------------------------------------------------- */

static int job_exit_status(int status)
{
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* "was killed by signal 9 (Killed)" */
static void job_how(int status, char *how, size_t bytes)
{
    if (WIFSIGNALED(status))
        snprintf(how, bytes, "was killed by signal %d (%s)", WTERMSIG(status),
                 strsignal(WTERMSIG(status)));
    else
        snprintf(how, bytes, "exited with status %d", WEXITSTATUS(status));
}

/* Elastic: one less. */
static void job_lost(struct job *job, const struct tti_spawn_rank *rank)
{
    char how[200];
    job_how(rank->status, how, sizeof how);
    tti_spawn_output_say(&job->output, "rank %d (%d) %s; %d of %d go on", rank->rank,
                         (int)rank->pid, how, job->running, job->spawn->nproc);
}

static void job_rank_ended(struct job *job, int index, int status)
{
    struct tti_spawn_rank *rank = &job->ranks[index];
    rank->status = status;
    job->running--;
    job->well += status == 0;
    if (status == 0)
        return;
    if (job->spawn->elastic && job->phase == JOB_RUNS) {
        job_lost(job, rank);
        job->first = job->first < 0 ? index : job->first;
        return;
    }
    /* Of deaths before we end anybody, the signal is the cause and the exits its consequence,
     * though they may be seen first: a dying process closes its connections before it can be waited
     * for. */
    bool cause = job->phase == JOB_SETTLES && WIFSIGNALED(status) &&
                 !WIFSIGNALED(job->ranks[job->first].status);
    if (job->first >= 0 && !cause)
        return;
    job->first = index;
    if (job->phase == JOB_RUNS)
        job_enter(job, JOB_SETTLES);
}

/* Everybody who has ended; a rank's helpers end with it, while its zombie still holds their group.
 */
static void job_reap(struct job *job)
{
    for (;;) {
        siginfo_t info = {0};
        int status = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            return;
        int index = 0;
        while (index < job->spawn->nproc && job->ranks[index].pid != info.si_pid)
            index++;
        bool is_rank = index < job->spawn->nproc;
        if (is_rank)
            (void)kill(-info.si_pid, SIGKILL);
        if (waitpid(info.si_pid, &status, 0) != info.si_pid)
            return;
        tti_spawn_elders_forget(&job->elders, info.si_pid);
        if (is_rank) {
            job_rank_ended(job, index, status);
            job->ranks[index].pid = -info.si_pid; /* remembered for the report */
        }
    }
}

/* Orphans that left their group: each pass may bring up new ones. */
static void job_end_orphans(struct job *job)
{
    uint64_t deadline = tti_deadline_in(ORPHANS_S);
    while (!tti_deadline_passed(deadline)) {
        const int others = tti_spawn_kill_orphans(&job->elders);
        pid_t pid = 0;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            tti_spawn_elders_forget(&job->elders, pid);
        if (pid < 0 || others == 0)
            return;
        (void)poll(NULL, 0, 5);
    }
}

/* ---- Output --------------------------------------------------------------------------------- */

static void job_hear(struct job *job)
{
    struct signalfd_siginfo info;
    while (read(job->signal_fd, &info, sizeof info) == (ssize_t)sizeof info)
        job_on_signal(job, (int)info.ssi_signo);
}

/* No rank runs any more: wait for who reads our output, as long as the job is not told to end. */
static void job_drain(struct job *job)
{
    while (tti_spawn_output_holds(&job->output)) {
        struct pollfd polls[3] = {{.fd = job->signal_fd, .events = POLLIN}};
        tti_spawn_output_poll(&job->output, NULL, 0, polls + 1);
        const uint64_t patience = tti_spawn_output_patience(&job->output);
        if (poll(polls, 3, tti_deadline_ms(patience, 60000)) < 0 && errno != EINTR)
            return;
        job_hear(job);
        tti_spawn_output_flush(&job->output);
    }
}

/* The rank is gone; what it said is in the pipe. */
static void job_end_stream(struct job *job, struct tti_spawn_stream *stream)
{
    bool more = stream->fd >= 0;
    while (more) {
        tti_spawn_stream_read(stream);
        more = stream->fd >= 0 && tti_spawn_sink_holds(stream->sink);
        job_drain(job);
    }
    tti_spawn_stream_close(stream);
    job_drain(job);
}

/* ---- The loop ------------------------------------------------------------------------------- */

static enum tutti_result job_turn(struct job *job)
{
    int nproc = job->spawn->nproc;
    const uint64_t patience = tti_spawn_output_patience(&job->output);
    const uint64_t next = patience < job->phase_ends ? patience : job->phase_ends;
    job->polls[0] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
    tti_spawn_output_poll(&job->output, job->ranks, nproc, job->polls + 1);
    if (poll(job->polls, (nfds_t)(3 + 2 * nproc), tti_deadline_ms(next, 60000)) < 0 &&
        errno != EINTR)
        return TTI_FAIL_ERRNO("poll over the output of %d ranks", nproc);
    job_hear(job);
    tti_spawn_output_flush(&job->output);
    tti_spawn_output_read(&job->output, job->ranks, nproc, job->polls + 1);
    if (!job->print_gone && tti_spawn_output_gone(&job->output)) {
        job->print_gone = true;
        if (job->phase < JOB_TERMINATES)
            job_terminate(job);
    }
    job_reap(job);
    job_on_clock(job);
    return TUTTI_OK;
}

/* Where ranks meet, when the job is on this host alone: rank 0's socket, and a port that nobody
 * listens on, MASTER_PORT, for programs that let their ranks meet by themselves, too (a store of
 * PyTorch's). Both are held for as long as the ranks run: when they meet again, rank 0 listens
 * anew, and nobody has been given the ports meanwhile. */
static enum tutti_result job_listen(struct job *job)
{
    const struct tti_spawn *spawn = job->spawn;
    uint16_t port = (uint16_t)spawn->master_port, meeting = 0;
    job->setup.listen_fd = job->held_fd = job->held_meeting_fd = -1;
    job->setup.master_addr = spawn->master_addr ? spawn->master_addr : "127.0.0.1";
    if (!spawn->master_addr) {
        TTI_TRY(tti_socket_hold("127.0.0.1", port, &job->held_fd, &port));
        TTI_TRY(tti_socket_hold("127.0.0.1", 0, &job->held_meeting_fd, &meeting));
        TTI_TRY(tti_socket_listen("127.0.0.1", meeting, 1, &job->setup.listen_fd, &meeting));
    }
    job->setup.master_port = port;
    job->setup.meeting_port = meeting;
    return TUTTI_OK;
}

static enum tutti_result job_start(struct job *job)
{
    enum tutti_result result = job_listen(job);
    for (int i = 0; i < job->spawn->nproc && result == TUTTI_OK && !job->missing; i++) {
        result = tti_spawn_rank_start(&job->ranks[i], &job->setup, i, &job->missing);
        job->running += job->ranks[i].pid > 0;
    }
    if (job->setup.listen_fd >= 0)
        close(job->setup.listen_fd);
    return result;
}

/* One round: start, mind, clean up. Whatever happens, nothing runs afterwards. */
static enum tutti_result job_round(struct job *job)
{
    job->first = -1;
    job->running = job->well = 0;
    job_enter(job, JOB_RUNS);
    enum tutti_result result = job_start(job);
    if (result != TUTTI_OK || job->missing)
        job_enter(job, JOB_KILLS);
    while (job->running > 0) {
        enum tutti_result turned = job_turn(job);
        if (turned != TUTTI_OK) {
            result = result == TUTTI_OK ? turned : result;
            job_enter(job, JOB_KILLS);
            job_reap(job);
        }
    }
    job_end_orphans(job);
    if (job->held_fd >= 0)
        close(job->held_fd);
    if (job->held_meeting_fd >= 0)
        close(job->held_meeting_fd);
    if (job->spawn->elastic && job->well > 0 && !job->signalled)
        job->first = -1; /* who failed was told of */
    for (int i = 0; i < job->spawn->nproc; i++) {
        job_end_stream(job, &job->ranks[i].out);
        job_end_stream(job, &job->ranks[i].err);
    }
    return result;
}

/* ---- The report ----------------------------------------------------------------------------- */

/* What became of the round; the last thing that is printed. */
static void job_report(struct job *job, bool again)
{
    const struct tti_spawn_rank *rank = &job->ranks[job->first];
    char host[64] = "?";
    char how[200];
    char then[80] = "";
    gethostname(host, sizeof host - 1);
    job_how(rank->status, how, sizeof how);
    if (again)
        snprintf(then, sizeof then, "; restart %d of %d", job->setup.restarts + 1,
                 job->spawn->max_restarts);
    else if (job->signalled)
        snprintf(then, sizeof then, " after the job was sent %s", strsignal(job->signalled));
    else if (job->spawn->elastic)
        snprintf(then, sizeof then, "; no rank ended well");
    else if (job->spawn->nproc > 1)
        snprintf(then, sizeof then, "; the others were ended");
    if (!job->signalled && rank->err.last_count > 0) {
        tti_spawn_output_say(&job->output, "rank %d's last lines on stderr:", rank->rank);
        tti_spawn_stream_repeat(&rank->err, job->output.err);
    }
    tti_spawn_output_say(&job->output, "rank %d (%s:%d) %s%s", rank->rank, host, (int)-rank->pid,
                         how, then);
}

/* ---- Set-up --------------------------------------------------------------------------------- */

static enum tutti_result job_check(const struct tti_spawn *spawn)
{
    long most = (long)spawn->nproc * spawn->nnodes;
    if (!spawn->argv || !spawn->argv[0] || !spawn->program)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "no program to run");
    if (spawn->nproc < 1 || spawn->nnodes < 1 || most > TTI_BOOT_RANKS || spawn->node_rank < 0 ||
        spawn->node_rank >= spawn->nnodes)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "%d ranks a node on %d nodes, node %d: expected 1 to %d ranks, and a node "
                        "below the number of nodes",
                        spawn->nproc, spawn->nnodes, spawn->node_rank, TTI_BOOT_RANKS);
    if (spawn->nnodes > 1 && !spawn->master_addr)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%d nodes need the address of node 0 (--master-addr)",
                        spawn->nnodes);
    if (spawn->master_port < (spawn->master_addr ? 1 : 0) || spawn->master_port > 65535)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "port %d is not one from 1 to 65535",
                        spawn->master_port);
    if (spawn->max_restarts < 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%d restarts", spawn->max_restarts);
    return TUTTI_OK;
}

/* Signals arrive through a descriptor; ranks start with what we had. */
static enum tutti_result job_signals(struct job *job)
{
    static const int taken[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    struct sigaction plain = {.sa_handler = SIG_DFL};
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof taken / sizeof taken[0]; i++)
        sigaddset(&set, taken[i]);
    job->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (job->signal_fd < 0)
        return TTI_FAIL_ERRNO("signalfd");
    (void)sigaction(SIGCHLD, &plain, &job->on_child);
    (void)sigaction(SIGPIPE, &ignore, &job->setup.on_pipe);
    (void)sigprocmask(SIG_BLOCK, &set, &job->setup.mask);
    (void)prctl(PR_GET_CHILD_SUBREAPER, &job->subreaper);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    return TUTTI_OK;
}

static void job_signals_back(struct job *job)
{
    close(job->signal_fd);
    (void)prctl(PR_SET_CHILD_SUBREAPER, job->subreaper);
    (void)sigaction(SIGCHLD, &job->on_child, NULL);
    (void)sigaction(SIGPIPE, &job->setup.on_pipe, NULL);
    (void)sigprocmask(SIG_SETMASK, &job->setup.mask, NULL);
}

static enum tutti_result job_secrets(struct job *job)
{
    uint8_t bytes[TTI_SECRET_BYTES];
    if (sodium_init() < 0)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "libsodium finds no source of random numbers");
    randombytes_buf(bytes, 8);
    sodium_bin2hex(job->run_id, sizeof job->run_id, bytes, 8);
    job->setup.run_id = job->run_id;
    if (!job->spawn->master_addr) { /* one host: nobody else needs to know it */
        randombytes_buf(bytes, sizeof bytes);
        sodium_bin2hex(job->secret, sizeof job->secret, bytes, sizeof bytes);
        job->setup.secret = job->secret;
        sodium_memzero(bytes, sizeof bytes);
    }
    return TUTTI_OK;
}

/* A restart was announced, and that waited for who reads it: what came meanwhile takes it back. */
static bool job_called_off(struct job *job)
{
    if (job->signalled)
        tti_spawn_output_say(&job->output, "no restart after all: the job was sent %s",
                             strsignal(job->signalled));
    else if (tti_spawn_output_gone(&job->output))
        tti_spawn_output_say(&job->output, "no restart after all: nobody reads the output");
    else
        return false;
    job_drain(job);
    return true;
}

static enum tutti_result job_rounds(struct job *job, int *status)
{
    for (;;) {
        enum tutti_result result = job_round(job);
        bool failed = job->first >= 0 && !job->missing;
        bool again = failed && result == TUTTI_OK && !job->signalled && !job->print_gone &&
                     job->setup.restarts < job->spawn->max_restarts;
        int found = failed ? job_exit_status(job->ranks[job->first].status) : 0;
        if (job->missing) {
            tti_spawn_output_say(&job->output, "cannot run %s: %s", job->spawn->argv[0],
                                 strerror(job->missing));
            found = job->missing == ENOENT ? 127 : 126;
        } else if (failed && result == TUTTI_OK) {
            job_report(job, again);
        }
        job_drain(job);
        again = again && !job_called_off(job);
        for (int i = 0; i < job->spawn->nproc; i++)
            tti_spawn_rank_clear(&job->ranks[i]);
        if (result == TUTTI_OK && !again)
            *status = found;
        if (!again)
            return result;
        job->setup.restarts++;
    }
}

enum tutti_result tti_spawn_run(const struct tti_spawn *spawn, int *status)
{
    TTI_TRY(job_check(spawn));
    struct job job = {.spawn = spawn, .signal_fd = -1, .first = -1, .setup = {.spawn = spawn}};
    job.ranks = tti_calloc((size_t)spawn->nproc, sizeof *job.ranks);
    job.polls = tti_calloc(3 + 2 * (size_t)spawn->nproc, sizeof *job.polls);
    enum tutti_result result = job.ranks && job.polls ? TUTTI_OK : TUTTI_ERR_MEMORY;
    for (int i = 0; job.ranks && i < spawn->nproc; i++)
        job.ranks[i].out.fd = job.ranks[i].err.fd = -1;
    if (result == TUTTI_OK)
        result = job_secrets(&job);
    if (result == TUTTI_OK)
        result = tti_spawn_elders_find(&job.elders);
    tti_spawn_output_open(&job.output, spawn->program);
    job.setup.output = &job.output;
    if (result == TUTTI_OK)
        result = job_signals(&job);
    if (result == TUTTI_OK) {
        result = job_rounds(&job, status);
        job_signals_back(&job);
    }
    tti_spawn_output_close(&job.output);
    free(job.elders.pids);
    free(job.ranks);
    free(job.polls);
    return result;
}
