/* What the peers' programs share: the same sweep, inputs, check and statistics as allreduce_bench,
 * over operations that a peer supplies. Each prints one JSON object a size on standard output.
 *
 * Read peer_mpi.c for a user, then peer_sweep.c. */
#ifndef TTI_PEER_SWEEP_H
#define TTI_PEER_SWEEP_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum peer_collective {
    PEER_ALL_REDUCE,
    PEER_BROADCAST,
    PEER_REDUCE_SCATTER,
    PEER_ALL_GATHER,
    PEER_REDUCE,
    PEER_ALL_TO_ALL,
    PEER_GATHER,
    PEER_SCATTER,
    PEER_SEND_RECV, /* to the next rank, and from the one before */
    PEER_COLLECTIVES
};
enum { PEER_MOST_SIZES = 64, PEER_MOST_RANKS = 64 };

struct peer_options {
    enum peer_collective collective;
    int uneven; /* the last rank's block over the first one's; 0: the form of one size */
    size_t sizes[PEER_MOST_SIZES]; /* bytes of the larger buffer */
    int size_count;
    int warmup;
    int iterations; /* 0: enough for 20 ms, from 20 to 2000 */
    int ranks;      /* of the communicator, which programs that start their own make so */
    bool rewrite;   /* new values in the inputs, untimed, before each timed operation */
    bool in_place;
    bool bind; /* the same: rank or thread r runs on the r-th core that the process may use */
    const char *algorithm; /* for programs that choose by a flag; "" otherwise */
};

/* --coll NAME (or NAME_v: the form for blocks that differ in size) --uneven N --sizes N,N,...
 * --warmup N --iterations N --rewrite --in-place --ranks N --bind
 * --algorithm NAME.
 * Returns 0, or 2 after one line about what is wrong. */
int peer_options_parse(int argc, char **argv, struct peer_options *options);

/* Elements at a rank for a size: `count` as in the call (of uneven blocks the average), and what
 * the rank gives and gets, which is 0 where only the root's buffer counts. In place (of the first
 * four collectives only) there is `out` alone, and the input lies in it: an all-gather's at the
 * rank's own block, others' at the beginning. A reduce-scatter's result is then at the beginning
 * too, as MPI has it. */
struct peer_shape {
    size_t count, in_elements, out_elements;
};
struct peer_shape peer_shape(const struct peer_options *options, size_t bytes, int rank);
/* Are its buffers blocks, one a rank, which may differ in size? */
bool peer_has_blocks(enum peer_collective collective);
/* Where block k begins in the longer buffer of a rank (k = ranks: where the last one ends): blocks
 * lie one after another. */
size_t peer_block(const struct peer_options *options, size_t bytes, int rank, int k);

/* A rank of a peer. The functions return 0, or anything else after printing what failed. */
struct peer {
    int rank, size;
    void *self;
    /* The collective of the options, float32, sum, root 0. In place: `in` lies in `out`. */
    int (*operate)(void *self, const float *in, float *out, size_t count);
    /* Of uneven blocks, before a size: the counts of what it gives and gets, by rank, and where
     * they begin. Good until the next. NULL: it has no such operations. */
    void (*blocks)(void *self, const size_t *counts, const size_t *displs);
    int (*barrier)(void *self);
    int (*sum)(void *self, double value, double *over_ranks);
    int (*max)(void *self, double value, double *over_ranks);
};
/* The whole sweep on this rank; collective. Returns the exit status: 0, or 1 after an error or
 * wrong results (which are printed in the row as well). */
int peer_sweep(const struct peer *peer, const struct peer_options *options);

/* ---- for ideal.c, which has no ranks ---- */

double peer_now_us(void);
/* The upper middle for 50, else by nearest rank; `samples` are sorted by it. */
double peer_percentile(double *samples, size_t count, int percent);
void peer_print_row(size_t bytes, size_t count, const double p50_p99_mean_us[3], int iterations,
                    double wrong);
/* Bind the calling thread to the n-th core that it may use; beyond the last, start over. */
int peer_bind(int n);

#ifdef __cplusplus
}
#endif
#endif
