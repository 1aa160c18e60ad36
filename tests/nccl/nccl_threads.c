/* Ranks as threads (nccl_threads.h). */
#include "tests/nccl/nccl_threads.h"

#include "tests/nccl/nccl_check.h"

#include <time.h>

enum { MOST = 4, COUNT = 1000 };

void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

ncclResult_t settle(ncclComm_t comm)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        nap();
        OK(ncclCommGetAsyncError(comm, &state));
    }
    return state;
}

void check_sum(ncclComm_t comm, int count, int expected)
{
    int *memory = NULL, own = -1, rank = -1, found = 0;
    OK(ncclCommUserRank(comm, &rank));
    OK(ncclCommCount(comm, &found));
    CHECK(found == count);
    OK(ncclMemAlloc((void **)&memory, COUNT * sizeof *memory));
    own = 1 << rank;
    for (int i = 0; i < COUNT; i++)
        memory[i] = own;
    OK(ncclAllReduce(memory, memory, COUNT, ncclInt32, ncclSum, comm, NULL));
    for (int i = 0; i < COUNT; i++)
        CHECK(memory[i] == expected);
    OK(ncclMemFree(memory));
}

ncclUniqueId id;
int ranks;
pthread_barrier_t all_there;

static void *rank_main(void *argument)
{
    struct rank *r = argument;
    r->body(r);
    return NULL;
}

void as_threads(int n, void (*body)(struct rank *))
{
    pthread_t threads[MOST];
    struct rank all[MOST];
    ranks = n;
    OK(ncclGetUniqueId(&id));
    CHECK(pthread_barrier_init(&all_there, NULL, (unsigned)n) == 0);
    for (int r = 0; r < n; r++) {
        all[r] = (struct rank){.rank = r, .body = body};
        CHECK(pthread_create(&threads[r], NULL, rank_main, &all[r]) == 0);
    }
    for (int r = 0; r < n; r++)
        pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&all_there);
}
