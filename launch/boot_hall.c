/* What the bootstrap server does with frames (launch/boot_hall.h).
 *
 * Once all ranks are there, the door is closed: from then on there is nothing that a stranger could
 * reach. A failure before that keeps it open, so that those who come late are told why. A rank
 * whose connection ends without a goodbye has died. Read next: boot.c, the other end. */
#include "launch/boot_hall.h"

#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- Telling the ranks ---------------------------------------------------------------------- */

/* A rank that nothing can be told may have left, and its goodbye be unread: reading finds out. */
static void hall_send(struct tti_boot_conn *conn, struct tti_boot_blob *blob)
{
    if (tti_boot_conn_send(conn, blob) == TUTTI_OK)
        return;
    if (conn->state == TTI_BOOT_CONN_JOINED)
        tti_boot_conn_hush(conn);
    else
        tti_boot_conn_drop(conn, tti_error_text());
}

void tti_boot_hall_tell(struct tti_boot_server *s, const struct tti_boot_frame *frame,
                        const void *body, int except)
{
    struct tti_boot_blob *blob = tti_boot_blob_create(frame, body, &s->held);
    if (!blob) { /* ends every connection, which tells as much */
        for (size_t i = 0; i < s->crowd.count; i++)
            if (s->crowd.conns[i]->fd >= 0)
                tti_boot_conn_drop(s->crowd.conns[i], tti_error_text());
        return;
    }
    for (size_t i = 0; i < s->crowd.count; i++) {
        struct tti_boot_conn *conn = s->crowd.conns[i];
        if (conn->fd >= 0 && conn->state == TTI_BOOT_CONN_JOINED && conn->rank != except)
            hall_send(conn, blob);
    }
    tti_boot_blob_release(blob);
}

void tti_boot_hall_close_door(struct tti_boot_server *s)
{
    if (s->listen_fd >= 0)
        close(s->listen_fd);
    s->listen_fd = -1;
}

void tti_boot_hall_fail(struct tti_boot_server *s, int rank, enum tutti_result code,
                        const char *text)
{
    struct tti_boot_frame frame = {.type = TTI_BOOT_NOTICE,
                                   .rank = rank,
                                   .code = code,
                                   .bytes = strnlen(text, TTI_BOOT_TEXT_BYTES)};
    TTI_LOG(TTI_LOG_INFO, "bootstrap: %s", *text ? text : "a rank died");
    if (!s->failed) {
        s->failure = frame;
        memcpy(s->failure_text, text, (size_t)frame.bytes);
        if (!s->started && code != TUTTI_ERR_TIMEOUT)
            s->stay_by = tti_deadline_in(TTI_BOOT_STAY_S);
    }
    s->failed = true;
    tti_boot_hall_tell(s, &frame, text, -1);
}

/* The connection of a rank has ended. */
static void hall_lose(struct tti_boot_server *s, struct tti_boot_conn *conn, bool said_goodbye)
{
    close(conn->fd);
    conn->fd = -1;
    if (said_goodbye && !s->started && !s->failed) {
        char text[128];
        snprintf(text, sizeof text, "rank %d of %d left before all had joined", conn->rank,
                 s->size);
        tti_boot_hall_fail(s, conn->rank, TUTTI_ERR_PEER, text);
    } else if (said_goodbye) {
        s->left[conn->rank] = true;
        struct tti_boot_frame bye = {.type = TTI_BOOT_BYE, .rank = conn->rank};
        tti_boot_hall_tell(s, &bye, NULL, conn->rank);
    } else {
        TTI_LOG(TTI_LOG_INFO, "bootstrap: rank %d at %s died", conn->rank, conn->peer);
        tti_boot_hall_fail(s, conn->rank, TUTTI_ERR_PEER, "");
    }
}

/* ---- Joining -------------------------------------------------------------------------------- */

/* Tell a caller the failure of the job, then close. */
static void hall_refuse(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    struct tti_boot_blob *blob = tti_boot_blob_create(&s->failure, s->failure_text, &s->held);
    conn->state = TTI_BOOT_CONN_REFUSED;
    conn->deadline = tti_deadline_in(TTI_BOOT_HANDSHAKE_S);
    if (!blob) {
        tti_boot_conn_drop(conn, tti_error_text());
        return;
    }
    hall_send(conn, blob);
    tti_boot_blob_release(blob);
}

static void hall_challenge(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    conn->total_ms = conn->frame.waited_ms + conn->frame.wait_ms;
    conn->join_by = tti_deadline_in(conn->frame.wait_ms / 1e3);
    if (tti_boot_conn_challenge(conn, s->secret, TTI_BOOT_SERVER, 0) != TUTTI_OK)
        tti_boot_conn_drop(conn, tti_error_text());
}

/* All are there: close the door, then say so. */
static void hall_start(struct tti_boot_server *s)
{
    struct tti_boot_frame frame = {.type = TTI_BOOT_START};
    s->started = true;
    tti_boot_hall_close_door(s);
    for (size_t i = 0; i < s->crowd.count; i++)
        if (s->crowd.conns[i]->fd >= 0 && s->crowd.conns[i]->state < TTI_BOOT_CONN_JOINED)
            tti_boot_conn_drop(s->crowd.conns[i], "all ranks have joined already");
    tti_boot_hall_tell(s, &frame, NULL, -1);
}

/* A caller has proved itself; what it says about rank and size must fit. */
static void hall_admit(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    char text[TTI_BOOT_TEXT_BYTES];
    int size = 0;
    if (tti_boot_hello_parse(conn->hello, conn->rank, &size) != TUTTI_OK) {
        tti_boot_conn_drop(conn, tti_error_text());
        return;
    }
    if (size != s->size && !s->failed) {
        snprintf(text, sizeof text,
                 "rank %d at %s says that there are %d ranks, rank 0 at %s says %d; start all of "
                 "them with the same size",
                 conn->rank, conn->peer, size, s->where, s->size);
        tti_boot_hall_fail(s, 0, TUTTI_ERR_MISMATCH, text);
    } else if (!s->failed && s->joined[conn->rank]) {
        snprintf(text, sizeof text,
                 "two processes say that they are rank %d of %d (one of them at %s); give every "
                 "process its own rank",
                 conn->rank, size, conn->peer);
        tti_boot_hall_fail(s, conn->rank, TUTTI_ERR_MISMATCH, text);
    }
    if (s->failed) {
        hall_refuse(s, conn);
        return;
    }
    struct tti_boot_frame welcome = {.type = TTI_BOOT_WELCOME};
    struct tti_boot_blob *blob = tti_boot_blob_create(&welcome, NULL, &s->held);
    if (!blob) {
        tti_boot_conn_drop(conn, tti_error_text());
        return;
    }
    conn->state = TTI_BOOT_CONN_JOINED;
    s->joined[conn->rank] = true;
    if (conn->join_by < s->join_by) {
        s->join_by = conn->join_by;
        s->join_ms = conn->total_ms;
    }
    s->joined_count++;
    hall_send(conn, blob);
    tti_boot_blob_release(blob);
    if (s->joined_count == s->size && !s->failed)
        hall_start(s);
}

static void hall_handshake(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    if (conn->state == TTI_BOOT_CONN_STRANGER) {
        hall_challenge(s, conn);
        return;
    }
    if (!tti_boot_conn_proves(conn, s->secret, TTI_BOOT_RANK))
        tti_boot_conn_drop(conn, "it does not know this job's secret");
    else
        hall_admit(s, conn);
}

/* ---- Gathering ------------------------------------------------------------------------------ */

/* A rank begins to give its blob: make room, and see that it fits with the others. */
static bool hall_gather_begin(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    const struct tti_boot_frame *frame = &conn->frame;
    char text[TTI_BOOT_TEXT_BYTES];
    if (!s->gathered) {
        struct tti_boot_frame all = {
            .type = TTI_BOOT_GATHERED, .code = s->round, .bytes = frame->bytes * (uint64_t)s->size};
        s->gathered = tti_boot_blob_create(&all, NULL, &s->held);
        if (!s->gathered) {
            tti_boot_hall_fail(s, 0, TUTTI_ERR_MEMORY, tti_error_text());
            return false;
        }
        s->round_bytes = (size_t)frame->bytes;
        s->round_by = UINT64_MAX;
    }
    if (frame->bytes != s->round_bytes || frame->code != s->round || s->come[conn->rank]) {
        snprintf(text, sizeof text,
                 "rank %d gathers %llu bytes in round %u, others %zu bytes in round %u (are all "
                 "ranks of the same Tutti version?)",
                 conn->rank, (unsigned long long)frame->bytes, (unsigned)frame->code,
                 s->round_bytes, (unsigned)s->round);
        tti_boot_hall_fail(s, conn->rank, TUTTI_ERR_MISMATCH, text);
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

static void hall_gather_end(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    s->come[conn->rank] = true;
    if (++s->come_count < s->size)
        return;
    struct tti_boot_blob *blob = s->gathered;
    s->gathered = NULL;
    s->come_count = 0;
    s->round++;
    memset(s->come, 0, (size_t)s->size * sizeof *s->come);
    for (size_t i = 0; i < s->crowd.count; i++)
        if (s->crowd.conns[i]->fd >= 0 && s->crowd.conns[i]->state == TTI_BOOT_CONN_JOINED)
            hall_send(s->crowd.conns[i], blob);
    tti_boot_blob_release(blob);
}

/* ---- Input ---------------------------------------------------------------------------------- */

/* Whether a frame of this type may come from a connection in this state. */
static bool hall_expects(const struct tti_boot_server *s, const struct tti_boot_conn *conn)
{
    switch (conn->state) {
    case TTI_BOOT_CONN_STRANGER:
        return conn->frame.type == TTI_BOOT_HELLO && !s->started;
    case TTI_BOOT_CONN_CALLED:
        return conn->frame.type == TTI_BOOT_PROOF && !s->started;
    case TTI_BOOT_CONN_JOINED:
        return conn->frame.type == TTI_BOOT_NOTICE || conn->frame.type == TTI_BOOT_BYE ||
               ((conn->frame.type == TTI_BOOT_GATHER || conn->frame.type == TTI_BOOT_ASK ||
                 conn->frame.type == TTI_BOOT_REPORT) &&
                s->started);
    default:
        return false;
    }
}

/* What cannot be read on: a stranger is dropped, a rank is as good as dead. */
static void hall_give_up(struct tti_boot_server *s, struct tti_boot_conn *conn, const char *why)
{
    if (conn->state != TTI_BOOT_CONN_JOINED) {
        tti_boot_conn_drop(conn, why);
        return;
    }
    TTI_LOG(TTI_LOG_WARN, "bootstrap: rank %d at %s: %s", conn->rank, conn->peer, why);
    hall_lose(s, conn, false);
}

static void hall_header(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    if (!hall_expects(s, conn)) {
        hall_give_up(s, conn, "it sent a frame out of turn");
        return;
    }
    if (conn->frame.type == TTI_BOOT_REPORT)
        conn->skip = !tti_boot_hall_report_begin(s, conn);
    if (conn->frame.type != TTI_BOOT_GATHER)
        return;
    /* After a failure no round is completed; every rank has the reason in its queue. */
    if (s->failed || !hall_gather_begin(s, conn))
        conn->skip = true;
}

static void hall_frame(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    struct tti_boot_frame notice = conn->frame;
    switch (conn->frame.type) {
    case TTI_BOOT_HELLO:
    case TTI_BOOT_PROOF:
        hall_handshake(s, conn);
        break;
    case TTI_BOOT_GATHER:
        if (!conn->skip)
            hall_gather_end(s, conn);
        break;
    case TTI_BOOT_ASK:
        tti_boot_hall_ask(s, conn);
        break;
    case TTI_BOOT_REPORT:
        if (!conn->skip)
            tti_boot_hall_report_end(s, conn);
        break;
    case TTI_BOOT_NOTICE:
        notice.waited_ms = 0;
        notice.rank = conn->rank;
        s->failed = true;
        tti_boot_hall_tell(s, &notice, conn->small, conn->rank);
        break;
    default:
        hall_lose(s, conn, true);
    }
}

void tti_boot_hall_read(struct tti_boot_server *s, struct tti_boot_conn *conn)
{
    while (conn->fd >= 0) {
        switch (tti_boot_conn_read(conn)) {
        case TTI_BOOT_INPUT_MORE:
            return;
        case TTI_BOOT_INPUT_HEADER:
            hall_header(s, conn);
            break;
        case TTI_BOOT_INPUT_FRAME:
            hall_frame(s, conn);
            break;
        case TTI_BOOT_INPUT_CLOSED:
            hall_give_up(s, conn, "the connection was closed");
            break;
        case TTI_BOOT_INPUT_WRONG:
            hall_give_up(s, conn, tti_error_text());
            break;
        }
    }
}
