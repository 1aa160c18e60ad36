/* Ranks for an example: the launcher's (tuttirun, torchrun, mpirun, ...), one alone without any, or
 * threads of this process. */
#ifndef EXAMPLES_TRAIN_TOGETHER_H
#define EXAMPLES_TRAIN_TOGETHER_H

#include "tutti/tutti.h"

/* Call `train` on each rank of this process. threads 0: one rank, from the environment. Returns 0
 * if all returned 0. */
int together_run(int threads, int (*train)(tutti_comm *comm, void *argument), void *argument);

/* 0 for TUTTI_OK; else 1, after "rank R: what: text" on stderr. comm may be NULL. */
int together_check(tutti_comm *comm, enum tutti_result result, const char *what);

/* Of a clock that only goes on. */
double together_seconds(void);

#endif
