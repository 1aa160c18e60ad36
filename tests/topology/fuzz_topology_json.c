/* Fuzzes the reader of our JSON. What is accepted is written again and read again as the same. */
#include "topology/graph.h"

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
    tti_topology_destroy(first);
    tti_topology_destroy(second);
    return 0;
}
