/* Time: nanoseconds of the monotonic clock, and deadlines as points on it. */
#ifndef TTI_BASE_CLOCK_H
#define TTI_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds since an arbitrary start; never goes back. */
uint64_t tti_now_ns(void);
/* The point `seconds` from now; negative counts as 0, huge as "never". */
uint64_t tti_deadline_in(double seconds);
/* Milliseconds until `deadline`, rounded up, at least 0, at most `most`: a poll(2) timeout. */
int tti_deadline_ms(uint64_t deadline, int most);
static inline bool tti_deadline_passed(uint64_t deadline)
{
    return tti_now_ns() >= deadline;
}

#endif
