/* All-reduce on a ring: reduce-scatter around it, then all-gather around it.
 *
 * n ranks, every lane a share of the block in n chunks. In step k of the first half rank r passes
 * on its partial sum of chunk r - k and receives that of chunk r - k - 1; after n - 1 steps it
 * holds the complete chunk r + 1, which the second half hands around. Each rank moves
 * 2 (n-1)/n of the block, the least possible, in 2 (n-1) steps: best for large blocks.
 *
 * Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations,
 * JPDC 2009. */
#include "coll/algorithms/parts.h"
#include "plan/build.h"

static enum tutti_result ring_all_reduce_plan(const struct tti_plan_spec *spec,
                                              struct tti_plan **plan)
{
    int n = spec->nranks, rank = spec->rank;
    struct tti_builder b;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)(n * spec->lanes), 0,
                   (uint32_t)(2 * spec->lanes));
    int next = (rank + 1) % n, previous = (rank + n - 1) % n;
    for (int lane = 0; lane < spec->lanes; lane++) {
        uint32_t base = (uint32_t)(lane * n);
        if (n == 1) {
            tti_copy(&b, lane, base, 1, tti_in(base), tti_out(base), TTI_FINAL, -1);
            continue;
        }
        uint32_t own = base + (uint32_t)rank;
        tti_send(&b, lane, own, 1, tti_in(own), next);
        for (int k = 1; k < n; k++) {
            uint32_t chunk = base + (uint32_t)tti_mod(rank - k, n);
            int acc = k > 1 ? TTI_MSG_ACC : 0;
            bool complete = k == n - 1;
            struct tti_ref dst =
                complete ? tti_out(chunk) : tti_slot((uint32_t)(2 * lane + (k & 1)));
            tti_recv_reduce(&b, lane, chunk, 1, previous, tti_in(chunk), dst,
                            acc | TTI_FORWARD | (complete ? TTI_FINAL : 0), next);
        }
        for (int k = 0; k < n - 1; k++) {
            uint32_t chunk = base + (uint32_t)tti_mod(rank - k, n);
            bool pass_on = k < n - 2;
            tti_recv(&b, lane, chunk, 1, previous, tti_out(chunk), pass_on ? TTI_FORWARD : 0,
                     pass_on ? next : -1);
        }
    }
    return tti_plan_finish(&b, plan);
}

static double ring_all_reduce_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                                   double beta)
{
    double n = spec->nranks;
    return 2 * (n - 1) * alpha + 2 * (n - 1) / n * bytes * beta;
}

const struct tti_algorithm tti_ring_all_reduce = {
    .name = "ring",
    .collective = TUTTI_ALL_REDUCE,
    .plan = ring_all_reduce_plan,
    .cost = ring_all_reduce_cost,
    .translates = true,
    .summary = "reduce-scatter, then all-gather, around a ring; least bytes, 2(n-1) steps",
};
