/* A program as NCCL's users start it, by MPI, on the MPI that is made of Tutti (fake_mpi.c): both
 * libraries have a Tutti of their own, and each does its part. Started by tuttirun.
 *
 *     nccl_by_mpi CASE        (no CASE: lists them) */
#include <nccl.h>

#include "tests/nccl/mpi.h"
#include "tests/nccl/nccl_check.h"

#include <stdint.h>

enum { COUNT = 1000 };

static int rank, ranks;

static void begin(void)
{
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

/* Everything that MPI's half offers. */
static void calls(void)
{
    uint64_t all[16];
    MPI_Comm half = MPI_COMM_NULL, none = MPI_COMM_WORLD;
    int number, members = 0, smallest;
    begin();
    CHECK(ranks <= 16);
    all[rank] = (uint64_t)rank * 7;
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, sizeof all[0], MPI_BYTE, MPI_COMM_WORLD);
    for (int r = 0; r < ranks; r++)
        CHECK(all[r] == (uint64_t)r * 7);
    const int64_t own = rank + 5;
    MPI_Allgather(&own, 1, MPI_INT64_T, all, sizeof own, MPI_BYTE, MPI_COMM_WORLD);
    for (int r = 0; r < ranks; r++)
        CHECK(all[r] == (uint64_t)r + 5);

    const double pair[2] = {rank, -rank};
    double pairs[32];
    const int root = ranks - 1;
    MPI_Gather(pair, 2, MPI_DOUBLE, rank == root ? pairs : NULL, 2, MPI_DOUBLE, root,
               MPI_COMM_WORLD);
    if (rank == root)
        for (int r = 0; r < ranks; r++)
            CHECK(pairs[2 * r] == r && pairs[2 * r + 1] == -r);
    MPI_Gather(rank == root ? MPI_IN_PLACE : pair, 2, MPI_DOUBLE, pairs, 2, MPI_DOUBLE, root,
               MPI_COMM_WORLD);

    int sum = rank + 1;
    long least = rank + 3, most = 0;
    long long total = 1;
    int64_t greatest = rank;
    double mean = 0.5;
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&least, &most, 1, MPI_LONG, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &least, 1, MPI_LONG, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &total, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &greatest, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &mean, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == ranks * (ranks + 1) / 2 && least == 3 && most == ranks + 2 && total == ranks);
    CHECK(greatest == ranks - 1 && mean == 0.5 * ranks);

    /* Even and odd ranks, the last first. */
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_split(MPI_COMM_WORLD, MPI_UNDEFINED, 0, &none);
    CHECK(none == MPI_COMM_NULL);
    MPI_Comm_size(half, &members);
    MPI_Comm_rank(half, &number);
    CHECK(members == (ranks + 1 - rank % 2) / 2 && number == members - 1 - rank / 2);
    smallest = rank;
    MPI_Bcast(&smallest, 1, MPI_INT, members - 1, half);
    CHECK(smallest == rank % 2);
    MPI_Comm_free(&half);
    CHECK(half == MPI_COMM_NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}

/* A communicator of NCCL's beside it, by an id that MPI carries. */
static void both(void)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    void *memory = NULL;
    begin();
    if (rank == 0)
        OK(ncclGetUniqueId(&id));
    MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
    OK(ncclCommInitRank(&comm, ranks, id, rank));
    OK(ncclMemAlloc(&memory, COUNT * sizeof(float)));
    float *sums = memory; /* a simulated device's memory is the host's */
    for (int round = 1; round < 20; round++) {
        int wrong = 0;
        for (int i = 0; i < COUNT; i++)
            sums[i] = (float)(round * rank + i);
        OK(ncclAllReduce(sums, sums, COUNT, ncclFloat, ncclSum, comm, NULL));
        MPI_Barrier(MPI_COMM_WORLD);
        OK(ncclAllReduce(sums, sums, COUNT, ncclFloat, ncclMax, comm, NULL));
        for (int i = 0; i < COUNT; i++)
            wrong += sums[i] != (float)(round * ranks * (ranks - 1) / 2 + ranks * i);
        MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        CHECK(wrong == 0);
    }
    OK(ncclMemFree(memory));
    OK(ncclCommDestroy(comm));
    MPI_Finalize();
}

static void early(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
}

static void bytes(void)
{
    begin();
    MPI_Allreduce(MPI_IN_PLACE, &rank, sizeof rank, MPI_BYTE, MPI_SUM, MPI_COMM_WORLD);
}

/* Tutti's own text. */
static void differs(void)
{
    begin();
    if (rank == 0)
        MPI_Barrier(MPI_COMM_WORLD);
    else
        MPI_Bcast(&rank, 1, MPI_INT, 0, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    static const struct test_named cases[] = {
        {"calls", calls}, {"both", both}, {"early", early}, {"bytes", bytes}, {"differs", differs},
    };
    return named_run(argc, argv, cases, sizeof cases / sizeof cases[0]);
}
