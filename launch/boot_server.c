/* The bootstrap server (launch/boot_server.h): one thread, one poll loop, nothing that blocks.
 *
 * Strangers are bounded in number, time and bytes: a connection has ten seconds to prove that it
 * has the secret and may send no more than the two frames of the handshake until then; the oldest
 * stranger makes room for the newest. Read next: boot_hall.c, what the frames do. */
#include "launch/boot_server.h"

#include "base/children.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/boot_hall.h"

#include <errno.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* ---- The loop ------------------------------------------------------------------------------- */

static void server_join_timeout(struct tti_boot_server *s)
{
    char text[TTI_BOOT_TEXT_BYTES];
    char who[256];
    int first = 0;
    int count = 0;
    tti_boot_missing_text(s->joined, s->size, who, sizeof who, &first, &count);
    snprintf(text, sizeof text, "%s of %d %s not joined within %.4g s at %s", who, s->size,
             count == 1 ? "has" : "have", tti_boot_seconds(s->join_ms), s->where);
    tti_boot_hall_fail(s, first, TUTTI_ERR_TIMEOUT, text);
}

static void server_round_timeout(struct tti_boot_server *s)
{
    char text[TTI_BOOT_TEXT_BYTES];
    char who[256];
    int first = 0;
    int count = 0;
    tti_boot_missing_text(s->come, s->size, who, sizeof who, &first, &count);
    snprintf(text, sizeof text, "%s of %d %s not come to exchange %zu bytes within %.4g s", who,
             s->size, count == 1 ? "has" : "have", s->round_bytes, tti_boot_seconds(s->round_ms));
    tti_boot_hall_fail(s, first, TUTTI_ERR_TIMEOUT, text);
}

/* What is due by now, and when the next thing will be. */
static uint64_t server_clock(struct tti_boot_server *s)
{
    uint64_t now = tti_now_ns();
    if (!s->started && !s->failed && now >= s->join_by)
        server_join_timeout(s);
    if (s->gathered && !s->failed && now >= s->round_by)
        server_round_timeout(s);
    if (s->reports && now >= s->answer_by)
        tti_boot_hall_verdict(s);
    uint64_t next = atomic_load(&s->leave_by) ? atomic_load(&s->leave_by) : UINT64_MAX;
    if (!s->failed && !s->started && s->join_by < next)
        next = s->join_by;
    if (!s->failed && s->gathered && s->round_by < next)
        next = s->round_by;
    if (s->reports && s->answer_by < next)
        next = s->answer_by;
    if (now < s->stay_by && s->stay_by < next)
        next = s->stay_by;
    return tti_boot_crowd_sweep(&s->crowd, now, next);
}

static bool server_done(const struct tti_boot_server *s)
{
    uint64_t leave_by = atomic_load(&s->leave_by);
    bool empty = s->crowd.count == 0 && tti_deadline_passed(s->stay_by);
    return leave_by && (empty || tti_deadline_passed(leave_by));
}

static void server_read(void *owner, struct tti_boot_conn *conn)
{
    tti_boot_hall_read(owner, conn);
}

/* Wait for something to happen, then let it. */
static enum tutti_result server_turn(struct tti_boot_server *s, uint64_t next)
{
    const int fds[2] = {s->wake_fd, s->listen_fd};
    TTI_TRY(tti_boot_crowd_turn(&s->crowd, fds, 2, next, server_read, s));
    uint64_t wakes = 0;
    if (s->crowd.polls[0].revents && read(s->wake_fd, &wakes, sizeof wakes) < 0)
        TTI_LOG(TTI_LOG_DEBUG, "bootstrap: woken without a reason");
    if (s->crowd.polls[1].revents)
        tti_boot_crowd_accept(&s->crowd, s->listen_fd, 0, (size_t)s->size + TTI_BOOT_STRANGERS);
    return TUTTI_OK;
}

static void *server_main(void *argument)
{
    struct tti_boot_server *s = argument;
    enum tutti_result result = TUTTI_OK;
    while (result == TUTTI_OK) {
        uint64_t next = server_clock(s);
        if (server_done(s))
            break;
        result = server_turn(s, next);
    }
    if (result != TUTTI_OK)
        TTI_LOG(TTI_LOG_ERROR, "bootstrap: %s", tti_error_text());
    tti_boot_hall_close_door(s);
    tti_boot_crowd_end(&s->crowd);
    return NULL;
}

/* ---- Owner's side --------------------------------------------------------------------------- */

static void server_free(struct tti_boot_server *s)
{
    tti_boot_hall_close_door(s);
    if (s->wake_fd >= 0)
        close(s->wake_fd);
    tti_boot_blob_release(s->gathered);
    tti_boot_hall_forget(s);
    free(s->joined);
    free(s->come);
    free(s->left);
    pthread_mutex_destroy(&s->held.lock);
    sodium_memzero(s->secret, sizeof s->secret);
    free(s);
}

static enum tutti_result server_listen(struct tti_boot_server *s, const struct tti_meeting *meeting)
{
    uint16_t port = 0;
    if (s->listen_fd >= 0) {
        TTI_TRY(tti_socket_listening(s->listen_fd, &port));
        tti_socket_prepare(s->listen_fd);
    } else {
        TTI_TRY(
            tti_socket_listen(meeting->host, meeting->port, meeting->ports, &s->listen_fd, &port));
    }
    (void)tti_keep_from_children(s->listen_fd);
    s->port = port;
    tti_socket_meeting_text(meeting->host, port, 1, s->where, sizeof s->where);
    return tti_socket_own(s->listen_fd, &s->own, &s->own_bytes);
}

/* The thread takes no signals: they belong to the program. */
static enum tutti_result server_thread(struct tti_boot_server *s)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&s->thread, NULL, server_main, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return TTI_FAIL(TUTTI_ERR_SYSTEM, "cannot start the bootstrap thread: %s",
                        strerror(failed));
    return TUTTI_OK;
}

enum tutti_result tti_boot_server_create(const struct tti_meeting *meeting, int size,
                                         uint64_t deadline, struct tti_boot_server **server)
{
    struct tti_boot_server *s = tti_calloc(1, sizeof *s);
    if (!s) {
        if (meeting->listen_fd >= 0)
            close(meeting->listen_fd);
        return TUTTI_ERR_MEMORY;
    }
    pthread_mutex_init(&s->held.lock, NULL);
    s->listen_fd = meeting->listen_fd;
    s->size = size;
    s->join_by = deadline;
    s->join_ms = (uint32_t)tti_deadline_ms(deadline, INT32_MAX);
    memcpy(s->secret, meeting->secret, sizeof s->secret);
    s->joined = tti_calloc((size_t)size, sizeof *s->joined);
    s->come = tti_calloc((size_t)size, sizeof *s->come);
    s->left = tti_calloc((size_t)size, sizeof *s->left);
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum tutti_result result = s->joined && s->come && s->left ? TUTTI_OK : TUTTI_ERR_MEMORY;
    if (result == TUTTI_OK && s->wake_fd < 0)
        result = TTI_FAIL_ERRNO("eventfd for the bootstrap thread");
    if (result == TUTTI_OK)
        result = server_listen(s, meeting);
    if (result == TUTTI_OK)
        result = server_thread(s);
    if (result != TUTTI_OK) {
        server_free(s);
        return result;
    }
    *server = s;
    return TUTTI_OK;
}

void tti_boot_server_address(const struct tti_boot_server *server, struct sockaddr_storage *address,
                             socklen_t *bytes)
{
    *address = server->own;
    *bytes = server->own_bytes;
}

void tti_boot_server_watch(struct tti_boot_server *server, const struct tti_boot_watch *watch)
{
    atomic_store(&server->watch, watch);
}

const char *tti_boot_server_where(const struct tti_boot_server *server)
{
    return server->where;
}

uint16_t tti_boot_server_port(const struct tti_boot_server *server)
{
    return server->port;
}

void tti_boot_server_memory(struct tti_boot_server *s, struct tutti_memory *memory)
{
    size_t n = (size_t)s->size;
    size_t a_rank = sizeof(struct tti_boot_conn) + sizeof(void *) + sizeof *s->crowd.polls;
    memory->host += tti_heap_bytes(s) + tti_heap_bytes(s->joined) + tti_heap_bytes(s->come) +
                    tti_heap_bytes(s->left);
    memory->host += n * a_rank + tti_boot_held_bytes(&s->held);
    memory->descriptors += 1 + s->size;
}

void tti_boot_server_destroy(struct tti_boot_server *server, double linger_s)
{
    if (!server)
        return;
    uint64_t one = 1;
    atomic_store(&server->leave_by, tti_deadline_in(linger_s));
    if (write(server->wake_fd, &one, sizeof one) < 0)
        TTI_LOG(TTI_LOG_WARN, "bootstrap: cannot wake the thread: %s", strerror(errno));
    pthread_join(server->thread, NULL);
    server_free(server);
}
