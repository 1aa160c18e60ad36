/* What the ranks of a communicator agree on before they know each other: its number, and what
 * selection goes by. */
#ifndef TTI_COLL_AGREE_H
#define TTI_COLL_AGREE_H

#include "coll/comm.h"

/* Collective, over the bootstrap. Sets the communicator's job, devices, profile, tuning (only if
 * all ranks read the same file), and settings.lanes where the tuning knows of more, or hosts have
 * several NICs. Constants of the model that depend on the machine are those of rank 0. USAGE on all
 * ranks where the reproducible mode is on for some and off for others, or TUTTI_STAGED_AHEAD
 * differs. The processors of all ranks are in `cpus`, until tti_crowd, which needs to know the
 * hosts too. */
enum tutti_result tti_agree(struct tutti_comm *comm, uint64_t deadline);

#endif
