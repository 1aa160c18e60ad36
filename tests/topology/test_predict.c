/* The bandwidth that the model expects of machines for which a figure is published, and what it
 * says of those that it does not know enough about. */
#include "topology/predict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/topology/described.h"
#include "tests/tutti_cmocka.h"

static struct tti_busbw_prediction predicted(const char *text)
{
    struct tti_topology *topology = described(text);
    struct tti_busbw_prediction prediction = {0};
    if (tti_predict_all_reduce(topology, &prediction) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    tti_topology_destroy(topology);
    return prediction;
}

static void check_near(double value, double published, double tolerance)
{
    if (fabs(value - published) > tolerance * published)
        fail_msg("predicted %g, published %g", value, published);
}

/* Figures and sources: docs/topology.md. */
static void published_figures_are_met(void **state)
{
    struct tti_busbw_prediction p = predicted("8 gpus, nvlink 450, nvls, 8 nics 50, pcie 63");
    (void)state;
    check_near(p.ring, 370, 0.02);
    check_near(p.nvls, 480, 0.05);
    assert_string_equal(p.algorithm, "nvls");
    assert_true(p.best == p.nvls && p.stops == 8);
    check_near(predicted("8 gpus, nvlink 300").ring, 232.5, 0.05);
    check_near(predicted("2 hosts x 8 gpus, nvlink 450, 8 nics 50, pcie 63").best, 378, 0.06);
    check_near(predicted("2 hosts x 8 gpus, nvlink 300, 4 nics 25, pcie 31.5").ring, 86, 0.10);
}

/* Rings and trees as the searches find them on what is left of the links. */
static void links_are_taken_down_to_payload(void **state)
{
    (void)state;
    check_near(predicted("2 hosts, 1 nic 50").ring, 47, 1e-9);
    check_near(predicted("2 gpus, pcie 15.75").ring, 12, 1e-9);
    check_near(predicted("4 gpus, mesh 50").ring, 120, 1e-9);
    check_near(predicted("2 gpus, mesh 40").ring, 36, 1e-9);
    check_near(predicted("2 gpus, nvlink 900").ring, 2 * 0.5 * 40.1 * 18, 1e-9);
}

static void gpus_reached_through_memory_are_slower(void **state)
{
    struct tti_topology *topology = NULL;
    struct tti_busbw_prediction p;
    (void)state;
    assert_int_equal(tti_topology_from_text("4 gpus, pcie 15.75", &topology), TUTTI_OK);
    for (size_t i = 0; i < topology->node_count; i++)
        topology->nodes[i].staged = topology->nodes[i].kind == TTI_NODE_GPU;
    assert_int_equal(tti_predict_all_reduce(topology, &p), TUTTI_OK);
    check_near(p.ring, 6, 1e-9);
    assert_non_null(strstr(p.assumptions[0], "through memory"));
    assert_int_equal(p.assumption_count, 1);
    tti_topology_destroy(topology);
}

static void what_is_not_known_is_not_predicted(void **state)
{
    struct tti_topology *topology = NULL;
    struct tti_busbw_prediction p = predicted("4 gpus");
    (void)state;
    assert_true(p.best == 0 && p.ring == 0 && p.tree == 0 && p.nvls == 0);
    assert_string_equal(p.algorithm, "");
    assert_true(predicted("8 gpus, nvlink 450").nvls == 0);
    assert_int_equal(tti_topology_from_text("1 gpu", &topology), TUTTI_OK);
    assert_int_equal(tti_predict_all_reduce(topology, &p), TUTTI_ERR_UNSUPPORTED);
    tti_topology_destroy(topology);
    assert_int_equal(tti_topology_from_text("2 hosts x 2 gpus, nvlink 450", &topology), TUTTI_OK);
    assert_int_equal(tti_predict_all_reduce(topology, &p), TUTTI_ERR_UNSUPPORTED);
    tti_topology_destroy(topology);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_figures_are_met),
        cmocka_unit_test(links_are_taken_down_to_payload),
        cmocka_unit_test(gpus_reached_through_memory_are_slower),
        cmocka_unit_test(what_is_not_known_is_not_predicted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
