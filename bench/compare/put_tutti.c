/* Puts between two ranks, by Tutti (put_pong.h): tuttirun -n 2 put_tutti SIZE... */
#include "bench/compare/put_pong.h"

#include "tutti/tutti.h"

#include <stdio.h>
#include <stdlib.h>

static tutti_comm *comm;
static tutti_window *window;
static void *from, *into;
static int rank;

static void ok(enum tutti_result result)
{
    if (result == TUTTI_OK)
        return;
    fprintf(stderr, "put_tutti: %s\n", tutti_last_error());
    exit(1);
}

static void put(size_t bytes, unsigned round)
{
    (void)round;
    ok(tutti_put(from, bytes, TUTTI_UINT8, 1 - rank, window, 0, 0));
}

static void await(size_t bytes, unsigned round)
{
    (void)bytes, (void)round;
    ok(tutti_wait_signal(1 - rank, 0, 1, comm));
}

int main(int argc, char **argv)
{
    ok(tutti_comm_create_from_env(NULL, &comm));
    rank = tutti_comm_rank(comm);
    if (tutti_comm_size(comm) != 2) {
        fprintf(stderr, "put_tutti: run it with two ranks\n");
        return 2;
    }
    from = calloc(1, PUT_MOST);
    ok(tutti_alloc(PUT_MOST, &into));
    ok(tutti_window_create(into, PUT_MOST, comm, &window));
    const struct put_pong pong = {"Tutti put, wait_signal", rank, from, into, put, await};
    const bool right = put_pong(&pong, argc, argv);
    ok(tutti_barrier(comm));
    tutti_window_destroy(window);
    tutti_comm_destroy(comm);
    free(from);
    tutti_free(into);
    return right ? 0 : 1;
}
