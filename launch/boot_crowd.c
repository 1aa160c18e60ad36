/* The connections of a thread that listens (launch/boot_crowd.h). */
#include "launch/boot_crowd.h"

#include "base/children.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CROWD_FULL_MS = 20 };

/* Room for one more: the oldest stranger goes when there are too many. */
static void crowd_evict(struct tti_boot_crowd *crowd, size_t most)
{
    struct tti_boot_conn *oldest = NULL;
    size_t strangers = 0;
    for (size_t i = 0; i < crowd->count; i++) {
        struct tti_boot_conn *conn = crowd->conns[i];
        if (conn->fd < 0 || conn->state >= TTI_BOOT_CONN_JOINED)
            continue;
        strangers++;
        if (!oldest || conn->deadline < oldest->deadline)
            oldest = conn;
    }
    if (oldest && strangers >= most)
        tti_boot_conn_drop(oldest, "too many connections that do not introduce themselves");
}

static void crowd_add(struct tti_boot_crowd *crowd, int fd, uint64_t door)
{
    void *conns = crowd->conns;
    struct tti_boot_conn *conn = NULL;
    if (tti_grow(&conns, &crowd->capacity, crowd->count + 1, sizeof(void *)) == TUTTI_OK) {
        crowd->conns = conns;
        conn = tti_boot_conn_create(fd, tti_deadline_in(TTI_BOOT_HANDSHAKE_S));
    }
    if (!conn) {
        TTI_LOG(TTI_LOG_WARN, "bootstrap: %s", tti_error_text());
        close(fd);
        return;
    }
    conn->door = door;
    crowd->conns[crowd->count++] = conn;
}

void tti_boot_crowd_accept(struct tti_boot_crowd *crowd, int listen_fd, uint64_t door, size_t most)
{
    for (int i = 0; i < TTI_BOOT_STRANGERS && listen_fd >= 0; i++) {
        int fd =
            tti_keep_from_children(accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd < 0 && errno == EINTR)
            continue;
        if (fd < 0) {
            /* EINVAL: it does not listen any more. */
            if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ECONNABORTED &&
                errno != EINVAL) {
                /* No descriptors, most likely: the caller stays in the queue for a while. */
                TTI_LOG(TTI_LOG_WARN, "bootstrap: accept: %s", strerror(errno));
                (void)poll(NULL, 0, CROWD_FULL_MS);
            }
            return;
        }
        crowd_evict(crowd, most);
        crowd_add(crowd, fd, door);
    }
}

uint64_t tti_boot_crowd_sweep(struct tti_boot_crowd *crowd, uint64_t now, uint64_t next)
{
    size_t kept = 0;
    for (size_t i = 0; i < crowd->count; i++) {
        struct tti_boot_conn *conn = crowd->conns[i];
        bool limited = conn->state != TTI_BOOT_CONN_JOINED;
        if (conn->fd >= 0 && limited && now >= conn->deadline)
            tti_boot_conn_drop(conn, "it has not joined in time");
        if (conn->fd >= 0 && conn->state == TTI_BOOT_CONN_REFUSED && !conn->queue_count)
            tti_boot_conn_drop(conn, "refused");
        if (conn->fd >= 0 && conn->state == TTI_BOOT_CONN_SERVED && !conn->queue_count)
            tti_boot_conn_drop(conn, NULL);
        if (conn->fd < 0) {
            tti_boot_conn_destroy(conn);
            continue;
        }
        if (limited && conn->deadline < next)
            next = conn->deadline;
        crowd->conns[kept++] = conn;
    }
    crowd->count = kept;
    return next;
}

enum tutti_result tti_boot_crowd_turn(struct tti_boot_crowd *crowd, const int *fds, size_t count,
                                      uint64_t next, tti_boot_crowd_read *read, void *owner)
{
    const size_t conns = crowd->count;
    void *polls = crowd->polls;
    TTI_TRY(tti_grow(&polls, &crowd->poll_capacity, conns + count, sizeof *crowd->polls));
    crowd->polls = polls;
    for (size_t i = 0; i < count; i++)
        crowd->polls[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    for (size_t i = 0; i < conns; i++) {
        const struct tti_boot_conn *conn = crowd->conns[i];
        crowd->polls[count + i] = (struct pollfd){
            .fd = conn->fd, .events = (short)(POLLIN | (conn->queue_count ? POLLOUT : 0))};
    }
    int ready = poll(crowd->polls, (nfds_t)(conns + count), tti_deadline_ms(next, 60000));
    if (ready < 0 && errno != EINTR)
        return TTI_FAIL_ERRNO("poll over %zu bootstrap connections", conns);
    for (size_t i = 0; i < count && ready <= 0; i++)
        crowd->polls[i].revents = 0;
    for (size_t i = 0; i < conns && ready > 0; i++) {
        struct tti_boot_conn *conn = crowd->conns[i];
        short events = crowd->polls[count + i].revents;
        if (conn->fd >= 0 && (events & POLLOUT) && tti_boot_conn_flush(conn) != TUTTI_OK)
            tti_boot_conn_hush(conn); /* the next turn reads on */
        if (conn->fd >= 0 && (events & (POLLIN | POLLHUP | POLLERR)))
            read(owner, conn);
    }
    return TUTTI_OK;
}

void tti_boot_crowd_end(struct tti_boot_crowd *crowd)
{
    for (size_t i = 0; i < crowd->count; i++)
        tti_boot_conn_destroy(crowd->conns[i]);
    free(crowd->conns);
    free(crowd->polls);
    memset(crowd, 0, sizeof *crowd);
}
