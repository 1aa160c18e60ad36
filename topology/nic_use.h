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

/* How connections use what is left in use. */
enum tti_nic_way {
    TTI_NIC_BY_ALL, /* by all in turn (RDMA): whoever sends fills all of them */
    TTI_NIC_BY_ONE, /* by one of them (sockets) */
};

/* What a rank's NICs are near to, and why. */
struct tti_nic_use {
    bool chosen; /* false: the rank leaves none to others */
    enum tti_nearness nearness;
    int sharers; /* ranks, this one included, among which the nearest were shared out; 1: none */
};

/* Of the first host's NICs those that users[me] leaves to others: far[node], of
 * topology->node_count entries; all false where nothing is chosen. Only NICs that are `usable` (by
 * node; NULL: all) are looked at. Those with less than half of the fastest one's line rate are
 * nobody's choice; of the nearest others the fastest are. Ranks to which the same ones are nearest
 * share these out by rail, in the order of their GPUs and then of `users`:
 * - BY_ONE: always, for each connection goes by one anyway. Only not those that may be another kind
 *   of NIC (no known rate beside others'; a place that the system does not tell). Where some NICs
 *   are farther, all sharers keep these; where these are all that the host has, nothing is chosen.
 * - BY_ALL: ranks with GPUs, where some NICs are farther and each rank gets as much. Else each uses
 *   all of them, which is even as well.
 * Every rank finds the same, by the same graph and users. May give MEMORY. */
enum tutti_result tti_nics_far(const struct tti_topology *topology,
                               const struct tti_nic_user *users, int count, int me,
                               enum tti_nic_way way, const bool *usable, bool *far,
                               struct tti_nic_use *use);

/* The GPU of the first host with this PCI address ("0000:3b:00.0"); -1: no node has it. */
int tti_topology_gpu_at(const struct tti_topology *topology, const char *pci);

#endif
