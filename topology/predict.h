/* What an all-reduce of large buffers should reach on a machine, by a stated model.
 *
 * Links are taken down to what a protocol leaves of them for payload (tti_efficiency; each number
 * has its source), and rings and trees are searched on what remains. Where the switch of a host
 * adds up and multicasts, its own formula is there too. Sums are bus bandwidth as nccl-tests
 * counts: 2 (n-1)/n times bytes over seconds. Latency is not in it: it is the limit for large
 * sizes. */
#ifndef TTI_TOPOLOGY_PREDICT_H
#define TTI_TOPOLOGY_PREDICT_H

#include "topology/graph.h"

enum { TTI_ASSUMPTIONS = 8, TTI_ASSUMPTION_BYTES = 240 };

struct tti_busbw_prediction {
    int stops; /* GPUs, or hosts where there are none */
    /* Bus bandwidth of an all-reduce, GB/s; 0: unknown or not possible. */
    double ring, tree, nvls;
    double best;
    const char *algorithm; /* which of them is the best: "ring", "tree", "nvls"; "" for unknown */
    int assumption_count;
    char assumptions[TTI_ASSUMPTIONS]
                    [TTI_ASSUMPTION_BYTES]; /* those that were used, as sentences */
};

/* TUTTI_ERR_UNSUPPORTED when the machine has fewer than two GPUs (or hosts), or some cannot reach
 * the others. */
enum tutti_result tti_predict_all_reduce(const struct tti_topology *topology,
                                         struct tti_busbw_prediction *prediction);

/* The GPUs of the graph, or its hosts where it has none: *stops of *count, free(3). */
enum tutti_result tti_topology_stops(const struct tti_topology *topology, int **stops, int *count);

#endif
