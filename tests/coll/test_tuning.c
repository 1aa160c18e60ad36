/* coll/tuning.h: the file there and back, what is refused, where it is looked for, and what it does
 * to the selection. */
#include "coll/algorithms/algorithms.h"
#include "coll/select.h"
#include "coll/tuning.h"
#include "tests/tutti_cmocka.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int number_of(const char *name)
{
    for (int i = 0;; i++)
        if (strcmp(tti_algorithm_at(TUTTI_ALL_REDUCE, i)->name, name) == 0)
            return i;
}

/* Of all-reduce on mapped memory: `scale` microseconds at 64 bytes, ten times that at 64 KiB. */
static struct tti_series series_of(const char *name, enum tti_path path, int lanes, double scale)
{
    return (struct tti_series){.collective = TUTTI_ALL_REDUCE,
                               .medium = TTI_MAPPED,
                               .ranks = 4,
                               .hosts = 1,
                               .algorithm = number_of(name),
                               .path = path,
                               .lanes = lanes,
                               .count = 2,
                               .point = {{64, scale * 1e-6}, {64 << 10, scale * 10e-6}}};
}

static struct tti_tuning *tuning_of(const struct tti_series *series, size_t count)
{
    struct tti_tuning *tuning = NULL;
    assert_int_equal(tti_tuning_create(&tuning), TUTTI_OK);
    tti_machine_identify("", &tuning->machine);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(tti_tuning_add(tuning, &series[i]), TUTTI_OK);
    return tuning;
}

static struct tutti_comm *comm_of(struct tti_tuning *tuning, char *algorithms)
{
    static struct tutti_comm comm;
    static const double no_caches[3];
    memset(&comm, 0, sizeof comm);
    comm.size = 4;
    comm.peers.nhosts = 1;
    comm.peers.have_shm = true;
    comm.settings.lanes = 4;
    comm.settings.algorithms = algorithms;
    comm.tuning = tuning;
    tti_profile_default(no_caches, TTI_CPU_CLUSTERS, 64, &comm.profile);
    return &comm;
}

static struct tti_selection chosen(struct tutti_comm *comm, size_t bytes)
{
    struct tti_selection selection;
    assert_int_equal(tti_select(comm, TUTTI_ALL_REDUCE, bytes, TUTTI_UINT8, 0, &selection),
                     TUTTI_OK);
    return selection;
}

/* ---- What it does to the selection ---- */

static void what_was_measured_as_fastest_is_taken(void **state)
{
    const struct tti_series series[] = {series_of("ring", TTI_PATH_PLAN, 1, 5),
                                        series_of("tree", TTI_PATH_PLAN, 4, 3),
                                        series_of("two_shot", TTI_PATH_PLAN, 1, 4)};
    struct tti_tuning *tuning = tuning_of(series, 3);
    struct tutti_comm *comm = comm_of(tuning, NULL);
    (void)state;
    for (size_t bytes = 1; bytes <= 16 << 20; bytes *= 4) {
        struct tti_selection s = chosen(comm, bytes);
        assert_string_equal(s.algorithm->name, "tree");
        assert_int_equal(s.spec.lanes, 4);
        assert_true(s.measured);
    }
    /* The measured points themselves; between them, something between. */
    assert_true(fabs(chosen(comm, 64).predicted_s - 3e-6) < 1e-12);
    assert_true(fabs(chosen(comm, 64 << 10).predicted_s - 30e-6) < 1e-11);
    double middle = chosen(comm, 2048).predicted_s;
    assert_true(middle > 3e-6 && middle < 30e-6);
    /* Beyond them the model goes on from the nearest point. */
    struct tti_selection last = chosen(comm, 64 << 10), beyond = chosen(comm, 16 << 20);
    assert_true(fabs(beyond.predicted_s / beyond.modelled_s - last.predicted_s / last.modelled_s) <
                1e-9);
    tti_tuning_destroy(tuning);
}

static void what_was_not_measured_is_left(void **state)
{
    /* Slower than the model says of all others, but the only one that was measured. */
    const struct tti_series series[] = {series_of("rabenseifner", TTI_PATH_PLAN, 1, 5000)};
    struct tti_tuning *tuning = tuning_of(series, 1);
    (void)state;
    assert_string_equal(chosen(comm_of(tuning, NULL), 4096).algorithm->name, "rabenseifner");
    tuning->series[0].ranks = 5; /* of other communicators */
    assert_string_not_equal(chosen(comm_of(tuning, NULL), 4096).algorithm->name, "rabenseifner");
    tuning->series[0].ranks = 4;
    tuning->series[0].medium = TTI_LOOPBACK;
    assert_false(chosen(comm_of(tuning, NULL), 4096).measured);
    tti_tuning_destroy(tuning);
}

static void what_is_forced_is_taken(void **state)
{
    const struct tti_series series[] = {series_of("ring", TTI_PATH_PLAN, 1, 5),
                                        series_of("ring", TTI_PATH_PLAN, 2, 4),
                                        series_of("tree", TTI_PATH_PLAN, 1, 3)};
    struct tti_tuning *tuning = tuning_of(series, 3);
    char ring[] = "ring", two_shot[] = "all_reduce=two_shot";
    (void)state;
    struct tti_selection s = chosen(comm_of(tuning, ring), 4096);
    assert_string_equal(s.algorithm->name, "ring");
    assert_int_equal(s.spec.lanes, 2); /* the better of its measured ones */
    s = chosen(comm_of(tuning, two_shot), 4096);
    assert_string_equal(s.algorithm->name, "two_shot");
    assert_false(s.measured);
    struct tutti_comm *comm = comm_of(tuning, ring);
    comm->settings.lanes_forced = true;
    assert_int_equal(chosen(comm, 4096).spec.lanes, 4);
    tti_tuning_destroy(tuning);
}

static void a_trial_is_run_whatever_is_best(void **state)
{
    struct tutti_comm *comm = comm_of(NULL, NULL);
    struct tti_ways ways;
    (void)state;
    assert_int_equal(tti_select_ways(comm, TUTTI_ALL_REDUCE, 4096, TUTTI_UINT8, true, &ways),
                     TUTTI_OK);
    assert_true(ways.count > 6);
    assert_ptr_equal(chosen(comm, 4096).algorithm, ways.way[0].algorithm);
    for (int i = 0; i < ways.count; i++) {
        tti_select_try(comm, &ways.way[i]);
        assert_ptr_equal(chosen(comm, 4096).algorithm, ways.way[i].algorithm);
        assert_int_equal(chosen(comm, 4096).spec.lanes, ways.way[i].spec.lanes);
    }
    tti_select_try(comm, NULL);
    assert_ptr_equal(chosen(comm, 4096).algorithm, ways.way[0].algorithm);
}

/* ---- As text ---- */

static char *text_of(const struct tti_tuning *tuning, size_t *bytes)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes);
    assert_non_null(out);
    assert_int_equal(tti_tuning_write_json(tuning, out), TUTTI_OK);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void text_gives_back_what_was_written(void **state)
{
    const struct tti_series series[] = {series_of("ring", TTI_PATH_PLAN, 3, 1.0 / 3),
                                        series_of("two_shot", TTI_PATH_FUSED, 1, 0.1)};
    struct tti_tuning *tuning = tuning_of(series, 2), *again = NULL;
    size_t bytes = 0, bytes_again = 0;
    (void)state;
    tuning->fitted[TTI_LOOPBACK] = true;
    for (int i = 0; i < TTI_COSTS; i++)
        tuning->cost[TTI_LOOPBACK][i] = i / 7.0;
    char *text = text_of(tuning, &bytes);
    if (tti_tuning_from_json(text, bytes, &again) != TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    assert_true(again->digest != 0 && again->count == 2 && again->fitted[TTI_LOOPBACK]);
    assert_false(again->fitted[TTI_MAPPED]);
    assert_true(tti_machine_alike(&again->machine, &tuning->machine));
    char *text_again = text_of(again, &bytes_again);
    assert_string_equal(text, text_again);
    for (size_t cut = 0; cut + 2 < bytes; cut += 1 + bytes / 300) {
        struct tti_tuning *part = NULL;
        assert_int_equal(tti_tuning_from_json(text, cut, &part), TUTTI_ERR_ARGUMENT);
        assert_null(part);
    }
    tti_tuning_destroy(again);
    tti_tuning_destroy(tuning);
    free(text);
    free(text_again);
}

#define HEAD                                                                                    \
    "{\"format\":\"tutti-tuning 1\",\"release\":\"0.1\",\n\"machine\":{\"cpu\":\"c\",\"host\":" \
    "\"h\",\"cpus\":2,\"l1\":1,\"l2\":2,\"l3\":3},\n"
#define SERIES(collective, algorithm, points)                                           \
    "{\"collective\":\"" collective "\",\"medium\":\"mapped\",\"ranks\":2,\"hosts\":1," \
    "\"algorithm\":\"" algorithm "\",\"path\":\"plan\",\"lanes\":1,\"us\":[" points "]}"

static void wrong_text_is_refused_with_its_place(void **state)
{
    static const char *const wrong[][2] = {
        {"", "line 1 of the tuning: '{' expected"},
        {"{\"format\":\"tutti-tuning 2\"", "is not \"tutti-tuning 1\""},
        {"{\"colour\":1}", "\"colour\" is no member"},
        {"{\"format\":\"tutti-tuning 1\"}", "without one of its members"},
        {HEAD "\"constants\":[],\"series\":[]} x", "text after the end"},
        {HEAD "\"constants\":[{\"medium\":\"air\"}]", "\"air\" is none of the words"},
        {HEAD "\"constants\":[{\"medium\":\"mapped\"}]", "line 3 of the tuning: constants without"},
        {HEAD "\"constants\":[{\"alpha\":-1}]", "out of range"},
        {HEAD "\"series\":[" SERIES("all_reduce", "ring", "") "]", "without points"},
        {HEAD "\"series\":[" SERIES("all_reduce", "ring", "[8,1],[8,1]") "]", "out of range"},
        {HEAD "\"series\":[" SERIES("all_reduce", "ring", "[8,0]") "]", "out of range"},
        {HEAD "\"series\":[" SERIES("all_reduce", "ring", "[8,1e999]") "]", "a number is expected"},
        {HEAD "\"series\":[" SERIES("all_seduce", "ring", "[8,1]") "]", "\"all_seduce\" is none"},
        {HEAD "\"series\":[{}]", "expected"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct tti_tuning *tuning = NULL;
        assert_int_equal(tti_tuning_from_json(wrong[i][0], strlen(wrong[i][0]), &tuning),
                         TUTTI_ERR_ARGUMENT);
        assert_null(tuning);
        if (!strstr(tutti_last_error(), wrong[i][1]))
            fail_msg("\"%s\" gives \"%s\", not \"%s\"", wrong[i][0], tutti_last_error(),
                     wrong[i][1]);
    }
}

static void unknown_algorithms_are_left_out(void **state)
{
    static const char text[] = HEAD "\"constants\":[],\"series\":[" SERIES(
        "all_reduce", "magic", "[8,1]") "," SERIES("all_reduce", "ring", "[8,1]") "]}";
    struct tti_tuning *tuning = NULL;
    (void)state;
    assert_int_equal(tti_tuning_from_json(text, strlen(text), &tuning), TUTTI_OK);
    assert_int_equal(tuning->unknown, 1);
    assert_int_equal(tuning->count, 1);
    tti_tuning_destroy(tuning);
}

/* ---- As a file ---- */

static char folder[] = "/tmp/test_tuning.XXXXXX";

static const char *in_folder(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void write_text(const char *path, const char *text)
{
    FILE *out = fopen(path, "we");
    assert_non_null(out);
    assert_true(fputs(text, out) >= 0);
    assert_int_equal(fclose(out), 0);
}

/* What is found; `words` must be in the source. */
static struct tti_tuning *found(const char *words)
{
    struct tti_tuning *tuning = NULL;
    char source[TTI_TUNING_PATH_BYTES];
    assert_int_equal(tti_tuning_find(&tuning, source), TUTTI_OK);
    if (!strstr(source, words))
        fail_msg("\"%s\" is not in \"%s\"", words, source);
    return tuning;
}

static void the_file_is_found(void **state)
{
    const struct tti_series series[] = {series_of("ring", TTI_PATH_PLAN, 1, 1)};
    struct tti_tuning *tuning = tuning_of(series, 1);
    char place[TTI_TUNING_PATH_BYTES];
    (void)state;
    unsetenv("TUTTI_TUNING");
    setenv("XDG_CONFIG_HOME", in_folder("config"), 1);
    tti_tuning_place(place, sizeof place);
    assert_string_equal(place, in_folder("config/tutti/tuning.json"));
    assert_int_equal(tti_tuning_write(tuning, place), TUTTI_OK);
    assert_int_equal(tti_tuning_write(tuning, place), TUTTI_OK); /* replaces */
    struct tti_tuning *read = found(place);
    assert_int_equal(read->count, 1);
    tti_tuning_destroy(read);
    setenv("TUTTI_TUNING", "off", 1);
    assert_null(found("off"));

    /* Nothing is left beside it. */
    DIR *entries = opendir(in_folder("config/tutti"));
    int files = 0;
    assert_non_null(entries);
    for (struct dirent *entry; (entry = readdir(entries));)
        files += entry->d_name[0] != '.';
    closedir(entries);
    assert_int_equal(files, 1);

    /* Of another machine: not used. */
    tuning->machine.cpus++;
    assert_int_equal(tti_tuning_write(tuning, in_folder("other.json")), TUTTI_OK);
    setenv("TUTTI_TUNING", in_folder("other.json"), 1);
    assert_null(found("of another machine"));
    tti_tuning_destroy(tuning);
}

static void a_bad_file_is_passed_over(void **state)
{
    struct tti_tuning *tuning = NULL;
    char source[TTI_TUNING_PATH_BYTES];
    (void)state;
    setenv("TUTTI_TUNING", in_folder("bad.json"), 1);
    write_text(in_folder("bad.json"), "{\"format\":\n\"tutti-tuning 1\",\n7}");
    assert_null(found("bad.json: line 3 of the tuning: '\"' expected"));
    write_text(in_folder("bad.json"), "{\"release\":\"9.9\"}");
    assert_null(found("run tutti-tune again"));
    assert_int_equal(mkdir(in_folder("d"), 0700), 0);
    setenv("TUTTI_TUNING", in_folder("d"), 1);
    assert_null(found("no regular file"));
    setenv("TUTTI_TUNING", in_folder("none.json"), 1);
    assert_int_equal(tti_tuning_find(&tuning, source), TUTTI_ERR_ARGUMENT);
    assert_non_null(strstr(tutti_last_error(), "TUTTI_TUNING"));
}

static int folder_make(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int folder_remove(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_measured_as_fastest_is_taken),
        cmocka_unit_test(what_was_not_measured_is_left),
        cmocka_unit_test(what_is_forced_is_taken),
        cmocka_unit_test(a_trial_is_run_whatever_is_best),
        cmocka_unit_test(text_gives_back_what_was_written),
        cmocka_unit_test(wrong_text_is_refused_with_its_place),
        cmocka_unit_test(unknown_algorithms_are_left_out),
        cmocka_unit_test(the_file_is_found),
        cmocka_unit_test(a_bad_file_is_passed_over),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
