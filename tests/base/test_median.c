/* The middle of a few numbers in any order; where percentiles are. */
#include "base/median.h"

#include "tests/tutti_cmocka.h"

static void middles(void **state)
{
    (void)state;
    double one[] = {7}, two[] = {5, 3}, odd[] = {9, -1, 4}, even[] = {2, 8, 1e300, -1e300};
    assert_true(tti_median(one, 1) == 7);
    assert_true(tti_median(two, 2) == 5);
    assert_true(tti_median(odd, 3) == 4);
    assert_true(tti_median(even, 4) == 8);
    assert_true(even[0] == -1e300 && even[3] == 1e300);
}

/* At least 99 of a hundred are not above the 99th percentile: of few the worst is it. */
static void percentiles(void **state)
{
    (void)state;
    assert_int_equal(tti_percentile_place(1, 99), 0);
    assert_int_equal(tti_percentile_place(20, 99), 19);
    assert_int_equal(tti_percentile_place(99, 99), 98);
    assert_int_equal(tti_percentile_place(100, 99), 98);
    assert_int_equal(tti_percentile_place(101, 99), 99);
    assert_int_equal(tti_percentile_place(2000, 99), 1979);
    assert_int_equal(tti_percentile_place(7, 100), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(middles), cmocka_unit_test(percentiles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
