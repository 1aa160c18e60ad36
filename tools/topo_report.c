/* What tutti-topo says about choices (topo_report.h). */
#include "tools/topo_report.h"

#include "base/memory.h"
#include "topology/bind.h"
#include "topology/lanes_draw.h"
#include "topology/nearest.h"
#include "topology/predict.h"
#include "topology/rings.h"
#include "topology/trees.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *report_plural(int count)
{
    return count == 1 ? "" : "s";
}

/* ---- Cores and NICs -------------------------------------------------------------------------- */

/* The NUMA node with the first CPU of the set, or -1. */
static int report_numa_of(const struct tti_topology *topology, const cpu_set_t *cpus)
{
    for (int i = 0; i < (int)topology->node_count; i++) {
        const struct tti_node *node = &topology->nodes[i];
        if (node->kind == TTI_NODE_PU && node->os_index >= 0 && node->os_index < CPU_SETSIZE &&
            CPU_ISSET(node->os_index, cpus))
            return tti_topology_above(topology, i, TTI_NODE_NUMA);
    }
    return -1;
}

enum tutti_result topo_report_cores(const struct tti_topology *topology, int ranks)
{
    int gpus = tti_topology_count(topology, 0, TTI_NODE_GPU);
    int cores = tti_topology_count(topology, 0, TTI_NODE_CORE);
    int numas = tti_topology_count(topology, 0, TTI_NODE_NUMA);
    const char *why = "as asked for";
    if (ranks == 0) {
        ranks = gpus ? gpus : cores;
        why = gpus ? "one for each GPU" : "one for each core";
    }
    if (ranks == 0 || ranks > cores) {
        printf("%d ranks (%s) on %d cores: not bound, there are too few cores\n", ranks, why,
               cores);
        return TUTTI_OK;
    }
    printf("%d rank%s (%s) on %d core%s of %d NUMA node%s: %s\n", ranks, report_plural(ranks), why,
           cores, report_plural(cores), numas, report_plural(numas),
           gpus            ? "each on the NUMA node of its GPU"
           : ranks < numas ? "each gets whole NUMA nodes"
                           : "each stays within a NUMA node");
    for (int rank = 0; rank < ranks; rank++) {
        cpu_set_t cpus;
        char text[256];
        char reason[160];
        TTI_TRY(tti_topology_cpus(topology, ranks, rank, &cpus));
        int numa = report_numa_of(topology, &cpus);
        printf("rank %d: CPUs %s", rank, tti_cpus_text(&cpus, text, sizeof text));
        if (numa >= 0)
            printf(", %s %s", ranks < numas && !gpus ? "from" : "in",
                   tti_topology_label(topology, numa, text, sizeof text));
        if (gpus)
            printf(": %s", tti_bind_reason(topology, rank, &cpus, reason, sizeof reason));
        putchar('\n');
    }
    return TUTTI_OK;
}

enum tutti_result topo_report_nics(const struct tti_topology *topology)
{
    struct tti_nic_choice *choices = NULL;
    int count = 0;
    int hosts = tti_topology_count(topology, -1, TTI_NODE_HOST);
    if (tti_topology_count(topology, -1, TTI_NODE_NIC) == 0)
        return TUTTI_OK;
    TTI_TRY(tti_nics_choose(topology, &choices, &count));
    for (int i = 0; i < count; i++) {
        char text[256];
        int host = tti_topology_above(topology, choices[i].gpu, TTI_NODE_HOST);
        if (hosts > 1)
            printf("%s: ", tti_topology_label(topology, host, text, sizeof text));
        printf("%s\n", tti_nic_choice_text(topology, &choices[i], text, sizeof text));
    }
    free(choices);
    return TUTTI_OK;
}

/* ---- Rings and trees ------------------------------------------------------------------------- */

/* "4 rings over 8 gpus, each 50 GB/s: 200 GB/s in all", and with `explain` what limits them. */
static void report_sum(const struct tti_topology *topology, const char *what, int count, int stops,
                       double gbs, const struct tti_limit *limit, bool explain)
{
    bool gpus = tti_topology_count(topology, -1, TTI_NODE_GPU) > 0;
    char label[80];
    printf("%d %s%s over %d %ss", count, what, report_plural(count), stops, gpus ? "gpu" : "host");
    if (gbs > 0)
        printf(", each %.4g GB/s: %.4g GB/s in all (= NVLink, - PCI, [ ] network)\n", gbs,
               count * gbs);
    else
        printf(" of unknown bandwidth (= NVLink, - PCI, [ ] network)\n");
    if (!explain || gbs <= 0 || isinf(limit->gbs))
        return;
    if (limit->node >= 0)
        (void)tti_topology_label(topology, limit->node, label, sizeof label);
    else
        snprintf(label, sizeof label, "all hosts together, each hop both ways");
    if (count * gbs >= limit->gbs * (1 - 1e-6))
        printf("no more is possible: %.4g GB/s is all that %s can carry\n", limit->gbs, label);
    else
        printf("at most %.4g GB/s could be, by what %s can carry\n", limit->gbs, label);
}

/* "host 1:" when the hop leads to another host than the last one did. */
static void report_host(const struct tti_topology *topology, int node, int *last)
{
    char label[80];
    int host = tti_topology_above(topology, node, TTI_NODE_HOST);
    if (host != *last && topology->nodes[node].kind != TTI_NODE_HOST)
        printf(" %s:", tti_topology_label(topology, host, label, sizeof label));
    *last = host;
}

static void report_hop(const struct tti_topology *topology, const struct tti_hop *hop)
{
    char label[80];
    if (hop->nic_out >= 0) {
        printf(" [%s", tti_topology_label(topology, hop->nic_out, label, sizeof label));
        printf(" > %s]", tti_topology_label(topology, hop->nic_in, label, sizeof label));
    } else {
        printf(" %s", hop->kind == TTI_LINK_NVLINK ? "=" : "-");
    }
}

/* "why: 28 hops by NVLink, 4 by network: rail 0 on every host". */
static void report_why(const struct tti_topology *topology, const struct tti_hop *hops, int count)
{
    static const char *const names[TTI_LINK_WAYS] = {"PCI", "NVLink", "network"};
    int kinds[TTI_LINK_WAYS] = {0};
    int nic = -1;
    bool aligned = true;
    char label[80];
    const char *mark = "    hops:";
    for (int i = 0; i < count; i++) {
        if (hops[i].from < 0)
            continue;
        kinds[hops[i].kind]++;
        if (hops[i].nic_out < 0)
            continue;
        nic = nic < 0 ? hops[i].nic_out : nic;
        aligned &= topology->nodes[hops[i].nic_out].os_index == topology->nodes[nic].os_index &&
                   topology->nodes[hops[i].nic_in].os_index == topology->nodes[nic].os_index;
    }
    for (int k = 0; k < TTI_LINK_WAYS; k++)
        if (kinds[k]) {
            printf("%s %d by %s", mark, kinds[k], names[k]);
            mark = ",";
        }
    if (nic >= 0 && aligned)
        printf("; one rail on all hosts: %s",
               tti_topology_label(topology, nic, label, sizeof label));
    else if (nic >= 0)
        printf("; over several rails: some host is left beside another nic than it is entered by");
    putchar('\n');
}

/* "gpu 0 1 2 3", host by host, with the NICs between them. */
static void report_ring(const struct tti_topology *topology, const struct tti_rings *rings,
                        int ring)
{
    const struct tti_hop *hops = &rings->hops[(size_t)ring * (size_t)rings->stops];
    int last_host = -1;
    char label[80];
    printf("ring %d:", ring);
    for (int k = 0; k < rings->stops; k++) {
        report_host(topology, hops[k].from, &last_host);
        printf(" %s", tti_topology_label(topology, hops[k].from, label, sizeof label));
        report_hop(topology, &hops[k]);
    }
    putchar('\n');
}

enum tutti_result topo_report_rings(const struct tti_topology *topology, bool explain)
{
    struct tti_rings *rings = NULL;
    int *stops = NULL;
    int count = 0;
    TTI_TRY(tti_topology_stops(topology, &stops, &count));
    enum tutti_result result = tti_rings_search(topology, stops, count, &rings);
    free(stops);
    TTI_TRY(result);
    report_sum(topology, "ring", rings->count, count, rings->gbs, &rings->limit, explain);
    for (int ring = 0; ring < rings->count; ring++) {
        report_ring(topology, rings, ring);
        if (explain)
            report_why(topology, &rings->hops[ring * count], count);
    }
    tti_rings_destroy(rings);
    return TUTTI_OK;
}

/* The subtree of hop `at`: its node, then each child; several of them in brackets. */
static void report_subtree(const struct tti_topology *topology, const struct tti_hop *hops,
                           int count, int at, int *last_host)
{
    char label[80];
    int children = 0;
    int told = 0;
    report_host(topology, hops[at].to, last_host);
    printf(" %s", tti_topology_label(topology, hops[at].to, label, sizeof label));
    int host = *last_host;
    for (int k = at + 1; k < count; k++)
        children += hops[k].from == hops[at].to;
    for (int k = at + 1; k < count; k++) {
        if (hops[k].from != hops[at].to)
            continue;
        if (children > 1)
            fputs(told++ ? "," : " (", stdout);
        *last_host = host;
        report_hop(topology, &hops[k]);
        report_subtree(topology, hops, count, k, last_host);
    }
    if (children > 1)
        fputs(" )", stdout);
}

enum tutti_result topo_report_trees(const struct tti_topology *topology, bool explain)
{
    struct tti_trees *trees = NULL;
    int *stops = NULL;
    int count = 0;
    TTI_TRY(tti_topology_stops(topology, &stops, &count));
    enum tutti_result result =
        tti_trees_search(topology, stops, count, TTI_TREES_ALL_REDUCE, -1, &trees);
    free(stops);
    TTI_TRY(result);
    report_sum(topology, "tree", trees->count, count, trees->gbs, &trees->limit, explain);
    for (int tree = 0; tree < trees->count; tree++) {
        int last_host = -1;
        printf("tree %d:", tree);
        report_subtree(topology, &trees->hops[tree * count], count, 0, &last_host);
        putchar('\n');
        if (explain)
            report_why(topology, &trees->hops[tree * count], count);
    }
    tti_trees_destroy(trees);
    return TUTTI_OK;
}

/* ---- What to expect -------------------------------------------------------------------------- */

static void report_rate(const char *name, double gbs, const char *best)
{
    if (gbs > 0)
        printf("  %-5s %7.1f GB/s%s\n", name, gbs, strcmp(name, best) == 0 ? "  (best)" : "");
}

enum tutti_result topo_report_prediction(const struct tti_topology *topology)
{
    struct tti_busbw_prediction p;
    TTI_TRY(tti_predict_all_reduce(topology, &p));
    bool gpus = tti_topology_count(topology, -1, TTI_NODE_GPU) > 0;
    printf("bus bandwidth of a large all-reduce over %d %ss, predicted:%s\n", p.stops,
           gpus ? "gpu" : "host", p.best > 0 ? "" : " unknown, no bandwidth on the way is known");
    report_rate("ring", p.ring, p.algorithm);
    report_rate("tree", p.tree, p.algorithm);
    report_rate("nvls", p.nvls, p.algorithm);
    for (int i = 0; i < p.assumption_count && p.best > 0; i++)
        printf("assumed: %s\n", p.assumptions[i]);
    return TUTTI_OK;
}

enum tutti_result topo_report_draw(const struct tti_topology *topology, bool rings, bool trees,
                                   FILE *out)
{
    struct tti_lanes lanes;
    TTI_TRY(tti_lanes_search(topology, rings, trees, &lanes));
    enum tutti_result result = tti_topology_draw(topology, &lanes, out);
    tti_lanes_clear(&lanes);
    return result;
}
