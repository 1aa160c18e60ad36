/* Which NICs a rank uses, of those that its host has: the ones nearest to its GPU, or to its cores
 * where it has no GPU. What is not told apart stays in use: a rank goes without a NIC only because
 * another one that serves as well is nearer. Next: nearest.h, which chooses a NIC for each GPU of a
 * graph, whoever uses it. */
#ifndef TTI_TOPOLOGY_NIC_USE_H
#define TTI_TOPOLOGY_NIC_USE_H

#include "topology/nearest.h"

/* One rank of the host. */
struct tti_nic_user {
    int gpu;               /* node; -1: it has none, and `cpus` counts */
    const cpu_set_t *cpus; /* that it may run on; NULL, or none of the graph's: near to nothing */
};

/* What a rank's NICs are near to, and why. */
struct tti_nic_use {
    bool chosen; /* false: nothing tells the NICs apart, and all are in use */
    enum tti_nearness nearness;
    int sharers; /* ranks, this one included, with the same NICs nearest to their GPUs */
};

/* Of the first host's NICs those that users[me] leaves to others: far[node], of
 * topology->node_count entries; all false where nothing is chosen. Only NICs that are `usable` (by
 * node; NULL: all) are looked at. Those with less than half of the fastest one's line rate are
 * nobody's choice; of the nearest others the fastest are. Where that leaves NICs out, ranks with
 * GPUs that are equally near to the same ones share them out by rail, in the order of their GPUs
 * and then of `users`, where that gives each as much; where it does not, each uses all of them.
 * Every rank finds the same, by the same graph and users. May give MEMORY. */
enum tutti_result tti_nics_far(const struct tti_topology *topology,
                               const struct tti_nic_user *users, int count, int me,
                               const bool *usable, bool *far, struct tti_nic_use *use);

/* The GPU of the first host with this PCI address ("0000:3b:00.0"); -1: no node has it. */
int tti_topology_gpu_at(const struct tti_topology *topology, const char *pci);

#endif
