/* Which NIC each rank uses where a connection goes by one (topology/nic_use.h), as over sockets:
 * ranks share out what is equally near. Argument: the folder systems/. */
#include "topology/nic_use.h"

#include <stdlib.h>

#include "tests/topology/described.h"
#include "tests/topology/nic_uses.h"
#include "tests/tutti_cmocka.h"

static void sockets_share_out_what_is_equally_near(void **state)
{
    static const char *const uneven[] = {"0", "1", "0"}, *const more[] = {"0 2", "1"};
    static const char *const alone[] = {"0 1, not told apart"}, *const turned[] = {"1", "0"};
    static const int last[] = {7, 4};
    (void)state;
    nic_check(described("8 gpus, 8 nics 50, 1 switch"), 8, NULL, nic_one_each);
    nic_check(described("8 gpus, 8 nics 50"), 8, NULL, nic_one_each);
    nic_check(nic_known("hgx_h100.txt"), 8, NULL, nic_one_each);
    nic_check(nic_known("hgx_a100.txt"), 8, NULL, nic_one_each);
    nic_check(described("6 gpus, 4 nics 25, 2 packages"), 3, NULL, uneven);
    nic_check(described("2 gpus, 3 nics 25"), 2, NULL, more);
    nic_check(described("2 gpus, 2 nics 25"), 1, NULL, alone);
    nic_check(described("8 gpus, 2 nics 25"), 2, last, turned); /* by their GPUs, not by rank */
}

/* Of a slow or a virtual NIC nobody shall get a share because the system does not tell it apart. */
static void what_may_be_another_kind_is_not_shared_out(void **state)
{
    static const char *const both[] = {"0 1, not told apart", "0 1, not told apart"};
    (void)state;
    for (int what = 0; what < 3; what++) {
        struct tti_topology *topology = described("2 gpus, 2 nics 50");
        if (what < 2)
            nic_set_rate(topology, 1, what ? 40 : 0);
        for (int i = 0; what == 2 && i < (int)topology->node_count; i++)
            if (topology->nodes[i].kind == TTI_NODE_NIC)
                topology->nodes[i].parent = tti_first_host(topology);
        if (what == 1) { /* known, and slower: it is nobody's */
            static const char *const fast[] = {"0", "0"};
            nic_check(topology, 2, NULL, fast);
        } else {
            nic_check(topology, 2, NULL, both);
        }
    }
}

/* A NIC that may be of another kind is no rank's only one beside a near and a far one either; those
 * that are known to be alike are shared out beside it. */
static void what_may_be_another_kind_stays_beside_what_is_far(void **state)
{
    static const char *const both[] = {"0 1", "0 1"}, *const two[] = {"1 2", "1 3"};
    static const int first[] = {0, 1}, second[] = {2, 3};
    (void)state;
    for (int what = 0; what < 3; what++) {
        struct tti_topology *topology = described("4 gpus, 4 nics 25, 2 packages");
        for (int i = 0; what < 2 && i < (int)topology->node_count; i++)
            if (topology->nodes[i].kind == TTI_NODE_NIC && topology->nodes[i].os_index == 1)
                topology->nodes[i].parent = tti_first_host(topology);
        nic_set_rate(topology, 1, 0); /* always of no known rate, and above of no known place */
        if (what == 0)
            nic_set_rate(topology, 3, 1.25); /* is nobody's: 0 is near, 2 far, 1 somewhere */
        nic_check(topology, 2, what == 1 ? second : first, what == 1 ? two : both);
    }
}

/* Ranks `r` of `count` may run on the processors first[r] to last[r]. */
static void check_bound(const char *machine, int count, const int *first, const int *last,
                        const char *const *wanted)
{
    struct tti_topology *topology = described(machine);
    struct tti_nic_user users[MOST_RANKS];
    cpu_set_t cpus[MOST_RANKS];
    for (int r = 0; r < count; r++) {
        CPU_ZERO(&cpus[r]);
        for (int cpu = first[r]; cpu <= last[r]; cpu++)
            CPU_SET(cpu, &cpus[r]);
        users[r] = (struct tti_nic_user){.gpu = -1, .cpus = &cpus[r]};
    }
    for (int r = 0; r < count; r++)
        assert_string_equal(nic_uses(topology, users, count, r, NULL), wanted[r]);
    tti_topology_destroy(topology);
}

static void ranks_without_gpus_share_too(void **state)
{
    static const char *const machine = "8 cores, 2 packages, 4 nics 25";
    static const int each[] = {0, 1, 4, 6}, ends[] = {0, 1, 5, 7};
    static const int from[] = {0, 0, 0, 4}, to[] = {7, 7, 7, 7};
    static const char *const own[] = {"0", "1", "2", "3"}, *const mixed[] = {"0 3", "1", "2",
                                                                             "2 3"};
    (void)state;
    check_bound(machine, 4, each, ends, own);
    /* Three that may run anywhere share all four, and the last is alone near its package's. */
    check_bound(machine, 4, from, to, mixed);
}

/* ---- how often the graph is asked --------------------------------------------------------------
 */

static long questions;

enum tti_nearness __real_tti_nearness(const struct tti_topology *topology, int a, int b);
enum tti_nearness __wrap_tti_nearness(const struct tti_topology *topology, int a, int b);

enum tti_nearness __wrap_tti_nearness(const struct tti_topology *topology, int a, int b)
{
    questions++;
    return __real_tti_nearness(topology, a, b);
}

/* Each rank of a large host looks at all ranks' processors: of each pair of a processor and a NIC
 * it asks once, however many ranks may run there. */
static void large_hosts_are_asked_once(void **state)
{
    enum { RANKS = 128, CPUS = 256, NICS = 8 };
    struct tti_topology *topology = described("256 cores, 2 packages, 8 nics 25");
    struct tti_nic_user *users = calloc(RANKS, sizeof *users);
    cpu_set_t *cpus = calloc(RANKS, sizeof *cpus);
    int stops[MOST_STOPS];
    (void)state;
    assert_non_null(users);
    assert_non_null(cpus);
    assert_int_equal(stops_of(topology, TTI_NODE_PU, stops), CPUS);
    for (int r = 0; r < RANKS; r++) {
        for (int cpu = 0; cpu < CPUS; cpu++)
            CPU_SET(cpu, &cpus[r]);
        users[r] = (struct tti_nic_user){.gpu = -1, .cpus = &cpus[r]};
    }
    questions = 0;
    assert_string_equal(nic_uses(topology, users, RANKS, 1, NULL), "1");
    assert_in_range(questions, 1, CPUS * NICS);
    free(users);
    free(cpus);
    tti_topology_destroy(topology);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sockets_share_out_what_is_equally_near),
        cmocka_unit_test(what_may_be_another_kind_is_not_shared_out),
        cmocka_unit_test(what_may_be_another_kind_stays_beside_what_is_far),
        cmocka_unit_test(ranks_without_gpus_share_too),
        cmocka_unit_test(large_hosts_are_asked_once),
    };
    if (argc != 2)
        return 2;
    nic_systems = argv[1];
    nic_way = TTI_NIC_BY_ONE;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
