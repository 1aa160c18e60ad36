/* Trees over GPUs (or hosts), found so that together they carry the most.
 *
 * Down a tree goes a broadcast, up it a reduction, piece after piece, so that every link of the
 * tree is busy at once. For an all-reduce both go on at the same time, and a hop takes its
 * bandwidth in both directions; for a broadcast (or, turned round, a reduction) in one only.
 * Between hosts trees come in pairs: a host that passes on in one is a leaf in the other (Sanders,
 * Speck, Traeff 2009). Within a host a tree is a chain, or branches twice at most. */
#ifndef TTI_TOPOLOGY_TREES_H
#define TTI_TOPOLOGY_TREES_H

#include "topology/routes.h"

enum { TTI_TREES = 32 };
enum tti_tree_use { TTI_TREES_ALL_REDUCE, TTI_TREES_BROADCAST };

struct tti_trees {
    enum tti_tree_use use;
    int count, stops;
    double gbs;             /* of each tree; 0: no link on their way has a known bandwidth */
    struct tti_limit limit; /* what their sum cannot be above */
    /* Of tree t: hops[t * stops] and on, parents before children. The first one has the root as
     * `to` and -1 as `from`. */
    struct tti_hop *hops;
};

/* Trees over the nodes `stops` (2 to TTI_ROUTE_STOPS, all different). `root` is the place in
 * `stops` of the root of all of them; -1: each has its own. An all-reduce of V bytes by them takes
 * V / (count gbs) seconds, and so does a broadcast. Not exhaustive, as tti_rings_search, and like
 * it the same for the same input. More trees are taken only for a sum that is 2% higher; of equal
 * sums the trees that are less deep.
 * TUTTI_ERR_UNSUPPORTED when the stops cannot reach each other. Free with tti_trees_destroy. */
enum tutti_result tti_trees_search(const struct tti_topology *topology, const int *stops, int count,
                                   enum tti_tree_use use, int root, struct tti_trees **trees);
void tti_trees_destroy(struct tti_trees *trees);

#endif
