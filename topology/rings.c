/* The search for rings (rings.h): a depth-first search with a budget, once for each bandwidth and
 * order of trying. A route between stops is the cheapest one with enough left on each link; it does
 * not pass through other GPUs. */
#include "topology/rings.h"

#include "base/memory.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SPEEDS = 64, STEPS_BACK = 2000, RANDOM_ORDERS = 6, MANY_STOPS = 64 };

/* What a link costs in a route: local before far, few before many. */
static const int ring_cost[TTI_LINK_KINDS] = {
    [TTI_LINK_PCI] = 4, [TTI_LINK_NVLINK] = 1, [TTI_LINK_NETWORK] = 64};

struct ring_edge {
    int from, to;
    enum tti_link_kind kind;
    double gbs, left; /* INFINITY: does not limit */
};

struct ring_search {
    const struct tti_topology *topology;
    const int *stops;
    int count;
    struct ring_edge *edges; /* sorted by `from` */
    int edge_count;
    int *first;    /* of each node; one more */
    int *distance; /* of each node from where ring_reach began */
    int *came_by;  /* the edge by which it was reached */
    int *queue;
    bool *queued, *is_stop, *has_nvlink;
    /* Of stops: their host, counted in order, and their place there; of hosts: their stops. */
    int *host, *local, *local_count;
    int hosts;
    /* The ring being made. */
    double gbs;
    bool detours; /* PCI between GPUs with NVLink: only where there is no other way */
    int ring, order, budget;
    int *visit; /* stops by place */
    bool *visited;
    int *candidates;  /* [place][count] */
    unsigned *keys;   /* of stops, while candidates are sorted */
    int *path;        /* edges of all hops, one after the other */
    int *path_end;    /* by place */
    size_t path_room; /* of `path` */
};

/* ---- The graph of routes --------------------------------------------------------------------- */

/* Between a node and its parent there is a way unless a PCI link describes it. A switch of NVLink
 * or the network is reached by its links only. */
static bool ring_has_way_up(const struct tti_topology *topology, int node, const bool *has_pci)
{
    const struct tti_node *at = &topology->nodes[node];
    return at->parent >= 0 && !has_pci[node] && at->kind != TTI_NODE_SWITCH &&
           at->kind != TTI_NODE_CORE && at->kind != TTI_NODE_PU;
}

static void ring_add_both(struct ring_search *s, int a, int b, enum tti_link_kind kind, double gbs)
{
    double limit = gbs > 0 ? gbs : INFINITY;
    s->edges[s->edge_count++] = (struct ring_edge){a, b, kind, limit, limit};
    s->edges[s->edge_count++] = (struct ring_edge){b, a, kind, limit, limit};
}

static int ring_edge_order(const void *a, const void *b)
{
    const struct ring_edge *x = a;
    const struct ring_edge *y = b;
    if (x->from != y->from)
        return x->from < y->from ? -1 : 1;
    return (x->to > y->to) - (x->to < y->to);
}

static enum tutti_result ring_edges(struct ring_search *s)
{
    const struct tti_topology *topology = s->topology;
    size_t nodes = topology->node_count;
    bool *has_pci = tti_calloc(nodes, sizeof *has_pci);
    s->edges = tti_calloc(2 * (nodes + topology->link_count), sizeof *s->edges);
    s->first = tti_calloc(nodes + 1, sizeof *s->first);
    if (!has_pci || !s->edges || !s->first) {
        free(has_pci);
        return TUTTI_ERR_MEMORY;
    }
    for (size_t i = 0; i < topology->link_count; i++) {
        const struct tti_link *link = &topology->links[i];
        ring_add_both(s, link->from, link->to, link->kind, link->gbs);
        if (link->kind == TTI_LINK_PCI)
            has_pci[link->from] = true;
    }
    for (int i = 0; i < (int)nodes; i++)
        if (ring_has_way_up(topology, i, has_pci))
            ring_add_both(s, i, topology->nodes[i].parent, TTI_LINK_PCI, 0);
    free(has_pci);
    qsort(s->edges, (size_t)s->edge_count, sizeof *s->edges, ring_edge_order);
    for (int e = 0; e < s->edge_count; e++)
        s->first[s->edges[e].from + 1]++;
    for (size_t i = 0; i < nodes; i++)
        s->first[i + 1] += s->first[i];
    return TUTTI_OK;
}

static enum tutti_result ring_allocate(struct ring_search *s)
{
    size_t nodes = s->topology->node_count;
    size_t count = (size_t)s->count;
    s->path_room = (count + 1) * nodes;
    s->distance = tti_calloc(nodes, sizeof *s->distance);
    s->came_by = tti_calloc(nodes, sizeof *s->came_by);
    s->queue = tti_calloc(nodes, sizeof *s->queue);
    s->queued = tti_calloc(nodes, sizeof *s->queued);
    s->is_stop = tti_calloc(nodes, sizeof *s->is_stop);
    s->has_nvlink = tti_calloc(nodes, sizeof *s->has_nvlink);
    s->host = tti_calloc(count, sizeof *s->host);
    s->local = tti_calloc(count, sizeof *s->local);
    s->local_count = tti_calloc(count, sizeof *s->local_count);
    s->visit = tti_calloc(count + 1, sizeof *s->visit);
    s->visited = tti_calloc(count, sizeof *s->visited);
    s->candidates = tti_calloc(count * count, sizeof *s->candidates);
    s->keys = tti_calloc(count, sizeof *s->keys);
    s->path = tti_calloc(s->path_room, sizeof *s->path);
    s->path_end = tti_calloc(count + 1, sizeof *s->path_end);
    bool all = s->distance && s->came_by && s->queue && s->queued && s->is_stop && s->has_nvlink &&
               s->host && s->local && s->local_count && s->visit && s->visited && s->candidates &&
               s->keys && s->path && s->path_end;
    return all ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static void ring_release(struct ring_search *s)
{
    void *owned[] = {s->edges,   s->first,      s->distance, s->came_by, s->queue,       s->queued,
                     s->is_stop, s->has_nvlink, s->host,     s->local,   s->local_count, s->visit,
                     s->visited, s->candidates, s->keys,     s->path,    s->path_end};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
}

/* What is known of the stops before the search. */
static void ring_look_at_stops(struct ring_search *s)
{
    for (int i = 0; i < s->count; i++) {
        int host = tti_topology_above(s->topology, s->stops[i], TTI_NODE_HOST);
        int same = 0;
        while (same < i && tti_topology_above(s->topology, s->stops[same], TTI_NODE_HOST) != host)
            same++;
        s->host[i] = same < i ? s->host[same] : s->hosts++;
        s->local[i] = s->local_count[s->host[i]]++;
        s->is_stop[s->stops[i]] = true;
    }
    for (int e = 0; e < s->edge_count; e++)
        if (s->edges[e].kind == TTI_LINK_NVLINK)
            s->has_nvlink[s->edges[e].from] = true;
}

/* ---- Routes ---------------------------------------------------------------------------------- */

/* PCI between GPUs of a host that have NVLink: slower, and where its bandwidth is unknown it would
 * seem to carry any number of rings. On the way to a NIC it is not in question. */
static bool ring_is_detour(const struct ring_search *s, const struct ring_edge *edge, int distance)
{
    return !s->detours && edge->kind == TTI_LINK_PCI && s->has_nvlink[edge->to] &&
           s->is_stop[edge->to] && distance < ring_cost[TTI_LINK_NETWORK];
}

/* Cheapest routes from a node to all others over what has room for the ring. Costs are small and
 * graphs are nearly trees: a queue of nodes to look at again will do. */
static void ring_reach(struct ring_search *s, int source)
{
    int nodes = (int)s->topology->node_count;
    int head = 0;
    int waiting = 1;
    for (int i = 0; i < nodes; i++)
        s->distance[i] = INT_MAX;
    s->distance[source] = 0;
    s->queue[0] = source;
    while (waiting) {
        int at = s->queue[head];
        head = (head + 1) % nodes;
        waiting--;
        s->queued[at] = false;
        if (at != source && (s->is_stop[at] || s->topology->nodes[at].kind == TTI_NODE_GPU))
            continue;
        for (int e = s->first[at]; e < s->first[at + 1]; e++) {
            const struct ring_edge *edge = &s->edges[e];
            int distance = s->distance[at] + ring_cost[edge->kind];
            if (edge->left < s->gbs || distance >= s->distance[edge->to] ||
                ring_is_detour(s, edge, distance))
                continue;
            s->distance[edge->to] = distance;
            s->came_by[edge->to] = e;
            if (!s->queued[edge->to]) {
                s->queued[edge->to] = true;
                s->queue[(head + waiting++) % nodes] = edge->to;
            }
        }
    }
}

/* Takes the route to `to`, as ring_reach found it, for the hop from this place. */
static void ring_take(struct ring_search *s, int place, int source, int to)
{
    int end = place ? s->path_end[place - 1] : 0;
    while (to != source) {
        struct ring_edge *edge = &s->edges[s->came_by[to]];
        edge->left -= s->gbs;
        s->path[end++] = s->came_by[to];
        to = edge->from;
    }
    s->path_end[place] = end;
}

static void ring_give_back(struct ring_search *s, int place)
{
    for (int i = place ? s->path_end[place - 1] : 0; i < s->path_end[place]; i++)
        s->edges[s->path[i]].left += s->gbs;
}

/* ---- One ring -------------------------------------------------------------------------------- */

/* In which order stops that are equally near are tried; always those of the next host first. Order
 * 0 goes round within a host, from another place for each ring, so that rings enter and leave it by
 * different devices; order 1 goes in steps as wide as the ring's number; the others are random. */
static unsigned ring_key(const struct ring_search *s, int from, int stop)
{
    unsigned local_count = (unsigned)s->local_count[s->host[stop]];
    unsigned local = (unsigned)s->local[stop];
    unsigned ring = (unsigned)s->ring % local_count;
    unsigned host = (unsigned)(s->host[stop] - s->host[from] + s->hosts) % (unsigned)s->hosts;
    unsigned key = (local + local_count - ring) % local_count;
    if (s->order == 1)
        key = (local + 2 * local_count - (unsigned)s->local[from] % local_count - 1 - ring) %
              local_count;
    if (s->order > 1) {
        key = (unsigned)s->order * 0x9e3779b9u ^ (unsigned)s->ring * 0x85ebca6bu ^
              (unsigned)from * 0xc2b2ae35u ^ (unsigned)stop * 0x27d4eb2fu;
        key = (key ^ key >> 15) * 0x2c1b3c6du;
        key = (key ^ key >> 12) % TTI_RING_STOPS;
    }
    return host * TTI_RING_STOPS + key;
}

/* The stops that can come next, best first. */
static int ring_candidates(struct ring_search *s, int from, int *list)
{
    int found = 0;
    for (int i = 0; i < s->count; i++) {
        int distance = s->distance[s->stops[i]];
        if (s->visited[i] || distance == INT_MAX)
            continue;
        s->keys[i] = ring_key(s, from, i);
        int at = found++;
        for (; at > 0; at--) {
            int before = s->distance[s->stops[list[at - 1]]];
            if (before < distance || (before == distance && s->keys[list[at - 1]] <= s->keys[i]))
                break;
            list[at] = list[at - 1];
        }
        list[at] = i;
    }
    return found;
}

/* The ring from its place `place` (whose stop is set) to its end; takes the routes on success. */
static bool ring_extend(struct ring_search *s, int place)
{
    int from = s->visit[place];
    int *list = &s->candidates[(size_t)place * (size_t)s->count];
    if (s->budget-- <= 0)
        return false;
    ring_reach(s, s->stops[from]);
    if (place == s->count - 1) {
        int home = s->stops[s->visit[0]];
        if (s->distance[home] == INT_MAX)
            return false;
        ring_take(s, place, s->stops[from], home);
        return true;
    }
    int found = ring_candidates(s, from, list);
    for (int i = 0; i < found && s->budget > 0; i++) {
        if (i > 0) /* what was found before is overwritten */
            ring_reach(s, s->stops[from]);
        ring_take(s, place, s->stops[from], s->stops[list[i]]);
        s->visit[place + 1] = list[i];
        s->visited[list[i]] = true;
        if (ring_extend(s, place + 1))
            return true;
        s->visited[list[i]] = false;
        ring_give_back(s, place);
    }
    return false;
}

/* What the hop from this place goes over, from the edges of its route. */
static struct tti_ring_hop ring_hop(const struct ring_search *s, int place)
{
    struct tti_ring_hop hop = {.kind = TTI_LINK_NVLINK, .nic_out = -1, .nic_in = -1};
    hop.from = s->stops[s->visit[place]];
    hop.to = s->stops[s->visit[(place + 1) % s->count]];
    for (int i = place ? s->path_end[place - 1] : 0; i < s->path_end[place]; i++) {
        const struct ring_edge *edge = &s->edges[s->path[i]];
        if (edge->kind == TTI_LINK_NETWORK)
            hop.kind = TTI_LINK_NETWORK;
        else if (edge->kind == TTI_LINK_PCI && hop.kind == TTI_LINK_NVLINK)
            hop.kind = TTI_LINK_PCI;
        if (edge->kind != TTI_LINK_NETWORK)
            continue;
        /* The route is kept from its end to its start. */
        if (s->topology->nodes[edge->to].kind == TTI_NODE_NIC && hop.nic_in < 0)
            hop.nic_in = edge->to;
        if (s->topology->nodes[edge->from].kind == TTI_NODE_NIC)
            hop.nic_out = edge->from;
    }
    return hop;
}

/* Whether a link of known bandwidth is on the way of the ring just made. */
static bool ring_is_limited(const struct ring_search *s)
{
    bool limited = false;
    for (int i = 0; i < s->path_end[s->count - 1]; i++)
        limited |= !isinf(s->edges[s->path[i]].gbs);
    return limited;
}

/* As many rings of this bandwidth as are found in this order; 1, and *unknown, for one that nothing
 * limits. */
static int ring_fill(struct ring_search *s, struct tti_ring_hop *hops, bool *unknown)
{
    *unknown = false;
    for (int e = 0; e < s->edge_count; e++)
        s->edges[e].left = s->edges[e].gbs * (1 + 1e-9);
    for (s->ring = 0; s->ring < TTI_RINGS; s->ring++) {
        memset(s->visited, 0, (size_t)s->count * sizeof *s->visited);
        s->visit[0] = 0;
        for (int i = 0; i < s->count; i++) /* on the first host, each in turn */
            if (s->host[i] == 0 && s->local[i] == s->ring % s->local_count[0])
                s->visit[0] = i;
        s->visited[s->visit[0]] = true;
        s->budget = s->count + STEPS_BACK;
        if (!ring_extend(s, 0))
            break;
        for (int place = 0; place < s->count; place++)
            hops[s->ring * s->count + place] = ring_hop(s, place);
        *unknown = !ring_is_limited(s);
        if (*unknown || s->gbs <= 0)
            return 1;
    }
    return s->ring;
}

/* ---- All rings ------------------------------------------------------------------------------- */

static int ring_speed_order(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x < y) - (x > y);
}

/* Bandwidths to try, highest first: those of links, whole and in parts. */
static int ring_speeds(const struct ring_search *s, double *speeds)
{
    static const int parts[] = {1, 2, 3, 4, 6, 8};
    double kinds[MOST_SPEEDS / 6];
    int found = 0;
    int count = 0;
    for (int e = 0; e < s->edge_count && found < MOST_SPEEDS / 6; e++) {
        int at = 0;
        while (at < found && kinds[at] != s->edges[e].gbs)
            at++;
        if (at == found && !isinf(s->edges[e].gbs))
            kinds[found++] = s->edges[e].gbs;
    }
    for (int k = 0; k < found; k++)
        for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++)
            speeds[count++] = kinds[k] / parts[p];
    qsort(speeds, (size_t)count, sizeof *speeds, ring_speed_order);
    return count;
}

/* No sum is above what any stop can send. */
static double ring_bound(const struct ring_search *s)
{
    double bound = INFINITY;
    for (int i = 0; i < s->count; i++) {
        double out = 0;
        for (int e = s->first[s->stops[i]]; e < s->first[s->stops[i] + 1]; e++)
            out += s->edges[e].gbs;
        bound = fmin(bound, out);
    }
    return bound;
}

static void ring_search_all(struct ring_search *s, struct tti_rings *best,
                            struct tti_ring_hop *tried)
{
    double speeds[MOST_SPEEDS];
    int count = ring_speeds(s, speeds);
    double bound = ring_bound(s);
    bool unknown = false;
    int orders = s->count > MANY_STOPS ? 1 : 2 + RANDOM_ORDERS;
    for (int k = 0; k < count; k++)
        for (s->order = 0; s->order < orders; s->order++) {
            double sum = best->count * best->gbs;
            if (sum >= bound * (1 - 1e-9))
                return;
            s->gbs = speeds[k];
            if (s->gbs * TTI_RINGS <= sum)
                return; /* the rest are slower still */
            int found = ring_fill(s, tried, &unknown);
            if (unknown) {
                best->count = 1;
                best->gbs = 0;
                memcpy(best->hops, tried, (size_t)s->count * sizeof *tried);
                return;
            }
            if (found == 0)
                break;
            if (found * s->gbs <= sum * (1 + 1e-9))
                continue;
            best->count = found;
            best->gbs = s->gbs;
            memcpy(best->hops, tried, (size_t)found * (size_t)s->count * sizeof *tried);
        }
    if (best->count == 0) { /* there is no link of known bandwidth; or no way */
        s->order = 0;
        s->gbs = 0;
        best->count = ring_fill(s, best->hops, &unknown);
    }
}

static enum tutti_result ring_check(const struct ring_search *s)
{
    if (s->count < 2 || s->count > TTI_RING_STOPS)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "a ring has 2 to %d stops; there are %d",
                        TTI_RING_STOPS, s->count);
    for (int i = 0; i < s->count; i++) {
        int stop = s->stops[i];
        if (stop < 0 || stop >= (int)s->topology->node_count)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "stop %d of a ring is node %d of %zu", i, stop,
                            s->topology->node_count);
        for (int k = 0; k < i; k++)
            if (s->stops[k] == stop)
                return TTI_FAIL(TUTTI_ERR_ARGUMENT, "node %d is twice in a ring", stop);
    }
    return TUTTI_OK;
}

enum tutti_result tti_rings_search(const struct tti_topology *topology, const int *stops, int count,
                                   struct tti_rings **rings)
{
    struct ring_search s = {.topology = topology, .stops = stops, .count = count};
    TTI_TRY(ring_check(&s));
    size_t room = (size_t)TTI_RINGS * (size_t)count;
    struct tti_rings *best = tti_calloc(1, sizeof *best);
    struct tti_ring_hop *tried = tti_calloc(room, sizeof *tried);
    enum tutti_result result = best && tried ? TUTTI_OK : TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK && !(best->hops = tti_calloc(room, sizeof *best->hops)))
        result = TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK)
        result = ring_edges(&s);
    if (result == TUTTI_OK)
        result = ring_allocate(&s);
    if (result == TUTTI_OK) {
        ring_look_at_stops(&s);
        best->stops = count;
        ring_search_all(&s, best, tried);
        s.detours = best->count == 0;
        if (s.detours)
            ring_search_all(&s, best, tried);
        if (best->count == 0)
            result = TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                              "no ring over %d stops: some have no way to the others", count);
    }
    ring_release(&s);
    free(tried);
    if (result != TUTTI_OK) {
        tti_rings_destroy(best);
        return result;
    }
    *rings = best;
    return TUTTI_OK;
}

void tti_rings_destroy(struct tti_rings *rings)
{
    if (!rings)
        return;
    free(rings->hops);
    free(rings);
}
