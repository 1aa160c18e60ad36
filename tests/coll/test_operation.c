/* coll/operation.c: tags carry what ranks must agree on, and say it in words. */
#include "coll/comm.h"
#include "coll/operation.h"
#include "tests/tutti_cmocka.h"

#include <stdio.h>
#include <string.h>

static struct tti_operation sample(void)
{
    return (struct tti_operation){.collective = TUTTI_REDUCE,
                                  .count = 123456789,
                                  .type = TUTTI_BFLOAT16,
                                  .op = TUTTI_MAX,
                                  .root = 777};
}

/* Any one difference that matters makes another tag. */
static void tags_differ(void **state)
{
    (void)state;
    struct tti_operation a = sample(), b;
    uint64_t tag = tti_tag(&a, 2);
    assert_int_equal(tti_tag(&a, 2), tag);
    assert_int_not_equal(tti_tag(&a, 3), tag);
    b = a, b.collective = TUTTI_ALL_REDUCE;
    assert_int_not_equal(tti_tag(&b, 2), tag);
    b = a, b.count++;
    assert_int_not_equal(tti_tag(&b, 2), tag);
    b = a, b.type = TUTTI_FLOAT16;
    assert_int_not_equal(tti_tag(&b, 2), tag);
    b = a, b.op = TUTTI_MIN;
    assert_int_not_equal(tti_tag(&b, 2), tag);
    b = a, b.root = 776;
    assert_int_not_equal(tti_tag(&b, 2), tag);
    b = a, b.op = (enum tutti_op)TUTTI_OP_USER;
    assert_int_not_equal(tti_tag(&b, 2), tag);
}

static void tags_read_back(void **state)
{
    (void)state;
    char text[200];
    struct tti_operation o = sample();
    tti_tag_text(tti_tag(&o, 0), 0, text, sizeof text);
    assert_non_null(strstr(text, "reduce (count 123456789, bfloat16, max, root 777"));
    o.op = (enum tutti_op)(TUTTI_OP_USER + 3);
    tti_tag_text(tti_tag(&o, 0), 0, text, sizeof text);
    assert_non_null(strstr(text, "premulsum"));
    o = (struct tti_operation){
        .collective = TUTTI_SEND_RECV, .count = 5, .type = TUTTI_INT8, .root = 3};
    uint64_t sent = tti_tag(&o, 0);
    o.root = 9; /* the peers of a send and its receive differ */
    o.receives = true;
    assert_int_equal(tti_tag(&o, 0), sent);
    assert_string_equal(tti_tag_text(sent, 0, text, sizeof text), "send (count 5, int8)");
    /* Garbage has a text too. */
    for (uint64_t tag = 0; tag < 64; tag++)
        assert_non_null(tti_tag_text(tag << 58, 9, text, sizeof text));
    assert_non_null(tti_tag_text(UINT64_MAX, 9, text, sizeof text));
}

/* The number of an operation is told apart from its neighbours', and read back whole. */
static void tags_have_numbers(void **state)
{
    (void)state;
    char text[200];
    struct tti_operation o = sample();
    const uint64_t tag = tti_tag(&o, 0);
    assert_int_not_equal(tti_tag_numbered(tag, 41), tti_tag_numbered(tag, 42));
    static const uint64_t pairs[][2] = {{1, 1}, {3, 20}, {41, 44}, {1000, 990}, {990, 1000}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char expected[32];
        snprintf(expected, sizeof expected, "reduce #%d (count 123456789", (int)pairs[i][0]);
        tti_tag_text(tti_tag_numbered(tag, pairs[i][0]), pairs[i][1], text, sizeof text);
        assert_non_null(strstr(text, expected));
    }
}

static void labels(void **state)
{
    (void)state;
    char text[TTI_LABEL_BYTES];
    struct tti_operation o = {
        .collective = TUTTI_ALL_REDUCE, .count = 10, .type = TUTTI_FLOAT32, .op = TUTTI_SUM};
    struct tti_label label = {&o, 41, 1};
    assert_string_equal(tti_label_text(&label, text, sizeof text),
                        "all_reduce #41 (count 10, float32, sum)");
}

/* A wrong argument is told with what the caller called. */
static void refusals_name_the_call(void **state)
{
    (void)state;
    static struct tutti_comm comm;
    const struct {
        enum tti_alone alone;
        bool receives;
        const char *peer, *type;
    } calls[] = {{TTI_NOT_ALONE, false, "send: peer is 9", "send: 99 is no element type"},
                 {TTI_NOT_ALONE, true, "recv: peer is 9", "recv: 99 is no element type"},
                 {TTI_PUT, false, "put: peer is 9", "put: 99 is no element type"},
                 {TTI_SIGNAL, false, "signal: peer is 9", "signal: 99 is no element type"},
                 {TTI_WAIT_SIGNAL, false, "wait_signal: peer is 9", "wait_signal: 99 is no"}};
    comm.size = 4;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        struct tti_operation o = {.collective = TUTTI_SEND_RECV,
                                  .alone = calls[i].alone,
                                  .receives = calls[i].receives,
                                  .type = TUTTI_INT8,
                                  .root = 9};
        assert_int_equal(tti_operation_check(&o, &comm), TUTTI_ERR_ARGUMENT);
        assert_non_null(strstr(tutti_last_error(), calls[i].peer));
        o.type = (enum tutti_type)99;
        assert_int_equal(tti_operation_check(&o, &comm), TUTTI_ERR_ARGUMENT);
        assert_non_null(strstr(tutti_last_error(), calls[i].type));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_differ),
        cmocka_unit_test(tags_read_back),
        cmocka_unit_test(tags_have_numbers),
        cmocka_unit_test(labels),
        cmocka_unit_test(refusals_name_the_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
