/* Memory near the cores that use it.
 *
 * Pages of a shared object lie on the NUMA node of whoever touches them first, which may be a peer
 * on another node. What the library allocates for a rank is therefore told where to lie: on the
 * node of the cores that the calling thread is bound to. A thread that may run on several nodes
 * tells nothing, and on a machine with one node nothing is asked of the kernel. */
#ifndef TTI_DEVICE_NEAR_H
#define TTI_DEVICE_NEAR_H

#include "base/error.h"

#include <sched.h>
#include <stddef.h>

/* The NUMA node of all CPUs in the set; -1 when they are on several, or the machine has one, or the
 * kernel does not tell. `sysfs` is "/sys", or a copy of it in a test. */
int tti_near_node(const char *sysfs, const cpu_set_t *cpus);
/* The NUMA node of the device at a PCI address ("0000:3b:00.0"); -1 when it has none, or the kernel
 * does not tell. */
int tti_near_device(const char *sysfs, const char *pci);
/* Pages of the mapping that are not there yet will be made on the node, or on another when it is
 * full (MPOL_PREFERRED). `base` is page-aligned. TUTTI_ERR_SYSTEM when the kernel refuses. */
enum tutti_result tti_near_bind(void *base, size_t bytes, int node);
/* The two together for the calling thread. A wish: what the kernel refuses is told at debug level
 * and changes nothing. */
void tti_near_place(void *base, size_t bytes);

/* Calls `visit` for each number of a file of the kernel's such as "0-3,8"; false when there is no
 * such file. */
bool tti_sysfs_list(const char *path, void (*visit)(void *context, int number), void *context);

#endif
