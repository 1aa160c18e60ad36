/* The search for rings (rings.h): a depth-first search with a budget, once for each bandwidth and
 * order of trying, over routes (routes.h). */
#include "topology/rings.h"

#include "base/memory.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_BACK = 2000, RANDOM_ORDERS = 6, MANY_STOPS = 64 };

struct ring_search {
    struct tti_routes r;
    /* The ring being made. */
    int ring, order, budget;
    int entry;  /* the stop by which the host at hand was entered */
    int *visit; /* stops by place */
    bool *visited;
    int *candidates; /* [place][count] */
    unsigned *keys;  /* of stops, while candidates are sorted */
    int *path;       /* edges of all hops, one after the other */
    int *path_end;   /* by place */
};

static enum tutti_result ring_allocate(struct ring_search *s)
{
    size_t count = (size_t)s->r.count;
    size_t room = (count + 1) * s->r.topology->node_count; /* of `path` */
    s->visit = tti_calloc(count + 1, sizeof *s->visit);
    s->visited = tti_calloc(count, sizeof *s->visited);
    s->candidates = tti_calloc(count * count, sizeof *s->candidates);
    s->keys = tti_calloc(count, sizeof *s->keys);
    s->path = tti_calloc(room, sizeof *s->path);
    s->path_end = tti_calloc(count + 1, sizeof *s->path_end);
    bool all = s->visit && s->visited && s->candidates && s->keys && s->path && s->path_end;
    return all ? TUTTI_OK : TUTTI_ERR_MEMORY;
}

static void ring_release(struct ring_search *s)
{
    void *owned[] = {s->visit, s->visited, s->candidates, s->keys, s->path, s->path_end};
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++)
        free(owned[i]);
    tti_routes_clear(&s->r);
}

/* Takes the route to `to`, as ring_reach found it, for the hop from this place. */
static void ring_take(struct ring_search *s, int place, int source, int to)
{
    int end = place ? s->path_end[place - 1] : 0;
    while (to != source) {
        struct tti_route_edge *edge = &s->r.edges[s->r.came_by[to]];
        edge->left -= s->r.gbs;
        s->path[end++] = s->r.came_by[to];
        to = edge->from;
    }
    s->path_end[place] = end;
}

static void ring_give_back(struct ring_search *s, int place)
{
    for (int i = place ? s->path_end[place - 1] : 0; i < s->path_end[place]; i++)
        s->r.edges[s->path[i]].left += s->r.gbs;
}

/* ---- One ring -------------------------------------------------------------------------------- */

static int ring_parent(const struct ring_search *s, int stop)
{
    return s->r.topology->nodes[s->r.stops[stop]].parent;
}

/* In which order stops that are equally near are tried; always those of the next host first. Order
 * 0 goes round within a host, from another place for each ring, so that rings enter and leave it by
 * different devices; order 1 goes in steps as wide as the ring's number; the others are random. */
static unsigned ring_key(const struct ring_search *s, int from, int stop)
{
    unsigned local_count = (unsigned)s->r.local_count[s->r.host[stop]];
    unsigned local = (unsigned)s->r.local[stop];
    unsigned ring = (unsigned)s->ring % local_count;
    unsigned host =
        (unsigned)(s->r.host[stop] - s->r.host[from] + s->r.hosts) % (unsigned)s->r.hosts;
    unsigned key = (local + local_count - ring) % local_count;
    if (s->order == 1)
        key = (local + 2 * local_count - (unsigned)s->r.local[from] % local_count - 1 - ring) %
              local_count;
    if (s->order > 1) {
        key =
            tti_routes_mix((unsigned)s->order, (unsigned)s->ring, (unsigned)from, (unsigned)stop) %
            TTI_ROUTE_STOPS;
    }
    /* Those beside the one by which the host was entered go last, so that the ring leaves it by the
     * same NIC or one beside it, and comes home by the NIC that it left by. */
    if (s->order == 0 && s->r.hosts > 1 && ring_parent(s, stop) == ring_parent(s, s->entry))
        key += TTI_ROUTE_STOPS;
    return host * 2 * TTI_ROUTE_STOPS + key;
}

/* The stops that can come next, best first. */
static int ring_candidates(struct ring_search *s, int from, int *list)
{
    int found = 0;
    for (int i = 0; i < s->r.count; i++) {
        int distance = s->r.distance[s->r.stops[i]];
        if (s->visited[i] || distance == INT_MAX)
            continue;
        s->keys[i] = ring_key(s, from, i);
        int at = found++;
        for (; at > 0; at--) {
            int before = s->r.distance[s->r.stops[list[at - 1]]];
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
    int *list = &s->candidates[(size_t)place * (size_t)s->r.count];
    if (s->budget-- <= 0)
        return false;
    tti_routes_reach(&s->r, s->r.stops[from], INT_MAX);
    if (place == s->r.count - 1) {
        int home = s->r.stops[s->visit[0]];
        if (s->r.distance[home] == INT_MAX)
            return false;
        ring_take(s, place, s->r.stops[from], home);
        return true;
    }
    int entered = place;
    while (entered > 0 && s->r.host[s->visit[entered - 1]] == s->r.host[from])
        entered--;
    s->entry = s->visit[entered];
    int found = ring_candidates(s, from, list);
    for (int i = 0; i < found && s->budget > 0; i++) {
        if (i > 0) /* what was found before is overwritten */
            tti_routes_reach(&s->r, s->r.stops[from], INT_MAX);
        ring_take(s, place, s->r.stops[from], s->r.stops[list[i]]);
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
static struct tti_hop ring_hop(const struct ring_search *s, int place)
{
    int first = place ? s->path_end[place - 1] : 0;
    return tti_routes_hop(&s->r, s->r.stops[s->visit[place]],
                          s->r.stops[s->visit[(place + 1) % s->r.count]], &s->path[first],
                          s->path_end[place] - first);
}

/* Whether a link of known bandwidth is on the way of the ring just made. */
static bool ring_is_limited(const struct ring_search *s)
{
    bool limited = false;
    for (int i = 0; i < s->path_end[s->r.count - 1]; i++)
        limited |= !isinf(s->r.edges[s->path[i]].gbs);
    return limited;
}

/* As many rings of this bandwidth as are found in this order; 1, and *unknown, for one that nothing
 * limits. */
static int ring_fill(struct ring_search *s, struct tti_hop *hops, bool *unknown)
{
    *unknown = false;
    tti_routes_reset(&s->r);
    for (s->ring = 0; s->ring < TTI_RINGS; s->ring++) {
        memset(s->visited, 0, (size_t)s->r.count * sizeof *s->visited);
        s->visit[0] = 0;
        for (int i = 0; i < s->r.count; i++) /* on the first host, each in turn */
            if (s->r.host[i] == 0 && s->r.local[i] == s->ring % s->r.local_count[0])
                s->visit[0] = i;
        s->visited[s->visit[0]] = true;
        s->budget = s->r.count + STEPS_BACK;
        if (!ring_extend(s, 0))
            break;
        for (int place = 0; place < s->r.count; place++)
            hops[s->ring * s->r.count + place] = ring_hop(s, place);
        *unknown = !ring_is_limited(s);
        if (*unknown || s->r.gbs <= 0)
            return 1;
    }
    return s->ring;
}

/* ---- All rings ------------------------------------------------------------------------------- */

static void ring_search_all(struct ring_search *s, struct tti_rings *best, struct tti_hop *tried)
{
    double speeds[TTI_ROUTE_SPEEDS];
    int count = tti_routes_speeds(&s->r, 0, speeds);
    bool unknown = false;
    int orders = s->r.count > MANY_STOPS ? 1 : 2 + RANDOM_ORDERS;
    for (int k = 0; k < count; k++)
        for (s->order = 0; s->order < orders; s->order++) {
            double sum = best->count * best->gbs;
            if (sum >= best->limit.gbs * (1 - 1e-9))
                return;
            s->r.gbs = speeds[k];
            if (s->r.gbs * TTI_RINGS <= sum)
                return; /* the rest are slower still */
            int found = ring_fill(s, tried, &unknown);
            if (unknown) {
                best->count = 1;
                best->gbs = 0;
                memcpy(best->hops, tried, (size_t)s->r.count * sizeof *tried);
                return;
            }
            if (found == 0)
                break;
            if (found * s->r.gbs <= sum * (1 + 1e-9))
                continue;
            best->count = found;
            best->gbs = s->r.gbs;
            memcpy(best->hops, tried, (size_t)found * (size_t)s->r.count * sizeof *tried);
        }
    if (best->count == 0) { /* there is no link of known bandwidth; or no way */
        s->order = 0;
        s->r.gbs = 0;
        best->count = ring_fill(s, best->hops, &unknown);
    }
}

enum tutti_result tti_rings_search(const struct tti_topology *topology, const int *stops, int count,
                                   struct tti_rings **rings)
{
    struct ring_search s = {.order = 0};
    TTI_TRY(tti_routes_init(&s.r, topology, stops, count, "a ring"));
    size_t room = (size_t)TTI_RINGS * (size_t)count;
    struct tti_rings *best = tti_calloc(1, sizeof *best);
    struct tti_hop *tried = tti_calloc(room, sizeof *tried);
    enum tutti_result result = best && tried ? TUTTI_OK : TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK && !(best->hops = tti_calloc(room, sizeof *best->hops)))
        result = TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK)
        result = ring_allocate(&s);
    if (result == TUTTI_OK) {
        best->stops = count;
        best->limit = tti_routes_limit(&s.r);
        ring_search_all(&s, best, tried);
        s.r.detours = best->count == 0;
        if (s.r.detours) {
            best->limit = tti_routes_limit(&s.r);
            ring_search_all(&s, best, tried);
        }
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
