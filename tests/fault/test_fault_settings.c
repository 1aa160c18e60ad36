/* TUTTI_FAULT: what is read, and what is said about what cannot be. */
#include "transport/fault/fault.h"

#include "tests/tutti_cmocka.h"

#include <stdlib.h>
#include <string.h>

static void everything(void **state)
{
    struct fault_settings s;
    (void)state;
    assert_int_equal(
        tti_fault_settings_parse("over=tcp,seed=18446744073709551615,rank=2,peer=0,delay=0.5:20,"
                                 "reorder=1:0.5,drop=0.01,truncate=0,corrupt=1,forge=0.25,"
                                 "lose=1e-3,stall=7,kill=9",
                                 &s),
        TUTTI_OK);
    assert_string_equal(s.over, "tcp");
    assert_true(s.seeded && s.seed == UINT64_MAX);
    assert_int_equal(s.rank, 2);
    assert_int_equal(s.peer, 0);
    assert_true(s.delay == 0.5 && s.delay_ms == 20 && s.reorder == 1 && s.reorder_ms == 0.5);
    assert_true(s.drop == 0.01 && s.truncate == 0 && s.corrupt == 1 && s.forge == 0.25);
    assert_true(s.lose == 1e-3 && s.stall == 7 && s.kill == 9);
}

static void as_little_as_can_be(void **state)
{
    struct fault_settings s;
    (void)state;
    assert_int_equal(tti_fault_settings_parse("over=shm,", &s), TUTTI_OK);
    assert_false(s.seeded);
    assert_int_equal(s.rank, -1);
    assert_int_equal(s.peer, -1);
    assert_true(s.delay == 0 && s.drop == 0 && s.lose == 0 && s.stall == 0 && s.kill == 0);
}

static void refused(const char *text, const char *item, const char *expected)
{
    struct fault_settings s = {.seed = 77};
    assert_int_equal(tti_fault_settings_parse(text, &s), TUTTI_ERR_ARGUMENT);
    assert_int_equal(s.seed, 77);
    if (!strstr(tutti_last_error(), "TUTTI_FAULT") || !strstr(tutti_last_error(), item) ||
        !strstr(tutti_last_error(), expected))
        fail_msg("\"%s\": \"%s\" does not say \"%s\" and \"%s\"", text, tutti_last_error(), item,
                 expected);
}

static void wrong(void **state)
{
    (void)state;
    refused("", "over which transport", "over=inproc");
    refused("drop=0.1", "over which transport", "over=tcp");
    refused("over=shm,drip=0.1", "\"drip=0.1\"", "drop, truncate");
    refused("over=shm,drop", "\"drop\"", "NAME=VALUE");
    refused("over=", "\"over=\"", "name of a transport");
    refused("over=shm,drop=1.5", "\"drop=1.5\"", "0 to 1");
    refused("over=shm,drop=-0.5", "\"drop=-0.5\"", "0 to 1");
    refused("over=shm,drop=nan", "\"drop=nan\"", "0 to 1");
    refused("over=shm,drop=0.1x", "\"drop=0.1x\"", "0 to 1");
    refused("over=shm,delay=0.1", "\"delay=0.1\"", "CHANCE:MILLISECONDS");
    refused("over=shm,delay=0.1:", "\"delay=0.1:\"", "CHANCE:MILLISECONDS");
    refused("over=shm,delay=0.1:70000", "70000", "60000 ms");
    refused("over=shm,kill=-1", "\"kill=-1\"", "whole number");
    refused("over=shm,seed=18446744073709551616", "seed=", "whole number");
    refused("over=shm,rank=3000000000", "rank=", "a rank");
    refused("over=shm,rank=1,peer=1", "rank and peer", "both 1");
    refused("over=shm,"
            "seed=0000000000000000000000000000000000000000000000000000000000000000000000001",
            "\"seed=0", "too long");
}

/* What the table says when it is asked to work. */
static void probing(void **state)
{
    extern const struct tutti_transport_ops tti_fault_ops;
    (void)state;
    unsetenv("TUTTI_FAULT");
    assert_int_equal(tti_fault_ops.probe(NULL), TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error(), "TUTTI_FAULT"));
    setenv("TUTTI_FAULT", "over=inproc", 1);
    assert_int_equal(tti_fault_ops.probe(NULL), TUTTI_OK);
    setenv("TUTTI_FAULT", "over=pigeon", 1);
    assert_int_equal(tti_fault_ops.probe(NULL), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "over=pigeon"));
    setenv("TUTTI_FAULT", "over=fault", 1);
    assert_int_equal(tti_fault_ops.probe(NULL), TUTTI_ERR_ARGUMENT);
    setenv("TUTTI_FAULT", "over=shm,drop=2", 1);
    assert_int_equal(tti_fault_ops.probe(NULL), TUTTI_ERR_ARGUMENT);
    unsetenv("TUTTI_FAULT");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything),
        cmocka_unit_test(as_little_as_can_be),
        cmocka_unit_test(wrong),
        cmocka_unit_test(probing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
