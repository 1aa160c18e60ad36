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

/* What tti_crowd_groups makes of ranks on such hosts: as digits, "" for nothing. */
static void groups_are(const char *expected, const struct tti_cpus *cpus, const int *hosts,
                       int count, bool take_turns)
{
    int *group_of = NULL, groups = -1, most = 0;
    char found[RANKS + 1] = "";
    assert_int_equal(tti_crowd_groups(cpus, hosts, count, take_turns, &group_of, &groups),
                     TUTTI_OK);
    for (int r = 0; group_of && r < count; r++) {
        found[r] = (char)('0' + group_of[r]);
        most = group_of[r] >= most ? group_of[r] + 1 : most;
    }
    assert_string_equal(found, expected);
    assert_int_equal(groups, most);
    free(group_of);
}

/* The same of ranks of one node and cache that may run on the processors of bits[r]. */
static void cores_are(const char *expected, const uint64_t *bits, const int *hosts, int count)
{
    struct tti_cpus cpus[RANKS];
    memset(cpus, 0, sizeof cpus);
    for (int r = 0; r < count; r++)
        cpus[r].bits[1] = bits[r]; /* any word */
    groups_are(expected, cpus, hosts, count, true);
    groups_are("", cpus, hosts, count, false); /* each alone on its core for as long as it likes */
}

static void cores(void **state)
{
    (void)state;
    const int one[RANKS] = {0}, two[] = {0, 0, 1, 1}, dealt[] = {0, 1, 0, 1, 0, 1};
    const uint64_t in_turn[] = {1, 2, 1, 2, 4, 1}, blocks[] = {1, 1, 2, 2}, own[] = {1, 2, 4, 8};
    const uint64_t pairs[] = {1, 1, 2, 2, 1, 1};
    const uint64_t back[] = {2, 1, 1, 2}, some[] = {1, 3, 1, 2}, same[] = {1, 1, 1, 1},
                   none[4] = {0};
    cores_are("010120", in_turn, one, 6);
    cores_are("1001", back, one, 4);
    cores_are("", blocks, one, 4); /* they follow each other */
    cores_are("", own, one, 4);
    cores_are("", some, one, 4);
    cores_are("", none, one, 4);
    cores_are("", in_turn, two, 4); /* the same number on another host is another core */
    cores_are("", same, two, 4);
    cores_are("", same, dealt, 4);    /* hosts are told apart as they are */
    cores_are("", in_turn, dealt, 4); /* one core on each */
    cores_are("021302", pairs, dealt, 6);
}

/* Ranks on such nodes and caches, each with a processor of its own. */
static void nodes_and_caches(void **state)
{
    enum { UNKNOWN = -1 };
    const struct {
        const char *groups;
        int node[RANKS], cache[RANKS], host[RANKS];
    } cases[] = {
        /* as Open MPI deals more than two ranks out to two sockets */
        {"010101", {0, 1, 0, 1, 0, 1}, {0, 8, 0, 8, 0, 8}, {0}},
        {"", {0, 0, 0, 1, 1, 1}, {0, 0, 0, 8, 8, 8}, {0}},
        /* one node, two L3; and two nodes, in each two */
        {"010101", {UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN}, {0, 4, 0, 4, 0, 4}, {0}},
        {"021302", {0, 1, 0, 1, 0, 1}, {0, 8, 4, 12, 0, 8}, {0}},
        /* unknown of one: of no use */
        {"010101", {0, 1, 0, 1, 0, 1}, {0, 8, 0, UNKNOWN, 0, 8}, {0}},
        {"", {0, 1, 0, UNKNOWN, 0, 1}, {0, 8, 0, UNKNOWN, 0, 8}, {0}},
        /* but on another host */
        {"000121", {0, 1, UNKNOWN, 0, 1, 0}, {0, 8, UNKNOWN, 0, 8, 0}, {0, 0, 0, 1, 1, 1}},
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
        groups_are(cases[c].groups, cpus, cases[c].host, RANKS, false);
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
        cmocka_unit_test(nodes_and_caches),
        cmocka_unit_test(own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
