/* All-gather in ceil(lg n) steps for any n, after Bruck.
 *
 * After the steps before 2^k a rank holds the min(2^k, n) blocks from its own on; it sends as many
 * of them as are wanted to the rank 2^k below, and gets those that follow its own from the rank 2^k
 * above. Least bytes, fewest steps: best for small blocks. Blocks go straight to their place in
 * OUT, so a step's blocks are one message, or two where they wrap from block n-1 to 0. Whoever
 * sends two sends to one who sends one, so sending both before receiving cannot block.
 *
 * Source: Bruck, Ho, Kipnis, Upfal, Weathersby, Efficient algorithms for all-to-all communications
 * in multiport message-passing systems, TPDS 1997. */
#include "coll/algorithms/parts.h"

static enum tutti_result bruck_all_gather_plan(const struct tti_plan_spec *spec,
                                               struct tti_plan **plan)
{
    int n = spec->nranks, rank = spec->rank;
    struct tti_builder b;
    tti_plan_begin(&b, spec, 1, 1, 0, 0);
    tti_copy(&b, 0, 0, 1, tti_in(0), tti_out((uint32_t)rank), n > 1 ? TTI_FORWARD : 0,
             n > 1 ? tti_mod(rank - 1, n) : -1);
    for (int step = 1; step < n; step *= 2) {
        int count = tti_least(step, n - step);
        int to = tti_mod(rank - step, n), from = (rank + step) % n;
        for (int j = 0, run; step > 1 && j < count; j += run) {
            int block = (rank + j) % n;
            run = tti_block_run(block, count - j, n);
            tti_send(&b, 0, 0, (uint32_t)run, tti_out((uint32_t)block), to);
        }
        for (int j = 0, run; j < count; j += run) {
            int block = (from + j) % n;
            run = tti_block_run(block, count - j, n);
            tti_recv(&b, 0, 0, (uint32_t)run, from, tti_out((uint32_t)block), 0, -1);
        }
    }
    return tti_plan_finish(&b, plan);
}

static double bruck_all_gather_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                                    double beta)
{
    return tti_log2_ceil(spec->nranks) * alpha + (spec->nranks - 1) * bytes * beta;
}

const struct tti_algorithm tti_bruck_all_gather = {
    .name = "bruck",
    .collective = TUTTI_ALL_GATHER,
    .plan = bruck_all_gather_plan,
    .cost = bruck_all_gather_cost,
    .summary = "doubling distances for any n; least bytes, ceil(lg n) steps",
};
