/* The model behind a predicted bus bandwidth (predict.h). */
#include "topology/predict.h"

#include "base/memory.h"
#include "topology/rings.h"
#include "topology/trees.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is left for payload of one NVLink's nominal rate, as NCCL's src/graph/topo.h states it for
 * each generation of GPUs (18 of 20 GB/s, 20 of 25, 20.6 of 25, 40.1 of 50): stores of 128 bytes
 * travel with a header, and acknowledgements come back on the same wire. The generation is read
 * from what a GPU has in all: Pascal's have up to 80 GB/s, Volta's and Ampere's up to 300, Hopper's
 * up to 450, Blackwell's 900. */
static const struct {
    double up_to_gbs, payload;
    const char *example;
} predict_nvlink[] = {
    {100, 18.0 / 20, "18 of 20 GB/s, as of Pascal's NVLink"},
    {300, 20.0 / 25, "20 of 25 GB/s, as of Volta's and Ampere's NVLink"},
    {450, 20.6 / 25, "20.6 of 25 GB/s, as of Hopper's NVLink"},
    {INFINITY, 40.1 / 50, "40.1 of 50 GB/s, as of Blackwell's NVLink"},
};
/* PCIe: 12 of 15.75 GB/s for x16 of generation 3, NCCL's number too (headers of 128-byte packets,
 * flow control, reads that wait). */
static const double predict_pci = 12.0 / 15.75;
/* Through memory: written by one GPU, read by the other, over the same ways twice. */
static const double predict_staged = 0.5;
/* Network: 46 to 48 of the 50 GB/s of NDR are published (nccl-tests issue 290). */
static const double predict_network = 47.0 / 50;
/* NVLS: what NCCL's tuning (nvlsEfficiency) allows for multimem traffic through the switch. */
static const double predict_nvls_hopper = 0.85, predict_nvls_blackwell = 0.74;

static __attribute__((format(printf, 2, 3))) void predict_assume(struct tti_busbw_prediction *p,
                                                                 const char *format, ...)
{
    va_list arguments;
    if (p->assumption_count == TTI_ASSUMPTIONS)
        return;
    char *text = p->assumptions[p->assumption_count];
    va_start(arguments, format);
    vsnprintf(text, TTI_ASSUMPTION_BYTES, format, arguments);
    va_end(arguments);
    for (int i = 0; i < p->assumption_count; i++)
        if (strcmp(p->assumptions[i], text) == 0)
            return;
    p->assumption_count++;
}

enum tutti_result tti_topology_stops(const struct tti_topology *topology, int **stops, int *count)
{
    enum tti_node_kind kind =
        tti_topology_count(topology, -1, TTI_NODE_GPU) ? TTI_NODE_GPU : TTI_NODE_HOST;
    int all = tti_topology_count(topology, -1, kind);
    int found = 0;
    int *list = tti_calloc((size_t)all + 1, sizeof *list);
    if (!list)
        return TUTTI_ERR_MEMORY;
    for (int i = 0; i < (int)topology->node_count; i++)
        if (topology->nodes[i].kind == kind)
            list[found++] = i;
    *stops = list;
    *count = found;
    return TUTTI_OK;
}

/* ---- Payload --------------------------------------------------------------------------------- */

static double predict_nvlink_of(const struct tti_topology *topology, int node)
{
    double gbs = 0;
    for (size_t i = 0; i < topology->link_count; i++) {
        const struct tti_graph_link *link = &topology->links[i];
        if (link->kind == TTI_LINK_NVLINK && (link->from == node || link->to == node))
            gbs += link->gbs;
    }
    return gbs;
}

static double predict_link(const struct tti_topology *topology, const struct tti_graph_link *link,
                           struct tti_busbw_prediction *p)
{
    if (link->kind == TTI_LINK_NETWORK) {
        predict_assume(p,
                       "network: %.0f%% of the line rate is payload (46 to 48 of NDR's 50 GB/s "
                       "are published)",
                       100 * predict_network);
        return predict_network;
    }
    if (link->kind == TTI_LINK_PCI && topology->nodes[link->from].staged) {
        predict_assume(p,
                       "PCIe through memory: %.0f%% of the nominal rate, since the driver does "
                       "not let the GPUs read each other",
                       100 * predict_pci * predict_staged);
        return predict_pci * predict_staged;
    }
    if (link->kind == TTI_LINK_PCI) {
        predict_assume(p,
                       "PCIe: %.0f%% of the nominal rate is payload (12 of 15.75 GB/s, "
                       "generation 3 x16)",
                       100 * predict_pci);
        return predict_pci;
    }
    double all = predict_nvlink_of(topology, link->from);
    size_t k = 0;
    while (all > predict_nvlink[k].up_to_gbs * (1 + 1e-9))
        k++;
    predict_assume(p, "NVLink: %.1f%% of the nominal rate is payload (%s)",
                   100 * predict_nvlink[k].payload, predict_nvlink[k].example);
    return predict_nvlink[k].payload;
}

/* Whether anything goes over such links: between hosts all kinds are used, within one its GPUs'
 * NVLinks, or PCI where they have none. */
static bool predict_uses(const struct tti_topology *topology, enum tti_link_kind kind)
{
    bool nvlink = false;
    for (size_t i = 0; i < topology->link_count; i++)
        nvlink |= topology->links[i].kind == TTI_LINK_NVLINK;
    return tti_topology_count(topology, -1, TTI_NODE_HOST) > 1 ||
           kind == (nvlink ? TTI_LINK_NVLINK : TTI_LINK_PCI);
}

/* The same machine with what is left of its links. */
static enum tutti_result predict_payload(const struct tti_topology *topology,
                                         struct tti_busbw_prediction *p,
                                         struct tti_topology **payload)
{
    struct tti_topology *made = NULL;
    struct tti_busbw_prediction unused = {.assumption_count = 0};
    enum tutti_result result = tti_topology_create(topology->source, &made);
    for (size_t i = 0; i < topology->node_count && result == TUTTI_OK; i++)
        result = tti_topology_add(made, &topology->nodes[i], NULL);
    for (size_t i = 0; i < topology->link_count && result == TUTTI_OK; i++) {
        struct tti_graph_link link = topology->links[i];
        if (link.gbs > 0)
            link.gbs *=
                predict_link(topology, &link, predict_uses(topology, link.kind) ? p : &unused);
        result = tti_topology_link(made, &link);
    }
    if (result != TUTTI_OK) {
        tti_topology_destroy(made);
        return result;
    }
    *payload = made;
    return TUTTI_OK;
}

/* ---- Through a switch that reduces ----------------------------------------------------------- */

/* A GPU sends all of its buffer to the switch, which adds up, takes 1/n of the sum, sends that once
 * more and gets all of it by multicast: 1 + 1/n buffers in each direction. Bytes over seconds of
 * the slowest host; 0 unless all GPUs of every host are on such a switch. */
static double predict_nvls_algbw(const struct tti_topology *payload, const int *stops, int count,
                                 int *local)
{
    double slowest = INFINITY;
    for (int i = 0; i < count; i++) {
        double out = 0;
        int host = tti_topology_above(payload, stops[i], TTI_NODE_HOST);
        *local = tti_topology_count(payload, host, TTI_NODE_GPU);
        for (size_t l = 0; l < payload->link_count; l++) {
            const struct tti_graph_link *link = &payload->links[l];
            if (link->kind == TTI_LINK_NVLINK && link->from == stops[i] &&
                payload->nodes[link->to].reduces)
                out += link->gbs;
        }
        slowest = fmin(slowest, *local > 1 ? out * *local / (*local + 1) : 0);
    }
    return slowest;
}

static enum tutti_result predict_nvls(const struct tti_topology *topology,
                                      const struct tti_topology *payload, const int *stops,
                                      int count, struct tti_busbw_prediction *p)
{
    int local = 0;
    int hosts = tti_topology_count(payload, -1, TTI_NODE_HOST);
    double algbw = predict_nvls_algbw(payload, stops, count, &local);
    if (algbw <= 0 || isinf(algbw))
        return TUTTI_OK;
    double efficiency = predict_nvlink_of(topology, stops[0]) > 450 * (1 + 1e-9)
                            ? predict_nvls_blackwell
                            : predict_nvls_hopper;
    predict_assume(p,
                   "NVLS: a GPU sends and gets 1 + 1/%d buffers, at %.0f%% of NVLink's payload "
                   "rate (NCCL's tuning)",
                   local, 100 * efficiency);
    algbw *= efficiency;
    if (hosts > 1) { /* trees between the hosts, at the same time */
        struct tti_trees *trees = NULL;
        int *nodes = tti_calloc((size_t)hosts, sizeof *nodes);
        int found = 0;
        if (!nodes)
            return TUTTI_ERR_MEMORY;
        for (int i = 0; i < (int)payload->node_count; i++)
            if (payload->nodes[i].kind == TTI_NODE_HOST)
                nodes[found++] = i;
        enum tutti_result result =
            tti_trees_search(payload, nodes, hosts, TTI_TREES_ALL_REDUCE, -1, &trees);
        free(nodes);
        TTI_TRY(result);
        algbw = fmin(algbw, trees->count * trees->gbs);
        tti_trees_destroy(trees);
        predict_assume(p, "NVLS over hosts: trees between the hosts while the switches work, each "
                          "part of the buffer on one NIC");
    }
    p->nvls = algbw * 2 * (count - 1) / count;
    return TUTTI_OK;
}

/* ---- All of it ------------------------------------------------------------------------------- */

static enum tutti_result predict_searches(const struct tti_topology *topology,
                                          const struct tti_topology *payload, const int *stops,
                                          int count, struct tti_busbw_prediction *p)
{
    struct tti_rings *rings = NULL;
    struct tti_trees *trees = NULL;
    TTI_TRY(tti_rings_search(payload, stops, count, &rings));
    p->ring = rings->count * rings->gbs;
    tti_rings_destroy(rings);
    TTI_TRY(tti_trees_search(payload, stops, count, TTI_TREES_ALL_REDUCE, -1, &trees));
    p->tree = trees->count * trees->gbs * 2 * (count - 1) / count;
    tti_trees_destroy(trees);
    return predict_nvls(topology, payload, stops, count, p);
}

enum tutti_result tti_predict_all_reduce(const struct tti_topology *topology,
                                         struct tti_busbw_prediction *prediction)
{
    struct tti_busbw_prediction made = {.algorithm = ""};
    struct tti_topology *payload = NULL;
    int *stops = NULL;
    TTI_TRY(tti_topology_stops(topology, &stops, &made.stops));
    enum tutti_result result = TUTTI_OK;
    if (made.stops < 2)
        result = TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                          "no bus bandwidth to predict: the machine has no two GPUs or hosts");
    if (result == TUTTI_OK)
        result = predict_payload(topology, &made, &payload);
    if (result == TUTTI_OK)
        result = predict_searches(topology, payload, stops, made.stops, &made);
    tti_topology_destroy(payload);
    free(stops);
    TTI_TRY(result);
    made.best = fmax(made.ring, fmax(made.tree, made.nvls));
    if (made.best > 0)
        made.algorithm = made.best == made.ring ? "ring" : made.best == made.nvls ? "nvls" : "tree";
    *prediction = made;
    return TUTTI_OK;
}
