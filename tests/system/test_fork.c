/* A rank may fork: its children end as they like (running exit handlers, executing a program, or
 * destroying what is not theirs), and the communicator, its threads and its memory go on as before.
 * A child that stays keeps nobody from hearing of its parent's death. */
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, COUNT = 300000, FORKS = 8 };

/* Sums twice, in memory of both kinds and once behind an asynchronous call. */
static int sums(tutti_comm *comm, float *memory, float *own)
{
    int size = tutti_comm_size(comm), expected = size * (size + 1) / 2;
    tutti_request *request = NULL;
    for (int i = 0; i < COUNT; i++)
        memory[i] = own[i] = (float)(tutti_comm_rank(comm) + 1);
    CHECK(tutti_all_reduce_async(memory, memory, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL,
                                 &request) == TUTTI_OK);
    CHECK(tutti_wait(request) == TUTTI_OK);
    CHECK(tutti_all_reduce(own, own, COUNT, TUTTI_FLOAT32, TUTTI_SUM, comm) == TUTTI_OK);
    for (int i = 0; i < COUNT; i++)
        CHECK(memory[i] == (float)expected && own[i] == (float)expected);
    return 0;
}

/* The child has no part in the communicator, and is told so at once. */
static int refused(tutti_comm *comm, tutti_request *request)
{
    float one = 1, sum = 0;
    tutti_comm *made = NULL;
    int dead = 0;
    CHECK(tutti_all_reduce(&one, &sum, 1, TUTTI_FLOAT32, TUTTI_SUM, comm) == TUTTI_ERR_USAGE);
    CHECK(strstr(tutti_last_error(), "forked"));
    CHECK(tutti_send(&one, 1, TUTTI_FLOAT32, 0, comm) == TUTTI_ERR_USAGE);
    CHECK(tutti_wait(request) == TUTTI_ERR_USAGE);
    CHECK(tutti_comm_error(comm) == TUTTI_ERR_USAGE);
    CHECK(tutti_comm_split(comm, 0, 0, &made) == TUTTI_ERR_USAGE);
    CHECK(tutti_comm_shrink(comm, NULL, 0, &made) == TUTTI_ERR_USAGE);
    CHECK(tutti_comm_dead(comm, NULL, 0, &dead) == TUTTI_ERR_USAGE);
    CHECK(tutti_comm_dump(comm, "/dev/null") == TUTTI_ERR_USAGE);
    tutti_comm_abort(comm, "by a child");
    tutti_comm_destroy(comm);
    return 0;
}

/* In the child: what the parent had is there to read; then one of four ends. */
static void child(tutti_comm *comm, tutti_request *request, const float *memory, float expected,
                  int number)
{
    if (memory[0] != expected || memory[COUNT - 1] != expected)
        _exit(3);
    if (number % 4 == 3)
        _exit(refused(comm, request) ? 4 : 0);
#ifndef __SANITIZE_ADDRESS__ /* its exit handler looks for the parent's threads in vain */
    if (number % 4 == 0)
        exit(0);
#endif
    if (number % 4 == 1)
        execlp("true", "true", (char *)NULL);
    _exit(0);
}

static int forks(tutti_comm *comm, void *argument)
{
    void *memory = NULL;
    float *own = malloc(COUNT * sizeof *own);
    int size = tutti_comm_size(comm);
    (void)argument;
    CHECK(own && tutti_alloc(COUNT * sizeof(float), &memory) == TUTTI_OK);
    if (sums(comm, memory, own))
        return 1;
    for (int number = 0; number < FORKS; number++) {
        int status = 0;
        fflush(NULL);
        /* Something is under way, in a thread that the child has not. */
        tutti_request *request = NULL;
        CHECK(tutti_barrier_async(comm, NULL, &request) == TUTTI_OK);
        pid_t pid = fork();
        if (pid == 0)
            child(comm, request, memory, (float)(size * (size + 1) / 2), number);
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        CHECK(tutti_wait(request) == TUTTI_OK);
        if (sums(comm, memory, own))
            return 1;
    }
    tutti_free(memory);
    free(own);
    return 0;
}

/* ---- windows ---- */

/* As long as a put may be for the communicator's thread to keep a copy of it: who keeps it, and who
 * sends it, holds a lock for much of the time. */
enum { WINDOW_BYTES = 16 << 10, WINDOW_FORKS = 60, CHILD_SECONDS = 60 };

struct putting {
    tutti_comm *comm;
    tutti_window *window;
    _Atomic bool stop;
    enum tutti_result result;
};

static void *put_on(void *argument)
{
    static const char data[WINDOW_BYTES];
    struct putting *p = argument;
    const int peer = (tutti_comm_rank(p->comm) + 1) % tutti_comm_size(p->comm);
    while (!atomic_load(&p->stop) && p->result == TUTTI_OK)
        p->result = tutti_put(data, WINDOW_BYTES, TUTTI_UINT8, peer, p->window, 0, TUTTI_NO_SIGNAL);
    return NULL;
}

/* What the parent's threads were at is half done in the child, and their locks are nobody's. */
static int no_windows(tutti_comm *comm, tutti_window *window)
{
    const char byte = 0;
    struct tutti_memory memory;
    alarm(CHILD_SECONDS);
    CHECK(tutti_comm_memory(comm, &memory) == TUTTI_ERR_USAGE);
    CHECK(strstr(tutti_last_error(), "forked"));
    CHECK(tutti_put(&byte, 1, TUTTI_UINT8, 0, window, 0, TUTTI_NO_SIGNAL) == TUTTI_ERR_USAGE);
    tutti_window_destroy(window);
    tutti_comm_destroy(comm);
    return 0;
}

/* Forks while a thread puts. The memory is malloc's: the puts go by message, by a thread of the
 * communicator's. */
static int forks_between_puts(tutti_comm *comm, void *argument)
{
    void *memory = calloc(1, WINDOW_BYTES);
    struct putting p = {.comm = comm};
    pthread_t thread;
    (void)argument;
    CHECK(memory && tutti_window_create(memory, WINDOW_BYTES, comm, &p.window) == TUTTI_OK);
    CHECK(pthread_create(&thread, NULL, put_on, &p) == 0);
    int bad = 0;
    for (int number = 0; number < WINDOW_FORKS && !bad; number++) {
        int status = 0;
        const pid_t pid = fork();
        if (pid == 0)
            _exit(no_windows(comm, p.window));
        bad = pid < 0 || waitpid(pid, &status, 0) != pid || status != 0;
        if (bad)
            fprintf(stderr, "fork %d between puts: status %#x%s\n", number, (unsigned)status,
                    WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM ? " (it hung)" : "");
    }
    atomic_store(&p.stop, true);
    CHECK(pthread_join(thread, NULL) == 0 && p.result == TUTTI_OK);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
    tutti_window_destroy(p.window);
    free(memory);
    return bad;
}

/* ---- deaths ---- */

/* Rank 1 dies, and its child lives until the other end of the pipe is closed. Who waits for it must
 * hear of its death, which is told at once, not of a deadline. */
static int dies_before_its_child(tutti_comm *comm, void *argument)
{
    const int *pipe_ends = argument;
    int value = 1, sum = 0;
    char nothing;
    close(pipe_ends[1]);
    CHECK(tutti_all_reduce(&value, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm) == TUTTI_OK);
    CHECK(tti_ranks_together());
    if (tutti_comm_rank(comm) == 1) {
        fflush(NULL);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            _exit(read(pipe_ends[0], &nothing, 1) == 0 ? 0 : 1);
        raise(SIGKILL);
    }
    CHECK(tutti_all_reduce(&value, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm) == TUTTI_ERR_PEER);
    CHECK(strstr(tutti_last_error(), "rank 1"));
    return 0;
}

static int deaths_are_told(const struct tti_ranks *how)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    const int failed = tti_ranks_run(how, dies_before_its_child, ends);
    close(ends[0]);
    close(ends[1]);
    return failed != 1; /* rank 1, which was killed */
}

int main(int argc, char **argv)
{
    int failed = 0;
    for (int i = 1; i < argc; i++) {
        struct tti_ranks how = {.ranks = RANKS, .processes = true, .options = TUTTI_OPTIONS_INIT};
        how.options.transports = argv[i];
        how.options.timeout_s = 60;
        int bad = tti_ranks_run(&how, forks, NULL);
        printf("%s: %d ranks that fork %d times: %s\n", argv[i], RANKS, FORKS,
               bad ? "FAILED" : "ok");
        fflush(stdout);
        bad = tti_ranks_run(&how, forks_between_puts, NULL);
        printf("%s: %d ranks that fork %d times between puts: %s\n", argv[i], RANKS, WINDOW_FORKS,
               bad ? "FAILED" : "ok");
        fflush(stdout);
        failed += bad != 0;
        const int untold = deaths_are_told(&how);
        printf("%s: a rank that dies before its child: %s\n", argv[i], untold ? "FAILED" : "ok");
        fflush(stdout);
        failed += bad != 0 || untold != 0;
    }
    return failed ? 1 : 0;
}
