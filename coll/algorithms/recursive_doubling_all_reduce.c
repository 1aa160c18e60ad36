/* All-reduce by recursive doubling: in step k ranks exchange all they have with the rank 2^k away.
 *
 * lg n steps of the whole block: best for small blocks. Both ranks of an exchange compute lower op
 * upper, so all get the same bits. When n is no power of two, the odd rank of each surplus pair
 * gives its block to the even one before and gets the result after (tti_fold).
 *
 * The sum alternates between two slots: the step that receives must not wait for the partner to
 * take what this rank has just sent, since the partner waits likewise.
 *
 * Source: Thakur, Rabenseifner, Gropp, Optimization of collective communication operations in
 * MPICH, IJHPCA 2005. */
#include "coll/algorithms/parts.h"

static void doubling_lane(struct tti_builder *b, int lane, const struct tti_plan_spec *spec)
{
    int n = spec->nranks;
    struct tti_fold fold = tti_fold_of(n, spec->rank);
    uint32_t chunk = (uint32_t)lane, slots = 2 * (uint32_t)lane;
    if (fold.place < 0) {
        tti_send(b, lane, chunk, 1, tti_in(chunk), fold.extra);
        tti_recv(b, lane, chunk, 1, fold.extra, tti_out(chunk), 0, -1);
        return;
    }
    struct tti_ref sum = tti_in(chunk);
    if (fold.extra >= 0) {
        tti_recv_reduce(b, lane, chunk, 1, fold.extra, sum, tti_slot(slots), 0, -1);
        sum = tti_slot(slots);
    }
    for (int mask = 1, turn = 1; mask < fold.size; mask *= 2, turn ^= 1) {
        int place = fold.place ^ mask;
        int peer = tti_fold_rank(n, fold.size, place);
        bool complete = mask == fold.size / 2;
        bool pass_on = complete && fold.extra >= 0;
        bool peer_sums = mask > 1 || tti_fold_of(n, peer).extra >= 0;
        struct tti_ref dst = complete ? tti_out(chunk) : tti_slot(slots + (uint32_t)turn);
        tti_send(b, lane, chunk, 1, sum, peer);
        tti_recv_reduce(b, lane, chunk, 1, peer, sum, dst,
                        (peer_sums ? TTI_MSG_ACC : 0) | (place < fold.place ? TTI_MSG_LEFT : 0) |
                            (complete ? TTI_FINAL : 0) | (pass_on ? TTI_FORWARD : 0),
                        pass_on ? fold.extra : -1);
        sum = dst;
    }
}

static enum tutti_result doubling_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    int n = spec->nranks, rank = spec->rank;
    struct tti_builder b;
    tti_plan_begin(&b, spec, spec->lanes, (uint32_t)spec->lanes, 0, 2 * (uint32_t)spec->lanes);
    for (int lane = 0; lane < spec->lanes; lane++) {
        uint32_t chunk = (uint32_t)lane;
        if (n == 1)
            tti_copy(&b, lane, chunk, 1, tti_in(chunk), tti_out(chunk), TTI_FINAL, -1);
        else if (n == 2)
            tti_pair_all_reduce(&b, lane, chunk, rank == 1, 1 - rank, chunk);
        else
            doubling_lane(&b, lane, spec);
    }
    return tti_plan_finish(&b, plan);
}

static double doubling_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                            double beta)
{
    int size = tti_power_floor(spec->nranks);
    double steps = tti_log2_ceil(size) + (size < spec->nranks ? 2 : 0);
    return steps * (alpha + bytes * beta);
}

const struct tti_algorithm tti_recursive_doubling_all_reduce = {
    .name = "recursive_doubling",
    .collective = TUTTI_ALL_REDUCE,
    .plan = doubling_plan,
    .cost = doubling_cost,
    .summary = "exchange everything with the rank 2^k away; lg n steps of the whole block",
};
