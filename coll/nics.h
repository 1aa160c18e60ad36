/* Which of its host's NICs a rank leaves to others, for the transports (far_nics of plugin.h):
 * those that are farther from its GPU, or from its cores where it has none, than others that serve
 * as well (topology/nic_use.h).
 *
 * TUTTI_NIC_NEAR=off: none. TUTTI_TOPOLOGY names a file that describes the host, where the system
 * does not say what is near: virtual machines, containers. */
#ifndef TTI_COLL_NICS_H
#define TTI_COLL_NICS_H

#include "base/error.h"

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

struct tti_nic_user;
struct tti_topology;
struct tutti_comm;

enum { TTI_NIC_GPU_BYTES = 32 };

/* What the ranks of a host must know of each other to choose alike. */
struct tti_nic_place {
    uint64_t host;
    char
        gpu[TTI_NIC_GPU_BYTES]; /* PCI address; "?": one of the host's, not known which; "": none */
    int nics;                   /* of its host: tti_nics_here */
};

/* This rank's: with the device of tti_comm_by_device (door.h). */
enum tutti_result tti_nics_place(struct tti_nic_place *place);
/* Of `size` ranks those of the same host as `rank`, in order: how many, of `size` at most; *me is
 * its number among them. A GPU that the graph does not know by its address, and one of which it is
 * not known which, is the one that tti_gpu_of_rank gives the rank. `cpus` are those of each rank.
 */
int tti_nics_users(const struct tti_nic_place *places, int size, int rank,
                   const struct tti_topology *topology, const cpu_set_t *cpus,
                   struct tti_nic_user *users, int *me);

/* At least `lanes`, of several hosts a power of two with as many as the ranks of one of them may
 * leave it by NICs of their own, if there are so many: rings and chains have a lane for each
 * (algorithms/order.h). */
int tti_nics_lanes(const struct tti_nic_place *places, int size, int lanes);

/* By comm->places and the own rank's comm->cpus: *names for free(3), or NULL where there are none.
 * Looks at the machine only if there are several hosts, and NICs to choose from. For a wrong
 * setting ARGUMENT, for a file that cannot be read SYSTEM, both with the variable. */
enum tutti_result tti_nics_far_names(const struct tutti_comm *comm, char **names);

/* Is this system device up: an interface, or (`rdma`) a device with an active port? `sysfs` is
 * "/sys", or a copy of it in a test. */
bool tti_nic_is_up(const char *sysfs, const char *name, bool rdma);

/* How many of a kind are up that hang on a bus: with less than two there is nothing to choose from.
 */
int tti_nics_count(const char *sysfs, bool rdma);
/* ... of the kind that carries: RDMA devices, where there are any. */
int tti_nics_here(const char *sysfs);

#endif
