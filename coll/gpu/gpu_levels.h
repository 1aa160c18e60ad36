/* Collectives on device memory of ranks on several hosts, in levels: inside each host between its
 * devices, between hosts in columns (coll/column.h), inside again. */
#ifndef TTI_COLL_GPU_LEVELS_H
#define TTI_COLL_GPU_LEVELS_H

#include "coll/gpu/gpu_map.h"

/* Whether a collective goes so: alike on all ranks. */
bool tti_gpu_levels_takes(struct tutti_comm *comm, const struct tti_operation *o);
enum tutti_result tti_gpu_levels(struct tutti_comm *comm, const struct tti_operation *o,
                                 tutti_stream stream, bool capturing);

#endif
