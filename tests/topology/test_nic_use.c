/* Which NICs each rank uses (topology/nic_use.h), when a rank uses all that are equally near: on
 * described machines, and on those that hwloc and the kernel would describe (arguments:
 * tests/topology/two_gpus.xml, the folder systems/). Where a rank uses one: test_nic_share.c. */
#include "topology/nic_use.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/made_file.h"
#include "tests/topology/described.h"
#include "tests/topology/nic_uses.h"
#include "tests/tutti_cmocka.h"

static const char *xml_file;

static void eight_gpus_have_eight_nics(void **state)
{
    static const char *const last[] = {"7", "0"};
    static const int turned[] = {7, 0};
    (void)state;
    nic_check(nic_known("hgx_h100.txt"), 8, NULL, nic_one_each);
    nic_check(nic_known("hgx_h100_x4.txt"), 8, NULL, nic_one_each);
    nic_check(nic_known("hgx_h100.txt"), 2, turned, last);
}

/* Two GPUs and two NICs on a switch: a rail each; and who is alone there uses both. */
static void what_is_equally_near_is_shared_out(void **state)
{
    static const char *const alone[] = {"0 1"};
    static const char *const ends[] = {"2 3", "0 1"};
    static const int turned[] = {2, 1};
    (void)state;
    nic_check(nic_known("hgx_a100.txt"), 8, NULL, nic_one_each);
    nic_check(nic_known("hgx_a100.txt"), 1, NULL, alone);
    nic_check(nic_known("hgx_a100.txt"), 2, turned, ends);
}

static void a_dual_rail_host(void **state)
{
    static const char *const wanted[] = {"0", "0", "1", "1", "0", "0"};
    (void)state;
    nic_check(nic_known("dual_rail.txt"), 6, NULL, wanted);
}

/* Two NICs for four switches of two GPUs: those of switches without one take that of their
 * package. */
static void a_node_on_pcie_alone(void **state)
{
    static const char *const text[] = {"0", "0", "0", "0", "1", "1", "1", "1"};
    static const char *const zero = "eth0/mlx5_0", *const one = "eth1/mlx5_1";
    const char *const xml[] = {zero, zero, zero, zero, one, one, one, one};
    struct tti_topology *topology = NULL;
    char path[500];
    (void)state;
    nic_check(nic_known("pcie_node.txt"), 8, NULL, text);
    snprintf(path, sizeof path, "%s/pcie_node.xml", nic_systems);
    if (tti_topology_from_file(path, &topology) == TUTTI_ERR_UNSUPPORTED)
        skip();
    nic_check(topology, 8, NULL, xml);
}

static void hosts_that_differ(void **state)
{
    static const char *const small[] = {"0 1, not told apart", "0 1, not told apart",
                                        "0 1, not told apart", "0 1, not told apart"};
    (void)state;
    nic_check(nic_known("hosts_that_differ.txt"), 8, NULL, nic_one_each);
    /* Its small host, by itself: one package without switches tells nothing. */
    nic_check(described("4 gpus, pcie 31.5, 2 nics 25"), 4, NULL, small);
}

static void a_machine_that_hwloc_wrote(void **state)
{
    static const char *const wanted[] = {"ib0/mlx5_0, not told apart",
                                         "ib0/mlx5_0, not told apart"};
    struct tti_topology *topology = NULL;
    (void)state;
    if (tti_topology_from_file(xml_file, &topology) == TUTTI_ERR_UNSUPPORTED)
        skip();
    assert_int_equal(tti_topology_gpu_at(topology, "0000:81:00.0"), tti_gpu_of_rank(topology, 1));
    assert_int_equal(tti_topology_gpu_at(topology, "0000:82:00.0"), -1);
    assert_int_equal(tti_topology_gpu_at(topology, ""), -1);
    nic_check(topology, 2, NULL, wanted);
}

/* DGX-1, as JSON: a NIC and two GPUs on each switch. */
static void a_machine_in_a_file(void **state)
{
    static const char *const wanted[] = {"0", "0", "1", "1", "2", "2", "3", "3"};
    struct tti_topology *topology = NULL;
    char path[500];
    (void)state;
    snprintf(path, sizeof path, "%s/dgx1.json", nic_systems);
    assert_int_equal(tti_topology_from_file(path, &topology), TUTTI_OK);
    nic_check(topology, 8, NULL, wanted);
    assert_int_equal(tti_topology_from_file("/nowhere/host.json", &topology), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error(), "/nowhere/host.json"));
    assert_int_equal(tti_topology_from_file(xml_file, &topology) == TUTTI_OK, true);
    tti_topology_destroy(topology);
    assert_int_equal(tti_topology_from_file(nic_systems, &topology), TUTTI_ERR_ARGUMENT);
}

/* Without anybody who writes into it, to open one waits for ever. */
static void a_pipe_is_no_description(void **state)
{
    static const char *const names[] = {"host.json", "host.xml"};
    const char *folder = *state;
    for (int i = 0; i < 2; i++) {
        struct tti_topology *topology = NULL;
        char path[100];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(mkfifo(path, 0600), 0);
        assert_int_equal(tti_topology_from_file(path, &topology), TUTTI_ERR_ARGUMENT);
        assert_non_null(strstr(tutti_last_error(), path));
    }
}

static void what_does_not_divide_is_used_by_all(void **state)
{
    static const char *const three[] = {"0 1", "0 1", "0 1"};
    static const char *const shared[] = {"0", "1"};
    static const char *const four[] = {"0", "1", "0", "1"};
    static const int same[] = {0, 0};
    (void)state;
    nic_check(described("6 gpus, 4 nics 25, 2 packages"), 3, NULL, three);
    nic_check(described("2 gpus, 4 nics 25, 2 packages"), 2, same, shared); /* two ranks, one GPU */
    nic_check(described("8 gpus, 4 nics 25, 2 packages"), 4, NULL, four);
}

static void where_nothing_is_known_all_are_used(void **state)
{
    static const char *const one[] = {"0, not told apart", "0, not told apart"};
    static const char *const flat[] = {"0 1, not told apart", "0 1, not told apart"};
    static const char *const none[] = {", not told apart"};
    (void)state;
    nic_check(described("2 gpus, 1 nic 25, 2 packages"), 2, NULL, one);
    nic_check(described("2 gpus, 2 nics 25"), 2, NULL, flat);
    nic_check(described("2 gpus, 2 packages"), 1, NULL, none);
}

static void a_graph_without_a_host_has_no_nics(void **state)
{
    struct tti_topology *topology = NULL;
    cpu_set_t cpus;
    struct tti_nic_use use;
    bool far[1] = {false};
    const struct tti_nic_user user = {.gpu = -1, .cpus = &cpus};
    (void)state;
    CPU_ZERO(&cpus);
    CPU_SET(0, &cpus);
    assert_int_equal(tti_topology_create("empty", &topology), TUTTI_OK);
    assert_int_equal(tti_nics_far(topology, &user, 1, 0, nic_way, NULL, far, &use), TUTTI_OK);
    assert_false(use.chosen);
    tti_topology_destroy(topology);
}

/* ---- NICs that are slow, down, or nowhere ---------------------------------------------------- */

static void slow_nics_are_nobodys(void **state)
{
    static const char *const wanted[] = {"1", "1", "2", "3"};
    struct tti_topology *topology = described("4 gpus, 4 nics 50, 2 packages");
    (void)state;
    nic_set_rate(topology, 0, 1.25);
    nic_check(topology, 4, NULL, wanted);
    topology = described("4 gpus, 4 nics 50, 2 packages");
    nic_set_rate(topology, 0, 1.25);
    nic_set_rate(topology, 1, 1.25);
    /* Package 0 has slow ones alone: nothing tells those two apart that are left. */
    const struct tti_nic_user users[] = {{.gpu = tti_gpu_of_rank(topology, 0)},
                                         {.gpu = tti_gpu_of_rank(topology, 3)}};
    assert_string_equal(nic_uses(topology, users, 2, 0, NULL), "0 1 2 3, not told apart");
    assert_string_equal(nic_uses(topology, users, 2, 1, NULL), "0 1 2 3, not told apart");
    tti_topology_destroy(topology);
}

static void nics_that_are_down_are_nobodys(void **state)
{
    struct tti_topology *topology = described("4 gpus, 4 nics 50, 4 switches, 2 packages");
    bool usable[200];
    struct tti_nic_user users[4];
    (void)state;
    assert_true(topology->node_count <= 200);
    for (int r = 0; r < 4; r++)
        users[r] = (struct tti_nic_user){.gpu = tti_gpu_of_rank(topology, r)};
    for (int i = 0; i < (int)topology->node_count; i++)
        usable[i] = topology->nodes[i].kind != TTI_NODE_NIC || topology->nodes[i].os_index != 1;
    assert_string_equal(nic_uses(topology, users, 4, 0, usable), "0 1");
    assert_string_equal(nic_uses(topology, users, 4, 1, usable), "0 1"); /* its neighbour's */
    assert_string_equal(nic_uses(topology, users, 4, 2, usable), "1 2");
    tti_topology_destroy(topology);
}

/* A NIC of which the system does not say where it is may be as near as any. */
static void nics_of_unknown_place_stay_in_use(void **state)
{
    struct tti_topology *topology = described("2 gpus, 2 nics 50, 2 packages");
    const int host = tti_first_host(topology);
    (void)state;
    for (size_t i = 0; i < topology->node_count; i++)
        if (topology->nodes[i].kind == TTI_NODE_NIC && topology->nodes[i].os_index == 1)
            topology->nodes[i].parent = host;
    static const char *const wanted[] = {"0 1, not told apart", "0 1, not told apart"};
    nic_check(topology, 2, NULL, wanted);
}

/* hwloc's XML has no line rates: a slow port would be as good as any. The host's own tell it. */
static void rates_that_a_description_lacks(void **state)
{
    static const char *const names[] = {"eth0", "eth1", "eth2", "ib3/mlx5_3"};
    static const char *const without[] = {"eth0", "eth1", "eth2", "ib3/mlx5_3"};
    static const char *const with[] = {"eth1", "eth1", "eth2", "ib3/mlx5_3"};
    const char *folder = *state;
    made_file(folder, "class/net/eth0/speed", "1000\n");
    made_file(folder, "class/net/eth1/speed", "100000\n");
    made_file(folder, "class/net/eth2/speed", "40000\n");
    made_file(folder, "class/infiniband/mlx5_3/ports/1/rate", "100 Gb/sec (4X EDR)\n");
    for (int turn = 0; turn < 2; turn++) {
        struct tti_topology *topology = described("4 gpus, 4 nics 50, 2 packages");
        int nics[MOST_STOPS];
        assert_int_equal(stops_of(topology, TTI_NODE_NIC, nics), 4);
        for (int k = 0; k < 4; k++) {
            nic_set_rate(topology, k, k == 2 ? 12.5 : 0); /* what is known stays */
            topology->nodes[nics[k]].os_index = -1;
            snprintf(topology->nodes[nics[k]].name, TTI_NODE_NAME_BYTES, "%s", names[k]);
        }
        if (turn == 1)
            tti_topology_rates(topology, folder);
        assert_true(fabs(tti_nic_rate(topology, nics[0]) - (turn ? 0.125 : 0)) < 1e-9);
        assert_true(fabs(tti_nic_rate(topology, nics[2]) - 12.5) < 1e-9);
        assert_true(fabs(tti_nic_rate(topology, nics[3]) - (turn ? 12.5 : 0)) < 1e-9);
        nic_check(topology, 4, NULL, turn ? with : without);
    }
}

/* ---- ranks without a GPU --------------------------------------------------------------------- */

static const char *bound(const struct tti_topology *topology, int first, int last)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    for (int cpu = first; cpu <= last; cpu++)
        CPU_SET(cpu, &cpus);
    const struct tti_nic_user users[] = {{.gpu = -1, .cpus = &cpus}, {.gpu = -1, .cpus = &cpus}};
    return nic_uses(topology, users, 2, 1, NULL);
}

static void ranks_without_gpus_go_by_their_cores(void **state)
{
    struct tti_topology *topology = described("8 cores, 2 packages, 4 nics 25");
    (void)state;
    assert_string_equal(bound(topology, 0, 3), "0 1");
    assert_string_equal(bound(topology, 1, 1), "0 1");
    assert_string_equal(bound(topology, 4, 7), "2 3");
    assert_string_equal(bound(topology, 3, 4), "0 1 2 3, not told apart");
    assert_string_equal(bound(topology, 0, 7), "0 1 2 3, not told apart");
    assert_string_equal(bound(topology, 100, 101), "0 1 2 3, not told apart");
    tti_topology_destroy(topology);
    topology = described("8 cores, 2 packages, 1 nic 25");
    assert_string_equal(bound(topology, 4, 7), "0, not told apart");
    tti_topology_destroy(topology);
    /* NUMA nodes of one package: what is in the package comes before what is not. */
    topology = described("8 cores, 2 packages, 4 numa, 2 nics 25");
    assert_string_equal(bound(topology, 0, 1), "0");
    assert_string_equal(bound(topology, 2, 3), "0");
    tti_topology_destroy(topology);
}

static void rdma_fills_all_that_is_equally_near(void **state)
{
    static const char *const all = "0 1 2 3 4 5 6 7, not told apart";
    const char *const wanted[] = {all, all, all, all, all, all, all, all};
    (void)state;
    nic_check(described("8 gpus, 8 nics 50, 1 switch"), 8, NULL, wanted);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_gpus_have_eight_nics),
        cmocka_unit_test(what_is_equally_near_is_shared_out),
        cmocka_unit_test(a_dual_rail_host),
        cmocka_unit_test(a_node_on_pcie_alone),
        cmocka_unit_test(hosts_that_differ),
        cmocka_unit_test(a_machine_that_hwloc_wrote),
        cmocka_unit_test(a_machine_in_a_file),
        cmocka_unit_test_setup_teardown(a_pipe_is_no_description, made_folder, made_folder_removed),
        cmocka_unit_test(what_does_not_divide_is_used_by_all),
        cmocka_unit_test(where_nothing_is_known_all_are_used),
        cmocka_unit_test(a_graph_without_a_host_has_no_nics),
        cmocka_unit_test(slow_nics_are_nobodys),
        cmocka_unit_test_setup_teardown(rates_that_a_description_lacks, made_folder,
                                        made_folder_removed),
        cmocka_unit_test(nics_that_are_down_are_nobodys),
        cmocka_unit_test(nics_of_unknown_place_stay_in_use),
        cmocka_unit_test(ranks_without_gpus_go_by_their_cores),
        cmocka_unit_test(rdma_fills_all_that_is_equally_near),
    };
    if (argc != 3)
        return 2;
    xml_file = argv[1];
    nic_systems = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
