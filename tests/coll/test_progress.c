/* Where the progress thread runs: what TUTTI_PROGRESS_CORE may say, what is chosen by itself, and
 * that the thread of a communicator is where it was put. */
#include "coll/progress.h"

#include "coll/comm.h"
#include "topology/nearest.h"

#include "tests/tutti_cmocka.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void lists(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int cpu[4]; /* of local ranks 0 to 3 */
    } right[] = {{"3", {3, 3, 3, 3}},
                 {"0,2", {0, 2, 0, 2}},
                 {"4-6", {4, 5, 6, 4}},
                 {"7,2-3", {7, 2, 3, 7}},
                 {"1023", {1023, 1023, 1023, 1023}}};
    static const char *const wrong[] = {"",     "x",   "-1",    "1-",
                                        "3-2",  "1,",  ",1",    "1;2",
                                        "1024", "0x1", "1-2-3", "99999999999999999999"};
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++)
        for (int rank = 0; rank < 4; rank++) {
            int cpu = -1;
            assert_int_equal(tti_progress_listed(right[i].text, rank, &cpu), TUTTI_OK);
            assert_int_equal(cpu, right[i].cpu[rank]);
        }
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        int cpu = -7;
        assert_int_equal(tti_progress_listed(wrong[i], 0, &cpu), TUTTI_ERR_ARGUMENT);
        assert_non_null(strstr(tutti_last_error(), "TUTTI_PROGRESS_CORE is \""));
        assert_int_equal(cpu, -7);
    }
}

static void chosen(void **state)
{
    (void)state;
    cpu_set_t near;
    CPU_ZERO(&near);
    struct tti_cpus own = {.bits = {0xf0, 0x3}};
    assert_int_equal(tti_progress_auto(&own, &near, 0, 1), 65);
    assert_int_equal(tti_progress_auto(&own, &near, 1, 3), 64);
    assert_int_equal(tti_progress_auto(&own, &near, 2, 3), 7);
    assert_int_equal(tti_progress_auto(&own, &near, 0, 4), -1); /* one of two would have none */
    CPU_SET(5, &near);
    CPU_SET(6, &near);
    CPU_SET(8, &near); /* not its own */
    assert_int_equal(tti_progress_auto(&own, &near, 0, 3), 6);
    assert_int_equal(tti_progress_auto(&own, &near, 1, 3), 5);
    assert_int_equal(tti_progress_auto(&own, &near, 2, 3), 65);
    own = (struct tti_cpus){.bits = {1}};
    assert_int_equal(tti_progress_auto(&own, &near, 0, 1), -1);
}

/* The processor of each of `ranks` ranks that may run on all of the described machine. */
static void check_machine(const char *machine, int ranks, const int *wanted)
{
    struct tti_topology *topology = NULL;
    struct tti_cpus own = {.bits = {0}};
    cpu_set_t near;
    assert_int_equal(tti_topology_from_text(machine, &topology), TUTTI_OK);
    for (size_t i = 0; i < topology->node_count; i++)
        if (topology->nodes[i].kind == TTI_NODE_PU)
            own.bits[topology->nodes[i].os_index / 64] |= (uint64_t)1
                                                          << topology->nodes[i].os_index % 64;
    (void)tti_cpus_near_nics(topology, &near);
    for (int rank = 0; rank < ranks; rank++)
        assert_int_equal(tti_progress_auto(&own, &near, rank, ranks), wanted[rank]);
    tti_topology_destroy(topology);
}

/* 8 processors on two packages: the last four are on the second. */
static void a_thread_is_near_the_nic(void **state)
{
    (void)state;
    check_machine("2 packages, 8 cores, 1 nic 25", 4, (const int[]){3, 2, 1, 0});
    check_machine("2 packages, 8 cores, 2 nics 25", 2, (const int[]){7, 6}); /* one on each */
    check_machine("2 packages, 8 cores", 2, (const int[]){7, 6});
}

/* The processors that the thread of this name may run on, as the kernel tells them; false: there is
 * no such thread. */
static bool thread_allowed(const char *wanted, char *list, size_t bytes)
{
    bool found = false;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *task; (task = readdir(tasks));) {
        char path[300], line[200], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *status = task->d_name[0] == '.' ? NULL : fopen(path, "r");
        while (status && fgets(line, sizeof line, status)) {
            (void)sscanf(line, "Name: %31s", name);
            if (strcmp(name, wanted) == 0 && strncmp(line, "Cpus_allowed_list:", 18) == 0) {
                snprintf(list, bytes, "%s", line + 18 + strspn(line + 18, " \t"));
                list[strcspn(list, "\n")] = '\0';
                found = true;
            }
        }
        if (status)
            (void)fclose(status);
    }
    (void)closedir(tasks);
    return found;
}

static enum tutti_result make(const char *text, tutti_comm **comm)
{
    struct tutti_id id;
    if (text)
        setenv("TUTTI_PROGRESS_CORE", text, 1);
    else
        unsetenv("TUTTI_PROGRESS_CORE");
    assert_int_equal(tutti_id_create("127.0.0.1", &id), TUTTI_OK);
    return tutti_comm_create(&id, 0, 1, NULL, comm);
}

static void a_thread_is_where_it_was_put(void **state)
{
    (void)state;
    cpu_set_t allowed;
    char list[200], expected[200], all[200];
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    assert_true(thread_allowed("test_progress", all, sizeof all));
    int last = CPU_SETSIZE - 1;
    while (!CPU_ISSET(last, &allowed))
        last--;
    snprintf(expected, sizeof expected, "%d", last);
    static const char *const settings[] = {NULL, "auto", "own"};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        tutti_comm *comm = NULL;
        tutti_request *request = NULL;
        float x = 3;
        const bool bound = i == 2 || (i == 1 && CPU_COUNT(&allowed) > 1);
        assert_int_equal(make(i == 2 ? expected : settings[i], &comm), TUTTI_OK);
        assert_false(thread_allowed("tutti-progress", list, sizeof list)); /* not needed yet */
        assert_int_equal(
            tutti_all_reduce_async(&x, &x, 1, TUTTI_FLOAT32, TUTTI_SUM, comm, NULL, &request),
            TUTTI_OK);
        assert_int_equal(tutti_wait(request), TUTTI_OK);
        assert_true(thread_allowed("tutti-progress", list, sizeof list));
        print_message("%s: on %s\n", i == 2 ? expected : settings[i] ? settings[i] : "unset", list);
        assert_string_equal(list, bound ? expected : all);
        tutti_comm_destroy(comm);
    }
    assert_true(thread_allowed("test_progress", list, sizeof list));
    assert_string_equal(list, all); /* ours is where it was */
}

static void what_is_not_there_is_refused(void **state)
{
    (void)state;
    tutti_comm *comm = NULL;
    assert_int_equal(make("1023", &comm), TUTTI_ERR_ARGUMENT);
    print_message("%s\n", tutti_last_error());
    assert_non_null(strstr(tutti_last_error(), "may run on processor 1023"));
    assert_int_equal(make("first", &comm), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "TUTTI_PROGRESS_CORE is \"first\"; expected"));
    assert_null(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        cmocka_unit_test(chosen),
        cmocka_unit_test(a_thread_is_near_the_nic),
        cmocka_unit_test(a_thread_is_where_it_was_put),
        cmocka_unit_test(what_is_not_there_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
