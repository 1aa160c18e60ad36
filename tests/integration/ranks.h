/* Running a function as several ranks: threads of this process, or forked processes. */
#ifndef TTI_TESTS_RANKS_H
#define TTI_TESTS_RANKS_H

#include "tutti/tutti.h"

typedef int tti_rank_function(tutti_comm *comm, void *argument);

struct tti_ranks {
    int ranks;
    bool processes;
    int threads; /* processes only: ranks in each of them; 0 is 1 */
    int hosts;   /* > 1 (processes only): pretend that ranks are dealt in blocks to so many hosts */
    struct tutti_options options;
    void (*prepare)(int rank); /* processes only: called before the communicator is made; or NULL */
};

/* Create a communicator of `ranks` ranks, call `function` on each, destroy. Returns the number of
 * ranks that failed (printed with their errors): 0 when all returned 0. */
int tti_ranks_run(const struct tti_ranks *how, tti_rank_function *function, void *argument);
/* The same, and say how it went: "NAME: ok". 1 if any rank failed, else 0. */
int tti_ranks_test(const struct tti_ranks *how, const char *name, tti_rank_function *function,
                   void *argument);

/* Wait until all ranks of the run have come here as often as this one: by memory that they share,
 * not by the communicator. What befalls that next, a death or an abort, reaches nobody who is still
 * on the way out of a call before. False: they have not come for a minute. */
bool tti_ranks_together(void);

/* One argument of a test's command line, argv[*at], if it is one of these; *at goes to the last
 * word of it. False: it is another.
 *     --ranks N   --processes   --threads T (of each process)   --hosts H (processes, too)
 *     --transport LIST */
bool tti_ranks_flag(struct tti_ranks *how, int argc, char **argv, int *at);
/* A command line of nothing but these. False, and said so: there is another word. */
bool tti_ranks_flags(struct tti_ranks *how, int argc, char **argv);

#endif
