/* The public header tutti/topology.h, by nothing but itself and the shared library. */
#include <tutti/topology.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tutti_cmocka.h"

static const char cluster[] =
    "2 hosts x 4 gpus, nvlink 450, 4 nics 50, pcie 63, 4 switches, 8 cores";

static tutti_topology *described(const char *text)
{
    tutti_topology *topology = NULL;
    if (tutti_topology_from_text(text, &topology) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    return topology;
}

static void this_machine_has_cpus(void **state)
{
    tutti_topology *here = NULL;
    char name[80];
    (void)state;
    assert_int_equal(tutti_topology_probe(&here), TUTTI_OK);
    assert_int_equal(tutti_topology_count(here, TUTTI_PART_HOST), 1);
    assert_true(tutti_topology_count(here, TUTTI_PART_CPU) > 0);
    assert_true(tutti_topology_count(here, TUTTI_PART_CORE) > 0);
    assert_int_equal(tutti_topology_name(here, TUTTI_PART_HOST, 0, name, sizeof name), TUTTI_OK);
    assert_memory_equal(name, "host", 4);
    tutti_topology_destroy(here);
}

static void parts_are_counted_and_named(void **state)
{
    static const int wanted[] = {2, 2, 2, 16, 16, 8, 8};
    tutti_topology *topology = described(cluster);
    char text[80];
    int nic = -1;
    (void)state;
    for (int part = TUTTI_PART_HOST; part <= TUTTI_PART_NIC; part++)
        assert_int_equal(tutti_topology_count(topology, (enum tutti_part)part), wanted[part]);
    assert_int_equal(tutti_topology_count(topology, (enum tutti_part)7), 0);
    assert_int_equal(tutti_topology_count(NULL, TUTTI_PART_GPU), 0);
    assert_int_equal(tutti_topology_name(topology, TUTTI_PART_GPU, 7, text, sizeof text), TUTTI_OK);
    assert_string_equal(text, "gpu 3");
    assert_int_equal(tutti_topology_nearest_nic(topology, 5, &nic, text, sizeof text), TUTTI_OK);
    assert_int_equal(nic, 5);
    assert_string_equal(text, "same PCI switch");
    assert_int_equal(tutti_topology_nearest_nic(topology, 5, &nic, NULL, 0), TUTTI_OK);
    tutti_topology_destroy(topology);
    topology = described("1 gpu");
    assert_int_equal(tutti_topology_nearest_nic(topology, 0, &nic, text, sizeof text), TUTTI_OK);
    assert_int_equal(nic, -1);
    tutti_topology_destroy(topology);
}

static void rings_and_trees_reach_everybody(void **state)
{
    tutti_topology *topology = described(cluster);
    struct tutti_paths *rings = NULL;
    struct tutti_paths *trees = NULL;
    (void)state;
    assert_int_equal(tutti_topology_rings(topology, &rings), TUTTI_OK);
    assert_int_equal(tutti_topology_trees(topology, &trees), TUTTI_OK);
    assert_true(rings->stops == 8 && trees->stops == 8);
    assert_true(rings->count * rings->gbs == 200 && rings->limit_gbs == 200);
    assert_true(trees->count * trees->gbs == 200);
    for (int r = 0; r < rings->count; r++) {
        unsigned seen = 0;
        for (int k = 0, at = 0; k < 8; k++, at = rings->next[r * 8 + at])
            seen |= 1U << at;
        assert_int_equal(seen, 0xff);
    }
    for (int t = 0; t < trees->count; t++)
        for (int gpu = 0; gpu < 8; gpu++) {
            int steps = 0;
            for (int at = gpu; at >= 0; at = trees->next[t * 8 + at])
                assert_true(steps++ < 8);
        }
    tutti_paths_destroy(rings);
    tutti_paths_destroy(trees);
    tutti_topology_destroy(topology);
}

static void what_to_expect_has_reasons(void **state)
{
    tutti_topology *topology = described("8 gpus, nvlink 450, nvls");
    double busbw = 0;
    char why[2000];
    char narrow[10];
    (void)state;
    assert_int_equal(tutti_topology_predict(topology, &busbw, why, sizeof why), TUTTI_OK);
    assert_true(fabs(busbw - 490.3) < 0.1);
    assert_non_null(strstr(why, "assumed: NVLS"));
    assert_int_equal(tutti_topology_predict(topology, &busbw, NULL, 0), TUTTI_OK);
    assert_int_equal(tutti_topology_predict(topology, &busbw, narrow, sizeof narrow), TUTTI_OK);
    assert_int_equal(strlen(narrow), sizeof narrow - 1);
    tutti_topology_destroy(topology);
}

static void text_json_and_picture(void **state)
{
    tutti_topology *topology = described(cluster);
    tutti_topology *again = NULL;
    char *text[3] = {NULL, NULL, NULL};
    size_t bytes[3];
    (void)state;
    for (int i = 0; i < 3; i++) {
        FILE *out = open_memstream(&text[i], &bytes[i]);
        assert_non_null(out);
        assert_int_equal(i == 0   ? tutti_topology_write_json(topology, out)
                         : i == 1 ? tutti_topology_print(topology, out)
                                  : tutti_topology_draw(topology, out),
                         TUTTI_OK);
        assert_int_equal(fclose(out), 0);
    }
    assert_non_null(strstr(text[1], "host 1: 8 cores"));
    assert_memory_equal(text[2], "<svg", 4);
    assert_non_null(strstr(text[2], "4 rings over 8 gpus"));
    assert_int_equal(tutti_topology_from_json(text[0], bytes[0], &again), TUTTI_OK);
    assert_int_equal(tutti_topology_count(again, TUTTI_PART_NIC), 8);
    tutti_topology_destroy(again);
    for (int i = 0; i < 3; i++)
        free(text[i]);
    tutti_topology_destroy(topology);
}

static void wrong_calls_are_refused(void **state)
{
    tutti_topology *topology = described("1 gpu");
    tutti_topology *made = NULL;
    struct tutti_paths *paths = NULL;
    char text[8];
    int nic = 0;
    double busbw = 0;
    (void)state;
    assert_int_equal(tutti_topology_from_text("eight gpus", &made), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_topology_from_text(NULL, &made), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_topology_from_json("{}", 2, &made), TUTTI_ERR_ARGUMENT);
    assert_int_not_equal(tutti_topology_from_xml("/nowhere", &made), TUTTI_OK);
    assert_int_equal(tutti_topology_probe(NULL), TUTTI_ERR_ARGUMENT);
    assert_null(made);
    assert_int_equal(tutti_topology_name(topology, TUTTI_PART_GPU, 1, text, sizeof text),
                     TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_topology_name(topology, TUTTI_PART_GPU, -1, text, sizeof text),
                     TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_topology_nearest_nic(topology, 1, &nic, NULL, 0), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tutti_topology_rings(topology, &paths), TUTTI_ERR_UNSUPPORTED);
    assert_int_equal(tutti_topology_trees(topology, &paths), TUTTI_ERR_UNSUPPORTED);
    assert_int_equal(tutti_topology_predict(topology, &busbw, NULL, 0), TUTTI_ERR_UNSUPPORTED);
    assert_int_equal(tutti_topology_print(NULL, stdout), TUTTI_ERR_ARGUMENT);
    assert_null(paths);
    tutti_topology_destroy(NULL);
    tutti_paths_destroy(NULL);
    tutti_topology_destroy(topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(this_machine_has_cpus),
        cmocka_unit_test(parts_are_counted_and_named),
        cmocka_unit_test(rings_and_trees_reach_everybody),
        cmocka_unit_test(what_to_expect_has_reasons),
        cmocka_unit_test(text_json_and_picture),
        cmocka_unit_test(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
