/* Trees over described machines: each reaches every stop once from its root, no link carries more
 * than it can, and the sums are the best that the machines allow; also over hosts that differ. */
#include "topology/host_shapes.h"
#include "topology/trees.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/topology/described.h"
#include "tests/tutti_cmocka.h"

/* Every tree has all stops, each after its parent; hops leave hosts by NICs and only then. */
static void check_shape(const struct tti_topology *topology, const struct tti_trees *trees,
                        const int *stops)
{
    for (int t = 0; t < trees->count; t++) {
        const struct tti_hop *hops = &trees->hops[t * trees->stops];
        assert_int_equal(hops[0].from, -1);
        for (int i = 0; i < trees->stops; i++) {
            int visits = 0;
            int parents = i == 0;
            for (int k = 0; k < trees->stops; k++)
                visits += hops[k].to == stops[i];
            for (int k = 0; k < i; k++)
                parents += hops[k].to == hops[i].from;
            assert_int_equal(visits, 1);
            assert_int_equal(parents, 1);
            bool leaves = i > 0 && tti_topology_above(topology, hops[i].from, TTI_NODE_HOST) !=
                                       tti_topology_above(topology, hops[i].to, TTI_NODE_HOST);
            assert_int_equal(hops[i].kind == TTI_LINK_NETWORK, leaves);
            assert_int_equal(hops[i].nic_out >= 0 && hops[i].nic_in >= 0, leaves);
        }
    }
}

/* What a node sends over a kind of link to another (-1: to any), GB/s. */
static double sent(const struct tti_trees *trees, enum tti_link_kind kind, int from, int to)
{
    double gbs = 0;
    bool network = kind == TTI_LINK_NETWORK;
    for (int i = 0; i < trees->count * trees->stops; i++) {
        const struct tti_hop *hop = &trees->hops[i];
        int a = network ? hop->nic_out : hop->from;
        int b = network ? hop->nic_in : hop->to;
        if (hop->from < 0 || hop->kind != kind)
            continue;
        if (a == from && (to < 0 || b == to))
            gbs += trees->gbs;
        if (trees->use == TTI_TREES_ALL_REDUCE && b == from && (to < 0 || a == to))
            gbs += trees->gbs;
    }
    return gbs;
}

static void check_loads(const struct tti_topology *topology, const struct tti_trees *trees)
{
    for (size_t i = 0; i < topology->link_count; i++) {
        const struct tti_graph_link *link = &topology->links[i];
        bool to_switch = topology->nodes[link->to].kind == TTI_NODE_SWITCH;
        if (link->kind == TTI_LINK_PCI || link->gbs <= 0)
            continue;
        double out = sent(trees, link->kind, link->from, to_switch ? -1 : link->to);
        assert_true(out <= link->gbs * (1 + 1e-6));
        if (!to_switch)
            assert_true(sent(trees, link->kind, link->to, link->from) <= link->gbs * (1 + 1e-6));
    }
}

static void check_use(struct tti_topology *topology, enum tti_node_kind kind, enum tti_tree_use use,
                      int root, double sum_wanted)
{
    int stops[MOST_STOPS];
    struct tti_trees *trees = NULL;
    struct tti_trees *again = NULL;
    int count = stops_of(topology, kind, stops);
    if (tti_trees_search(topology, stops, count, use, root, &trees) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    check_shape(topology, trees, stops);
    check_loads(topology, trees);
    double sum = trees->count * trees->gbs;
    if (fabs(sum - sum_wanted) > 0.001)
        fail_msg("%s: %d trees of %g GB/s: %g instead of %g (limit %g)", topology->source,
                 trees->count, trees->gbs, sum, sum_wanted, trees->limit.gbs);
    assert_true(sum <= trees->limit.gbs * (1 + 1e-6));
    for (int t = 0; t < trees->count && root >= 0; t++)
        assert_int_equal(trees->hops[t * count].to, stops[root]);
    /* The same input, the same trees. */
    assert_int_equal(tti_trees_search(topology, stops, count, use, root, &again), TUTTI_OK);
    assert_int_equal(again->count, trees->count);
    assert_memory_equal(again->hops, trees->hops,
                        (size_t)trees->count * (size_t)count * sizeof *trees->hops);
    tti_trees_destroy(again);
    tti_trees_destroy(trees);
}

static void check(const char *text, enum tti_node_kind kind, double sum_wanted)
{
    struct tti_topology *topology = described(text);
    check_use(topology, kind, TTI_TREES_ALL_REDUCE, -1, sum_wanted);
    tti_topology_destroy(topology);
}

static void check_broadcast(const char *text, int root, double sum_wanted)
{
    struct tti_topology *topology = described(text);
    check_use(topology, TTI_NODE_GPU, TTI_TREES_BROADCAST, root, sum_wanted);
    tti_topology_destroy(topology);
}

/* Through a switch, n - 1 hops each take both directions of two GPUs: n links over 2 (n - 1). */
static void one_host(void **state)
{
    (void)state;
    check("2 gpus, mesh 100", TTI_NODE_GPU, 100);
    check("8 gpus, nvlink 450", TTI_NODE_GPU, 8 * 450.0 / 14);
    check("4 gpus, nvlink 300", TTI_NODE_GPU, 4 * 300.0 / 6);
    check("8 gpus, pcie 25, 2 packages, 4 switches", TTI_NODE_GPU, 8 * 25.0 / 14);
    check("4 gpus, mesh 50", TTI_NODE_GPU, 100);
    check("8 gpus, cube 25", TTI_NODE_GPU, 10 * 25.0 / 3); /* at most 8 * 150 / 14 = 85.7 */
}

static void broadcasts_go_one_way(void **state)
{
    (void)state;
    check_broadcast("8 gpus, nvlink 450", 0, 450);
    check_broadcast("8 gpus, nvlink 450", 5, 450);
    check_broadcast("4 gpus, mesh 50", 2, 150);
    check_broadcast("8 gpus, cube 25", 0, 150);
    check_broadcast("4 hosts x 8 gpus, nvlink 450, 8 nics 50", 9, 400);
    check_broadcast("2 hosts x 8 gpus, nvlink 450, 8 nics 50; 1 host x 4 gpus, pcie 25, 1 nic 25",
                    0, 25);
}

/* Two hosts exchange all that their NICs carry. Of n, n - 1 hops each take both directions of two.
 */
static void several_hosts(void **state)
{
    (void)state;
    check("2 hosts x 8 gpus, nvlink 450, 8 nics 50", TTI_NODE_GPU, 8 * 450.0 / 14);
    check("2 hosts x 8 gpus, nvlink 900, 8 nics 50", TTI_NODE_GPU, 400);
    check("4 hosts x 8 gpus, nvlink 450, 8 nics 50", TTI_NODE_GPU, 250); /* 4 * 400 / 6 = 267 */
    check("3 hosts x 1 gpu, 1 nic 50", TTI_NODE_GPU, 3 * 50.0 / 4);
    check("16 hosts x 1 gpu, 1 nic 12.5, pcie 32", TTI_NODE_GPU, 6.25); /* 16 * 12.5 / 30 = 6.7 */
    check("4 hosts, 2 nics 12.5", TTI_NODE_HOST, 4 * 25.0 / 6);
}

static void hosts_that_differ(void **state)
{
    (void)state;
    check("1 host x 8 gpus, nvlink 450, 8 nics 50; 1 host x 4 gpus, nvlink 300, 4 nics 25",
          TTI_NODE_GPU, 100);
    check("2 hosts x 8 gpus, nvlink 450, 8 nics 50; 1 host x 4 gpus, pcie 50, 1 nic 25",
          TTI_NODE_GPU, 25);
    check("1 host x 8 gpus, cube 25, 4 nics 12.5; 2 hosts x 2 gpus, pcie 16, 1 nic 12.5",
          TTI_NODE_GPU, 2 * 16.0 / 3);
    check("1 host x 1 gpu, 1 nic 50; 1 host x 3 gpus, mesh 50, 2 nics 12.5", TTI_NODE_GPU, 25);
}

static void what_is_unknown_does_not_limit(void **state)
{
    (void)state;
    check("4 gpus", TTI_NODE_GPU, 0);
    check("4 gpus, 2 nics 50", TTI_NODE_GPU, 0);
}

/* Each host is in the tree once; of a pair no host passes on in both, but for one of an odd
 * number; and every host has at most two below it. */
static void pairs_of_trees_over_hosts(void **state)
{
    enum { MOST = 70 };
    int order[MOST];
    int parent[MOST];
    (void)state;
    for (int hosts = 1; hosts <= MOST; hosts++)
        for (int root = -1; root < hosts; root += 1 + hosts / 4) {
            int inner_in_both = 0;
            int inner[MOST] = {0};
            int line[MOST];
            for (int i = 0; i < hosts; i++)
                line[i] = hosts - 1 - i;
            for (int tree = 0; tree < 2 * TTI_SHAPES; tree++) {
                int children[MOST] = {0};
                tti_host_shape((enum tti_host_shape)(tree / 2), tree % 2, hosts, root, line, order,
                               parent);
                for (int i = 0; i < hosts; i++) {
                    int above = parent[order[i]];
                    bool before = above == -1;
                    for (int k = 0; k < i; k++) {
                        assert_int_not_equal(order[k], order[i]);
                        before |= order[k] == above;
                    }
                    assert_true(before);
                    assert_int_equal(above == -1, i == 0);
                    if (above >= 0)
                        assert_true(++children[above] <= (tree / 2 == TTI_SHAPE_CHAIN ? 1 : 2));
                }
                assert_true(root < 0 || order[0] == root);
                for (int i = 0; i < hosts && tree < 2; i++)
                    inner[i] += children[i] > 0;
            }
            for (int i = 0; i < hosts; i++)
                inner_in_both += inner[i] == 2 && i != root;
            assert_true(inner_in_both <= 1);
        }
}

static void wrong_stops_are_refused(void **state)
{
    struct tti_topology *topology = described("2 hosts x 2 gpus");
    struct tti_trees *trees = NULL;
    int stops[MOST_STOPS];
    int count = stops_of(topology, TTI_NODE_GPU, stops);
    int twice[] = {1, 2, 1};
    (void)state;
    assert_int_equal(tti_trees_search(topology, stops, 1, TTI_TREES_BROADCAST, -1, &trees),
                     TUTTI_ERR_ARGUMENT);
    assert_int_equal(tti_trees_search(topology, twice, 3, TTI_TREES_BROADCAST, -1, &trees),
                     TUTTI_ERR_ARGUMENT);
    assert_int_equal(tti_trees_search(topology, stops, count, TTI_TREES_BROADCAST, 4, &trees),
                     TUTTI_ERR_ARGUMENT);
    assert_int_equal(tti_trees_search(topology, stops, count, TTI_TREES_BROADCAST, -1, &trees),
                     TUTTI_ERR_UNSUPPORTED);
    assert_null(trees);
    tti_topology_destroy(topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_host),
        cmocka_unit_test(broadcasts_go_one_way),
        cmocka_unit_test(several_hosts),
        cmocka_unit_test(hosts_that_differ),
        cmocka_unit_test(what_is_unknown_does_not_limit),
        cmocka_unit_test(pairs_of_trees_over_hosts),
        cmocka_unit_test(wrong_stops_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
