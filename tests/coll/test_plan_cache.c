/* coll/plan_cache.c: the same spec gives the same plan, many specs fit, transient steps are found.
 */
#include "coll/algorithms/algorithms.h"
#include "coll/plan_cache.h"
#include "tests/tutti_cmocka.h"

static struct tti_plan_spec spec_of(enum tutti_collective collective, int root, int lanes)
{
    return (struct tti_plan_spec){.collective = collective,
                                  .nranks = 6,
                                  .rank = 2,
                                  .root = root,
                                  .lanes = lanes,
                                  .slices = 2,
                                  .layout = {.nhosts = 1}};
}

static void plans_are_kept(void **state)
{
    (void)state;
    struct tti_plan_cache cache = {0};
    const struct tti_algorithm *tree = tti_algorithm_find(TUTTI_BROADCAST, "tree");
    const struct tti_algorithm *chain = tti_algorithm_find(TUTTI_BROADCAST, "chain");
    const struct tti_plan *first[2][6][16];
    for (int round = 0; round < 2; round++)
        for (int root = 0; root < 6; root++)
            for (int lanes = 1; lanes <= 16; lanes++)
                for (int a = 0; a < 2; a++) {
                    const struct tti_plan_entry *entry = NULL;
                    struct tti_plan_spec spec = spec_of(TUTTI_BROADCAST, root, lanes);
                    assert_int_equal(tti_plan_cache_get(&cache, a ? chain : tree, &spec, &entry),
                                     TUTTI_OK);
                    assert_int_equal(entry->plan->spec.root, root);
                    assert_int_equal(entry->plan->spec.lanes, lanes);
                    if (round == 0)
                        first[a][root][lanes - 1] = entry->plan;
                    assert_ptr_equal(entry->plan, first[a][root][lanes - 1]);
                }
    tti_plan_cache_destroy(&cache);
}

/* A ring's partial sums are passed on and never read again; nothing else of it is special. */
static void ring_partials_pass(void **state)
{
    (void)state;
    struct tti_plan_cache cache = {0};
    const struct tti_plan_entry *entry = NULL;
    struct tti_plan_spec spec = spec_of(TUTTI_ALL_REDUCE, 0, 1);
    assert_int_equal(
        tti_plan_cache_get(&cache, tti_algorithm_find(TUTTI_ALL_REDUCE, "ring"), &spec, &entry),
        TUTTI_OK);
    const struct tti_lane *lane = &entry->plan->lanes[0];
    for (size_t s = 0; s < lane->count; s++) {
        bool partial =
            lane->steps[s].kind == TTI_RECV_REDUCE && !(lane->steps[s].flags & TTI_FINAL);
        assert_int_equal(entry->traits[0][s], partial ? TTI_STEP_PASSES : TTI_STEP_PLAIN);
    }
    tti_plan_cache_destroy(&cache);
}

/* Of two ranks the upper one receives into a slot, and combines that in the step behind. */
static void pairs_fold(void **state)
{
    (void)state;
    struct tti_plan_cache cache = {0};
    const struct tti_plan_entry *entry = NULL;
    struct tti_plan_spec spec = spec_of(TUTTI_ALL_REDUCE, 0, 1);
    spec.nranks = 2;
    spec.rank = 1;
    assert_int_equal(
        tti_plan_cache_get(&cache, tti_algorithm_find(TUTTI_ALL_REDUCE, "one_shot"), &spec, &entry),
        TUTTI_OK);
    const struct tti_lane *lane = &entry->plan->lanes[0];
    int folds = 0;
    for (size_t s = 0; s < lane->count; s++) {
        bool fold = lane->steps[s].kind == TTI_RECV && lane->steps[s].dst.buffer == TTI_SLOT;
        assert_int_equal(entry->traits[0][s], fold ? TTI_STEP_FOLDS : TTI_STEP_PLAIN);
        folds += fold;
    }
    assert_int_equal(folds, 1);
    tti_plan_cache_destroy(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_kept),
        cmocka_unit_test(ring_partials_pass),
        cmocka_unit_test(pairs_fold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
