/* A message there and back: the time one way, as perftest's ib_write_lat tells it. For ./dev rdma
 * bench (in_guest.py).
 *
 *     tutti-ping-pong BYTES TURNS      two ranks, by the launcher's environment */
#include "base/clock.h"
#include "tutti/tutti.h"

#include <stdio.h>
#include <stdlib.h>

enum { WARM_UP = 20 };

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static enum tutti_result turn(tutti_comm *comm, void *memory, size_t bytes)
{
    const int other = !tutti_comm_rank(comm);
    enum tutti_result result = TUTTI_OK;
    for (int half = 0; half < 2 && result == TUTTI_OK; half++)
        result = half == other ? tutti_recv(memory, bytes, TUTTI_UINT8, other, comm)
                               : tutti_send(memory, bytes, TUTTI_UINT8, other, comm);
    return result;
}

static enum tutti_result turns(tutti_comm *comm, size_t bytes, size_t count, uint64_t *ns)
{
    void *memory = NULL;
    enum tutti_result result = tutti_alloc(bytes, &memory);
    for (size_t i = 0; i < WARM_UP + count && result == TUTTI_OK; i++) {
        uint64_t begin = tti_now_ns();
        result = turn(comm, memory, bytes);
        if (i >= WARM_UP)
            ns[i - WARM_UP] = tti_now_ns() - begin;
    }
    tutti_free(memory);
    return result;
}

int main(int argc, char **argv)
{
    tutti_comm *comm = NULL;
    const size_t bytes = argc == 3 ? strtoul(argv[1], NULL, 10) : 0;
    const size_t count = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    uint64_t *ns = bytes > 0 && count > 0 ? calloc(count, sizeof *ns) : NULL;
    if (!ns) {
        fprintf(stderr, "usage: tutti-ping-pong BYTES TURNS, in each of two ranks\n");
        return 2;
    }
    enum tutti_result result = tutti_comm_create_from_env(NULL, &comm);
    if (result == TUTTI_OK && tutti_comm_size(comm) != 2) {
        fprintf(stderr, "tutti-ping-pong: %d ranks, not two\n", tutti_comm_size(comm));
        tutti_comm_destroy(comm);
        free(ns);
        return 2;
    }
    if (result == TUTTI_OK)
        result = turns(comm, bytes, count, ns);
    if (result != TUTTI_OK)
        fprintf(stderr, "tutti-ping-pong: %s\n", tutti_last_error());
    else if (tutti_comm_rank(comm) == 0) {
        qsort(ns, count, sizeof *ns, compare);
        printf("%zu B: one way %.2f us\n", bytes, (double)ns[count / 2] / 2e3);
    }
    tutti_comm_destroy(comm);
    free(ns);
    return result != TUTTI_OK;
}
