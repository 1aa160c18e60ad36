/* Routes over the graph (routes.h). Costs are small and graphs are nearly trees, so that a queue of
 * nodes to look at again serves as a shortest-path search. */
#include "topology/routes.h"

#include "base/memory.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a link costs in a route: local before far, few before many. */
static const int route_cost[TTI_LINK_WAYS] = {
    [TTI_LINK_PCI] = 4, [TTI_LINK_NVLINK] = 1, [TTI_LINK_NETWORK] = TTI_ROUTE_FAR};

/* ---- Edges ----------------------------------------------------------------------------------- */

/* Between a node and its parent there is a way unless a PCI link describes it. A switch of NVLink
 * or the network is reached by its links only. */
static bool route_has_way_up(const struct tti_topology *topology, int node, const bool *has_pci)
{
    const struct tti_node *at = &topology->nodes[node];
    return at->parent >= 0 && !has_pci[node] && at->kind != TTI_NODE_SWITCH &&
           at->kind != TTI_NODE_CORE && at->kind != TTI_NODE_PU;
}

static void route_add_both(struct tti_routes *r, int a, int b, enum tti_link_kind kind, double gbs)
{
    double limit = gbs > 0 ? gbs : INFINITY;
    r->edges[r->edge_count++] = (struct tti_route_edge){a, b, kind, limit, limit};
    r->edges[r->edge_count++] = (struct tti_route_edge){b, a, kind, limit, limit};
}

static int route_edge_order(const void *a, const void *b)
{
    const struct tti_route_edge *x = a;
    const struct tti_route_edge *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return (x->gbs > y->gbs) - (x->gbs < y->gbs);
}

/* Edges between the same two nodes stand in the same order in both directions. */
static void route_find_reverse(struct tti_routes *r)
{
    for (int e = 0; e < r->edge_count; e++) {
        const struct tti_route_edge *edge = &r->edges[e];
        int twin = 0;
        while (e - twin > 0 && r->edges[e - twin - 1].from == edge->from &&
               r->edges[e - twin - 1].to == edge->to)
            twin++;
        int back = r->first[edge->to];
        while (r->edges[back].to != edge->from)
            back++;
        r->reverse[e] = back + twin;
    }
}

static enum tutti_result route_edges(struct tti_routes *r)
{
    const struct tti_topology *topology = r->topology;
    size_t nodes = topology->node_count;
    size_t room = 2 * (nodes + topology->link_count);
    bool *has_pci = tti_calloc(nodes, sizeof *has_pci);
    r->edges = tti_calloc(room, sizeof *r->edges);
    r->reverse = tti_calloc(room, sizeof *r->reverse);
    r->first = tti_calloc(nodes + 1, sizeof *r->first);
    if (!has_pci || !r->edges || !r->reverse || !r->first) {
        free(has_pci);
        return TUTTI_ERR_MEMORY;
    }
    for (size_t i = 0; i < topology->link_count; i++) {
        const struct tti_graph_link *link = &topology->links[i];
        if (link->kind >= TTI_LINK_WAYS)
            continue;
        route_add_both(r, link->from, link->to, link->kind, link->gbs);
        if (link->kind == TTI_LINK_PCI)
            has_pci[link->from] = true;
    }
    for (int i = 0; i < (int)nodes; i++)
        if (route_has_way_up(topology, i, has_pci))
            route_add_both(r, i, topology->nodes[i].parent, TTI_LINK_PCI, 0);
    free(has_pci);
    qsort(r->edges, (size_t)r->edge_count, sizeof *r->edges, route_edge_order);
    for (int e = 0; e < r->edge_count; e++)
        r->first[r->edges[e].from + 1]++;
    for (size_t i = 0; i < nodes; i++)
        r->first[i + 1] += r->first[i];
    route_find_reverse(r);
    return TUTTI_OK;
}

/* ---- Create and clear ------------------------------------------------------------------------ */

static enum tutti_result route_check(const struct tti_routes *r, const char *what)
{
    if (r->count < 2 || r->count > TTI_ROUTE_STOPS)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "%s leads over 2 to %d GPUs, or hosts where none has a GPU; there %s %d",
                        what, TTI_ROUTE_STOPS, r->count == 1 ? "is" : "are", r->count);
    for (int i = 0; i < r->count; i++) {
        int stop = r->stops[i];
        if (stop < 0 || stop >= (int)r->topology->node_count)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "stop %d of %s is node %d of %zu", i, what, stop,
                            r->topology->node_count);
        for (int k = 0; k < i; k++)
            if (r->stops[k] == stop)
                return TTI_FAIL(TUTTI_ERR_ARGUMENT, "node %d is twice in %s", stop, what);
    }
    return TUTTI_OK;
}

static enum tutti_result route_allocate(struct tti_routes *r)
{
    size_t nodes = r->topology->node_count;
    size_t count = (size_t)r->count;
    r->distance = tti_calloc(nodes, sizeof *r->distance);
    r->came_by = tti_calloc(nodes, sizeof *r->came_by);
    r->queue = tti_calloc(nodes, sizeof *r->queue);
    r->rail = tti_calloc(nodes, sizeof *r->rail);
    r->queued = tti_calloc(nodes, sizeof *r->queued);
    r->is_stop = tti_calloc(nodes, sizeof *r->is_stop);
    r->has_nvlink = tti_calloc(nodes, sizeof *r->has_nvlink);
    r->host = tti_calloc(count, sizeof *r->host);
    r->local = tti_calloc(count, sizeof *r->local);
    r->local_count = tti_calloc(count, sizeof *r->local_count);
    bool all = r->distance && r->came_by && r->queue && r->rail && r->queued && r->is_stop &&
               r->has_nvlink && r->host && r->local && r->local_count;
    return all ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static void route_look_at_stops(struct tti_routes *r)
{
    for (int i = 0; i < r->count; i++) {
        int host = tti_topology_above(r->topology, r->stops[i], TTI_NODE_HOST);
        int same = 0;
        while (same < i && tti_topology_above(r->topology, r->stops[same], TTI_NODE_HOST) != host)
            same++;
        r->host[i] = same < i ? r->host[same] : r->hosts++;
        r->local[i] = r->local_count[r->host[i]]++;
        r->is_stop[r->stops[i]] = true;
    }
    int host = -1;
    int rail = 0;
    for (int i = 0; i < (int)r->topology->node_count; i++) {
        int above = tti_topology_above(r->topology, i, TTI_NODE_HOST);
        rail = above == host ? rail : 0;
        host = above;
        r->rail[i] = r->topology->nodes[i].kind == TTI_NODE_NIC ? rail++ : -1;
    }
    for (int e = 0; e < r->edge_count; e++)
        if (r->edges[e].kind == TTI_LINK_NVLINK)
            r->has_nvlink[r->edges[e].from] = true;
}

enum tutti_result tti_routes_init(struct tti_routes *routes, const struct tti_topology *topology,
                                  const int *stops, int count, const char *what)
{
    *routes = (struct tti_routes){.topology = topology, .stops = stops, .count = count};
    TTI_TRY(route_check(routes, what));
    enum tutti_result result = route_edges(routes);
    if (result == TUTTI_OK)
        result = route_allocate(routes);
    if (result == TUTTI_OK)
        route_look_at_stops(routes);
    else
        tti_routes_clear(routes);
    return result;
}

void tti_routes_clear(struct tti_routes *routes)
{
    void *owned[] = {routes->edges,      routes->reverse,    routes->first, routes->distance,
                     routes->came_by,    routes->queue,      routes->rail,  routes->queued,
                     routes->is_stop,    routes->has_nvlink, routes->host,  routes->local,
                     routes->local_count};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
    *routes = (struct tti_routes){0};
}

void tti_routes_reset(struct tti_routes *routes)
{
    /* A hair more, so that parts of a bandwidth add up to it. */
    for (int e = 0; e < routes->edge_count; e++)
        routes->edges[e].left = routes->edges[e].gbs * (1 + 1e-9);
}

/* ---- Routes ---------------------------------------------------------------------------------- */

/* PCI between GPUs of a host that have NVLink: slower, and where its bandwidth is unknown it would
 * seem to carry any number of rings. On the way to a NIC it is not in question. */
static bool route_is_detour(const struct tti_routes *r, const struct tti_route_edge *edge,
                            int distance)
{
    return !r->detours && edge->kind == TTI_LINK_PCI && r->has_nvlink[edge->to] &&
           r->is_stop[edge->to] && distance < TTI_ROUTE_FAR;
}

/* 1 for coming into a host by another NIC than the one by which the last host was left. */
static int route_changes_rail(const struct tti_routes *r, const struct tti_route_edge *edge)
{
    if (edge->kind != TTI_LINK_NETWORK || r->rail[edge->to] < 0 || r->rail[edge->from] >= 0)
        return 0;
    int left_by = r->rail[r->edges[r->came_by[edge->from]].from];
    return left_by >= 0 && left_by != r->rail[edge->to];
}

void tti_routes_reach(struct tti_routes *routes, int source, int most)
{
    int nodes = (int)routes->topology->node_count;
    int head = 0;
    int waiting = 1;
    for (int i = 0; i < nodes; i++)
        routes->distance[i] = INT_MAX;
    routes->distance[source] = 0;
    routes->queue[0] = source;
    while (waiting) {
        int at = routes->queue[head];
        head = head + 1 < nodes ? head + 1 : 0;
        waiting--;
        routes->queued[at] = false;
        if (at != source &&
            (routes->is_stop[at] || routes->topology->nodes[at].kind == TTI_NODE_GPU))
            continue;
        for (int e = routes->first[at]; e < routes->first[at + 1]; e++) {
            const struct tti_route_edge *edge = &routes->edges[e];
            int distance =
                routes->distance[at] + route_cost[edge->kind] + route_changes_rail(routes, edge);
            if (edge->left < routes->gbs || distance >= routes->distance[edge->to] ||
                distance > most || route_is_detour(routes, edge, distance))
                continue;
            routes->distance[edge->to] = distance;
            routes->came_by[edge->to] = e;
            if (!routes->queued[edge->to]) {
                routes->queued[edge->to] = true;
                const int end = head + waiting++;
                routes->queue[end < nodes ? end : end - nodes] = edge->to;
            }
        }
    }
}

struct tti_hop tti_routes_hop(const struct tti_routes *routes, int from, int to, const int *path,
                              int count)
{
    struct tti_hop hop = {
        .kind = TTI_LINK_NVLINK, .from = from, .to = to, .nic_out = -1, .nic_in = -1};
    for (int i = 0; i < count; i++) {
        const struct tti_route_edge *edge = &routes->edges[path[i]];
        if (edge->kind == TTI_LINK_NETWORK)
            hop.kind = TTI_LINK_NETWORK;
        else if (edge->kind == TTI_LINK_PCI && hop.kind == TTI_LINK_NVLINK)
            hop.kind = TTI_LINK_PCI;
        if (edge->kind != TTI_LINK_NETWORK)
            continue;
        if (routes->topology->nodes[edge->to].kind == TTI_NODE_NIC && hop.nic_in < 0)
            hop.nic_in = edge->to;
        if (routes->topology->nodes[edge->from].kind == TTI_NODE_NIC)
            hop.nic_out = edge->from;
    }
    return hop;
}

/* ---- Numbers --------------------------------------------------------------------------------- */

static int route_speed_order(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x < y) - (x > y);
}

int tti_routes_speeds(const struct tti_routes *routes, int own, double *speeds)
{
    enum { PARTS = 6, MOST_KINDS = TTI_ROUTE_SPEEDS / (PARTS + 2) };
    static const int parts[PARTS] = {1, 2, 3, 4, 6, 8};
    double kinds[MOST_KINDS];
    int found = 0;
    int count = 0;
    for (int e = 0; e < routes->edge_count && found < MOST_KINDS; e++) {
        int at = 0;
        while (at < found && kinds[at] != routes->edges[e].gbs)
            at++;
        if (at == found && !isinf(routes->edges[e].gbs))
            kinds[found++] = routes->edges[e].gbs;
    }
    for (int k = 0; k < found; k++) {
        for (int p = 0; p < PARTS; p++)
            speeds[count++] = kinds[k] / parts[p];
        if (own > 1) {
            speeds[count++] = kinds[k] / own;
            speeds[count++] = kinds[k] / (2.0 * own);
        }
    }
    qsort(speeds, (size_t)count, sizeof *speeds, route_speed_order);
    return count;
}

static double route_out(const struct tti_routes *r, int node, bool nvlink_only)
{
    double out = 0;
    for (int e = r->first[node]; e < r->first[node + 1]; e++)
        if (!nvlink_only || r->edges[e].kind == TTI_LINK_NVLINK)
            out += r->edges[e].gbs;
    return out;
}

double tti_routes_nvlink_out(const struct tti_routes *routes, int node)
{
    return route_out(routes, node, true);
}

double tti_routes_host_out(const struct tti_routes *routes, int host)
{
    int stop = 0;
    double out = 0;
    while (routes->host[stop] != host)
        stop++;
    int node = tti_topology_above(routes->topology, routes->stops[stop], TTI_NODE_HOST);
    int end = node < 0 ? 0 : tti_topology_end(routes->topology, node);
    for (int e = routes->first[node < 0 ? 0 : node]; e < routes->first[end]; e++)
        if (routes->edges[e].kind == TTI_LINK_NETWORK)
            out += routes->edges[e].gbs;
    return out;
}

struct tti_limit tti_routes_limit(const struct tti_routes *routes)
{
    struct tti_limit limit = {.gbs = INFINITY, .node = -1};
    for (int i = 0; i < routes->count; i++) {
        int stop = routes->stops[i];
        bool nvlink_only = routes->hosts == 1 && routes->has_nvlink[stop] && !routes->detours;
        double out = route_out(routes, stop, nvlink_only);
        if (out < limit.gbs)
            limit = (struct tti_limit){.gbs = out, .node = stop};
    }
    for (int i = 0; i < routes->count && routes->hosts > 1; i++) {
        double out = tti_routes_host_out(routes, routes->host[i]);
        if (out < limit.gbs)
            limit = (struct tti_limit){
                .gbs = out,
                .node = tti_topology_above(routes->topology, routes->stops[i], TTI_NODE_HOST)};
    }
    return limit;
}

unsigned tti_routes_mix(unsigned a, unsigned b, unsigned c, unsigned d)
{
    unsigned key = a * 0x9e3779b9u ^ b * 0x85ebca6bu ^ c * 0xc2b2ae35u ^ d * 0x27d4eb2fu;
    key = (key ^ key >> 15) * 0x2c1b3c6du;
    return key ^ key >> 12;
}
