/* Rings over GPUs (or hosts), found so that together they carry the most.
 *
 * A ring visits every stop once and comes back; each hop follows a route over the graph's links and
 * uses up the ring's bandwidth on each of them, in its direction. The bus bandwidth to be hoped for
 * of a ring all-reduce is the sum over its rings. */
#ifndef TTI_TOPOLOGY_RINGS_H
#define TTI_TOPOLOGY_RINGS_H

#include "topology/routes.h"

enum { TTI_RINGS = 32 };

struct tti_rings {
    int count, stops;
    double gbs;             /* of each ring; 0: no link on their way has a known bandwidth */
    struct tti_limit limit; /* what their sum cannot be above */
    struct tti_hop *hops;   /* of ring r: hops[r * stops] and on, hop k from its k-th stop */
};

/* Rings over the nodes `stops` (2 to TTI_ROUTE_STOPS of them, all different). Exhaustive it is not:
 * for each bandwidth that could be the bottleneck, rings are taken one by one, with few steps back,
 * in several orders; the best sum wins, and of equal sums the fewest rings. The same input gives
 * the same rings. Links of unknown bandwidth, and the ways inside a host that are no links, do not
 * limit. TUTTI_ERR_UNSUPPORTED when the stops cannot reach each other. Free with tti_rings_destroy.
 */
enum tutti_result tti_rings_search(const struct tti_topology *topology, const int *stops, int count,
                                   struct tti_rings **rings);
void tti_rings_destroy(struct tti_rings *rings);

#endif
