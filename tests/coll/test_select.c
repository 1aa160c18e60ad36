/* coll/select.c: what is forced is taken, what does not exist is refused with what does, and the
 * choice by cost follows size, and between hosts what crosses their lines. */
#include "coll/algorithms/algorithms.h"
#include "coll/select.h"
#include "tests/tutti_cmocka.h"

#include <string.h>

static struct tutti_comm *comm_of(int size, char *algorithms)
{
    static struct tutti_comm comm;
    memset(&comm, 0, sizeof comm);
    comm.size = size;
    comm.peers.nhosts = 1;
    static const double no_caches[3];
    tti_profile_default(no_caches, false, 64, &comm.profile);
    comm.settings.lanes = 2;
    comm.settings.algorithms = algorithms;
    return &comm;
}

static const char *chosen(struct tutti_comm *comm, enum tutti_collective collective, size_t count)
{
    struct tti_selection selection;
    assert_int_equal(tti_select(comm, collective, count, TUTTI_FLOAT32, 0, &selection), TUTTI_OK);
    assert_ptr_equal(tti_algorithm_at(collective, selection.index), selection.algorithm);
    return selection.algorithm->name;
}

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

/* The last of several messages comes later than one alone, where ranks take turns on cores: of two
 * ways of two waits each, the one that waits for one peer at a time, if that counts. */
static void crowds_wait_for_one_at_a_time(void **state)
{
    static const double caches[3] = {48 << 10, 2 << 20, 32 << 20};
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct tutti_comm *comm = comm_of(4, NULL);
        struct tti_selection selection;
        tti_profile_default(caches, true, 2, &comm->profile);
        comm->settings.fast = true;
        double *counts = &comm->profile.cost[TTI_PRIVATE][TTI_COST_CROWDED_LATE];
        assert_true(*counts > 0);
        *counts *= late;
        assert_int_equal(
            tti_select_plan(comm, TUTTI_ALL_REDUCE, 1024, TUTTI_FLOAT32, 0, &selection), TUTTI_OK);
        assert_int_equal(late, strcmp(selection.algorithm->name, "recursive_doubling") == 0);
    }
}

/* Seconds of the fused path for blocks of so many bytes, two ranks with a core each. */
static double fused_seconds(enum tutti_collective collective, size_t bytes)
{
    static const double caches[3] = {48 << 10, 2 << 20, 64 << 20};
    struct tutti_comm *comm = comm_of(2, NULL);
    struct tti_ways ways;
    tti_profile_default(caches, true, 2, &comm->profile);
    comm->settings.fast = true;
    assert_int_equal(tti_select_ways(comm, collective, bytes / 4, TUTTI_FLOAT32, true, &ways),
                     TUTTI_OK);
    for (int i = 0; i < ways.count; i++)
        if (ways.way[i].path == TTI_PATH_FUSED)
            return ways.way[i].predicted_s;
    fail_msg("no fused path");
    return 0;
}

/* Each cache serves what it holds: twice the bytes take twice the time inside of one, more than
 * three times where it overflows, and by and by twice again. In a core's own caches an all-gather,
 * which writes what a reduce-scatter reads, takes longer; beyond them both take the same. */
static void caches_serve_what_they_hold(void **state)
{
    (void)state;
    const size_t inside = 256 << 10, edge = 1 << 20, beyond = 8 << 20;
    const double within =
        fused_seconds(TUTTI_ALL_REDUCE, 2 * inside) / fused_seconds(TUTTI_ALL_REDUCE, inside);
    const double over =
        fused_seconds(TUTTI_ALL_REDUCE, 2 * edge) / fused_seconds(TUTTI_ALL_REDUCE, edge);
    const double far =
        fused_seconds(TUTTI_ALL_REDUCE, 2 * beyond) / fused_seconds(TUTTI_ALL_REDUCE, beyond);
    assert_true(within > 1.7 && within < 2.1);
    assert_true(over > 3);
    assert_true(far > 1.9 && far < 2.5);
    assert_true(fused_seconds(TUTTI_ALL_GATHER, inside) >
                1.4 * fused_seconds(TUTTI_REDUCE_SCATTER, inside));
    assert_true(fused_seconds(TUTTI_ALL_GATHER, beyond) <
                1.1 * fused_seconds(TUTTI_REDUCE_SCATTER, beyond));
}

/* ---- between hosts ---- */

/* `hosts` hosts of `each` ranks on lines of so many bits a second. */
static struct tutti_comm *hosts_of(int hosts, int each, double line_bits)
{
    static int host_of[64];
    struct tutti_comm *comm = comm_of(hosts * each, NULL);
    for (int r = 0; r < hosts * each; r++)
        host_of[r] = r / each;
    comm->peers.nhosts = hosts;
    comm->peers.host_of = host_of;
    comm->peers.sorted = true;
    comm->peers.line_bits = line_bits;
    return comm;
}

static struct tti_work_model counted(struct tutti_comm *comm, const char *name)
{
    struct tti_work_model model;
    struct tti_plan_spec spec = {.collective = TUTTI_ALL_REDUCE,
                                 .nranks = comm->size,
                                 .lanes = 1,
                                 .slices = 1,
                                 .layout = tti_peers_layout(&comm->peers)};
    const struct tti_algorithm *algorithm = tti_algorithm_find(TUTTI_ALL_REDUCE, name);
    assert_non_null(algorithm);
    assert_int_equal(tti_work_model_of(algorithm, &spec, &model), TUTTI_OK);
    return model;
}

/* Blocks that one way of a host's line carries, worked out by hand. */
static void crossing(void **state)
{
    (void)state;
    const struct {
        int hosts, each;
        const char *name;
        double blocks;
        bool contended;
    } cases[] = {
        {4, 1, "ring", 2 * 3 / 4.0, false},
        {2, 2, "ring", 2 * 3 / 4.0, false},
        {2, 2, "hierarchical", 2 * 1 / 2.0, false},
        {4, 2, "hierarchical", 2 * 3 / 4.0, false},
        {4, 2, "ring", 2 * 7 / 8.0, false},
        {4, 1, "two_shot", 2 * 3 / 4.0, true},
        {2, 2, "two_shot", 2.0, false},
        {4, 1, "rabenseifner", 2 * 3 / 4.0, true},
        {2, 2, "recursive_doubling", 2.0, false},
        {4, 1, "one_shot", 3.0, true},
        {2, 2, "ordered_chain", 1.0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tti_work_model model =
            counted(hosts_of(cases[i].hosts, cases[i].each, 0), cases[i].name);
        if (model.crossing < cases[i].blocks - 1e-9 || model.crossing > cases[i].blocks + 1e-9 ||
            model.contended != cases[i].contended)
            fail_msg("%s on %d hosts of %d: %g blocks, %scontended", cases[i].name, cases[i].hosts,
                     cases[i].each, model.crossing, model.contended ? "" : "not ");
    }
    struct tti_work_model one = counted(hosts_of(1, 4, 0), "ring");
    assert_true(one.crossing <= 0 && !one.contended);
}

/* Large blocks: as few bytes over each line as can be, and no host hears from several others. */
static void hosts_matter(void **state)
{
    (void)state;
    const size_t large = (size_t)16 << 20;
    for (int hosts = 2; hosts <= 8; hosts *= 2)
        for (int each = 1; each <= 8; each *= 2) {
            const char *name = chosen(hosts_of(hosts, each, 1e9), TUTTI_ALL_REDUCE, large);
            struct tti_work_model model = counted(hosts_of(hosts, each, 0), name);
            if (model.contended || model.crossing > 2 * (hosts - 1.0) / hosts + 1e-9)
                fail_msg("%d hosts of %d ranks: %s with %g blocks over a line", hosts, each, name,
                         model.crossing);
        }
}

/* The slower the line, the sooner few bytes matter more than few messages. */
static void lines_matter(void **state)
{
    (void)state;
    const size_t count = 4096;
    struct tti_selection slow, fast;
    assert_int_equal(
        tti_select(hosts_of(8, 1, 1e9), TUTTI_ALL_REDUCE, count, TUTTI_FLOAT32, 0, &slow),
        TUTTI_OK);
    assert_int_equal(
        tti_select(hosts_of(8, 1, 400e9), TUTTI_ALL_REDUCE, count, TUTTI_FLOAT32, 0, &fast),
        TUTTI_OK);
    double few = counted(hosts_of(8, 1, 0), slow.algorithm->name).crossing;
    double many = counted(hosts_of(8, 1, 0), fast.algorithm->name).crossing;
    if (few >= many)
        fail_msg("%s on slow lines, %s on fast ones", slow.algorithm->name, fast.algorithm->name);
    assert_true(slow.predicted_s > fast.predicted_s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forced),
        cmocka_unit_test(refused),
        cmocka_unit_test(in_order),
        cmocka_unit_test(size_matters),
        cmocka_unit_test(crossing),
        cmocka_unit_test(hosts_matter),
        cmocka_unit_test(lines_matter),
        cmocka_unit_test(crowds_take_one_lane),
        cmocka_unit_test(crowds_wait_for_one_at_a_time),
        cmocka_unit_test(caches_serve_what_they_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
