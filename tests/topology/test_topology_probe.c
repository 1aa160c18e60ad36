/* What the probe says about this machine, with hwloc and without, and about machines that hwloc
 * describes. Where hwloc is not installed, its part is skipped. */
#include "topology/graph.h"
#include "topology/topology_parts.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/made_file.h"
#include "tests/tutti_cmocka.h"

static const char *opencl; /* the file of fake_opencl.c */

/* The CPUs in the graph are those of our mask, each once; every CPU is in a core on a NUMA node. */
static void check_machine(const struct tti_topology *topology)
{
    cpu_set_t allowed;
    cpu_set_t seen;
    CPU_ZERO(&seen);
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    for (int i = 0; i < (int)topology->node_count; i++) {
        const struct tti_node *node = &topology->nodes[i];
        if (node->kind != TTI_NODE_PU)
            continue;
        assert_in_range(node->os_index, 0, CPU_SETSIZE - 1);
        assert_false(CPU_ISSET(node->os_index, &seen));
        CPU_SET(node->os_index, &seen);
        assert_true(tti_topology_above(topology, i, TTI_NODE_CORE) > 0);
        assert_true(tti_topology_above(topology, i, TTI_NODE_NUMA) > 0);
        assert_int_equal(tti_topology_above(topology, i, TTI_NODE_HOST), 0);
    }
    assert_true(CPU_EQUAL(&seen, &allowed));
    assert_int_equal(tti_topology_count(topology, -1, TTI_NODE_HOST), 1);
    assert_true(tti_topology_count(topology, -1, TTI_NODE_CORE) <= CPU_COUNT(&allowed));
}

static void the_probe_knows_our_cpus(void **state)
{
    struct tti_topology *topology = NULL;
    (void)state;
    assert_int_equal(tti_topology_probe(TTI_PROBE_DEVICES, &topology), TUTTI_OK);
    check_machine(topology);
    tti_topology_destroy(topology);
}

static void hwloc_and_sysfs_agree_on_cores(void **state)
{
    struct tti_topology *sysfs = NULL;
    struct tti_topology *hwloc = NULL;
    (void)state;
    assert_int_equal(tti_topology_probe_sysfs("/sys", &sysfs), TUTTI_OK);
    check_machine(sysfs);
    if (tti_topology_probe_hwloc(TTI_PROBE_CPUS, &hwloc) != TUTTI_OK) {
        tti_topology_destroy(sysfs);
        skip();
    }
    assert_int_equal(tti_topology_count(sysfs, -1, TTI_NODE_CORE),
                     tti_topology_count(hwloc, -1, TTI_NODE_CORE));
    assert_int_equal(tti_topology_count(sysfs, -1, TTI_NODE_PACKAGE),
                     tti_topology_count(hwloc, -1, TTI_NODE_PACKAGE));
    tti_topology_destroy(sysfs);
    tti_topology_destroy(hwloc);
}

static void nothing_known_means_a_core_for_each_cpu(void **state)
{
    struct tti_topology *topology = NULL;
    cpu_set_t allowed;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    assert_int_equal(tti_topology_probe_sysfs("/nowhere", &topology), TUTTI_OK);
    check_machine(topology);
    assert_int_equal(tti_topology_count(topology, -1, TTI_NODE_CORE), CPU_COUNT(&allowed));
    tti_topology_destroy(topology);
}

static void only_allowed_cpus_are_seen(void **state)
{
    struct tti_topology *topology = NULL;
    cpu_set_t allowed;
    cpu_set_t one;
    int cpu = 0;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    while (!CPU_ISSET(cpu, &allowed))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(tti_topology_probe(TTI_PROBE_CPUS, &topology), TUTTI_OK);
    check_machine(topology);
    assert_int_equal(tti_topology_count(topology, -1, TTI_NODE_PU), 1);
    assert_int_equal(sched_setaffinity(0, sizeof allowed, &allowed), 0);
    tti_topology_destroy(topology);
}

static void hwloc_describes_other_machines(void **state)
{
    struct tti_topology *topology = NULL;
    (void)state;
    enum tutti_result result =
        tti_topology_from_hwloc_synthetic("package:2 numa:2 l3:1 core:4 pu:2", &topology);
    if (result == TUTTI_ERR_UNSUPPORTED)
        skip();
    assert_int_equal(result, TUTTI_OK);
    assert_int_equal(tti_topology_count(topology, -1, TTI_NODE_PACKAGE), 2);
    assert_int_equal(tti_topology_count(topology, -1, TTI_NODE_NUMA), 4);
    assert_int_equal(tti_topology_count(topology, -1, TTI_NODE_CORE), 16);
    assert_int_equal(tti_topology_count(topology, -1, TTI_NODE_PU), 32);
    for (int i = 0; i < (int)topology->node_count; i++)
        if (topology->nodes[i].kind == TTI_NODE_NUMA)
            assert_int_equal(tti_topology_count(topology, i, TTI_NODE_CORE), 4);
    tti_topology_destroy(topology);
    topology = NULL;
    assert_int_equal(tti_topology_from_hwloc_synthetic("four cores", &topology),
                     TUTTI_ERR_ARGUMENT);
    assert_null(topology);
    assert_int_not_equal(tti_topology_from_xml("/nowhere.xml", &topology), TUTTI_OK);
    assert_non_null(strstr(tutti_last_error(), "/nowhere.xml"));
}

static void nic_rates_come_from_the_kernel(void **state)
{
    const char *folder = *state;
    made_file(folder, "class/net/eth0/speed", "100000\n");
    made_file(folder, "class/net/eth1/speed", "-1\n");
    made_file(folder, "class/infiniband/mlx5_0/ports/1/rate", "400 Gb/sec (4X NDR)\n");
    assert_true(tti_sysfs_nic_gbs(folder, "eth0") == 12.5);
    assert_true(tti_sysfs_nic_gbs(folder, "eth1") == 0);
    assert_true(tti_sysfs_nic_gbs(folder, "mlx5_0") == 50);
    assert_true(tti_sysfs_nic_gbs(folder, "eth9") == 0);
}

static void a_graph_is_kept_in_order(void **state)
{
    struct tti_topology *topology = NULL;
    int host = 0;
    int core = 0;
    struct tti_node node = {.kind = TTI_NODE_HOST, .parent = -1, .name = "a\"b<\n"};
    (void)state;
    assert_int_equal(tti_topology_create("a test", &topology), TUTTI_OK);
    assert_int_equal(tti_topology_add(topology, &node, &host), TUTTI_OK);
    assert_string_equal(topology->nodes[0].name, "a_b__");
    node = (struct tti_node){.kind = TTI_NODE_CORE, .parent = host};
    assert_int_equal(tti_topology_add(topology, &node, &core), TUTTI_OK);
    node = (struct tti_node){.kind = TTI_NODE_GPU, .parent = host};
    assert_int_equal(tti_topology_add(topology, &node, NULL), TUTTI_OK);
    /* Too late for the core, inside a GPU, a root that is none, a parent that does not exist. */
    node = (struct tti_node){.kind = TTI_NODE_PU, .parent = core};
    assert_int_equal(tti_topology_add(topology, &node, NULL), TUTTI_ERR_ARGUMENT);
    node.parent = 2;
    assert_int_equal(tti_topology_add(topology, &node, NULL), TUTTI_ERR_ARGUMENT);
    node.parent = -1;
    assert_int_equal(tti_topology_add(topology, &node, NULL), TUTTI_ERR_ARGUMENT);
    node.parent = 7;
    assert_int_equal(tti_topology_add(topology, &node, NULL), TUTTI_ERR_ARGUMENT);
    struct tti_graph_link link = {.kind = TTI_LINK_PCI, .from = 2, .to = 2};
    assert_int_equal(tti_topology_link(topology, &link), TUTTI_ERR_ARGUMENT);
    link.to = 0;
    link.gbs = -1;
    assert_int_equal(tti_topology_link(topology, &link), TUTTI_ERR_ARGUMENT);
    link.gbs = 64;
    assert_int_equal(tti_topology_link(topology, &link), TUTTI_OK);
    assert_int_equal(topology->node_count, 3);
    assert_int_equal(topology->link_count, 1);
    tti_topology_destroy(topology);
}

/* In a process of its own: hwloc's plugins stay, and what they lose. As in a program that is linked
 * with hwloc, since it loads them only where it is seen by all. */
static int probe_with_plugins(const char *vendors)
{
    struct tti_topology *topology = NULL;
    if (setenv("OCL_ICD_VENDORS", vendors, 1) != 0)
        return 2;
    (void)dlopen("libhwloc.so.15", RTLD_NOW | RTLD_GLOBAL);
    if (tti_topology_probe(TTI_PROBE_PCI, &topology) != TUTTI_OK)
        return 3;
    tti_topology_destroy(topology);
    return getenv("FAKE_OPENCL_LOADED") ? 1 : 0;
}

/* An OpenCL driver is there, and stays alone: asking drivers takes seconds on some machines. Says
 * nothing where hwloc is without OpenCL. */
static void no_driver_is_asked(void **state)
{
    const char *folder = *state;
    char line[500];
    int status = -1;
    snprintf(line, sizeof line, "%s\n", opencl);
    made_file(folder, "fake.icd", line);
    const pid_t child = fork();
    if (child == 0)
        _exit(probe_with_plugins(folder));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            no_driver_is_asked, made_folder,
            made_folder_removed), /* before another probe: hwloc loads plugins once */
        cmocka_unit_test(the_probe_knows_our_cpus),
        cmocka_unit_test(hwloc_and_sysfs_agree_on_cores),
        cmocka_unit_test(nothing_known_means_a_core_for_each_cpu),
        cmocka_unit_test(only_allowed_cpus_are_seen),
        cmocka_unit_test(hwloc_describes_other_machines),
        cmocka_unit_test_setup_teardown(nic_rates_come_from_the_kernel, made_folder,
                                        made_folder_removed),
        cmocka_unit_test(a_graph_is_kept_in_order),
    };
    if (argc != 2)
        return 2;
    opencl = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
