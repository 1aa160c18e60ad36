/* coll/crowd.c: how many ranks take turns on a core, by where each may run. */
#include "coll/crowd.h"

#include "device/cpu_caches.h"
#include "device/near.h"
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

/* What tti_crowd_near makes of ranks on such hosts, of which all take turns or none: for each level
 * digits, or "" for nothing. */
static void near_are(const char *nodes, const char *caches, const char *cores,
                     const struct tti_cpus *cpus, const int *hosts, int count, bool take_turns)
{
    const char *const expected[TTI_NEAR_LEVELS] = {cores, caches, nodes};
    const bool turns[RANKS] = {take_turns, take_turns, take_turns};
    int *near_of[TTI_NEAR_LEVELS], near_count[TTI_NEAR_LEVELS];
    assert_int_equal(tti_crowd_near(cpus, hosts, turns, count, near_of, near_count), TUTTI_OK);
    for (int level = 0; level < TTI_NEAR_LEVELS; level++) {
        const int *of = near_of[level];
        char found[RANKS + 1] = "";
        int most = 0;
        for (int r = 0; of && r < count; r++) {
            found[r] = (char)('0' + of[r]);
            most = of[r] >= most ? of[r] + 1 : most;
        }
        assert_string_equal(found, expected[level]);
        assert_int_equal(near_count[level], most);
        free(near_of[level]);
    }
}

/* The same of ranks of one node and cache that may run on the processors of bits[r]. */
static void cores_are(const char *expected, const uint64_t *bits, const int *hosts, int count)
{
    struct tti_cpus cpus[RANKS];
    memset(cpus, 0, sizeof cpus);
    for (int r = 0; r < count; r++)
        cpus[r].bits[1] = bits[r]; /* any word */
    near_are("", "", expected, cpus, hosts, count, true);
    near_are("", "", "", cpus, hosts, count, false); /* each has a core as long as it likes */
}

static void cores(void **state)
{
    (void)state;
    const int one[RANKS] = {0}, two[] = {0, 0, 1, 1}, dealt[] = {0, 1, 0, 1, 0, 1};
    const uint64_t in_turn[] = {1, 2, 1, 2, 4, 1}, blocks[] = {2, 2, 1, 1}, own[] = {1, 2, 4, 8};
    const uint64_t back[] = {2, 1, 1, 2}, some[] = {1, 3, 1, 2}, same[] = {1, 1, 1, 1},
                   none[4] = {0}, pairs[] = {1, 1, 2, 2, 1, 1};
    cores_are("010120", in_turn, one, 6);
    cores_are("0110", back, one, 4);
    cores_are("", blocks, one, 4); /* they follow each other */
    cores_are("", own, one, 4);
    cores_are("", some, one, 4);
    cores_are("", none, one, 4);
    cores_are("", in_turn, two, 4);   /* the same number on another host is another core */
    cores_are("", same, dealt, 4);    /* hosts are told apart as they are */
    cores_are("", in_turn, dealt, 4); /* one core on each */
    cores_are("012301", pairs, dealt, 6);
}

/* A host whose ranks do not take turns is left as it is. */
static void turns_on_one_host(void **state)
{
    (void)state;
    const int hosts[] = {0, 0, 0, 1, 1, 1};
    const bool turns[] = {true, false};
    struct tti_cpus cpus[RANKS];
    int *near_of[TTI_NEAR_LEVELS], near_count[TTI_NEAR_LEVELS];
    memset(cpus, 0, sizeof cpus);
    for (int r = 0; r < RANKS; r++)
        cpus[r].bits[0] = r == 1 || r == 4 ? 2 : 1;
    assert_int_equal(tti_crowd_near(cpus, hosts, turns, RANKS, near_of, near_count), TUTTI_OK);
    const int expected[RANKS] = {0, 1, 0, 2, 2, 2};
    assert_non_null(near_of[TTI_NEAR_CORE]);
    assert_memory_equal(near_of[TTI_NEAR_CORE], expected, sizeof expected);
    for (int level = 0; level < TTI_NEAR_LEVELS; level++)
        free(near_of[level]);
}

/* Ranks on such nodes and caches, each with a processor of its own. */
static void nodes_and_caches(void **state)
{
    enum { NOT = -1 };
    const struct {
        const char *nodes, *caches;
        int node[RANKS], cache[RANKS], host[RANKS];
    } cases[] = {
        /* as Open MPI deals more than two ranks out to two sockets */
        {"010101", "", {0, 1, 0, 1, 0, 1}, {0, 8, 0, 8, 0, 8}, {0}},
        {"", "", {0, 0, 0, 1, 1, 1}, {0, 0, 0, 8, 8, 8}, {0}},
        {"", "", {1, 1, 1, 0, 0, 0}, {8, 8, 8, 0, 0, 0}, {0}},
        /* one node, two L3; and two nodes, in one of them two */
        {"", "010101", {NOT, NOT, NOT, NOT, NOT, NOT}, {0, 4, 0, 4, 0, 4}, {0}},
        {"010101", "012101", {0, 1, 0, 1, 0, 1}, {0, 8, 4, 8, 0, 8}, {0}},
        /* unknown of one: of no use */
        {"010101", "", {0, 1, 0, 1, 0, 1}, {0, 8, 0, NOT, 0, 8}, {0}},
        {"", "", {0, 1, 0, NOT, 0, 1}, {0, 8, 0, NOT, 0, 8}, {0}},
        /* but on another host */
        {"000121", "", {0, 1, NOT, 0, 1, 0}, {0, 8, NOT, 0, 8, 0}, {0, 0, 0, 1, 1, 1}},
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct tti_cpus cpus[RANKS];
        memset(cpus, 0, sizeof cpus);
        for (int r = 0; r < RANKS; r++) {
            cpus[r].node = cases[c].node[r];
            cpus[r].cache = cases[c].cache[r];
            cpus[r].bits[0] = UINT64_C(1) << r;
        }
        near_are(cases[c].nodes, cases[c].caches, "", cpus, cases[c].host, RANKS, false);
    }
}

static void own(void **state)
{
    (void)state;
    struct tti_cpus cpus;
    cpu_set_t allowed;
    tti_cpus_own(&cpus);
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    assert_int_equal(cpus.node, tti_near_node("/sys", &allowed));
    assert_int_equal(cpus.cache, tti_cpu_shared_cache("", &allowed));
    for (int c = 0; c < TTI_CPUS; c++)
        assert_int_equal(cpus.bits[c / 64] >> c % 64 & 1, CPU_ISSET(c, &allowed) != 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns),
        cmocka_unit_test(cores),
        cmocka_unit_test(turns_on_one_host),
        cmocka_unit_test(nodes_and_caches),
        cmocka_unit_test(own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
