/* Cores for the ranks of a host, as launchers bind them.
 *
 * Ranks get disjoint sets of neighbouring cores that together are all of them; a set does not cross
 * a NUMA node unless there are fewer ranks than NUMA nodes, and then it is whole nodes. Where the
 * host has GPUs, the cores of a rank are on the NUMA node of its GPU (nearest.h), as long as every
 * rank gets one there; memory that a bound rank touches first, or that the library allocates for it
 * (device/near.h), lies there too. With more ranks than cores nobody is bound: sharing is the
 * kernel's business. */
#ifndef TTI_TOPOLOGY_BIND_H
#define TTI_TOPOLOGY_BIND_H

#include "topology/graph.h"

#include <sched.h>

/* The CPUs (all hardware threads of its cores) of rank `local_rank` of `local_ranks` on the first
 * host of the graph. Empty when there are fewer cores than ranks, or CPUs beyond CPU_SETSIZE. */
enum tutti_result tti_topology_cpus(const struct tti_topology *topology, int local_ranks,
                                    int local_rank, cpu_set_t *cpus);

enum tti_bind { TTI_BIND_AUTO, TTI_BIND_CORE, TTI_BIND_NONE };

/* "core" or "none"; `what` names the flag in the error text. */
enum tutti_result tti_bind_parse(const char *what, const char *text, enum tti_bind *bind);
/* The sets of all local ranks on this machine (free(3)), each told in the log; *cpus = NULL for not
 * bound. CORE fails where there are fewer cores than ranks. AUTO binds where every rank gets two
 * CPUs or more: a rank that may run on one only waits whenever something else runs there, and the
 * kernel keeps ranks apart well enough on a quiet machine. */
enum tutti_result tti_bind_ranks(enum tti_bind bind, int local_ranks, cpu_set_t **cpus);

/* Writes a line for each local rank of this machine, or one that says that they are not bound: its
 * CPUs (as tti_bind_ranks gave them) and why these, the NUMA node of its memory, the NIC of its
 * GPU. */
enum tutti_result tti_bind_explain(const cpu_set_t *cpus, int local_ranks, const char *prefix,
                                   FILE *out);
/* Why these CPUs: "near its gpu 3", "cores of its own". */
const char *tti_bind_reason(const struct tti_topology *topology, int local_rank,
                            const cpu_set_t *cpus, char *text, size_t bytes);
/* "0-3,8"; "none" for the empty set. */
const char *tti_cpus_text(const cpu_set_t *cpus, char *text, size_t bytes);

#endif
