/* What NVIDIA's driver tells is put into the graph, with a stand-in for its library
 * (fake_nvml.c): nothing here has seen a real driver. Arguments: the stand-in. */
#include "topology/nvml_library.h"
#include "topology/rings.h"
#include "topology/topology_parts.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tutti_cmocka.h"

/* As the driver's own header lays them out on 64-bit machines. */
_Static_assert(sizeof(struct tti_nvml_pci) == 68, "nvmlPciInfo_t");
_Static_assert(sizeof(struct tti_nvml_field) == 40, "nvmlFieldValue_t");

static int (*fake_users)(void);

/* The host that the stand-in knows: as many GPUs as `known` are in the graph already, on two NUMA
 * nodes, and a network behind it. */
static struct tti_topology *machine(const char *fake, int known)
{
    struct tti_topology *t = NULL;
    struct tti_node node = {.kind = TTI_NODE_HOST, .parent = -1, .os_index = -1};
    int numa[2];
    assert_int_equal(setenv("FAKE_NVML", fake, 1), 0);
    assert_int_equal(tti_topology_create("a test", &t), TUTTI_OK);
    assert_int_equal(tti_topology_add(t, &node, NULL), TUTTI_OK);
    for (int n = 0; n < 2; n++) {
        node = (struct tti_node){.kind = TTI_NODE_NUMA, .parent = 0, .os_index = n};
        assert_int_equal(tti_topology_add(t, &node, &numa[n]), TUTTI_OK);
        for (int i = n ? (known + 1) / 2 : 0; i < (n ? known : (known + 1) / 2); i++) {
            struct tti_graph_link link = {.kind = TTI_LINK_PCI, .to = numa[n], .gbs = 4};
            node = (struct tti_node){.kind = TTI_NODE_GPU, .parent = numa[n], .os_index = -1};
            snprintf(node.name, sizeof node.name, "0000:%02x:00.0 a GPU", 0x10 + 0x10 * i);
            assert_int_equal(tti_topology_add(t, &node, &link.from), TUTTI_OK);
            assert_int_equal(tti_topology_link(t, &link), TUTTI_OK);
        }
    }
    struct tti_graph_link up = {.kind = TTI_LINK_NETWORK, .gbs = 50};
    node = (struct tti_node){.kind = TTI_NODE_NIC, .parent = numa[1], .os_index = 0};
    assert_int_equal(tti_topology_add(t, &node, &up.from), TUTTI_OK);
    node =
        (struct tti_node){.kind = TTI_NODE_SWITCH, .parent = -1, .os_index = -1, .name = "network"};
    assert_int_equal(tti_topology_add(t, &node, &up.to), TUTTI_OK);
    assert_int_equal(tti_topology_link(t, &up), TUTTI_OK);
    return t;
}

/* Whatever was put in, the graph is sound: parents come first, and the network is where it was. */
static void check_sound(const struct tti_topology *t)
{
    for (int i = 0; i < (int)t->node_count; i++)
        assert_true(t->nodes[i].parent < i);
    const struct tti_graph_link *up = NULL;
    for (size_t i = 0; i < t->link_count; i++)
        if (t->links[i].kind == TTI_LINK_NETWORK)
            up = &t->links[i];
    assert_non_null(up);
    assert_int_equal(t->nodes[up->from].kind, TTI_NODE_NIC);
    assert_string_equal(t->nodes[up->to].name, "network");
    assert_int_equal(fake_users(), 0);
}

static double ring_sum(const struct tti_topology *t)
{
    int stops[16];
    int count = 0;
    struct tti_rings *rings = NULL;
    for (int i = 0; i < (int)t->node_count; i++)
        if (t->nodes[i].kind == TTI_NODE_GPU)
            stops[count++] = i;
    assert_int_equal(tti_rings_search(t, stops, count, &rings), TUTTI_OK);
    double sum = rings->count * rings->gbs;
    tti_rings_destroy(rings);
    return sum;
}

static void eight_gpus_on_switches(void **state)
{
    (void)state;
    for (int known = 0; known <= 8; known += 4) {
        struct tti_topology *t = machine("nvswitch", known);
        int links = 0;
        int nvswitch = -1;
        assert_int_equal(tti_topology_add_nvml(t), TUTTI_OK);
        check_sound(t);
        assert_int_equal(tti_topology_count(t, 0, TTI_NODE_GPU), 8);
        for (int i = 0; i < (int)t->node_count; i++) {
            if (strcmp(t->nodes[i].name, "NVSwitch") == 0)
                nvswitch = i;
            if (t->nodes[i].kind == TTI_NODE_GPU) {
                char start[16];
                snprintf(start, sizeof start, "0000:%02x:", 0x10 + 0x10 * t->nodes[i].os_index);
                assert_memory_equal(t->nodes[i].name, start, 8);
            }
        }
        assert_true(nvswitch > 0 && t->nodes[nvswitch].reduces);
        for (size_t i = 0; i < t->link_count; i++) {
            const struct tti_graph_link *link = &t->links[i];
            if (link->kind == TTI_LINK_NVLINK) {
                assert_true(link->gbs == 450 && link->to == nvswitch);
                assert_int_equal(t->nodes[link->from].kind, TTI_NODE_GPU);
                links++;
            }
            if (link->kind == TTI_LINK_PCI && t->nodes[link->from].kind == TTI_NODE_GPU)
                assert_true(fabs(link->gbs - 63) < 0.1); /* not the 4 of an idle GPU */
        }
        assert_int_equal(links, 8);
        assert_true(ring_sum(t) == 450);
        tti_topology_destroy(t);
    }
}

static void four_gpus_in_a_mesh(void **state)
{
    struct tti_topology *t = machine("mesh", 4);
    int links = 0;
    (void)state;
    assert_int_equal(tti_topology_add_nvml(t), TUTTI_OK);
    check_sound(t);
    for (size_t i = 0; i < t->link_count; i++)
        if (t->links[i].kind == TTI_LINK_NVLINK) {
            assert_true(t->links[i].gbs == 50); /* two links of Volta's */
            links++;
        }
    assert_int_equal(links, 6);
    assert_int_equal(tti_topology_count(t, -1, TTI_NODE_SWITCH), 1); /* the network */
    assert_true(ring_sum(t) == 150);
    tti_topology_destroy(t);
}

static void gpus_that_may_not_read_each_other(void **state)
{
    struct tti_topology *t = machine("pcie", 1);
    (void)state;
    assert_int_equal(tti_topology_add_nvml(t), TUTTI_OK);
    check_sound(t);
    for (int i = 0; i < (int)t->node_count; i++)
        assert_true(t->nodes[i].staged == (t->nodes[i].kind == TTI_NODE_GPU));
    assert_int_equal(tti_topology_count(t, -1, TTI_NODE_GPU), 2);
    assert_true(ring_sum(t) > 15);
    tti_topology_destroy(t);
}

static void errors_are_told_in_words(void **state)
{
    static const char *const wanted[][3] = {
        {"broken", "nvmlInit_v2: Driver Not Loaded (NVML error 9)", "kernel module"},
        {"sick", "nvmlDeviceGetHandleByIndex_v2 of device 1: GPU is lost (NVML error 15)", ""},
    };
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct tti_topology *t = machine(wanted[i][0], 2);
        assert_int_equal(tti_topology_add_nvml(t), TUTTI_ERR_SYSTEM);
        if (!strstr(tutti_last_error(), wanted[i][1]) || !strstr(tutti_last_error(), wanted[i][2]))
            fail_msg("%s", tutti_last_error());
        check_sound(t);
        tti_topology_destroy(t);
    }
    struct tti_topology *here = NULL; /* and the probe goes on */
    assert_int_equal(tti_topology_probe(TTI_PROBE_DEVICES, &here), TUTTI_OK);
    tti_topology_destroy(here);
}

static void the_probe_of_this_machine_has_them(void **state)
{
    struct tti_topology *here = NULL;
    (void)state;
    assert_int_equal(setenv("FAKE_NVML", "nvswitch", 1), 0);
    assert_int_equal(tti_topology_probe(TTI_PROBE_DEVICES, &here), TUTTI_OK);
    assert_true(tti_topology_count(here, -1, TTI_NODE_GPU) >= 8);
    tti_topology_destroy(here);
    assert_int_equal(tti_topology_probe(TTI_PROBE_CPUS, &here), TUTTI_OK);
    assert_int_equal(tti_topology_count(here, -1, TTI_NODE_GPU), 0);
    tti_topology_destroy(here);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_gpus_on_switches),
        cmocka_unit_test(four_gpus_in_a_mesh),
        cmocka_unit_test(gpus_that_may_not_read_each_other),
        cmocka_unit_test(errors_are_told_in_words),
        cmocka_unit_test(the_probe_of_this_machine_has_them),
    };
    void *fake = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    void *users = fake ? dlsym(fake, "fake_nvml_users") : NULL;
    if (!users || setenv("TUTTI_LIBNVML", argv[1], 1) != 0)
        return 2;
    memcpy(&fake_users, &users, sizeof users);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
