/* What identifies the hardware of this machine, and what a cost model wants to know of it. Without
 * hwloc: a few small files of the kernel. */
#ifndef TTI_TOPOLOGY_MACHINE_H
#define TTI_TOPOLOGY_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

enum { TTI_MACHINE_TEXT_BYTES = 96 };

/* Two machines with equal cpu, cpus and caches are taken as alike: nodes of a cluster share what
 * was measured on one of them. The host's name is told to people, not compared. */
struct tti_machine {
    char cpu[TTI_MACHINE_TEXT_BYTES]; /* model, and family or part: printable ASCII, no quotes */
    char host[TTI_MACHINE_TEXT_BYTES];
    int cpus;          /* online */
    uint64_t cache[3]; /* bytes of the data caches L1, L2, L3 that CPU 0 sees; 0: unknown or none */
};

/* `root` is "" or a folder that holds a copy of /proc/cpuinfo and /sys, in tests. What the kernel
 * does not tell stays empty. Reading cpuinfo may take milliseconds on large machines. */
void tti_machine_identify(const char *root, struct tti_machine *machine);
bool tti_machine_alike(const struct tti_machine *a, const struct tti_machine *b);

#endif
