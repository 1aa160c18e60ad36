/* A few small sends and receives that run at once, mostly one or two: handed to the transport, or
 * taken from it, without the executor's lanes and queues, which are for large and many things. */
#ifndef TTI_COLL_MESSAGE_H
#define TTI_COLL_MESSAGE_H

#include "coll/operation.h"

struct tutti_comm;
struct tti_messages;

/* Are these sends and receives ones for tti_messages_run? Their links are up. */
bool tti_messages_suit(const struct tutti_comm *comm, const struct tti_operation *ops,
                       size_t count);
/* Run them: through when all have come, or their memory is the caller's again. */
enum tutti_result tti_messages_run(struct tutti_comm *comm, const struct tti_operation *ops,
                                   size_t count, const struct tti_label *label);
/* "receiving from rank 3 (b:77), sending to rank 2 (a:12)": those that are not through. */
void tti_messages_waits(const struct tti_messages *run, char *text, size_t bytes);

#endif
