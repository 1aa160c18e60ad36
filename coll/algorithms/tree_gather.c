/* Gather on a binomial tree: a rank collects the blocks of its subtree and sends them on together.
 *
 * The root takes lg n messages instead of n - 1: best for small blocks and many ranks. Places are
 * counted from the root, so a subtree's blocks are in a row in SCRATCH; in the root's OUT they may
 * wrap from block n-1 to 0, and go in two messages then. */
#include "coll/algorithms/parts.h"

/* Cut the blocks of places [first, first + count) into messages for, or at, the root. */
static int gather_run(const struct tti_plan_spec *spec, bool root_takes, int first, int count)
{
    return root_takes ? tti_block_run(spec->root + first, count, spec->nranks) : count;
}

static void gather_child(struct tti_builder *b, const struct tti_plan_spec *spec, int place, int k)
{
    int n = spec->nranks, root = spec->root, child = place + k;
    int count = tti_binomial_size(n, child);
    for (int j = 0, run; j < count; j += run) {
        run = gather_run(spec, place == 0, child + j, count - j);
        struct tti_ref dst = place == 0 ? tti_out((uint32_t)((root + child + j) % n))
                                        : tti_scratch((uint32_t)(k + j));
        tti_recv(b, 0, 0, (uint32_t)run, (child + root) % n, dst, 0, -1);
    }
}

static enum tutti_result tree_gather_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    int n = spec->nranks, root = spec->root, place = tti_mod(spec->rank - root, n);
    int size = tti_binomial_size(n, place), parent = tti_binomial_parent(place);
    bool inside = place > 0 && size > 1;
    struct tti_builder b;
    tti_plan_begin(&b, spec, 1, 1, inside ? (uint32_t)size : 0, 0);
    if (place == 0)
        tti_copy(&b, 0, 0, 1, tti_in(0), tti_out((uint32_t)root), 0, -1);
    else if (inside)
        tti_copy(&b, 0, 0, 1, tti_in(0), tti_scratch(0), 0, -1);
    else
        tti_send(&b, 0, 0, 1, tti_in(0), (parent + root) % n);
    for (int k = 1; k < size; k *= 2)
        gather_child(&b, spec, place, k);
    for (int j = 0, run; inside && j < size; j += run) {
        run = gather_run(spec, parent == 0, place + j, size - j);
        tti_send(&b, 0, 0, (uint32_t)run, tti_scratch((uint32_t)j), (parent + root) % n);
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
