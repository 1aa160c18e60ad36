/* Machines from text: our one-line descriptions, hwloc's XML, and our JSON there and back. */
#include "topology/graph.h"

#include <stdlib.h>
#include <string.h>

#include "tests/topology/described.h"
#include "tests/tutti_cmocka.h"

static const char *xml_file; /* tests/topology/two_gpus.xml */

/* Links of a kind, all of which must have the bandwidth. */
static int links(const struct tti_topology *topology, enum tti_link_kind kind, double gbs)
{
    int count = 0;
    for (size_t i = 0; i < topology->link_count; i++)
        if (topology->links[i].kind == kind) {
            assert_true(topology->links[i].gbs == gbs);
            count++;
        }
    return count;
}

static void a_line_describes_a_cluster(void **state)
{
    struct tti_topology *t = described("4 hosts x 8 gpus, nvlink 450, 8 nics 50");
    (void)state;
    assert_int_equal(tti_topology_count(t, -1, TTI_NODE_HOST), 4);
    assert_int_equal(tti_topology_count(t, -1, TTI_NODE_GPU), 32);
    assert_int_equal(tti_topology_count(t, -1, TTI_NODE_NIC), 32);
    assert_int_equal(tti_topology_count(t, -1, TTI_NODE_SWITCH), 5);
    assert_int_equal(tti_topology_count(t, 0, TTI_NODE_GPU), 8);
    assert_int_equal(links(t, TTI_LINK_NVLINK, 450), 32);
    assert_int_equal(links(t, TTI_LINK_NETWORK, 50), 32);
    for (size_t i = 0; i < t->link_count; i++) {
        const struct tti_graph_link *link = &t->links[i];
        int host = tti_topology_above(t, link->from, TTI_NODE_HOST);
        int other = tti_topology_above(t, link->to, TTI_NODE_HOST);
        assert_true(host >= 0);
        assert_int_equal(other, link->kind == TTI_LINK_NETWORK ? -1 : host);
    }
    tti_topology_destroy(t);
}

static void parts_are_spread_evenly(void **state)
{
    struct tti_topology *t = described("2 Hosts, 2 packages, 4 numa, 18 cores, 2 threads, 8 GPUs, "
                                       "4 NICs 25.5, 2 switches, pcie 64");
    (void)state;
    assert_int_equal(tti_topology_count(t, -1, TTI_NODE_PU), 72);
    assert_int_equal(links(t, TTI_LINK_PCI, 64), 2 * (8 + 4 + 2));
    for (int i = 0; i < (int)t->node_count; i++) {
        int cores = tti_topology_count(t, i, TTI_NODE_CORE);
        if (t->nodes[i].kind == TTI_NODE_NUMA)
            assert_in_range(cores, 4, 5);
        if (t->nodes[i].kind == TTI_NODE_PACKAGE)
            assert_int_equal(tti_topology_count(t, i, TTI_NODE_NUMA), 2);
        if (t->nodes[i].kind == TTI_NODE_SWITCH && t->nodes[i].parent >= 0) {
            assert_int_equal(tti_topology_count(t, i, TTI_NODE_GPU), 4);
            assert_int_equal(tti_topology_count(t, i, TTI_NODE_NIC), 2);
        }
    }
    tti_topology_destroy(t);
    t = described("5 gpus x mesh 50");
    assert_int_equal(links(t, TTI_LINK_NVLINK, 50), 10);
    tti_topology_destroy(t);
}

static void check_round_trip(struct tti_topology *topology);

static void hosts_may_differ(void **state)
{
    struct tti_topology *t = described("2 hosts x 8 gpus, nvlink 450, nvls, 8 nics 50; "
                                       "1 host x 4 gpus, pcie 25, 2 nics 12.5; 8 gpus, cube 25");
    (void)state;
    int hosts = 0;
    assert_int_equal(tti_topology_count(t, -1, TTI_NODE_GPU), 2 * 8 + 4 + 8);
    for (int i = 0; i < (int)t->node_count; i++) {
        if (t->nodes[i].kind == TTI_NODE_HOST)
            assert_int_equal(t->nodes[i].os_index, hosts++);
        bool nvswitch = t->nodes[i].kind == TTI_NODE_SWITCH && t->nodes[i].parent >= 0;
        assert_true(t->nodes[i].reduces == nvswitch);
    }
    assert_int_equal(hosts, 4);
    double rate[2] = {0, 0};
    double cube = 0;
    for (size_t i = 0; i < t->link_count; i++) {
        const struct tti_graph_link *link = &t->links[i];
        int host = tti_topology_above(t, link->from, TTI_NODE_HOST);
        if (link->kind == TTI_LINK_NETWORK)
            rate[t->nodes[host].os_index == 2] += link->gbs;
        if (link->kind == TTI_LINK_NVLINK && t->nodes[host].os_index == 3)
            cube += 2 * link->gbs;
    }
    assert_true(rate[0] == 2 * 8 * 50 && rate[1] == 2 * 12.5);
    assert_true(cube == 8 * 6 * 25); /* six links of each GPU */
    t->nodes[4].staged = true;
    check_round_trip(t);
    tti_topology_destroy(t);
}

static void wrong_lines_are_refused(void **state)
{
    static const char *const wrong[][2] = {
        {"", "no part that is known"},
        {"4", "no part that is known"},
        {"4 hosst x 8 gpus", "\"hosst x 8 gpus\""},
        {"gpus", "a number before the part"},
        {"0 gpus", "leave out"},
        {"8 gpus nvlink 450", "a comma"},
        {"8 gpus,", "no part that is known"},
        {"8 gpus, 8 gpus", "there before"},
        {"8 gpus, nvlink", "a bandwidth"},
        {"8 gpus, nvlink 0", "more than 0"},
        {"8 gpus, nvlink 1.2.3", "more than 0"},
        {"8 gpus, 4 nvlink 450", "no number before"},
        {"8 gpus, nvlink 450, 2 nvls", "no number before"},
        {"8 gpus, nvls", "nvls without nvlink"},
        {"8 cores, staged", "staged without gpus"},
        {"8 gpus, staged 5", "a comma"},
        {"4 gpus, cube 25", "has 8 GPUs"},
        {"2 hosts;", "no part that is known"},
        {"8 nics", "a bandwidth"},
        {"nvlink 450", "NVLink without GPUs"},
        {"pcie 64, 4 cores", "PCIe without"},
        {"2 threads", "threads without cores"},
        {"4 packages, 2 numa", "fewer NUMA nodes"},
        {"65537 gpus", "more than 65536"},
        {"99999999999999999999 gpus", "more than 65536"},
        {"65536 hosts x 64 gpus", "more than 1048576"},
        {"2000 gpus, mesh 50", "more than 1048576"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct tti_topology *topology = NULL;
        assert_int_equal(tti_topology_from_text(wrong[i][0], &topology), TUTTI_ERR_ARGUMENT);
        assert_null(topology);
        if (!strstr(tutti_last_error(), wrong[i][1]))
            fail_msg("\"%s\" gives \"%s\", not \"%s\"", wrong[i][0], tutti_last_error(),
                     wrong[i][1]);
    }
}

static char *json_of(const struct tti_topology *topology, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    assert_non_null(out);
    assert_int_equal(tti_topology_write_json(topology, out), TUTTI_OK);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void check_round_trip(struct tti_topology *topology)
{
    struct tti_topology *again = NULL;
    size_t bytes = 0;
    char *text = json_of(topology, &bytes);
    if (tti_topology_from_json(text, bytes, &again) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    assert_int_equal(again->node_count, topology->node_count);
    assert_int_equal(again->link_count, topology->link_count);
    for (size_t i = 0; i < topology->node_count; i++) {
        const struct tti_node *a = &topology->nodes[i];
        const struct tti_node *b = &again->nodes[i];
        assert_true(a->kind == b->kind && a->parent == b->parent && a->os_index == b->os_index);
        assert_true(a->level == b->level && a->bytes == b->bytes);
        assert_true(a->reduces == b->reduces && a->staged == b->staged);
        assert_string_equal(a->name, b->name);
    }
    for (size_t i = 0; i < topology->link_count; i++) {
        const struct tti_graph_link *a = &topology->links[i];
        const struct tti_graph_link *b = &again->links[i];
        assert_true(a->kind == b->kind && a->from == b->from && a->to == b->to);
        assert_true(a->gbs == b->gbs && a->latency_us == b->latency_us);
    }
    /* Every shorter text is refused. */
    for (size_t cut = 0; cut + 2 < bytes; cut += 1 + bytes / 200) {
        struct tti_topology *part = NULL;
        assert_int_equal(tti_topology_from_json(text, cut, &part), TUTTI_ERR_ARGUMENT);
        assert_null(part);
    }
    tti_topology_destroy(again);
    free(text);
}

static void json_gives_back_what_was_written(void **state)
{
    struct tti_topology *here = NULL;
    (void)state;
    struct tti_topology *t = described("3 hosts, 2 packages, 6 cores, 4 gpus, mesh 33.3333333333, "
                                       "2 nics 12.5, 2 switches, pcie 0.1");
    t->links[0].latency_us = 1.0 / 3;
    check_round_trip(t);
    tti_topology_destroy(t);
    assert_int_equal(tti_topology_probe(TTI_PROBE_DEVICES, &here), TUTTI_OK);
    check_round_trip(here);
    tti_topology_destroy(here);
}

#define NODES "{\"format\":\"tutti-topology 1\",\"nodes\":["
#define HOST "{\"kind\":\"host\",\"parent\":-1}"

static void wrong_json_is_refused(void **state)
{
    static const char *const wrong[][2] = {
        {"", "'{' expected"},
        {"[]", "'{' expected"},
        {"{\"nodes\":[]}", "\"format\" or"},
        {"{\"format\":\"tutti-topology 2\",\"nodes\":[]}", "is not"},
        {NODES HOST "]} x", "after the end"},
        {NODES HOST "],\"colour\":1}", "is no member"},
        {NODES "{\"kind\":\"host\"}]}", "without kind or parent"},
        {NODES "{\"kind\":\"house\",\"parent\":-1}]}", "no kind"},
        {NODES "{\"kind\":\"core\",\"parent\":-1}]}", "root"},
        {NODES HOST ",\n{\"kind\":\"core\",\"parent\":1}]}", "line 2"},
        {NODES HOST ",{\"kind\":\"core\",\"parent\":0.5}]}", "whole number"},
        {NODES HOST ",{\"kind\":\"core\",\"parent\":0,\"parent\":0}]}", "twice"},
        {NODES HOST ",{\"kind\":\"core\",\"parent\":0,\"level\":2}]}", "level"},
        {NODES HOST ",{\"kind\":\"cache\",\"parent\":0,\"level\":6}]}", "out of range"},
        {NODES HOST ",{\"kind\":\"core\",\"parent\":0,\"name\":\"\\n\"}]}", "plain ASCII"},
        {NODES HOST "],\"links\":[{\"kind\":\"pci\",\"from\":0,\"to\":0}]}", "two of 1 nodes"},
        {NODES HOST "],\"links\":[{\"kind\":\"pci\",\"from\":0,\"to\":1e999}]}", "a number"},
        {"{\"links\":[],\"format\":\"tutti-topology 1\",\"nodes\":[]}", "before"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct tti_topology *topology = NULL;
        assert_int_equal(tti_topology_from_json(wrong[i][0], strlen(wrong[i][0]), &topology),
                         TUTTI_ERR_ARGUMENT);
        assert_null(topology);
        if (!strstr(tutti_last_error(), wrong[i][1]))
            fail_msg("%s gives \"%s\", not \"%s\"", wrong[i][0], tutti_last_error(), wrong[i][1]);
    }
}

/* The node whose name starts so. */
static int named(const struct tti_topology *topology, const char *name)
{
    for (int i = 0; i < (int)topology->node_count; i++)
        if (strncmp(topology->nodes[i].name, name, strlen(name)) == 0)
            return i;
    fail_msg("nothing is called %s", name);
    return -1;
}

/* Two packages: a PCI switch with a GPU and a NIC on the first; on the second a GPU alone below a
 * bridge, which is no switch, and the console's display controller, which is no GPU. */
static void xml_shows_devices_in_their_place(void **state)
{
    struct tti_topology *t = NULL;
    (void)state;
    enum tutti_result result = tti_topology_from_xml(xml_file, &t);
    if (result == TUTTI_ERR_UNSUPPORTED)
        skip();
    assert_int_equal(result, TUTTI_OK);
    assert_string_equal(t->nodes[0].name, "two-gpus");
    assert_int_equal(tti_topology_count(t, -1, TTI_NODE_CORE), 4);
    assert_int_equal(tti_topology_count(t, -1, TTI_NODE_GPU), 2);
    assert_int_equal(tti_topology_count(t, -1, TTI_NODE_NIC), 1);
    assert_int_equal(tti_topology_count(t, 0, TTI_NODE_SWITCH), 1);
    int near = named(t, "0000:02:00.0 GA100");
    int far = named(t, "0000:81:00.0");
    int nic = named(t, "ib0/mlx5_0");
    assert_int_equal(t->nodes[near].parent, t->nodes[nic].parent);
    assert_int_equal(t->nodes[t->nodes[near].parent].kind, TTI_NODE_SWITCH);
    int numa = tti_topology_above(t, near, TTI_NODE_NUMA);
    assert_int_equal(t->nodes[numa].os_index, 0);
    assert_true(t->nodes[numa].bytes == 1ULL << 36);
    assert_int_equal(t->nodes[t->nodes[far].parent].kind, TTI_NODE_NUMA);
    assert_int_equal(t->nodes[t->nodes[far].parent].os_index, 1);
    for (size_t i = 0; i < t->link_count; i++)
        if (t->links[i].kind == TTI_LINK_PCI)
            assert_in_range((int)(t->links[i].gbs * 10), t->links[i].from == nic ? 157 : 315,
                            t->links[i].from == nic ? 158 : 316);
    check_round_trip(t);
    tti_topology_destroy(t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_describes_a_cluster),
        cmocka_unit_test(parts_are_spread_evenly),
        cmocka_unit_test(hosts_may_differ),
        cmocka_unit_test(wrong_lines_are_refused),
        cmocka_unit_test(json_gives_back_what_was_written),
        cmocka_unit_test(wrong_json_is_refused),
        cmocka_unit_test(xml_shows_devices_in_their_place),
    };
    if (argc != 2)
        return 2;
    xml_file = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
