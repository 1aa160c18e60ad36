/* What a process holds, as the kernel counts it; to be compared before and after. */
#ifndef TTI_TESTS_HOLDINGS_H
#define TTI_TESTS_HOLDINGS_H

#include <stddef.h>

struct process_holdings {
    long files, threads, segments;
    size_t heap; /* bytes handed out by malloc; 0 under a sanitizer, which has its own */
};

/* A joined thread shows for a moment after: waits for that where there are more than `threads`. */
struct process_holdings process_holdings(long threads);

#endif
