/* Scatter on a binomial tree: a rank gets the blocks of its subtree together and deals them out.
 *
 * The root sends lg n messages instead of n - 1: best for small blocks and many ranks. As in
 * tree_gather.c, a subtree's blocks are in a row in SCRATCH, and may wrap in the root's IN. */
#include "coll/algorithms/parts.h"

/* Cut the blocks of places [first, first + count) into messages from the root, or below it. */
static int scatter_run(const struct tti_plan_spec *spec, bool root_gives, int first, int count)
{
    return root_gives ? tti_block_run(spec->root + first, count, spec->nranks) : count;
}

static void scatter_child(struct tti_builder *b, const struct tti_plan_spec *spec, int place, int k)
{
    int n = spec->nranks, root = spec->root, child = place + k;
    int count = tti_binomial_size(n, child);
    for (int j = 0, run; j < count; j += run) {
        run = scatter_run(spec, place == 0, child + j, count - j);
        struct tti_ref src = place == 0 ? tti_in((uint32_t)((root + child + j) % n))
                                        : tti_scratch((uint32_t)(k + j));
        tti_send(b, 0, 0, (uint32_t)run, src, (child + root) % n);
    }
}

static enum tutti_result tree_scatter_plan(const struct tti_plan_spec *spec, struct tti_plan **plan)
{
    int n = spec->nranks, root = spec->root, place = tti_mod(spec->rank - root, n);
    int size = tti_binomial_size(n, place), parent = tti_binomial_parent(place);
    bool leaf = size == 1;
    struct tti_builder b;
    tti_plan_begin(&b, spec, 1, 1, place > 0 && !leaf ? (uint32_t)size : 0, 0);
    for (int j = 0, run; place > 0 && j < size; j += run) {
        run = scatter_run(spec, parent == 0, place + j, size - j);
        tti_recv(&b, 0, 0, (uint32_t)run, (parent + root) % n,
                 leaf ? tti_out(0) : tti_scratch((uint32_t)j), 0, -1);
    }
    for (int k = tti_power_floor(n); k >= 1; k /= 2)
        if (k < size)
            scatter_child(&b, spec, place, k);
    if (place == 0)
        tti_copy(&b, 0, 0, 1, tti_in((uint32_t)root), tti_out(0), 0, -1);
    else if (!leaf)
        tti_copy(&b, 0, 0, 1, tti_scratch(0), tti_out(0), 0, -1);
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
