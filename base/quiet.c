/* Holding back SIGPIPE and SIGXFSZ (base/quiet.h). Both are sent to the thread that made the call,
 * so they are blocked for it, and taken out of its queue behind the call if they were not there
 * before. */
#include "base/quiet.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

struct quiet {
    sigset_t before, held; /* held: those of the two that were not pending */
};

static void quiet_begin(struct quiet *quiet)
{
    static const int told[] = {SIGPIPE, SIGXFSZ};
    sigset_t both, pending;
    sigemptyset(&both);
    sigemptyset(&quiet->held);
    sigemptyset(&pending);
    (void)sigpending(&pending);
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        sigaddset(&both, told[i]);
        if (!sigismember(&pending, told[i]))
            sigaddset(&quiet->held, told[i]);
    }
    (void)pthread_sigmask(SIG_BLOCK, &both, &quiet->before);
}

static void quiet_end(const struct quiet *quiet, bool failed)
{
    const struct timespec at_once = {0, 0};
    const int saved = errno;
    if (failed && (saved == EPIPE || saved == EFBIG))
        while (sigtimedwait(&quiet->held, NULL, &at_once) < 0 && errno == EINTR)
            ;
    (void)pthread_sigmask(SIG_SETMASK, &quiet->before, NULL);
    errno = saved;
}

ssize_t tti_quiet_write(int fd, const void *data, size_t bytes)
{
    struct quiet quiet;
    quiet_begin(&quiet);
    const ssize_t wrote = write(fd, data, bytes);
    quiet_end(&quiet, wrote < 0);
    return wrote;
}

int tti_quiet_ftruncate(int fd, off_t bytes)
{
    struct quiet quiet;
    quiet_begin(&quiet);
    const int result = ftruncate(fd, bytes);
    quiet_end(&quiet, result != 0);
    return result;
}
