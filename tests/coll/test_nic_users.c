/* Whose NICs are near to what (coll/nics.h): a rank's own place, and the ranks of a host. */
#include "coll/nics.h"

#include "coll/door.h"
#include "topology/nic_use.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tutti_cmocka.h"

enum { HERE = 7, THERE = 8, GPUS = 4, RANKS = 6 };

/* A host with GPUs; hwloc came upon that of the highest address first. */
static struct tti_topology *host_of_gpus(int gpus[GPUS])
{
    static const char *const names[GPUS] = {"0000:c1:00.0 GH100", "0000:3b:00.0 GH100",
                                            "0000:5d:00.0 GH100", "0000:9b:00.0 GH100"};
    struct tti_topology *topology = NULL;
    struct tti_node node = {.kind = TTI_NODE_HOST, .parent = -1, .os_index = -1};
    assert_int_equal(tti_topology_create("made up", &topology), TUTTI_OK);
    assert_int_equal(tti_topology_add(topology, &node, NULL), TUTTI_OK);
    for (int g = 0; g < GPUS; g++) {
        node = (struct tti_node){.kind = TTI_NODE_GPU, .parent = 0, .os_index = -1};
        snprintf(node.name, sizeof node.name, "%s", names[g]);
        assert_int_equal(tti_topology_add(topology, &node, &gpus[g]), TUTTI_OK);
    }
    return topology;
}

/* The ranks of this host have these devices; between them there are ranks of another one. Then each
 * has the GPU of this number, or -1. */
static void check(const char *const devices[], int count, const int *wanted)
{
    struct tti_nic_place places[2 * RANKS];
    struct tti_nic_user users[2 * RANKS];
    int gpus[GPUS];
    struct tti_topology *topology = host_of_gpus(gpus);
    cpu_set_t cpus[2 * RANKS];
    for (int r = 0; r < count; r++) {
        places[2 * r] = (struct tti_nic_place){.host = THERE, .gpu = "0000:5d:00.0"};
        places[2 * r + 1] = (struct tti_nic_place){.host = HERE};
        snprintf(places[2 * r + 1].gpu, TTI_NIC_GPU_BYTES, "%s", devices[r]);
    }
    for (int own = 0; own < count; own++) {
        int me = -1;
        assert_int_equal(tti_nics_users(places, 2 * count, 2 * own + 1, topology, cpus, users, &me),
                         count);
        assert_int_equal(me, own);
        for (int r = 0; r < count; r++) {
            assert_int_equal(users[r].gpu, wanted[r] < 0 ? -1 : gpus[wanted[r]]);
            assert_ptr_equal(users[r].cpus, &cpus[2 * r + 1]);
        }
    }
    tti_topology_destroy(topology);
}

static void devices_by_their_addresses(void **state)
{
    static const char *const devices[] = {"0000:9b:00.0", "0000:c1:00.0", "0000:5d:00.0",
                                          "0000:3b:00.0"};
    static const int wanted[] = {3, 0, 2, 1};
    (void)state;
    check(devices, 4, wanted);
}

static void two_ranks_of_a_device(void **state)
{
    static const char *const devices[] = {"0000:5d:00.0", "0000:5d:00.0"};
    static const int wanted[] = {2, 2};
    (void)state;
    check(devices, 2, wanted);
}

/* By local rank, in the driver's order, again from the first one. */
static void devices_that_are_not_known(void **state)
{
    static const char *const devices[] = {"?", "?", "?", "?", "?", "ffff:00:00.0"};
    static const int wanted[] = {1, 2, 3, 0, 1, 2};
    (void)state;
    check(devices, 6, wanted);
}

static void some_with_and_some_without(void **state)
{
    static const char *const devices[] = {"", "0000:c1:00.0", "?", ""};
    static const int wanted[] = {-1, 0, 3, -1};
    (void)state;
    check(devices, 4, wanted);
}

static void the_own_place(void **state)
{
    struct tti_nic_place place, again;
    (void)state;
    assert_int_equal(setenv("TUTTI_DEVICE", "host", 1), 0);
    assert_int_equal(tti_nics_place(&place), TUTTI_OK);
    assert_string_equal(place.gpu, "");
    assert_int_equal(setenv("TUTTI_DEVICE", "sim", 1), 0);
    if (tti_nics_place(&again) == TUTTI_ERR_UNSUPPORTED)
        skip(); /* built without it */
    assert_string_equal(again.gpu, "?");
    assert_true(place.host == again.host);
    tti_comm_by_device(3);
    assert_int_equal(tti_nics_place(&place), TUTTI_OK);
    assert_string_equal(place.gpu, "ffff:03:00.0");
    tti_comm_by_device(-1);
    assert_int_equal(tti_nics_place(&place), TUTTI_OK);
    assert_string_equal(place.gpu, "?");
    assert_int_equal(setenv("TUTTI_DEVICE", "none such", 1), 0);
    assert_int_equal(tti_nics_place(&place), TUTTI_ERR_ARGUMENT);
    assert_int_equal(unsetenv("TUTTI_DEVICE"), 0);
}

/* Two hosts, so many ranks and NICs of each. */
static int lanes_of(int here, int nics_here, int there, int nics_there, int lanes)
{
    struct tti_nic_place places[32];
    for (int r = 0; r < here + there; r++)
        places[r] = (struct tti_nic_place){.host = r < here ? HERE : THERE,
                                           .nics = r < here ? nics_here : nics_there};
    return tti_nics_lanes(places, here + there, lanes);
}

static void a_lane_for_each_nic(void **state)
{
    (void)state;
    assert_int_equal(lanes_of(8, 1, 8, 1, 2), 2);
    assert_int_equal(lanes_of(8, 8, 8, 8, 2), 8);
    assert_int_equal(lanes_of(8, 5, 8, 1, 2), 8); /* a power of two, by the host with the most */
    assert_int_equal(lanes_of(2, 8, 2, 8, 2), 2); /* not more than ranks */
    assert_int_equal(lanes_of(1, 8, 4, 4, 2), 4);
    assert_int_equal(lanes_of(8, 8, 0, 0, 2), 2);   /* one host */
    assert_int_equal(lanes_of(8, 4, 8, 4, 16), 16); /* what others ask for stays */
    assert_int_equal(lanes_of(16, 64, 16, 64, 2), 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_by_their_addresses),
        cmocka_unit_test(two_ranks_of_a_device),
        cmocka_unit_test(devices_that_are_not_known),
        cmocka_unit_test(some_with_and_some_without),
        cmocka_unit_test(the_own_place),
        cmocka_unit_test(a_lane_for_each_nic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
