/* Measuring this machine where nothing states a number, as on virtual machines: between cores,
 * memory, GPUs, and NICs of unknown speed. Every step has a deadline; all take seconds. What is
 * found goes on the graph (topology/measured.h). Read next: topo_measure.c. */
#ifndef TTI_TOOLS_TOPO_MEASURE_H
#define TTI_TOOLS_TOPO_MEASURE_H

#include "device/gpu.h"
#include "topology/measured.h"

struct measure {
    struct tti_topology *topology; /* this machine: its first host is this one */
    FILE *progress;                /* a terminal, or NULL */
    uint64_t deadline;             /* what has not been begun by then is left out */
    int found, left_out;
};

/* All of it; about `seconds` at most. */
enum tutti_result topo_measure(struct tti_topology *topology, double seconds, FILE *progress,
                               struct measure *done);

/* The parts. Each goes on with the next pair where one could not be measured (told in the log). */
enum tutti_result measure_cores(struct measure *m);  /* measure_cores.c */
enum tutti_result measure_memory(struct measure *m); /* measure_memory.c */
enum tutti_result measure_nics(struct measure *m);   /* measure_nics.c */
enum tutti_result measure_gpus(struct measure *m,
                               const struct tti_gpu_ops *ops); /* measure_gpus.c */

/* "measuring core 0 to core 1": whether there is time for it; shows it if so. */
bool measure_begin(struct measure *m, int from, int to);
enum tutti_result measure_keep(struct measure *m, const struct tti_graph_link *link);
/* The CPU of a core; the first core in a node's subtree; -1: none. */
int measure_cpu(const struct tti_topology *topology, int core);
int measure_first_core(const struct tti_topology *topology, int node);
/* This thread runs on the CPU alone from here on. */
bool measure_pin(int cpu);

#endif
