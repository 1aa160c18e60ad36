/* Does the verifier know the canonical order? Plans of the algorithms that claim it are broken in
 * every way of a list, at every step of every rank, and run on numbers by an operator that no other
 * order makes right: the two must agree. And no other algorithm has it. */
#include "coll/algorithms/algorithms.h"
#include "plan/verify.h"
#include "tests/plan/concrete.h"
#include "tests/plan/mutate.h"
#include "tests/tutti_cmocka.h"

#include <string.h>

/* NULL, or what went wrong in one of several schedules. */
static const char *run_on_numbers(const struct plan_set *set, uint64_t *random)
{
    const char *wrong = NULL;
    for (int i = 0; !wrong && i < 16; i++)
        wrong = concrete_all_reduce(set->plans, set->nranks, i & 1, i & 2, true, random);
    return wrong;
}

struct order_tally {
    unsigned tried, wrong, other_order, right;
};

/* One mutant of an algorithm that combines in the order of ranks. Whether the verifier says so must
 * be what an operator says that no other order makes right. */
static void try_order(const struct tti_algorithm *algorithm, int n, const struct site *site,
                      uint64_t *random, struct order_tally *tally)
{
    struct plan_set set;
    plan_set_build(&set, algorithm, n, 0, 1);
    if (mutate(&set, site)) {
        tally->tried++;
        bool sums = tti_verify_plans(set.plans, n, NULL) == TUTTI_OK;
        bool ordered = tti_verify_ordered(set.plans, n, NULL) == TUTTI_OK;
        const char *numbers = sums ? run_on_numbers(&set, random) : "not run";
        tally->wrong += !sums;
        tally->other_order += sums && !ordered;
        tally->right += ordered;
        if (ordered != (numbers == NULL))
            fail_msg("%s, n = %d, rank %d step %zu, %s: %s, but on numbers: %s", algorithm->name, n,
                     site->rank, site->step, mutation_name[site->mutation],
                     ordered ? "passes as ordered" : tti_error_text(), numbers ? numbers : "right");
    }
    plan_set_destroy(&set);
}

static void ordered_mutants(void **state)
{
    (void)state;
    uint64_t random = 0x51c3e07a9b2d846fu;
    const struct tti_algorithm *algorithm;
    struct order_tally all = {0};
    for (int i = 0; (algorithm = tti_algorithm_at(TUTTI_ALL_REDUCE, i)); i++) {
        struct order_tally tally = {0};
        for (int n = 2; n <= 4 && algorithm->ordered; n++) {
            struct site site = {0};
            for (site.rank = 0; site.rank < n; site.rank++)
                for (site.step = 0; site.step < 4 * (size_t)n; site.step++)
                    for (int m = 0; m < MUTATIONS; m++) {
                        site.mutation = (enum mutation)m;
                        try_order(algorithm, n, &site, &random, &tally);
                    }
        }
        if (algorithm->ordered)
            print_message("%s: %u mutants: %u wrong, %u of another order, %u in order\n",
                          algorithm->name, tally.tried, tally.wrong, tally.other_order,
                          tally.right);
        all.other_order += tally.other_order;
    }
    assert_true(all.other_order > 10);
}

/* The algorithms that claim no order have none, but with few ranks; so the claim says something. */
static void others_have_no_order(void **state)
{
    (void)state;
    enum { RANKS_SHOWN = 4 };
    unsigned caught = 0;
    for (int c = 0; c < TUTTI_COLLECTIVE_COUNT; c++)
        for (int i = 0; tti_algorithm_at((enum tutti_collective)c, i); i++) {
            const struct tti_algorithm *algorithm = tti_algorithm_at((enum tutti_collective)c, i);
            struct plan_set set;
            if (!tti_order_shows((enum tutti_collective)c))
                continue;
            plan_set_build(&set, algorithm, RANKS_SHOWN, 0, 1);
            bool ordered = tti_verify_ordered(set.plans, RANKS_SHOWN, NULL) == TUTTI_OK;
            if (ordered && !algorithm->ordered && strncmp(algorithm->name, "hierarchical", 12) != 0)
                fail_msg("%s is in order, and does not claim it", algorithm->name);
            assert_true(ordered || !algorithm->ordered);
            caught += !ordered;
            plan_set_destroy(&set);
        }
    assert_true(caught >= 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ordered_mutants),
        cmocka_unit_test(others_have_no_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
