/* The middle of a few numbers in any order. */
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(middles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
