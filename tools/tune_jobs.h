/* Starting the ranks of tutti-tune. Apart from tune.h, since who binds ranks sees the topology. */
#ifndef TTI_TOOLS_TUNE_JOBS_H
#define TTI_TOOLS_TUNE_JOBS_H

/* Run this program again as so many ranks; its exit status. */
int tune_run_job(char **argv, int ranks);

#endif
