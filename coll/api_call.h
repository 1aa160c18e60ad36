/* What every public operation ends in (api.c). */
#ifndef TTI_COLL_API_CALL_H
#define TTI_COLL_API_CALL_H

#include "coll/operation.h"

/* Check it, then run or queue it: a blocking call (`async` false), or one that gives *request. */
enum tutti_result tti_api_call(tutti_comm *comm, struct tti_operation *operation, bool async,
                               tutti_stream stream, tutti_request **request);

#endif
