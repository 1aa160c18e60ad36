/* The verifier on plans that are right: small hand-made ones, and the ring. */
#include "coll/algorithms/algorithms.h"
#include "plan/build.h"
#include "plan/verify.h"
#include "tests/tutti_cmocka.h"

#include <stdlib.h>

static void ring(void **state)
{
    (void)state;
    const struct tti_algorithm *algorithm = tti_algorithm_find(TUTTI_ALL_REDUCE, "ring");
    assert_non_null(algorithm);
    struct tti_verify_stats stats = {0};
    for (int n = 1; n <= 64; n = n < 8 ? n + 1 : 2 * n)
        for (int lanes = 1; lanes <= 3; lanes++) {
            struct tti_plan_spec spec = {.collective = TUTTI_ALL_REDUCE,
                                         .nranks = n,
                                         .lanes = lanes,
                                         .slices = 1,
                                         .layout = {.nhosts = 1}};
            enum tutti_result result = tti_verify_algorithm(algorithm, &spec, &stats);
            if (result != TUTTI_OK)
                fail_msg("n = %d: %s", n, tutti_last_error());
        }
    print_message("%llu plans, %llu steps, %llu messages\n", (unsigned long long)stats.plans,
                  (unsigned long long)stats.steps, (unsigned long long)stats.messages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
