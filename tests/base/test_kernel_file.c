/* What the kernel says in small files, and what it says when it does not (base/kernel_file.h). */
#include "base/kernel_file.h"

#include "tests/made_file.h"
#include "tests/tutti_cmocka.h"

static void lines_and_numbers(void **state)
{
    static const struct {
        const char *text, *line;
        int number;
    } files[] = {
        {"up\n", "up", -1},
        {"400 Gb/sec (4X NDR)\n", "400 Gb/sec", 400},
        {"0-1,4\n", "0-1,4", 0},
        {"-1\n", "-1", -1},
        {"\n5\n", "", -1},
        {"", "", -1},
        {"7\n8\n", "7", 7},
        {"99999999999\n", "9999999999", -1},
        {"no number 5", "no number ", -1},
    };
    const char *folder = *state;
    char path[60], line[11];
    snprintf(path, sizeof path, "%s/file", folder);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        made_file(folder, "file", files[i].text);
        assert_int_equal(tti_kernel_line(path, line, sizeof line), files[i].line[0] != '\0');
        assert_string_equal(line, files[i].line);
        assert_int_equal(tti_kernel_number(path), files[i].number);
    }
    assert_false(tti_kernel_line(folder, line, sizeof line)); /* opens, and cannot be read */
    assert_string_equal(line, "");
    snprintf(path, sizeof path, "%s/none", folder);
    strcpy(line, "before");
    assert_false(tti_kernel_line(path, line, sizeof line));
    assert_string_equal(line, "");
    assert_int_equal(tti_kernel_number(path), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lines_and_numbers, made_folder, made_folder_removed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
