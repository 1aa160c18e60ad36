/* Ranks of a program that knows nothing but nccl.h, as threads, and what such tests share. */
#ifndef TTI_TESTS_NCCL_THREADS_H
#define TTI_TESTS_NCCL_THREADS_H

#include <nccl.h>

#include <pthread.h>

/* Of the communicator that the ranks make. */
extern ncclUniqueId id;
extern int ranks;
extern pthread_barrier_t all_there;

struct rank {
    int rank;
    void (*body)(struct rank *);
    ncclComm_t comm;
};

/* Make an id, and run n of them. */
void as_threads(int n, void (*body)(struct rank *));

void nap(void);
/* Until the communicator has done what it was asked for. */
ncclResult_t settle(ncclComm_t comm);
/* It has so many ranks, and a sum over 1 << rank gives what is expected. */
void check_sum(ncclComm_t comm, int count, int expected);

#endif
