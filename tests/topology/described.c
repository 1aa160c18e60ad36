/* See described.h. */
#include "tests/topology/described.h"

#include "tests/tutti_cmocka.h"

struct tti_topology *described(const char *text)
{
    struct tti_topology *topology = NULL;
    if (tti_topology_from_text(text, &topology) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    return topology;
}

int stops_of(const struct tti_topology *topology, enum tti_node_kind kind, int *stops)
{
    int count = 0;
    for (int i = 0; i < (int)topology->node_count && count < MOST_STOPS; i++)
        if (topology->nodes[i].kind == kind)
            stops[count++] = i;
    return count;
}
