/* transport/registry.c: the table of built-ins, plugins that are right and wrong, selection. The
 * first argument is the folder with the plugins. */
#include "transport/registry.h"

#include "tests/tutti_cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *folder;
static char path[1024];

static const char *plugin(const char *kind)
{
    snprintf(path, sizeof path, "%s/test_plugin_%s.so", folder, kind);
    return path;
}

static void refused(const char *file, const char *why)
{
    const struct tutti_transport_ops *ops = NULL;
    assert_int_equal(tti_transport_load(file, &ops), TUTTI_ERR_ARGUMENT);
    assert_null(ops);
    assert_non_null(strstr(tutti_last_error(), file));
    if (!strstr(tutti_last_error(), why))
        fail_msg("\"%s\" does not say \"%s\"", tutti_last_error(), why);
}

static void built_in_tables(void **state)
{
    (void)state;
    int count = 0, last = -1;
    for (; tti_transport_at(count); count++) {
        const struct tutti_transport_ops *ops = tti_transport_at(count);
        assert_int_equal(ops->abi, TUTTI_TRANSPORT_ABI);
        assert_int_equal(ops->size, sizeof *ops);
        assert_true(ops->rank > last); /* best first */
        last = ops->rank;
    }
    assert_true(count >= 2);
    assert_string_equal(tti_transport_at(0)->name, "inproc");
    assert_null(tti_transport_at(-1));
}

static void good_plugin(void **state)
{
    (void)state;
    const struct tutti_transport_ops *ops = NULL, *again = NULL;
    assert_int_equal(tti_transport_load(plugin("good"), &ops), TUTTI_OK);
    assert_string_equal(ops->name, "testplug");
    assert_int_equal(tti_transport_load(plugin("good"), &again), TUTTI_OK);
    assert_ptr_equal(ops, again);
    assert_int_equal(ops->probe(tti_transport_services()), TUTTI_ERR_UNSUPPORTED);
    assert_string_equal(tutti_last_error(), "the test plugin never works");
}

/* Built against a header that had fewer optional operations. */
static void older_plugin(void **state)
{
    (void)state;
    const struct tutti_transport_ops *ops = NULL;
    assert_int_equal(tti_transport_load(plugin("older"), &ops), TUTTI_OK);
    assert_false(tti_transport_maps(ops));
    assert_true(tti_transport_maps(tti_transport_at(0)));
    assert_false(tti_transport_sends_device(ops));
}

static void bad_plugins(void **state)
{
    (void)state;
    refused("/nowhere/plugin.so", "cannot be loaded");
    refused(plugin("abi"), "ABI 7");
    refused(plugin("size"), "bytes");
    refused(plugin("map"), "lacks the required operation offer");
    refused(plugin("device"), "lacks the required operation device_register");
    refused(plugin("name"), "name");
    refused(plugin("table"), "no table");
    refused(plugin("operation"), "lacks the required operation consume");
    refused(plugin("commit"), "lacks the required operation commit");
    refused(plugin("symbol"), "does not export tutti_transport");
}

static void not_an_object(void **state)
{
    (void)state;
    char name[] = "/tmp/tutti-test-plugin-XXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0);
    static const char text[] = "This is no shared object.\n";
    assert_int_equal(write(fd, text, sizeof text), sizeof text);
    close(fd);
    refused(name, "cannot be loaded");
    unlink(name);
}

static void selection(void **state)
{
    (void)state;
    const struct tutti_transport_ops *list[TTI_MAX_TRANSPORTS];
    int count = 0, all = 0;
    assert_int_equal(tti_transport_select(NULL, NULL, list, &all), TUTTI_OK);
    assert_true(all >= 1);
    assert_int_equal(tti_transport_select("", "", list, &count), TUTTI_OK);
    assert_int_equal(count, all);
    assert_int_equal(tti_transport_select("shm,inproc,shm", NULL, list, &count), TUTTI_OK);
    assert_int_equal(count, 2); /* by preference, each once */
    assert_string_equal(list[0]->name, "inproc");
    assert_string_equal(list[1]->name, "shm");
    /* A plugin that does not work is left out, unless it was asked for. */
    assert_int_equal(tti_transport_select(NULL, plugin("good"), list, &count), TUTTI_OK);
    assert_int_equal(count, all);
    count = -1;
    assert_int_equal(tti_transport_select("testplug", plugin("good"), list, &count),
                     TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error(), "testplug"));
    assert_non_null(strstr(tutti_last_error(), "never works"));
    assert_int_equal(count, -1);
}

static void bad_selections(void **state)
{
    (void)state;
    const struct tutti_transport_ops *list[TTI_MAX_TRANSPORTS];
    int count = 0;
    assert_int_equal(tti_transport_select("inproc,carrier-pigeon", plugin("good"), list, &count),
                     TUTTI_ERR_ARGUMENT);
    const char *text = tutti_last_error();
    assert_non_null(strstr(text, "unknown transport \"carrier-pigeon\""));
    assert_non_null(strstr(text, "inproc, testplug, shm")); /* the known ones, best first */
    assert_int_equal(tti_transport_select(",", NULL, list, &count), TUTTI_ERR_ARGUMENT);
    assert_int_equal(tti_transport_select(NULL, plugin("abi"), list, &count), TUTTI_ERR_ARGUMENT);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(built_in_tables), cmocka_unit_test(good_plugin),
        cmocka_unit_test(older_plugin),    cmocka_unit_test(bad_plugins),
        cmocka_unit_test(not_an_object),   cmocka_unit_test(selection),
        cmocka_unit_test(bad_selections),
    };
    folder = argc > 1 ? argv[1] : ".";
    return cmocka_run_group_tests(tests, NULL, NULL);
}
