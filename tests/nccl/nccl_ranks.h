/* Ranks of a program that knows nothing but nccl.h: as threads, or as processes. */
#ifndef TTI_TESTS_NCCL_RANKS_H
#define TTI_TESTS_NCCL_RANKS_H

#include <stdbool.h>

enum { NCCL_RANKS_MOST = 4 };

/* Call `rank_main` for each rank with a pointer to its number. Returns how many failed. A thread
 * that finds something wrong ends the program. */
int nccl_ranks_run(int ranks, bool processes, void *(*rank_main)(void *number));

#endif
