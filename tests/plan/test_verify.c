/* The verifier: passes plans that are right, and names what is wrong with planted errors. */
#include "coll/algorithms/algorithms.h"
#include "plan/build.h"
#include "plan/verify.h"
#include "tests/plan/direct_plans.h"
#include "tests/tutti_cmocka.h"

#include <string.h>

static void verify_ok(const struct tti_algorithm *algorithm, int n, int root, int lanes,
                      struct tti_verify_stats *stats)
{
    struct tti_plan_spec spec = {.collective = algorithm->collective,
                                 .nranks = n,
                                 .root = root,
                                 .lanes = lanes,
                                 .slices = 1,
                                 .layout = {.nhosts = 1}};
    if (tti_verify_algorithm(algorithm, &spec, stats) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
}

static void ring_passes(void **state)
{
    (void)state;
    const struct tti_algorithm *ring = tti_algorithm_find(TUTTI_ALL_REDUCE, "ring");
    assert_non_null(ring);
    struct tti_verify_stats stats = {0};
    for (int n = 1; n <= 64; n = n < 8 ? n + 1 : 2 * n)
        for (int lanes = 1; lanes <= 3; lanes++)
            verify_ok(ring, n, 0, lanes, &stats);
    assert_int_equal(stats.plans, 3 * (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 16 + 32 + 64));
}

static void direct_plans_pass(void **state)
{
    (void)state;
    for (int collective = 0; collective < TUTTI_COLLECTIVE_COUNT; collective++) {
        struct tti_verify_stats stats = {0};
        for (int n = 1; n <= 7; n++)
            for (int root = 0; root < n; root++)
                verify_ok(direct_algorithm((enum tutti_collective)collective), n, root, 1, &stats);
        assert_true(stats.steps > 0 && stats.messages > 0);
    }
}

/* What was counted: two placements times two channel models. */
static void counts(void **state)
{
    (void)state;
    struct tti_verify_stats stats = {0};
    verify_ok(tti_algorithm_find(TUTTI_ALL_REDUCE, "ring"), 4, 0, 1, &stats);
    assert_int_equal(stats.plans, 4);
    assert_int_equal(stats.steps, 4 * 4 * 7);
    assert_int_equal(stats.messages, 4 * 4 * 6);
}

/* ---- planted errors: what each is, and what the verifier must say ---- */

static struct tti_step *at(struct plan_set *set, int rank, size_t step)
{
    return &set->plans[rank]->lanes[0].steps[step];
}

static void send_twice(struct plan_set *set)
{
    *at(set, 0, 1) = *at(set, 0, 0);
    at(set, 0, 1)->to = 1;
}

static void wait_for_each_other(struct plan_set *set)
{
    for (int rank = 0; rank < 2; rank++) {
        struct tti_step send = *at(set, rank, 0);
        *at(set, rank, 0) = *at(set, rank, 1);
        *at(set, rank, 1) = send;
    }
}

/* In place each rank then waits to overwrite what the other has not taken yet. */
static void send_from_in(struct plan_set *set)
{
    for (int rank = 0; rank < set->nranks; rank++) {
        struct tti_step *give = at(set, rank, 1), *take = at(set, rank, 2);
        assert_int_equal(give->kind, TTI_SEND);
        give->src = tti_in(0);
        take->kind = TTI_RECV_REDUCE;
        take->flags = TTI_FINAL | (rank == 1 ? TTI_MSG_LEFT : 0);
        take->src = tti_in(0);
        take->dst = tti_out(0);
        set->plans[rank]->lanes[0].count = 3;
    }
}

/* The input is copied aside and passed on: it may go out from where it lies, and the sum overwrites
 * that in place. */
static void pass_on_copy(struct plan_set *set)
{
    for (int rank = 0; rank < set->nranks; rank++) {
        struct tti_step *give = at(set, rank, 1), *take = at(set, rank, 2);
        assert_int_equal(give->kind, TTI_SEND);
        give->kind = TTI_COPY;
        give->flags = TTI_FORWARD;
        give->dst = give->src;
        give->src = tti_in(0);
        take->flags = 0;
    }
}

static void mix_slots(struct plan_set *set)
{
    struct tti_step *sum = at(set, 0, 6);
    assert_int_equal(sum->src.buffer, TTI_SLOT);
    sum->src.index = 1;
    at(set, 0, 7)->dst.index = 0;
}

static void clear_hazard(struct plan_set *set)
{
    for (size_t s = 0; s < set->plans[0]->lanes[0].count; s++)
        at(set, 0, s)->hazard = -1;
}

static void write_in(struct plan_set *set)
{
    size_t last = set->plans[1]->lanes[0].count - 1;
    at(set, 1, last)->dst = tti_in(0);
}

static void other_order(struct plan_set *set)
{
    struct tti_step *sum = at(set, 1, 3);
    assert_int_equal(sum->kind, TTI_REDUCE);
    struct tti_ref src = sum->src;
    sum->src = sum->src2;
    sum->src2 = src;
}

static void count_twice(struct plan_set *set)
{
    at(set, 0, 5)->src2 = at(set, 0, 5)->src;
}

static void read_unwritten(struct plan_set *set)
{
    at(set, 2, 0)->src = tti_scratch(2);
}

static void drop_final(struct plan_set *set)
{
    at(set, 0, 6)->flags = 0;
}

static void wrong_type(struct plan_set *set)
{
    at(set, 0, 3)->flags = 0;
}

static void wrong_source(struct plan_set *set)
{
    at(set, 0, 1)->src = tti_in(0);
}

static void wrong_block(struct plan_set *set)
{
    at(set, 0, 1)->dst.index = 4;
    at(set, 0, 2)->dst.index = 2;
}

static void out_of_range(struct plan_set *set)
{
    at(set, 0, 0)->dst.index += 2;
}

static void unknown_peer(struct plan_set *set)
{
    at(set, 0, 0)->to = 3;
}

static void other_block(struct plan_set *set)
{
    at(set, 1, 0)->block = 2;
}

static void no_block(struct plan_set *set)
{
    at(set, 1, 0)->block = -1;
}

struct planted {
    enum tutti_collective collective;
    int n;
    void (*plant)(struct plan_set *set);
    bool finish; /* work out hazards and peers afterwards */
    const char *place, *what;
};

static void planted_errors(void **state)
{
    (void)state;
    static const struct planted errors[] = {
        {TUTTI_ALL_GATHER, 3, send_twice, true, "rank 2 lane 0 step 2: chunk 0", "1 lane stuck"},
        {TUTTI_SEND_RECV, 2, wait_for_each_other, true, "rank 1 lane 0 step 0", "2 lanes stuck"},
        {TUTTI_ALL_REDUCE, 2, send_from_in, true, "rank 1 lane 0 step 2", "sends to be taken"},
        {TUTTI_ALL_REDUCE, 2, pass_on_copy, true, "rank 0 lane 0 step 3", "step 1 still sends"},
        {TUTTI_ALL_REDUCE, 3, mix_slots, true, "rank 0 lane 0 step 6", "SLOT[1]"},
        {TUTTI_BROADCAST, 3, clear_hazard, false, "rank 0 lane 0 step 2", "step 1 still sends"},
        {TUTTI_BROADCAST, 3, write_in, true, "rank 1 lane 0 step 0", "0 of them here"},
        {TUTTI_ALL_GATHER, 3, write_in, true, "rank 1 lane 0 step 4", "IN is written"},
        {TUTTI_ALL_REDUCE, 2, other_order, true, "rank 1", "another order"},
        {TUTTI_ALL_REDUCE, 3, count_twice, true, "rank 0 lane 0 step 5", "counts twice"},
        {TUTTI_ALL_REDUCE, 3, read_unwritten, true, "rank 2 lane 0 step 0", "never written"},
        {TUTTI_ALL_REDUCE, 3, drop_final, true, "rank 0 lane 0 step 6", "TTI_FINAL is missing"},
        {TUTTI_ALL_REDUCE, 3, wrong_type, true, "rank 0 lane 0 step 3", "sends accumulators"},
        {TUTTI_SCATTER, 2, wrong_source, true, "rank 1",
         "OUT[0] holds chunk 0 of IN instead of chunk 2"},
        {TUTTI_GATHER, 3, wrong_block, true, "rank 0", "OUT[2] holds the wrong rank's chunk 0"},
        {TUTTI_SCATTER, 2, out_of_range, true, "rank 0 lane 0 step 0", "2 of them here"},
        {TUTTI_ALL_GATHER, 3, other_block, false, "rank 1 lane 0 step 0",
         "is about block 2 from its first chunk on, but chunk 0 of it is not of block 2"},
        {TUTTI_REDUCE_SCATTER, 3, other_block, false, "rank 1 lane 0 step 0", "is about block 2"},
        {TUTTI_REDUCE_SCATTER, 3, no_block, false, "rank 1 lane 0 step 0", "whose block"},
        {TUTTI_BROADCAST, 3, unknown_peer, true, "rank 0 lane 0 step 0", "rank 3 of 3"},
    };
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++) {
        struct plan_set set;
        plan_set_build(&set, direct_algorithm(errors[i].collective), errors[i].n, 0, 1);
        assert_int_equal(tti_verify_plans(set.plans, set.nranks, NULL), TUTTI_OK);
        errors[i].plant(&set);
        for (int rank = 0; errors[i].finish && rank < set.nranks; rank++)
            plan_set_finish(&set, rank);
        assert_int_equal(tti_verify_plans(set.plans, set.nranks, NULL), TUTTI_ERR_INTERNAL);
        if (!strstr(tutti_last_error(), errors[i].place) ||
            !strstr(tutti_last_error(), errors[i].what))
            fail_msg("error %zu is not named: %s", i, tutti_last_error());
        plan_set_destroy(&set);
    }
}

/* Four lanes are named, the rest counted. */
static void large_deadlock(void **state)
{
    (void)state;
    struct plan_set set;
    plan_set_build(&set, direct_algorithm(TUTTI_SEND_RECV), 6, 0, 1);
    for (int rank = 0; rank < 6; rank++) {
        struct tti_step send = *at(&set, rank, 0);
        *at(&set, rank, 0) = *at(&set, rank, 1);
        *at(&set, rank, 1) = send;
    }
    assert_int_equal(tti_verify_plans(set.plans, set.nranks, NULL), TUTTI_ERR_INTERNAL);
    assert_non_null(strstr(tutti_last_error(), "6 lanes stuck"));
    assert_non_null(strstr(tutti_last_error(), "rank 3 lane 0 step 0"));
    assert_null(strstr(tutti_last_error(), "rank 4 lane 0 step 0"));
    plan_set_destroy(&set);
}

/* Claims to look the same from every rank, and is a tree. */
static void false_translation(void **state)
{
    (void)state;
    struct tti_algorithm liar = *direct_algorithm(TUTTI_BROADCAST);
    liar.translates = true;
    struct tti_plan_spec spec = {
        .collective = TUTTI_BROADCAST, .nranks = 3, .lanes = 1, .slices = 1};
    assert_int_equal(tti_verify_algorithm(&liar, &spec, NULL), TUTTI_ERR_INTERNAL);
    assert_non_null(strstr(tutti_last_error(), "claims to translate"));
    spec.collective = TUTTI_SEND_RECV;
    liar = *direct_algorithm(TUTTI_SEND_RECV);
    liar.translates = true;
    assert_int_equal(tti_verify_algorithm(&liar, &spec, NULL), TUTTI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring_passes),    cmocka_unit_test(direct_plans_pass),
        cmocka_unit_test(counts),         cmocka_unit_test(planted_errors),
        cmocka_unit_test(large_deadlock), cmocka_unit_test(false_translation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
