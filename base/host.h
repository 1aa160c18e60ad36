/* Which host this is. */
#ifndef TTI_BASE_HOST_H
#define TTI_BASE_HOST_H

#include <stddef.h>
#include <stdint.h>

/* Equal in processes that share a kernel and a network namespace; TUTTI_HOST_ID splits them
 * further, to try several "hosts" on one machine. */
uint64_t tti_host_identity(void);

/* FNV-1a, going on from `hash`. */
uint64_t tti_hash_bytes(uint64_t hash, const void *data, size_t bytes);

#endif
