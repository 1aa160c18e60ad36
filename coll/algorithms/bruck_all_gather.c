/* All-gather in ceil(lg n) steps for any n, after Bruck.
 *
 * After the steps before 2^k a rank holds the min(2^k, n) blocks from its own on; it sends as many
 * of them as are wanted to the rank 2^k below, and gets those that follow its own from the rank 2^k
 * above. Least bytes, fewest steps: best for small blocks. Blocks go straight to their place in
 * OUT, so a step's blocks are one message, or two where they wrap from block n-1 to 0 (one each
 * with several lanes). Pieces are sent and received in turn: one message per channel is enough.
 *
 * Source: Bruck, Ho, Kipnis, Upfal, Weathersby, Efficient algorithms for all-to-all communications
 * in multiport message-passing systems, TPDS 1997. */
#include "coll/algorithms/parts.h"

static void bruck_gather_step(struct tti_builder *b, int lane, const struct tti_plan_spec *spec,
                              int step, int count)
{
    int n = spec->nranks, rank = spec->rank, lanes = spec->lanes;
    int to = tti_mod(rank - step, n), from = (rank + step) % n;
    uint32_t chunk = (uint32_t)lane;
    for (int sent = 0, got = 0; sent < count || got < count;) {
        if (sent < count) {
            int block = (rank + sent) % n, run = tti_block_run(block, count - sent, n, lanes);
            tti_send(b, lane, chunk, (uint32_t)run, tti_out((uint32_t)(block * lanes + lane)), to);
            sent += run;
        }
        if (got < count) {
            int block = (from + got) % n, run = tti_block_run(block, count - got, n, lanes);
            tti_recv(b, lane, chunk, (uint32_t)run, from, tti_out((uint32_t)(block * lanes + lane)),
                     0, -1);
            got += run;
        }
    }
}

static enum tutti_result bruck_all_gather_plan(const struct tti_plan_spec *spec,
                                               struct tti_plan **plan)
{
    int n = spec->nranks, rank = spec->rank, lanes = spec->lanes;
    struct tti_builder b;
    tti_plan_begin(&b, spec, lanes, (uint32_t)lanes, 0, 0);
    for (int lane = 0; lane < lanes; lane++) {
        uint32_t chunk = (uint32_t)lane;
        tti_copy(&b, lane, chunk, 1, tti_in(chunk), tti_out((uint32_t)(rank * lanes + lane)), 0,
                 -1);
        for (int step = 1; step < n; step *= 2)
            bruck_gather_step(&b, lane, spec, step, tti_least(step, n - step));
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
