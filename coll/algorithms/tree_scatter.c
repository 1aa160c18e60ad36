/* Scatter on a binomial tree: a rank gets the blocks of its subtree together and deals them out.
 *
 * The root sends lg n messages instead of n - 1: best for small blocks and many ranks. As in
 * tree_gather.c, a subtree's blocks are in a row in SCRATCH, and may wrap in the root's IN. */
#include "coll/algorithms/parts.h"

/* Send the blocks of the subtree at place + k. */
static void scatter_child(struct tti_builder *b, int lane, const struct tti_plan_spec *spec,
                          int place, int k)
{
    int n = spec->nranks, lanes = spec->lanes, root = spec->root;
    int count = tti_binomial_size(n, place + k), peer = (place + k + root) % n;
    for (int done = 0, run; done < count; done += run) {
        int block = place == 0 ? tti_mod(root + k + done, n) : k + done;
        run = tti_block_run(block, count - done, n, lanes);
        uint32_t at = (uint32_t)(block * lanes + lane);
        tti_send(b, lane, (uint32_t)lane, (uint32_t)run, place == 0 ? tti_in(at) : tti_scratch(at),
                 peer);
    }
}

/* Receive the own subtree's blocks: a leaf's straight to OUT. */
static void scatter_own(struct tti_builder *b, int lane, const struct tti_plan_spec *spec,
                        int place, int size)
{
    int n = spec->nranks, lanes = spec->lanes, root = spec->root;
    int parent = tti_binomial_parent(place);
    for (int done = 0, run; done < size; done += run) {
        int block = parent == 0 ? tti_mod(root + place + done, n) : 0;
        run = tti_block_run(block, size - done, n, lanes);
        uint32_t at = (uint32_t)(done * lanes + lane);
        tti_recv(b, lane, (uint32_t)lane, (uint32_t)run, (parent + root) % n,
                 size == 1 ? tti_out(at) : tti_scratch(at), 0, -1);
    }
}

static enum tutti_result tree_scatter_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    int n = spec->nranks, lanes = spec->lanes, place = tti_mod(spec->rank - spec->root, n);
    int size = tti_binomial_size(n, place);
    bool inside = place > 0 && size > 1;
    struct tti_builder b;
    tti_plan_begin(&b, spec, lanes, (uint32_t)lanes, inside ? (uint32_t)size : 0, 0);
    for (int lane = 0; lane < lanes; lane++) {
        uint32_t chunk = (uint32_t)lane;
        if (place > 0)
            scatter_own(&b, lane, spec, place, size);
        for (int k = tti_power_floor(n); k >= 1; k /= 2)
            if (k < size)
                scatter_child(&b, lane, spec, place, k);
        if (place == 0)
            tti_copy(&b, lane, chunk, 1, tti_in((uint32_t)(spec->root * lanes + lane)),
                     tti_out(chunk), 0, -1);
        else if (inside)
            tti_copy(&b, lane, chunk, 1, tti_scratch(chunk), tti_out(chunk), 0, -1);
    }
    return tti_plan_finish(&b, plan);
}

static double tree_scatter_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                                double beta)
{
    return tti_log2_ceil(spec->nranks) * alpha + (spec->nranks - 1) * bytes * beta;
}

const struct tti_algorithm tti_tree_scatter = {
    .name = "tree",
    .collective = TUTTI_SCATTER,
    .plan = tree_scatter_plan,
    .cost = tree_scatter_cost,
    .summary = "binomial tree, subtrees travel together; lg n steps",
};
