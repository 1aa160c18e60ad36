/* What every public operation ends in (api.c, uneven.c). */
#ifndef TTI_COLL_API_CALL_H
#define TTI_COLL_API_CALL_H

#include "coll/operation.h"

/* Check it, then run or queue it: a blocking call (`async` false), or one that gives *request. */
enum tutti_result tti_api_call(tutti_comm *comm, struct tti_operation *operation, bool async,
                               tutti_stream stream, tutti_request **request);
/* Its two halves, for calls that are made of several. What is the same for all parts: is there such
 * a communicator, does the stream or the request suit it? And the rest, for each part; inside a
 * group `request` may be NULL for a part whose end another one's request tells. */
enum tutti_result tti_api_begin(tutti_comm *comm, const struct tti_operation *operation, bool async,
                                tutti_stream stream, tutti_request **request);
enum tutti_result tti_api_part(tutti_comm *comm, struct tti_operation *operation, bool async,
                               tutti_stream stream, tutti_request **request);
/* There is nothing to be done: OK, with a request that is over if one is wanted, unless the
 * communicator has failed. */
enum tutti_result tti_api_nothing(tutti_comm *comm, tutti_request **request);

#endif
