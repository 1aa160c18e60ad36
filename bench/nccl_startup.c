/* How long does a communicator of one rank take on libnccl.so.2? The first of the process, then the
 * median of some more, with an all-reduce each. Knows nothing but nccl.h.
 *
 *     build/bin/nccl_startup [COUNT] */
#include <nccl.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 1000 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int later(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* From the id to the end of the first all-reduce; negative on failure. */
static double start_once(void)
{
    ncclUniqueId id;
    ncclComm_t comm = NULL;
    float *word = NULL;
    ncclResult_t result = ncclMemAlloc((void **)&word, sizeof *word);
    const double begin = now_ms();
    if (result == ncclSuccess)
        result = ncclGetUniqueId(&id);
    if (result == ncclSuccess)
        result = ncclCommInitRank(&comm, 1, id, 0);
    if (result == ncclSuccess)
        result = ncclAllReduce(word, word, 1, ncclFloat32, ncclSum, comm, NULL);
    const double took = now_ms() - begin;
    (void)ncclCommDestroy(comm);
    (void)ncclMemFree(word);
    if (result != ncclSuccess)
        fprintf(stderr, "%s: %s\n", ncclGetErrorString(result), ncclGetLastError(NULL));
    return result == ncclSuccess ? took : -1;
}

int main(int argc, char **argv)
{
    static double times[MOST];
    const int asked = argc > 1 ? atoi(argv[1]) : 100;
    const int count = asked < 1 ? 1 : asked > MOST ? MOST : asked;
    const double first = start_once();
    if (first < 0)
        return 1;
    for (int i = 0; i < count; i++)
        if ((times[i] = start_once()) < 0)
            return 1;
    qsort(times, (size_t)count, sizeof *times, later);
    printf("one rank, from ncclGetUniqueId to the end of an all-reduce: first %.2f ms, then median "
           "%.2f ms of %d\n",
           first, times[count / 2], count);
    return 0;
}
