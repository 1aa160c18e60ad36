/* What the tests of topology/nic_use.h share: who uses which of a machine's NICs, as text. */
#ifndef TTI_TESTS_TOPOLOGY_NIC_USES_H
#define TTI_TESTS_TOPOLOGY_NIC_USES_H

#include "topology/nic_use.h"

enum { MOST_RANKS = 16 };

extern const char *nic_systems;           /* the folder tests/topology/systems; main sets it */
extern enum tti_nic_way nic_way;          /* that is asked about; by all */
extern const char *const nic_one_each[8]; /* rank r uses NIC r */

/* "0 1", "ib0/mlx5_0, not told apart": the NICs that rank `me` of `count` uses. Until the next
 * call. */
const char *nic_uses(const struct tti_topology *topology, const struct tti_nic_user *users,
                     int count, int me, const bool *usable);
/* `ranks` ranks with the host's GPUs in turn, or of `gpus` where that is given. Destroys it. */
void nic_check(struct tti_topology *topology, int ranks, const int *gpus,
               const char *const *wanted);
/* The machine of a file in the folder. */
struct tti_topology *nic_known(const char *name);
/* The rate of the line of that NIC. */
void nic_set_rate(struct tti_topology *topology, int nic, double gbs);

#endif
