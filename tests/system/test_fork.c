/* A rank may fork: its children end as they like (running exit handlers, or executing a program),
 * and the communicator, its threads and its memory go on as before. */
#include "tests/integration/ranks.h"
#include "tests/rank_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, COUNT = 300000, FORKS = 4 };

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

/* In the child: what the parent had is there to read; then one of three ends. */
static void child(const float *memory, float expected, int number)
{
    if (memory[0] != expected || memory[COUNT - 1] != expected)
        _exit(3);
#ifndef __SANITIZE_ADDRESS__ /* its exit handler looks for the parent's threads in vain */
    if (number % 3 == 0)
        exit(0);
#endif
    if (number % 3 == 1)
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
        pid_t pid = fork();
        if (pid == 0)
            child(memory, (float)(size * (size + 1) / 2), number);
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        if (sums(comm, memory, own))
            return 1;
    }
    tutti_free(memory);
    free(own);
    return 0;
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
        failed += bad != 0;
    }
    return failed ? 1 : 0;
}
