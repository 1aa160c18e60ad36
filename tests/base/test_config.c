/* base/config.c: numbers, seconds and sizes from text, and the errors for bad ones. */
#include "base/config.h"
#include "tests/tutti_cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void integers(void **state)
{
    (void)state;
    long value = 0;
    assert_int_equal(tti_parse_int("N", "42", 0, 100, &value), TUTTI_OK);
    assert_int_equal(value, 42);
    static const char *const bad[] = {"", "x", "4x", "101", "-1", "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(tti_parse_int("N", bad[i], 0, 100, &value), TUTTI_ERR_ARGUMENT);
        assert_int_equal(value, 42);
        assert_non_null(strstr(tutti_last_error(), "N is"));
    }
}

static void sizes(void **state)
{
    (void)state;
    size_t value = 0;
    static const struct {
        const char *text;
        size_t bytes;
    } good[] = {{"8", 8},       {"64K", 65536},     {"4M", 4u << 20}, {"1G", 1u << 30},
                {"1.5k", 1536}, {"2MiB", 2u << 20}, {"0", 0}};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(tti_parse_bytes("-b", good[i].text, &value), TUTTI_OK);
        assert_int_equal(value, good[i].bytes);
    }
    static const char *const bad[] = {"", "K", "8Q", "-8", "8KK", "1e30"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(tti_parse_bytes("-b", bad[i], &value), TUTTI_ERR_ARGUMENT);
}

static void environment(void **state)
{
    (void)state;
    double seconds = 0;
    unsetenv("TUTTI_TEST_VALUE");
    assert_int_equal(tti_config_seconds("TUTTI_TEST_VALUE", 2.5, &seconds), TUTTI_OK);
    assert_true(seconds == 2.5);
    setenv("TUTTI_TEST_VALUE", "", 1);
    assert_null(tti_config_text("TUTTI_TEST_VALUE"));
    setenv("TUTTI_TEST_VALUE", "0", 1);
    assert_int_equal(tti_config_seconds("TUTTI_TEST_VALUE", 2.5, &seconds), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "TUTTI_TEST_VALUE"));
    unsetenv("TUTTI_TEST_VALUE");
}

static void presets(void **state)
{
    (void)state;
    unsetenv("TUTTI_TEST_VALUE");
    assert_null(tti_config_text("TUTTI_TEST_VALUE"));
    assert_int_equal(tti_config_preset("TUTTI_TEST_VALUE", "one"), TUTTI_OK);
    assert_int_equal(tti_config_preset("TUTTI_TEST_OTHER", "other"), TUTTI_OK);
    assert_string_equal(tti_config_text("TUTTI_TEST_VALUE"), "one");
    const char *before = tti_config_text("TUTTI_TEST_VALUE");
    assert_int_equal(tti_config_preset("TUTTI_TEST_VALUE", "two"), TUTTI_OK);
    assert_string_equal(tti_config_text("TUTTI_TEST_VALUE"), "two");
    assert_string_equal(before, "one");
    assert_null(getenv("TUTTI_TEST_VALUE"));
    setenv("TUTTI_TEST_VALUE", "three", 1);
    assert_string_equal(tti_config_text("TUTTI_TEST_VALUE"), "three");
    setenv("TUTTI_TEST_VALUE", "", 1);
    assert_string_equal(tti_config_text("TUTTI_TEST_VALUE"), "two");
    unsetenv("TUTTI_TEST_VALUE");
    assert_int_equal(tti_config_preset("TUTTI_TEST_VALUE", ""), TUTTI_OK);
    assert_null(tti_config_text("TUTTI_TEST_VALUE"));
}

static void names(void **state)
{
    (void)state;
    static const char *const levels[] = {"off", "low", "high", "most"};
    int found = 7;
    setenv("TUTTI_TEST_VALUE", "higher", 1);
    assert_int_equal(tti_config_name("TUTTI_TEST_VALUE", levels, 4, 0, &found), TUTTI_ERR_ARGUMENT);
    assert_int_equal(found, 7);
    assert_string_equal(tutti_last_error(),
                        "TUTTI_TEST_VALUE is \"higher\"; expected off, low, high or most");
    assert_int_equal(tti_config_name("TUTTI_TEST_VALUE", levels, 1, 0, &found), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "expected off"));
    setenv("TUTTI_TEST_VALUE", "high", 1);
    assert_int_equal(tti_config_name("TUTTI_TEST_VALUE", levels, 4, 0, &found), TUTTI_OK);
    assert_int_equal(found, 2);
    unsetenv("TUTTI_TEST_VALUE");
    assert_int_equal(tti_config_name("TUTTI_TEST_VALUE", levels, 4, 3, &found), TUTTI_OK);
    assert_int_equal(found, 3);
}

static char said[4][160];
static int said_count;

static void say(const char *text)
{
    assert_true(said_count < 4);
    snprintf(said[said_count++], sizeof said[0], "%s", text);
}

static void misspelt(void **state)
{
    (void)state;
    static const struct {
        const char *set, *meant;
    } cases[] = {
        {"TUTTI_ALGRO=ring", "TUTTI_ALGO"},
        {"TUTTI_TIMEOUTS=3", "TUTTI_TIMEOUT"},
        {"TUTTI_TPC_CHECKSUM=1", "TUTTI_TCP_CHECKSUM"},
        {"TUTTI_ALGORITHM=ring", "TUTTI_ALGO"},
        {"TUTTI_LOG_LEVEL=info", "TUTTI_LOG"},
        {"TUTTI_SHM_CMA_FORM=1", "TUTTI_SHM_CMA_FROM"},
        {"TUTTI_LANE=", "TUTTI_LANES"},
        {"TUTTI_ALGO=rnig", NULL}, /* the value is none of its business */
        {"TUTTI_LANES", NULL},
        {"TUTTI_", NULL},
        {"TUTTI_MY_PLUGIN=1", NULL},
        {"TUTTI_TEST_GPU=sim", NULL},
        {"ALGRO=1", NULL},
        {"TUTTI_A_NAME_THAT_IS_MUCH_LONGER_THAN_ANY_THAT_WE_HAVE_EVER_HAD=1", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char set[100], expected[160];
        snprintf(set, sizeof set, "%s", cases[i].set);
        char path[] = "PATH=/bin", *const environment[] = {path, set, NULL};
        said_count = 0;
        tti_config_misspelt(environment, say);
        assert_int_equal(said_count, cases[i].meant != NULL);
        if (!cases[i].meant)
            continue;
        set[strcspn(set, "=")] = '\0';
        snprintf(expected, sizeof expected, "%s is set, which nothing reads; is %s meant?", set,
                 cases[i].meant);
        assert_string_equal(said[0], expected);
    }
    tti_config_misspelt(NULL, say);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers), cmocka_unit_test(sizes), cmocka_unit_test(environment),
        cmocka_unit_test(presets),  cmocka_unit_test(names), cmocka_unit_test(misspelt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
