/* Ranks for an example (together.h). */
#include "examples/train/together.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct member {
    pthread_t thread;
    const struct tutti_id *id;
    int rank, ranks, failed;
    int (*train)(tutti_comm *comm, void *argument);
    void *argument;
};

int together_check(tutti_comm *comm, enum tutti_result result, const char *what)
{
    if (result == TUTTI_OK)
        return 0;
    fprintf(stderr, "rank %d: %s: %s (%s)\n", comm ? tutti_comm_rank(comm) : 0, what,
            tutti_last_error(), tutti_result_text(result));
    return 1;
}

double together_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *together_member(void *argument)
{
    struct member *m = argument;
    tutti_comm *comm = NULL;
    m->failed =
        together_check(NULL, tutti_comm_create(m->id, m->rank, m->ranks, NULL, &comm), "start") ||
        m->train(comm, m->argument);
    /* A rank that gave up must not keep the others waiting. */
    if (m->failed && comm)
        tutti_comm_abort(comm, "a rank gave up");
    tutti_comm_destroy(comm);
    return NULL;
}

static int together_threads(int threads, int (*train)(tutti_comm *comm, void *argument),
                            void *argument)
{
    struct tutti_id id;
    struct member *members = calloc((size_t)threads, sizeof *members);
    int failed = !members || together_check(NULL, tutti_id_create("127.0.0.1", &id), "start");
    int started = 0;
    for (; started < threads && !failed; started++) {
        members[started] = (struct member){
            .id = &id, .rank = started, .ranks = threads, .train = train, .argument = argument};
        if (pthread_create(&members[started].thread, NULL, together_member, &members[started])) {
            fprintf(stderr, "cannot start thread %d\n", started);
            failed = 1;
            break; /* those started give up by their deadline */
        }
    }
    for (int i = 0; i < started; i++) {
        pthread_join(members[i].thread, NULL);
        failed |= members[i].failed;
    }
    free(members);
    return failed;
}

int together_run(int threads, int (*train)(tutti_comm *comm, void *argument), void *argument)
{
    if (threads > 0)
        return together_threads(threads, train, argument);
    tutti_comm *comm = NULL;
    int failed = together_check(NULL, tutti_comm_create_from_env(NULL, &comm), "start") ||
                 train(comm, argument);
    if (failed && comm)
        tutti_comm_abort(comm, "a rank gave up");
    tutti_comm_destroy(comm);
    return failed;
}
