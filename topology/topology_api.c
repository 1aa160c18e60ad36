/* The public face of this room (include/tutti/topology.h): arguments are checked here, the work is
 * in the files that it includes. A tutti_topology is a tti_topology to whom nobody may look in. */
#include "tutti/topology.h"

#include "base/memory.h"
#include "topology/graph.h"
#include "topology/lanes_draw.h"
#include "topology/nearest.h"
#include "topology/predict.h"
#include "topology/rings.h"
#include "topology/trees.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOPOLOGY_NEEDS(condition)                                                         \
    do {                                                                                  \
        if (!(condition))                                                                 \
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: expected %s", __func__, #condition); \
    } while (0)

static const struct tti_topology *topology_graph(const tutti_topology *topology)
{
    return (const struct tti_topology *)(const void *)topology;
}

/* Hands a graph out on success. */
static enum tutti_result topology_give(enum tutti_result result, struct tti_topology *const *graph,
                                       tutti_topology **topology)
{
    if (result == TUTTI_OK)
        *topology = (tutti_topology *)(void *)*graph;
    return result;
}

enum tutti_result tutti_topology_probe(tutti_topology **topology)
{
    struct tti_topology *graph = NULL;
    TOPOLOGY_NEEDS(topology != NULL);
    return topology_give(tti_topology_probe(TTI_PROBE_DEVICES, &graph), &graph, topology);
}

enum tutti_result tutti_topology_from_text(const char *text, tutti_topology **topology)
{
    struct tti_topology *graph = NULL;
    TOPOLOGY_NEEDS(text != NULL && topology != NULL);
    return topology_give(tti_topology_from_text(text, &graph), &graph, topology);
}

enum tutti_result tutti_topology_from_xml(const char *path, tutti_topology **topology)
{
    struct tti_topology *graph = NULL;
    TOPOLOGY_NEEDS(path != NULL && topology != NULL);
    return topology_give(tti_topology_from_xml(path, &graph), &graph, topology);
}

enum tutti_result tutti_topology_from_json(const char *text, size_t bytes,
                                           tutti_topology **topology)
{
    struct tti_topology *graph = NULL;
    TOPOLOGY_NEEDS(text != NULL && topology != NULL);
    return topology_give(tti_topology_from_json(text, bytes, &graph), &graph, topology);
}

void tutti_topology_destroy(tutti_topology *topology)
{
    tti_topology_destroy((struct tti_topology *)(void *)topology);
}

/* ---- What it looks like ---------------------------------------------------------------------- */

enum tutti_result tutti_topology_print(const tutti_topology *topology, FILE *out)
{
    TOPOLOGY_NEEDS(topology != NULL && out != NULL);
    return tti_topology_print(topology_graph(topology), out);
}

enum tutti_result tutti_topology_draw(const tutti_topology *topology, FILE *out)
{
    TOPOLOGY_NEEDS(topology != NULL && out != NULL);
    struct tti_lanes lanes;
    TTI_TRY(tti_lanes_search(topology_graph(topology), true, true, &lanes));
    enum tutti_result result = tti_topology_draw(topology_graph(topology), &lanes, out);
    tti_lanes_clear(&lanes);
    return result;
}

enum tutti_result tutti_topology_write_json(const tutti_topology *topology, FILE *out)
{
    TOPOLOGY_NEEDS(topology != NULL && out != NULL);
    return tti_topology_write_json(topology_graph(topology), out);
}

/* ---- Questions ------------------------------------------------------------------------------- */

/* TTI_NODE_KINDS for what is no part. */
static enum tti_node_kind topology_kind(enum tutti_part part)
{
    static const enum tti_node_kind kinds[] = {
        [TUTTI_PART_HOST] = TTI_NODE_HOST, [TUTTI_PART_PACKAGE] = TTI_NODE_PACKAGE,
        [TUTTI_PART_NUMA] = TTI_NODE_NUMA, [TUTTI_PART_CORE] = TTI_NODE_CORE,
        [TUTTI_PART_CPU] = TTI_NODE_PU,    [TUTTI_PART_GPU] = TTI_NODE_GPU,
        [TUTTI_PART_NIC] = TTI_NODE_NIC};
    bool known = part >= TUTTI_PART_HOST && part <= TUTTI_PART_NIC;
    return known ? kinds[part] : TTI_NODE_KINDS;
}

/* The node of the part with the index; -1 if there is none. */
static int topology_node(const struct tti_topology *graph, enum tti_node_kind kind, int index)
{
    for (int i = 0; i < (int)graph->node_count && index >= 0; i++)
        if (graph->nodes[i].kind == kind && index-- == 0)
            return i;
    return -1;
}

/* The index of a node among those of its kind. */
static int topology_index(const struct tti_topology *graph, int node)
{
    int index = 0;
    for (int i = 0; i < node; i++)
        index += graph->nodes[i].kind == graph->nodes[node].kind;
    return index;
}

int tutti_topology_count(const tutti_topology *topology, enum tutti_part part)
{
    return topology ? tti_topology_count(topology_graph(topology), -1, topology_kind(part)) : 0;
}

enum tutti_result tutti_topology_name(const tutti_topology *topology, enum tutti_part part,
                                      int index, char *text, size_t bytes)
{
    TOPOLOGY_NEEDS(topology != NULL && text != NULL && bytes > 0);
    int node = topology_node(topology_graph(topology), topology_kind(part), index);
    if (node < 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "there is no part %d of kind %d: there are %d of them",
                        index, (int)part, tutti_topology_count(topology, part));
    (void)tti_topology_label(topology_graph(topology), node, text, bytes);
    return TUTTI_OK;
}

enum tutti_result tutti_topology_nearest_nic(const tutti_topology *topology, int gpu, int *nic,
                                             char *why, size_t why_bytes)
{
    struct tti_nic_choice *choices = NULL;
    int count = 0;
    TOPOLOGY_NEEDS(topology != NULL && nic != NULL);
    const struct tti_topology *graph = topology_graph(topology);
    TTI_TRY(tti_nics_choose(graph, &choices, &count));
    if (gpu < 0 || gpu >= count) {
        free(choices);
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "there is no gpu %d: there are %d", gpu, count);
    }
    *nic = choices[gpu].nic < 0 ? -1 : topology_index(graph, choices[gpu].nic);
    if (why && why_bytes)
        snprintf(why, why_bytes, "%s",
                 choices[gpu].nic < 0 ? "its host has no nic"
                                      : tti_nearness_text(choices[gpu].nearness));
    free(choices);
    return TUTTI_OK;
}

/* ---- Rings and trees ------------------------------------------------------------------------- */

/* `reverse`: a hop's end tells where it came from, as in a tree. */
static enum tutti_result topology_paths(const struct tti_topology *graph, int count, int stops,
                                        double gbs, double limit, const struct tti_hop *hops,
                                        bool reverse, struct tutti_paths **paths)
{
    struct tutti_paths *made = tti_calloc(1, sizeof *made);
    int *index = tti_calloc(graph->node_count + 1, sizeof *index);
    size_t all = (size_t)count * (size_t)stops;
    if (!made || !index || !(made->next = tti_calloc(all, sizeof *made->next))) {
        free(index);
        tutti_paths_destroy(made);
        return TUTTI_ERR_MEMORY;
    }
    made->count = count;
    made->stops = stops;
    made->gbs = gbs;
    made->limit_gbs = isinf(limit) ? 0 : limit;
    for (int k = 0; k < stops; k++)
        index[hops[k].to] = topology_index(graph, hops[k].to);
    for (size_t i = 0; i < all; i++) {
        const struct tti_hop *hop = &hops[i];
        int *path = &made->next[i / (size_t)stops * (size_t)stops];
        if (reverse)
            path[index[hop->to]] = hop->from < 0 ? -1 : index[hop->from];
        else
            path[index[hop->from]] = index[hop->to];
    }
    free(index);
    *paths = made;
    return TUTTI_OK;
}

/* The stops; TUTTI_ERR_UNSUPPORTED unless 2 to TTI_ROUTE_STOPS. */
static enum tutti_result topology_stops(const struct tti_topology *graph, int **stops, int *count)
{
    TTI_TRY(tti_topology_stops(graph, stops, count));
    if (*count >= 2 && *count <= TTI_ROUTE_STOPS)
        return TUTTI_OK;
    free(*stops);
    return TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                    "rings and trees are searched over 2 to %d GPUs or hosts; there are %d",
                    TTI_ROUTE_STOPS, *count);
}

enum tutti_result tutti_topology_rings(const tutti_topology *topology, struct tutti_paths **rings)
{
    int *stops = NULL;
    int count = 0;
    struct tti_rings *found = NULL;
    TOPOLOGY_NEEDS(topology != NULL && rings != NULL);
    const struct tti_topology *graph = topology_graph(topology);
    TTI_TRY(topology_stops(graph, &stops, &count));
    enum tutti_result result = tti_rings_search(graph, stops, count, &found);
    free(stops);
    if (result == TUTTI_OK)
        result = topology_paths(graph, found->count, count, found->gbs, found->limit.gbs,
                                found->hops, false, rings);
    tti_rings_destroy(found);
    return result;
}

enum tutti_result tutti_topology_trees(const tutti_topology *topology, struct tutti_paths **trees)
{
    int *stops = NULL;
    int count = 0;
    struct tti_trees *found = NULL;
    TOPOLOGY_NEEDS(topology != NULL && trees != NULL);
    const struct tti_topology *graph = topology_graph(topology);
    TTI_TRY(topology_stops(graph, &stops, &count));
    enum tutti_result result =
        tti_trees_search(graph, stops, count, TTI_TREES_ALL_REDUCE, -1, &found);
    free(stops);
    if (result == TUTTI_OK)
        result = topology_paths(graph, found->count, count, found->gbs, found->limit.gbs,
                                found->hops, true, trees);
    tti_trees_destroy(found);
    return result;
}

void tutti_paths_destroy(struct tutti_paths *paths)
{
    if (!paths)
        return;
    free(paths->next);
    free(paths);
}

enum tutti_result tutti_topology_predict(const tutti_topology *topology, double *busbw_gbs,
                                         char *why, size_t why_bytes)
{
    struct tti_busbw_prediction p;
    TOPOLOGY_NEEDS(topology != NULL && busbw_gbs != NULL);
    TTI_TRY(tti_predict_all_reduce(topology_graph(topology), &p));
    size_t used = 0;
    if (why && why_bytes)
        used = (size_t)snprintf(why, why_bytes, "ring %.1f, tree %.1f, nvls %.1f GB/s\n", p.ring,
                                p.tree, p.nvls);
    for (int i = 0; why && i < p.assumption_count && used < why_bytes; i++)
        used += (size_t)snprintf(why + used, why_bytes - used, "assumed: %s\n", p.assumptions[i]);
    *busbw_gbs = p.best;
    return TUTTI_OK;
}
