/* All-reduce where everybody gets everything in ceil(lg n) steps, and reduces it in rank order.
 *
 * Bruck's all-gather (bruck_all_gather.c) of the contributions, into SCRATCH: block j there is that
 * of rank r + j, so a step's blocks are in a row and one message. As many bytes as one_shot, in
 * lg n messages a rank instead of n-1. It is for the reproducible mode: the least steps that keep
 * the order of ranks, for small blocks and many ranks, where partial sums on a tree could not.
 *
 * From the second step on the own contribution is sent from SCRATCH too. Nothing that is sent is
 * overwritten, but IN in place, at the end: the rank below has taken it by its first step. */
#include "coll/algorithms/parts.h"

static struct tti_ref bruck_block(int n, int rank, int of)
{
    return of == rank ? tti_in(0) : tti_scratch((uint32_t)tti_mod(of - rank, n));
}

static void bruck_gather(struct tti_builder *b, int n, int rank)
{
    for (int step = 1; step < n; step *= 2) {
        uint32_t count = (uint32_t)tti_least(step, n - step);
        int to = tti_mod(rank - step, n), from = (rank + step) % n;
        tti_send(b, 0, 0, count, step == 1 ? tti_in(0) : tti_scratch(0), to);
        if (step == 1 && n > 2)
            tti_copy(b, 0, 0, 1, tti_in(0), tti_scratch(0), 0, -1);
        tti_recv(b, 0, 0, count, from, tti_scratch((uint32_t)step), step == 1 ? 0 : TTI_MSG_ACC,
                 -1);
    }
}

static enum tutti_result bruck_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    int n = spec->nranks, rank = spec->rank;
    struct tti_builder b;
    tti_plan_begin(&b, spec, 1, 1, n > 1 ? (uint32_t)n : 0, n > 2 ? 1 : 0);
    if (n == 1)
        tti_copy(&b, 0, 0, 1, tti_in(0), tti_out(0), TTI_FINAL, -1);
    else
        bruck_gather(&b, n, rank);
    struct tti_ref sum = bruck_block(n, rank, 0);
    for (int next = 1; next < n; next++) {
        bool last = next == n - 1;
        struct tti_ref dst = last ? tti_out(0) : tti_slot(0);
        tti_reduce_step(&b, 0, 0, 1, sum, bruck_block(n, rank, next), dst, last ? TTI_FINAL : 0,
                        -1);
        sum = dst;
    }
    return tti_plan_finish(&b, plan);
}

static double bruck_cost(const struct tti_plan_spec *spec, double bytes, double alpha, double beta)
{
    return tti_log2_ceil(spec->nranks) * alpha + (spec->nranks - 1) * bytes * beta;
}

const struct tti_algorithm tti_ordered_bruck_all_reduce = {
    .name = "ordered_bruck",
    .collective = TUTTI_ALL_REDUCE,
    .plan = bruck_plan,
    .cost = bruck_cost,
    .ordered = true,
    .by_request = true,
    .summary = "all to all by doubling distances, reduced in rank order; lg n steps, (n-1) blocks",
};
