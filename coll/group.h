/* Groups: calls of a thread, collected between tutti_group_start and tutti_group_end. */
#ifndef TTI_COLL_GROUP_H
#define TTI_COLL_GROUP_H

#include "coll/operation.h"

struct tutti_comm;

/* Is the calling thread inside a group? */
bool tti_group_open(void);
/* Does the calling thread run a group with calls of several communicators? What one of them has
 * queued may wait for what this thread has yet to queue for another. */
bool tti_group_several(void);
/* For a public call that waits for the other ranks by operations of its own: these would only be
 * collected inside a group. USAGE there, with a text that names the call. */
enum tutti_result tti_group_refuse(const char *call);
/* The calls of the group that the calling thread has open have no order among each other: on one
 * communicator they may run at once, if that is quicker. Alike on all ranks. */
void tti_group_any_order(void);
/* Remember a checked call; `device`: one on device memory, for `stream`. `request` is where an
 * asynchronous call wants its request, or NULL: it has a stream, or another call's request tells.
 */
enum tutti_result tti_group_add(struct tutti_comm *comm, const struct tti_operation *operation,
                                bool device, bool async, tutti_stream stream,
                                struct tutti_request **request);
/* A place in the group, and back to it: what came after is forgotten, and did not fail the group.
 */
size_t tti_group_place(void);
void tti_group_return(size_t place);

/* The communicator is being destroyed: if the calling thread's group has calls of it, the group
 * fails as a whole, and nothing of it runs. */
void tti_group_forget(const struct tutti_comm *comm);
/* End the calling thread's group at whatever depth, and forget what it has collected. */
void tti_group_discard(void);

#endif
