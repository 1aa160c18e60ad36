/* Ranks as threads or processes (tests/integration/ranks.h). */
#include "tests/integration/ranks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct rank_task {
    const struct tti_ranks *how;
    tti_rank_function *function;
    void *argument;
    struct tutti_id id;
    int rank;
    int status;
    _Atomic int *came; /* how often ranks have come to tti_ranks_together */
};

static _Thread_local const struct rank_task *rank_now;

static int rank_run(struct rank_task *task)
{
    tutti_comm *comm = NULL;
    rank_now = task;
    enum tutti_result result =
        tutti_comm_create(&task->id, task->rank, task->how->ranks, &task->how->options, &comm);
    if (result != TUTTI_OK) {
        fprintf(stderr, "rank %d: create: %s\n", task->rank, tutti_last_error());
        return 1;
    }
    int status = task->function(comm, task->argument);
    if (status != 0)
        fprintf(stderr, "rank %d failed; last error: %s\n", task->rank, tutti_last_error());
    tutti_comm_destroy(comm);
    return status;
}

static void *rank_thread(void *argument)
{
    struct rank_task *task = argument;
    task->status = rank_run(task);
    return NULL;
}

static int ranks_as_threads(struct rank_task *tasks, int ranks)
{
    pthread_t *threads = calloc((size_t)ranks, sizeof *threads);
    int failed = 0;
    for (int r = 0; r < ranks; r++)
        if (pthread_create(&threads[r], NULL, rank_thread, &tasks[r]) != 0)
            abort();
    for (int r = 0; r < ranks; r++) {
        pthread_join(threads[r], NULL);
        failed += tasks[r].status != 0;
    }
    free(threads);
    return failed;
}

static void pretend_host(const struct tti_ranks *how, int rank)
{
    char id[32];
    if (how->hosts <= 1)
        return;
    snprintf(id, sizeof id, "pretended-%d", rank * how->hosts / how->ranks);
    setenv("TUTTI_HOST_ID", id, 1);
}

/* Run `count` ranks in this process, which ends. */
static void ranks_here(struct rank_task *tasks, int count)
{
    pretend_host(tasks->how, tasks->rank);
    if (tasks->how->prepare)
        tasks->how->prepare(tasks->rank);
    int status = count == 1 ? rank_run(tasks) : ranks_as_threads(tasks, count);
    fflush(NULL);
    _exit(status ? 1 : 0);
}

static int ranks_as_processes(struct rank_task *tasks, int ranks)
{
    /* unsigned: gcc warns of what a negative count would be */
    pid_t *pids = calloc((unsigned)ranks, sizeof *pids);
    int failed = 0, step = tasks->how->threads > 1 ? tasks->how->threads : 1;
    fflush(NULL);
    for (int r = 0; r < ranks; r += step) {
        pids[r] = fork();
        if (pids[r] < 0)
            abort();
        if (pids[r] == 0)
            ranks_here(&tasks[r], step < ranks - r ? step : ranks - r);
    }
    for (int r = 0; r < ranks; r += step) {
        int status = 0;
        waitpid(pids[r], &status, 0);
        if (WIFSIGNALED(status))
            fprintf(stderr, "rank %d: signal %d\n", r, WTERMSIG(status));
        failed += status != 0;
    }
    free(pids);
    return failed;
}

/* 0, in memory that processes share. */
static _Atomic int *counter_make(void)
{
    void *counter =
        mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counter == MAP_FAILED)
        abort();
    return counter;
}

int tti_ranks_run(const struct tti_ranks *how, tti_rank_function *function, void *argument)
{
    struct tutti_id id;
    if (tutti_id_create("127.0.0.1", &id) != TUTTI_OK) {
        fprintf(stderr, "id: %s\n", tutti_last_error());
        return how->ranks;
    }
    struct rank_task *tasks = calloc((size_t)how->ranks, sizeof *tasks);
    _Atomic int *came = counter_make();
    for (int r = 0; r < how->ranks; r++)
        tasks[r] = (struct rank_task){.how = how,
                                      .function = function,
                                      .argument = argument,
                                      .id = id,
                                      .rank = r,
                                      .came = came};
    int failed = how->processes ? ranks_as_processes(tasks, how->ranks)
                                : ranks_as_threads(tasks, how->ranks);
    munmap(came, sizeof *came);
    free(tasks);
    return failed;
}

bool tti_ranks_together(void)
{
    enum { NAPS = 60000 };
    const int ranks = rank_now->how->ranks, before = atomic_fetch_add(rank_now->came, 1);
    for (int nap = 0; nap < NAPS; nap++) {
        if (atomic_load(rank_now->came) >= before - before % ranks + ranks)
            return true;
        usleep(1000);
    }
    return false;
}

bool tti_ranks_flag(struct tti_ranks *how, int argc, char **argv, int *at)
{
    const char *name = argv[*at], *value = *at + 1 < argc ? argv[*at + 1] : NULL;
    if (strcmp(name, "--processes") == 0) {
        how->processes = true;
        return true;
    }
    if (!value) {
        return false;
    } else if (strcmp(name, "--ranks") == 0) {
        how->ranks = atoi(value);
    } else if (strcmp(name, "--threads") == 0) {
        how->threads = atoi(value);
        how->processes = true;
    } else if (strcmp(name, "--hosts") == 0) {
        how->hosts = atoi(value);
        how->processes = true;
    } else if (strcmp(name, "--transport") == 0) {
        how->options.transports = value;
    } else {
        return false;
    }
    ++*at;
    return true;
}

bool tti_ranks_flags(struct tti_ranks *how, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!tti_ranks_flag(how, argc, argv, &i)) {
            fprintf(stderr, "unknown argument %s\n", argv[i]);
            return false;
        }
    return true;
}

int tti_ranks_test(const struct tti_ranks *how, const char *name, tti_rank_function *function,
                   void *argument)
{
    const int bad = tti_ranks_run(how, function, argument);
    printf("%s: %s\n", name, bad ? "FAILED" : "ok");
    fflush(stdout);
    return bad != 0;
}
