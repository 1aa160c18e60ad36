/* One small send or receive, alone in its call: handed to the transport, or taken from it, without
 * the executor's lanes and queues, which are for many things at a time. */
#ifndef TTI_COLL_MESSAGE_H
#define TTI_COLL_MESSAGE_H

#include "coll/operation.h"

struct tutti_comm;

/* Is `o`, a send or a receive, one for tti_message_run? Its link is up. */
bool tti_message_suits(const struct tutti_comm *comm, const struct tti_operation *o);
/* Run it: through when the message has come, or its memory is the caller's again. */
enum tutti_result tti_message_run(struct tutti_comm *comm, const struct tti_operation *o,
                                  const struct tti_label *label);

#endif
