/* cmocka with the headers that it wants before it. */
#ifndef TTI_TESTS_TUTTI_CMOCKA_H
#define TTI_TESTS_TUTTI_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* From version 2 on this is its name for values without a sign, which all are that are so asked. */
#ifdef assert_uint_in_range
#undef assert_in_range
#define assert_in_range assert_uint_in_range
#endif

#endif
