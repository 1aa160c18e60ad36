/* Ranks host by host (coll/algorithms/order.h). */
#include "coll/algorithms/order.h"

#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

/* Where ranks of a host follow each other, arithmetic does. */
static void order_sorted(const struct tti_plan_spec *spec, struct tti_order *order)
{
    const int *host_of = spec->layout.host_of;
    int n = order->n, root = order->root;
    order->begin = host_of ? root : 0;
    order->end = host_of ? root + 1 : n;
    while (host_of && order->begin > 0 && host_of[order->begin - 1] == host_of[root])
        order->begin--;
    while (host_of && order->end < n && host_of[order->end] == host_of[root])
        order->end++;
    int first = order->end - order->begin, rank = spec->rank;
    bool with_root = rank >= order->begin && rank < order->end;
    order->place = with_root ? tti_mod(rank - root, first) : first + tti_mod(rank - order->end, n);
}

/* Sort places by the group that their ranks are in, from the root's on; places of one group stay as
 * they are. `aside` has room for all, `next` for groups + 1. */
static void order_sort(struct tti_order *order, const int *group_of, int groups, int *aside,
                       int *next)
{
    const int n = order->n, first = group_of[order->root];
    memset(next, 0, ((size_t)groups + 1) * sizeof *next);
    for (int r = 0; r < n; r++)
        next[tti_mod(group_of[r] - first, groups) + 1]++;
    for (int g = 0; g < groups; g++)
        next[g + 1] += next[g];
    for (int place = 0; place < n; place++) {
        const int r = order->ranks[place];
        aside[next[tti_mod(group_of[r] - first, groups)]++] = r;
    }
    memcpy(order->ranks, aside, (size_t)n * sizeof *aside);
}

/* Ranks sorted by host, and on a host by what they are near to, from the root and its own on. */
static enum tutti_result order_scattered(const struct tti_plan_spec *spec, struct tti_order *order)
{
    const struct tti_layout *layout = &spec->layout;
    const int n = order->n;
    int *room = tti_calloc(2 * (size_t)n + 1, sizeof *room);
    order->ranks = tti_calloc((size_t)n, sizeof *order->ranks);
    if (!room || !order->ranks) {
        free(room);
        free(order->ranks);
        return TUTTI_ERR_MEMORY;
    }
    for (int place = 0; place < n; place++)
        order->ranks[place] = (order->root + place) % n;
    for (int level = 0; level < TTI_NEAR_LEVELS; level++) /* the last one counts most */
        if (layout->near[level].of)
            order_sort(order, layout->near[level].of, layout->near[level].count, room, room + n);
    if (layout->host_of)
        order_sort(order, layout->host_of, layout->nhosts, room, room + n);
    free(room);
    for (int place = 0; place < n; place++)
        if (order->ranks[place] == spec->rank)
            order->place = place;
    return TUTTI_OK;
}

enum tutti_result tti_order_create(const struct tti_plan_spec *spec, struct tti_order *order)
{
    struct tti_order made = {.n = spec->nranks, .root = spec->root};
    if ((spec->layout.host_of && !spec->layout.sorted) || tti_layout_has_near(&spec->layout))
        TTI_TRY(order_scattered(spec, &made));
    else
        order_sorted(spec, &made);
    *order = made;
    return TUTTI_OK;
}

void tti_order_release(struct tti_order *order)
{
    free(order->ranks);
}
