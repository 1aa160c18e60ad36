/* Gather on a binomial tree: a rank collects the blocks of its subtree and sends them on together.
 *
 * The root takes lg n messages instead of n - 1: best for small blocks and many ranks. Places are
 * counted from the root, so a subtree's blocks are in a row in SCRATCH; in the root's OUT they may
 * wrap from block n-1 to 0, and go in two messages then (one a block with several lanes). */
#include "coll/algorithms/parts.h"

/* Move the blocks of places [first, first + count) between `place` and its parent. At the root they
 * lie in OUT, elsewhere in SCRATCH, `offset` blocks from its start. */
static void gather_move(struct tti_builder *b, int lane, const struct tti_plan_spec *spec,
                        int first, int count, int offset, int peer, bool receive)
{
    int n = spec->nranks, lanes = spec->lanes, root = spec->root;
    bool at_root = spec->rank == root, to_root = at_root || (!receive && peer == root);
    for (int done = 0, run; done < count; done += run) {
        int block = tti_mod(root + first + done, n);
        run = to_root ? tti_block_run(block, count - done, n, lanes)
                      : tti_block_run(0, count - done, n, lanes);
        uint32_t stored = (uint32_t)((offset + done) * lanes + lane);
        if (!receive)
            tti_send(b, lane, (uint32_t)lane, (uint32_t)run, tti_scratch(stored), peer);
        else
            tti_recv(b, lane, (uint32_t)lane, (uint32_t)run, peer,
                     at_root ? tti_out((uint32_t)(block * lanes + lane)) : tti_scratch(stored), 0,
                     -1);
    }
}

static enum tutti_result tree_gather_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    int n = spec->nranks, lanes = spec->lanes, place = tti_mod(spec->rank - spec->root, n);
    int size = tti_binomial_size(n, place), parent = (tti_binomial_parent(place) + spec->root) % n;
    bool inside = place > 0 && size > 1;
    struct tti_builder b;
    tti_plan_begin(&b, spec, lanes, (uint32_t)lanes, inside ? (uint32_t)size : 0, 0);
    for (int lane = 0; lane < lanes; lane++) {
        uint32_t chunk = (uint32_t)lane;
        if (place > 0 && size == 1) {
            tti_send(&b, lane, chunk, 1, tti_in(chunk), parent);
            continue;
        }
        tti_copy(&b, lane, chunk, 1, tti_in(chunk),
                 inside ? tti_scratch(chunk) : tti_out((uint32_t)(spec->root * lanes + lane)), 0,
                 -1);
        for (int k = 1; k < size; k *= 2)
            gather_move(&b, lane, spec, place + k, tti_binomial_size(n, place + k), k,
                        (place + k + spec->root) % n, true);
        if (inside)
            gather_move(&b, lane, spec, place, size, 0, parent, false);
    }
    return tti_plan_finish(&b, plan);
}

static double tree_gather_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                               double beta)
{
    return tti_log2_ceil(spec->nranks) * alpha + (spec->nranks - 1) * bytes * beta;
}

const struct tti_algorithm tti_tree_gather = {
    .name = "tree",
    .collective = TUTTI_GATHER,
    .plan = tree_gather_plan,
    .cost = tree_gather_cost,
    .summary = "binomial tree, subtrees travel together; lg n steps",
};
