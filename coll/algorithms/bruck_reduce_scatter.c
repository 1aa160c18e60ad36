/* Reduce-scatter in ceil(lg n) steps for any n: Bruck's all-gather run backwards.
 *
 * Count blocks from the own rank: offset j is block r + j. In the all-gather, step k moves the
 * blocks at offsets 0 .. count-1 to the rank 2^k below, as its offsets 2^k ...; here k falls, and
 * rank r sends its sums at offsets 2^k .. 2^k + count-1 to rank r + 2^k, which adds them to its
 * offsets 0 .. count-1. At the end offset 0 is complete. Least bytes, fewest steps: best for small
 * blocks and many ranks.
 *
 * The first step reads IN, in two messages where the blocks wrap from n-1 to 0. Whoever sends two
 * sends to one who sends one, so sending both before receiving cannot block. From then on all is in
 * SCRATCH by offset, one message a step: contributions that the first step did not touch (n no
 * power of two) are copied there while its messages are on their way.
 *
 * Source: Bruck, Ho, Kipnis, Upfal, Weathersby, Efficient algorithms for all-to-all communications
 * in multiport message-passing systems, TPDS 1997. */
#include "coll/algorithms/parts.h"

/* The first step: offsets step .. n-1 to the rank `step` above. */
static void bruck_first(struct tti_builder *b, int n, int rank, int step)
{
    int count = n - step, to = (rank + step) % n, from = tti_mod(rank - step, n);
    bool complete = step == 1;
    for (int j = 0, run; j < count; j += run) {
        int block = (to + j) % n;
        run = tti_block_run(block, count - j, n);
        tti_send(b, 0, 0, (uint32_t)run, tti_in((uint32_t)block), to);
    }
    for (int j = count, run; j < step; j += run) {
        int block = (rank + j) % n;
        run = tti_block_run(block, step - j, n);
        tti_copy(b, 0, 0, (uint32_t)run, tti_in((uint32_t)block), tti_scratch((uint32_t)j), 0, -1);
    }
    for (int j = 0, run; j < count; j += run) {
        int block = (rank + j) % n;
        run = tti_block_run(block, count - j, n);
        tti_recv_reduce(b, 0, 0, (uint32_t)run, from, tti_in((uint32_t)block),
                        complete ? tti_out(0) : tti_scratch((uint32_t)j), complete ? TTI_FINAL : 0,
                        -1);
    }
}

static enum tutti_result bruck_reduce_scatter_plan(const struct tti_plan_spec *spec,
                                                   struct tti_plan **plan)
{
    int n = spec->nranks, rank = spec->rank, top = n > 1 ? tti_power_floor(n - 1) : 0;
    struct tti_builder b;
    tti_plan_begin(&b, spec, 1, 1, n > 2 ? (uint32_t)top : 0, 0);
    if (n == 1)
        tti_copy(&b, 0, 0, 1, tti_in(0), tti_out(0), TTI_FINAL, -1);
    else
        bruck_first(&b, n, rank, top);
    for (int step = top / 2; step >= 1; step /= 2) {
        bool complete = step == 1;
        uint32_t count = (uint32_t)step;
        tti_send(&b, 0, 0, count, tti_scratch(count), (rank + step) % n);
        tti_recv_reduce(&b, 0, 0, count, tti_mod(rank - step, n), tti_scratch(0),
                        complete ? tti_out(0) : tti_scratch(0),
                        TTI_MSG_ACC | (complete ? TTI_FINAL : 0), -1);
    }
    return tti_plan_finish(&b, plan);
}

static double bruck_reduce_scatter_cost(const struct tti_plan_spec *spec, double bytes,
                                        double alpha, double beta)
{
    return tti_log2_ceil(spec->nranks) * alpha + (spec->nranks - 1) * bytes * beta;
}

const struct tti_algorithm tti_bruck_reduce_scatter = {
    .name = "bruck",
    .collective = TUTTI_REDUCE_SCATTER,
    .plan = bruck_reduce_scatter_plan,
    .cost = bruck_reduce_scatter_cost,
    .summary = "halving distances for any n; least bytes, ceil(lg n) steps",
};
