/* What start_tutti.c and start_mpi.c share: what is measured of one start, and how it is printed.
 *
 * A rank notes the time at the beginning of main, after init and after the first all-reduce (one
 * number), and its memory there and once more after an all-to-all, when all pairs of ranks have
 * talked. startup.py knows when it launched them: all clocks are CLOCK_MONOTONIC of one host. */
#ifndef TTI_COMPARE_START_H
#define TTI_COMPARE_START_H

#include <stdint.h>

enum start_figure {
    START_INIT_NS,  /* spent in init */
    START_READY_NS, /* when init was over */
    START_FIRST_NS, /* when the first all-reduce was over */
    START_PSS,      /* bytes: private, and its part of what is shared */
    START_PSS_ALL,  /* ... after the all-to-all */
    START_MOST,     /* how many all programs have */
    /* Ours alone, after the all-to-all: tutti_comm_memory. */
    START_HOST = START_MOST,
    START_SHARED,
    START_SHARED_USED,
    START_DESCRIPTORS,
    START_FIGURES,
};

int64_t start_now_ns(void);
/* From /proc/self/smaps_rollup; 0 where there is none. */
int64_t start_pss(void);
/* One JSON object of the first `count` figures: the largest of all ranks, and their sum. */
void start_print(const int64_t *most, const int64_t *sum, int count, int ranks);

#endif
