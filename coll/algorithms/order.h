/* The order in which rings, chains and trees pass through the ranks: host by host, whatever numbers
 * the ranks of a host have, so that as few of their messages as can be leave a host. Launchers that
 * deal ranks out to hosts in turn would otherwise have every message of a ring between hosts. On a
 * host, likewise from ranks that are near each other to others (layout.near).
 *
 * It begins with the root (rank 0 where there is none) and those that are near it, on its host;
 * there and among the hosts it goes upwards and wraps around. */
#ifndef TTI_COLL_ALGORITHMS_ORDER_H
#define TTI_COLL_ALGORITHMS_ORDER_H

#include "coll/algorithms/parts.h"

struct tti_order {
    int n;
    int place; /* of the own rank */
    int root;
    int begin, end; /* layout sorted by host, and nothing near: the ranks of the root's host */
    int *ranks;     /* else: by place */
};

enum tutti_result tti_order_create(const struct tti_plan_spec *spec, struct tti_order *order);
void tti_order_release(struct tti_order *order);

/* Fills each lane by its own order. Where ranks leave their host by several NICs (layout.gates),
 * the lanes enter and leave hosts by each in turn: one order for all would have them use one NIC in
 * and one out, and leave the others idle. Such an order is a circle, host by host, that begins at
 * the root, so it may come back to the root's host at its end. It goes from host to host by NICs of
 * the same number among those of their hosts. For rings and chains (`turns` of
 * struct tti_algorithm). Memory errors are the builder's. */
typedef void tti_order_fill(struct tti_builder *builder, const struct tti_plan_spec *spec, int lane,
                            const struct tti_order *order);
void tti_order_lanes(struct tti_builder *builder, const struct tti_plan_spec *spec,
                     tti_order_fill *fill);

/* The rank at a place, 0 .. n-1. */
static inline int tti_order_rank(const struct tti_order *order, int place)
{
    int first = order->end - order->begin;
    if (order->ranks)
        return order->ranks[place];
    if (place < first)
        return order->begin + (order->root - order->begin + place) % first;
    return (order->end + place - first) % order->n;
}

/* The ranks that it passes, as a group; good until the order's release. For collectives without a
 * root. */
static inline struct tti_group tti_order_group(const struct tti_order *order)
{
    return (struct tti_group){order->ranks, NULL, order->n, order->place};
}

#endif
