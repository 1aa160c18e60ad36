/* The timeline is JSON that a trace viewer can use: names, one slice a step, and arrows whose ends
 * lie inside slices. */
#include "coll/algorithms/algorithms.h"
#include "tests/simulate/simple_algorithms.h"
#include "tests/tutti_cmocka.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 6, LANES = 2 };

static const struct tti_network network = {.nranks = RANKS,
                                           .ranks_per_host = 3,
                                           .nics = 1,
                                           .intra = {1e-6, 1e-11},
                                           .inter = {4e-6, 1e-10}};

static struct tti_plan_spec ring_spec(int nranks, int lanes)
{
    return (struct tti_plan_spec){
        .collective = TUTTI_ALL_REDUCE, .nranks = nranks, .lanes = lanes, .slices = 1};
}

/* The ring without its symmetry, so that every rank is in the picture. */
static struct tti_algorithm whole_ring(void)
{
    struct tti_algorithm ring = *tti_algorithm_find(TUTTI_ALL_REDUCE, "ring");
    ring.translates = false;
    return ring;
}

static cJSON *parse_file(const char *path)
{
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long bytes = ftell(file);
    rewind(file);
    char *text = calloc(1, (size_t)bytes + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)bytes, file), bytes);
    fclose(file);
    cJSON *json = cJSON_Parse(text);
    free(text);
    assert_non_null(json);
    return json;
}

static double number(const cJSON *event, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(event, key);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

/* A slice of the same thread that contains the arrow's end. */
static bool has_slice(const cJSON *events, const cJSON *end)
{
    const cJSON *event = NULL;
    double at = number(end, "ts");
    cJSON_ArrayForEach(event, events)
    {
        if (strcmp(cJSON_GetObjectItem(event, "ph")->valuestring, "X") != 0 ||
            number(event, "pid") != number(end, "pid") ||
            number(event, "tid") != number(end, "tid"))
            continue;
        if (number(event, "ts") <= at + 1e-5 &&
            number(event, "ts") + number(event, "dur") >= at - 1e-5)
            return true;
    }
    return false;
}

static void a_timeline_has_every_step_and_message(void **state)
{
    (void)state;
    char path[] = "/tmp/tutti-timeline-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    struct tti_algorithm ring = whole_ring();
    struct tti_plan_spec spec = ring_spec(RANKS, LANES);
    struct tti_timeline *timeline = NULL;
    struct tti_prediction prediction;
    assert_int_equal(tti_timeline_create(&timeline), TUTTI_OK);
    for (int again = 0; again < 2; again++) /* the second run replaces the first */
        assert_int_equal(
            tti_simulate(&ring, &spec, &network, 6000, TUTTI_FLOAT32, timeline, &prediction),
            TUTTI_OK);
    assert_int_equal(tti_timeline_write(timeline, path), TUTTI_OK);
    tti_timeline_destroy(timeline);

    cJSON *json = parse_file(path);
    const cJSON *events = cJSON_GetObjectItem(json, "traceEvents"), *event = NULL;
    int names = 0, slices = 0, leaves = 0, arrives = 0;
    double end = 0;
    cJSON_ArrayForEach(event, events)
    {
        const char *phase = cJSON_GetObjectItem(event, "ph")->valuestring;
        names += strcmp(phase, "M") == 0;
        leaves += strcmp(phase, "s") == 0;
        arrives += strcmp(phase, "f") == 0;
        if (strcmp(phase, "X") == 0) {
            slices++;
            double stop = number(event, "ts") + number(event, "dur");
            end = stop > end ? stop : end;
            assert_non_null(cJSON_GetObjectItem(cJSON_GetObjectItem(event, "args"), "chunk"));
        } else if (strcmp(phase, "M") != 0) {
            assert_true(has_slice(events, event));
        }
    }
    cJSON_Delete(json);
    unlink(path);
    assert_true(names >= RANKS * (1 + LANES));
    assert_int_equal(slices, RANKS * LANES * (2 * RANKS - 1));
    assert_int_equal(leaves, prediction.messages);
    assert_int_equal(arrives, prediction.messages);
    assert_true(end > prediction.seconds * 1e6 - 1e-4 && end < prediction.seconds * 1e6 + 1e-4);
}

static void too_many_events_are_refused(void **state)
{
    (void)state;
    struct tti_algorithm ring = whole_ring();
    struct tti_plan_spec spec = ring_spec(512, 1);
    struct tti_network large = network;
    large.nranks = 512;
    struct tti_timeline *timeline = NULL;
    struct tti_prediction prediction;
    assert_int_equal(tti_timeline_create(&timeline), TUTTI_OK);
    assert_int_equal(tti_simulate(&ring, &spec, &large, 4096, TUTTI_FLOAT32, timeline, &prediction),
                     TUTTI_ERR_UNSUPPORTED);
    assert_non_null(strstr(tutti_last_error(), "timeline"));
    tti_timeline_destroy(timeline);
}

static void an_unwritable_path_is_an_error(void **state)
{
    (void)state;
    struct tti_timeline *timeline = NULL;
    assert_int_equal(tti_timeline_create(&timeline), TUTTI_OK);
    assert_int_equal(tti_timeline_write(timeline, "/nowhere/at/all.json"), TUTTI_ERR_SYSTEM);
    assert_non_null(strstr(tutti_last_error(), "/nowhere/at/all.json"));
    tti_timeline_destroy(timeline);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_timeline_has_every_step_and_message),
        cmocka_unit_test(too_many_events_are_refused),
        cmocka_unit_test(an_unwritable_path_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
