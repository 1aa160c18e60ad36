/* All-reduce on two binary trees: half the data up and down each, in slices.
 *
 * The trees are complementary: a rank that is inside one is a leaf of the other, so every rank
 * sends and receives about twice the block, and the latency grows with lg n only. Best for many
 * ranks and medium blocks. Even lanes use the first tree, odd lanes the second; an odd number of
 * lanes is made even.
 *
 * A tree over positions 1 .. n: position v with lowest set bit b has the children v - b/2 and
 * v + h, h the largest power of two below b that fits; odd positions are leaves. The first tree has
 * rank r at r + 1; the second mirrors it (n even) or shifts it by one (n odd).
 *
 * Slices go up and come down at once: a rank at depth d takes slice s - 2d down after it has sent
 * slice s up, which is when it arrives. Why this cannot block with one message per channel: let H
 * be the height; put the upward step of slice s at depth d at time s + H - d, the downward one at
 * s + H + d, at equal times upward steps first, those in order of depth, the downward ones
 * against it. Every step needs only earlier ones: the data comes from time - 1, the place in the
 * channel to a neighbour is freed by the neighbour's step for slice s - 1 at the same time, which
 * is before in that order; and this is the order of each lane.
 *
 * Source: Sanders, Speck, Traff, Two-tree algorithms for full bandwidth broadcast, reduction and
 * scan, Parallel Computing 2009. */
#include "coll/algorithms/parts.h"

#include <math.h>

struct tree_node {
    int parent; /* rank; -1 at the root */
    int children[2];
    bool child_sums[2]; /* the child is not a leaf, so it sends partial sums */
    int nchildren;
    int depth;
};

static int tree_parent(int v, int n)
{
    do {
        int b = v & -v;
        v = (v ^ b) | (2 * b);
    } while (v > n);
    return v;
}

static int tree_position(int rank, int n, int which)
{
    if (which == 0)
        return rank + 1;
    return n % 2 == 0 ? n - rank : (rank == 0 ? n : rank);
}

static int tree_rank(int v, int n, int which)
{
    if (which == 0)
        return v - 1;
    return n % 2 == 0 ? n - v : v % n;
}

static struct tree_node tree_node_of(int rank, int n, int which)
{
    struct tree_node node = {.parent = -1};
    int v = tree_position(rank, n, which), b = v & -v, root = tti_power_floor(n);
    if (v != root)
        node.parent = tree_rank(tree_parent(v, n), n, which);
    for (int up = v; up != root; up = tree_parent(up, n))
        node.depth++;
    int right = b / 2;
    while (right > 0 && v + right > n)
        right /= 2;
    if (b > 1) {
        node.child_sums[0] = (b / 2) > 1;
        node.children[node.nchildren++] = tree_rank(v - b / 2, n, which);
    }
    if (right > 0) {
        node.child_sums[node.nchildren] = right > 1;
        node.children[node.nchildren++] = tree_rank(v + right, n, which);
    }
    return node;
}

/* Combine the children's sums of a chunk with the own one, and pass it up; the root completes it
 * and passes it down. */
static void tree_up(struct tti_builder *b, int lane, uint32_t chunk, const struct tree_node *node,
                    uint32_t slot)
{
    bool root = node->parent < 0;
    if (node->nchildren == 0 && root)
        tti_copy(b, lane, chunk, 1, tti_in(chunk), tti_out(chunk), TTI_FINAL, -1);
    else if (node->nchildren == 0)
        tti_send(b, lane, chunk, 1, tti_in(chunk), node->parent);
    struct tti_ref sum = tti_in(chunk);
    for (int c = 0; c < node->nchildren; c++) {
        bool last = c == node->nchildren - 1;
        struct tti_ref dst = last && root ? tti_out(chunk) : tti_slot(slot);
        int flags = (node->child_sums[c] ? TTI_MSG_ACC : 0) | (last ? TTI_FORWARD : 0) |
                    (last && root ? TTI_FINAL : 0);
        int to = !last ? -1 : root ? node->children[0] : node->parent;
        tti_recv_reduce(b, lane, chunk, 1, node->children[c], sum, dst, flags, to);
        sum = dst;
    }
    if (root && node->nchildren > 1)
        tti_send(b, lane, chunk, 1, tti_out(chunk), node->children[1]);
}

static void tree_down(struct tti_builder *b, int lane, uint32_t chunk, const struct tree_node *node)
{
    bool inside = node->nchildren > 0;
    tti_recv(b, lane, chunk, 1, node->parent, tti_out(chunk), inside ? TTI_FORWARD : 0,
             inside ? node->children[0] : -1);
    if (node->nchildren > 1)
        tti_send(b, lane, chunk, 1, tti_out(chunk), node->children[1]);
}

static enum tutti_result tree_all_reduce_plan(const struct tti_plan_spec *spec,
                                              struct tti_plan **plan)
{
    int lanes = spec->lanes + spec->lanes % 2, slices = spec->slices;
    struct tti_builder b;
    tti_plan_begin(&b, spec, lanes, (uint32_t)(lanes * slices), 0, 2 * (uint32_t)lanes);
    for (int lane = 0; lane < lanes; lane++) {
        struct tree_node node = tree_node_of(spec->rank, spec->nranks, lane % 2);
        int lag = 2 * node.depth;
        for (int s = 0; s < slices + lag; s++) {
            int base = lane * slices;
            if (s < slices)
                tree_up(&b, lane, (uint32_t)(base + s), &node, (uint32_t)(2 * lane + (s & 1)));
            if (s >= lag && node.parent >= 0)
                tree_down(&b, lane, (uint32_t)(base + s - lag), &node);
        }
    }
    return tti_plan_finish(&b, plan);
}

/* Of s slices; its least over s is 2 bytes beta + 4 lg n alpha + 2 sqrt(8 lg n bytes alpha beta).
 */
static double tree_all_reduce_cost(const struct tti_plan_spec *spec, double bytes, double alpha,
                                   double beta)
{
    double slices = spec->slices;
    if (spec->nranks == 1)
        return 0;
    return (4 * log2(spec->nranks) + 4 * slices) * (alpha + bytes / (2 * slices) * beta);
}

const struct tti_algorithm tti_tree_all_reduce = {
    .name = "tree",
    .collective = TUTTI_ALL_REDUCE,
    .plan = tree_all_reduce_plan,
    .cost = tree_all_reduce_cost,
    .sliced = true,
    .summary = "two complementary binary trees, up and down in slices; about 4 lg n latencies",
};
