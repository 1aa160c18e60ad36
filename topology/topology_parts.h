/* What the sources of a graph share inside the room: devices of this machine. */
#ifndef TTI_TOPOLOGY_PARTS_H
#define TTI_TOPOLOGY_PARTS_H

#include "topology/graph.h"

/* This machine through hwloc; TUTTI_ERR_UNSUPPORTED without it. hwloc_import.c */
enum tutti_result tti_topology_probe_hwloc(int flags, struct tti_topology **topology);

/* What NVIDIA's driver tells of this machine's GPUs, added to a graph of it. TUTTI_ERR_UNSUPPORTED
 * without the driver's library, TUTTI_ERR_SYSTEM when it answers with an error: the graph may then
 * lack links, and is good otherwise. nvml_probe.c */
enum tutti_result tti_topology_add_nvml(struct tti_topology *topology);

/* sysfs_probe.c: the line rate of a NIC ("eth0", "mlx5_0"), GB/s; 0 when the kernel does not know
 * it (virtual machines). */
double tti_sysfs_nic_gbs(const char *sysfs, const char *name);

#endif
