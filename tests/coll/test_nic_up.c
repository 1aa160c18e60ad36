/* Which devices count as up (coll/nics.h), in a copy of sysfs. */
#include "coll/nics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/tutti_cmocka.h"

static char folder[] = "/tmp/tutti-nic-up-XXXXXX";

/* `path` below the folder, all that it is in, and a line in it. */
static void made(const char *path, const char *line)
{
    char whole[300];
    snprintf(whole, sizeof whole, "%s/%s", folder, path);
    for (char *at = whole + sizeof folder; (at = strchr(at, '/')); at++) {
        *at = '\0';
        (void)mkdir(whole, 0700);
        *at = '/';
    }
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    fprintf(file, "%s\n", line);
    assert_int_equal(fclose(file), 0);
}

static void interfaces(void **state)
{
    (void)state;
    made("class/net/eth0/operstate", "up");
    made("class/net/eth1/operstate", "down");
    made("class/net/eth2/operstate", "lowerlayerdown");
    made("class/net/tun0/operstate", "unknown"); /* drivers that do not say */
    assert_true(tti_nic_is_up(folder, "eth0", false));
    assert_false(tti_nic_is_up(folder, "eth1", false));
    assert_false(tti_nic_is_up(folder, "eth2", false));
    assert_true(tti_nic_is_up(folder, "tun0", false));
    assert_false(tti_nic_is_up(folder, "eth7", false));
    assert_false(tti_nic_is_up(folder, "eth0", true)); /* no RDMA device of that name */
}

static void rdma_devices(void **state)
{
    (void)state;
    made("class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE");
    made("class/infiniband/mlx5_1/ports/1/state", "1: DOWN");
    made("class/infiniband/mlx4_0/ports/1/state", "1: DOWN");
    made("class/infiniband/mlx4_0/ports/2/state", "4: ACTIVE");
    made("class/infiniband/mlx5_2/ports/1/state", "2: INIT");
    assert_true(tti_nic_is_up(folder, "mlx5_0", true));
    assert_false(tti_nic_is_up(folder, "mlx5_1", true));
    assert_true(tti_nic_is_up(folder, "mlx4_0", true));
    assert_false(tti_nic_is_up(folder, "mlx5_2", true));
    assert_false(tti_nic_is_up(folder, "mlx5_3", true));
    assert_false(tti_nic_is_up(folder, "mlx5_0", false));
}

/* A server with four ports and one cable has nothing to choose. */
static void several(void **state)
{
    (void)state;
    assert_int_equal(tti_nics_count(folder, false), 0); /* those above hang on no bus */
    made("class/net/eth0/device/vendor", "0x15b3");
    made("class/net/eth1/device/vendor", "0x15b3");
    made("class/net/eth2/device/vendor", "0x15b3");
    assert_int_equal(tti_nics_count(folder, false), 1);
    made("class/net/eth1/operstate", "up");
    assert_int_equal(tti_nics_count(folder, false), 2);
    assert_int_equal(tti_nics_here(folder), 2);
    made("class/infiniband/mlx5_0/device/vendor", "0x15b3");
    made("class/infiniband/mlx5_1/device/vendor", "0x15b3");
    assert_int_equal(tti_nics_count(folder, true), 1);
    assert_int_equal(tti_nics_here(folder), 1);
    made("class/infiniband/mlx5_1/ports/1/state", "4: ACTIVE");
    assert_int_equal(tti_nics_count(folder, true), 2);
    assert_int_equal(tti_nics_count("/nowhere", true), 0);
    assert_int_equal(tti_nics_here("/nowhere"), 0);
}

static int remove_folder(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(interfaces), cmocka_unit_test(rdma_devices),
        cmocka_unit_test(several), /* of what the others made */
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
