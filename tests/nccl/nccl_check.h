/* For programs that know nothing but nccl.h: a result, or a condition, that is not as it should be
 * ends the program with its place. */
#ifndef TTI_TESTS_NCCL_CHECK_H
#define TTI_TESTS_NCCL_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#define OK(expression)                                                              \
    do {                                                                            \
        ncclResult_t ok_result_ = (expression);                                     \
        if (ok_result_ != ncclSuccess) {                                            \
            fprintf(stderr, "%s:%d: %s: %s: %s\n", __FILE__, __LINE__, #expression, \
                    ncclGetErrorString(ok_result_), ncclGetLastError(NULL));        \
            exit(1);                                                                \
        }                                                                           \
    } while (0)
#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

#endif
