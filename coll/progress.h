/* Where a communicator's progress thread runs, the one that carries out asynchronous operations
 * (work.h): where the system lets it, or on one processor, by TUTTI_PROGRESS_CORE.
 *
 *     3, 0,2 or 4-7   processors, as the system numbers them, dealt to the ranks of a host in turn
 *     auto            the last processors of those that a rank may run on, if each rank that shares
 *                     them has two or more: one to compute on, one for this thread. Those on the
 *                     NUMA node of the host's fastest NIC come first, where the topology tells it:
 *                     this thread is the one that moves what the NIC brought
 */
#ifndef TTI_COLL_PROGRESS_H
#define TTI_COLL_PROGRESS_H

#include "coll/crowd.h"

#include <pthread.h>
#include <sched.h>

struct tutti_comm;

/* Decide for this rank: comm->queue.cpu. Needs comm->cpus and the hosts. Fails, with the variable
 * named, where the text is wrong or no thread of this process may run there. */
enum tutti_result tti_progress_place(struct tutti_comm *comm);

/* pthread_create(3), on processor `cpu`; -1: where the system lets it. EINVAL: it cannot be there.
 */
int tti_progress_thread(pthread_t *thread, int cpu, void *(*main)(void *), void *argument);

/* Entry `index` of the list in `text`, which is used in turn. */
enum tutti_result tti_progress_listed(const char *text, int index, int *cpu);
/* Of rank `index` of `ranks` that may all run on `own`, one that is in `near` as well if there are
 * enough of these; -1 where there are not two of `own` for each. */
int tti_progress_auto(const struct tti_cpus *own, const cpu_set_t *near, int index, int ranks);

#endif
