/* coll/cost_model.c on one host: what caches serve, who waits for whom, and what passes between
 * cores, each by what it changes in predictions and in what is chosen by them. */
#include "coll/cost_model.h"

#include "coll/algorithms/algorithms.h"
#include "coll/fused.h"
#include "coll/select.h"
#include "coll/staged.h"
#include "tests/coll/made_comm.h"
#include "tests/tutti_cmocka.h"

#include <math.h>
#include <string.h>

/* ---- caches ---- */

/* Seconds of the fused path for blocks of so many bytes, two ranks with a core each. */
static double fused_seconds(enum tutti_collective collective, size_t bytes)
{
    struct tutti_comm *comm = comm_on_a_mesh(2, 2);
    struct tti_ways ways;
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

/* Ranks of a core share its caches: what one rank has in the second one falls out of it where two
 * do. All constants but the bytes' are 0, and what is beyond costs ten times as much. */
static void ranks_of_a_core_share_its_caches(void **state)
{
    static const double caches[3] = {32 << 10, 1 << 20, 1 << 30};
    static const double inside = 1e-12, beyond = 10e-12;
    (void)state;
    const struct tti_cost_way way = {
        .algorithm = tti_fused_equal(TUTTI_ALL_GATHER),
        .path = TTI_PATH_FUSED,
        .spec = {.collective = TUTTI_ALL_GATHER, .nranks = 6, .lanes = 1, .slices = 1}};
    const double touches = tti_fused_touched(TUTTI_ALL_GATHER, 6);
    for (int each = 2; each <= 3; each++) {
        const struct tti_cost_place place = {.medium = TTI_MAPPED, .most_local = 6};
        struct tti_profile profile;
        tti_profile_default(caches, TTI_CPU_CLUSTERS, 6.0 / each, &profile);
        double *cost = profile.cost[TTI_MAPPED], *touch = &cost[TTI_COST_CROWDED_FUSED_TOUCH];
        memset(cost, 0, sizeof profile.cost[TTI_MAPPED]);
        touch[0] = touch[1] = inside;
        touch[2] = touch[3] = beyond;
        const double held = 0.99 * caches[1] / each, over = 1.4 * caches[1] / each;
        const double in = tti_cost_seconds(&profile, &place, &way, held / touches) / each / held;
        const double out = tti_cost_seconds(&profile, &place, &way, over / touches) / each / over;
        if (in > 1.01 * inside || in < 0.99 * inside || out < 1.05 * inside)
            fail_msg("%d ranks a core: %g ps a byte of what it holds, %g of more", each, in * 1e12,
                     out * 1e12);
    }
}

/* What is copied between cores of earlier clusters takes twice as long, and what each rank only
 * reads hardly longer, so that the choice is another one. */
static void earlier_clusters_copy_slowly(void **state)
{
    enum { COUNT = (64 << 10) / sizeof(float) };
    static const double caches[3] = {32 << 10, 1 << 20, 32 << 20};
    double seconds[2];
    (void)state;
    for (int earlier = 0; earlier < 2; earlier++) {
        struct tutti_comm *comm = comm_in_clusters(2, 2);
        struct tti_selection selection;
        tti_profile_default(caches, earlier ? TTI_CPU_EARLIER_CLUSTERS : TTI_CPU_CLUSTERS, 2,
                            &comm->profile);
        assert_false(comm->profile.meshed);
        assert_int_equal(
            tti_select_plan(comm, TUTTI_ALL_REDUCE, COUNT, TUTTI_FLOAT32, 0, &selection), TUTTI_OK);
        assert_string_equal(selection.algorithm->name, "two_shot");
        struct tti_ways ways;
        assert_int_equal(
            tti_select_ways(comm, TUTTI_ALL_REDUCE, COUNT, TUTTI_FLOAT32, false, &ways), TUTTI_OK);
        seconds[earlier] = 0;
        for (int i = 0; i < ways.count; i++)
            if (ways.way[i].path == TTI_PATH_PLAN && ways.way[i].algorithm == selection.algorithm)
                seconds[earlier] = ways.way[i].predicted_s;
    }
    if (seconds[1] < 1.5 * seconds[0] || seconds[1] > 3 * seconds[0])
        fail_msg("%g us in clusters, %g in earlier ones", seconds[0] * 1e6, seconds[1] * 1e6);
}

/* In those before Zen 4 ranks that share cores do not copy what they can map, from 16 KiB a rank
 * on, and so do not run plans for it, as they do in the others. */
static void first_clusters_use_what_is_mapped(void **state)
{
    static const enum tutti_collective moved[] = {TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER};
    static const double caches[3] = {32 << 10, 512 << 10, 32 << 20};
    (void)state;
    for (size_t k = 0; k < sizeof moved / sizeof moved[0]; k++)
        for (int first = 0; first < 2; first++) {
            struct tutti_comm *comm = comm_in_clusters(4, 2);
            struct tti_selection selection;
            tti_profile_default(caches, first ? TTI_CPU_FIRST_CLUSTERS : TTI_CPU_EARLIER_CLUSTERS,
                                2, &comm->profile);
            assert_int_equal(
                tti_select(comm, moved[k], (16 << 10) / 4, TUTTI_FLOAT32, 0, &selection), TUTTI_OK);
            assert_int_equal(first, selection.path != TTI_PATH_PLAN);
        }
}

/* ---- who waits for whom ---- */

/* The last of several messages comes later than one alone, where ranks take turns on cores: of two
 * ways of two waits each, the one that waits for one peer at a time, if that counts. */
static void crowds_wait_for_one_at_a_time(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct tutti_comm *comm = comm_on_a_mesh(4, 2);
        struct tti_selection selection;
        double *counts = &comm->profile.cost[TTI_PRIVATE][TTI_COST_CROWDED_LATE];
        assert_true(*counts > 0);
        *counts *= late;
        assert_int_equal(
            tti_select_plan(comm, TUTTI_ALL_REDUCE, 1024, TUTTI_FLOAT32, 0, &selection), TUTTI_OK);
        assert_int_equal(late, strcmp(selection.algorithm->name, "recursive_doubling") == 0);
    }
}

static double staged_seconds(enum tutti_collective collective, size_t ahead)
{
    struct tutti_comm *comm = comm_on_a_mesh(4, 2);
    struct tti_ways ways;
    comm->settings.staged_ahead = ahead;
    assert_int_equal(tti_select_ways(comm, collective, (64 << 10) / 4, TUTTI_FLOAT32, false, &ways),
                     TUTTI_OK);
    for (int i = 0; i < ways.count; i++)
        if (ways.way[i].path == TTI_PATH_STAGED)
            return ways.way[i].predicted_s;
    fail_msg("no staged path");
    return 0;
}

/* The further ahead a root may be, the less it waits; 0 is as many as there is room for. Who waits
 * for everybody gains nothing. */
static void roots_gain_by_being_ahead(void **state)
{
    (void)state;
    const double one = staged_seconds(TUTTI_BROADCAST, 1);
    const double usual = staged_seconds(TUTTI_BROADCAST, TTI_STAGED_AHEAD);
    const double far = staged_seconds(TUTTI_BROADCAST, 0);
    if (one < 1.05 * usual || usual < 1.02 * far)
        fail_msg("%g us one ahead, %g us usually, %g us far", one * 1e6, usual * 1e6, far * 1e6);
    assert_true(staged_seconds(TUTTI_ALL_REDUCE, 1) <= staged_seconds(TUTTI_ALL_REDUCE, 0));
    assert_true(staged_seconds(TUTTI_ALL_REDUCE, 1) >= staged_seconds(TUTTI_ALL_REDUCE, 0));
}

/* Seconds of what of a plan grows with its bytes, from so many KiB to twice that. */
static double plan_grows(enum tutti_collective collective, bool reads, size_t kib)
{
    double seconds[2];
    for (int i = 0; i < 2; i++) {
        struct tti_selection selection;
        char direct[] = "direct";
        struct tutti_comm *comm = comm_on_a_mesh(2, 2);
        comm->settings.algorithms = direct;
        comm->peers.reads = reads;
        assert_int_equal(tti_select_plan(comm, collective, (kib << 10) / sizeof(float) << i,
                                         TUTTI_FLOAT32, 0, &selection),
                         TUTTI_OK);
        seconds[i] = selection.predicted_s;
    }
    return seconds[1] - seconds[0];
}

/* What is moved and not combined is read by both sides at once, on meshes, which saves more while
 * it is in their own caches; where the system keeps them from it, it is copied as everything else.
 */
static void who_waits_helps(void **state)
{
    (void)state;
    for (size_t kib = 64; kib <= 16384; kib *= 256) {
        const double moved =
            plan_grows(TUTTI_ALL_GATHER, true, kib) / plan_grows(TUTTI_ALL_GATHER, false, kib);
        const double combined = plan_grows(TUTTI_REDUCE_SCATTER, true, kib) /
                                plan_grows(TUTTI_REDUCE_SCATTER, false, kib);
        const double wanted = kib < 1024 ? 0.43 : 0.75;
        if (fabs(moved - wanted) > 0.03 || fabs(combined - 1) > 0.01)
            fail_msg("%zu KiB: %g of the time when moved, %g when combined", kib, moved, combined);
    }
}

/* What is little is copied on meshes, too, and takes as long from whichever cache: 8 KiB are summed
 * up sooner by who sends them whole, once, than by halves, twice. (32 KiB are lent.) */
static void little_is_copied_on_meshes(void **state)
{
    static const char *const names[] = {"one_shot", "one_shot", "two_shot", "two_shot"};
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct tti_selection selection;
        assert_int_equal(tti_select_plan(comm_on_a_mesh(2, 2), TUTTI_ALL_REDUCE, (size_t)2048 << i,
                                         TUTTI_FLOAT32, 0, &selection),
                         TUTTI_OK);
        assert_string_equal(selection.algorithm->name, names[i]);
    }
}

/* ---- what passes between cores ---- */

static struct tti_work_copied copied_by(const char *name, int ranks)
{
    struct tti_work_model model;
    const struct tti_plan_spec spec = {
        .collective = TUTTI_ALL_REDUCE, .nranks = ranks, .lanes = 1, .slices = 1};
    assert_int_equal(tti_work_model_of(tti_algorithm_find(TUTTI_ALL_REDUCE, name), &spec, &model),
                     TUTTI_OK);
    return model.copied;
}

/* Bytes of the busiest rank where senders copy, worked out by hand: what goes into a copy and comes
 * from one, and what is read and written of one's own. */
static void copies_are_counted_at_both_ends(void **state)
{
    static const struct {
        const char *name;
        int ranks;
        double own, passed;
    } cases[] = {
        {"one_shot", 2, 5, 2},   /* sent whole; received aside, then combined */
        {"two_shot", 2, 2.5, 2}, /* halves: sent; combined and passed on; received */
        {"ring", 4, 3.75,
         3}, /* quarters: one sent; three combined, passed on; three received, two passed on */
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct tti_work_copied found = copied_by(cases[i].name, cases[i].ranks);
        if (found.own < cases[i].own - 1e-9 || found.own > cases[i].own + 1e-9 ||
            found.passed < cases[i].passed - 1e-9 || found.passed > cases[i].passed + 1e-9)
            fail_msg("%s of %d ranks: %g of its own, %g passed on", cases[i].name, cases[i].ranks,
                     found.own, found.passed);
    }
}

/* Two processes of a cluster with memory of their own: what one core does alone in its cache is
 * cheap beside a message, so the fewer messages win up to 8 KiB. */
static void fewer_messages_in_clusters(void **state)
{
    (void)state;
    for (size_t bytes = 2048; bytes <= 32 << 10; bytes *= 2) {
        struct tutti_comm *comm = comm_in_clusters(2, 2);
        struct tti_selection selection;
        assert_int_equal(
            tti_select_plan(comm, TUTTI_ALL_REDUCE, bytes / 4, TUTTI_FLOAT32, 0, &selection),
            TUTTI_OK);
        assert_string_equal(selection.algorithm->name, bytes <= 8192 ? "one_shot" : "two_shot");
    }
}

/* Four ranks on two cores of a cluster: nobody waits for a small broadcast, so the way whose ranks
 * have the fewest messages each wins, not the one of the fewest hops. */
static void who_is_not_waited_for_saves_messages(void **state)
{
    (void)state;
    for (int mapped = 0; mapped < 2; mapped++) {
        struct tutti_comm *comm = comm_in_clusters(4, 2);
        struct tti_ways ways;
        assert_int_equal(tti_select_ways(comm, TUTTI_BROADCAST, 64, TUTTI_FLOAT32, mapped, &ways),
                         TUTTI_OK);
        assert_string_equal(ways.way[0].algorithm->name, "chain");
    }
}

/* Four ranks on two cores of a cluster, memory of their own: the stage is copied into and read by
 * all, so longer all-reduces go by plans. */
static void crowds_in_clusters_go_by_plans(void **state)
{
    (void)state;
    for (size_t bytes = 64 << 10; bytes <= 16 << 20; bytes *= 2) {
        struct tutti_comm *comm = comm_in_clusters(4, 2);
        struct tti_ways ways;
        comm->settings.staged_ahead = TTI_STAGED_AHEAD;
        assert_int_equal(
            tti_select_ways(comm, TUTTI_ALL_REDUCE, bytes / 4, TUTTI_FLOAT32, false, &ways),
            TUTTI_OK);
        assert_int_equal(ways.way[0].path, TTI_PATH_PLAN);
    }
}

/* Seconds of a chain's broadcast of 64 bytes among four ranks on two cores of a cluster, with its
 * messages `times` as long. */
static double chain_seconds(int lanes, double times)
{
    struct tti_profile profile = comm_in_clusters(4, 2)->profile;
    struct tti_cost_place place = {.medium = TTI_PRIVATE, .most_local = 4};
    struct tti_cost_way way = {.algorithm = tti_algorithm_find(TUTTI_BROADCAST, "chain"),
                               .spec = {.collective = TUTTI_BROADCAST,
                                        .nranks = 4,
                                        .lanes = lanes,
                                        .slices = 1,
                                        .layout = {.nhosts = 1}}};
    profile.cost[TTI_PRIVATE][TTI_COST_CROWDED_ONE_WAY] *= times;
    assert_int_equal(tti_work_model_of(way.algorithm, &way.spec, &way.work), TUTTI_OK);
    return tti_cost_seconds(&profile, &place, &way, 64);
}

/* A second lane is as many messages again. */
static void lanes_have_messages_of_their_own(void **state)
{
    (void)state;
    const double one = chain_seconds(1, 3) - chain_seconds(1, 1);
    const double two = chain_seconds(2, 3) - chain_seconds(2, 1);
    assert_true(one > 0 && two > 1.99 * one && two < 2.01 * one);
}

/* Two ranks of a cluster that read what is lent in each other's memory (TUTTI_SHM_CMA=2): large
 * pieces of it have no copy at the sender; small ones have, and all that is not lent: what is
 * reduced, what all send to one, what is exchanged below 512 KiB. */
static void who_is_read_does_not_copy(void **state)
{
    static const struct {
        enum tutti_collective collective;
        size_t from; /* bytes; 0: never */
    } cases[] = {{TUTTI_BROADCAST, 32 << 10},
                 {TUTTI_SCATTER, 32 << 10},
                 {TUTTI_ALL_GATHER, 32 << 10},
                 {TUTTI_ALL_TO_ALL, 512 << 10},
                 {TUTTI_GATHER, 0},
                 {TUTTI_ALL_REDUCE, 0},
                 {TUTTI_REDUCE, 0},
                 {TUTTI_REDUCE_SCATTER, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t bytes = 8 << 10; bytes <= 1 << 20; bytes *= 2) {
            double seconds[2];
            for (int reads = 0; reads < 2; reads++) {
                char fixed[] = "direct,all_reduce=two_shot,broadcast=tree";
                struct tti_selection selection;
                struct tutti_comm *comm = comm_in_clusters(2, 2);
                comm->settings.algorithms = fixed;
                comm->peers.reads = reads;
                assert_int_equal(tti_select_plan(comm, cases[i].collective, bytes / 4,
                                                 TUTTI_FLOAT32, 0, &selection),
                                 TUTTI_OK);
                seconds[reads] = selection.predicted_s;
            }
            const bool read = cases[i].from > 0 && bytes >= cases[i].from;
            if ((seconds[0] == seconds[1]) == read)
                fail_msg("%s of %zu bytes: %g us, and %g where peers read",
                         tutti_collective_name(cases[i].collective), bytes, seconds[0] * 1e6,
                         seconds[1] * 1e6);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(caches_serve_what_they_hold),
        cmocka_unit_test(ranks_of_a_core_share_its_caches),
        cmocka_unit_test(earlier_clusters_copy_slowly),
        cmocka_unit_test(first_clusters_use_what_is_mapped),
        cmocka_unit_test(crowds_wait_for_one_at_a_time),
        cmocka_unit_test(roots_gain_by_being_ahead),
        cmocka_unit_test(who_waits_helps),
        cmocka_unit_test(little_is_copied_on_meshes),
        cmocka_unit_test(copies_are_counted_at_both_ends),
        cmocka_unit_test(fewer_messages_in_clusters),
        cmocka_unit_test(who_is_not_waited_for_saves_messages),
        cmocka_unit_test(crowds_in_clusters_go_by_plans),
        cmocka_unit_test(lanes_have_messages_of_their_own),
        cmocka_unit_test(who_is_read_does_not_copy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
