/* A connection of the bootstrap server (launch/boot_conn.h). */
#include "launch/boot_conn.h"

#include "base/log.h"
#include "base/memory.h"
#include "launch/boot_socket.h"

#include <errno.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

size_t tti_boot_held_bytes(struct tti_boot_held *held)
{
    pthread_mutex_lock(&held->lock);
    size_t bytes = held->bytes;
    pthread_mutex_unlock(&held->lock);
    return bytes;
}

static struct tti_boot_blob *blob_allocate(size_t bytes, struct tti_boot_held *held)
{
    if (!held)
        return tti_calloc(1, bytes);
    pthread_mutex_lock(&held->lock);
    struct tti_boot_blob *blob = tti_calloc(1, bytes);
    held->bytes += tti_heap_bytes(blob);
    pthread_mutex_unlock(&held->lock);
    return blob;
}

struct tti_boot_blob *tti_boot_blob_create(const struct tti_boot_frame *frame, const void *body,
                                           struct tti_boot_held *held)
{
    size_t bytes = TTI_BOOT_HEADER_BYTES + (size_t)frame->bytes;
    struct tti_boot_blob *blob = blob_allocate(sizeof *blob + bytes, held);
    if (!blob)
        return NULL;
    blob->refs = 1;
    blob->held = held;
    blob->bytes = bytes;
    tti_boot_frame_encode(frame, blob->data);
    if (body && frame->bytes)
        memcpy(blob->data + TTI_BOOT_HEADER_BYTES, body, (size_t)frame->bytes);
    return blob;
}

void tti_boot_blob_release(struct tti_boot_blob *blob)
{
    if (!blob || --blob->refs > 0)
        return;
    struct tti_boot_held *held = blob->held;
    if (held) {
        pthread_mutex_lock(&held->lock);
        held->bytes -= tti_heap_bytes(blob);
    }
    free(blob);
    if (held)
        pthread_mutex_unlock(&held->lock);
}

struct tti_boot_conn *tti_boot_conn_create(int fd, uint64_t deadline)
{
    struct tti_boot_conn *conn = tti_calloc(1, sizeof *conn);
    if (!conn)
        return NULL;
    struct sockaddr_storage address = {0};
    socklen_t bytes = sizeof address;
    conn->fd = fd;
    conn->rank = -1;
    conn->deadline = deadline;
    conn->body = conn->small;
    tti_socket_prepare(fd);
    if (getpeername(fd, (struct sockaddr *)&address, &bytes) == 0)
        tti_socket_text((struct sockaddr *)&address, bytes, conn->peer, sizeof conn->peer);
    return conn;
}

static void conn_empty(struct tti_boot_conn *conn)
{
    for (size_t i = 0; i < conn->queue_count; i++)
        tti_boot_blob_release(conn->queue[i]);
    conn->queue_count = conn->sent = 0;
}

void tti_boot_conn_destroy(struct tti_boot_conn *conn)
{
    if (!conn)
        return;
    if (conn->fd >= 0)
        close(conn->fd);
    conn_empty(conn);
    free(conn->queue);
    free(conn);
}

void tti_boot_conn_drop(struct tti_boot_conn *conn, const char *why)
{
    if (why)
        TTI_LOG(TTI_LOG_WARN, "bootstrap: dropped a connection from %s: %s", conn->peer, why);
    (void)shutdown(conn->fd, SHUT_RDWR); /* a forked child may hold it, too */
    close(conn->fd);
    conn->fd = -1;
}

void tti_boot_conn_hush(struct tti_boot_conn *conn)
{
    (void)shutdown(conn->fd, SHUT_RDWR); /* Linux hands out what has come, and then the end */
    conn_empty(conn);
}

enum tutti_result tti_boot_conn_tell(struct tti_boot_conn *conn, const struct tti_boot_frame *frame,
                                     const void *body)
{
    struct tti_boot_blob *blob = tti_boot_blob_create(frame, body, NULL);
    if (!blob)
        return TUTTI_ERR_MEMORY;
    enum tutti_result result = tti_boot_conn_send(conn, blob);
    tti_boot_blob_release(blob);
    return result;
}

enum tutti_result tti_boot_conn_challenge(struct tti_boot_conn *conn,
                                          const uint8_t secret[static 32], enum tti_boot_role role,
                                          uint32_t code)
{
    struct tti_boot_frame frame = {
        .type = TTI_BOOT_CHALLENGE, .code = code, .bytes = TTI_BOOT_CHALLENGE_BYTES};
    uint8_t body[TTI_BOOT_CHALLENGE_BYTES];
    memcpy(conn->hello, conn->small, sizeof conn->hello);
    conn->rank = conn->frame.rank;
    conn->state = TTI_BOOT_CONN_CALLED;
    randombytes_buf(conn->nonce, sizeof conn->nonce);
    memcpy(body, conn->nonce, sizeof conn->nonce);
    tti_boot_proof(secret, role, conn->rank, conn->hello, conn->nonce, body + TTI_BOOT_NONCE_BYTES);
    return tti_boot_conn_tell(conn, &frame, body);
}

bool tti_boot_conn_proves(const struct tti_boot_conn *conn, const uint8_t secret[static 32],
                          enum tti_boot_role role)
{
    uint8_t proof[TTI_BOOT_PROOF_BYTES];
    tti_boot_proof(secret, role, conn->rank, conn->hello, conn->nonce, proof);
    return tti_boot_proof_equal(proof, conn->small);
}

/* Bytes into [have, want): 1 when full, 0 when the socket is dry, -1 at its end. */
static int conn_fill(int fd, uint8_t *data, size_t *have, size_t want)
{
    while (*have < want) {
        ssize_t got = recv(fd, data + *have, want - *have, MSG_DONTWAIT);
        if (got > 0)
            *have += (size_t)got;
        else if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        else if (got == 0 || errno != EINTR)
            return -1;
    }
    return 1;
}

/* The same for a body that nobody wants. */
static int conn_skip(struct tti_boot_conn *conn)
{
    size_t want = (size_t)conn->frame.bytes;
    while (conn->body_have < want) {
        size_t part = want - conn->body_have;
        size_t have = 0;
        if (part > sizeof conn->small)
            part = sizeof conn->small;
        int got = conn_fill(conn->fd, conn->small, &have, part);
        conn->body_have += have;
        if (got <= 0)
            return got;
    }
    return 1;
}

enum tti_boot_input tti_boot_conn_read(struct tti_boot_conn *conn)
{
    if (conn->header_have < TTI_BOOT_HEADER_BYTES) {
        int got =
            conn_fill(conn->fd, conn->header, &conn->header_have, (size_t)TTI_BOOT_HEADER_BYTES);
        if (got <= 0)
            return got < 0 ? TTI_BOOT_INPUT_CLOSED : TTI_BOOT_INPUT_MORE;
        if (tti_boot_frame_parse(conn->header, TTI_BOOT_TO_SERVER, &conn->frame) != TUTTI_OK)
            return TTI_BOOT_INPUT_WRONG;
        conn->body = conn->small;
        conn->body_have = 0;
        conn->skip = false;
        return TTI_BOOT_INPUT_HEADER;
    }
    int got = conn->skip
                  ? conn_skip(conn)
                  : conn_fill(conn->fd, conn->body, &conn->body_have, (size_t)conn->frame.bytes);
    if (got <= 0)
        return got < 0 ? TTI_BOOT_INPUT_CLOSED : TTI_BOOT_INPUT_MORE;
    conn->header_have = 0;
    return TTI_BOOT_INPUT_FRAME;
}

enum tutti_result tti_boot_conn_send(struct tti_boot_conn *conn, struct tti_boot_blob *blob)
{
    void *queue = conn->queue;
    TTI_TRY(tti_grow(&queue, &conn->queue_capacity, conn->queue_count + 1, sizeof *conn->queue));
    conn->queue = queue;
    conn->queue[conn->queue_count++] = blob;
    blob->refs++;
    return tti_boot_conn_flush(conn);
}

enum tutti_result tti_boot_conn_flush(struct tti_boot_conn *conn)
{
    while (conn->queue_count > 0) {
        struct tti_boot_blob *blob = conn->queue[0];
        ssize_t sent = send(conn->fd, blob->data + conn->sent, blob->bytes - conn->sent,
                            MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return TUTTI_OK;
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return TTI_FAIL(TUTTI_ERR_LINK, "cannot send to %s: %s", conn->peer, strerror(errno));
        conn->sent += (size_t)sent;
        if (conn->sent < blob->bytes)
            continue;
        conn->sent = 0;
        conn->queue_count--;
        memmove(conn->queue, conn->queue + 1, conn->queue_count * sizeof *conn->queue);
        tti_boot_blob_release(blob);
    }
    return TUTTI_OK;
}
