#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void tti_futex_wait(const void *word, uint32_t seen, uint64_t ns)
{
    const struct timespec most = {.tv_sec = (time_t)(ns / 1000000000u),
                                  .tv_nsec = (long)(ns % 1000000000u)};
    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &most, NULL, 0);
}

void tti_futex_wake(const void *word, int most)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, most, NULL, NULL, 0);
}
