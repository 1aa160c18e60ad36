/* What a made-up sysfs says of caches, and how much of an L3 a few CPUs may count on. */
#include "device/cpu_caches.h"

#include <stdio.h>
#include <stdlib.h>

#include "tests/made_file.h"
#include "tests/tutti_cmocka.h"

static void made_cache_of(const char *folder, int cpu, int index, const char *level,
                          const char *type, const char *size, const char *shared)
{
    const char *const names[] = {"level", "type", "size", "shared_cpu_list"};
    const char *const texts[] = {level, type, size, shared};
    char path[100];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/cache/index%d/%s", cpu, index,
                 names[i]);
        made_file(folder, path, texts[i]);
    }
}

static void made_cache(const char *folder, int index, const char *level, const char *type,
                       const char *size, const char *shared)
{
    made_cache_of(folder, 0, index, level, type, size, shared);
}

static void expect_usable(const char *folder, const char *size, const char *shared, uint64_t mib)
{
    uint64_t cache[3];
    made_cache(folder, 3, "3\n", "Unified\n", size, shared);
    tti_cpu_caches_usable(folder, cache);
    assert_int_equal(cache[0], 48 << 10);
    assert_int_equal(cache[1], 2 << 20);
    assert_int_equal(cache[2], mib << 20);
}

static void as_much_as_a_core_can_have(void **state)
{
    const char *folder = *state;
    uint64_t cache[3] = {1, 1, 1};
    tti_cpu_caches_usable(folder, cache);
    assert_true(cache[0] == 0 && cache[1] == 0 && cache[2] == 0); /* the kernel does not tell */
    made_cache(folder, 0, "1\n", "Data\n", "48K\n", "0\n");
    made_cache(folder, 1, "1\n", "Instruction\n", "64K\n", "0\n");
    made_cache(folder, 2, "2\n", "Unified\n", "2048K\n", "0\n");
    expect_usable(folder, "491520K\n", "0-119,240-359\n", 480);
    expect_usable(folder, "491520K\n", "0-1\n", 64); /* a virtual machine with a few of them */
    expect_usable(folder, "32768K\n", "0-1\n", 32);
    expect_usable(folder, "96M\n", "0\n", 32);
    expect_usable(folder, "96M\n", "0-3,8-11\n", 96);
    expect_usable(folder, "480M\n", "garbage\n", 480); /* nobody known to share it */
    tti_cpu_caches(folder, cache);
    assert_int_equal(cache[2], UINT64_C(480) << 20);
}

static void expect_shared(const char *folder, int first, int second, int expected)
{
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    if (first >= 0)
        CPU_SET((size_t)first, &cpus);
    if (second >= 0)
        CPU_SET((size_t)second, &cpus);
    assert_int_equal(tti_cpu_shared_cache(folder, &cpus), expected);
}

/* Two clusters of four, of which the second has its hardware threads far off. */
static void one_cache_or_several(void **state)
{
    const char *folder = *state;
    expect_shared(folder, 0, -1, -1); /* the kernel does not tell */
    for (int cpu = 0; cpu < 10; cpu++) {
        const char *shared = cpu < 4 ? "0-3\n" : "4-7,100-103\n";
        made_cache_of(folder, cpu, 0, "1\n", "Data\n", "32K\n", "0\n");
        if (cpu < 8)
            made_cache_of(folder, cpu, 1, "3\n", "Unified\n", "32768K\n", shared);
    }
    expect_shared(folder, 2, -1, 0);
    expect_shared(folder, 1, 3, 0);
    expect_shared(folder, 5, 102, 4);
    expect_shared(folder, 3, 4, -1);
    expect_shared(folder, 5, 104, -1);
    expect_shared(folder, 9, -1, -1); /* it has no L3 */
    expect_shared(folder, -1, -1, -1);
}

/* The two words that are asked for the kind of this machine's processor agree. */
static void one_kind(void **state)
{
    (void)state;
    assert_in_range(tti_cpu_kind(), TTI_CPU_CLUSTERS, TTI_CPU_KINDS - 1);
    assert_int_equal(tti_cpu_meshed(), tti_cpu_kind() == TTI_CPU_MESH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(as_much_as_a_core_can_have, made_folder,
                                        made_folder_removed),
        cmocka_unit_test_setup_teardown(one_cache_or_several, made_folder, made_folder_removed),
        cmocka_unit_test(one_kind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
