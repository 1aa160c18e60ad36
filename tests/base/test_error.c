/* base/error.c: text, errno, context, and crossing threads. */
#include "base/error.h"
#include "tests/tutti_cmocka.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

static void text_is_kept(void **state)
{
    (void)state;
    assert_int_equal(TTI_FAIL(TUTTI_ERR_ARGUMENT, "count is %d", -3), TUTTI_ERR_ARGUMENT);
    assert_string_equal(tutti_last_error(), "count is -3");
}

static void errno_is_named(void **state)
{
    (void)state;
    errno = ENOENT;
    assert_int_equal(TTI_FAIL_ERRNO("cannot open /x"), TUTTI_ERR_SYSTEM);
    assert_string_equal(tutti_last_error(), "cannot open /x: No such file or directory");
    errno = ENOMEM;
    assert_int_equal(TTI_FAIL_ERRNO("cannot map"), TUTTI_ERR_MEMORY);
}

static void context_goes_in_front(void **state)
{
    (void)state;
    enum tutti_result result = TTI_FAIL(TUTTI_ERR_LINK, "connection refused");
    assert_int_equal(TTI_CONTEXT(result, "while connecting rank %d to %d", 3, 4), TUTTI_ERR_LINK);
    assert_string_equal(tutti_last_error(), "while connecting rank 3 to 4: connection refused");
}

static void long_texts_are_cut(void **state)
{
    (void)state;
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    enum tutti_result result = TTI_FAIL(TUTTI_ERR_LINK, "%s", text);
    assert_int_equal(strlen(tutti_last_error()), TTI_ERROR_TEXT_BYTES - 1);
    (void)TTI_CONTEXT(result, "%s", text);
    assert_int_equal(strlen(tutti_last_error()), TTI_ERROR_TEXT_BYTES - 1);
}

static void *fail_in_thread(void *error)
{
    tti_error_save(error, TTI_FAIL(TUTTI_ERR_PEER, "rank 2 died"));
    return NULL;
}

static void errors_are_per_thread_and_cross(void **state)
{
    (void)state;
    struct tti_error error;
    pthread_t thread;
    (void)TTI_FAIL(TUTTI_ERR_ARGUMENT, "mine");
    assert_int_equal(pthread_create(&thread, NULL, fail_in_thread, &error), 0);
    pthread_join(thread, NULL);
    assert_string_equal(tutti_last_error(), "mine");
    assert_int_equal(tti_error_restore(&error), TUTTI_ERR_PEER);
    assert_string_equal(tutti_last_error(), "rank 2 died");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_kept),
        cmocka_unit_test(errno_is_named),
        cmocka_unit_test(context_goes_in_front),
        cmocka_unit_test(long_texts_are_cut),
        cmocka_unit_test(errors_are_per_thread_and_cross),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
