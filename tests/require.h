/* For programs on tutti.h without a test framework: a condition that is not so ends the program
 * with its place and the library's last words. */
#ifndef TTI_TESTS_REQUIRE_H
#define TTI_TESTS_REQUIRE_H

#include "tutti/tutti.h"

#include <stdio.h>
#include <stdlib.h>

#define REQUIRE(condition)                                                     \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, \
                    tutti_last_error());                                       \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

#endif
