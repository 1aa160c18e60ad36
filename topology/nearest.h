/* Which NIC a GPU (or the cores of a rank) sends by, and which cores are near a device.
 *
 * Near is what shares the most of the way: a PCI switch before a NUMA node, that before a package,
 * that before the host. Of NICs that are equally near the fastest, and of these one that fewest
 * GPUs use. Only the host itself is looked at, so that hosts that are alike choose alike: GPU k of
 * each uses the NIC with the same number, its rail. */
#ifndef TTI_TOPOLOGY_NEAREST_H
#define TTI_TOPOLOGY_NEAREST_H

#include "topology/graph.h"

#include <sched.h>

enum tti_nearness {
    TTI_NEAR_SWITCH, /* below the same PCI switch */
    TTI_NEAR_NUMA,
    TTI_NEAR_PACKAGE,
    TTI_NEAR_HOST,
    TTI_NEAR_NOT, /* on different hosts */
};

enum tti_nearness tti_nearness(const struct tti_topology *topology, int a, int b);
/* "same PCI switch", "same NUMA node", "same package", "across packages", "on another host". */
const char *tti_nearness_text(enum tti_nearness nearness);

/* What a NIC brings to the network, GB/s; 0: unknown. */
double tti_nic_rate(const struct tti_topology *topology, int nic);

struct tti_nic_choice {
    int gpu, nic; /* nodes; nic -1: the host has none */
    enum tti_nearness nearness;
    int rail;   /* the NIC's number on its host, from 0 */
    int shared; /* GPUs of the host that use it, this one included */
};

/* For each GPU of the graph, in order, its NIC; *choices of *count, free(3). */
enum tutti_result tti_nics_choose(const struct tti_topology *topology,
                                  struct tti_nic_choice **choices, int *count);
/* "gpu 3 uses nic mlx5_1: same PCI switch, rail 1", cut to `bytes`, and returned. */
const char *tti_nic_choice_text(const struct tti_topology *topology,
                                const struct tti_nic_choice *choice, char *text, size_t bytes);

/* The CPUs of the NUMA node that the device hangs on; of its host where it hangs on none, or where
 * the node has no CPUs. Empty for CPUs beyond CPU_SETSIZE. */
void tti_cpus_near(const struct tti_topology *topology, int device, cpu_set_t *cpus);
/* The CPUs near the first host's fastest NICs, taken together, and of these NICs the first; -1, and
 * no CPUs, where the host has none. */
int tti_cpus_near_nics(const struct tti_topology *topology, cpu_set_t *cpus);
/* The node of the graph's first host; -1: there is none. */
int tti_first_host(const struct tti_topology *topology);
/* The GPU of a local rank on the first host of the graph, as launchers and frameworks number them:
 * rank r has GPU r by PCI address, as the driver counts GPUs that are alike, or in the graph's
 * order where they have none; where ranks outnumber GPUs they share in turn. -1: the host has none.
 */
int tti_gpu_of_rank(const struct tti_topology *topology, int local_rank);

#endif
