/* Who makes an id need not be rank 0, nor a rank at all: a process that was there before the id
 * gets it through a pipe. Only one rank 0 may use it. */
#include "tests/require.h"

#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 3, LIMIT_SECONDS = 60, NOBODY = -1 };

static tutti_comm *arrive(const struct tutti_id *id, int rank)
{
    struct tutti_options options = TUTTI_OPTIONS_INIT;
    tutti_comm *comm = NULL;
    int sum = 0;
    options.timeout_s = options.init_timeout_s = LIMIT_SECONDS;
    REQUIRE(tutti_comm_create(id, rank, RANKS, &options, &comm) == TUTTI_OK);
    REQUIRE(tutti_all_reduce(&rank, &sum, 1, TUTTI_INT32, TUTTI_SUM, comm) == TUTTI_OK);
    REQUIRE(sum == RANKS * (RANKS - 1) / 2);
    return comm;
}

/* Returns when somebody listens on the id's port: "tutti1:SECRET:PORT:127.0.0.1". */
static void await_rank_0(const struct tutti_id *id)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    unsigned port = 0;
    REQUIRE(sscanf(id->text, "tutti1:%*[0-9a-f]:%u:", &port) == 1);
    address.sin_port = htons((uint16_t)port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int turn = 0; turn < 100 * LIMIT_SECONDS; turn++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        const int there = connect(fd, (struct sockaddr *)&address, sizeof address) == 0;
        close(fd);
        if (there)
            return;
        usleep(10000);
    }
    REQUIRE(!"nobody listens");
}

/* While another process' rank 0 awaits the ranks, one of the process that made the id is told. */
static void one_too_many(const struct tutti_id *id)
{
    tutti_comm *comm = NULL;
    await_rank_0(id);
    REQUIRE(tutti_comm_create(id, 0, RANKS, NULL, &comm) == TUTTI_ERR_SYSTEM && !comm);
    REQUIRE(strstr(tutti_last_error(), "is there a second rank 0?"));
}

/* The ranks but `maker` are children that were made before the id was. */
static void made_by(int maker)
{
    int to[RANKS][2], arrived[2], finish[2];
    pid_t children[RANKS];
    struct tutti_id id;
    char byte = 0;
    REQUIRE(pipe(arrived) == 0 && pipe(finish) == 0);
    for (int rank = 0; rank < RANKS; rank++) {
        REQUIRE(pipe(to[rank]) == 0);
        children[rank] = rank == maker ? 0 : fork();
        if (rank == maker || children[rank] != 0)
            continue;
        REQUIRE(read(to[rank][0], &id, sizeof id) == (ssize_t)sizeof id);
        tutti_comm *comm = arrive(&id, rank);
        REQUIRE(write(arrived[1], &byte, 1) == 1 && read(finish[0], &byte, 1) == 1);
        tutti_comm_destroy(comm);
        exit(0);
    }
    REQUIRE(tutti_id_create("127.0.0.1", &id) == TUTTI_OK);
    for (int rank = 0; rank < RANKS; rank++) {
        REQUIRE(rank == maker || write(to[rank][1], &id, sizeof id) == (ssize_t)sizeof id);
        if (rank == 0 && maker == NOBODY)
            one_too_many(&id);
    }
    tutti_comm *comm = maker == NOBODY ? NULL : arrive(&id, maker);
    const int others = RANKS - (maker != NOBODY);
    for (int rank = 0; rank < others; rank++)
        REQUIRE(read(arrived[0], &byte, 1) == 1);
    for (int rank = 0; rank < others; rank++)
        REQUIRE(write(finish[1], &byte, 1) == 1);
    tutti_comm_destroy(comm);
    for (int rank = 0; rank < RANKS; rank++) {
        int status = 0;
        REQUIRE(rank == maker ||
                (waitpid(children[rank], &status, 0) == children[rank] && status == 0));
        close(to[rank][0]);
        close(to[rank][1]);
    }
    close(arrived[0]);
    close(arrived[1]);
    close(finish[0]);
    close(finish[1]);
}

/* What was wrong with rank 0's call can be put right: the id is as before, and so is what the
 * process has open. */
static void called_again(void)
{
    struct tutti_options wrong = TUTTI_OPTIONS_INIT;
    struct tutti_id id;
    tutti_comm *comm = NULL;
    char byte = 0;
    int ready[2];
    wrong.lanes = -1;
    REQUIRE(tutti_id_create("127.0.0.1", &id) == TUTTI_OK && pipe(ready) == 0);
    const int before = dup(0);
    close(before);
    REQUIRE(tutti_comm_create(&id, 0, RANKS, &wrong, &comm) == TUTTI_ERR_ARGUMENT);
    REQUIRE(tutti_comm_create(&id, 0, 0, NULL, &comm) == TUTTI_ERR_ARGUMENT);
    const int after = dup(0);
    close(after);
    REQUIRE(before == after);
    pid_t children[RANKS];
    for (int rank = 1; rank < RANKS; rank++) {
        children[rank] = fork();
        if (children[rank] != 0)
            continue;
        comm = arrive(&id, rank);
        REQUIRE(write(ready[1], &byte, 1) == 1);
        tutti_comm_destroy(comm);
        exit(0);
    }
    comm = arrive(&id, 0);
    for (int rank = 1; rank < RANKS; rank++) {
        int status = 0;
        REQUIRE(read(ready[0], &byte, 1) == 1);
        REQUIRE(waitpid(children[rank], &status, 0) == children[rank] && status == 0);
    }
    tutti_comm_destroy(comm);
    close(ready[0]);
    close(ready[1]);
}

int main(void)
{
    called_again();
    made_by(NOBODY);
    made_by(1);
    made_by(0);
    puts("ids of a launcher, of rank 1 and of rank 0: ok");
    return 0;
}
