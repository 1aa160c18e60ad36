/* The search for trees (trees.h): for each bandwidth that could be the bottleneck, shape over hosts
 * and order of trying, trees are taken one by one while there is room. A tree grows host by host,
 * and within a host stop by stop, over the cheapest route that is left (routes.h). */
#include "topology/trees.h"

#include "base/memory.h"
#include "topology/host_shapes.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { FEW_STOPS = 16, MANY_STOPS = 64 };
static const double WORTH_MORE = 0.02; /* the gain that is worth more trees */

struct tree_search {
    struct tti_routes r;
    enum tti_tree_use use;
    int root; /* a stop, or -1 */
    int *ranked;
    /* The tree being made. */
    enum tti_host_shape shape;
    int tree, order;
    int *host_order, *host_parent, *head; /* of hosts; head: the stop where the tree enters */
    bool *in;                             /* of stops */
    int *children, *grown; /* of stops; those of a host that are in, in the order they came */
    int grown_count;
    int *path; /* edges taken */
    int path_count;
    bool limited; /* an edge of known bandwidth is on the way */
    struct tti_hop *hops;
    int hop_count;
    int *depth; /* of nodes, while a depth is found */
};

/* ---- Taking routes --------------------------------------------------------------------------- */

/* The route to the stop `to` as tti_routes_reach found it; -1 as `from` for the root. */
static void tree_add(struct tree_search *s, int from, int to)
{
    int first = s->path_count;
    s->in[to] = true;
    s->grown[s->grown_count++] = to;
    if (from < 0) {
        s->hops[s->hop_count++] = (struct tti_hop){
            .kind = TTI_LINK_NVLINK, .from = -1, .to = s->r.stops[to], .nic_out = -1, .nic_in = -1};
        return;
    }
    s->children[from]++;
    for (int at = s->r.stops[to]; at != s->r.stops[from];) {
        int e = s->r.came_by[at];
        s->r.edges[e].left -= s->r.gbs;
        if (s->use == TTI_TREES_ALL_REDUCE)
            s->r.edges[s->r.reverse[e]].left -= s->r.gbs;
        s->limited |= !isinf(s->r.edges[e].gbs);
        s->path[s->path_count++] = e;
        at = s->r.edges[e].from;
    }
    s->hops[s->hop_count++] = tti_routes_hop(&s->r, s->r.stops[from], s->r.stops[to],
                                             &s->path[first], s->path_count - first);
}

static void tree_give_back(struct tree_search *s)
{
    for (int i = 0; i < s->path_count; i++) {
        s->r.edges[s->path[i]].left += s->r.gbs;
        if (s->use == TTI_TREES_ALL_REDUCE)
            s->r.edges[s->r.reverse[s->path[i]]].left += s->r.gbs;
    }
}

/* ---- One tree -------------------------------------------------------------------------------- */

/* By how many places the tree is turned within hosts: the two of a pair share their devices. */
static int tree_turn(const struct tree_search *s)
{
    return s->shape == TTI_SHAPE_PAIR && s->r.hosts > 1 ? s->tree / 2 : s->tree;
}

/* Among stops that are equally near the lowest key is taken: round from another place in each tree,
 * or at random. */
static unsigned tree_key(const struct tree_search *s, int stop)
{
    int count = s->r.local_count[s->r.host[stop]];
    if (s->order > 1)
        return tti_routes_mix((unsigned)s->order, (unsigned)s->tree, (unsigned)s->grown_count,
                              (unsigned)stop);
    return (unsigned)(s->r.local[stop] + count - tree_turn(s) % count);
}

static unsigned tree_turned(const struct tree_search *s, int stop)
{
    unsigned count = (unsigned)s->r.local_count[s->r.host[stop]];
    return s->order > 1 ? tree_key(s, stop) : tree_key(s, stop) % count;
}

/* The nearest stop of the host that is not in, after tti_routes_reach; -1 if there is none. */
static int tree_nearest(const struct tree_search *s, int host)
{
    int best = -1;
    for (int i = 0; i < s->r.count; i++) {
        if (s->r.host[i] != host || s->in[i] || s->r.distance[s->r.stops[i]] == INT_MAX)
            continue;
        int distance = s->r.distance[s->r.stops[i]];
        int before = best < 0 ? INT_MAX : s->r.distance[s->r.stops[best]];
        if (best < 0 || distance < before ||
            (distance == before && tree_turned(s, i) < tree_turned(s, best)))
            best = i;
    }
    return best;
}

/* From the host above into this one: from the stop where the tree came in there if that is as near
 * as any, else from another. With many stops the first way that is found will do. */
static bool tree_enter(struct tree_search *s, int host)
{
    int above = s->host_parent[host];
    int from = -1;
    int nearest = INT_MAX;
    for (int k = -1; k < s->r.count; k++) {
        int stop = k < 0 ? s->head[above] : k;
        if (s->r.host[stop] != above || (k >= 0 && stop == s->head[above]))
            continue;
        tti_routes_reach(&s->r, s->r.stops[stop], INT_MAX);
        int to = tree_nearest(s, host);
        if (to < 0 || s->r.distance[s->r.stops[to]] >= nearest)
            continue;
        from = stop;
        nearest = s->r.distance[s->r.stops[to]];
        if (s->r.count > MANY_STOPS)
            break;
    }
    if (from < 0)
        return false;
    tti_routes_reach(&s->r, s->r.stops[from], INT_MAX);
    int to = tree_nearest(s, host);
    s->head[host] = to;
    s->grown_count = 0;
    tree_add(s, from, to);
    return true;
}

/* One more stop of the host. In even orders the newest one goes on where it can, which makes
 * chains; else the oldest one with fewer than two children. */
static bool tree_grow(struct tree_search *s, int host)
{
    bool chain = s->order % 2 == 0;
    for (int most = chain ? 1 : 2; most <= s->r.count; most *= 2)
        for (int k = 0; k < s->grown_count; k++) {
            int from = s->grown[chain ? s->grown_count - 1 - k : k];
            int inside = s->children[from];
            if (inside >= most)
                continue;
            tti_routes_reach(&s->r, s->r.stops[from], TTI_ROUTE_FAR - 1);
            int to = tree_nearest(s, host);
            if (to < 0)
                continue;
            tree_add(s, from, to);
            return true;
        }
    return false;
}

static bool tree_build(struct tree_search *s, struct tti_hop *hops)
{
    int root_host = s->root < 0 ? -1 : s->r.host[s->root];
    memset(s->in, 0, (size_t)s->r.count * sizeof *s->in);
    memset(s->children, 0, (size_t)s->r.count * sizeof *s->children);
    s->hops = hops;
    s->hop_count = s->path_count = s->grown_count = 0;
    s->limited = false;
    tti_host_shape(s->shape, s->tree, s->r.hosts, root_host, s->ranked, s->host_order,
                   s->host_parent);
    for (int h = 0; h < s->r.hosts; h++) {
        int host = s->host_order[h];
        int turn = tree_turn(s) % s->r.local_count[host];
        int first = s->root;
        for (int i = 0; h == 0 && first < 0; i++)
            if (s->r.host[i] == host && s->r.local[i] == turn)
                first = i;
        if (h == 0) {
            s->head[host] = first;
            tree_add(s, -1, first);
        } else if (!tree_enter(s, host)) {
            return false;
        }
        /* The children that a stop has on other hosts do not count within its own. */
        for (int i = 1; i < s->r.local_count[host]; i++)
            if (!tree_grow(s, host))
                return false;
    }
    return true;
}

/* As many trees of this bandwidth as there is room for; 1, and *unknown, for one that nothing
 * limits. */
static int tree_fill(struct tree_search *s, struct tti_hop *hops, bool *unknown)
{
    *unknown = false;
    tti_routes_reset(&s->r);
    for (s->tree = 0; s->tree < TTI_TREES; s->tree++) {
        if (!tree_build(s, &hops[s->tree * s->r.count])) {
            tree_give_back(s);
            break;
        }
        *unknown = !s->limited;
        if (*unknown || s->r.gbs <= 0)
            return 1;
    }
    return s->tree;
}

/* ---- All trees ------------------------------------------------------------------------------- */

/* Hosts by what their NICs carry, the most first, so that slow ones become leaves. */
static void tree_rank_hosts(struct tree_search *s)
{
    for (int h = 0; h < s->r.hosts; h++) {
        double out = tti_routes_host_out(&s->r, h);
        int at = h;
        for (; at > 0 && tti_routes_host_out(&s->r, s->ranked[at - 1]) < out; at--)
            s->ranked[at] = s->ranked[at - 1];
        s->ranked[at] = h;
    }
}

/* The n - 1 hops of each tree, in one direction or two, share what all stops can send. The same
 * between hosts; and within each host, where its stops have NVLink and use nothing else. */
static struct tti_limit tree_limit(const struct tree_search *s)
{
    struct tti_limit limit = tti_routes_limit(&s->r);
    int ways = s->use == TTI_TREES_ALL_REDUCE ? 2 : 1;
    double hosts = 0;
    for (int h = 0; h < s->r.hosts; h++) {
        double inside = 0;
        int node = -1;
        for (int i = 0; i < s->r.count; i++) {
            if (s->r.host[i] != h)
                continue;
            inside += s->r.has_nvlink[s->r.stops[i]] ? tti_routes_nvlink_out(&s->r, s->r.stops[i])
                                                     : INFINITY;
            node = tti_topology_above(s->r.topology, s->r.stops[i], TTI_NODE_HOST);
        }
        inside /= ways * (s->r.local_count[h] - 1); /* of one alone: INFINITY */
        if (inside < limit.gbs)
            limit = (struct tti_limit){.gbs = inside, .node = node};
        hosts += tti_routes_host_out(&s->r, h);
    }
    hosts = s->r.hosts > 1 ? hosts / (ways * (s->r.hosts - 1)) : INFINITY;
    if (hosts < limit.gbs)
        limit = (struct tti_limit){.gbs = hosts, .node = -1};
    return limit;
}

static void tree_keep(struct tree_search *s, const struct tti_hop *tried, int count, double gbs,
                      struct tti_trees *best)
{
    best->count = count;
    best->gbs = gbs;
    memcpy(best->hops, tried, (size_t)count * (size_t)s->r.count * sizeof *tried);
}

/* Hops from the root of a tree to the stop that is the farthest; depth[] is of nodes. */
static int tree_depth(const struct tti_hop *hops, int count, int *depth)
{
    int deepest = 0;
    for (int k = 1; k < count; k++) {
        depth[hops[k].to] = depth[hops[k].from] + 1;
        deepest = depth[hops[k].to] > deepest ? depth[hops[k].to] : deepest;
    }
    return deepest;
}

/* More in all; or as much, and less deep, since each hop costs its latency, or fewer. */
static bool tree_is_better(struct tree_search *s, const struct tti_hop *tried, int found,
                           const struct tti_trees *best)
{
    double sum = best->count * best->gbs;
    double more = found > best->count ? 1 + WORTH_MORE : 1 + 1e-9;
    if (found == 0 || found * s->r.gbs < sum * (1 - 1e-9))
        return false;
    if (best->count == 0 || found * s->r.gbs > sum * more)
        return true;
    s->depth[tried[0].to] = 0;
    int depth = tree_depth(tried, s->r.count, s->depth);
    s->depth[best->hops[0].to] = 0;
    int before = tree_depth(best->hops, s->r.count, s->depth);
    return (depth < before && found <= 2 * best->count) || (depth == before && found < best->count);
}

static void tree_search_all(struct tree_search *s, struct tti_trees *best, struct tti_hop *tried)
{
    double speeds[TTI_ROUTE_SPEEDS];
    int widest = 0;
    bool unknown = false;
    for (int h = 0; h < s->r.hosts; h++)
        widest = s->r.local_count[h] > widest ? s->r.local_count[h] : widest;
    int count = tti_routes_speeds(&s->r, widest - 1, speeds);
    /* Orders beyond the first two are random. */
    int orders = s->r.count <= FEW_STOPS ? 24 : s->r.count <= MANY_STOPS ? 4 : 1;
    int shapes = s->r.hosts > 1 ? TTI_SHAPES : 1;
    for (int k = 0; k < count * shapes * orders; k++) {
        double sum = best->count * best->gbs;
        s->r.gbs = speeds[k / (shapes * orders)];
        s->shape = (enum tti_host_shape)(k / orders % shapes);
        s->order = k % orders;
        if (sum >= best->limit.gbs * (1 - 1e-9) || s->r.gbs * TTI_TREES <= sum)
            return;
        int found = tree_fill(s, tried, &unknown);
        if (unknown) {
            tree_keep(s, tried, 1, 0, best);
            return;
        }
        if (tree_is_better(s, tried, found, best))
            tree_keep(s, tried, found, s->r.gbs, best);
    }
    if (best->count == 0) { /* there is no link of known bandwidth; or no way */
        s->order = 0;
        s->shape = TTI_SHAPE_PAIR;
        s->r.gbs = 0;
        best->count = tree_fill(s, best->hops, &unknown);
    }
}

static enum tutti_result tree_allocate(struct tree_search *s)
{
    size_t hosts = (size_t)s->r.hosts;
    size_t count = (size_t)s->r.count;
    s->ranked = tti_calloc(hosts, sizeof *s->ranked);
    s->host_order = tti_calloc(hosts, sizeof *s->host_order);
    s->host_parent = tti_calloc(hosts, sizeof *s->host_parent);
    s->head = tti_calloc(hosts, sizeof *s->head);
    s->in = tti_calloc(count, sizeof *s->in);
    s->children = tti_calloc(count, sizeof *s->children);
    s->grown = tti_calloc(count, sizeof *s->grown);
    s->path = tti_calloc(count * s->r.topology->node_count, sizeof *s->path);
    s->depth = tti_calloc(s->r.topology->node_count, sizeof *s->depth);
    bool all = s->depth && s->ranked && s->host_order && s->host_parent && s->head && s->in &&
               s->children && s->grown && s->path;
    return all ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static void tree_release(struct tree_search *s)
{
    void *owned[] = {s->depth, s->ranked,   s->host_order, s->host_parent, s->head,
                     s->in,    s->children, s->grown,      s->path};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
    tti_routes_clear(&s->r);
}

enum tutti_result tti_trees_search(const struct tti_topology *topology, const int *stops, int count,
                                   enum tti_tree_use use, int root, struct tti_trees **trees)
{
    struct tree_search s = {.use = use, .root = root};
    TTI_TRY(tti_routes_init(&s.r, topology, stops, count, "a tree"));
    struct tti_trees *best = tti_calloc(1, sizeof *best);
    struct tti_hop *tried = tti_calloc((size_t)TTI_TREES * (size_t)count, sizeof *tried);
    enum tutti_result result = best && tried ? tree_allocate(&s) : TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK && (root < -1 || root >= count))
        result = TTI_FAIL(TUTTI_ERR_ARGUMENT, "the root of trees is stop %d of %d", root, count);
    if (result == TUTTI_OK &&
        !(best->hops = tti_calloc((size_t)TTI_TREES * (size_t)count, sizeof *best->hops)))
        result = TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK) {
        tree_rank_hosts(&s);
        best->use = use;
        best->stops = count;
        best->limit = tree_limit(&s);
        tree_search_all(&s, best, tried);
        s.r.detours = best->count == 0;
        if (s.r.detours) {
            best->limit = tree_limit(&s);
            tree_search_all(&s, best, tried);
        }
        if (best->count == 0)
            result = TTI_FAIL(TUTTI_ERR_UNSUPPORTED,
                              "no tree over %d stops: some have no way to the others", count);
    }
    tree_release(&s);
    free(tried);
    if (result != TUTTI_OK) {
        tti_trees_destroy(best);
        return result;
    }
    *trees = best;
    return TUTTI_OK;
}

void tti_trees_destroy(struct tti_trees *trees)
{
    if (!trees)
        return;
    free(trees->hops);
    free(trees);
}
