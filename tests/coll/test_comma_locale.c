/* A program in a locale whose decimal point is a comma, as half of Europe's are: settings are read,
 * and files are written and read, as in any other.
 *
 * The locale is made here by localedef from a source of a few lines, with a character map of our
 * own, so that nothing need be installed but the C library's tools. */
#include "base/c_locale.h"
#include "base/config.h"
#include "coll/algorithms/algorithms.h"
#include "coll/tuning.h"
#include "plan/draw.h"
#include "plan/simulate.h"
#include "tests/tutti_cmocka.h"
#include "topology/graph.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[] = "/tmp/tutti-locale-XXXXXX";

/* ---- the locale ---- */

static int comma_make(void **state)
{
    char path[100], command[400];
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/map", folder);
    FILE *map = fopen(path, "w");
    assert_non_null(map);
    fputs("<code_set_name> OWN\n<mb_cur_min> 1\n<mb_cur_max> 1\nCHARMAP\n", map);
    for (int c = 0; c < 128; c++)
        fprintf(map, "<U%04X> /x%02x c\n", (unsigned)c, (unsigned)c);
    fputs("END CHARMAP\n", map);
    fclose(map);
    snprintf(path, sizeof path, "%s/source", folder);
    FILE *source = fopen(path, "w");
    assert_non_null(source);
    fputs("LC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n",
          source);
    fclose(source);
    /* Its status is 1: it warns of the categories that are left out. */
    snprintf(command, sizeof command,
             "localedef --no-archive -c -f %s/map -i %s/source %s/comma >%s/log 2>&1", folder,
             folder, folder, folder);
    (void)!system(command);
    setenv("LOCPATH", folder, 1);
    return 0;
}

static int comma_remove(void **state)
{
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static void comma_enter(void)
{
    char text[20];
    if (!setlocale(LC_ALL, "comma")) {
        print_message("SKIPPED: localedef makes no locale on this machine\n");
        skip();
    }
    snprintf(text, sizeof text, "%.1f", 1.5);
    assert_string_equal(text, "1,5"); /* or nothing would be tested */
}

static void comma_leave(void)
{
    char text[20];
    snprintf(text, sizeof text, "%.1f", 2.5);
    assert_string_equal(text, "2,5"); /* ours is not left to the program */
    setlocale(LC_ALL, "C");
}

/* ---- what is written ---- */

static struct tti_topology *machine(void)
{
    struct tti_topology *topology = NULL;
    if (tti_topology_from_text("2 hosts x 8 gpus, nvlink 412.5, 8 nics 12.25", &topology) !=
        TUTTI_OK)
        fail_msg("%s", tutti_last_error());
    return topology;
}

static void write_machine(FILE *out)
{
    struct tti_topology *topology = machine();
    assert_int_equal(tti_topology_write_json(topology, out), TUTTI_OK);
    tti_topology_destroy(topology);
}

static void draw_machine(FILE *out)
{
    struct tti_topology *topology = machine();
    assert_int_equal(tti_topology_draw(topology, NULL, out), TUTTI_OK);
    tti_topology_destroy(topology);
}

static void write_tuning(FILE *out)
{
    const struct tti_series series = {.collective = TUTTI_ALL_REDUCE,
                                      .ranks = 4,
                                      .hosts = 1,
                                      .lanes = 1,
                                      .count = 2,
                                      .point = {{64, 1.5e-6}, {64 << 10, 12.25e-6}}};
    struct tti_tuning *tuning = NULL;
    assert_int_equal(tti_tuning_create(&tuning), TUTTI_OK);
    assert_int_equal(tti_tuning_add(tuning, &series), TUTTI_OK);
    tuning->fitted[0] = true;
    tuning->cost[0][0] = 1.25e-7;
    assert_int_equal(tti_tuning_write_json(tuning, out), TUTTI_OK);
    tti_tuning_destroy(tuning);
}

static const struct tti_plan_spec spec = {
    .collective = TUTTI_ALL_REDUCE, .nranks = 3, .lanes = 1, .slices = 1};

static void draw_plans(FILE *out)
{
    struct tti_plan *plans[3] = {NULL};
    const struct tti_algorithm *ring = tti_algorithm_find(TUTTI_ALL_REDUCE, "ring");
    for (int r = 0; r < 3; r++) {
        struct tti_plan_spec mine = spec;
        mine.rank = r;
        assert_int_equal(ring->plan(&mine, &plans[r]), TUTTI_OK);
    }
    assert_int_equal(tti_plan_draw(plans, 3, "a title", out), TUTTI_OK);
    for (int r = 0; r < 3; r++)
        tti_plan_destroy(plans[r]);
}

static void write_timeline(FILE *out)
{
    static const struct tti_network network = {
        .nranks = 3, .ranks_per_host = 3, .nics = 1, .intra = {1.5e-6, 1e-11}};
    struct tti_timeline *timeline = NULL;
    struct tti_prediction prediction;
    char path[100], block[4096];
    snprintf(path, sizeof path, "%s/timeline", folder);
    assert_int_equal(tti_timeline_create(&timeline), TUTTI_OK);
    assert_int_equal(tti_simulate(tti_algorithm_find(TUTTI_ALL_REDUCE, "ring"), &spec, &network,
                                  6000, TUTTI_FLOAT32, timeline, &prediction),
                     TUTTI_OK);
    assert_int_equal(tti_timeline_write(timeline, path), TUTTI_OK);
    tti_timeline_destroy(timeline);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (size_t n; (n = fread(block, 1, sizeof block, file)) > 0;)
        fwrite(block, 1, n, out);
    fclose(file);
}

static char *text_of(void (*write)(FILE *out))
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    assert_non_null(out);
    write(out);
    fclose(out);
    assert_true(bytes > 0);
    return text;
}

static void files_are_the_same(void **state)
{
    static void (*const writers[])(FILE *) = {write_machine, draw_machine, write_tuning, draw_plans,
                                              write_timeline};
    (void)state;
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        char *expected = text_of(writers[i]);
        comma_enter();
        char *text = text_of(writers[i]);
        comma_leave();
        assert_string_equal(text, expected);
        free(text);
        free(expected);
    }
}

/* ---- what is read ---- */

static void files_are_read(void **state)
{
    (void)state;
    char *json = text_of(write_machine), *tuned = text_of(write_tuning);
    struct tti_topology *topology = NULL, *expected = machine();
    struct tti_tuning *tuning = NULL;
    comma_enter();
    assert_int_equal(tti_topology_from_json(json, strlen(json), &topology), TUTTI_OK);
    assert_int_equal(tti_tuning_from_json(tuned, strlen(tuned), &tuning), TUTTI_OK);
    comma_leave();
    assert_int_equal(topology->link_count, expected->link_count);
    for (size_t i = 0; i < topology->link_count; i++)
        assert_true(topology->links[i].gbs == expected->links[i].gbs);
    assert_true(tuning->cost[0][0] == 1.25e-7);
    assert_true(fabs(tuning->series[0].point[1].seconds - 12.25e-6) < 1e-15);
    tti_tuning_destroy(tuning);
    tti_topology_destroy(topology);
    tti_topology_destroy(expected);
    free(json);
    free(tuned);
}

static void settings_are_read(void **state)
{
    (void)state;
    double seconds = 0;
    size_t bytes = 0;
    comma_enter();
    assert_int_equal(tti_parse_seconds("S", "1.5", &seconds), TUTTI_OK);
    assert_true(seconds == 1.5);
    assert_int_equal(tti_parse_bytes("B", "1.5K", &bytes), TUTTI_OK);
    assert_int_equal(bytes, 1536);
    assert_int_equal(tti_parse_seconds("S", "1,5", &seconds), TUTTI_ERR_ARGUMENT);
    comma_leave();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_the_same),
        cmocka_unit_test(files_are_read),
        cmocka_unit_test(settings_are_read),
    };
    return cmocka_run_group_tests(tests, comma_make, comma_remove);
}
