/* coll/crowd.c: how many ranks take turns on a core, by where each may run. */
#include "coll/crowd.h"
#include "tests/tutti_cmocka.h"

#include <sched.h>
#include <stdlib.h>
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

/* What tti_crowd_cores makes of ranks on such hosts: as digits, "" for nothing. */
static void cores_are(const char *expected, const uint64_t *bits, const int *hosts, int count)
{
    struct tti_cpus cpus[RANKS];
    int *core_of = NULL, cores = -1, most = 0;
    char found[RANKS + 1] = "";
    memset(cpus, 0, sizeof cpus);
    for (int r = 0; r < count; r++)
        cpus[r].bits[1] = bits[r]; /* any word */
    assert_int_equal(tti_crowd_cores(cpus, hosts, count, &core_of, &cores), TUTTI_OK);
    for (int r = 0; core_of && r < count; r++) {
        found[r] = (char)('0' + core_of[r]);
        most = core_of[r] >= most ? core_of[r] + 1 : most;
    }
    assert_string_equal(found, expected);
    assert_int_equal(cores, most);
    free(core_of);
}

static void cores(void **state)
{
    (void)state;
    const int one[RANKS] = {0}, two[] = {0, 0, 1, 1}, dealt[] = {0, 1, 0, 1};
    const uint64_t in_turn[] = {1, 2, 1, 2, 4, 1}, blocks[] = {1, 1, 2, 2}, own[] = {1, 2, 4, 8};
    const uint64_t back[] = {2, 1, 1, 2}, some[] = {1, 3, 1, 2}, same[] = {1, 1, 1, 1},
                   none[4] = {0};
    cores_are("010120", in_turn, one, 6);
    cores_are("0110", back, one, 4);
    cores_are("", blocks, one, 4); /* they follow each other */
    cores_are("", own, one, 4);
    cores_are("", some, one, 4);
    cores_are("", none, one, 4);
    cores_are("", in_turn, two, 4); /* the same number on another host is another core */
    cores_are("", same, two, 4);
    cores_are("0101", same, dealt, 4);
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
        cmocka_unit_test(cores),
        cmocka_unit_test(own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
