/* Elastic: a rank dies, the survivors shrink and go on, and a newcomer joins by a new communicator.
 * Processes; each survivor has summed before, between and after. The id of the new communicator
 * goes to the newcomer through a pipe, as it would through a file or a queue. */
#include "tests/require.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, VICTIM = 1, PARAMETER = 42, LIMIT_SECONDS = 60 };

static struct tutti_options options = TUTTI_OPTIONS_INIT;

static int sum_of_ones(tutti_comm *comm)
{
    int one = 1, sum = 0;
    REQUIRE(tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm) == TUTTI_OK);
    return sum;
}

/* All ranks, the newcomer too, begin with what rank 0 has. */
static void together_again(const struct tutti_id *id, int rank, int parameter)
{
    tutti_comm *comm = NULL;
    REQUIRE(tutti_comm_create(id, rank, RANKS, &options, &comm) == TUTTI_OK);
    REQUIRE(tutti_broadcast(&parameter, &parameter, 1, TUTTI_INT32, 0, comm) == TUTTI_OK);
    REQUIRE(parameter == PARAMETER && sum_of_ones(comm) == RANKS);
    tutti_comm_destroy(comm);
}

/* Who died, by the library's word. */
static int the_dead(tutti_comm *comm)
{
    int ranks[RANKS] = {-1, -1, -1}, count = 0;
    for (int turn = 0; turn < 100 * LIMIT_SECONDS && count == 0; turn++) {
        REQUIRE(tutti_comm_dead(comm, ranks, RANKS, &count) == TUTTI_OK);
        usleep(10000);
    }
    REQUIRE(count == 1);
    REQUIRE(tutti_comm_dead(comm, NULL, 0, &count) == TUTTI_OK && count == 1);
    REQUIRE(tutti_comm_dead(comm, NULL, 1, &count) == TUTTI_ERR_ARGUMENT);
    return ranks[0];
}

/* On without the dead; then rank 0 of the survivors invites. */
static void survive(tutti_comm *comm, int invitation)
{
    tutti_comm *fewer = NULL;
    struct tutti_id id;
    int one = 1, sum = 0;
    enum tutti_result result = TUTTI_OK;
    while (result == TUTTI_OK)
        result = tutti_all_reduce(&one, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm);
    REQUIRE(result == TUTTI_ERR_PEER && strstr(tutti_last_error(), "rank 1 "));
    const int dead = the_dead(comm);
    REQUIRE(dead == VICTIM && tutti_comm_shrink(comm, &dead, 1, &fewer) == TUTTI_OK);
    tutti_comm_destroy(comm);
    int rank = tutti_comm_rank(fewer);
    REQUIRE(sum_of_ones(fewer) == RANKS - 1);
    if (rank == 0) {
        REQUIRE(tutti_id_create("127.0.0.1", &id) == TUTTI_OK);
        REQUIRE(write(invitation, &id, sizeof id) == (ssize_t)sizeof id);
    }
    REQUIRE(tutti_broadcast(&id, &id, sizeof id, TUTTI_UINT8, 0, fewer) == TUTTI_OK);
    together_again(&id, rank, rank == 0 ? PARAMETER : 0);
    tutti_comm_destroy(fewer);
}

/* Who dies does so when the others are through with what all have called; they tell by a pipe. */
static void rank_of_old(const struct tutti_id *id, int rank, int invitation, const int *through)
{
    char byte = 0;
    tutti_comm *comm = NULL;
    (void)alarm(4 * LIMIT_SECONDS); /* who waits for one that has failed ends, too */
    REQUIRE(tutti_comm_create(id, rank, RANKS, &options, &comm) == TUTTI_OK);
    REQUIRE(sum_of_ones(comm) == RANKS);
    for (int others = RANKS - 1; rank == VICTIM && others > 0; others--)
        REQUIRE(read(through[0], &byte, 1) == 1);
    if (rank == VICTIM)
        (void)raise(SIGKILL);
    REQUIRE(write(through[1], &byte, 1) == 1);
    survive(comm, invitation);
    exit(0);
}

static void newcomer(int invitation)
{
    struct tutti_id id;
    (void)alarm(4 * LIMIT_SECONDS);
    REQUIRE(read(invitation, &id, sizeof id) == (ssize_t)sizeof id);
    together_again(&id, RANKS - 1, 0);
    exit(0);
}

int main(int argc, char **argv)
{
    struct tutti_id id;
    int pipes[2], through[2], failed = 0;
    pid_t pids[RANKS + 1];
    options.transports = argc > 1 ? argv[1] : "shm";
    options.timeout_s = options.init_timeout_s = LIMIT_SECONDS;
    REQUIRE(tutti_id_create("127.0.0.1", &id) == TUTTI_OK && pipe(pipes) == 0 &&
            pipe(through) == 0);
    for (int r = 0; r <= RANKS; r++) {
        pids[r] = fork();
        REQUIRE(pids[r] >= 0);
        if (pids[r] == 0 && r < RANKS)
            rank_of_old(&id, r, pipes[1], through);
        if (pids[r] == 0)
            newcomer(pipes[0]);
    }
    for (int r = 0; r <= RANKS; r++) {
        int status = 0;
        REQUIRE(waitpid(pids[r], &status, 0) == pids[r]);
        bool right = r == VICTIM ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0;
        failed += !right;
    }
    printf("%d ranks, one died, %d went on, one joined: %s\n", RANKS, RANKS - 1,
           failed ? "FAILED" : "ok");
    return failed ? 1 : 0;
}
