/* The post's link to one peer: heads and data out, heads and data in (coll/post.h). */
#include "coll/post_internal.h"

#include "coll/door.h"

#include <stdlib.h>
#include <string.h>

enum {
    TAG_HEAD = 1, /* of fragments: bytes of different tags are never mixed */
    TAG_DATA = 2,
    TURNS = 16, /* fragments taken from one peer before the others have theirs */
};

/* ---- sending ---- */

static enum tutti_result peer_offer(struct tti_post_peer *peer, uint64_t tag, const void *data,
                                    size_t bytes, size_t *accepted)
{
    *accepted = 0;
    TTI_TRY(peer->link->ops->send(peer->link->endpoint, 0, tag, data, bytes, accepted));
    peer->accepted += *accepted;
    return TUTTI_OK;
}

/* Everything of the first parcel that the transport takes; *moved: it took something. */
static enum tutti_result peer_send_first(struct tti_post_peer *peer, bool *moved)
{
    struct tti_parcel *parcel = peer->sending.head;
    size_t accepted = 0;
    if (!parcel->headed) {
        /* A head is one unit of fragments: taken whole or not at all. */
        TTI_TRY(peer_offer(peer, TAG_HEAD, &parcel->head, sizeof parcel->head, &accepted));
        parcel->headed = accepted == sizeof parcel->head;
        *moved |= parcel->headed;
        if (!parcel->headed)
            return TUTTI_OK;
    }
    while (parcel->sent < parcel->head.bytes) {
        TTI_TRY(peer_offer(peer, TAG_DATA, parcel->data + parcel->sent,
                           parcel->head.bytes - parcel->sent, &accepted));
        if (accepted == 0)
            return TUTTI_OK;
        parcel->sent += accepted;
        *moved = true;
    }
    parcel->until = peer->accepted;
    tti_parcel_append(&peer->sent, tti_parcel_take(&peer->sending));
    return TUTTI_OK;
}

enum tutti_result tti_post_push(struct tti_post *post, struct tti_post_peer *peer, bool *moved)
{
    while (peer->sending.head) {
        const struct tti_parcel *first = peer->sending.head;
        TTI_TRY(peer_send_first(peer, moved));
        if (peer->sending.head == first)
            break;
    }
    if (!peer->sent.head)
        return TUTTI_OK;
    const uint64_t released = peer->link->ops->released(peer->link->endpoint, 0);
    if (released < peer->sent.head->until)
        return TUTTI_OK;
    pthread_mutex_lock(&post->lock);
    while (peer->sent.head && released >= peer->sent.head->until)
        tti_parcel_end(post, tti_parcel_take(&peer->sent), NULL);
    pthread_mutex_unlock(&post->lock);
    *moved = true;
    return TUTTI_OK;
}

/* ---- receiving ---- */

/* Under the lock; NULL: there is none of that number. */
static const struct tutti_window *post_window(const struct tti_post *post, uint64_t number)
{
    const struct tutti_window *window = post->windows;
    while (window && window->number != number)
        window = window->next;
    return window;
}

/* Under the lock, or in the post's thread alone. */
static enum tutti_result wire_store(const struct tti_post *post, const struct tutti_window *window,
                                    size_t offset, const void *data, size_t bytes)
{
    if (!window->device) {
        memmove(window->memory + offset, data, bytes); /* a rank may put from its own window */
        return TUTTI_OK;
    }
    TTI_TRY(post->ops->copy(post->gpu, window->memory + offset, data, bytes, post->stream));
    return tti_comm_stream_wait(post->comm, post->gpu, post->stream, "storing into a window");
}

enum tutti_result tti_post_store(struct tti_post *post, const struct tutti_window *window,
                                 size_t offset, const void *data, size_t bytes)
{
    pthread_mutex_lock(&post->lock);
    enum tutti_result result = wire_store(post, window, offset, data, bytes);
    pthread_mutex_unlock(&post->lock);
    return result;
}

/* A head is there: can it be? What a rank of this version checks before it sends is wrong here only
 * if this rank has meanwhile given up the window. */
static enum tutti_result peer_begin(struct tti_post *post, struct tti_post_peer *peer)
{
    const struct tti_post_head *head = &peer->incoming;
    const int rank = peer->link->peer;
    const char *name = post->comm->peers.all[rank].name;
    if (head->magic != TTI_POST_MAGIC || head->signal < TUTTI_NO_SIGNAL ||
        head->signal >= TUTTI_SIGNALS)
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "rank %d (%s) sent what is no put and no signal", rank,
                        name);
    if (head->bytes == 0)
        return TUTTI_OK;
    pthread_mutex_lock(&post->lock);
    const struct tutti_window *window = post_window(post, head->window);
    const size_t bytes = window ? window->bytes : 0;
    pthread_mutex_unlock(&post->lock);
    if (!window)
        return TTI_FAIL(TUTTI_ERR_MISMATCH,
                        "rank %d (%s) put %llu bytes into window %llu, which rank %d has "
                        "destroyed; destroy windows when nobody puts any more",
                        rank, name, (unsigned long long)head->bytes,
                        (unsigned long long)head->window, post->comm->rank);
    if (head->offset > bytes || head->bytes > bytes - head->offset)
        return TTI_FAIL(
            TUTTI_ERR_PROTOCOL, "rank %d (%s) put %llu bytes at %llu into a window of %zu bytes",
            rank, name, (unsigned long long)head->bytes, (unsigned long long)head->offset, bytes);
    peer->left = head->bytes;
    return TUTTI_OK;
}

static enum tutti_result peer_data(struct tti_post *post, struct tti_post_peer *peer,
                                   const void *data, size_t bytes)
{
    const struct tti_post_head *head = &peer->incoming;
    enum tutti_result result = TUTTI_OK;
    pthread_mutex_lock(&post->lock);
    const struct tutti_window *window = post_window(post, head->window);
    if (window)
        result = wire_store(post, window, head->offset + (head->bytes - peer->left), data, bytes);
    pthread_mutex_unlock(&post->lock);
    peer->left -= bytes;
    return result;
}

static void peer_finish(struct tti_post *post, struct tti_post_peer *peer)
{
    const int32_t signal = peer->incoming.signal;
    const int rank = peer->link->peer;
    peer->got = 0;
    if (signal != TUTTI_NO_SIGNAL)
        tti_board_count(post->board, rank, signal);
    atomic_fetch_add_explicit(&post->board->from[rank].applied, 1, memory_order_release);
}

/* Take one fragment, or what is wanted of it. *bytes 0: nothing is there. */
static enum tutti_result peer_take(struct tti_post *post, struct tti_post_peer *peer, size_t *bytes)
{
    const struct tutti_transport_ops *ops = peer->link->ops;
    const bool head = peer->got < sizeof peer->incoming;
    const size_t want = head ? sizeof peer->incoming - peer->got : peer->left;
    uint64_t tag = 0;
    const void *data = NULL;
    *bytes = 0;
    TTI_TRY(ops->peek(peer->link->endpoint, 0, &tag, &data, bytes));
    if (*bytes == 0)
        return TUTTI_OK;
    if (tag != (head ? TAG_HEAD : TAG_DATA))
        return TTI_FAIL(TUTTI_ERR_PROTOCOL, "rank %d (%s) sent a fragment of kind %llu to the post",
                        peer->link->peer, post->comm->peers.all[peer->link->peer].name,
                        (unsigned long long)tag);
    *bytes = *bytes < want ? *bytes : want;
    enum tutti_result result = TUTTI_OK;
    if (head) {
        memcpy((char *)&peer->incoming + peer->got, data, *bytes);
        peer->got += *bytes;
        if (peer->got == sizeof peer->incoming)
            result = peer_begin(post, peer);
    } else {
        result = peer_data(post, peer, data, *bytes);
    }
    if (result == TUTTI_OK)
        result = tti_link_intact(peer->link, 0);
    if (result != TUTTI_OK)
        return result;
    ops->consume(peer->link->endpoint, 0, *bytes);
    if (peer->got == sizeof peer->incoming && peer->left == 0)
        peer_finish(post, peer);
    return TUTTI_OK;
}

enum tutti_result tti_post_pull(struct tti_post *post, struct tti_post_peer *peer, bool *moved)
{
    for (int turn = 0; turn < TURNS; turn++) {
        size_t bytes = 0;
        TTI_TRY(peer_take(post, peer, &bytes));
        if (bytes == 0)
            break;
        *moved = true;
    }
    return TUTTI_OK;
}
