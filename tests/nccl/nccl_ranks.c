/* See nccl_ranks.h. */
#include "tests/nccl/nccl_ranks.h"

#include "tests/nccl/nccl_check.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static int as_processes(int *numbers, int ranks, void *(*rank_main)(void *number))
{
    pid_t pids[NCCL_RANKS_MOST];
    int failed = 0, status = 0;
    for (int r = 0; r < ranks; r++)
        if ((pids[r] = fork()) == 0) {
            rank_main(&numbers[r]);
            exit(0);
        }
    for (int r = 0; r < ranks; r++)
        failed += waitpid(pids[r], &status, 0) != pids[r] || status != 0;
    return failed;
}

int nccl_ranks_run(int ranks, bool processes, void *(*rank_main)(void *number))
{
    static int numbers[NCCL_RANKS_MOST] = {0, 1, 2, 3};
    pthread_t threads[NCCL_RANKS_MOST];
    CHECK(ranks >= 1 && ranks <= NCCL_RANKS_MOST);
    if (processes)
        return as_processes(numbers, ranks, rank_main);
    for (int r = 0; r < ranks; r++)
        CHECK(pthread_create(&threads[r], NULL, rank_main, &numbers[r]) == 0);
    for (int r = 0; r < ranks; r++)
        pthread_join(threads[r], NULL);
    return 0;
}
