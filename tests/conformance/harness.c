/* Runs one check: starts its ranks, serves their requests, collects how they ended, and compares
 * the open files and shared mappings of the process before and after (conformance.h). */
#include "tests/conformance/conformance.h"

#include "tests/conformance/harness.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- leaks ---------------------------------------------------------------------------------- */

struct harness_count {
    int files;
    int mappings; /* of memory files */
};

static struct harness_count harness_count(void)
{
    struct harness_count count = {0, 0};
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        count.files++;
    if (folder)
        closedir(folder);
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, "memfd:") || strstr(line, "/dev/shm/") || strstr(line, "(deleted)"))
            count.mappings++;
    if (maps)
        fclose(maps);
    return count;
}

int conf_shared_mappings(void)
{
    return harness_count().mappings;
}

static void harness_compare(struct harness_count before, char *text, size_t room)
{
    struct harness_count after = harness_count();
    if (after.files != before.files || after.mappings != before.mappings)
        snprintf(text, room,
                 "leak: %d open files before, %d after; %d shared mappings before, %d after",
                 before.files, after.files, before.mappings, after.mappings);
}

/* ---- one rank ------------------------------------------------------------------------------- */

struct harness_start {
    const struct conf_check *check;
    const struct tutti_transport_ops *ops;
    bool threads;
    double timeout_s;
    uint64_t job;
    int rank;
    int control;
};

/* Alone, so that no local variable lives across the longjmp of conf_fail. */
static void harness_guarded(struct conf_rank *me, void (*run)(struct conf_rank *me))
{
    if (setjmp(me->failed) == 0)
        run(me);
}

static void harness_rank(const struct harness_start *start)
{
    struct conf_rank *me = calloc(1, sizeof *me);
    struct harness_message end = {.kind = HARNESS_END};
    struct harness_count before = {0, 0};
    if (!start->threads)
        before = harness_count();
    if (!me) {
        snprintf(end.text, sizeof end.text, "out of memory");
    } else {
        me->ops = start->ops;
        me->rank = start->rank;
        me->nranks = start->check->ranks;
        me->threads = start->threads;
        me->job = start->job;
        for (int i = 0; i < TUTTI_SECRET_BYTES; i++)
            me->secret[i] = (uint8_t)(start->job >> (i % 8) | i);
        me->random = start->job ^ (uint64_t)start->rank;
        me->control = start->control;
        me->deadline = tti_deadline_in(start->timeout_s);
        harness_guarded(me, start->check->run);
        memcpy(end.text, me->failure, sizeof me->failure);
        conf_release(me);
        if (!start->threads && !end.text[0])
            harness_compare(before, end.text, sizeof end.text);
        free(me);
    }
    (void)!send(start->control, &end, sizeof end, MSG_NOSIGNAL);
}

static void *harness_thread(void *start)
{
    harness_rank(start);
    return NULL;
}

/* ---- the server of a check ------------------------------------------------------------------ */

struct harness {
    const struct conf_check *check;
    bool threads;
    int control[CONF_MAX_RANKS]; /* our ends; -1 once the rank has ended */
    int theirs[CONF_MAX_RANKS];
    pthread_t thread[CONF_MAX_RANKS];
    pid_t process[CONF_MAX_RANKS];
    struct harness_start start[CONF_MAX_RANKS];
    bool waiting[CONF_MAX_RANKS];
    struct harness_message gathered[CONF_MAX_RANKS]; /* the latest request of each */
    int failures;
    bool stuck; /* some rank did not end in time */
};

static void harness_say(struct harness *self, int rank, const char *text)
{
    fprintf(stderr, "  %s: rank %d: %s\n", self->check->name, rank, text);
    self->failures++;
}

/* When every living rank waits: answer all with what all of them gave. */
static void harness_answer(struct harness *self)
{
    int alive = 0, waiting = 0;
    for (int i = 0; i < self->check->ranks; i++) {
        alive += self->control[i] >= 0;
        waiting += self->waiting[i];
    }
    if (waiting == 0 || waiting < alive)
        return;
    for (int i = 0; i < self->check->ranks; i++) {
        if (!self->waiting[i])
            continue;
        self->waiting[i] = false;
        for (int k = 0; k < self->check->ranks; k++)
            (void)!send(self->control[i], &self->gathered[k], sizeof self->gathered[k],
                        MSG_NOSIGNAL);
    }
}

static void harness_hear(struct harness *self, int rank)
{
    struct harness_message message;
    ssize_t bytes = recv(self->control[rank], &message, sizeof message, 0);
    if (bytes == (ssize_t)sizeof message && message.kind == HARNESS_MEET) {
        self->gathered[rank] = message;
        self->waiting[rank] = true;
    } else {
        bool dies = (self->check->flags & CONF_RANK_0_DIES) && rank == 0;
        if (bytes != (ssize_t)sizeof message && !dies)
            harness_say(self, rank, "ended without a word");
        else if (bytes == (ssize_t)sizeof message && dies)
            harness_say(self, rank, "should have died");
        else if (bytes == (ssize_t)sizeof message && message.text[0])
            harness_say(self, rank, message.text);
        close(self->control[rank]);
        self->control[rank] = -1;
    }
    harness_answer(self);
}

static void harness_serve(struct harness *self, uint64_t deadline)
{
    for (;;) {
        struct pollfd fds[CONF_MAX_RANKS];
        int ranks[CONF_MAX_RANKS], count = 0;
        for (int i = 0; i < self->check->ranks; i++)
            if (self->control[i] >= 0) {
                fds[count] = (struct pollfd){.fd = self->control[i], .events = POLLIN};
                ranks[count++] = i;
            }
        if (count == 0)
            return;
        poll(fds, (nfds_t)count, tti_deadline_ms(deadline, 1000));
        for (int i = 0; i < count; i++)
            if (fds[i].revents)
                harness_hear(self, ranks[i]);
        if (tti_deadline_passed(deadline)) {
            self->stuck = true;
            for (int i = 0; i < self->check->ranks; i++)
                if (self->control[i] >= 0) {
                    harness_say(self, i, "does not end");
                    shutdown(self->control[i], SHUT_RDWR);
                    close(self->control[i]);
                    self->control[i] = -1;
                }
            return;
        }
    }
}

static void harness_child(struct harness *self, int rank)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (int i = 0; i < self->check->ranks; i++) {
        if (self->control[i] >= 0)
            close(self->control[i]);
        if (i != rank && self->theirs[i] >= 0)
            close(self->theirs[i]);
    }
    harness_rank(&self->start[rank]);
    fflush(NULL);
    _exit(0);
}

static bool harness_launch(struct harness *self, int rank)
{
    struct harness_start *start = &self->start[rank];
    if (self->threads)
        return pthread_create(&self->thread[rank], NULL, harness_thread, start) == 0;
    self->process[rank] = fork();
    if (self->process[rank] == 0)
        harness_child(self, rank);
    return self->process[rank] > 0;
}

/* Threads that do not end cannot be ended: the program must exit. Processes are killed. */
static void harness_join(struct harness *self)
{
    for (int i = 0; i < self->check->ranks; i++) {
        if (self->threads) {
            if (self->stuck) {
                fprintf(stderr, "a thread is stuck; giving up\n");
                exit(1);
            }
            pthread_join(self->thread[i], NULL);
        } else {
            if (self->stuck)
                kill(self->process[i], SIGKILL);
            waitpid(self->process[i], NULL, 0);
        }
        if (self->theirs[i] >= 0)
            close(self->theirs[i]);
    }
}

int conf_run(const struct conf_check *check, const struct tutti_transport_ops *ops, bool threads,
             double timeout_s)
{
    static uint64_t jobs;
    struct harness *self = calloc(1, sizeof *self);
    char leak[200] = "";
    if (!self)
        return 1;
    struct harness_count before = harness_count();
    self->check = check;
    self->threads = threads;
    uint64_t job = ((uint64_t)getpid() << 32) + ++jobs;
    for (int i = 0; i < check->ranks; i++) {
        int pair[2] = {-1, -1};
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
            perror("socketpair");
        self->control[i] = pair[0];
        self->theirs[i] = pair[1];
        self->start[i] = (struct harness_start){check, ops, threads, timeout_s, job, i, pair[1]};
    }
    for (int i = 0; i < check->ranks; i++)
        if (!harness_launch(self, i)) {
            perror("starting a rank");
            exit(1);
        }
    for (int i = 0; i < check->ranks && !threads; i++) {
        close(self->theirs[i]); /* so that a death is seen as the end of the socket */
        self->theirs[i] = -1;
    }
    harness_serve(self, tti_deadline_in(timeout_s + 10));
    harness_join(self);
    harness_compare(before, leak, sizeof leak);
    if (leak[0])
        harness_say(self, -1, leak);
    int failures = self->failures;
    free(self);
    return failures > 0;
}
