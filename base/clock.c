/* Monotonic time and deadlines (base/clock.h). */
#include "base/clock.h"

#include <time.h>

uint64_t tti_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t tti_deadline_in(double seconds)
{
    if (!(seconds > 0))
        return tti_now_ns();
    if (seconds > 1e9)
        return UINT64_MAX;
    return tti_now_ns() + (uint64_t)(seconds * 1e9);
}

void tti_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

int tti_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline)
{
    struct timespec by = {.tv_sec = (time_t)(deadline / 1000000000u),
                          .tv_nsec = (long)(deadline % 1000000000u)};
    return pthread_cond_timedwait(cond, lock, &by);
}

uint64_t tti_deadline_begin(uint64_t deadline, double seconds)
{
    const double before = seconds * 1e9;
    return deadline == UINT64_MAX || before >= (double)deadline ? tti_now_ns()
                                                                : deadline - (uint64_t)before;
}

int tti_deadline_ms(uint64_t deadline, int most)
{
    uint64_t now = tti_now_ns();
    if (deadline <= now)
        return 0;
    uint64_t ms = (deadline - now + 999999u) / 1000000u;
    return ms > (uint64_t)most ? most : (int)ms;
}

uint64_t tti_nap_ns(int nth)
{
    enum { NAP_NS = 20000, SAME = 64, LONGEST = 25 };
    const int longer = nth / SAME + 1;
    return NAP_NS * (uint64_t)(longer < LONGEST ? longer : LONGEST);
}

void tti_nap(int nth)
{
    const struct timespec nap = {.tv_nsec = (long)tti_nap_ns(nth)};
    nanosleep(&nap, NULL);
}
