/* Well-known systems, described in systems/: what is on them, the rings and trees that are found,
 * and the bandwidth to be expected. Argument: the folder. */
#include "topology/nearest.h"
#include "topology/predict.h"
#include "topology/rings.h"
#include "topology/trees.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tutti_cmocka.h"

static const char *folder;

struct wanted {
    const char *file;
    int hosts, gpus, nics;
    double rings, trees; /* GB/s in all, of nominal rates */
    double best;         /* predicted bus bandwidth */
    const char *algorithm;
    enum tti_nearness worst; /* of the NIC of any GPU */
};

static const struct wanted systems[] = {
    {"hgx_h100.txt", 1, 8, 8, 450, 8 * 450.0 / 14, 490.3, "nvls", TTI_NEAR_SWITCH},
    {"hgx_h100_x4.txt", 4, 32, 32, 400, 250, 485.7, "nvls", TTI_NEAR_SWITCH},
    {"hgx_a100.txt", 1, 8, 8, 300, 8 * 300.0 / 14, 240, "ring", TTI_NEAR_SWITCH},
    {"pcie_node.txt", 1, 8, 2, 31.5, 18, 24, "ring", TTI_NEAR_NUMA},
    {"pcie_node.xml", 1, 8, 2, 31.5077, 18.0044, 24.006, "ring", TTI_NEAR_NUMA},
    {"pcie_no_peers.txt", 1, 8, 0, 63, 36, 24, "ring", TTI_NEAR_NOT},
    {"dual_rail.txt", 2, 8, 4, 50, 50, 82.25, "tree", TTI_NEAR_NUMA},
    {"v100_mesh.txt", 1, 4, 1, 150, 100, 120, "ring", TTI_NEAR_NUMA},
    {"dgx1.json", 1, 8, 4, 150, 10 * 25.0 / 3, 120, "ring", TTI_NEAR_SWITCH},
    {"hosts_that_differ.txt", 3, 20, 18, 31.5, 18, 26.05714, "tree", TTI_NEAR_NUMA},
};

/* NULL for a file of hwloc's where there is no hwloc. */
static struct tti_topology *load(const char *file)
{
    char path[400];
    char text[16384];
    struct tti_topology *topology = NULL;
    const char *end = strrchr(file, '.');
    snprintf(path, sizeof path, "%s/%s", folder, file);
    enum tutti_result result = TUTTI_OK;
    if (strcmp(end, ".xml") == 0) {
        result = tti_topology_from_xml(path, &topology);
        if (result == TUTTI_ERR_UNSUPPORTED)
            return NULL;
    } else {
        FILE *in = fopen(path, "r");
        assert_non_null(in);
        size_t bytes = fread(text, 1, sizeof text - 1, in);
        fclose(in);
        text[bytes] = '\0';
        text[strcspn(text, strcmp(end, ".txt") == 0 ? "\n" : "")] = '\0';
        result = strcmp(end, ".txt") == 0 ? tti_topology_from_text(text, &topology)
                                          : tti_topology_from_json(text, bytes, &topology);
    }
    if (result != TUTTI_OK)
        fail_msg("%s: %s", file, tutti_last_error());
    return topology;
}

static void check_sum(const char *file, const char *what, double found, double wanted)
{
    if (fabs(found - wanted) > 0.001 * wanted)
        fail_msg("%s: %s are %g GB/s instead of %g", file, what, found, wanted);
}

static void check_nics(const struct wanted *w, const struct tti_topology *topology)
{
    struct tti_nic_choice *choices = NULL;
    enum tti_nearness worst = TTI_NEAR_SWITCH;
    int count = 0;
    assert_int_equal(tti_nics_choose(topology, &choices, &count), TUTTI_OK);
    assert_int_equal(count, w->gpus);
    for (int i = 0; i < count; i++)
        worst = choices[i].nearness > worst ? choices[i].nearness : worst;
    free(choices);
    if (worst != w->worst)
        fail_msg("%s: the farthest NIC is on the %s", w->file, tti_nearness_text(worst));
}

static void every_system_is_as_expected(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof systems / sizeof systems[0]; i++) {
        const struct wanted *w = &systems[i];
        struct tti_topology *topology = load(w->file);
        struct tti_busbw_prediction p;
        struct tti_rings *rings = NULL;
        struct tti_trees *trees = NULL;
        int *stops = NULL;
        int count = 0;
        if (!topology)
            continue;
        assert_int_equal(tti_topology_count(topology, -1, TTI_NODE_HOST), w->hosts);
        assert_int_equal(tti_topology_count(topology, -1, TTI_NODE_NIC), w->nics);
        assert_int_equal(tti_topology_stops(topology, &stops, &count), TUTTI_OK);
        assert_int_equal(count, w->gpus);
        assert_int_equal(tti_rings_search(topology, stops, count, &rings), TUTTI_OK);
        assert_int_equal(tti_trees_search(topology, stops, count, TTI_TREES_ALL_REDUCE, -1, &trees),
                         TUTTI_OK);
        check_sum(w->file, "rings", rings->count * rings->gbs, w->rings);
        check_sum(w->file, "trees", trees->count * trees->gbs, w->trees);
        assert_true(rings->count * rings->gbs <= rings->limit.gbs * (1 + 1e-6));
        assert_int_equal(tti_predict_all_reduce(topology, &p), TUTTI_OK);
        check_sum(w->file, "predicted", p.best, w->best);
        assert_string_equal(p.algorithm, w->algorithm);
        check_nics(w, topology);
        tti_rings_destroy(rings);
        tti_trees_destroy(trees);
        free(stops);
        tti_topology_destroy(topology);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_system_is_as_expected)};
    if (argc != 2)
        return 2;
    folder = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
