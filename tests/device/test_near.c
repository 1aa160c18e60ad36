/* Memory near cores: which NUMA node a set of CPUs is on, from a made-up sysfs, and that the kernel
 * takes the policy for a shared mapping. */
#include "device/memory.h"
#include "device/near.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/made_file.h"
#include "tests/tutti_cmocka.h"

static int node_of(const char *sysfs, int first, int last)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    for (int cpu = first; cpu <= last; cpu++)
        CPU_SET(cpu, &cpus);
    return tti_near_node(sysfs, &cpus);
}

static void cpus_of_one_node_have_it(void **state)
{
    const char *folder = *state;
    assert_int_equal(node_of(folder, 0, 1), -1); /* the kernel does not tell */
    made_file(folder, "devices/system/node/online", "0\n");
    made_file(folder, "devices/system/node/node0/cpulist", "0-3,8-11\n");
    assert_int_equal(node_of(folder, 0, 1), -1); /* the only one */
    made_file(folder, "devices/system/node/online", "0,2-3\n");
    made_file(folder, "devices/system/node/node2/cpulist", "4-7,12\n");
    made_file(folder, "devices/system/node/node3/cpulist", "\n"); /* memory alone */
    assert_int_equal(node_of(folder, 0, 3), 0);
    assert_int_equal(node_of(folder, 9, 11), 0);
    assert_int_equal(node_of(folder, 4, 7), 2);
    assert_int_equal(node_of(folder, 12, 12), 2);
    assert_int_equal(node_of(folder, 3, 4), -1);   /* of two */
    assert_int_equal(node_of(folder, 40, 41), -1); /* of none */
    assert_int_equal(node_of(folder, 1, 0), -1);   /* no CPU */
}

static void a_device_has_one_or_none(void **state)
{
    const char *folder = *state;
    assert_int_equal(tti_near_device(folder, "0000:3b:00.0"), -1); /* there is no such device */
    made_file(folder, "bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
    made_file(folder, "bus/pci/devices/0000:5e:00.0/numa_node", "-1\n");
    made_file(folder, "bus/pci/devices/0000:5f:00.0/numa_node", "none\n");
    assert_int_equal(tti_near_device(folder, "0000:3b:00.0"), 1);
    assert_int_equal(tti_near_device(folder, "0000:5e:00.0"), -1);
    assert_int_equal(tti_near_device(folder, "0000:5f:00.0"), -1);
}

static void the_kernel_takes_the_policy(void **state)
{
    void *memory = NULL;
    int mode = -1;
    unsigned long mask[1024 / 64 + 1] = {0};
    (void)state;
    assert_int_equal(tti_region_alloc(1 << 20, &memory), TUTTI_OK);
    enum tutti_result bound = tti_near_bind(memory, 1 << 20, 0);
    if (bound != TUTTI_OK && (errno == ENOSYS || errno == EPERM)) {
        assert_int_equal(tti_region_free(memory), TUTTI_OK);
        skip();
    }
    assert_int_equal(bound, TUTTI_OK);
    assert_int_equal(syscall(SYS_get_mempolicy, &mode, mask, 1024UL + 1, memory, MPOL_F_ADDR), 0);
    assert_int_equal(mode, MPOL_PREFERRED);
    assert_int_equal(mask[0], 1);
    memset(memory, 1, 1 << 20);
    assert_int_equal(tti_near_bind(memory, 1 << 20, 1000), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error(), "NUMA node 1000"));
    assert_int_equal(tti_near_bind(memory, 1 << 20, -1), TUTTI_ERR_ARGUMENT);
    tti_near_place(memory, 1 << 20); /* whatever the machine, it does no harm */
    assert_int_equal(tti_region_free(memory), TUTTI_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(cpus_of_one_node_have_it, made_folder, made_folder_removed),
        cmocka_unit_test_setup_teardown(a_device_has_one_or_none, made_folder, made_folder_removed),
        cmocka_unit_test(the_kernel_takes_the_policy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
