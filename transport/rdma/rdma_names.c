/* TUTTI_RDMA_DEVICES (rdma_names.h). */
#include "transport/rdma/rdma_names.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

enum { NAMES_BYTES = 64 }; /* of a device, as the system has it */

void tti_rdma_names_of(const char *text, int rank, char *list, size_t room)
{
    int lists = 1;
    for (const char *at = text; *at; at++)
        lists += *at == '/';
    for (int skip = rank % lists; skip > 0; skip--)
        text = strchr(text, '/') + 1;
    snprintf(list, room, "%.*s", (int)strcspn(text, "/"), text);
}

bool tti_rdma_names_allow(const char *list, const char *device, int port)
{
    char name[NAMES_BYTES + 16], pattern[NAMES_BYTES + 16];
    bool asks = false, included = false;
    snprintf(name, sizeof name, "%s:%d", device, port);
    while (*(list += strspn(list, ", \t"))) {
        size_t bytes = strcspn(list, ", \t");
        bool exclude = *list == '^' || *list == '!';
        snprintf(pattern, sizeof pattern, "%.*s", (int)(bytes - exclude), list + exclude);
        list += bytes;
        bool match = fnmatch(pattern, strchr(pattern, ':') ? name : device, 0) == 0;
        if (exclude && match)
            return false;
        asks |= !exclude;
        included |= !exclude && match;
    }
    return included || !asks;
}
