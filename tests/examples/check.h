/* For the C tests of this folder, whose functions return 1 when something is wrong. */
#ifndef TESTS_EXAMPLES_CHECK_H
#define TESTS_EXAMPLES_CHECK_H

#include <stdio.h>

#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition); \
            return 1;                                                                \
        }                                                                            \
    } while (0)

#endif
