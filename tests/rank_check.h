/* For tests whose functions run on a rank and return 1 when something is wrong. */
#ifndef TTI_TESTS_RANK_CHECK_H
#define TTI_TESTS_RANK_CHECK_H

#include "tutti/tutti.h"

#include <stdio.h>

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            fprintf(stderr, "%s:%d: %s is false (last error: %s)\n", __FILE__, __LINE__, \
                    #condition, tutti_last_error());                                     \
            return 1;                                                                    \
        }                                                                                \
    } while (0)
#define CHECK_OK(call) CHECK((call) == TUTTI_OK)

#endif
