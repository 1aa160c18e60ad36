/* cmocka with the headers that it wants before it. */
#ifndef TTI_TESTS_TUTTI_CMOCKA_H
#define TTI_TESTS_TUTTI_CMOCKA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
