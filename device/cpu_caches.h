/* The data caches of this machine's processors, as the kernel tells them. */
#ifndef TTI_DEVICE_CPU_CACHES_H
#define TTI_DEVICE_CPU_CACHES_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the caches L1, L2 and L3 that CPU 0 sees; 0: unknown or none. `root` is "" or, in
 * tests, a folder that holds a copy of /sys. */
void tti_cpu_caches(const char *root, uint64_t cache[3]);

/* The same, with as much of L3 as this machine's CPUs may count on: a virtual machine is told of
 * all of it, and not of the processors beside it who fill it, too. */
void tti_cpu_caches_usable(const char *root, uint64_t cache[3]);

/* Bytes of a core's second cache, and of the last one that this machine's CPUs may count on (what
 * is usual, where the kernel does not tell). Looked at once for the process. */
size_t tti_cpu_second_cache(void);
size_t tti_cpu_last_cache(void);

/* So much of an L3 of so many bytes, if so many CPUs are known to share it (0: unknown). */
uint64_t tti_cpu_cache_usable(uint64_t bytes, uint64_t sharers);

/* The lowest of the CPUs that share the L3 of all CPUs in the set, as its name; -1 when they have
 * several, or none, or the kernel does not tell. `root` as above. */
int tti_cpu_shared_cache(const char *root, const cpu_set_t *cpus);

/* What a line goes through on its way from core to core. All ranks of a communicator go by what
 * rank 0 says, so the numbers are part of what they exchange. */
enum tti_cpu_kind {
    TTI_CPU_CLUSTERS = 0,         /* the few cores that share an L3 */
    TTI_CPU_MESH = 1,             /* the whole processor */
    TTI_CPU_EARLIER_CLUSTERS = 2, /* as the first, and what a peer has read is slow to write again:
                                     AMD's before Zen 5, with AVX-512, so Zen 4 */
    TTI_CPU_FIRST_CLUSTERS = 3,   /* the same of those without it: Zen 3 was measured */
    TTI_CPU_KINDS,
};
enum tti_cpu_kind tti_cpu_kind(void);

/* Is what a peer has read slow to write again? */
static inline bool tti_cpu_takes_back_slowly(enum tti_cpu_kind kind)
{
    return kind == TTI_CPU_EARLIER_CLUSTERS || kind == TTI_CPU_FIRST_CLUSTERS;
}

/* Whether a line on its way from core to core crosses the whole processor, because all cores share
 * one L3 over a mesh (Intel's servers, most of Arm's), and not the few of a cluster (AMD's). */
bool tti_cpu_meshed(void);

#endif
