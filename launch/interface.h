/* Which of this host's addresses the others should use. */
#ifndef TTI_LAUNCH_INTERFACE_H
#define TTI_LAUNCH_INTERFACE_H

#include "base/error.h"

#include <stdbool.h>

/* The address that the default route leaves from, else the first interface that is up, else
 * loopback; as numeric text. TUTTI_IFNAME narrows the interfaces; SYSTEM when it leaves none. */
enum tutti_result tti_interface_best(char *text, size_t room);

/* Whether a comma list such as TUTTI_IFNAME's lets the interface pass; NULL lets all.
 *     eth      names that begin with "eth"          =eth0    this name only
 *     eth*     a shell pattern with * ? [           ^docker  !docker  not these
 * With exclusions only, all others pass. */
bool tti_interface_matches(const char *list, const char *name);

#endif
