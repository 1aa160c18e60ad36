/* Time: nanoseconds of the monotonic clock, and deadlines as points on it. No deadline goes by the
 * time of day, which an administrator or NTP may set at any moment. */
#ifndef TTI_BASE_CLOCK_H
#define TTI_BASE_CLOCK_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds since an arbitrary start; never goes back. */
uint64_t tti_now_ns(void);
/* The point `seconds` from now; negative counts as 0, huge as "never". */
uint64_t tti_deadline_in(double seconds);
/* When the deadline was made, `seconds` before it; now for "never". */
uint64_t tti_deadline_begin(uint64_t deadline, double seconds);
/* Milliseconds until `deadline`, rounded up, at least 0, at most `most`: a poll(2) timeout. */
int tti_deadline_ms(uint64_t deadline, int most);
/* Make a condition variable whose timed waits go by this clock, and wait on it until `deadline`:
 * 0, or ETIMEDOUT. */
void tti_cond_init(pthread_cond_t *cond);
int tti_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline);
/* Sleep between looks at what may take long: 20 us the first times, later longer, up to half a
 * millisecond. `nth`: of this wait, from 0. */
void tti_nap(int nth);
uint64_t tti_nap_ns(int nth); /* how long that is */
static inline bool tti_deadline_passed(uint64_t deadline)
{
    return tti_now_ns() >= deadline;
}

#endif
