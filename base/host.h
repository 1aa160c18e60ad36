/* Which host this is, and how much of it is ours. */
#ifndef TTI_BASE_HOST_H
#define TTI_BASE_HOST_H

#include <stddef.h>
#include <stdint.h>

/* Equal in processes that share a kernel and a network namespace; TUTTI_HOST_ID splits them
 * further, to try several "hosts" on one machine. */
uint64_t tti_host_identity(void);

/* Processors that this thread may run on (taskset, a cpuset, a launcher), at least 1. */
int tti_host_cpus(void);

/* FNV-1a, going on from `hash`. */
uint64_t tti_hash_bytes(uint64_t hash, const void *data, size_t bytes);

#endif
