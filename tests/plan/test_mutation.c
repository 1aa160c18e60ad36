/* Does the verifier catch errors? Ring plans are broken in every way of a list, at every step of
 * every rank; hazards and peers are worked out again, as for an algorithm with that mistake. A
 * mutant that passes must be one of those argued to be equivalent (see `equivalent`). Then plans
 * are broken at random, several times over, and those that pass are run on numbers. */
#include "coll/algorithms/algorithms.h"
#include "plan/print.h"
#include "plan/verify.h"
#include "tests/plan/concrete.h"
#include "tests/plan/direct_plans.h"
#include "tests/plan/mutate.h"
#include "tests/tutti_cmocka.h"

#include <stdlib.h>
#include <string.h>

/* ---- every mutation of the ring ---- */

/* Mutants of the ring that are right, each for a reason of its own; `step` is as it was. */
static bool equivalent(const struct site *site, const struct tti_step *step)
{
    /* Each chunk is summed along one path and the result handed around, so turning the operands of
     * one sum turns them for every rank alike. */
    if (site->mutation == TOGGLE_LEFT)
        return step->kind == TTI_RECV_REDUCE;
    /* A slot is only a place to forward from and is never read again: the lane's other slot will
     * do, and hazards, worked out anew, keep the two messages apart. */
    if (site->mutation == DST_SLOT || site->mutation == DST_OTHER_SLOT ||
        (site->mutation == DST_UP && step->dst.index % 2 == 0))
        return step->kind == TTI_RECV_REDUCE && step->dst.buffer == TTI_SLOT;
    /* The own contribution goes out from OUT, in the element type as before; the final result
     * comes over it later, which hazards hold back until the message is taken. */
    if (site->mutation == KIND_COPY)
        return step->kind == TTI_SEND;
    return false;
}

struct tally {
    unsigned tried[MUTATIONS], killed[MUTATIONS], same[MUTATIONS];
};

static void try_mutant(int n, int lanes, const struct site *site, struct tally *tally)
{
    struct plan_set set;
    plan_set_build(&set, tti_algorithm_find(TUTTI_ALL_REDUCE, "ring"), n, 0, lanes);
    struct tti_step before = {0};
    const struct tti_lane *lane = &set.plans[site->rank]->lanes[site->lane];
    if (site->step < lane->count)
        before = lane->steps[site->step];
    if (mutate(&set, site)) {
        tally->tried[site->mutation]++;
        bool passes = tti_verify_plans(set.plans, n, NULL) == TUTTI_OK;
        bool same = equivalent(site, &before);
        tally->same[site->mutation] += same;
        tally->killed[site->mutation] += !passes;
        char text[TTI_STEP_TEXT_BYTES];
        if (passes != same)
            fail_msg("n = %d, rank %d lane %d step %zu (%s), %s: %s", n, site->rank, site->lane,
                     site->step, tti_step_text(&before, text, sizeof text),
                     mutation_name[site->mutation], passes ? "not detected" : tutti_last_error());
    }
    plan_set_destroy(&set);
}

static void every_mutation(void **state)
{
    (void)state;
    struct tally tally = {0};
    static const int shapes[][2] = {{1, 1}, {2, 1}, {2, 2}, {3, 1}, {4, 2}, {5, 1}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        struct site site;
        for (site.rank = 0; site.rank < shapes[i][0]; site.rank++)
            for (site.lane = 0; site.lane < shapes[i][1]; site.lane++)
                for (site.step = 0; site.step < 2 * (size_t)shapes[i][0]; site.step++)
                    for (int m = 0; m < MUTATIONS; m++) {
                        site.mutation = (enum mutation)m;
                        try_mutant(shapes[i][0], shapes[i][1], &site, &tally);
                    }
    }
    unsigned tried = 0, killed = 0, same = 0;
    for (int m = 0; m < MUTATIONS; m++) {
        print_message("%-20s %5u mutants, %5u killed, %3u equivalent\n", mutation_name[m],
                      tally.tried[m], tally.killed[m], tally.same[m]);
        assert_true(tally.tried[m] > 0 || m == SRC_IN); /* the ring computes from IN already */
        tried += tally.tried[m];
        killed += tally.killed[m];
        same += tally.same[m];
    }
    print_message("%u mutants: %u killed, %u equivalent\n", tried, killed, same);
    assert_int_equal(tried, killed + same);
}

/* ---- mutations at random ---- */

static struct site random_site(const struct plan_set *set, uint64_t *random)
{
    struct site site;
    site.rank = (int)(concrete_random(random) % (uint64_t)set->nranks);
    site.lane = (int)(concrete_random(random) % (uint64_t)set->plans[site.rank]->nlanes);
    site.step = concrete_random(random) % (set->plans[site.rank]->lanes[site.lane].count + 1);
    site.mutation = (enum mutation)(concrete_random(random) % MUTATIONS);
    return site;
}

/* The verdict of running on numbers: NULL, or what went wrong in one of several schedules. */
static const char *run_on_numbers(const struct plan_set *set, uint64_t *random)
{
    const char *wrong = NULL;
    for (int i = 0; !wrong && i < 16; i++)
        wrong = concrete_all_reduce(set->plans, set->nranks, i & 1, i & 2, false, random);
    return wrong;
}

static void random_mutations(const struct tti_algorithm *algorithm, uint64_t seed)
{
    uint64_t random = seed;
    unsigned killed = 0, passed = 0;
    for (int round = 0; round < 20000; round++) {
        struct plan_set set;
        int n = 2 + (int)(concrete_random(&random) % 3);
        plan_set_build(&set, algorithm, n, 0, 1 + (int)(concrete_random(&random) % 2));
        for (uint64_t left = 1 + concrete_random(&random) % 3; left > 0;) {
            struct site site = random_site(&set, &random);
            left -= mutate(&set, &site);
        }
        if (tti_verify_plans(set.plans, n, NULL) == TUTTI_OK) {
            passed++;
            const char *wrong = run_on_numbers(&set, &random);
            if (wrong)
                fail_msg("%s, seed %#llx round %d: the verifier passes a plan that gives %s",
                         algorithm->name, (unsigned long long)seed, round, wrong);
        } else {
            killed++;
        }
        plan_set_destroy(&set);
    }
    print_message("%s, seed %#llx: %u killed, %u pass and give right numbers\n", algorithm->name,
                  (unsigned long long)seed, killed, passed);
    assert_true(killed > 10000 && passed > 100);
}

static void ring_at_random(void **state)
{
    (void)state;
    random_mutations(tti_algorithm_find(TUTTI_ALL_REDUCE, "ring"), 0x2a5f31c6d4e8b907u);
}

static void direct_at_random(void **state)
{
    (void)state;
    random_mutations(direct_algorithm(TUTTI_ALL_REDUCE), 0x77c1e9a35d20b46fu);
}

/* The judge is not blind either: it calls wrong what the verifier's plainest kills are about. */
static void numbers_see_errors(void **state)
{
    (void)state;
    static const enum mutation visible[] = {DROP,       FROM_UP,        TOGGLE_FINAL,
                                            TOGGLE_ACC, TOGGLE_FORWARD, DST_OUT};
    uint64_t random = 0x9d4b6c1f08e35a72u;
    for (size_t i = 0; i < sizeof visible / sizeof visible[0]; i++) {
        struct plan_set set;
        plan_set_build(&set, tti_algorithm_find(TUTTI_ALL_REDUCE, "ring"), 4, 0, 1);
        assert_null(run_on_numbers(&set, &random));
        struct site site = {.rank = 1, .lane = 0, .step = 2, .mutation = visible[i]};
        assert_true(mutate(&set, &site));
        assert_non_null(run_on_numbers(&set, &random));
        plan_set_destroy(&set);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mutation),
        cmocka_unit_test(numbers_see_errors),
        cmocka_unit_test(ring_at_random),
        cmocka_unit_test(direct_at_random),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
