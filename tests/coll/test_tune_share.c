/* tools/tune_jobs.c: ranks are dealt out over the CPUs where they come out even, and only there. */
#include "tests/tutti_cmocka.h"
#include "tools/tune_jobs.h"

#include <stdlib.h>

/* So many CPUs, not next to each other. */
static cpu_set_t cpus_of(int count)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (int i = 0; i < count; i++)
        CPU_SET(1 + 3 * i, &set);
    return set;
}

static void as_many_on_each(void **state)
{
    (void)state;
    for (int count = 1; count <= 8; count++)
        for (int ranks = 2 * count; ranks <= 4 * count; ranks += count) {
            const cpu_set_t allowed = cpus_of(count);
            cpu_set_t *cpus = NULL;
            int on[CPU_SETSIZE] = {0};
            assert_int_equal(tune_job_share(&allowed, ranks, &cpus), TUTTI_OK);
            assert_non_null(cpus);
            for (int r = 0; r < ranks; r++) {
                assert_int_equal(CPU_COUNT(&cpus[r]), 1);
                for (int c = 0; c < CPU_SETSIZE; c++)
                    on[c] += CPU_ISSET(c, &cpus[r]) != 0;
            }
            for (int c = 0; c < CPU_SETSIZE; c++)
                assert_int_equal(on[c], CPU_ISSET(c, &allowed) ? ranks / count : 0);
            free(cpus);
        }
}

static void not_where_some_have_more(void **state)
{
    static const struct {
        int ranks, cpus;
    } cases[] = {{3, 2}, {5, 4}, {12, 8}, {2, 2}, {2, 8}, {4, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const cpu_set_t allowed = cpus_of(cases[i].cpus);
        cpu_set_t none, *cpus = &none;
        assert_int_equal(tune_job_share(&allowed, cases[i].ranks, &cpus), TUTTI_OK);
        assert_null(cpus);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_on_each),
        cmocka_unit_test(not_where_some_have_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
