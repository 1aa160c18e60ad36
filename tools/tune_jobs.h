/* Starting the ranks of tutti-tune. Apart from tune.h, since who binds ranks sees the topology. */
#ifndef TTI_TOOLS_TUNE_JOBS_H
#define TTI_TOOLS_TUNE_JOBS_H

#include "base/error.h"

#include <sched.h>

/* Where ranks outnumber the CPUs and come out even: a CPU for each of them, by turns, the same
 * number of ranks on each. Where they are left to the kernel, one CPU may have two and another four
 * for as long as a job runs, and what is measured in a job is then of one such case. Otherwise
 * NULL: with 3 ranks bound to 2 CPUs it would be turns of two that are measured, where programs,
 * which are not bound, are modelled by one and a half. The caller frees `*cpus`, one set a rank. */
enum tutti_result tune_job_share(const cpu_set_t *allowed, int ranks, cpu_set_t **cpus);

/* Run this program again as so many ranks; its exit status. */
int tune_run_job(char **argv, int ranks);

#endif
