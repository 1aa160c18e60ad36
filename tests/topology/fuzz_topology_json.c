/* Fuzzes the reader of our JSON. What is accepted is written again and read again as the same; and
 * in a small machine rings, trees and NICs are searched, and drawn. */
#include "topology/graph.h"
#include "topology/lanes_draw.h"
#include "topology/nearest.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static char *written(const struct tti_topology *topology, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    require(out != NULL);
    require(tti_topology_write_json(topology, out) == TUTTI_OK);
    require(tti_topology_print(topology, out) == TUTTI_OK);
    require(tti_topology_draw(topology, NULL, out) == TUTTI_OK);
    require(fclose(out) == 0);
    return text;
}

/* Whatever the graph is like, the searches end. */
static void search(const struct tti_topology *topology)
{
    enum { FEW_NODES = 64, FEW_STOPS = 8 };
    struct tti_lanes lanes;
    struct tti_nic_choice *choices = NULL;
    int count = 0;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = NULL;
    if (topology->node_count > FEW_NODES || topology->link_count > FEW_NODES ||
        tti_topology_count(topology, -1, TTI_NODE_GPU) > FEW_STOPS ||
        tti_topology_count(topology, -1, TTI_NODE_HOST) > FEW_STOPS)
        return;
    require(tti_lanes_search(topology, true, true, &lanes) == TUTTI_OK);
    require((out = open_memstream(&text, &bytes)) != NULL);
    require(tti_topology_draw(topology, &lanes, out) == TUTTI_OK);
    require(fclose(out) == 0);
    free(text);
    tti_lanes_clear(&lanes);
    require(tti_nics_choose(topology, &choices, &count) == TUTTI_OK);
    free(choices);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tti_topology *first = NULL;
    struct tti_topology *second = NULL;
    size_t once_bytes = 0;
    size_t twice_bytes = 0;
    if (tti_topology_from_json((const char *)data, bytes, &first) != TUTTI_OK) {
        require(!first && *tutti_last_error());
        return 0;
    }
    char *once = written(first, &once_bytes);
    char *end = strstr(once, "\n]\n}\n");
    require(end != NULL);
    require(tti_topology_from_json(once, (size_t)(end - once) + 5, &second) == TUTTI_OK);
    char *twice = written(second, &twice_bytes);
    require(once_bytes == twice_bytes && memcmp(once, twice, once_bytes) == 0);
    free(once);
    free(twice);
    search(first);
    tti_topology_destroy(first);
    tti_topology_destroy(second);
    return 0;
}
