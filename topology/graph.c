/* Building a graph of the machine, and the questions about it (graph.h). */
#include "topology/graph.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const node_names[TTI_NODE_KINDS] = {
    [TTI_NODE_HOST] = "host",     [TTI_NODE_PACKAGE] = "package", [TTI_NODE_NUMA] = "numa",
    [TTI_NODE_CACHE] = "cache",   [TTI_NODE_CORE] = "core",       [TTI_NODE_PU] = "pu",
    [TTI_NODE_SWITCH] = "switch", [TTI_NODE_GPU] = "gpu",         [TTI_NODE_NIC] = "nic",
};
static const char *const link_names[TTI_LINK_KINDS] = {
    [TTI_LINK_PCI] = "pci",   [TTI_LINK_NVLINK] = "nvlink", [TTI_LINK_NETWORK] = "network",
    [TTI_LINK_CORE] = "core", [TTI_LINK_MEMORY] = "memory", [TTI_LINK_PEER] = "peer",
};

const char *tti_node_kind_name(enum tti_node_kind kind)
{
    return node_names[kind];
}

const char *tti_link_kind_name(enum tti_link_kind kind)
{
    return link_names[kind];
}

enum tutti_result tti_topology_create(const char *source, struct tti_topology **topology)
{
    struct tti_topology *made = tti_calloc(1, sizeof *made);
    if (!made)
        return TUTTI_ERR_MEMORY;
    snprintf(made->source, sizeof made->source, "%s", source);
    *topology = made;
    return TUTTI_OK;
}

void tti_topology_destroy(struct tti_topology *topology)
{
    if (!topology)
        return;
    free(topology->nodes);
    free(topology->links);
    free(topology);
}

/* Depth-first order: the parent is the last node or one of those above it. */
static bool topology_order_holds(const struct tti_topology *topology, int parent)
{
    if (parent == -1)
        return true;
    int at = (int)topology->node_count - 1;
    while (at > parent)
        at = topology->nodes[at].parent;
    return at == parent && at >= 0;
}

static bool topology_kind_holds(const struct tti_topology *topology, const struct tti_node *node)
{
    if (node->kind == TTI_NODE_HOST || node->parent == -1)
        return node->parent == -1 && (node->kind == TTI_NODE_HOST || node->kind == TTI_NODE_SWITCH);
    enum tti_node_kind above = topology->nodes[node->parent].kind;
    return above != TTI_NODE_PU && above != TTI_NODE_GPU && above != TTI_NODE_NIC;
}

static int topology_depth(const struct tti_topology *topology, int node)
{
    int depth = 0;
    for (; node >= 0; node = topology->nodes[node].parent)
        depth++;
    return depth;
}

static enum tutti_result topology_check_place(const struct tti_topology *topology,
                                              const struct tti_node *node)
{
    size_t count = topology->node_count;
    if (!topology_kind_holds(topology, node))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "node %zu is a %s, which cannot be %s%s", count,
                        node_names[node->kind], node->parent < 0 ? "a root" : "in a ",
                        node->parent < 0 ? "" : node_names[topology->nodes[node->parent].kind]);
    if (topology_depth(topology, node->parent) >= TTI_TOPOLOGY_DEPTH)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "node %zu is nested deeper than %d", count,
                        TTI_TOPOLOGY_DEPTH);
    if (count >= TTI_TOPOLOGY_NODES)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "the machine has more than %d parts",
                        TTI_TOPOLOGY_NODES);
    return TUTTI_OK;
}

/* So that a name can stand in any output as it is. */
static void topology_clean_name(struct tti_node *node)
{
    for (char *at = node->name; *at; at++)
        if (*at < ' ' || *at > '~' || strchr("\"\\<>&", *at))
            *at = '_';
}

enum tutti_result tti_topology_add(struct tti_topology *topology, const struct tti_node *node,
                                   int *index)
{
    size_t count = topology->node_count;
    if (node->kind < 0 || node->kind >= TTI_NODE_KINDS)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "node %zu has no kind", count);
    if (node->parent < -1 || node->parent >= (int)count ||
        !topology_order_holds(topology, node->parent))
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "node %zu has parent %d: expected the node before it, or one above that",
                        count, node->parent);
    TTI_TRY(topology_check_place(topology, node));
    TTI_TRY(tti_grow((void **)&topology->nodes, &topology->node_capacity, count + 1,
                     sizeof *topology->nodes));
    topology->nodes[count] = *node;
    topology_clean_name(&topology->nodes[count]);
    topology->node_count++;
    if (index)
        *index = (int)count;
    return TUTTI_OK;
}

enum tutti_result tti_topology_insert(struct tti_topology *topology, const struct tti_node *node,
                                      int *index)
{
    size_t count = topology->node_count;
    if (node->parent < 0 || node->parent >= (int)count || node->kind >= TTI_NODE_KINDS)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "a node is put into %d of %zu", node->parent, count);
    TTI_TRY(topology_check_place(topology, node));
    TTI_TRY(tti_grow((void **)&topology->nodes, &topology->node_capacity, count + 1,
                     sizeof *topology->nodes));
    int at = tti_topology_end(topology, node->parent);
    memmove(&topology->nodes[at + 1], &topology->nodes[at],
            (count - (size_t)at) * sizeof *topology->nodes);
    topology->nodes[at] = *node;
    topology_clean_name(&topology->nodes[at]);
    topology->node_count++;
    for (int i = at + 1; i < (int)topology->node_count; i++)
        topology->nodes[i].parent += topology->nodes[i].parent >= at;
    for (size_t i = 0; i < topology->link_count; i++) {
        topology->links[i].from += topology->links[i].from >= at;
        topology->links[i].to += topology->links[i].to >= at;
    }
    if (index)
        *index = at;
    return TUTTI_OK;
}

enum tutti_result tti_topology_link(struct tti_topology *topology,
                                    const struct tti_graph_link *link)
{
    size_t count = topology->link_count;
    int nodes = (int)topology->node_count;
    if (link->kind < 0 || link->kind >= TTI_LINK_KINDS)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "link %zu has no kind", count);
    if (link->from < 0 || link->to < 0 || link->from >= nodes || link->to >= nodes ||
        link->from == link->to)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "link %zu goes from %d to %d: expected two of %d nodes",
                        count, link->from, link->to, nodes);
    if (!isfinite(link->gbs) || !isfinite(link->latency_us) || link->gbs < 0 ||
        link->latency_us < 0)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "link %zu has %g GB/s and %g us: expected 0 (unknown) or more", count,
                        link->gbs, link->latency_us);
    if (count >= 4 * (size_t)TTI_TOPOLOGY_NODES)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "the machine has more than %d links",
                        4 * TTI_TOPOLOGY_NODES);
    TTI_TRY(tti_grow((void **)&topology->links, &topology->link_capacity, count + 1,
                     sizeof *topology->links));
    topology->links[topology->link_count++] = *link;
    return TUTTI_OK;
}

int tti_topology_end(const struct tti_topology *topology, int node)
{
    int end = node + 1;
    while (end < (int)topology->node_count && topology->nodes[end].parent >= node)
        end++;
    return end;
}

int tti_topology_above(const struct tti_topology *topology, int node, enum tti_node_kind kind)
{
    while (node >= 0 && topology->nodes[node].kind != kind)
        node = topology->nodes[node].parent;
    return node;
}

int tti_topology_count(const struct tti_topology *topology, int node, enum tti_node_kind kind)
{
    int first = node < 0 ? 0 : node;
    int end = node < 0 ? (int)topology->node_count : tti_topology_end(topology, node);
    int count = 0;
    for (int i = first; i < end; i++)
        count += topology->nodes[i].kind == kind;
    return count;
}

const char *tti_topology_label(const struct tti_topology *topology, int node, char *text,
                               size_t bytes)
{
    const struct tti_node *at = &topology->nodes[node];
    char number[16] = "";
    if (at->os_index >= 0)
        snprintf(number, sizeof number, " %d", at->os_index);
    if (at->kind == TTI_NODE_CACHE)
        snprintf(text, bytes, "L%d", at->level);
    else
        snprintf(text, bytes, "%s%s%s%s", node_names[at->kind], number, *at->name ? " " : "",
                 at->name);
    return text;
}

const char *tti_size_text(uint64_t size, char *text, size_t bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)size;
    size_t unit = 0;
    for (; value >= 1024 && unit < 4; unit++)
        value /= 1024;
    if (size)
        snprintf(text, bytes, "%.*f %s", value < 100 && value != floor(value), value, units[unit]);
    else
        snprintf(text, bytes, "%s", "");
    return text;
}
