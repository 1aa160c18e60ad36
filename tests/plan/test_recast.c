/* Plans for contributions that are sums already, and for ranks that go by other names
 * (plan/recast.h). */
#include "plan/recast.h"

#include "coll/algorithms/algorithms.h"
#include "plan/verify.h"
#include "tests/plan/concrete.h"
#include "tests/plan/direct_plans.h"
#include "tests/tutti_cmocka.h"

#include <string.h>

static bool combines(const struct tti_algorithm *algorithm)
{
    return tti_order_shows(algorithm->collective);
}

/* Every algorithm, for numbers that betray an accumulator which is taken for an element, and one
 * that is put where it would be rounded. */
static void all_reduces_of_sums(void **state)
{
    (void)state;
    const struct tti_algorithm *algorithm;
    uint64_t random = 0x3f81d2c6a75b90e4u;
    for (int i = 0; (algorithm = tti_algorithm_at(TUTTI_ALL_REDUCE, i)); i++)
        for (int n = 2; n <= 8; n++)
            for (int lanes = 1; lanes <= 2; lanes++) {
                struct plan_set set;
                plan_set_build(&set, algorithm, n, 0, lanes);
                assert_int_equal(tti_plan_widen(set.plans, n), TUTTI_OK);
                for (int run = 0; run < 8; run++) {
                    const char *wrong = concrete_partial_all_reduce(set.plans, n, run & 1, &random);
                    if (wrong)
                        fail_msg("%s, %d ranks, %d lanes: %s", algorithm->name, n, lanes, wrong);
                }
                plan_set_destroy(&set);
            }
}

/* The numbers do betray it. */
static void unwidened_plans_are_wrong(void **state)
{
    (void)state;
    uint64_t random = 0x9c4be0137d25fa86u;
    struct plan_set set;
    plan_set_build(&set, tti_algorithm_find(TUTTI_ALL_REDUCE, "ring"), 4, 0, 1);
    assert_non_null(concrete_partial_all_reduce(set.plans, 4, false, &random));
    plan_set_destroy(&set);
}

/* Nor do others put contributions in OUT. */
static void every_reduction_can_be_widened(void **state)
{
    (void)state;
    int seen = 0;
    for (int c = 0; c < TUTTI_COLLECTIVE_COUNT; c++)
        for (int i = 0; tti_algorithm_at((enum tutti_collective)c, i); i++) {
            const struct tti_algorithm *algorithm = tti_algorithm_at((enum tutti_collective)c, i);
            for (int n = 2; combines(algorithm) && n <= 9; n++) {
                struct plan_set set;
                plan_set_build(&set, algorithm, n, c == TUTTI_REDUCE ? n - 1 : 0, 1);
                if (tti_plan_widen(set.plans, n) != TUTTI_OK)
                    fail_msg("%s %s of %d: %s", tutti_collective_name(algorithm->collective),
                             algorithm->name, n, tti_error_text());
                seen++;
                plan_set_destroy(&set);
            }
        }
    assert_true(seen > 50);
}

static void what_only_moves_stays(void **state)
{
    (void)state;
    struct plan_set set;
    plan_set_build(&set, tti_algorithm_find(TUTTI_ALL_GATHER, "ring"), 4, 0, 1);
    assert_int_equal(tti_plan_widen(set.plans, 4), TUTTI_OK);
    assert_int_equal(tti_verify_plans(set.plans, 4, NULL), TUTTI_OK);
    plan_set_destroy(&set);
}

/* A hand-written plan that stores what it was sent in OUT before it has all. */
static void contributions_in_out_are_refused(void **state)
{
    (void)state;
    struct plan_set set;
    plan_set_build(&set, tti_algorithm_find(TUTTI_ALL_REDUCE, "ring"), 2, 0, 1);
    bool changed = false;
    for (size_t s = 0; s < set.plans[1]->lanes[0].count; s++) {
        struct tti_step *step = &set.plans[1]->lanes[0].steps[s];
        if (step->kind == TTI_RECV_REDUCE && (step->flags & TTI_FINAL)) {
            step->flags &= (uint8_t)~TTI_FINAL;
            changed = true;
        }
    }
    assert_true(changed);
    assert_int_equal(tti_plan_widen(set.plans, 2), TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tti_error_text(), "rank 1 puts a contribution"));
    plan_set_destroy(&set);
}

static void names_are_given_to_all_peers(void **state)
{
    (void)state;
    static const int names[] = {1, 4, 7, 10};
    struct plan_set before, after;
    plan_set_build(&before, tti_algorithm_find(TUTTI_ALL_REDUCE, "ring"), 4, 0, 2);
    plan_set_build(&after, tti_algorithm_find(TUTTI_ALL_REDUCE, "ring"), 4, 0, 2);
    for (int r = 0; r < 4; r++) {
        const struct tti_plan *a = before.plans[r], *b = after.plans[r];
        tti_plan_rename(after.plans[r], names);
        assert_int_equal(a->npeers, b->npeers);
        for (int p = 0; p < a->npeers; p++)
            assert_int_equal(b->peers[p], names[a->peers[p]]);
        for (int lane = 0; lane < a->nlanes; lane++)
            for (size_t s = 0; s < a->lanes[lane].count; s++) {
                const struct tti_step *x = &a->lanes[lane].steps[s];
                const struct tti_step *y = &b->lanes[lane].steps[s];
                assert_int_equal(y->to, x->to < 0 ? -1 : names[x->to]);
                assert_int_equal(y->from, x->from < 0 ? -1 : names[x->from]);
                assert_int_equal(y->chunk, x->chunk);
            }
    }
    plan_set_destroy(&before);
    plan_set_destroy(&after);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduces_of_sums),
        cmocka_unit_test(unwidened_plans_are_wrong),
        cmocka_unit_test(every_reduction_can_be_widened),
        cmocka_unit_test(what_only_moves_stays),
        cmocka_unit_test(contributions_in_out_are_refused),
        cmocka_unit_test(names_are_given_to_all_peers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
