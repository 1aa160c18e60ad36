/* The soak of tutti-explore (soak.c). */
#ifndef TTI_TESTS_SOAK_H
#define TTI_TESTS_SOAK_H

#include "tests/fault/schedule.h"

/* For about so many seconds; 0 when nothing was wrong and nothing grew. */
int tti_soak(uint64_t seed, double seconds);

#endif
