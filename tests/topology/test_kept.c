/* Graphs that are kept for the process (topology/kept.h). */
#include "topology/kept.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/tutti_cmocka.h"

enum { THREADS = 8 };

static void *look(void *argument)
{
    const struct tti_topology **found = argument;
    return tti_topology_keep(NULL, found) == TUTTI_OK ? argument : NULL;
}

/* Ranks that are threads: one of them looks, for all. */
static void the_machine_is_looked_at_once(void **state)
{
    const struct tti_topology *found[THREADS] = {NULL}, *again = NULL;
    pthread_t threads[THREADS];
    (void)state;
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&threads[t], NULL, look, &found[t]), 0);
    for (int t = 0; t < THREADS; t++) {
        void *good = NULL;
        assert_int_equal(pthread_join(threads[t], &good), 0);
        assert_non_null(good);
        assert_ptr_equal(found[t], found[0]);
    }
    for (int t = 0; t < THREADS; t++)
        tti_topology_release(found[t]);
    assert_int_equal(tti_topology_keep(NULL, &again), TUTTI_OK);
    assert_ptr_equal(again, found[0]); /* still there, though nobody used it */
    tti_topology_release(again);
    tti_topology_release(NULL);
}

/* Processors that the thread may not use are not in the graph. */
static void other_processors_are_another_graph(void **state)
{
    const struct tti_topology *all = NULL, *few = NULL, *whole = NULL;
    cpu_set_t allowed, one;
    int cpu = 0;
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    if (CPU_COUNT(&allowed) < 2)
        skip();
    while (!CPU_ISSET(cpu, &allowed))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(tti_topology_keep(NULL, &all), TUTTI_OK);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(tti_topology_keep(NULL, &few), TUTTI_OK);
    assert_int_equal(tti_topology_keep_whole(&whole), TUTTI_OK);
    assert_int_equal(sched_setaffinity(0, sizeof allowed, &allowed), 0);
    assert_int_equal(tti_topology_count(few, -1, TTI_NODE_PU), 1);
    assert_int_equal(tti_topology_count(all, -1, TTI_NODE_PU), CPU_COUNT(&allowed));
    if (strncmp(whole->source, "hwloc", 5) == 0) /* sysfs alone gives no others */
        assert_true(tti_topology_count(whole, -1, TTI_NODE_PU) >= CPU_COUNT(&allowed));
    tti_topology_release(whole);
    tti_topology_release(all);
    tti_topology_release(few);
}

static void write_host(const char *path, const char *name)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "{\"format\": \"tutti-topology 1\", \"source\": \"made up\", \"nodes\": [{\"kind\": "
            "\"host\", \"parent\": -1, \"name\": \"%s\"}], \"links\": []}",
            name);
    assert_int_equal(fclose(file), 0);
}

static void a_file_that_changes_is_read_again(void **state)
{
    char path[] = "/tmp/tutti-kept-XXXXXX";
    const struct tti_topology *first = NULL, *same = NULL, *other = NULL;
    const int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    write_host(path, "one");
    assert_int_equal(tti_topology_keep(path, &first), TUTTI_OK);
    assert_int_equal(tti_topology_keep(path, &same), TUTTI_OK);
    assert_ptr_equal(first, same);
    write_host(path, "another");
    assert_int_equal(tti_topology_keep(path, &other), TUTTI_OK);
    assert_string_equal(first->nodes[0].name, "one");
    assert_string_equal(other->nodes[0].name, "another");
    tti_topology_release(first);
    tti_topology_release(same);
    tti_topology_release(other);
    assert_int_equal(remove(path), 0);
    other = NULL;
    assert_int_equal(tti_topology_keep(path, &other), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error(), path));
    assert_null(other);
}

/* More of them than are kept; a leak checker, and the one after the other, would find what is lost
 * or let go of too early. */
static void what_is_in_use_stays(void **state)
{
    enum { FILES = 12 };
    char path[] = "/tmp/tutti-kept-XXXXXX", name[20];
    const struct tti_topology *found[FILES];
    const int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    for (int i = 0; i < FILES; i++) {
        snprintf(name, sizeof name, "%.*s", i + 1, "abcdefghijklmnop");
        write_host(path, name);
        assert_int_equal(tti_topology_keep(path, &found[i]), TUTTI_OK);
        if (i % 2)
            tti_topology_release(found[i]);
    }
    for (int i = 0; i < FILES; i += 2) {
        assert_int_equal(strlen(found[i]->nodes[0].name), i + 1);
        tti_topology_release(found[i]);
    }
    assert_int_equal(remove(path), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_machine_is_looked_at_once),
        cmocka_unit_test(other_processors_are_another_graph),
        cmocka_unit_test(a_file_that_changes_is_read_again),
        cmocka_unit_test(what_is_in_use_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
