/* Ids that are made on one host and used on others (test_nccl_hosts.py starts this on each).
 *
 *     nccl_far make FILE              make an id, write it there, and live until killed
 *     nccl_far rank R N FILE          as rank R of N, when the file is there: sums over all, over
 *                                     halves, and over all but the last
 *     nccl_far both R N FILE          make the id, then be rank R */
#include <nccl.h>

#include "tests/nccl/nccl_check.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static void make(const char *path)
{
    char part[512];
    ncclUniqueId id;
    OK(ncclGetUniqueId(&id));
    snprintf(part, sizeof part, "%s.part", path);
    FILE *file = fopen(part, "wb");
    CHECK(file && fwrite(&id, sizeof id, 1, file) == 1 && fclose(file) == 0);
    CHECK(rename(part, path) == 0);
    puts("made");
    fflush(stdout);
}

static ncclUniqueId take(const char *path)
{
    ncclUniqueId id;
    FILE *file = NULL;
    while (!(file = fopen(path, "rb")))
        nap();
    CHECK(fread(&id, sizeof id, 1, file) == 1);
    fclose(file);
    return id;
}

static void check_sum(ncclComm_t comm, int expected)
{
    int rank = -1, sum = -1;
    OK(ncclCommUserRank(comm, &rank));
    rank = 1 << rank;
    OK(ncclAllReduce(&rank, &sum, 1, ncclInt32, ncclSum, comm, NULL));
    CHECK(sum == expected);
}

static void rank_run(int rank, int ranks, const char *path)
{
    ncclComm_t comm = NULL, part = NULL, fewer = NULL;
    int last = ranks - 1;
    const ncclUniqueId id = take(path);
    puts("begins");
    fflush(stdout);
    OK(ncclCommInitRank(&comm, ranks, id, rank));
    check_sum(comm, (1 << ranks) - 1);
    OK(ncclCommSplit(comm, rank % 2, -rank, &part, NULL));
    check_sum(part, (1 << (rank % 2 ? ranks / 2 : (ranks + 1) / 2)) - 1);
    if (rank != last) {
        OK(ncclCommShrink(comm, &last, 1, &fewer, NULL, NCCL_SHRINK_DEFAULT));
        check_sum(fewer, (1 << (ranks - 1)) - 1);
        OK(ncclCommDestroy(fewer));
    }
    OK(ncclCommDestroy(part));
    OK(ncclCommDestroy(comm));
    puts("right");
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "make") == 0) {
        make(argv[2]);
        for (;;)
            pause();
    }
    CHECK(argc == 5);
    if (strcmp(argv[1], "both") == 0)
        make(argv[4]);
    rank_run(atoi(argv[2]), atoi(argv[3]), argv[4]);
    return 0;
}
