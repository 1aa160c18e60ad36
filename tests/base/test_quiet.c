/* Calls that fail without the signal that comes with it, which would end this program. */
#include "base/quiet.h"

#include "tests/tutti_cmocka.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static bool is_pending(int number)
{
    sigset_t pending;
    assert_int_equal(sigpending(&pending), 0);
    return sigismember(&pending, number);
}

static void write_to_nobody(void)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(tti_quiet_write(ends[1], "x", 1), 1);
    close(ends[0]);
    errno = 0;
    assert_int_equal(tti_quiet_write(ends[1], "x", 1), -1);
    assert_int_equal(errno, EPIPE);
    close(ends[1]);
}

static void nobody_reads(void **state)
{
    (void)state;
    write_to_nobody();
    assert_false(is_pending(SIGPIPE));
}

/* Somebody else's signal is not swallowed. */
static void what_was_pending_stays(void **state)
{
    (void)state;
    sigset_t one, before;
    sigemptyset(&one);
    sigaddset(&one, SIGPIPE);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &one, &before), 0);
    assert_int_equal(raise(SIGPIPE), 0);
    write_to_nobody();
    assert_true(is_pending(SIGPIPE));
    int taken = 0;
    assert_int_equal(sigwait(&one, &taken), 0);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
}

static void beyond_the_limit_of_files(void **state)
{
    (void)state;
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const int fd = memfd_create("test", MFD_CLOEXEC);
    assert_true(fd >= 0);
    small = before;
    small.rlim_cur = 4096;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const int within = tti_quiet_ftruncate(fd, 4096), beyond = tti_quiet_ftruncate(fd, 8192);
    const int error = errno;
    const ssize_t wrote = lseek(fd, 4096, SEEK_SET) == 4096 ? tti_quiet_write(fd, "x", 1) : 0;
    const int write_error = errno;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(within, 0);
    assert_int_equal(beyond, -1);
    assert_int_equal(error, EFBIG);
    assert_int_equal(wrote, -1);
    assert_int_equal(write_error, EFBIG);
    assert_false(is_pending(SIGXFSZ));
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_reads),
        cmocka_unit_test(what_was_pending_stays),
        cmocka_unit_test(beyond_the_limit_of_files),
    };
    (void)signal(SIGPIPE, SIG_DFL); /* whatever we were started with */
    (void)signal(SIGXFSZ, SIG_DFL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
