/* The data caches of this machine's processors, as the kernel tells them. */
#ifndef TTI_DEVICE_CPU_CACHES_H
#define TTI_DEVICE_CPU_CACHES_H

#include <stdint.h>

/* Bytes of the caches L1, L2 and L3 that CPU 0 sees; 0: unknown or none. `root` is "" or, in
 * tests, a folder that holds a copy of /sys. */
void tti_cpu_caches(const char *root, uint64_t cache[3]);

/* The same, with as much of L3 as this machine's CPUs may count on: a virtual machine is told of
 * all of it, and not of the processors beside it who fill it, too. */
void tti_cpu_caches_usable(const char *root, uint64_t cache[3]);

#endif
