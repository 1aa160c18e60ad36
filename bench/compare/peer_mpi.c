/* The sweep on MPI, compiled once with each MPI's compiler wrapper.
 *
 * Ranks and cores come from mpirun; settings from its flags and the environment
 * (bench/compare/contenders.py). Read peer_sweep.c for what is timed. */
#include "bench/compare/peer_sweep.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>

static bool in_place;

static const void *source(const float *in)
{
    return in_place ? MPI_IN_PLACE : (const void *)in;
}

/* Errors are fatal in MPI's default handler, which says what failed: nothing to forward. */
static int all_reduce(void *self, const float *in, float *out, size_t count)
{
    (void)self;
    return MPI_Allreduce(source(in), out, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

/* MPI has it in place only: out of place, a program copies at the root. */
static int broadcast(void *self, const float *in, float *out, size_t count)
{
    const struct peer *peer = self;
    if (!in_place && peer->rank == 0)
        memcpy(out, in, count * sizeof *out);
    return MPI_Bcast(out, (int)count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static int reduce_scatter(void *self, const float *in, float *out, size_t count)
{
    (void)self;
    return MPI_Reduce_scatter_block(source(in), out, (int)count, MPI_FLOAT, MPI_SUM,
                                    MPI_COMM_WORLD);
}

static int all_gather(void *self, const float *in, float *out, size_t count)
{
    (void)self;
    return MPI_Allgather(source(in), (int)count, MPI_FLOAT, out, (int)count, MPI_FLOAT,
                         MPI_COMM_WORLD);
}

static int reduce(void *self, const float *in, float *out, size_t count)
{
    (void)self;
    return MPI_Reduce(in, out, (int)count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD);
}

static int all_to_all(void *self, const float *in, float *out, size_t count)
{
    (void)self;
    return MPI_Alltoall(in, (int)count, MPI_FLOAT, out, (int)count, MPI_FLOAT, MPI_COMM_WORLD);
}

static int gather(void *self, const float *in, float *out, size_t count)
{
    (void)self;
    return MPI_Gather(in, (int)count, MPI_FLOAT, out, (int)count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static int scatter(void *self, const float *in, float *out, size_t count)
{
    (void)self;
    return MPI_Scatter(in, (int)count, MPI_FLOAT, out, (int)count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static int send_recv(void *self, const float *in, float *out, size_t count)
{
    const struct peer *peer = self;
    const int next = (peer->rank + 1) % peer->size;
    const int before = (peer->rank + peer->size - 1) % peer->size;
    return MPI_Sendrecv(in, (int)count, MPI_FLOAT, next, 0, out, (int)count, MPI_FLOAT, before, 0,
                        MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* ---- blocks that differ in size: what a rank has for rank k, or gets of it ---- */

static int counts[PEER_MOST_RANKS], displs[PEER_MOST_RANKS];

static void blocks(void *self, const size_t *of, const size_t *at)
{
    const struct peer *peer = self;
    for (int k = 0; k < peer->size; k++) {
        counts[k] = (int)of[k];
        displs[k] = (int)at[k];
    }
}

static int reduce_scatter_v(void *self, const float *in, float *out, size_t count)
{
    (void)self;
    (void)count;
    return MPI_Reduce_scatter(in, out, counts, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static int all_gather_v(void *self, const float *in, float *out, size_t count)
{
    const struct peer *peer = self;
    (void)count;
    return MPI_Allgatherv(in, counts[peer->rank], MPI_FLOAT, out, counts, displs, MPI_FLOAT,
                          MPI_COMM_WORLD);
}

static int all_to_all_v(void *self, const float *in, float *out, size_t count)
{
    (void)self;
    (void)count;
    return MPI_Alltoallv(in, counts, displs, MPI_FLOAT, out, counts, displs, MPI_FLOAT,
                         MPI_COMM_WORLD);
}

static int gather_v(void *self, const float *in, float *out, size_t count)
{
    const struct peer *peer = self;
    (void)count;
    return MPI_Gatherv(in, counts[peer->rank], MPI_FLOAT, out, counts, displs, MPI_FLOAT, 0,
                       MPI_COMM_WORLD);
}

static int scatter_v(void *self, const float *in, float *out, size_t count)
{
    const struct peer *peer = self;
    (void)count;
    return MPI_Scatterv(in, counts, displs, MPI_FLOAT, out, counts[peer->rank], MPI_FLOAT, 0,
                        MPI_COMM_WORLD);
}

static int barrier(void *self)
{
    (void)self;
    return MPI_Barrier(MPI_COMM_WORLD);
}

static int sum(void *self, double value, double *over_ranks)
{
    (void)self;
    return MPI_Allreduce(&value, over_ranks, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static int max(void *self, double value, double *over_ranks)
{
    (void)self;
    return MPI_Allreduce(&value, over_ranks, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    static int (*const operations[])(void *, const float *, float *, size_t) = {
        [PEER_ALL_REDUCE] = all_reduce,
        [PEER_BROADCAST] = broadcast,
        [PEER_REDUCE_SCATTER] = reduce_scatter,
        [PEER_ALL_GATHER] = all_gather,
        [PEER_REDUCE] = reduce,
        [PEER_ALL_TO_ALL] = all_to_all,
        [PEER_GATHER] = gather,
        [PEER_SCATTER] = scatter,
        [PEER_SEND_RECV] = send_recv,
    };
    static int (*const uneven[])(void *, const float *, float *, size_t) = {
        [PEER_REDUCE_SCATTER] = reduce_scatter_v,
        [PEER_ALL_GATHER] = all_gather_v,
        [PEER_ALL_TO_ALL] = all_to_all_v,
        [PEER_GATHER] = gather_v,
        [PEER_SCATTER] = scatter_v,
    };
    struct peer_options options;
    struct peer peer = {.blocks = blocks, .barrier = barrier, .sum = sum, .max = max};
    MPI_Init(&argc, &argv);
    int status = peer_options_parse(argc, argv, &options);
    if (!status) {
        peer.self = &peer;
        in_place = options.in_place;
        peer.operate = (options.uneven ? uneven : operations)[options.collective];
        MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
        MPI_Comm_size(MPI_COMM_WORLD, &peer.size);
        options.ranks = peer.size;
        status = peer_sweep(&peer, &options);
    }
    MPI_Finalize();
    return status;
}
