/* Groups: calls of a thread, collected between tutti_group_start and tutti_group_end. */
#ifndef TTI_COLL_GROUP_H
#define TTI_COLL_GROUP_H

#include "coll/operation.h"

struct tutti_comm;

/* Is the calling thread inside a group? */
bool tti_group_open(void);
/* Remember a checked call; `device`: one on device memory, for `stream`. `request` is where an
 * asynchronous call wants its request, or NULL. */
enum tutti_result tti_group_add(struct tutti_comm *comm, const struct tti_operation *operation,
                                bool device, tutti_stream stream, struct tutti_request **request);

/* End the calling thread's group at whatever depth, and forget what it has collected. */
void tti_group_discard(void);

#endif
