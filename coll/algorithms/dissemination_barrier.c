/* Barrier by dissemination: in step k hear from the rank 2^k below, tell the one 2^k above.
 *
 * After ceil(lg n) steps everybody has heard from everybody, some more than once when n is no power
 * of two: the operator of a barrier does not mind. Sums alternate between two slots, so that a step
 * does not wait for the peer to take the message before. Two ranks have one step only, which in
 * place would write what it sends: they receive apart.
 *
 * Source: Hensgen, Finkel, Manber, Two algorithms for barrier synchronization, IJPP 1988. */
#include "coll/algorithms/parts.h"

static enum tutti_result dissemination_plan(const struct tti_plan_spec *spec,
                                            struct tti_plan **plan)
{
    int n = spec->nranks, rank = spec->rank;
    struct tti_builder b;
    tti_plan_begin(&b, spec, 1, 1, 0, 2);
    struct tti_ref heard = tti_in(0);
    if (n == 1)
        tti_copy(&b, 0, 0, 1, heard, tti_out(0), TTI_FINAL, -1);
    if (n == 2) {
        tti_send(&b, 0, 0, 1, heard, 1 - rank);
        tti_recv(&b, 0, 0, 1, 1 - rank, tti_slot(0), 0, -1);
        tti_reduce_step(&b, 0, 0, 1, tti_slot(0), heard, tti_out(0), TTI_FINAL, -1);
    }
    for (int step = 1, turn = 0; step < n && n > 2; step *= 2, turn ^= 1) {
        bool complete = 2 * step >= n;
        struct tti_ref dst = complete ? tti_out(0) : tti_slot((uint32_t)turn);
        tti_send(&b, 0, 0, 1, heard, (rank + step) % n);
        tti_recv_reduce(&b, 0, 0, 1, tti_mod(rank - step, n), heard, dst,
                        (step > 1 ? TTI_MSG_ACC : 0) | (complete ? TTI_FINAL : 0), -1);
        heard = dst;
    }
    return tti_plan_finish(&b, plan);
}

static double dissemination_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                                 double beta)
{
    return tti_log2_ceil(spec->nranks) * (alpha + bytes * beta);
}

const struct tti_algorithm tti_dissemination_barrier = {
    .name = "dissemination",
    .collective = TUTTI_BARRIER,
    .plan = dissemination_plan,
    .cost = dissemination_cost,
    .translates = true,
    .summary = "tell the rank 2^k above, hear from the one 2^k below; ceil(lg n) steps",
};
