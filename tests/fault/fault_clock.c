/* Preloaded (LD_PRELOAD) into a rank by faults.py: the time of day jumps by the seconds that stand
 * in the file FAULT_CLOCK, from the moment there is one. The monotonic clock goes on, as in
 * reality. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

typedef int clock_function(clockid_t, struct timespec *);

static long clock_jump(void)
{
    const char *path = getenv("FAULT_CLOCK");
    long seconds = 0;
    FILE *file = path ? fopen(path, "re") : NULL;
    if (file && fscanf(file, "%ld", &seconds) != 1)
        seconds = 0;
    if (file)
        fclose(file);
    return seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    static clock_function *real;
    if (!real) {
        void *found = dlsym(RTLD_NEXT, "clock_gettime");
        memcpy(&real, &found, sizeof real);
    }
    int result = real(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += clock_jump();
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec exact;
    (void)zone;
    (void)clock_gettime(CLOCK_REALTIME, &exact);
    *now = (struct timeval){exact.tv_sec, exact.tv_nsec / 1000};
    return 0;
}

time_t time(time_t *into)
{
    struct timespec exact;
    (void)clock_gettime(CLOCK_REALTIME, &exact);
    if (into)
        *into = exact.tv_sec;
    return exact.tv_sec;
}
