/* Which of its host's NICs a rank leaves to others, for the transports (far_nics of plugin.h):
 * those that are farther from its GPU, or from its cores where it has none, than others that serve
 * as well (topology/nic_use.h).
 *
 * TUTTI_NIC_NEAR=off: none. TUTTI_TOPOLOGY names a file that describes the host, where the system
 * does not say what is near: virtual machines, containers. */
#ifndef TTI_COLL_NICS_H
#define TTI_COLL_NICS_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct tutti_comm;

enum { TTI_NIC_GPU_BYTES = 32 };

/* What the ranks of a host must know of each other to choose alike. */
struct tti_nic_place {
    uint64_t host;
    char
        gpu[TTI_NIC_GPU_BYTES]; /* PCI address; "?": one of the host's, not known which; "": none */
};

/* This rank's. */
enum tutti_result tti_nics_place(struct tti_nic_place *place);

/* By comm->places and the own rank's comm->cpus: *names for free(3), or NULL where there are none.
 * Looks at the machine only if there are several hosts, and NICs to choose from. ARGUMENT, with the
 * variable, for a wrong setting. */
enum tutti_result tti_nics_far_names(const struct tutti_comm *comm, char **names);

/* Is this system device up: an interface, or (`rdma`) a device with an active port? `sysfs` is
 * "/sys", or a copy of it in a test. */
bool tti_nic_is_up(const char *sysfs, const char *name, bool rdma);

#endif
