/* What the files of the sweep share. Start with sweep.c, the loops. */
#ifndef TTI_BENCH_SWEEP_H
#define TTI_BENCH_SWEEP_H

#include "bench/bench.h"
#include "bench/bench_device.h"

struct sweep {
    const struct bench_options *o;
    tutti_comm *comm;
    int rank, size;
    char *in, *out; /* max_bytes each */
    struct bench_device device;
    char *in_host, *out_host; /* what is in them, for the host; the same for host memory */
    int *devices;             /* by rank */
    enum tutti_op user_op;
    struct bench_case c;
    uint64_t *samples;
    size_t sample_capacity;
};

/* Print what failed, with the last error; returns 1. */
int bench_failed(const char *what);

#define BENCH_TRY(call, what)          \
    do {                               \
        if ((call) != TUTTI_OK)        \
            return bench_failed(what); \
    } while (0)

/* sweep_time.c: untimed operations for a moment, the same number on all ranks: the system may have
 * begun them on one core, and moves them apart within milliseconds, which would show in the first
 * row. */
int bench_settle(struct sweep *s);
/* One row's operation, out of place or in place: timed and checked. */
int bench_measure(struct sweep *s, bool in_place, struct bench_timing *t);

#endif
