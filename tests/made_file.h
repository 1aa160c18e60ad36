/* Files for a test, in a folder of its own: a made-up sysfs, say. */
#ifndef TTI_TESTS_MADE_FILE_H
#define TTI_TESTS_MADE_FILE_H

#include "tests/tutti_cmocka.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Writes folder/name, with the folders on the way. */
static inline void made_file(const char *folder, const char *name, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
        *at = '\0';
        assert_true(mkdir(path, 0700) == 0 || errno == EEXIST);
        *at = '/';
    }
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Set-up and teardown of a test whose state is the name of such a folder: a test that fails leaves
 * none behind either. */
static inline int made_folder(void **state)
{
    static char folder[40];
    strcpy(folder, "/tmp/tutti-test-XXXXXX");
    *state = folder;
    return mkdtemp(folder) ? 0 : -1;
}

static inline int made_folder_removed(void **state)
{
    char command[60];
    snprintf(command, sizeof command, "rm -r %s", (const char *)*state);
    return system(command) == 0 ? 0 : -1;
}

#endif
