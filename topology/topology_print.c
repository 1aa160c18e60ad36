/* The graph as an indented tree of text. A chain of nodes with one child each is one line: cores
 * stand with their caches, as in "L2 1 MiB + L1 48 KiB + core 0 + pu 0". */
#include "topology/graph.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

struct print {
    const struct tti_topology *topology;
    FILE *out;
    int *first; /* of each node the first link from it, in `order`; one more at the end */
    int *order; /* links by the node that they are from */
};

static enum tutti_result print_sort_links(struct print *print)
{
    const struct tti_topology *topology = print->topology;
    print->first = tti_calloc(topology->node_count + 2, sizeof *print->first);
    print->order = tti_calloc(topology->link_count + 1, sizeof *print->order);
    if (!print->first || !print->order)
        return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < topology->link_count; i++)
        print->first[topology->links[i].from + 2]++;
    for (size_t i = 2; i <= topology->node_count; i++)
        print->first[i] += print->first[i - 1];
    for (size_t i = 0; i < topology->link_count; i++)
        print->order[print->first[topology->links[i].from + 1]++] = (int)i;
    return TUTTI_OK;
}

static int print_children(const struct tti_topology *topology, int node)
{
    int end = tti_topology_end(topology, node);
    int children = 0;
    for (int i = node + 1; i < end; i = tti_topology_end(topology, i))
        children++;
    return children;
}

static bool print_alike(const struct tti_graph_link *a, const struct tti_graph_link *b)
{
    return a->kind == b->kind && a->gbs == b->gbs && a->latency_us == b->latency_us &&
           a->measured == b->measured;
}

/* ", pci 64 GB/s, nvlink 50 GB/s to gpu 1, gpu 2": where a PCI link leads is seen in the tree. */
static void print_links(const struct print *print, int node)
{
    const struct tti_topology *topology = print->topology;
    for (int i = print->first[node]; i < print->first[node + 1]; i++) {
        const struct tti_graph_link *link = &topology->links[print->order[i]];
        const struct tti_graph_link *last =
            i > print->first[node] ? &topology->links[print->order[i - 1]] : NULL;
        char label[80];
        (void)tti_topology_label(topology, link->to, label, sizeof label);
        if (last && link->kind != TTI_LINK_PCI && print_alike(last, link)) {
            fprintf(print->out, ", %s", label);
            continue;
        }
        if (link->kind == TTI_LINK_PCI && link->gbs <= 0 && link->latency_us <= 0)
            continue;
        fprintf(print->out, "; %s", tti_link_kind_name(link->kind));
        if (link->gbs > 0)
            fprintf(print->out, " %.4g GB/s", link->gbs);
        else if (link->latency_us <= 0)
            fprintf(print->out, " of unknown speed");
        if (link->latency_us > 0)
            fprintf(print->out, " %.3g us", link->latency_us);
        if (link->measured)
            fprintf(print->out, " measured");
        if (link->kind != TTI_LINK_PCI)
            fprintf(print->out, " to %s", label);
    }
}

static void print_node(const struct print *print, int node)
{
    const struct tti_node *at = &print->topology->nodes[node];
    char label[80];
    char size[32];
    fputs(tti_topology_label(print->topology, node, label, sizeof label), print->out);
    if (at->bytes)
        fprintf(print->out, " %s", tti_size_text(at->bytes, size, sizeof size));
    if (at->reduces)
        fputs(", adds up and multicasts", print->out);
    if (at->staged)
        fputs(", reached through memory", print->out);
    if (at->kind == TTI_NODE_HOST) {
        static const enum tti_node_kind told[] = {TTI_NODE_CORE, TTI_NODE_PU, TTI_NODE_GPU,
                                                  TTI_NODE_NIC};
        const char *mark = ": ";
        for (size_t k = 0; k < sizeof told / sizeof told[0]; k++) {
            int count = tti_topology_count(print->topology, node, told[k]);
            if (count)
                fprintf(print->out, "%s%d %s%s", mark, count, tti_node_kind_name(told[k]),
                        count == 1 ? "" : "s");
            mark = count ? ", " : mark;
        }
    }
    print_links(print, node);
}

/* Several hardware threads, and nothing else. */
static bool print_is_core_of_threads(const struct tti_topology *topology, int node)
{
    int end = tti_topology_end(topology, node);
    return topology->nodes[node].kind == TTI_NODE_CORE && end > node + 1 &&
           tti_topology_count(topology, node, TTI_NODE_PU) == end - node - 1;
}

enum tutti_result tti_topology_print(const struct tti_topology *topology, FILE *out)
{
    struct print print = {.topology = topology, .out = out};
    int *depth = tti_calloc(topology->node_count + 1, sizeof *depth);
    enum tutti_result result = depth ? print_sort_links(&print) : TUTTI_ERR_MEMORY;
    for (int i = 0; i < (int)topology->node_count && result == TUTTI_OK; i++) {
        int parent = topology->nodes[i].parent;
        depth[i] = parent < 0 ? 0 : depth[parent] + 1;
        fprintf(out, "%*s", 2 * depth[i], "");
        print_node(&print, i);
        /* Down a chain of only children, on one line; what follows is indented as from its start.
         */
        while (topology->nodes[i].kind != TTI_NODE_HOST && print_children(topology, i) == 1) {
            depth[i + 1] = depth[i];
            i++;
            fputs(" + ", out);
            print_node(&print, i);
        }
        if (print_is_core_of_threads(topology, i)) {
            fputs(" + ", out);
            print_node(&print, i + 1);
            for (i++;
                 i + 1 < (int)topology->node_count && topology->nodes[i + 1].kind == TTI_NODE_PU;
                 i++) {
                fputs(", ", out);
                print_node(&print, i + 1);
            }
        }
        putc('\n', out);
    }
    free(depth);
    free(print.first);
    free(print.order);
    if (result == TUTTI_OK && (fflush(out) != 0 || ferror(out)))
        result = TTI_FAIL_ERRNO("cannot print the machine");
    return result;
}
