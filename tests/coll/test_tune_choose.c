/* tools/tune_choose.c: of times that are made up here, which ways are timed for longer, and what
 * comes of it. In microseconds, so that they can be read. */
#include "tests/tutti_cmocka.h"
#include "tools/tune.h"

#include <string.h>

enum { WAYS = 4 };

static bool near(double found, double wanted)
{
    return found > 0.999 * wanted && found < 1.001 * wanted;
}

/* Ways with these passes, of which so many are done. */
static struct tune_row row_of(int count, const double pass[][TUNE_PASSES], int passes)
{
    static struct tune_row row;
    memset(&row, 0, sizeof row);
    row.count = count;
    row.passes = passes;
    for (int w = 0; w < count; w++)
        for (int p = 0; p < passes; p++)
            row.result[w].pass[p] = pass[w][p];
    return row;
}

/* Until there are passes the first look says what to expect, then the quicker of the short ones. */
static void the_latest_is_expected(void **state)
{
    static const double pass[][TUNE_PASSES] = {{8, 6}, {5, 9}};
    struct tune_row row = row_of(2, pass, TUNE_SHORT_PASSES);
    (void)state;
    row.result[0].looked = 3;
    row.result[1].looked = 4;
    assert_true(near(tune_expected(&row.result[0]), 3));
    assert_true(near(tune_best(&row), 3));
    (void)tune_choose_finalists(&row);
    assert_true(near(tune_expected(&row.result[0]), 6));
    assert_true(near(tune_expected(&row.result[1]), 5));
    assert_true(near(tune_best(&row), 5));
}

/* About as fast as the best, by the pass in which nothing disturbed it, whichever that was. */
static void finalists_are_nearly_the_best(void **state)
{
    static const double pass[][TUNE_PASSES] = {{14, 90}, {13, 13}, {50, 10}, {20, 13.4}};
    static const bool wanted[WAYS] = {false, true, true, true};
    struct tune_row row = row_of(WAYS, pass, TUNE_SHORT_PASSES);
    (void)state;
    assert_int_equal(tune_choose_finalists(&row), 3);
    for (int w = 0; w < WAYS; w++)
        assert_int_equal(row.result[w].finalist, wanted[w]);
}

/* Of many that are about as fast, the six fastest. */
static void finalists_are_few(void **state)
{
    static const double pass[][TUNE_PASSES] = {{10.8, 10.8}, {10.1, 10.1}, {10.7, 10.7},
                                               {10.2, 10.2}, {10.6, 10.6}, {10.3, 10.3},
                                               {10.5, 10.5}, {10.4, 10.4}};
    struct tune_row row = row_of(8, pass, TUNE_SHORT_PASSES);
    (void)state;
    assert_int_equal(tune_choose_finalists(&row), 6);
    for (int w = 0; w < row.count; w++)
        assert_int_equal(row.result[w].finalist, pass[w][0] < 10.65);
}

/* Without long passes: the median, of two the slower. */
static void without_long_passes_the_median_counts(void **state)
{
    static const double pass[][TUNE_PASSES] = {{9, 2, 7, 4, 6}, {1, 8, 3, 5, 2}};
    static const double wanted[][2] = {{9, 1}, {9, 8}, {7, 3}, {7, 5}, {6, 3}};
    (void)state;
    for (int passes = 1; passes <= TUNE_PASSES; passes++)
        for (int settles = 0; settles < (passes > TUNE_SHORT_PASSES ? 1 : 2); settles++) {
            struct tune_row row = row_of(2, pass, passes);
            row.settles = settles; /* which it would have, with more time */
            tune_conclude(&row);
            for (int w = 0; w < 2; w++)
                assert_true(near(row.result[w].seconds, wanted[passes - 1][w]));
        }
}

/* With them: theirs, so that another one may be the fastest than before; the rest are as many times
 * behind the fastest finalist as they were. */
static void long_passes_count_for_finalists(void **state)
{
    static const double pass[WAYS][TUNE_PASSES] = {
        {12, 10, 9, 30, 8}, {11, 13, 7, 4, 5}, {20, 40, 0, 0, 0}, {60, 30, 0, 0, 0}};
    static const double wanted[WAYS] = {9, 5, 10, 15}; /* 5 of them were 10 before */
    struct tune_row row = row_of(WAYS, pass, TUNE_PASSES);
    (void)state;
    row.settles = true;
    tune_conclude(&row);
    for (int w = 0; w < WAYS; w++) {
        assert_int_equal(row.result[w].finalist, w < 2);
        if (!near(row.result[w].seconds, wanted[w]))
            fail_msg("way %d: %g us, not %g", w, row.result[w].seconds, wanted[w]);
    }
    row = row_of(WAYS, pass, TUNE_SHORT_PASSES + 1); /* one of the three was made */
    row.settles = true;
    tune_conclude(&row);
    assert_true(near(row.result[0].seconds, 9) && near(row.result[1].seconds, 7));
    assert_true(near(row.result[2].seconds, 14) && near(row.result[3].seconds, 21));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_latest_is_expected),
        cmocka_unit_test(finalists_are_nearly_the_best),
        cmocka_unit_test(finalists_are_few),
        cmocka_unit_test(without_long_passes_the_median_counts),
        cmocka_unit_test(long_passes_count_for_finalists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
