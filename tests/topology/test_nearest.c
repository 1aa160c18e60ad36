/* NICs and cores near GPUs: on described machines, and on two that hwloc wrote (arguments: their
 * XML files). */
#include "topology/nearest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/topology/described.h"
#include "tests/tutti_cmocka.h"

static const char *const *xml_files; /* two_gpus.xml and two_gpus_cxl.xml of tests/topology */

/* One line a GPU: those wanted, in order. */
static void check(struct tti_topology *topology, const char *const *wanted, int count_wanted)
{
    struct tti_nic_choice *choices = NULL;
    int count = 0;
    char text[200];
    assert_int_equal(tti_nics_choose(topology, &choices, &count), TUTTI_OK);
    assert_int_equal(count, count_wanted);
    for (int i = 0; i < count; i++)
        assert_string_equal(tti_nic_choice_text(topology, &choices[i], text, sizeof text),
                            wanted[i]);
    free(choices);
    tti_topology_destroy(topology);
}

static void each_gpu_has_the_nic_of_its_switch(void **state)
{
    static const char *const wanted[] = {
        "gpu 0 uses nic 0: same PCI switch, rail 0", "gpu 1 uses nic 1: same PCI switch, rail 1",
        "gpu 2 uses nic 2: same PCI switch, rail 2", "gpu 3 uses nic 3: same PCI switch, rail 3",
        "gpu 0 uses nic 0: same PCI switch, rail 0", "gpu 1 uses nic 1: same PCI switch, rail 1",
        "gpu 2 uses nic 2: same PCI switch, rail 2", "gpu 3 uses nic 3: same PCI switch, rail 3"};
    (void)state;
    check(described("2 hosts x 4 gpus, 4 nics 50, 4 switches, 2 packages"), wanted, 8);
}

static void gpus_share_what_is_near_evenly(void **state)
{
    static const char *const wanted[] = {
        "gpu 0 uses nic 0: same NUMA node, rail 0, shared by 2 gpus",
        "gpu 1 uses nic 1: same NUMA node, rail 1",
        "gpu 2 uses nic 0: same NUMA node, rail 0, shared by 2 gpus",
        "gpu 3 uses nic 2: same NUMA node, rail 2, shared by 2 gpus",
        "gpu 4 uses nic 3: same NUMA node, rail 3",
        "gpu 5 uses nic 2: same NUMA node, rail 2, shared by 2 gpus"};
    static const char *const across[] = {
        "gpu 0 uses nic 0: same NUMA node, rail 0, shared by 2 gpus",
        "gpu 1 uses nic 0: across packages, rail 0, shared by 2 gpus"};
    (void)state;
    check(described("6 gpus, 4 nics 25, 2 packages"), wanted, 6);
    check(described("2 gpus, 1 nic 25, 2 packages"), across, 2);
}

static void hosts_that_differ_choose_for_themselves(void **state)
{
    static const char *const wanted[] = {
        "gpu 0 uses nic 0: same NUMA node, rail 0", "gpu 1 uses nic 1: same NUMA node, rail 1",
        "gpu 0 uses nic 0: same NUMA node, rail 0", "gpu 0 uses no nic: its host has none"};
    (void)state;
    check(described("2 gpus, 2 nics 50; 1 gpu, 2 nics 25; 1 gpu"), wanted, 4);
}

/* The slow one of two NICs that are equally near is left alone. */
static void fast_nics_come_first(void **state)
{
    static const char *const wanted[] = {
        "gpu 0 uses nic 1: same NUMA node, rail 1, shared by 2 gpus",
        "gpu 1 uses nic 1: same NUMA node, rail 1, shared by 2 gpus"};
    struct tti_topology *topology = described("2 gpus, 2 nics 50");
    (void)state;
    for (size_t i = 0; i < topology->link_count; i++)
        if (topology->links[i].kind == TTI_LINK_NETWORK &&
            topology->nodes[topology->links[i].from].os_index == 0)
            topology->links[i].gbs = 1.25;
    check(topology, wanted, 2);
}

static void machines_that_hwloc_wrote(void **state)
{
    static const char *const wanted[] = {
        "gpu 0000:02:00.0 GA100 [A100] uses nic ib0/mlx5_0: same PCI switch, rail 0, shared by 2 "
        "gpus",
        "gpu 0000:81:00.0 GA100 [A100] uses nic ib0/mlx5_0: across packages, rail 0, shared by 2 "
        "gpus"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct tti_topology *topology = NULL;
        if (tti_topology_from_xml(xml_files[i], &topology) == TUTTI_ERR_UNSUPPORTED)
            skip();
        check(topology, wanted, 2);
    }
}

/* Memory that both packages are near to (CXL) is there, and nothing is near to another for it. */
static void memory_of_all_packages_holds_nothing(void **state)
{
    struct tti_topology *topology = NULL;
    int numas[MOST_STOPS];
    (void)state;
    if (tti_topology_from_xml(xml_files[1], &topology) == TUTTI_ERR_UNSUPPORTED)
        skip();
    assert_int_equal(stops_of(topology, TTI_NODE_NUMA, numas), 3);
    for (int n = 0; n < 3; n++) {
        const struct tti_node *numa = &topology->nodes[numas[n]];
        const bool shared = numa->os_index == 2;
        assert_int_equal(numa->parent == 0, shared);
        assert_int_equal(tti_topology_count(topology, numas[n], TTI_NODE_CORE), shared ? 0 : 2);
        assert_int_equal(tti_topology_count(topology, numas[n], TTI_NODE_GPU), !shared);
    }
    tti_topology_destroy(topology);
}

/* hwloc goes by NUMA nodes, the driver by PCI addresses. */
static void ranks_count_gpus_as_the_driver_does(void **state)
{
    static const char *const names[] = {"0000:c1:00.0 GH100", "0000:e1:00.0", "0000:3b:00.0 GH100",
                                        "0000:5d:00.0"};
    static const int order[] = {2, 3, 0, 1};
    struct tti_topology *topology = described("4 gpus, 4 nics 25, 2 packages");
    int gpus[MOST_STOPS];
    (void)state;
    assert_int_equal(stops_of(topology, TTI_NODE_GPU, gpus), 4);
    for (int g = 0; g < 4; g++)
        snprintf(topology->nodes[gpus[g]].name, TTI_NODE_NAME_BYTES, "%s", names[g]);
    for (int rank = 0; rank < 8; rank++)
        assert_int_equal(tti_gpu_of_rank(topology, rank), gpus[order[rank % 4]]);
    tti_topology_destroy(topology);
}

static void cores_near_a_device(void **state)
{
    struct tti_topology *topology =
        described("4 gpus, 1 nic 25, 2 packages, 8 cores, 2 threads; 1 gpu, 2 cores");
    cpu_set_t cpus;
    (void)state;
    for (int rank = 0; rank < 9; rank++) {
        int gpu = tti_gpu_of_rank(topology, rank);
        assert_int_equal(topology->nodes[gpu].os_index, rank % 4);
        tti_cpus_near(topology, gpu, &cpus);
        assert_int_equal(CPU_COUNT(&cpus), 8);
        for (int cpu = 0; cpu < 16; cpu++)
            assert_int_equal(!!CPU_ISSET(cpu, &cpus), cpu % 8 / 4 == rank % 4 / 2);
    }
    tti_topology_destroy(topology);
    topology = described("4 cores");
    assert_int_equal(tti_gpu_of_rank(topology, 0), -1);
    tti_cpus_near(topology, 0, &cpus); /* the host itself: all of its CPUs */
    assert_int_equal(CPU_COUNT(&cpus), 4);
    tti_topology_destroy(topology);
}

/* The CPUs near the network of a machine with 8 of them on two packages, the NICs one on each, but
 * those slower that `slow` has the bits of. */
static void check_network(const char *machine, unsigned slow, int nic_wanted, int first, int count)
{
    struct tti_topology *topology = described(machine);
    cpu_set_t cpus;
    for (size_t i = 0; i < topology->link_count; i++)
        if (topology->links[i].kind == TTI_LINK_NETWORK &&
            slow >> topology->nodes[topology->links[i].from].os_index & 1)
            topology->links[i].gbs = 1.25;
    const int nic = tti_cpus_near_nics(topology, &cpus);
    assert_int_equal(nic < 0 ? -1 : topology->nodes[nic].os_index, nic_wanted);
    assert_int_equal(CPU_COUNT(&cpus), count);
    for (int cpu = first; cpu < first + count; cpu++)
        assert_true(CPU_ISSET(cpu, &cpus));
    tti_topology_destroy(topology);
}

static void cores_near_the_network(void **state)
{
    (void)state;
    check_network("8 cores, 2 packages, 2 nics 25", 0, 0, 0, 8);
    check_network("8 cores, 2 packages, 2 nics 25", 1, 1, 4, 4); /* the faster one */
    check_network("8 cores, 2 packages, 2 nics 25", 2, 0, 0, 4);
    check_network("8 cores, 2 packages", 0, -1, 0, 0);
    check_network("8 cores, 1 nic 25; 8 cores, 8 nics 50", 0, 0, 0, 8); /* the first host's */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_gpu_has_the_nic_of_its_switch),
        cmocka_unit_test(gpus_share_what_is_near_evenly),
        cmocka_unit_test(hosts_that_differ_choose_for_themselves),
        cmocka_unit_test(fast_nics_come_first),
        cmocka_unit_test(machines_that_hwloc_wrote),
        cmocka_unit_test(memory_of_all_packages_holds_nothing),
        cmocka_unit_test(ranks_count_gpus_as_the_driver_does),
        cmocka_unit_test(cores_near_a_device),
        cmocka_unit_test(cores_near_the_network),
    };
    if (argc != 3)
        return 2;
    xml_files = (const char *const *)argv + 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
