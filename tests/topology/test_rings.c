/* Rings over described machines: each visits every stop once, no link carries more than it can, and
 * the sums are the best that the machines allow. */
#include "topology/rings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/topology/described.h"
#include "tests/tutti_cmocka.h"

/* Every ring goes through all stops, hop after hop, and ends where it began. */
static void check_visits(const struct tti_topology *topology, const struct tti_rings *rings,
                         const int *stops)
{
    for (int r = 0; r < rings->count; r++) {
        const struct tti_hop *hops = &rings->hops[r * rings->stops];
        for (int i = 0; i < rings->stops; i++) {
            int visits = 0;
            for (int k = 0; k < rings->stops; k++)
                visits += hops[k].from == stops[i];
            assert_int_equal(visits, 1);
            assert_int_equal(hops[i].to, hops[(i + 1) % rings->stops].from);
            bool leaves = tti_topology_above(topology, hops[i].from, TTI_NODE_HOST) !=
                          tti_topology_above(topology, hops[i].to, TTI_NODE_HOST);
            assert_int_equal(hops[i].kind == TTI_LINK_NETWORK, leaves);
            assert_int_equal(hops[i].nic_out >= 0 && hops[i].nic_in >= 0, leaves);
        }
    }
}

/* Hops of all rings that leave (or reach) a node by a kind of link. */
static int uses(const struct tti_rings *rings, enum tti_link_kind kind, int from, int to)
{
    int found = 0;
    for (int i = 0; i < rings->count * rings->stops; i++) {
        const struct tti_hop *hop = &rings->hops[i];
        bool network = kind == TTI_LINK_NETWORK;
        found += hop->kind == kind && (from < 0 || from == (network ? hop->nic_out : hop->from)) &&
                 (to < 0 || to == (network ? hop->nic_in : hop->to));
    }
    return found;
}

/* No NVLink between two GPUs or into a switch, and no NIC, carries more than it can. */
static void check_loads(const struct tti_topology *topology, const struct tti_rings *rings)
{
    for (size_t i = 0; i < topology->link_count; i++) {
        const struct tti_graph_link *link = &topology->links[i];
        double most = link->gbs * (1 + 1e-6);
        bool to_switch = topology->nodes[link->to].kind == TTI_NODE_SWITCH;
        if (link->kind == TTI_LINK_PCI || link->gbs <= 0)
            continue;
        int to = to_switch ? -1 : link->to;
        assert_true(uses(rings, link->kind, link->from, to) * rings->gbs <= most);
        assert_true(uses(rings, link->kind, to, link->from) * rings->gbs <= most);
    }
}

static void check(struct tti_topology *topology, enum tti_node_kind kind, int rings_wanted,
                  double sum_wanted)
{
    int stops[MOST_STOPS];
    struct tti_rings *rings = NULL;
    int count = stops_of(topology, kind, stops);
    if (tti_rings_search(topology, stops, count, &rings) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    check_visits(topology, rings, stops);
    check_loads(topology, rings);
    double sum = rings->count * rings->gbs;
    if (rings->count != rings_wanted || fabs(sum - sum_wanted) > 0.001)
        fail_msg("%s: %d rings and %g GB/s instead of %d and %g", topology->source, rings->count,
                 sum, rings_wanted, sum_wanted);
    tti_rings_destroy(rings);
    tti_topology_destroy(topology);
}

static void one_host(void **state)
{
    (void)state;
    check(described("8 gpus, nvlink 450"), TTI_NODE_GPU, 1, 450);
    check(described("8 gpus, nvlink 450, pcie 64, 8 nics 50"), TTI_NODE_GPU, 1, 450);
    check(described("8 gpus, pcie 25, 2 packages, 4 switches"), TTI_NODE_GPU, 1, 25);
    check(described("2 gpus, mesh 100"), TTI_NODE_GPU, 1, 100);
}

/* All links of a full mesh of n can be used: n - 1 times one link. With 4 and 6 GPUs whole links do
 * not divide into rings (Tillson 1980), halves do. */
static void meshes_are_used_up(void **state)
{
    (void)state;
    check(described("3 gpus, mesh 50"), TTI_NODE_GPU, 2, 100);
    check(described("4 gpus, mesh 50"), TTI_NODE_GPU, 6, 150);
    check(described("5 gpus, mesh 50"), TTI_NODE_GPU, 4, 200);
    check(described("6 gpus, mesh 50"), TTI_NODE_GPU, 10, 250);
    check(described("8 gpus, mesh 25"), TTI_NODE_GPU, 7, 175);
}

/* The hybrid cube mesh of eight V100s: six NVLinks of 25 GB/s a GPU, some of them paired. */
static void the_hybrid_cube_mesh_is_used_up(void **state)
{
    static const int pairs[][3] = {
        {0, 1, 1}, {0, 2, 1}, {0, 3, 2}, {0, 4, 2}, {1, 2, 2}, {1, 3, 1}, {1, 5, 2}, {2, 3, 2},
        {2, 6, 1}, {3, 7, 1}, {4, 5, 1}, {4, 6, 1}, {4, 7, 2}, {5, 6, 2}, {5, 7, 1}, {6, 7, 2},
    };
    struct tti_topology *topology = described("8 gpus, 2 packages, 4 switches, pcie 12");
    int gpus[MOST_STOPS];
    (void)state;
    assert_int_equal(stops_of(topology, TTI_NODE_GPU, gpus), 8);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct tti_graph_link link = {.kind = TTI_LINK_NVLINK, .gbs = 25.0 * pairs[i][2]};
        link.from = gpus[pairs[i][0]];
        link.to = gpus[pairs[i][1]];
        assert_int_equal(tti_topology_link(topology, &link), TUTTI_OK);
    }
    check(topology, TTI_NODE_GPU, 6, 150);
}

/* Two pairs of GPUs with NVLink, and nothing but PCI between the pairs. */
static void pci_joins_what_nvlink_does_not(void **state)
{
    struct tti_topology *topology = described("4 gpus, 2 packages, pcie 25");
    int gpus[MOST_STOPS];
    (void)state;
    assert_int_equal(stops_of(topology, TTI_NODE_GPU, gpus), 4);
    for (int i = 0; i < 4; i += 2) {
        struct tti_graph_link link = {
            .kind = TTI_LINK_NVLINK, .from = gpus[i], .to = gpus[i + 1], .gbs = 300};
        assert_int_equal(tti_topology_link(topology, &link), TUTTI_OK);
    }
    check(topology, TTI_NODE_GPU, 2, 50);
}

static void several_hosts(void **state)
{
    (void)state;
    check(described("4 hosts x 8 gpus, nvlink 450, 8 nics 50"), TTI_NODE_GPU, 8, 400);
    check(described("2 hosts x 8 gpus, nvlink 450, 8 nics 50, pcie 64, 2 packages, 4 switches"),
          TTI_NODE_GPU, 8, 400);
    check(described("2 hosts x 4 gpus, pcie 25, 2 nics 12.5, 2 packages"), TTI_NODE_GPU, 2, 25);
    check(described("16 hosts x 1 gpu, 1 nic 12.5, pcie 32"), TTI_NODE_GPU, 1, 12.5);
    check(described("4 hosts, 2 nics 12.5"), TTI_NODE_HOST, 2, 25);
    /* In one ring of four a GPU is the last of its host, and sends to a NIC instead of to NVLink.
     */
    check(described("2 hosts x 4 gpus, nvlink 300, 4 nics 100, pcie 128"), TTI_NODE_GPU, 4, 400);
    /* A ring may leave a host twice: three rings leave it four times, once by each GPU. */
    check(described("2 hosts x 4 gpus, nvlink 200, 4 nics 100, pcie 128"), TTI_NODE_GPU, 3, 300);
}

static void hosts_that_differ(void **state)
{
    (void)state;
    check(described("1 host x 8 gpus, nvlink 450, 8 nics 50; 1 host x 4 gpus, nvlink 300, 4 nics "
                    "25"),
          TTI_NODE_GPU, 4, 100);
    check(described("2 hosts x 8 gpus, nvlink 450, 8 nics 50; 1 host x 4 gpus, pcie 50, 1 nic 25"),
          TTI_NODE_GPU, 1, 25);
    check(described("1 host x 8 gpus, cube 25, 4 nics 12.5; 2 hosts x 2 gpus, pcie 16, 1 nic 12.5"),
          TTI_NODE_GPU, 1, 12.5);
    check(described("1 host x 1 gpu, 1 nic 50; 1 host x 3 gpus, mesh 50, 2 nics 12.5"),
          TTI_NODE_GPU, 2, 25);
    /* Between hosts alike, each ring stays on its rail. */
    struct tti_topology *topology =
        described("3 hosts x 4 gpus, nvlink 300, 4 nics 25, pcie 64, 2 packages");
    int stops[MOST_STOPS];
    struct tti_rings *rings = NULL;
    int count = stops_of(topology, TTI_NODE_GPU, stops);
    assert_int_equal(tti_rings_search(topology, stops, count, &rings), TUTTI_OK);
    for (int i = 0; i < rings->count * rings->stops; i++)
        if (rings->hops[i].nic_out >= 0)
            assert_int_equal(topology->nodes[rings->hops[i].nic_out].os_index,
                             topology->nodes[rings->hops[i].nic_in].os_index);
    tti_rings_destroy(rings);
    tti_topology_destroy(topology);
}

static void what_is_unknown_does_not_limit(void **state)
{
    (void)state;
    check(described("4 gpus"), TTI_NODE_GPU, 1, 0);
    check(described("4 gpus, 2 nics 50"), TTI_NODE_GPU, 1, 0);
}

static void wrong_stops_are_refused(void **state)
{
    struct tti_topology *topology = described("2 hosts x 2 gpus");
    struct tti_rings *rings = NULL;
    int stops[MOST_STOPS];
    int twice[] = {1, 2, 1};
    int beyond[] = {1, 1000};
    (void)state;
    assert_int_equal(stops_of(topology, TTI_NODE_GPU, stops), 4);
    assert_int_equal(tti_rings_search(topology, stops, 1, &rings), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tti_rings_search(topology, twice, 3, &rings), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tti_rings_search(topology, beyond, 2, &rings), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tti_rings_search(topology, stops, 4, &rings), TUTTI_ERR_UNSUPPORTED);
    assert_null(rings);
    tti_topology_destroy(topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_host),
        cmocka_unit_test(meshes_are_used_up),
        cmocka_unit_test(the_hybrid_cube_mesh_is_used_up),
        cmocka_unit_test(pci_joins_what_nvlink_does_not),
        cmocka_unit_test(several_hosts),
        cmocka_unit_test(hosts_that_differ),
        cmocka_unit_test(what_is_unknown_does_not_limit),
        cmocka_unit_test(wrong_stops_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
