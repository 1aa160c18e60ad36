/* Measured numbers on the graph: what is stated stays, what is unknown becomes known and says so,
 * in text, JSON and picture, and rings do not go by what was measured from end to end. Then
 * measuring itself: GPUs on simulated devices, and this machine. */
#include "base/clock.h"
#include "tests/topology/described.h"
#include "tests/tutti_cmocka.h"
#include "tools/topo_measure.h"
#include "topology/rings.h"

#include <stdlib.h>
#include <string.h>

static char *text_of(enum tutti_result (*write)(const struct tti_topology *, FILE *),
                     const struct tti_topology *topology)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    assert_int_equal(write(topology, out), TUTTI_OK);
    fclose(out);
    return text;
}

static enum tutti_result draw(const struct tti_topology *topology, FILE *out)
{
    return tti_topology_draw(topology, NULL, out);
}

static int first_of(const struct tti_topology *topology, enum tti_node_kind kind)
{
    int nodes[MOST_STOPS];
    assert_true(stops_of(topology, kind, nodes) > 0);
    return nodes[0];
}

static const struct tti_graph_link *link_of(const struct tti_topology *topology,
                                            enum tti_link_kind kind, int from)
{
    for (size_t i = 0; i < topology->link_count; i++)
        if (topology->links[i].kind == kind && topology->links[i].from == from)
            return &topology->links[i];
    fail_msg("no %s link", tti_link_kind_name(kind));
    return NULL;
}

static void unknown_becomes_known(void **state)
{
    (void)state;
    struct tti_topology *t = described("1 host, 2 nics 12.5, 4 cores");
    const int nic = first_of(t, TTI_NODE_NIC);
    struct tti_graph_link *link =
        (struct tti_graph_link *)(uintptr_t)link_of(t, TTI_LINK_NETWORK, nic);
    const struct tti_graph_link found = {
        .kind = TTI_LINK_NETWORK, .from = link->to, .to = nic, .gbs = 3, .latency_us = 20};
    const size_t links = t->link_count;
    assert_int_equal(tti_topology_measured(t, &found), TUTTI_OK);
    assert_true(link->gbs == 12.5 && link->latency_us == 20 && link->measured);
    link->gbs = 0;
    assert_int_equal(tti_topology_measured(t, &found), TUTTI_OK);
    assert_true(link->gbs == 3 && link->measured && t->link_count == links);
    const struct tti_graph_link all_known = *link, other = {.kind = TTI_LINK_NETWORK,
                                                            .from = nic,
                                                            .to = link->to,
                                                            .gbs = 9,
                                                            .latency_us = 9};
    assert_int_equal(tti_topology_measured(t, &other), TUTTI_OK);
    assert_memory_equal(link, &all_known, sizeof all_known);
    tti_topology_destroy(t);
}

static void it_is_told_everywhere(void **state)
{
    (void)state;
    struct tti_topology *t = described("1 host, 2 cores"), *again = NULL;
    const int core = first_of(t, TTI_NODE_CORE);
    const struct tti_graph_link cores = {
        .kind = TTI_LINK_CORE, .from = core, .to = core + 2, .gbs = 9.75, .latency_us = 0.125};
    char line[TTI_MEASURED_BYTES];
    assert_null(tti_topology_measured_text(t, 0, TTI_LINK_CORE, line));
    assert_int_equal(t->nodes[core + 2].kind, TTI_NODE_CORE);
    assert_int_equal(tti_topology_measured(t, &cores), TUTTI_OK);
    assert_string_equal(tti_topology_measured_text(t, 0, TTI_LINK_CORE, line),
                        "core to core: 0.125 us, 9.75 GB/s, measured");
    char *json = text_of(tti_topology_write_json, t), *text = text_of(tti_topology_print, t);
    assert_non_null(strstr(text, "; core 9.75 GB/s 0.125 us measured to core 1"));
    assert_int_equal(tti_topology_from_json(json, strlen(json), &again), TUTTI_OK);
    char *text_again = text_of(tti_topology_print, again), *picture = text_of(draw, again);
    assert_string_equal(text, text_again);
    assert_non_null(strstr(picture, "core to core: 0.125 us, 9.75 GB/s, measured"));
    free(json);
    free(text);
    free(text_again);
    free(picture);
    tti_topology_destroy(t);
    tti_topology_destroy(again);
}

static void rings_go_by_ways(void **state)
{
    (void)state;
    struct tti_topology *t = described("4 gpus, mesh 50");
    int gpus[MOST_STOPS];
    struct tti_rings *before = NULL, *after = NULL;
    assert_int_equal(stops_of(t, TTI_NODE_GPU, gpus), 4);
    assert_int_equal(tti_rings_search(t, gpus, 4, &before), TUTTI_OK);
    const struct tti_graph_link peers = {
        .kind = TTI_LINK_PEER, .from = gpus[0], .to = gpus[1], .gbs = 1000};
    assert_int_equal(tti_topology_measured(t, &peers), TUTTI_OK);
    assert_int_equal(tti_rings_search(t, gpus, 4, &after), TUTTI_OK);
    assert_int_equal(after->count, before->count);
    assert_true(after->gbs == before->gbs);
    tti_rings_destroy(before);
    tti_rings_destroy(after);
    tti_topology_destroy(t);
}

static void gpus_are_measured(void **state)
{
    (void)state;
    struct tti_topology *t = described("1 host x 2 gpus, mesh 50");
    struct measure m = {.topology = t, .deadline = tti_deadline_in(60)};
    int gpus[MOST_STOPS];
    assert_int_equal(stops_of(t, TTI_NODE_GPU, gpus), 2);
    setenv("TUTTI_SIM_DEVICES", "2", 1);
    assert_int_equal(measure_gpus(&m, tti_gpu_sim()), TUTTI_OK);
    if (m.found == 0) {
        print_message("SKIPPED: no simulated GPU in this build\n");
        skip();
    }
    assert_int_equal(m.found, 3);
    assert_int_equal(m.left_out, 0);
    for (int i = 0; i < 2; i++) {
        const struct tti_graph_link *pci = link_of(t, TTI_LINK_PCI, gpus[i]);
        assert_true(pci->measured && pci->gbs > 0);
    }
    assert_true(link_of(t, TTI_LINK_PEER, gpus[0])->gbs > 0);
    assert_true(link_of(t, TTI_LINK_NVLINK, gpus[0])->gbs == 50);
    m.deadline = 0; /* no time: nothing is begun */
    assert_int_equal(measure_gpus(&m, tti_gpu_sim()), TUTTI_OK);
    assert_int_equal(m.left_out, 3);
    tti_topology_destroy(t);
}

static void this_machine_is_measured(void **state)
{
    (void)state;
    struct tti_topology *t = NULL;
    struct measure done;
    assert_int_equal(tti_topology_probe(TTI_PROBE_DEVICES, &t), TUTTI_OK);
    assert_int_equal(topo_measure(t, 20, NULL, &done), TUTTI_OK);
    const int cores = tti_topology_count(t, 0, TTI_NODE_CORE);
    assert_true(done.found + done.left_out > 0 || cores < 2);
    for (size_t i = 0; i < t->link_count; i++) {
        const struct tti_graph_link *link = &t->links[i];
        if (link->kind == TTI_LINK_CORE || link->kind == TTI_LINK_MEMORY) {
            assert_true(link->measured && link->gbs > 0);
            assert_true(link->latency_us > 0.001 && link->latency_us < 10000);
        }
    }
    tti_topology_destroy(t);
}

/* A NUMA node without cores whose memory is not to be had does not get the figures of the memory
 * that was had instead. */
static void memory_of_another_node_is_none_of_this(void **state)
{
    (void)state;
    enum { NOT_HERE = 1000 };
    const struct tti_node far = {.kind = TTI_NODE_NUMA, .parent = 0, .os_index = NOT_HERE};
    struct tti_topology *t = NULL;
    int empty = 0;
    assert_int_equal(tti_topology_probe(TTI_PROBE_CPUS, &t), TUTTI_OK);
    assert_int_equal(tti_topology_add(t, &far, &empty), TUTTI_OK);
    for (size_t i = 0; i < t->node_count; i++)
        if (t->nodes[i].kind == TTI_NODE_CACHE)
            t->nodes[i].bytes = 0; /* little memory is enough here */
    struct measure m = {.topology = t, .deadline = tti_deadline_in(60)};
    assert_int_equal(measure_memory(&m), TUTTI_OK);
    for (size_t i = 0; i < t->link_count; i++)
        assert_int_not_equal(t->links[i].to, empty);
    const int nodes = tti_topology_count(t, 0, TTI_NODE_NUMA) - 1;
    if (nodes == 1) {
        assert_int_equal(m.found, 1);
        assert_int_equal(m.left_out, 1);
    }
    tti_topology_destroy(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_becomes_known),
        cmocka_unit_test(it_is_told_everywhere),
        cmocka_unit_test(rings_go_by_ways),
        cmocka_unit_test(gpus_are_measured),
        cmocka_unit_test(this_machine_is_measured),
        cmocka_unit_test(memory_of_another_node_is_none_of_this),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
