/* Is memory that a caller gives the host's? */
#ifndef TTI_DDP_HOST_MEMORY_H
#define TTI_DDP_HOST_MEMORY_H

#include "base/error.h"

/* TUTTI_ERR_UNSUPPORTED, with `call` and `name` in the text, for an address that the host may not
 * touch. NULL, page-locked and managed memory are fine. */
enum tutti_result tti_host_memory(const void *memory, const char *call, const char *name);

#endif
