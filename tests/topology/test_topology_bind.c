/* Cores for ranks, on machines of many shapes: for every number of ranks the sets are disjoint,
 * cover all CPUs, are runs of cores, and do not cross NUMA nodes unless they are whole ones. */
#include "base/memory.h"
#include "topology/bind.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tutti_cmocka.h"

enum { SHAPE_NODES = 4, MOST_RANKS = 40 };

/* Cores of each NUMA node, and hardware threads of each core. As on real machines the second
 * threads have the second half of the numbers. */
struct shape {
    int cores[SHAPE_NODES];
    int threads;
};

static struct tti_topology *make(const struct shape *shape)
{
    struct tti_topology *topology = NULL;
    struct tti_node node = {.kind = TTI_NODE_HOST, .parent = -1, .os_index = -1};
    int host = 0;
    int numa = 0;
    int core = 0;
    int total = 0;
    int made = 0;
    for (int n = 0; n < SHAPE_NODES; n++)
        total += shape->cores[n];
    assert_int_equal(tti_topology_create("a test", &topology), TUTTI_OK);
    assert_int_equal(tti_topology_add(topology, &node, &host), TUTTI_OK);
    for (int n = 0; n < SHAPE_NODES && shape->cores[n]; n++) {
        node = (struct tti_node){.kind = TTI_NODE_NUMA, .parent = host, .os_index = n};
        assert_int_equal(tti_topology_add(topology, &node, &numa), TUTTI_OK);
        for (int c = 0; c < shape->cores[n]; c++, made++) {
            node = (struct tti_node){.kind = TTI_NODE_CORE, .parent = numa, .os_index = made};
            assert_int_equal(tti_topology_add(topology, &node, &core), TUTTI_OK);
            for (int t = 0; t < shape->threads; t++) {
                node = (struct tti_node){
                    .kind = TTI_NODE_PU, .parent = core, .os_index = made + t * total};
                assert_int_equal(tti_topology_add(topology, &node, NULL), TUTTI_OK);
            }
        }
    }
    return topology;
}

/* The cores of a set, as a run; all threads of each must be in it. */
static void run_of(const struct shape *shape, int total, const cpu_set_t *cpus, int *first,
                   int *count)
{
    *first = -1;
    *count = 0;
    for (int core = 0; core < total; core++) {
        bool in = CPU_ISSET(core, cpus);
        for (int t = 1; t < shape->threads; t++)
            assert_int_equal(CPU_ISSET(core + t * total, cpus) != 0, in);
        if (!in)
            continue;
        if (*first < 0)
            *first = core;
        assert_int_equal(core, *first + *count);
        ++*count;
    }
    assert_int_equal(CPU_COUNT(cpus), *count * shape->threads);
}

static int numa_of(const struct shape *shape, int core)
{
    int n = 0;
    while (core >= shape->cores[n])
        core -= shape->cores[n++];
    return n;
}

static void check_ranks(const struct shape *shape, const struct tti_topology *topology, int ranks)
{
    int total = 0;
    int nodes = 0;
    int next = 0;
    for (; nodes < SHAPE_NODES && shape->cores[nodes]; nodes++)
        total += shape->cores[nodes];
    for (int rank = 0; rank < ranks; rank++) {
        cpu_set_t cpus;
        int first = 0;
        int count = 0;
        assert_int_equal(tti_topology_cpus(topology, ranks, rank, &cpus), TUTTI_OK);
        if (ranks > total) {
            assert_int_equal(CPU_COUNT(&cpus), 0);
            continue;
        }
        run_of(shape, total, &cpus, &first, &count);
        assert_true(count > 0);
        assert_int_equal(first, next); /* disjoint, without gaps, in the order of the ranks */
        next = first + count;
        int from = numa_of(shape, first);
        int to = numa_of(shape, next - 1);
        if (ranks >= nodes)
            assert_int_equal(from, to);
        else if (next < total)
            assert_int_not_equal(numa_of(shape, next), to);
    }
    if (ranks <= total)
        assert_int_equal(next, total);
}

static void sets_partition_the_cores(void **state)
{
    static const struct shape shapes[] = {
        {{1}, 1},          {{2}, 1},          {{8}, 2},      {{4, 4}, 1},
        {{16, 16}, 2},     {{6, 2}, 1},       {{1, 7}, 2},   {{4, 4, 4, 4}, 2},
        {{3, 5, 7, 2}, 1}, {{1, 1, 1, 1}, 4}, {{12, 12}, 1}, {{5, 5, 5}, 2},
    };
    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        struct tti_topology *topology = make(&shapes[s]);
        for (int ranks = 1; ranks <= MOST_RANKS; ranks++)
            check_ranks(&shapes[s], topology, ranks);
        tti_topology_destroy(topology);
    }
}

/* Nodes of six and two cores: three ranks get 3, 3 and 2 cores, not 4, 2 and 2. */
static void shares_are_as_even_as_nodes_allow(void **state)
{
    struct shape shape = {{6, 2}, 1};
    struct tti_topology *topology = make(&shape);
    static const int wanted[] = {3, 3, 2};
    (void)state;
    for (int rank = 0; rank < 3; rank++) {
        cpu_set_t cpus;
        assert_int_equal(tti_topology_cpus(topology, 3, rank, &cpus), TUTTI_OK);
        assert_int_equal(CPU_COUNT(&cpus), wanted[rank]);
    }
    tti_topology_destroy(topology);
}

/* Two NUMA nodes of 4 and 8 cores; a GPU on the first and three on the second. */
static void ranks_are_near_their_gpus(void **state)
{
    static const int wanted[4][2] = {{0, 4}, {4, 2}, {6, 3}, {9, 3}}; /* first core, cores */
    struct shape shape = {{4, 8}, 1};
    struct tti_topology *plain = make(&shape);
    struct tti_topology *topology = NULL;
    char text[80];
    (void)state;
    assert_int_equal(tti_topology_create("a test", &topology), TUTTI_OK);
    int numa = 0;
    int gpus = 0;
    for (int i = 0; i < (int)plain->node_count; i++) {
        struct tti_node node = plain->nodes[i];
        int last = (int)topology->node_count - 1;
        if (node.kind == TTI_NODE_CORE)
            node.parent = numa;
        if (node.kind == TTI_NODE_PU)
            node.parent = last;
        assert_int_equal(tti_topology_add(topology, &node, NULL), TUTTI_OK);
        if (node.kind != TTI_NODE_NUMA)
            continue;
        numa = last + 1;
        for (int k = node.os_index == 0 ? 2 : 0; k < 3; k++, gpus++) {
            struct tti_node gpu = {.kind = TTI_NODE_GPU, .parent = numa, .os_index = gpus};
            assert_int_equal(tti_topology_add(topology, &gpu, NULL), TUTTI_OK);
        }
    }
    for (int rank = 0; rank < 4; rank++) {
        cpu_set_t cpus;
        assert_int_equal(tti_topology_cpus(topology, 4, rank, &cpus), TUTTI_OK);
        assert_int_equal(CPU_COUNT(&cpus), wanted[rank][1]);
        for (int core = wanted[rank][0]; core < wanted[rank][0] + wanted[rank][1]; core++)
            assert_true(CPU_ISSET(core, &cpus));
        snprintf(text, sizeof text, "near its gpu %d", rank);
        char reason[80];
        assert_string_equal(tti_bind_reason(topology, rank, &cpus, reason, sizeof reason), text);
    }
    /* The first two ranks alone have a node each. Of ten, sharing GPUs in turn, the first node
     * would have three and the second seven; of 13 one would be without a core. */
    cpu_set_t cpus;
    assert_int_equal(tti_topology_cpus(topology, 2, 1, &cpus), TUTTI_OK);
    assert_true(CPU_COUNT(&cpus) == 8 && CPU_ISSET(4, &cpus));
    assert_int_equal(tti_topology_cpus(topology, 10, 8, &cpus), TUTTI_OK);
    assert_true(CPU_COUNT(&cpus) == 2 && CPU_ISSET(2, &cpus) && CPU_ISSET(3, &cpus));
    assert_int_equal(tti_topology_cpus(topology, 12, 11, &cpus), TUTTI_OK);
    assert_int_equal(CPU_COUNT(&cpus), 1);
    tti_topology_destroy(topology);
    tti_topology_destroy(plain);
}

static void a_rank_that_does_not_exist_is_refused(void **state)
{
    struct shape shape = {{2}, 1};
    struct tti_topology *topology = make(&shape);
    cpu_set_t cpus;
    (void)state;
    assert_int_equal(tti_topology_cpus(topology, 2, 2, &cpus), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tti_topology_cpus(topology, 0, 0, &cpus), TUTTI_ERR_ARGUMENT);
    tti_topology_destroy(topology);
}

static void this_machine_is_bound_within_our_mask(void **state)
{
    cpu_set_t allowed;
    cpu_set_t *cpus = NULL;
    cpu_set_t both;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    assert_int_equal(tti_bind_ranks(TTI_BIND_CORE, 1, &cpus), TUTTI_OK);
    assert_non_null(cpus);
    assert_true(CPU_EQUAL(&cpus[0], &allowed));
    free(cpus);
    /* With one CPU left, one rank gets it and two get nothing. */
    cpu_set_t one;
    int last = CPU_SETSIZE - 1;
    while (!CPU_ISSET(last, &allowed))
        last--;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(tti_bind_ranks(TTI_BIND_AUTO, 1, &cpus), TUTTI_OK);
    assert_null(cpus); /* nothing to choose from: left to the kernel */
    assert_int_equal(tti_bind_ranks(TTI_BIND_CORE, 1, &cpus), TUTTI_OK);
    CPU_AND(&both, &cpus[0], &one);
    assert_true(CPU_EQUAL(&both, &one) && CPU_COUNT(&cpus[0]) == 1);
    free(cpus);
    assert_int_equal(tti_bind_ranks(TTI_BIND_AUTO, 2, &cpus), TUTTI_OK);
    assert_null(cpus);
    assert_int_equal(tti_bind_ranks(TTI_BIND_CORE, 2, &cpus), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "2 ranks"));
    assert_int_equal(tti_bind_ranks(TTI_BIND_NONE, 1, &cpus), TUTTI_OK);
    assert_null(cpus);
    assert_int_equal(sched_setaffinity(0, sizeof allowed, &allowed), 0);
}

static void cpu_lists_read_well(void **state)
{
    cpu_set_t cpus;
    char text[64];
    char narrow[6];
    (void)state;
    CPU_ZERO(&cpus);
    assert_string_equal(tti_cpus_text(&cpus, text, sizeof text), "none");
    for (int cpu = 0; cpu < 4; cpu++)
        CPU_SET(cpu, &cpus);
    CPU_SET(8, &cpus);
    CPU_SET(CPU_SETSIZE - 1, &cpus);
    assert_string_equal(tti_cpus_text(&cpus, text, sizeof text), "0-3,8,1023");
    assert_string_equal(tti_cpus_text(&cpus, narrow, sizeof narrow), "0-3,8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_partition_the_cores),
        cmocka_unit_test(shares_are_as_even_as_nodes_allow),
        cmocka_unit_test(ranks_are_near_their_gpus),
        cmocka_unit_test(a_rank_that_does_not_exist_is_refused),
        cmocka_unit_test(this_machine_is_bound_within_our_mask),
        cmocka_unit_test(cpu_lists_read_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
