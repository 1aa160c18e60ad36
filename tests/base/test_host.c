/* How many processors a thread may run on (base/host.h). */
#include "base/host.h"

#include "tests/tutti_cmocka.h"

#include <sched.h>

static void the_allowed_count(void **state)
{
    cpu_set_t before, some;
    int taken = 0;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_int_equal(tti_host_cpus(), CPU_COUNT(&before));
    CPU_ZERO(&some);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) { /* one more each time, up to four */
        if (!CPU_ISSET(cpu, &before) || taken == 4)
            continue;
        CPU_SET(cpu, &some);
        taken++;
        assert_int_equal(sched_setaffinity(0, sizeof some, &some), 0);
        assert_int_equal(tti_host_cpus(), taken);
    }
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_allowed_count)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
