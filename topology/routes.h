/* Routes between GPUs (or hosts) over the graph: what the searches for rings and trees stand on.
 *
 * Every link is two edges, one in each direction, each with the whole bandwidth; inside a host
 * there is a way from each node to its parent. A route is the cheapest one on which every edge has
 * enough left; of equal ones that which comes in by the NIC with the number of the one it left by,
 * so that rails stay apart. It does not pass through other GPUs. Taking a route uses up what it
 * carries. */
#ifndef TTI_TOPOLOGY_ROUTES_H
#define TTI_TOPOLOGY_ROUTES_H

#include "topology/graph.h"

enum { TTI_ROUTE_STOPS = 512, TTI_ROUTE_FAR = 64 /* a cost that no route within a host has */ };

/* What a ring or a tree goes over from one stop to the next. */
struct tti_hop {
    enum tti_link_kind kind; /* the slowest kind on the way: network, else PCI, else NVLink */
    int from, to;            /* nodes */
    int nic_out, nic_in;     /* nodes; -1 within a host */
};

struct tti_route_edge {
    int from, to;
    enum tti_link_kind kind;
    double gbs, left; /* INFINITY: does not limit */
};

struct tti_routes {
    const struct tti_topology *topology;
    const int *stops;
    int count;
    struct tti_route_edge *edges; /* sorted by `from` */
    int edge_count;
    int *reverse; /* of each edge the one that goes back */
    int *first;   /* of each node its first edge; one more */
    /* After tti_routes_reach: of each node the cost (INT_MAX: not reached) and the last edge. */
    int *distance, *came_by;
    int *queue;
    int *rail; /* of NICs their number on their host, from 0; else -1 */
    bool *queued, *is_stop, *has_nvlink;
    /* Of stops: their host, counted in order, and their place there; of hosts: their stops. */
    int *host, *local, *local_count;
    int hosts;
    double gbs;   /* what an edge must have left */
    bool detours; /* PCI between GPUs with NVLink: only where there is no other way */
};

/* Over `stops` (2 to TTI_ROUTE_STOPS of them, all different; kept, not copied). `what` is being
 * searched for: "a ring". On failure there is nothing to clear. */
enum tutti_result tti_routes_init(struct tti_routes *routes, const struct tti_topology *topology,
                                  const int *stops, int count, const char *what);
void tti_routes_clear(struct tti_routes *routes);
/* Gives every edge its whole bandwidth back. */
void tti_routes_reset(struct tti_routes *routes);
/* Cheapest routes from a node to all others whose cost is at most `most`. */
void tti_routes_reach(struct tti_routes *routes, int source, int most);
/* The hop whose route is the edges path[0..count), from its end to its start. */
struct tti_hop tti_routes_hop(const struct tti_routes *routes, int from, int to, const int *path,
                              int count);
/* Bandwidths to try, highest first: those of links, and parts of them. `own` (0: none) is one more
 * part beside those in the table. Returns their number, at most TTI_ROUTE_SPEEDS. */
enum { TTI_ROUTE_SPEEDS = 96 };
int tti_routes_speeds(const struct tti_routes *routes, int own, double *speeds);
/* What the NVLinks of a node can send. */
double tti_routes_nvlink_out(const struct tti_routes *routes, int node);
/* What the NICs of a host (by its number among the stops' hosts) can send; INFINITY when one of
 * them is unknown, 0 without. */
double tti_routes_host_out(const struct tti_routes *routes, int host);

/* What no set of rings or trees can be above. */
struct tti_limit {
    double gbs; /* INFINITY: unknown */
    int node;   /* the GPU or host that can send no more; -1: all of them together */
};
/* Each stop must send everything, on one host by NVLink if it has any; and so must each host where
 * there are several. */
struct tti_limit tti_routes_limit(const struct tti_routes *routes);

/* A number that looks random, the same for the same inputs: for orders of trying. */
unsigned tti_routes_mix(unsigned a, unsigned b, unsigned c, unsigned d);

#endif
