/* coll/select.c: what is forced is taken, what does not exist is refused with what does, and the
 * choice by cost follows size. */
#include "coll/algorithms/algorithms.h"
#include "coll/select.h"
#include "tests/tutti_cmocka.h"

#include <string.h>

static struct tutti_comm *comm_of(int size, char *algorithms)
{
    static struct tutti_comm comm;
    memset(&comm, 0, sizeof comm);
    comm.size = size;
    comm.peers.nhosts = 1;
    static const double no_caches[3];
    tti_profile_default(no_caches, 64, &comm.profile);
    comm.settings.lanes = 2;
    comm.settings.algorithms = algorithms;
    return &comm;
}

static const char *chosen(struct tutti_comm *comm, enum tutti_collective collective, size_t count)
{
    struct tti_selection selection;
    assert_int_equal(tti_select(comm, collective, count, TUTTI_FLOAT32, 0, &selection), TUTTI_OK);
    assert_ptr_equal(tti_algorithm_at(collective, selection.index), selection.algorithm);
    return selection.algorithm->name;
}

static void forced(void **state)
{
    (void)state;
    char ring[] = "ring", each[] = "all_reduce=two_shot,broadcast=chain";
    assert_string_equal(chosen(comm_of(4, ring), TUTTI_ALL_REDUCE, 1), "ring");
    assert_string_equal(chosen(comm_of(4, ring), TUTTI_ALL_GATHER, 1), "ring");
    assert_string_equal(chosen(comm_of(4, each), TUTTI_ALL_REDUCE, 1), "two_shot");
    assert_string_equal(chosen(comm_of(4, each), TUTTI_BROADCAST, 1), "chain");
    /* A collective without an algorithm of that name chooses freely. */
    (void)chosen(comm_of(4, ring), TUTTI_BARRIER, 1);
}

static void refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"nope", "all_reduce=nope", "nope=ring", "ring,nope", "="};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(tti_select_check(bad[i]), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tti_select_check("all_reduce=nope"), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "rabenseifner"));
    assert_int_equal(tti_select_check(""), TUTTI_OK);
    assert_int_equal(tti_select_check(NULL), TUTTI_OK);
    assert_int_equal(tti_select_check("ring"), TUTTI_OK);
    assert_int_equal(tti_select_check("all_reduce=ring,broadcast=tree"), TUTTI_OK);
}

static void size_matters(void **state)
{
    (void)state;
    const char *small = chosen(comm_of(16, NULL), TUTTI_ALL_REDUCE, 2);
    const char *large = chosen(comm_of(16, NULL), TUTTI_ALL_REDUCE, (size_t)64 << 20);
    assert_string_not_equal(small, large);
    assert_true(strcmp(large, "ring") == 0 || strcmp(large, "two_shot") == 0 ||
                strcmp(large, "rabenseifner") == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forced),
        cmocka_unit_test(refused),
        cmocka_unit_test(size_matters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
