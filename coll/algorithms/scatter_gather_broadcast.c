/* Broadcast as a scatter on a binomial tree and an all-gather along a ring (van de Geijn).
 *
 * A lane's share is cut into n chunks; chunk c belongs to place c, counted host by
 * host from the root (order.h). After the
 * scatter a place holds the chunks of its whole subtree. Then every place hands its next the chunks
 * that the next lacks, in the order in which the ring brings them: place p passes p, p - 1, ... on.
 * Chunks that a place has from the scatter are not sent to it again, so nothing runs around to the
 * root and waiting goes one way. About two blocks of traffic whatever n: best for large blocks when
 * there are too few slices for a chain.
 *
 * Source: Barnett, Gupta, Payne, Shuler, van de Geijn, Watts, Interprocessor collective
 * communication library (InterCom), SHPCC 1994. */
#include "coll/algorithms/order.h"

struct scatter_lane {
    struct tti_builder *b;
    const struct tti_order *order;
    int lane, n, place;
    int size; /* of the own subtree */
    uint32_t base;
};

static int scatter_rank(const struct scatter_lane *l, int place)
{
    return tti_order_rank(l->order, place);
}

/* Take the subtree's chunks from above, give the children theirs, largest subtree first. */
static void scatter_down(const struct scatter_lane *l)
{
    uint32_t own = l->base + (uint32_t)l->place;
    if (l->place > 0)
        tti_recv(l->b, l->lane, own, (uint32_t)l->size,
                 scatter_rank(l, tti_binomial_parent(l->place)), tti_out(own), 0, -1);
    for (int k = tti_power_floor(l->n); k >= 1; k /= 2) {
        int child = l->place + k;
        if (k >= l->size)
            continue;
        uint32_t chunk = l->base + (uint32_t)child;
        uint32_t count = (uint32_t)tti_binomial_size(l->n, child);
        if (l->place == 0)
            tti_copy(l->b, l->lane, chunk, count, tti_in(chunk), tti_out(chunk), TTI_FORWARD,
                     scatter_rank(l, child));
        else
            tti_send(l->b, l->lane, chunk, count, tti_out(chunk), scatter_rank(l, child));
    }
}

/* Chunks place, place - 1, ..., around to place + 1; those that the next place has are skipped. */
static void scatter_around(const struct scatter_lane *l)
{
    int next = l->place + 1;
    int next_size = next < l->n ? tti_binomial_size(l->n, next) : l->n;
    for (int k = 0; k < l->n; k++) {
        int c = tti_mod(l->place - k, l->n);
        uint32_t chunk = l->base + (uint32_t)c;
        bool lacking = c < l->place || c >= l->place + l->size;
        bool pass_on = next < l->n && (c < next || c >= next + next_size);
        int to = pass_on ? scatter_rank(l, next) : -1, forward = pass_on ? TTI_FORWARD : 0;
        if (lacking)
            tti_recv(l->b, l->lane, chunk, 1, scatter_rank(l, l->place - 1), tti_out(chunk),
                     forward, to);
        else if (l->place == 0 && c == 0)
            tti_copy(l->b, l->lane, chunk, 1, tti_in(chunk), tti_out(chunk), forward, to);
        else if (pass_on)
            tti_send(l->b, l->lane, chunk, 1, tti_out(chunk), to);
    }
}

static enum tutti_result scatter_gather_plan(const struct tti_plan_spec *spec,
                                             struct tti_plan **plan)
{
    struct tti_order order;
    struct tti_builder b;
    TTI_TRY(tti_order_create(spec, &order));
    int n = order.n, place = order.place;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)(n * spec->lanes), 0, 0);
    for (int lane = 0; lane < spec->lanes; lane++) {
        struct scatter_lane l = {
            &b, &order, lane, n, place, tti_binomial_size(n, place), (uint32_t)(lane * n)};
        scatter_down(&l);
        scatter_around(&l);
    }
    tti_order_release(&order);
    return tti_plan_finish(&b, plan);
}

static double scatter_gather_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                                  double beta)
{
    double n = spec->nranks;
    return (tti_log2_ceil(spec->nranks) + n - 1) * alpha + 2 * (n - 1) / n * bytes * beta;
}

const struct tti_algorithm tti_scatter_gather_broadcast = {
    .name = "scatter_gather",
    .collective = TUTTI_BROADCAST,
    .plan = scatter_gather_plan,
    .cost = scatter_gather_cost,
    .summary = "binomial scatter, then ring all-gather; about two blocks of traffic a rank",
};
