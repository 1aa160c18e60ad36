/* What is said of ranks that wait in a circle: who is on it, not only who waits for those. (What
 * ranks are told of each other in real jobs: test_diagnose.c.) */
#include "coll/verdict.h"
#include "tests/tutti_cmocka.h"

#include <string.h>

enum { RANKS = 4, TEXT = 1024 };

struct wait {
    int sequence, waits_for; /* of the operation that the rank is in; 0: in none */
};

static enum tti_finding verdict_of(const struct wait *waits, bool sends, char *text)
{
    struct tti_logged ops[RANKS];
    struct tti_logbook books[RANKS];
    memset(ops, 0, sizeof ops);
    memset(books, 0, sizeof books);
    for (int r = 0; r < RANKS; r++) {
        ops[r].collective = sends ? TUTTI_SEND_RECV : TUTTI_ALL_REDUCE;
        ops[r].sends = sends;
        ops[r].root = waits[r].waits_for;
        ops[r].sequence = (uint64_t)waits[r].sequence;
        ops[r].waits_for = waits[r].waits_for;
        ops[r].end_ns = TTI_RECORD_RUNS;
        books[r].state = TTI_LOGBOOK_THERE;
        books[r].ops = &ops[r];
        books[r].count = books[r].host_count = books[r].begun[0] = waits[r].sequence > 0;
    }
    return tti_verdict(books, RANKS, text, TEXT);
}

/* Ranks 0 and 1 are in later operations, and would fill the two places there are. */
static void test_circle_behind_others(void **state)
{
    (void)state;
    const struct wait waits[RANKS] = {{3, 1}, {2, 2}, {1, 3}, {1, 2}};
    char text[TEXT];
    assert_int_equal(verdict_of(waits, false, text), TTI_FINDING_CIRCLE);
    assert_non_null(strstr(text, "ranks 2, 3 wait in all_reduce #1"));
    assert_non_null(strstr(text, "rank 2 for rank 3, rank 3 for rank 2"));
    assert_non_null(strstr(text, "rank 0 for rank 1"));
}

static void test_circle_of_several_operations(void **state)
{
    (void)state;
    const struct wait waits[RANKS] = {{4, 1}, {3, 2}, {2, 3}, {1, 2}};
    char text[TEXT];
    assert_int_equal(verdict_of(waits, false, text), TTI_FINDING_CIRCLE);
    assert_non_null(strstr(text, "rank 2 for rank 3"));
    assert_non_null(strstr(text, "rank 3 for rank 2"));
}

/* Each send is an operation of its own, and there are three. */
static void test_circle_of_sends(void **state)
{
    (void)state;
    const struct wait waits[RANKS] = {{1, 1}, {1, 2}, {1, 3}, {1, 0}};
    char text[TEXT];
    assert_int_equal(verdict_of(waits, true, text), TTI_FINDING_CIRCLE);
    assert_non_null(strstr(text, "rank 0 for rank 1, rank 1 for rank 2, rank 2 for rank 3, "
                                 "rank 3 for rank 0; "));
}

static void test_late_rank_beside_a_circle(void **state)
{
    (void)state;
    const struct wait waits[RANKS] = {{3, 1}, {2, 2}, {1, 2}, {0, -1}};
    char text[TEXT];
    /* rank 3, who has entered none, is who is late: the circle does not hide it */
    assert_int_equal(verdict_of(waits, false, text), TTI_FINDING_BEHIND);
    assert_non_null(strstr(text, "rank 3 has not entered all_reduce #3"));
}

static void test_chain_without_circle(void **state)
{
    (void)state;
    const struct wait waits[RANKS] = {{3, 1}, {2, 2}, {1, 3}, {1, -1}};
    char text[TEXT];
    assert_int_equal(verdict_of(waits, false, text), TTI_FINDING_BEHIND);
    assert_non_null(strstr(text, "rank 3 is in all_reduce #1 (count 0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_circle_behind_others),
        cmocka_unit_test(test_circle_of_several_operations),
        cmocka_unit_test(test_circle_of_sends),
        cmocka_unit_test(test_late_rank_beside_a_circle),
        cmocka_unit_test(test_chain_without_circle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
