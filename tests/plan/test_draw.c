/* Plans for people: the text of a step and of a plan, and the picture: well-formed XML with a
 * column for each rank, a box for each step and a line for each message. */
#include "coll/algorithms/algorithms.h"
#include "plan/draw.h"
#include "plan/print.h"
#include "tests/plan/direct_plans.h"
#include "tests/tutti_cmocka.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- text ---- */

static void steps_as_text(void **state)
{
    (void)state;
    static const struct {
        struct tti_step step;
        const char *text;
    } expected[] = {
        {{TTI_SEND, 0, -1, 2, 0, 1, {TTI_IN, 5}, {0, 0}, {0, 0}, -1, -1}, "send IN[5] -> 2"},
        {{TTI_COPY, TTI_FINAL, -1, -1, 0, 3, {TTI_IN, 0}, {0, 0}, {TTI_OUT, 3}, -1, -1},
         "copy OUT[3..5] = IN[0..2] final"},
        {{TTI_REDUCE, 0, -1, -1, 0, 1, {TTI_IN, 0}, {TTI_SCRATCH, 4}, {TTI_SLOT, 1}, -1, -1},
         "reduce SLOT[1] = IN[0] + SCRATCH[4]"},
        {{TTI_RECV, TTI_FORWARD, 3, 1, 0, 1, {0, 0}, {0, 0}, {TTI_OUT, 0}, 7, -1},
         "recv OUT[0] = message <- 3 -> 1 after send 7"},
        {{TTI_RECV_REDUCE,
          TTI_MSG_ACC | TTI_MSG_LEFT,
          3,
          -1,
          0,
          1,
          {TTI_IN, 2},
          {0, 0},
          {TTI_SLOT, 0},
          -1,
          -1},
         "recv_reduce SLOT[0] = message + IN[2] <- 3 acc"},
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        char text[TTI_STEP_TEXT_BYTES], tight[8];
        assert_string_equal(tti_step_text(&expected[i].step, text, sizeof text), expected[i].text);
        tti_step_text(&expected[i].step, tight, sizeof tight);
        assert_int_equal(strlen(tight), sizeof tight - 1);
        assert_memory_equal(tight, expected[i].text, sizeof tight - 1);
    }
}

static void plan_as_text(void **state)
{
    (void)state;
    struct plan_set set;
    plan_set_build(&set, tti_algorithm_find(TUTTI_ALL_REDUCE, "ring"), 2, 0, 1);
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    assert_int_equal(tti_plan_print(set.plans[0], file), TUTTI_OK);
    assert_int_equal(fclose(file), 0);
    assert_string_equal(
        text, "all_reduce: rank 0 of 2, root 0; blocks of 2 chunks, 2 slots; peers 1\n"
              "lane 0\n"
              "     0  send        IN[0]                              -> 1\n"
              "     1  recv_reduce OUT[1] = IN[1] + message  <- 1     -> 1    final\n"
              "     2  recv        OUT[0] = message          <- 1             after send 0\n");
    free(text);
    plan_set_destroy(&set);
}

/* ---- picture ---- */

static char *draw(const struct plan_set *set, const char *title, enum tutti_result expected)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    assert_non_null(file);
    assert_int_equal(tti_plan_draw(set->plans, set->nranks, title, file), expected);
    assert_int_equal(fclose(file), 0);
    return text;
}

static int count_of(const char *text, const char *what)
{
    int count = 0;
    for (; (text = strstr(text, what)); text += strlen(what))
        count++;
    return count;
}

/* The end of an attribute list that starts at `at`: name="value" pairs only. */
static const char *read_attributes(const char *at)
{
    while (isspace((unsigned char)*at)) {
        at++;
        const char *name = at;
        while (isalnum((unsigned char)*at) || *at == '-' || *at == ':')
            at++;
        assert_true(at > name && at[0] == '=' && at[1] == '"');
        for (at += 2; *at != '"'; at++)
            assert_true(*at != '\0' && *at != '<');
        at++;
    }
    return at;
}

/* Tags nest, attributes are quoted, text is escaped: what an XML parser asks for. */
static void check_xml(const char *at)
{
    char open[16][16];
    int depth = 0;
    assert_memory_equal(at, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n", 39);
    for (at += 39; *at; at++) {
        assert_true((unsigned char)*at < 128 && *at != '>');
        if (*at == '&')
            assert_true(strncmp(at, "&lt;", 4) == 0 || strncmp(at, "&gt;", 4) == 0 ||
                        strncmp(at, "&amp;", 5) == 0);
        if (*at != '<') {
            assert_true(depth > 0 || isspace((unsigned char)*at));
            continue;
        }
        bool closes = at[1] == '/';
        const char *name = at + 1 + closes;
        size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz");
        assert_in_range(length, 1, 15);
        at = name + length;
        if (closes) {
            assert_true(depth > 0 && strlen(open[depth - 1]) == length);
            assert_memory_equal(open[--depth], name, length);
        } else {
            at = read_attributes(at);
            if (*at == '/') {
                at++;
            } else {
                assert_true(depth < 16);
                memcpy(open[depth], name, length);
                open[depth++][length] = '\0';
            }
        }
        assert_int_equal(*at, '>');
    }
    assert_int_equal(depth, 0);
}

static void pictures(void **state)
{
    (void)state;
    for (int n = 1; n <= 8; n++)
        for (int lanes = 1; lanes <= 2; lanes++) {
            struct plan_set set;
            plan_set_build(&set, tti_algorithm_find(TUTTI_ALL_REDUCE, "ring"), n, 0, lanes);
            char *svg = draw(&set, "a <ring> & more", TUTTI_OK);
            check_xml(svg);
            int steps = n == 1 ? 1 : 2 * n - 1, messages = n == 1 ? 0 : 2 * n - 2;
            assert_int_equal(count_of(svg, "class=\"rank\""), n);
            assert_int_equal(count_of(svg, "class=\"step\""), n * lanes * steps);
            assert_int_equal(count_of(svg, "class=\"message\""), n * lanes * messages);
            assert_int_equal(count_of(svg, ">a &lt;ring&gt; &amp; more<"), 1);
            char rows[32];
            snprintf(rows, sizeof rows, ", %d logical steps<", steps);
            assert_int_equal(count_of(svg, rows), 1);
            free(svg);
            plan_set_destroy(&set);
        }
}

static void every_collective(void **state)
{
    (void)state;
    for (int collective = 0; collective < TUTTI_COLLECTIVE_COUNT; collective++) {
        struct plan_set set;
        plan_set_build(&set, direct_algorithm((enum tutti_collective)collective), 5, 2, 1);
        char *svg = draw(&set, NULL, TUTTI_OK);
        check_xml(svg);
        assert_int_equal(count_of(svg, "class=\"rank\""), 5);
        free(svg);
        plan_set_destroy(&set);
    }
}

static void no_picture(void **state)
{
    (void)state;
    struct plan_set set;
    plan_set_build(&set, tti_algorithm_find(TUTTI_ALL_REDUCE, "ring"), 3, 0, 1);
    set.plans[1]->lanes[0].count--;
    set.plans[2]->lanes[0].steps[0].to = 1;
    free(draw(&set, NULL, TUTTI_ERR_INTERNAL));
    assert_non_null(strstr(tutti_last_error(), "never comes"));
    set.plans[2]->lanes[0].steps[0].to = 3;
    free(draw(&set, NULL, TUTTI_ERR_INTERNAL));
    assert_non_null(strstr(tutti_last_error(), "rank 2 lane 0 step 0"));
    plan_set_destroy(&set);
    assert_int_equal(tti_plan_draw(set.plans, TTI_DRAW_RANKS + 1, NULL, stdout),
                     TUTTI_ERR_ARGUMENT);
}

/* A full disk is said, not swallowed. */
static void full_disk(void **state)
{
    (void)state;
    struct plan_set set;
    plan_set_build(&set, tti_algorithm_find(TUTTI_ALL_REDUCE, "ring"), 3, 0, 1);
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    assert_int_equal(tti_plan_draw(set.plans, 3, NULL, full), TUTTI_ERR_SYSTEM);
    assert_int_equal(tti_plan_print(set.plans[0], full), TUTTI_ERR_SYSTEM);
    fclose(full);
    plan_set_destroy(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_as_text), cmocka_unit_test(plan_as_text),
        cmocka_unit_test(pictures),      cmocka_unit_test(every_collective),
        cmocka_unit_test(no_picture),    cmocka_unit_test(full_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
