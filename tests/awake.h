/* A clock for what a test asserts of promptness. It stands still while the process does: a machine
 * that is paused, or busy with others for so long that nothing here runs, is not what is tested.
 * On one that runs it is the monotonic clock, so bounds can be tight. */
#ifndef TTI_TESTS_AWAKE_H
#define TTI_TESTS_AWAKE_H

#include <stdint.h>

/* Nanoseconds, for differences. The first call starts a thread, which a forked child has not. */
uint64_t test_awake_ns(void);

#endif
