/* A rank may fork: its children end as they like (running exit handlers, executing a program, or
 * destroying what is not theirs), and the communicator, its threads and its memory go on as before.
 * A child that stays keeps nobody from hearing of its parent's death. */
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <signal.h>
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

/* Rank 1 dies, and its child lives until the other end of the pipe is closed. Who waits for it must
 * hear of its death, which is told at once, not of a deadline. */
static int dies_before_its_child(tutti_comm *comm, void *argument)
{
    const int *pipe_ends = argument;
    int value = 1, sum = 0;
    char nothing;
    close(pipe_ends[1]);
    CHECK(tutti_all_reduce(&value, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm) == TUTTI_OK);
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
        const int untold = deaths_are_told(&how);
        printf("%s: a rank that dies before its child: %s\n", argv[i], untold ? "FAILED" : "ok");
        fflush(stdout);
        failed += bad != 0 || untold != 0;
    }
    return failed ? 1 : 0;
}
