/* NICs and cores near GPUs (nearest.h). */
#include "topology/nearest.h"

#include "base/memory.h"

#include <stdio.h>
#include <stdlib.h>

/* The lowest node that holds both; -1: they are on different hosts. */
static int nearest_common(const struct tti_topology *topology, int a, int b)
{
    while (a != b && a >= 0 && b >= 0) {
        if (a > b) /* a parent comes before its children */
            a = topology->nodes[a].parent;
        else
            b = topology->nodes[b].parent;
    }
    return a == b ? a : -1;
}

enum tti_nearness tti_nearness(const struct tti_topology *topology, int a, int b)
{
    int common = nearest_common(topology, a, b);
    if (common < 0)
        return TTI_NEAR_NOT;
    if (tti_topology_above(topology, common, TTI_NODE_SWITCH) >= 0)
        return TTI_NEAR_SWITCH;
    if (tti_topology_above(topology, common, TTI_NODE_NUMA) >= 0)
        return TTI_NEAR_NUMA;
    return tti_topology_above(topology, common, TTI_NODE_PACKAGE) >= 0 ? TTI_NEAR_PACKAGE
                                                                       : TTI_NEAR_HOST;
}

const char *tti_nearness_text(enum tti_nearness nearness)
{
    static const char *const texts[] = {"same PCI switch", "same NUMA node", "same package",
                                        "across packages", "on another host"};
    return texts[nearness];
}

double tti_nic_rate(const struct tti_topology *topology, int nic)
{
    double gbs = 0;
    for (size_t i = 0; i < topology->link_count; i++) {
        const struct tti_graph_link *link = &topology->links[i];
        if (link->kind == TTI_LINK_NETWORK && (link->from == nic || link->to == nic))
            gbs += link->gbs;
    }
    return gbs;
}

struct nearest_nic {
    int node, rail, users;
    double gbs;
};

static bool nearest_is_better(const struct tti_topology *topology, int gpu,
                              const struct nearest_nic *a, const struct nearest_nic *b)
{
    enum tti_nearness to_a = tti_nearness(topology, gpu, a->node);
    enum tti_nearness to_b = tti_nearness(topology, gpu, b->node);
    if (to_a != to_b)
        return to_a < to_b;
    if (a->gbs != b->gbs)
        return a->gbs > b->gbs;
    return a->users < b->users;
}

/* The choices of one host, which is the nodes [host, end). */
static void nearest_on_host(const struct tti_topology *topology, int host, int end,
                            struct nearest_nic *nics, struct tti_nic_choice *choices, int *count)
{
    int found = 0;
    int first = *count;
    for (int i = host; i < end; i++)
        if (topology->nodes[i].kind == TTI_NODE_NIC) {
            nics[found] =
                (struct nearest_nic){.node = i, .rail = found, .gbs = tti_nic_rate(topology, i)};
            found++;
        }
    for (int i = host; i < end; i++) {
        struct nearest_nic *best = NULL;
        if (topology->nodes[i].kind != TTI_NODE_GPU)
            continue;
        for (int k = 0; k < found; k++)
            if (!best || nearest_is_better(topology, i, &nics[k], best))
                best = &nics[k];
        choices[*count] =
            (struct tti_nic_choice){.gpu = i, .nic = -1, .nearness = TTI_NEAR_NOT, .rail = -1};
        if (best) {
            best->users++;
            choices[*count].nic = best->node;
            choices[*count].rail = best->rail;
            choices[*count].nearness = tti_nearness(topology, i, best->node);
        }
        ++*count;
    }
    for (int i = first; i < *count; i++)
        choices[i].shared = choices[i].rail < 0 ? 0 : nics[choices[i].rail].users;
}

enum tutti_result tti_nics_choose(const struct tti_topology *topology,
                                  struct tti_nic_choice **choices, int *count)
{
    int nodes = (int)topology->node_count;
    int all = tti_topology_count(topology, -1, TTI_NODE_GPU);
    int made = 0;
    struct tti_nic_choice *chosen = tti_calloc((size_t)all + 1, sizeof *chosen);
    struct nearest_nic *nics =
        tti_calloc((size_t)tti_topology_count(topology, -1, TTI_NODE_NIC) + 1, sizeof *nics);
    if (!chosen || !nics) {
        free(chosen);
        free(nics);
        return TUTTI_ERR_MEMORY;
    }
    for (int i = 0; i < nodes; i = tti_topology_end(topology, i))
        if (topology->nodes[i].kind == TTI_NODE_HOST)
            nearest_on_host(topology, i, tti_topology_end(topology, i), nics, chosen, &made);
    free(nics);
    *choices = chosen;
    *count = made;
    return TUTTI_OK;
}

const char *tti_nic_choice_text(const struct tti_topology *topology,
                                const struct tti_nic_choice *choice, char *text, size_t bytes)
{
    char gpu[80];
    char nic[80];
    char shared[48] = "";
    (void)tti_topology_label(topology, choice->gpu, gpu, sizeof gpu);
    if (choice->nic < 0) {
        snprintf(text, bytes, "%s uses no nic: its host has none", gpu);
        return text;
    }
    if (choice->shared > 1)
        snprintf(shared, sizeof shared, ", shared by %d gpus", choice->shared);
    snprintf(text, bytes, "%s uses %s: %s, rail %d%s", gpu,
             tti_topology_label(topology, choice->nic, nic, sizeof nic),
             tti_nearness_text(choice->nearness), choice->rail, shared);
    return text;
}

/* The CPUs below a node; false for one that does not fit. */
static bool nearest_cpus(const struct tti_topology *topology, int node, cpu_set_t *cpus)
{
    CPU_ZERO(cpus);
    for (int i = node; i >= 0 && i < tti_topology_end(topology, node); i++) {
        int cpu = topology->nodes[i].os_index;
        if (topology->nodes[i].kind != TTI_NODE_PU)
            continue;
        if (cpu < 0 || cpu >= CPU_SETSIZE) {
            CPU_ZERO(cpus);
            return false;
        }
        CPU_SET(cpu, cpus);
    }
    return true;
}

void tti_cpus_near(const struct tti_topology *topology, int device, cpu_set_t *cpus)
{
    int numa = tti_topology_above(topology, device, TTI_NODE_NUMA);
    if (numa >= 0 && nearest_cpus(topology, numa, cpus) && CPU_COUNT(cpus) > 0)
        return;
    (void)nearest_cpus(topology, tti_topology_above(topology, device, TTI_NODE_HOST), cpus);
}

int tti_first_host(const struct tti_topology *topology)
{
    int host = 0;
    while (host < (int)topology->node_count && topology->nodes[host].kind != TTI_NODE_HOST)
        host++;
    return host < (int)topology->node_count ? host : -1;
}

int tti_cpus_near_nics(const struct tti_topology *topology, cpu_set_t *cpus)
{
    const int host = tti_first_host(topology);
    const int end = host < 0 ? 0 : tti_topology_end(topology, host);
    int first = -1;
    double fastest = 0;
    CPU_ZERO(cpus);
    for (int i = host; i >= 0 && i < end; i++) {
        cpu_set_t near;
        const double gbs = topology->nodes[i].kind == TTI_NODE_NIC ? tti_nic_rate(topology, i) : -1;
        if (gbs < fastest)
            continue;
        if (first < 0 || gbs > fastest) {
            first = i;
            fastest = gbs;
            CPU_ZERO(cpus);
        }
        tti_cpus_near(topology, i, &near);
        CPU_OR(cpus, cpus, &near);
    }
    return first;
}

/* What a GPU's name begins with ("0000:3b:00.0 ..."), as a number in the driver's order; 0: it has
 * no address, and its place in the graph is all that is known. */
static uint64_t nearest_address(const struct tti_node *gpu)
{
    unsigned domain = 0, bus = 0, device = 0, function = 0;
    if (sscanf(gpu->name, "%8x:%2x:%2x.%1x", &domain, &bus, &device, &function) != 4)
        return 0;
    return (uint64_t)domain << 32 | bus << 16 | device << 8 | function;
}

/* The GPUs of [host, end) that come before this one by address. */
static int nearest_before(const struct tti_topology *topology, int host, int end, int gpu)
{
    const uint64_t own = nearest_address(&topology->nodes[gpu]);
    int before = 0;
    for (int i = host; i < end; i++) {
        if (topology->nodes[i].kind != TTI_NODE_GPU)
            continue;
        const uint64_t other = nearest_address(&topology->nodes[i]);
        before += other < own || (other == own && i < gpu);
    }
    return before;
}

int tti_gpu_of_rank(const struct tti_topology *topology, int local_rank)
{
    const int host = tti_first_host(topology);
    const int end = host < 0 ? 0 : tti_topology_end(topology, host);
    int gpus = 0, seen = 0;
    bool addresses = false;
    for (int i = host; host >= 0 && i < end; i++) {
        gpus += topology->nodes[i].kind == TTI_NODE_GPU;
        addresses |=
            topology->nodes[i].kind == TTI_NODE_GPU && nearest_address(&topology->nodes[i]);
    }
    for (int i = host; gpus && i < end; i++) {
        if (topology->nodes[i].kind != TTI_NODE_GPU)
            continue;
        if ((addresses ? nearest_before(topology, host, end, i) : seen++) == local_rank % gpus)
            return i;
    }
    return -1;
}
