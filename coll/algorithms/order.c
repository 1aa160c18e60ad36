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

/* Ranks sorted by host, and on a host by what they are near to, from the root and its own on. With
 * gates, by them before anything that is near. `room`: for two ints of each rank and one more. */
static void order_by_places(const struct tti_layout *layout, bool gates, struct tti_order *order,
                            int *room)
{
    const int n = order->n;
    for (int place = 0; place < n; place++)
        order->ranks[place] = (order->root + place) % n;
    for (int level = 0; level < TTI_NEAR_LEVELS; level++) /* the last one counts most */
        if (layout->near[level].of)
            order_sort(order, layout->near[level].of, layout->near[level].count, room, room + n);
    if (gates)
        order_sort(order, layout->gates.of, layout->gates.count, room, room + n);
    if (layout->host_of)
        order_sort(order, layout->host_of, layout->nhosts, room, room + n);
}

/* The first `places` begin with the one at `from` and go on around. */
static void order_turn(int *ranks, int places, int from, int *room)
{
    memcpy(room, ranks, (size_t)places * sizeof *ranks);
    for (int place = 0; place < places; place++)
        ranks[place] = room[(from + place) % places];
}

/* `places` ranks, those of a gate one after another, turn until the first is of the gate
 * of that number, wrapping around. */
static void order_enter(const int *gate_of, int number, int *ranks, int places, int *room)
{
    int gates = 1, from = 0;
    for (int at = 1; at < places; at++)
        gates += gate_of[ranks[at]] != gate_of[ranks[at - 1]];
    for (int at = 1, gate = number % gates; gate > 0; at++)
        if (gate_of[ranks[at]] != gate_of[ranks[at - 1]] && --gate == 0)
            from = at;
    order_turn(ranks, places, from, room);
}

/* A lane enters every second host by its gate and leaves it by the one before; on the hosts between
 * it goes the other way, and so from one host to the next by NICs of the same number, which may be
 * on a network of their own (but between the last host and the first, where hosts are odd in
 * number). As many lanes as there are gates use each of them alike, both ways. */
static void order_turn_hosts(const struct tti_layout *layout, int lane, struct tti_order *order,
                             int *room)
{
    int *ranks = order->ranks;
    bool backwards = false;
    for (int begin = 0, end; begin < order->n; begin = end, backwards = !backwards) {
        const int host = layout->host_of[ranks[begin]];
        for (end = begin; end < order->n && layout->host_of[ranks[end]] == host;)
            end++;
        order_enter(layout->gates.of, lane, ranks + begin, end - begin, room);
        for (int low = begin, high = end - 1; backwards && low < high; low++, high--) {
            const int rank = ranks[low];
            ranks[low] = ranks[high];
            ranks[high] = rank;
        }
    }
}

static int order_place(const struct tti_order *order, int rank)
{
    int place = 0;
    while (order->ranks[place] != rank)
        place++;
    return place;
}

/* `lane` >= 0: turned for it. */
static enum tutti_result order_scattered(const struct tti_plan_spec *spec, int lane,
                                         struct tti_order *order)
{
    const int n = order->n, root = order->root;
    int *room = tti_calloc(2 * (size_t)n + 1, sizeof *room);
    order->ranks = tti_calloc((size_t)n, sizeof *order->ranks);
    if (!room || !order->ranks) {
        free(room);
        free(order->ranks);
        return TUTTI_ERR_MEMORY;
    }
    if (lane >= 0)
        order->root = 0; /* of which the circle knows nothing */
    order_by_places(&spec->layout, lane >= 0, order, room);
    order->root = root;
    if (lane >= 0) {
        order_turn_hosts(&spec->layout, lane, order, room);
        order_turn(order->ranks, n, order_place(order, root), room);
    }
    free(room);
    order->place = order_place(order, spec->rank);
    return TUTTI_OK;
}

enum tutti_result tti_order_create(const struct tti_plan_spec *spec, struct tti_order *order)
{
    struct tti_order made = {.n = spec->nranks, .root = spec->root};
    if ((spec->layout.host_of && !spec->layout.sorted) || tti_layout_has_near(&spec->layout))
        TTI_TRY(order_scattered(spec, -1, &made));
    else
        order_sorted(spec, &made);
    *order = made;
    return TUTTI_OK;
}

void tti_order_release(struct tti_order *order)
{
    free(order->ranks);
}

void tti_order_lanes(struct tti_builder *builder, const struct tti_plan_spec *spec,
                     tti_order_fill *fill)
{
    const bool turns = spec->layout.host_of && spec->layout.gates.of;
    for (int lane = 0; lane < spec->lanes; lane++) {
        struct tti_order order = {.n = spec->nranks, .root = spec->root};
        const enum tutti_result made =
            turns ? order_scattered(spec, lane, &order) : tti_order_create(spec, &order);
        if (made != TUTTI_OK) {
            builder->failed = true;
            return;
        }
        fill(builder, spec, lane, &order);
        tti_order_release(&order);
    }
}
