/* All-reduce along the chain of ranks and back, in the order of ranks, in slices.
 *
 * Rank 0 sends its part of a slice to rank 1, which adds its own on the right and passes the sum
 * on; rank n-1 completes it, and it comes back the same way. Neighbours talk to each other only, so
 * where ranks are dealt to hosts in blocks a host's line carries the block once up and once down,
 * however many ranks the host has. It is for the reproducible mode, which leaves out rings and
 * trees (each chunk of a ring begins at another rank): two_shot has the same order, but sends
 * between any two ranks, over a host's line as often as there are ranks on it.
 *
 * Up and down overlap as in tree_all_reduce.c, of which this is the case of a tree with one child
 * each: a rank at distance d from rank n-1 takes slice s - 2d down after it has sent slice s up.
 * Why that cannot block with one message per channel is argued there. */
#include "coll/algorithms/parts.h"

static void chain_up(struct tti_builder *b, int lane, uint32_t chunk, uint32_t slot,
                     const struct tti_plan_spec *spec)
{
    int n = spec->nranks, rank = spec->rank;
    bool last = rank == n - 1;
    int flags = TTI_MSG_LEFT | TTI_FORWARD | (rank > 1 ? TTI_MSG_ACC : 0) | (last ? TTI_FINAL : 0);
    if (rank == 0)
        tti_send(b, lane, chunk, 1, tti_in(chunk), 1);
    else
        tti_recv_reduce(b, lane, chunk, 1, rank - 1, tti_in(chunk),
                        last ? tti_out(chunk) : tti_slot(slot), flags, last ? rank - 1 : rank + 1);
}

static void chain_down(struct tti_builder *b, int lane, uint32_t chunk, int rank)
{
    tti_recv(b, lane, chunk, 1, rank + 1, tti_out(chunk), rank > 0 ? TTI_FORWARD : 0, rank - 1);
}

static enum tutti_result chain_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    int n = spec->nranks, lanes = spec->lanes, slices = spec->slices;
    int lag = 2 * (n - 1 - spec->rank);
    struct tti_builder b;
    tti_plan_begin(&b, spec, lanes, (uint32_t)(lanes * slices), 0, 2 * (uint32_t)lanes);
    for (int lane = 0; lane < lanes; lane++)
        for (int s = 0; s < slices + lag; s++) {
            uint32_t chunk = (uint32_t)(lane * slices + s);
            if (n == 1)
                tti_copy(&b, lane, chunk, 1, tti_in(chunk), tti_out(chunk), TTI_FINAL, -1);
            else if (s < slices)
                chain_up(&b, lane, chunk, (uint32_t)(2 * lane + (s & 1)), spec);
            if (s >= lag && lag > 0)
                chain_down(&b, lane, chunk - (uint32_t)lag, spec->rank);
        }
    return tti_plan_finish(&b, plan);
}

/* The first slice goes up and comes back; then one after another, by ranks that send two. */
static double chain_cost(const struct tti_plan_spec *spec, double bytes, double alpha, double beta)
{
    double n = spec->nranks, slices = spec->slices, slice = bytes / slices;
    return n > 1 ? 2 * (n - 1) * (alpha + slice * beta) +
                       (slices - 1) * (alpha + (n > 2 ? 2 : 1) * slice * beta)
                 : 0;
}

const struct tti_algorithm tti_ordered_chain_all_reduce = {
    .name = "ordered_chain",
    .collective = TUTTI_ALL_REDUCE,
    .plan = chain_plan,
    .cost = chain_cost,
    .sliced = true,
    .ordered = true,
    .by_request = true,
    .summary = "rank by rank up and back down in slices, in rank order; 2(n-1)+s-1 steps of B/s",
};
