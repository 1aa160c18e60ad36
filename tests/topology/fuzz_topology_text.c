/* Fuzzes the one-line descriptions of machines. What is accepted is a sound graph, which prints,
 * draws, and gives its ranks cores. */
#include "topology/bind.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void require(bool holds)
{
    if (!holds)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { SMALL = 4096 };
    struct tti_topology *topology = NULL;
    cpu_set_t cpus;
    char *text = malloc(bytes + 1);
    require(text != NULL);
    if (bytes)
        memcpy(text, data, bytes);
    text[bytes] = '\0';
    if (tti_topology_from_text(text, &topology) != TUTTI_OK) {
        require(!topology && *tutti_last_error());
        free(text);
        return 0;
    }
    require(tti_topology_count(topology, -1, TTI_NODE_HOST) >= 1);
    for (size_t i = 0; i < topology->node_count; i++)
        require(topology->nodes[i].parent < (int)i);
    /* A mesh of hundreds of GPUs has as many links as nodes squared, and takes seconds to draw. */
    const bool small = topology->node_count < SMALL && topology->link_count < SMALL;
    FILE *out = small ? fopen("/dev/null", "we") : NULL;
    if (out) {
        require(tti_topology_print(topology, out) == TUTTI_OK);
        require(tti_topology_draw(topology, NULL, out) == TUTTI_OK);
        require(tti_topology_cpus(topology, 3, 2, &cpus) == TUTTI_OK);
        fclose(out);
    }
    tti_topology_destroy(topology);
    free(text);
    return 0;
}
