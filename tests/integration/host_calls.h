/* Any collective on host memory, by its number, and data for it: for tests that go through all. */
#ifndef TTI_TESTS_HOST_CALLS_H
#define TTI_TESTS_HOST_CALLS_H

#include "coll/operation.h"

/* The blocking call that the operation describes. */
enum tutti_result test_call(const struct tti_operation *o, tutti_comm *comm);

/* Finite values of the type, of mixed magnitudes; sums show the order of summation. */
void test_fill(void *in, enum tutti_type type, size_t count, uint32_t seed);

#endif
