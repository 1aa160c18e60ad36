/* This host's graph, looked at once for all communicators of the process: to ask hwloc takes
 * milliseconds to tenths of a second, and every rank asks. Next: graph.h. */
#ifndef TTI_TOPOLOGY_KEPT_H
#define TTI_TOPOLOGY_KEPT_H

#include "topology/graph.h"

/* The machine as TTI_PROBE_PCI finds it, or as `file` describes it (tti_topology_from_file), the
 * NICs' rates then filled in (tti_topology_rates). The same graph again while the file is the same,
 * or for the machine the processors that the calling thread may run on are; what is plugged in
 * later is not seen. Give it back with tti_topology_release. Any thread; one looks, others wait for
 * it. */
enum tutti_result tti_topology_keep(const char *file, const struct tti_topology **topology);
/* The machine with the processors that the calling thread may not run on, too (those that a cgroup
 * hides stay hidden): where other ranks of the host are, as they see it as well. */
enum tutti_result tti_topology_keep_whole(const struct tti_topology **topology);
/* NULL is allowed. It is kept until others are wanted instead. */
void tti_topology_release(const struct tti_topology *topology);

#endif
