/* For programs that know nothing but nccl.h: a result, or a condition, that is not as it should be
 * ends the program with its place. */
#ifndef TTI_TESTS_NCCL_CHECK_H
#define TTI_TESTS_NCCL_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* What a program of several cases can be asked for by name. */
struct test_named {
    const char *name;
    void (*run)(void);
};

/* The rest of main: run the case that is named, or list them all. */
static inline int named_run(int argc, char **argv, const struct test_named *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (argc > 1 && strcmp(argv[1], cases[i].name) == 0) {
            cases[i].run();
            return 0;
        }
        if (argc == 1)
            puts(cases[i].name);
    }
    return argc > 1;
}

#endif
