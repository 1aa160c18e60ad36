/* What the transport of reader_transport.c counts, under the name reader_counts in its shared
 * object. */
#ifndef TTI_TESTS_READER_TRANSPORT_H
#define TTI_TESTS_READER_TRANSPORT_H

#include <stdint.h>

struct reader_counts {
    uint64_t bytes;                 /* sent out of device memory */
    uint64_t registered, forgotten; /* allocations */
    uint64_t refused;
};

#endif
