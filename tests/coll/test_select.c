/* coll/select.c: what is forced is taken, what does not exist is refused with what does, and the
 * choice follows size and cores. What it goes by has tests of its own: test_cost_model.c, and
 * test_select_hosts.c between hosts. */
#include "coll/algorithms/algorithms.h"
#include "coll/select.h"
#include "tests/coll/made_comm.h"
#include "tests/tutti_cmocka.h"

#include <string.h>

static void forced(void **state)
{
    (void)state;
    char ring[] = "ring", each[] = "all_reduce=two_shot,broadcast=chain";
    assert_string_equal(chosen(comm_of(4, ring), TUTTI_ALL_REDUCE, 1), "ring");
    assert_string_equal(chosen(comm_of(4, ring), TUTTI_ALL_GATHER, 1), "ring");
    assert_string_equal(chosen(comm_of(4, each), TUTTI_ALL_REDUCE, 1), "two_shot");
    assert_string_equal(chosen(comm_of(4, each), TUTTI_BROADCAST, 1), "chain");
    /* A collective without an algorithm of that name chooses freely ... */
    (void)chosen(comm_of(4, ring), TUTTI_BARRIER, 1);
    /* ... and so does one whose algorithm cannot serve the ranks where they are. Named for it alone
     * it is refused. */
    char levels[] = "hierarchical", gathers[] = "all_gather=hierarchical";
    assert_string_equal(chosen(comm_of(4, levels), TUTTI_ALL_REDUCE, 1), "hierarchical");
    assert_string_not_equal(chosen(comm_of(4, levels), TUTTI_ALL_GATHER, 1), "hierarchical");
    struct tti_selection selection;
    assert_int_equal(
        tti_select(comm_of(4, gathers), TUTTI_ALL_GATHER, 1, TUTTI_FLOAT32, 0, &selection),
        TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "cannot serve 4 ranks on 1 hosts"));
}

static void refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"nope", "all_reduce=nope", "nope=ring", "ring,nope", "="};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(tti_select_check(bad[i], false), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tti_select_check("all_reduce=nope", false), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "rabenseifner"));
    assert_int_equal(tti_select_check("", false), TUTTI_OK);
    assert_int_equal(tti_select_check(NULL, false), TUTTI_OK);
    assert_int_equal(tti_select_check("ring", false), TUTTI_OK);
    assert_int_equal(tti_select_check("all_reduce=ring,broadcast=tree", false), TUTTI_OK);
}

/* The reproducible mode: what keeps the order of ranks, by choice and by name; the rest of what
 * combines is refused, with the list of what is left. */
static void in_order(void **state)
{
    (void)state;
    char chain[] = "all_reduce=ordered_chain";
    for (int size = 1; size <= 16; size++)
        for (size_t count = 1; count < (size_t)64 << 20; count *= 8)
            for (int k = 0; k <= TUTTI_BARRIER; k++) {
                struct tti_ways ways;
                struct tutti_comm *comm = comm_of(size, NULL);
                comm->settings.reproducible = true;
                comm->settings.fast = size % 2;
                assert_int_equal(tti_select_ways(comm, (enum tutti_collective)k, count,
                                                 TUTTI_FLOAT32, true, &ways),
                                 TUTTI_OK);
                for (int i = 0; i < ways.count && tti_order_shows((enum tutti_collective)k); i++)
                    assert_true(ways.way[i].algorithm->ordered);
                comm->settings.reproducible = false;
                assert_int_equal(tti_select_ways(comm, (enum tutti_collective)k, count,
                                                 TUTTI_FLOAT32, true, &ways),
                                 TUTTI_OK);
                for (int i = 0; i < ways.count; i++)
                    assert_false(ways.way[i].algorithm->by_request);
            }
    assert_string_equal(chosen(comm_of(4, chain), TUTTI_ALL_REDUCE, 1), "ordered_chain");
    assert_int_equal(tti_select_check(chain, true), TUTTI_OK);
    assert_int_equal(tti_select_check("direct", true), TUTTI_OK);
    assert_int_equal(tti_select_check("broadcast=chain,all_gather=ring", true), TUTTI_OK);
    assert_int_equal(tti_select_check(NULL, true), TUTTI_OK);
    static const char *const bad[] = {"ring", "chain", "all_reduce=tree", "reduce_scatter=bruck",
                                      "two_shot,reduce=tree"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(tti_select_check(bad[i], false), TUTTI_OK);
        assert_int_equal(tti_select_check(bad[i], true), TUTTI_ERR_ARGUMENT);
        assert_non_null(strstr(tutti_last_error(), "order of ranks"));
    }
    assert_int_equal(tti_select_check("ring", true), TUTTI_ERR_ARGUMENT);
    assert_non_null(
        strstr(tutti_last_error(), "these do: one_shot, two_shot, ordered_chain, ordered_bruck"));
}

static void size_matters(void **state)
{
    (void)state;
    const char *small = chosen(comm_of(16, NULL), TUTTI_ALL_REDUCE, 2);
    const char *large = chosen(comm_of(16, NULL), TUTTI_ALL_REDUCE, (size_t)64 << 20);
    assert_string_not_equal(small, large);
    assert_true(strcmp(large, "ring") == 0 || strcmp(large, "two_shot") == 0 ||
                strcmp(large, "rabenseifner") == 0);
}

/* A second lane is for cores that have nothing else to do. */
static void crowds_take_one_lane(void **state)
{
    (void)state;
    for (int cores = 2; cores <= 4; cores += 2) {
        struct tutti_comm *comm = comm_of(4, NULL);
        struct tti_selection selection;
        comm->profile.cores = cores;
        comm->peers.same_process = false;
        assert_int_equal(
            tti_select_plan(comm, TUTTI_ALL_REDUCE, (size_t)8 << 20, TUTTI_FLOAT32, 0, &selection),
            TUTTI_OK);
        assert_int_equal(selection.spec.lanes, cores < 4 ? 1 : 2);
    }
}

/* Ranks of a host that have no memory in common: nothing that takes for granted that they have. */
static void no_memory_no_stage(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        struct tutti_comm *comm = comm_in_clusters(4, 2);
        struct tti_ways ways;
        bool staged = false;
        comm->peers.same_process = false;
        comm->peers.have_shm = shared;
        assert_int_equal(tti_select_medium(comm, false), shared ? TTI_PRIVATE : TTI_LOOPBACK);
        assert_int_equal(tti_select_ways(comm, TUTTI_BROADCAST, 100000, TUTTI_FLOAT32, true, &ways),
                         TUTTI_OK);
        for (int w = 0; w < ways.count; w++) {
            staged |= ways.way[w].path == TTI_PATH_STAGED;
            assert_true(shared || ways.way[w].path == TTI_PATH_PLAN);
        }
        assert_int_equal(staged, shared);
    }
}

/* On meshes reductions to a root and all-to-alls keep to one lane, at any size. */
static void what_loses_by_lanes_takes_one(void **state)
{
    static const struct {
        enum tutti_collective collective;
        int lanes;
    } cases[] = {{TUTTI_ALL_REDUCE, 2}, {TUTTI_REDUCE, 1}, {TUTTI_ALL_TO_ALL, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tti_selection selection;
        assert_int_equal(tti_select_plan(comm_on_a_mesh(2, 2), cases[i].collective, (size_t)8 << 20,
                                         TUTTI_FLOAT32, 0, &selection),
                         TUTTI_OK);
        assert_int_equal(selection.spec.lanes, cases[i].lanes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forced),
        cmocka_unit_test(refused),
        cmocka_unit_test(in_order),
        cmocka_unit_test(size_matters),
        cmocka_unit_test(crowds_take_one_lane),
        cmocka_unit_test(no_memory_no_stage),
        cmocka_unit_test(what_loses_by_lanes_takes_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
