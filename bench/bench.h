/* allreduce_bench and its siblings: what the files of the program share.
 *
 * Read allreduce_bench.c first, then sweep_time.c (what is timed, and how), data.c (inputs and the
 * check). */
#ifndef TTI_BENCH_H
#define TTI_BENCH_H

#include "topology/bind.h"
#include "tutti/tutti.h"

#include <stdbool.h>
#include <stdio.h>

enum bench_memory { BENCH_LIBRARY, BENCH_MALLOC, BENCH_REGISTERED };

struct bench_options {
    enum tutti_collective collective;
    int uneven; /* the last rank's block over the first one's; 0: the form of one size */
    size_t min_bytes, max_bytes, step_bytes;
    double step_factor; /* > 1; 0: use step_bytes */
    int iterations;     /* 0: enough for a steady figure */
    int warmup;
    int aggregate; /* operations in a group, an iteration */
    int cycles;
    int check; /* checking runs a size; 0: none */
    int root;
    int average;  /* 0 rank 0, 1 average, 2 minimum, 3 maximum over ranks */
    bool explain; /* tell what was chosen and what it was predicted to take */
    bool rewrite; /* inputs get new values before each timed operation */
    bool all_types, all_ops;
    enum tutti_type type;
    int op;    /* enum tutti_op, or BENCH_MULSUM */
    int ranks; /* 0: not given */
    int hosts; /* that they pretend to be on; 0: not given */
    bool threads;
    enum tti_bind bind;
    enum bench_memory memory;
    const char *device; /* "cuda", "sim"; NULL: host memory */
    bool graph;         /* operations are captured once and replayed */
    const char *transport, *algo, *json, *csv, *plot, *plugin;
    int lanes;
    double timeout_s;
};
enum { BENCH_MULSUM = 100 };

/* Parse the command line. Returns 0 to go on; 1 when help or the version was printed (exit 0); 2
 * after one line about what is wrong. argv[0] may name a sibling ("all_gather_bench"). */
int bench_options_parse(int argc, char **argv, struct bench_options *options);

/* nccl-tests' names: "float", "half", "sum", ... */
const char *bench_type_name(enum tutti_type type);
const char *bench_op_name(int op);

/* ---- data.c ---- */

/* Blocks (of `count` elements) of each rank's buffers, at any rank, and the bytes of the larger:
 * the "size" of nccl-tests' tables. */
struct bench_shape {
    size_t count;    /* of the call; of uneven blocks the average */
    size_t elements; /* of all blocks of the longer buffer, before uneven ones are rounded down */
    size_t in_elements, out_elements;
    size_t in_offset, out_offset; /* in place: elements where each begins in the shared buffer */
    size_t bytes;
};

/* One (type, operator, size, placement) under measurement. */
struct bench_case {
    enum tutti_collective collective;
    int uneven; /* as in the options */
    enum tutti_type type;
    int op;
    int root;
    struct bench_shape shape;
    /* Of uneven blocks, by rank: elements that this one has for that, and gets of it. */
    size_t *in_counts, *out_counts;
};
/* Are its buffers blocks, one a rank, which may differ in size? */
bool bench_has_blocks(enum tutti_collective collective);
/* Of `bytes`, rounded down to what blocks can share: the shape, and the counts where there are any
 * (room for `size` of each). */
void bench_case_size(struct bench_case *c, size_t bytes, int rank, int size);
/* Fill the input; fill the output with bytes that are no result. Fails only on memory. */
int bench_data_fill(const struct bench_case *c, int rank, int size, void *in, void *out,
                    bool in_place);
/* Number of wrong elements in `out`. */
size_t bench_data_wrong(const struct bench_case *c, int rank, int size, const void *out);

/* ---- sweep.c ---- */

struct bench_timing {
    double time_us; /* an operation, mean of the iterations, then as options.average says */
    double p50_us, p99_us;
    double algbw, busbw; /* GB/s, decimal */
    long long wrong;     /* over all ranks; -1: not checked */
};
struct bench_row {
    size_t bytes, count;
    enum tutti_type type;
    int op, root;
    bool has_in_place;
    struct bench_timing out_of_place, in_place;
    struct tutti_choice choice, next; /* what was chosen, and what would have been without it */
    bool has_next;
};
struct bench_result {
    struct bench_row *rows;
    size_t count, capacity;
    long long wrong;
    double busbw_sum;
    size_t busbw_count;
    struct tutti_memory
        memory; /* of the communicator at the end: of each kind the most of any rank */
};
/* The buffers of `ranks` ranks on this host are not more than its memory; else `say` it. */
bool bench_memory_fits(const struct bench_options *options, int ranks, bool say);
/* The whole sweep on this rank; collective. 0 on success; else the failure was printed. */
int bench_sweep(const struct bench_options *options, tutti_comm *comm, struct bench_result *result);

/* ---- report.c: rank 0 only ---- */

/* "library-allocated", "malloc", "device", ... */
const char *bench_memory_name(const struct bench_options *options);
/* `devices`: the number of each rank's device; NULL for host memory. */
void bench_report_header(const struct bench_options *options, tutti_comm *comm, const int *devices);
void bench_report_row(const struct bench_row *row);
/* The JSON file as far as the sweep has come, so that one that is killed leaves what it has. */
int bench_report_keep(const struct bench_options *options, tutti_comm *comm,
                      const struct bench_result *result);
/* Footer, and JSON, CSV and plot where asked for. Returns the exit status. */
int bench_report_end(const struct bench_options *options, tutti_comm *comm,
                     const struct bench_result *result);
/* A line about what is being measured, on a terminal only; NULL removes it. */
void bench_progress(const char *text);

/* ---- explain.c: --explain, rank 0 only ---- */

void bench_explain_header(tutti_comm *comm);
/* The table: a line for each size, times being the medians of the sweep's cycles. */
void bench_explain(const struct bench_result *result, int cycles);

/* ---- plot.c ---- */

/* Draw bus bandwidth and latency over size with gnuplot into `path` (.png or .svg). */
int bench_plot(const struct bench_options *options, const struct bench_result *result, int ranks,
               const char *path);

/* ---- options.c: names ---- */

/* "all_reduce", "sendrecv"; of uneven blocks "all_gather_v". */
const char *bench_collective_label(enum tutti_collective collective, int uneven);

#endif
