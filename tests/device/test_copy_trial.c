/* Trials of ways to copy (device/copy_trial.h), with made-up times: the quickest way is taken and
 * kept, and left when it turns out badly. */
#include "device/copy_trial.h"
#include "tests/tutti_cmocka.h"

static const struct tti_copy_choice two = {TTI_COPY_WAYS, 0.97F, 0}, three = {3, 0.9F, 0};

/* ns a byte of either way, as the next operations take. */
struct pace {
    float fetches, strings;
};

/* `count` operations; how many of them went by strings. */
static int run(struct tti_copy_trial *trial, struct pace pace, int count)
{
    int strings = 0;
    for (int i = 0; i < count; i++) {
        const bool by_strings = trial->way == TTI_COPY_STRINGS;
        strings += by_strings;
        const float took = by_strings ? pace.strings : pace.fetches;
        tti_copy_trial_next(trial, &two, tti_copy_trial_times(trial) ? took : 0);
    }
    return strings;
}

static void test_the_quicker_is_taken(void **fixture)
{
    const struct {
        struct pace pace;
        enum tti_copy_way way;
        int tried; /* operations by strings in the first trial */
    } cases[] = {
        {{0.020F, 0.017F}, TTI_COPY_STRINGS, TTI_COPY_TRIAL},
        /* so bad that it is soon clear */
        {{0.020F, 0.050F}, TTI_COPY_FETCHES, TTI_COPY_TRIAL - TTI_COPY_TIMED + TTI_COPY_SLOW},
        {{0.020F, 0.0198F}, TTI_COPY_FETCHES, TTI_COPY_TRIAL}, /* as good as alike */
    };
    (void)fixture;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct tti_copy_trial trial = {0};
        assert_int_equal(run(&trial, cases[c].pace, TTI_COPY_TRIAL), 0);
        assert_int_equal(run(&trial, cases[c].pace, TTI_COPY_TRIAL), cases[c].tried);
        const int count = 100000, strings = run(&trial, cases[c].pace, count);
        const int expected = cases[c].way == TTI_COPY_STRINGS ? count : 0;
        /* trials from time to time, less and less often: under one operation in a hundred */
        assert_in_range(strings > expected ? strings - expected : expected - strings, 1,
                        count / 100);
    }
}

/* One slow operation among quick ones changes nothing. */
static void test_a_disturbance_decides_nothing(void **fixture)
{
    struct tti_copy_trial trial = {0};
    (void)fixture;
    for (int i = 0; i < 2 * TTI_COPY_TRIAL; i++) {
        const float usual = trial.way == TTI_COPY_STRINGS ? 0.017F : 0.020F;
        tti_copy_trial_next(&trial, &two,
                            tti_copy_trial_times(&trial) ? (i % 4 ? usual : 9.0F) : 0);
    }
    assert_true(trial.held);
    assert_int_equal(trial.way, TTI_COPY_STRINGS);
    const struct pace usual = {0.020F, 0.017F}, disturbed = {9.0F, 9.0F};
    for (int i = 0; i < 4; i++) {
        (void)run(&trial, disturbed, TTI_COPY_WATCH * (TTI_COPY_SLOW - 1));
        (void)run(&trial, usual, TTI_COPY_WATCH);
    }
    assert_true(trial.held);
    assert_int_equal(trial.way, TTI_COPY_STRINGS);
}

/* Strings that did well when they were tried and are slow afterwards are left soon, and for long.
 */
static void test_what_turns_out_badly_is_left(void **fixture)
{
    struct tti_copy_trial trial = {0};
    (void)fixture;
    (void)run(&trial, (struct pace){0.020F, 0.017F}, 2 * TTI_COPY_TRIAL);
    assert_int_equal(trial.way, TTI_COPY_STRINGS);
    const struct pace bad = {0.020F, 0.050F};
    assert_int_equal(run(&trial, bad, TTI_COPY_WATCH * TTI_COPY_SLOW),
                     TTI_COPY_WATCH * TTI_COPY_SLOW);
    assert_int_equal(run(&trial, bad, TTI_COPY_HOLD_MOST), 0);
    assert_false(trial.held); /* and then they are tried again */
}

/* Both become slower, as when the cores move apart: that is no reason to go to and fro. */
static void test_both_slower(void **fixture)
{
    struct tti_copy_trial trial = {0};
    (void)fixture;
    (void)run(&trial, (struct pace){0.020F, 0.017F}, 2 * TTI_COPY_TRIAL);
    const struct pace apart = {0.030F, 0.032F};
    (void)run(&trial, apart, 2 * TTI_COPY_WATCH * TTI_COPY_SLOW);
    const uint8_t way = trial.way;
    for (int i = 0; i < TTI_COPY_HOLD_MOST / 2; i++) {
        (void)run(&trial, apart, 1);
        assert_int_equal(trial.way, way);
    }
    (void)run(&trial, apart, 2 * TTI_COPY_HOLD_MOST);
    assert_int_equal(trial.won, TTI_COPY_FETCHES);
}

/* A root receives nothing: there is nothing to time. */
static void test_nothing_copied(void **fixture)
{
    struct tti_copy_trial trial = {0};
    (void)fixture;
    for (int i = 0; i < 3 * TTI_COPY_HOLD_MOST; i++) {
        assert_int_equal(trial.way, TTI_COPY_FETCHES);
        tti_copy_trial_next(&trial, &two, 0);
    }
}

/* A winner stays the winner through trials in which nothing is copied. */
static void test_nothing_copied_for_a_while(void **fixture)
{
    struct tti_copy_trial trial = {0};
    (void)fixture;
    (void)run(&trial, (struct pace){0.020F, 0.017F}, 2 * TTI_COPY_TRIAL);
    assert_int_equal(trial.way, TTI_COPY_STRINGS);
    for (int i = 0; i < 3 * TTI_COPY_HOLD_MOST; i++) {
        tti_copy_trial_next(&trial, &two, 0);
        assert_int_equal(trial.way, TTI_COPY_STRINGS);
    }
}

/* Of three ways the last one wins, then the middle one: trials begin with who won, so that those
 * who are clearly slower are soon done with. */
static void test_three_ways(void **fixture)
{
    static const float costs[2][3] = {{0.110F, 0.040F, 0.020F}, {0.110F, 0.030F, 0.090F}};
    struct tti_copy_trial trial = {0};
    int turns[3] = {0};
    (void)fixture;
    for (int pace = 0; pace < 2; pace++) {
        for (int i = 0; i < 100000; i++) {
            turns[trial.way] += pace == 0;
            tti_copy_trial_next(&trial, &three,
                                tti_copy_trial_times(&trial) ? costs[pace][trial.way] : 0);
        }
        assert_true(trial.held);
        assert_int_equal(trial.way, pace == 0 ? 2 : 1);
    }
    const int beaten = TTI_COPY_TRIAL - TTI_COPY_TIMED + TTI_COPY_SLOW;
    assert_int_equal(turns[0] % beaten, TTI_COPY_TRIAL % beaten); /* the very first trial alone */
    assert_in_range(turns[0] + turns[1], 2 * TTI_COPY_TRIAL, 1000);
}

/* Where the first way is quick enough no other is tried, until it is not. */
static void test_quick_enough(void **fixture)
{
    static const struct tti_copy_choice choice = {3, 0.5F, 0.2F};
    struct tti_copy_trial trial = {0};
    int others = 0;
    (void)fixture;
    for (int i = 0; i < 10000; i++) {
        tti_copy_trial_next(&trial, &choice, tti_copy_trial_times(&trial) ? 0.1F : 0);
        others += trial.way != 0;
    }
    assert_true(trial.held);
    assert_int_equal(others, 0);
    for (int i = 0; i < 10 * TTI_COPY_TRIAL; i++)
        tti_copy_trial_next(&trial, &choice,
                            !tti_copy_trial_times(&trial) ? 0
                            : trial.way == 0              ? 0.5F
                            : trial.way == 1              ? 0.09F
                                                          : 0.1F);
    assert_true(trial.held);
    assert_int_equal(trial.way, 1);
    /* Found quick enough once more, and then not quite: nothing slower is taken for it. */
    trial = (struct tti_copy_trial){.won = 2, .way = 2};
    for (int i = 0; i < 200 * TTI_COPY_TRIAL; i++) {
        const float first = i < 3 * TTI_COPY_TRIAL ? 0.1F : 0.27F;
        tti_copy_trial_next(&trial, &choice,
                            !tti_copy_trial_times(&trial) ? 0
                            : trial.way == 0              ? first
                                                          : 0.3F);
    }
    while (!trial.held)
        tti_copy_trial_next(&trial, &choice,
                            !tti_copy_trial_times(&trial) ? 0
                            : trial.way == 0              ? 0.27F
                                                          : 0.3F);
    assert_int_equal(trial.way, 0);
    trial = (struct tti_copy_trial){0}; /* neither quick, nor much slower than others */
    for (int i = 0; i < 10 * TTI_COPY_TRIAL; i++)
        tti_copy_trial_next(&trial, &choice,
                            !tti_copy_trial_times(&trial) ? 0
                            : trial.way == 0              ? 0.25F
                                                          : 0.15F);
    assert_true(trial.held && trial.cost[1] > 0 && trial.cost[2] > 0);
    assert_int_equal(trial.way, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_quicker_is_taken),
        cmocka_unit_test(test_a_disturbance_decides_nothing),
        cmocka_unit_test(test_what_turns_out_badly_is_left),
        cmocka_unit_test(test_both_slower),
        cmocka_unit_test(test_nothing_copied),
        cmocka_unit_test(test_nothing_copied_for_a_while),
        cmocka_unit_test(test_three_ways),
        cmocka_unit_test(test_quick_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
