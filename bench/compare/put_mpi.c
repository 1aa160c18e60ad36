/* Puts between two ranks, by Open MPI (put_pong.h): mpirun -n 2 put_openmpi SIZE... A flag of 8
 * bytes tells that the data are there; 8 bytes are their own flag, as MPI's benchmarks have it.
 * Memory is MPI's (MPI_Win_allocate), the epoch one for all. */
#include "bench/compare/put_pong.h"

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static MPI_Win window;
static unsigned char *from, *into;
static int rank;

/* Errors are fatal in MPI's default handler, which says what failed. */
static void put(size_t bytes, unsigned round)
{
    const uint64_t flag = round;
    if (bytes > 8) {
        MPI_Put(from, (int)bytes, MPI_BYTE, 1 - rank, 0, (int)bytes, MPI_BYTE, window);
        MPI_Win_flush(1 - rank, window);
    }
    MPI_Put(&flag, 8, MPI_BYTE, 1 - rank, PUT_MOST, 8, MPI_BYTE, window);
    MPI_Win_flush(1 - rank, window);
}

static void await(size_t bytes, unsigned round)
{
    const volatile uint64_t *flag = (const volatile uint64_t *)(void *)(into + PUT_MOST);
    (void)bytes;
    while (*flag != round)
        MPI_Win_sync(window);
}

int main(int argc, char **argv)
{
    int size = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    from = calloc(1, PUT_MOST);
    if (!from || size != 2) {
        fprintf(stderr, "put_mpi: run it with two ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Win_allocate(PUT_MOST + 8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, (void *)&into, &window);
    *(uint64_t *)(void *)(into + PUT_MOST) = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, window);
    const struct put_pong pong = {"MPI_Put, MPI_Win_flush", rank, from, into, put, await};
    const int right = put_pong(&pong, argc, argv);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    free(from);
    MPI_Finalize();
    return right ? 0 : 1;
}
