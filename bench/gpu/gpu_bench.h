/* Micro-benchmarks of device/gpu.h: what gpu_bench.c and gpu_ranks.c share. */
#ifndef TTI_BENCH_GPU_BENCH_H
#define TTI_BENCH_GPU_BENCH_H

#include "device/gpu.h"

struct gpu_bench {
    struct tti_gpu *gpu;
    tutti_stream stream;
    size_t most_bytes; /* of a buffer */
    int repeats;       /* of a measurement; its median counts */
    double copy_GBps;  /* read and written, of a device-to-device copy: the ceiling */
};

/* Ends the program with the error's text. */
void gpu_must(enum tutti_result result, const char *what);
double gpu_median(double *values, int count);
double gpu_now(void); /* seconds */
void gpu_finish(struct gpu_bench *b, tutti_stream stream);
/* One line of the result, as JSON: {"what": ..., "ranks": ..., "bytes": ..., "us": ..., "GBps":
 * ..., "of_floor": ...}; figures that are 0 are left out. */
void gpu_line(const char *what, int ranks, size_t bytes, double us, double GBps, double of_floor);

/* All-reduces of ranks that share the device: latency by graph replay, and bandwidth. */
void gpu_ranks(struct gpu_bench *b, int ranks);

#endif
