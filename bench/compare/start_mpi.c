/* One start of an MPI program (bench/compare/start.h), compiled once with each MPI's compiler
 * wrapper. */
#include "bench/compare/start.h"

#include <mpi.h>
#include <stdlib.h>

/* Errors are fatal in MPI's default handler, which says what failed. */
int main(int argc, char **argv)
{
    int64_t own[START_MOST], most[START_MOST], sum[START_MOST], begin = start_now_ns();
    double one = 1, all = 0;
    int rank = 0, ranks = 1;
    MPI_Init(&argc, &argv);
    own[START_READY_NS] = start_now_ns();
    own[START_INIT_NS] = own[START_READY_NS] - begin;
    MPI_Allreduce(&one, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    own[START_FIRST_NS] = start_now_ns();
    own[START_PSS] = start_pss();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double *in = calloc((size_t)ranks, sizeof *in), *out = calloc((size_t)ranks, sizeof *out);
    if (!in || !out || all != ranks)
        MPI_Abort(MPI_COMM_WORLD, 1);
    MPI_Alltoall(in, 1, MPI_DOUBLE, out, 1, MPI_DOUBLE, MPI_COMM_WORLD);
    own[START_PSS_ALL] = start_pss();
    MPI_Reduce(own, most, START_MOST, MPI_INT64_T, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(own, sum, START_MOST, MPI_INT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        start_print(most, sum, START_MOST, ranks);
    free(in);
    free(out);
    MPI_Finalize();
    return 0;
}
