/* Ranks host by host (coll/algorithms/order.h). */
#include "coll/algorithms/order.h"

#include "base/memory.h"

#include <stdlib.h>

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

/* Ranks sorted by host, from the root and its host on. */
static enum tutti_result order_scattered(const struct tti_plan_spec *spec, struct tti_order *order)
{
    const int *host_of = spec->layout.host_of;
    int n = order->n, hosts = spec->layout.nhosts, root_host = host_of[order->root];
    int *next = tti_calloc((size_t)hosts + 1, sizeof *next); /* place of a host's next rank */
    order->ranks = tti_calloc((size_t)n, sizeof *order->ranks);
    if (!next || !order->ranks) {
        free(next);
        free(order->ranks);
        return TUTTI_ERR_MEMORY;
    }
    for (int r = 0; r < n; r++)
        next[tti_mod(host_of[r] - root_host, hosts) + 1]++;
    for (int h = 0; h < hosts; h++)
        next[h + 1] += next[h];
    for (int k = 0; k < n; k++) {
        int r = (order->root + k) % n;
        order->ranks[next[tti_mod(host_of[r] - root_host, hosts)]++] = r;
    }
    free(next);
    for (int place = 0; place < n; place++)
        if (order->ranks[place] == spec->rank)
            order->place = place;
    return TUTTI_OK;
}

enum tutti_result tti_order_create(const struct tti_plan_spec *spec, struct tti_order *order)
{
    struct tti_order made = {.n = spec->nranks, .root = spec->root};
    if (spec->layout.host_of && !spec->layout.sorted)
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
