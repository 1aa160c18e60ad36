/* The choice of algorithms between hosts (coll/select.c): what crosses their lines is counted in
 * the plans, and decides. */
#include "coll/algorithms/algorithms.h"
#include "coll/select.h"
#include "coll/work_model.h"
#include "tests/coll/made_comm.h"
#include "tests/tutti_cmocka.h"

#include <math.h>
#include <string.h>

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

/* What saves messages in memory does not between hosts: there each hop is waited for. */
static void hops_count_between_hosts(void **state)
{
    static const double caches[3] = {48 << 10, 1 << 20, 32 << 20};
    const char *name[2];
    (void)state;
    for (int meshed = 0; meshed < 2; meshed++) {
        struct tutti_comm *comm = hosts_of(2, 4, 10e9);
        struct tti_ways ways;
        tti_profile_default(caches, meshed ? TTI_CPU_MESH : TTI_CPU_CLUSTERS, 2, &comm->profile);
        assert_int_equal(tti_select_ways(comm, TUTTI_BROADCAST, 64, TUTTI_FLOAT32, false, &ways),
                         TUTTI_OK);
        name[meshed] = ways.way[0].algorithm->name;
    }
    assert_string_equal(name[0], name[1]);
}

static struct tti_work_model counted_of(struct tutti_comm *comm, enum tutti_collective collective,
                                        const char *name)
{
    struct tti_work_model model;
    struct tti_plan_spec spec = {.collective = collective,
                                 .nranks = comm->size,
                                 .lanes = 1,
                                 .slices = 1,
                                 .layout = tti_peers_layout(&comm->peers)};
    const struct tti_algorithm *algorithm = tti_algorithm_find(collective, name);
    assert_non_null(algorithm);
    assert_int_equal(tti_work_model_of(algorithm, &spec, &model), TUTTI_OK);
    return model;
}

static struct tti_work_model counted(struct tutti_comm *comm, const char *name)
{
    return counted_of(comm, TUTTI_ALL_REDUCE, name);
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

/* ... with two NICs a host, that its ranks go by in turn: as much as if both were as busy as one.
 */
static struct tutti_comm *gates_of(int hosts, int each, double line_bits)
{
    static int gate_of[64];
    struct tutti_comm *comm = hosts_of(hosts, each, line_bits);
    for (int r = 0; r < hosts * each; r++)
        gate_of[r] = 2 * (r / each) + r % each % 2;
    comm->peers.gates = (struct tti_gates){2 * hosts, 2, gate_of};
    return comm;
}

static void crossing_by_two(void **state)
{
    (void)state;
    const struct {
        enum tutti_collective collective;
        const char *name;
        double one, two; /* lanes */
    } cases[] = {
        {TUTTI_BROADCAST, "chain", 2, 1},
        {TUTTI_BROADCAST, "tree", 2, 2},
        {TUTTI_REDUCE, "chain", 2, 1},
        {TUTTI_ALL_REDUCE, "ring", 2 * 2 * 3 / 4.0, 2 * 3 / 4.0},
        {TUTTI_ALL_REDUCE, "hierarchical", 2 * 1 / 2.0, 2 * 1 / 2.0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct tti_work_model model =
            counted_of(gates_of(2, 2, 0), cases[i].collective, cases[i].name);
        if (fabs(model.crossing - cases[i].one) > 1e-9 || fabs(model.turned - cases[i].two) > 1e-9)
            fail_msg("%s %s: %g blocks over the line, %g with two lanes",
                     tutti_collective_name(cases[i].collective), cases[i].name, model.crossing,
                     model.turned);
    }
    const struct tti_work_model plain = counted_of(hosts_of(2, 2, 0), TUTTI_BROADCAST, "chain");
    assert_true(fabs(plain.crossing - 1) < 1e-9 && fabs(plain.turned - 1) < 1e-9);
}

/* A large broadcast takes both NICs, and so half the time; what is small has one lane still. */
static void both_nics_are_taken(void **state)
{
    (void)state;
    const size_t large = (size_t)16 << 20;
    struct tti_selection one, two;
    assert_int_equal(
        tti_select(hosts_of(4, 4, 20e9), TUTTI_BROADCAST, large, TUTTI_FLOAT32, 0, &one), TUTTI_OK);
    assert_int_equal(
        tti_select(gates_of(4, 4, 20e9), TUTTI_BROADCAST, large, TUTTI_FLOAT32, 0, &two), TUTTI_OK);
    assert_string_equal(two.algorithm->name, "chain");
    assert_int_equal(two.spec.lanes, 2);
    if (two.predicted_s > 1.1 * one.predicted_s)
        fail_msg("%g us by %s on a line, %g by chain on two halves of it", 1e6 * one.predicted_s,
                 one.algorithm->name, 1e6 * two.predicted_s);
    assert_int_equal(
        tti_select(gates_of(4, 4, 20e9), TUTTI_BROADCAST, 1024, TUTTI_FLOAT32, 0, &two), TUTTI_OK);
    assert_int_equal(two.spec.lanes, 1);
}

/* More lanes than usual where there are more NICs, up to what the links have. */
static void a_lane_for_each_nic(void **state)
{
    (void)state;
    static int gate_of[64];
    for (int most = 4; most <= 16; most *= 2) {
        struct tti_selection way;
        struct tutti_comm *comm = hosts_of(2, 8, 400e9);
        for (int r = 0; r < 16; r++)
            gate_of[r] = r;
        comm->peers.gates = (struct tti_gates){16, 8, gate_of};
        comm->settings.lanes = most;
        assert_int_equal(
            tti_select(comm, TUTTI_BROADCAST, (size_t)64 << 20, TUTTI_FLOAT32, 0, &way), TUTTI_OK);
        assert_string_equal(way.algorithm->name, "chain");
        assert_int_equal(way.spec.lanes, most < 8 ? most : 8);
    }
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
        cmocka_unit_test(hops_count_between_hosts),
        cmocka_unit_test(crossing),
        cmocka_unit_test(crossing_by_two),
        cmocka_unit_test(both_nics_are_taken),
        cmocka_unit_test(a_lane_for_each_nic),
        cmocka_unit_test(hosts_matter),
        cmocka_unit_test(lines_matter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
