/* A message there and back: the time one way, as perftest's ib_write_lat tells it. For ./dev rdma
 * bench (in_guest.py).
 *
 *     tutti-ping-pong BYTES TURNS      two ranks, by the launcher's environment */
#include "base/clock.h"
#include "tutti/tutti.h"

#include <stdio.h>
#include <stdlib.h>

enum { WARM_UP = 20 };

/* As perftest: where the clock is a device, looking at it twice a turn would be a part of the time.
 */
static uint64_t ticks(void)
{
#if defined(__x86_64__)
    return __builtin_ia32_rdtsc();
#else
    return tti_now_ns();
#endif
}

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

/* Ticks of each, and how many nanoseconds all of them took. */
static enum tutti_result turns(tutti_comm *comm, size_t bytes, size_t count, uint64_t *each,
                               double *ns_of_tick)
{
    void *memory = NULL;
    uint64_t begun = 0, began_ns = 0, last = 0;
    enum tutti_result result = tutti_alloc(bytes, &memory);
    for (size_t i = 0; i < WARM_UP + count && result == TUTTI_OK; i++) {
        if (i == WARM_UP) {
            began_ns = tti_now_ns();
            begun = last = ticks();
        }
        result = turn(comm, memory, bytes);
        if (i < WARM_UP)
            continue;
        const uint64_t now = ticks();
        each[i - WARM_UP] = now - last;
        last = now;
    }
    *ns_of_tick = (double)(tti_now_ns() - began_ns) / (double)(last - begun);
    tutti_free(memory);
    return result;
}

int main(int argc, char **argv)
{
    tutti_comm *comm = NULL;
    const size_t bytes = argc == 3 ? strtoul(argv[1], NULL, 10) : 0;
    const size_t count = argc == 3 ? strtoul(argv[2], NULL, 10) : 0;
    uint64_t *each = bytes > 0 && count > 0 ? calloc(count, sizeof *each) : NULL;
    double ns_of_tick = 0;
    if (!each) {
        fprintf(stderr, "usage: tutti-ping-pong BYTES TURNS, in each of two ranks\n");
        return 2;
    }
    enum tutti_result result = tutti_comm_create_from_env(NULL, &comm);
    if (result == TUTTI_OK && tutti_comm_size(comm) != 2) {
        fprintf(stderr, "tutti-ping-pong: %d ranks, not two\n", tutti_comm_size(comm));
        tutti_comm_destroy(comm);
        free(each);
        return 2;
    }
    if (result == TUTTI_OK)
        result = turns(comm, bytes, count, each, &ns_of_tick);
    if (result != TUTTI_OK)
        fprintf(stderr, "tutti-ping-pong: %s\n", tutti_last_error());
    else if (tutti_comm_rank(comm) == 0) {
        qsort(each, count, sizeof *each, compare);
        printf("%zu B: one way %.2f us\n", bytes, (double)each[count / 2] * ns_of_tick / 2e3);
    }
    tutti_comm_destroy(comm);
    free(each);
    return result != TUTTI_OK;
}
