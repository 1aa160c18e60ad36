/* coll/crowd.c: how many ranks take turns on a core, by where each may run. */
#include "coll/crowd.h"
#include "tests/tutti_cmocka.h"

#include <sched.h>
#include <string.h>

enum { RANKS = 6 };

/* Turns of `count` ranks, of which rank r may run on the processors of bits[r]. */
static double turns_of(const uint64_t *bits, int count)
{
    struct tti_cpus cpus[RANKS];
    int ranks[RANKS];
    memset(cpus, 0, sizeof cpus);
    for (int r = 0; r < count; r++) {
        cpus[r].bits[0] = bits[r];
        ranks[r] = r;
    }
    return tti_crowd_turns(cpus, ranks, count);
}

static void turns(void **state)
{
    (void)state;
    const uint64_t own[] = {1, 2, 4, 8}, same[] = {1, 1}, free[] = {3, 3, 3, 3};
    const uint64_t one_pair[] = {1, 2, 4, 4}, wide[] = {0xff, 0xff}, mixed[] = {1, 3, 3};
    const uint64_t bound_in_free[] = {0xf, 1, 0xf, 1};
    assert_true(turns_of(own, 4) == 1);
    assert_true(turns_of(same, 2) == 2);
    assert_true(turns_of(free, 4) == 2);
    assert_true(turns_of(one_pair, 4) == 2);
    assert_true(turns_of(wide, 2) == .25);
    assert_true(turns_of(mixed, 3) == 1.5);
    assert_true(turns_of(bound_in_free, 4) == 2);
}

static void own(void **state)
{
    (void)state;
    struct tti_cpus cpus;
    cpu_set_t allowed;
    tti_cpus_own(&cpus);
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    for (int c = 0; c < TTI_CPUS; c++)
        assert_int_equal(cpus.bits[c / 64] >> c % 64 & 1, CPU_ISSET(c, &allowed) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns),
        cmocka_unit_test(own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
