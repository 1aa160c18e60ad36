/* The bootstrap server (launch/boot_server.h): one thread, one poll loop, nothing that blocks.
 *
 * Strangers are bounded in number, time and bytes: a connection has HANDSHAKE_S to prove that it
 * has the secret and may send no more than the two frames of the handshake until then; the oldest
 * stranger makes room for the newest. Once all ranks are there, the listening socket is closed:
 * from then on there is nothing to reach. A rank whose connection ends without a goodbye has died.
 *
 * Read next: boot.c, the other end. */
#include "launch/boot_server.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "launch/boot_conn.h"
#include "launch/boot_socket.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { SERVER_STRANGERS = 64 }; /* beside one for each rank */
static const double HANDSHAKE_S = 10;

struct tti_boot_server {
    pthread_t thread;
    int wake_fd;
    struct sockaddr_storage own;
    socklen_t own_bytes;
    char where[TTI_SOCKET_TEXT_BYTES];
    _Atomic uint64_t leave_by; /* 0 until the owner wants the thread to end */

    /* From here on the thread's own. */
    int listen_fd;
    int size;
    uint8_t secret[TTI_SECRET_BYTES];
    uint64_t join_by;
    uint32_t join_ms; /* how long the rank that waits no longer than join_by has waited in all */
    bool started;     /* all were there */
    bool failed;      /* all were told of a failure */
    bool *joined;     /* by rank: was there once */
    bool *come;       /* by rank: has given its blob in this round */
    int joined_count;
    int come_count;
    uint32_t round;
    struct tti_boot_blob *gathered; /* of this round, from the first blob on */
    size_t round_bytes;
    uint64_t round_by;
    uint32_t round_ms;
    struct tti_boot_conn **conns;
    size_t conn_capacity;
    size_t conn_count;
    struct pollfd *polls;
    size_t poll_capacity;
};

/* ---- Telling the ranks ---------------------------------------------------------------------- */

static void server_lose(struct tti_boot_server *s, struct tti_boot_conn *conn, bool said_goodbye);

static void server_drop(struct tti_boot_conn *conn, const char *why)
{
    TTI_LOG(TTI_LOG_WARN, "bootstrap: dropped a connection from %s: %s", conn->peer, why);
    close(conn->fd);
    conn->fd = -1;
}

static void server_send(struct tti_boot_server *s, struct tti_boot_conn *conn,
                        struct tti_boot_blob *blob)
{
    if (tti_boot_conn_send(conn, blob) == TUTTI_OK)
        return;
    if (conn->state == TTI_BOOT_CONN_JOINED)
        server_lose(s, conn, false);
    else
        server_drop(conn, tti_error_text());
}

/* To every rank that is there, but `except`. */
static void server_tell(struct tti_boot_server *s, const struct tti_boot_frame *frame,
                        const void *body, int except)
{
    struct tti_boot_blob *blob = tti_boot_blob_create(frame, body);
    if (!blob) { /* ends every connection, which tells as much */
        for (size_t i = 0; i < s->conn_count; i++)
            if (s->conns[i]->fd >= 0)
                server_drop(s->conns[i], tti_error_text());
        return;
    }
    for (size_t i = 0; i < s->conn_count; i++) {
        struct tti_boot_conn *conn = s->conns[i];
        if (conn->fd >= 0 && conn->state == TTI_BOOT_CONN_JOINED && conn->rank != except)
            server_send(s, conn, blob);
    }
    tti_boot_blob_release(blob);
}

static void server_stop_listening(struct tti_boot_server *s)
{
    if (s->listen_fd >= 0)
        close(s->listen_fd);
    s->listen_fd = -1;
}

/* A failure that concerns everybody; `rank` is whom it is about. */
static void server_fail(struct tti_boot_server *s, int rank, enum tutti_result code,
                        const char *text)
{
    size_t bytes = strlen(text);
    struct tti_boot_frame frame = {
        .type = TTI_BOOT_NOTICE, .rank = rank, .code = code, .bytes = bytes};
    if (frame.bytes > TTI_BOOT_TEXT_BYTES)
        frame.bytes = TTI_BOOT_TEXT_BYTES;
    TTI_LOG(TTI_LOG_INFO, "bootstrap: %s", *text ? text : "a rank died");
    s->failed = true;
    server_stop_listening(s);
    server_tell(s, &frame, text, -1);
}

/* The connection of a rank has ended. */
static void server_lose(struct tti_boot_server *s, struct tti_boot_conn *conn, bool said_goodbye)
{
    close(conn->fd);
    conn->fd = -1;
    if (said_goodbye && !s->started && !s->failed) {
        char text[128];
        snprintf(text, sizeof text, "rank %d of %d left before all had joined", conn->rank,
                 s->size);
        server_fail(s, conn->rank, TUTTI_ERR_PEER, text);
    } else if (said_goodbye) {
        struct tti_boot_frame bye = {.type = TTI_BOOT_BYE, .rank = conn->rank};
        server_tell(s, &bye, NULL, conn->rank);
    } else {
        TTI_LOG(TTI_LOG_INFO, "bootstrap: rank %d at %s died", conn->rank, conn->peer);
        server_fail(s, conn->rank, TUTTI_ERR_PEER, "");
    }
}

/* ---- Joining -------------------------------------------------------------------------------- */

static void server_refuse(struct tti_boot_server *s, struct tti_boot_conn *conn,
                          enum tutti_result code, const char *text)
{
    struct tti_boot_frame frame = {
        .type = TTI_BOOT_NOTICE, .rank = conn->rank, .code = code, .bytes = strlen(text)};
    struct tti_boot_blob *blob = tti_boot_blob_create(&frame, text);
    conn->state = TTI_BOOT_CONN_REFUSED;
    conn->deadline = tti_deadline_in(HANDSHAKE_S);
    if (!blob) {
        server_drop(conn, text);
        return;
    }
    server_send(s, conn, blob);
    tti_boot_blob_release(blob);
}

static void server_challenge(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    struct tti_boot_frame frame = {.type = TTI_BOOT_CHALLENGE, .bytes = TTI_BOOT_CHALLENGE_BYTES};
    uint8_t body[TTI_BOOT_CHALLENGE_BYTES];
    memcpy(conn->hello, conn->small, sizeof conn->hello);
    conn->rank = conn->frame.rank;
    conn->total_ms = conn->frame.waited_ms + conn->frame.wait_ms;
    conn->join_by = tti_deadline_in(conn->frame.wait_ms / 1e3);
    conn->state = TTI_BOOT_CONN_CALLED;
    randombytes_buf(conn->nonce, sizeof conn->nonce);
    memcpy(body, conn->nonce, sizeof conn->nonce);
    tti_boot_proof(s->secret, true, conn->rank, conn->hello, conn->nonce,
                   body + TTI_BOOT_NONCE_BYTES);
    struct tti_boot_blob *blob = tti_boot_blob_create(&frame, body);
    if (!blob) {
        server_drop(conn, tti_error_text());
        return;
    }
    server_send(s, conn, blob);
    tti_boot_blob_release(blob);
}

/* All are there: close the door, then say so. */
static void server_start(struct tti_boot_server *s)
{
    struct tti_boot_frame frame = {.type = TTI_BOOT_START};
    s->started = true;
    server_stop_listening(s);
    for (size_t i = 0; i < s->conn_count; i++)
        if (s->conns[i]->fd >= 0 && s->conns[i]->state < TTI_BOOT_CONN_JOINED)
            server_drop(s->conns[i], "all ranks have joined already");
    server_tell(s, &frame, NULL, -1);
}

/* A caller has proved itself; what it says about rank and size must fit. */
static void server_admit(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    char text[TTI_BOOT_TEXT_BYTES];
    int size = 0;
    if (tti_boot_hello_parse(conn->hello, conn->rank, &size) != TUTTI_OK) {
        server_drop(conn, tti_error_text());
        return;
    }
    if (size != s->size) {
        snprintf(text, sizeof text,
                 "rank %d at %s says that there are %d ranks, rank 0 at %s says %d; start all of "
                 "them with the same size",
                 conn->rank, conn->peer, size, s->where, s->size);
        server_refuse(s, conn, TUTTI_ERR_MISMATCH, text);
        server_fail(s, 0, TUTTI_ERR_MISMATCH, text);
        return;
    }
    if (s->joined[conn->rank]) {
        snprintf(text, sizeof text,
                 "two processes say that they are rank %d of %d (one of them at %s); give every "
                 "process its own rank",
                 conn->rank, size, conn->peer);
        server_refuse(s, conn, TUTTI_ERR_MISMATCH, text);
        server_fail(s, conn->rank, TUTTI_ERR_MISMATCH, text);
        return;
    }
    conn->state = TTI_BOOT_CONN_JOINED;
    s->joined[conn->rank] = true;
    if (conn->join_by < s->join_by) {
        s->join_by = conn->join_by;
        s->join_ms = conn->total_ms;
    }
    if (++s->joined_count == s->size)
        server_start(s);
}

static void server_handshake(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    if (conn->state == TTI_BOOT_CONN_STRANGER) {
        server_challenge(s, conn);
        return;
    }
    uint8_t proof[TTI_BOOT_PROOF_BYTES];
    tti_boot_proof(s->secret, false, conn->rank, conn->hello, conn->nonce, proof);
    if (!tti_boot_proof_equal(proof, conn->small))
        server_drop(conn, "it does not know this job's secret");
    else
        server_admit(s, conn);
}

/* ---- Gathering ------------------------------------------------------------------------------ */

/* A rank begins to give its blob: make room, and see that it fits with the others. */
static bool server_gather_begin(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    const struct tti_boot_frame *frame = &conn->frame;
    char text[TTI_BOOT_TEXT_BYTES];
    if (!s->gathered) {
        struct tti_boot_frame all = {
            .type = TTI_BOOT_GATHERED, .code = s->round, .bytes = frame->bytes * (uint64_t)s->size};
        s->gathered = tti_boot_blob_create(&all, NULL);
        if (!s->gathered) {
            server_fail(s, 0, TUTTI_ERR_MEMORY, tti_error_text());
            return false;
        }
        s->round_bytes = (size_t)frame->bytes;
        s->round_by = UINT64_MAX;
    }
    if (frame->bytes != s->round_bytes || frame->code != s->round || s->come[conn->rank]) {
        snprintf(text, sizeof text,
                 "rank %d gathers %llu bytes in round %u, others %zu bytes in round %u", conn->rank,
                 (unsigned long long)frame->bytes, (unsigned)frame->code, s->round_bytes,
                 (unsigned)s->round);
        server_fail(s, conn->rank, TUTTI_ERR_MISMATCH, text);
        return false;
    }
    uint64_t by = tti_deadline_in(frame->wait_ms / 1e3);
    if (by < s->round_by) {
        s->round_by = by;
        s->round_ms = frame->waited_ms + frame->wait_ms;
    }
    conn->body = s->gathered->data + TTI_BOOT_HEADER_BYTES + (size_t)conn->rank * s->round_bytes;
    return true;
}

static void server_gather_end(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    s->come[conn->rank] = true;
    if (++s->come_count < s->size)
        return;
    struct tti_boot_blob *blob = s->gathered;
    s->gathered = NULL;
    s->come_count = 0;
    s->round++;
    memset(s->come, 0, (size_t)s->size * sizeof *s->come);
    for (size_t i = 0; i < s->conn_count; i++)
        if (s->conns[i]->fd >= 0 && s->conns[i]->state == TTI_BOOT_CONN_JOINED)
            server_send(s, s->conns[i], blob);
    tti_boot_blob_release(blob);
}

/* ---- Input ---------------------------------------------------------------------------------- */

/* Whether a frame of this type may come from a connection in this state. */
static bool server_expects(const struct tti_boot_server *s, const struct tti_boot_conn *conn)
{
    switch (conn->state) {
    case TTI_BOOT_CONN_STRANGER:
        return conn->frame.type == TTI_BOOT_HELLO && !s->started && !s->failed;
    case TTI_BOOT_CONN_CALLED:
        return conn->frame.type == TTI_BOOT_PROOF && !s->started && !s->failed;
    case TTI_BOOT_CONN_JOINED:
        return conn->frame.type == TTI_BOOT_NOTICE || conn->frame.type == TTI_BOOT_BYE ||
               (conn->frame.type == TTI_BOOT_GATHER && s->started);
    default:
        return false;
    }
}

/* What cannot be read on: a stranger is dropped, a rank is as good as dead. */
static void server_give_up(struct tti_boot_server *s, struct tti_boot_conn *conn, const char *why)
{
    if (conn->state != TTI_BOOT_CONN_JOINED) {
        server_drop(conn, why);
        return;
    }
    TTI_LOG(TTI_LOG_WARN, "bootstrap: rank %d at %s: %s", conn->rank, conn->peer, why);
    server_lose(s, conn, false);
}

static void server_header(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    if (!server_expects(s, conn)) {
        server_give_up(s, conn, "it sent a frame out of turn");
        return;
    }
    if (conn->frame.type != TTI_BOOT_GATHER)
        return;
    /* After a failure no round is completed; every rank has the reason in its queue. */
    if (s->failed || !server_gather_begin(s, conn))
        conn->skip = true;
}

static void server_frame(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    struct tti_boot_frame notice = conn->frame;
    switch (conn->frame.type) {
    case TTI_BOOT_HELLO:
    case TTI_BOOT_PROOF:
        server_handshake(s, conn);
        break;
    case TTI_BOOT_GATHER:
        if (!conn->skip)
            server_gather_end(s, conn);
        break;
    case TTI_BOOT_NOTICE:
        notice.rank = conn->rank;
        s->failed = true;
        server_tell(s, &notice, conn->small, conn->rank);
        break;
    default:
        server_lose(s, conn, true);
    }
}

static void server_read(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    while (conn->fd >= 0) {
        switch (tti_boot_conn_read(conn)) {
        case TTI_BOOT_INPUT_MORE:
            return;
        case TTI_BOOT_INPUT_HEADER:
            server_header(s, conn);
            break;
        case TTI_BOOT_INPUT_FRAME:
            server_frame(s, conn);
            break;
        case TTI_BOOT_INPUT_CLOSED:
            server_give_up(s, conn, "the connection was closed");
            break;
        case TTI_BOOT_INPUT_WRONG:
            server_give_up(s, conn, tti_error_text());
            break;
        }
    }
}

/* ---- The loop ------------------------------------------------------------------------------- */

/* Room for one more: the oldest stranger goes when there are too many. */
static void server_evict(struct tti_boot_server *s)
{
    struct tti_boot_conn *oldest = NULL;
    size_t strangers = 0;
    for (size_t i = 0; i < s->conn_count; i++) {
        struct tti_boot_conn *conn = s->conns[i];
        if (conn->fd < 0 || conn->state >= TTI_BOOT_CONN_JOINED)
            continue;
        strangers++;
        if (!oldest || conn->deadline < oldest->deadline)
            oldest = conn;
    }
    if (oldest && strangers >= (size_t)s->size + SERVER_STRANGERS)
        server_drop(oldest, "too many connections that do not introduce themselves");
}

static void server_accept(struct tti_boot_server *s)
{
    for (int i = 0; i < SERVER_STRANGERS && s->listen_fd >= 0; i++) {
        int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && errno == EINTR)
            continue;
        if (fd < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK && errno != ECONNABORTED)
                TTI_LOG(TTI_LOG_WARN, "bootstrap: accept: %s", strerror(errno));
            return;
        }
        server_evict(s);
        void *conns = s->conns;
        struct tti_boot_conn *conn = NULL;
        if (tti_grow(&conns, &s->conn_capacity, s->conn_count + 1, sizeof(void *)) == TUTTI_OK) {
            s->conns = conns;
            conn = tti_boot_conn_create(fd, tti_deadline_in(HANDSHAKE_S));
        }
        if (!conn) {
            TTI_LOG(TTI_LOG_WARN, "bootstrap: %s", tti_error_text());
            close(fd);
            return;
        }
        s->conns[s->conn_count++] = conn;
    }
}

static void server_join_timeout(struct tti_boot_server *s)
{
    char text[TTI_BOOT_TEXT_BYTES];
    char who[256];
    int first = 0;
    int count = 0;
    tti_boot_missing_text(s->joined, s->size, who, sizeof who, &first, &count);
    snprintf(text, sizeof text, "%s of %d %s not joined within %.3g s at %s", who, s->size,
             count == 1 ? "has" : "have", s->join_ms / 1e3, s->where);
    server_fail(s, first, TUTTI_ERR_TIMEOUT, text);
}

static void server_round_timeout(struct tti_boot_server *s)
{
    char text[TTI_BOOT_TEXT_BYTES];
    char who[256];
    int first = 0;
    int count = 0;
    tti_boot_missing_text(s->come, s->size, who, sizeof who, &first, &count);
    snprintf(text, sizeof text, "%s of %d %s not come to exchange %zu bytes within %.3g s", who,
             s->size, count == 1 ? "has" : "have", s->round_bytes, s->round_ms / 1e3);
    server_fail(s, first, TUTTI_ERR_TIMEOUT, text);
}

/* What is due by now, and when the next thing will be. */
static uint64_t server_clock(struct tti_boot_server *s)
{
    uint64_t now = tti_now_ns();
    if (!s->started && !s->failed && now >= s->join_by)
        server_join_timeout(s);
    if (s->gathered && !s->failed && now >= s->round_by)
        server_round_timeout(s);
    uint64_t next = atomic_load(&s->leave_by) ? atomic_load(&s->leave_by) : UINT64_MAX;
    if (!s->failed && !s->started && s->join_by < next)
        next = s->join_by;
    if (!s->failed && s->gathered && s->round_by < next)
        next = s->round_by;
    size_t kept = 0;
    for (size_t i = 0; i < s->conn_count; i++) {
        struct tti_boot_conn *conn = s->conns[i];
        bool limited = conn->state != TTI_BOOT_CONN_JOINED;
        if (conn->fd >= 0 && limited && now >= conn->deadline)
            server_drop(conn, "it has not joined in time");
        if (conn->fd >= 0 && conn->state == TTI_BOOT_CONN_REFUSED && !conn->queue_count)
            server_drop(conn, "refused");
        if (conn->fd < 0) {
            tti_boot_conn_destroy(conn);
            continue;
        }
        if (limited && conn->deadline < next)
            next = conn->deadline;
        s->conns[kept++] = conn;
    }
    s->conn_count = kept;
    return next;
}

static bool server_done(const struct tti_boot_server *s)
{
    uint64_t leave_by = atomic_load(&s->leave_by);
    return leave_by && (s->conn_count == 0 || tti_deadline_passed(leave_by));
}

/* Wait for something to happen, then let it. */
static enum tutti_result server_turn(struct tti_boot_server *s, uint64_t next)
{
    size_t count = s->conn_count;
    void *polls = s->polls;
    TTI_TRY(tti_grow(&polls, &s->poll_capacity, count + 2, sizeof *s->polls));
    s->polls = polls;
    s->polls[0] = (struct pollfd){.fd = s->wake_fd, .events = POLLIN};
    s->polls[1] = (struct pollfd){.fd = s->listen_fd, .events = POLLIN};
    for (size_t i = 0; i < count; i++)
        s->polls[i + 2] =
            (struct pollfd){.fd = s->conns[i]->fd,
                            .events = (short)(POLLIN | (s->conns[i]->queue_count ? POLLOUT : 0))};
    int ready = poll(s->polls, (nfds_t)(count + 2), tti_deadline_ms(next, 60000));
    if (ready < 0 && errno != EINTR)
        return TTI_FAIL_ERRNO("poll over %zu bootstrap connections", count);
    if (ready <= 0)
        return TUTTI_OK;
    uint64_t wakes = 0;
    if (s->polls[0].revents && read(s->wake_fd, &wakes, sizeof wakes) < 0)
        TTI_LOG(TTI_LOG_DEBUG, "bootstrap: woken without a reason");
    for (size_t i = 0; i < count; i++) {
        struct tti_boot_conn *conn = s->conns[i];
        short events = s->polls[i + 2].revents;
        if (conn->fd >= 0 && (events & POLLOUT) && tti_boot_conn_flush(conn) != TUTTI_OK)
            server_give_up(s, conn, tti_error_text());
        if (conn->fd >= 0 && (events & (POLLIN | POLLHUP | POLLERR)))
            server_read(s, conn);
    }
    if (s->polls[1].revents)
        server_accept(s);
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
    server_stop_listening(s);
    for (size_t i = 0; i < s->conn_count; i++)
        tti_boot_conn_destroy(s->conns[i]);
    s->conn_count = 0;
    return NULL;
}

/* ---- Owner's side --------------------------------------------------------------------------- */

static void server_free(struct tti_boot_server *s)
{
    server_stop_listening(s);
    if (s->wake_fd >= 0)
        close(s->wake_fd);
    tti_boot_blob_release(s->gathered);
    free(s->conns);
    free(s->polls);
    free(s->joined);
    free(s->come);
    sodium_memzero(s->secret, sizeof s->secret);
    free(s);
}

static enum tutti_result server_listen(struct tti_boot_server *s, const struct tti_meeting *meeting)
{
    uint16_t port = 0;
    if (meeting->listen_fd >= 0) {
        TTI_TRY(tti_socket_listening(meeting->listen_fd, &port));
        s->listen_fd = meeting->listen_fd;
        tti_socket_prepare(s->listen_fd);
    } else {
        TTI_TRY(
            tti_socket_listen(meeting->host, meeting->port, meeting->ports, &s->listen_fd, &port));
    }
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
    if (!s)
        return TUTTI_ERR_MEMORY;
    s->listen_fd = -1;
    s->size = size;
    s->join_by = deadline;
    s->join_ms = (uint32_t)tti_deadline_ms(deadline, INT32_MAX);
    memcpy(s->secret, meeting->secret, sizeof s->secret);
    s->joined = tti_calloc((size_t)size, sizeof *s->joined);
    s->come = tti_calloc((size_t)size, sizeof *s->come);
    s->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    enum tutti_result result = s->joined && s->come ? TUTTI_OK : TUTTI_ERR_MEMORY;
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

const char *tti_boot_server_where(const struct tti_boot_server *server)
{
    return server->where;
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
