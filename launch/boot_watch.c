/* The ranks' end of "what are you doing?" (launch/boot.h): a thread that sleeps on the bootstrap
 * connection for the life of the communicator. It answers for a rank whose own threads compute,
 * sleep or are stuck; a rank that does not answer does not run. */
#include "launch/boot_state.h"

#include "base/clock.h"
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const double SEND_S = 1;

void tti_boot_answer(struct tti_boot *boot)
{
    unsigned char message[TTI_BOOT_REPORT_BYTES];
    struct tti_boot_frame frame = {.type = TTI_BOOT_REPORT, .rank = boot->rank};
    pthread_mutex_lock(&boot->lock);
    const bool asked = boot->asked && atomic_load(&boot->watching);
    if (asked)
        boot->asked = false;
    pthread_mutex_unlock(&boot->lock);
    if (!asked)
        return;
    struct tti_error before; /* of a thread that came by */
    tti_error_save(&before, TUTTI_OK);
    frame.bytes = boot->watch.report(boot->watch.context, message, sizeof message);
    if (tti_boot_send(boot, &frame, message, tti_deadline_in(SEND_S)) != TUTTI_OK)
        TTI_LOG(TTI_LOG_WARN, "bootstrap: no report: %s", tti_error_text());
    (void)tti_error_restore(&before);
}

void tti_boot_ask(struct tti_boot *boot, enum tutti_result code, const char *text)
{
    struct tti_boot_frame frame = {.type = TTI_BOOT_ASK,
                                   .rank = boot->rank,
                                   .code = code,
                                   .bytes = strnlen(text, TTI_BOOT_TEXT_BYTES)};
    struct tti_error before;
    if (boot->fd < 0)
        return;
    tti_error_save(&before, code);
    if (tti_boot_send(boot, &frame, text, tti_deadline_in(SEND_S)) != TUTTI_OK)
        TTI_LOG(TTI_LOG_WARN, "bootstrap: cannot ask: %s", tti_error_text());
    (void)tti_error_restore(&before);
}

uint64_t tti_boot_asked(struct tti_boot *boot)
{
    pthread_mutex_lock(&boot->lock);
    const uint64_t asked = boot->asked_ns;
    pthread_mutex_unlock(&boot->lock);
    return asked;
}

static bool watch_over(struct tti_boot *boot)
{
    pthread_mutex_lock(&boot->lock);
    const bool over = boot->failed || boot->ended;
    pthread_mutex_unlock(&boot->lock);
    return over;
}

static void *watch_main(void *argument)
{
    struct tti_boot *boot = argument;
    tti_log_rank(boot->rank);
    for (;;) {
        struct pollfd fds[2] = {{.fd = boot->stop_fd, .events = POLLIN},
                                {.fd = boot->fd, .events = POLLIN}};
        if (poll(fds, 2, -1) < 0 && errno != EINTR)
            break;
        if (fds[0].revents)
            break;
        tti_boot_turn(boot);
        tti_boot_answer(boot);
        if (watch_over(boot)) {
            boot->watch.failed(boot->watch.context);
            break;
        }
    }
    return NULL;
}

enum tutti_result tti_boot_watch_start(struct tti_boot *boot, const struct tti_boot_watch *watch)
{
    sigset_t all, before;
    if (boot->fd < 0)
        return TUTTI_OK;
    boot->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (boot->stop_fd < 0)
        return TTI_FAIL_ERRNO("eventfd for the thread that answers for this rank");
    boot->watch = *watch;
    atomic_store(&boot->watching, true);
    if (boot->server)
        tti_boot_server_watch(boot->server, &boot->watch);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&boot->thread, NULL, watch_main, boot);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return TTI_FAIL(TUTTI_ERR_SYSTEM,
                        "cannot start the thread that answers for this rank: %s (see ulimit -u)",
                        strerror(failed));
    boot->thread_runs = true;
    return TUTTI_OK;
}

void tti_boot_watch_stop(struct tti_boot *boot)
{
    const uint64_t one = 1;
    if (boot->thread_runs) {
        if (write(boot->stop_fd, &one, sizeof one) < 0)
            TTI_LOG(TTI_LOG_WARN, "bootstrap: cannot wake a thread: %s", strerror(errno));
        pthread_join(boot->thread, NULL);
        boot->thread_runs = false;
    }
    if (boot->stop_fd >= 0)
        close(boot->stop_fd);
    boot->stop_fd = -1;
}
