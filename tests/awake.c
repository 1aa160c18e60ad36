/* A thread that sleeps for a moment again and again: what it oversleeps, the process stood still
 * (awake.h). */
#include "tests/awake.h"

#include "base/clock.h"

#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

enum { AWAKE_MS = 5 };
/* Oversleeping less is the machine's ordinary lateness, and counts as time. */
static const uint64_t awake_late_ns = 50000000;

static pthread_mutex_t awake_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_t awake_thread;
static bool awake_runs;
static uint64_t awake_last;   /* when the thread last looked */
static uint64_t awake_missed; /* what the process stood still before that */

/* The clock; under the lock. Whoever runs first after a standstill notes it. */
static uint64_t awake_look(void)
{
    const uint64_t now = tti_now_ns(), since = now - awake_last;
    if (since > awake_late_ns)
        awake_missed += since;
    awake_last = now;
    return now - awake_missed;
}

static void *awake_main(void *argument)
{
    for (;;) {
        (void)poll(NULL, 0, AWAKE_MS);
        pthread_mutex_lock(&awake_lock);
        (void)awake_look();
        pthread_mutex_unlock(&awake_lock);
    }
    return argument;
}

uint64_t test_awake_ns(void)
{
    pthread_mutex_lock(&awake_lock);
    if (!awake_runs) {
        awake_last = tti_now_ns();
        awake_runs = pthread_create(&awake_thread, NULL, awake_main, NULL) == 0;
    }
    const uint64_t now = awake_look();
    pthread_mutex_unlock(&awake_lock);
    return now;
}
