/* The post (coll/post.h): its thread, making and ending.
 *
 * A caller's parcel goes to the inbox (post_call.c); the thread moves it to the queue of its peer,
 * sends head and data (post_wire.c), and hands it back when the transport has released them. */
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "coll/post_internal.h"
#include "device/reclaim.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SPINS = 20,  /* turns without progress before the thread yields ... */
    YIELDS = 20, /* ... and before it sleeps */
    SLEEP_MS = 50,
};
static const double FLUSH_SECONDS = 1;
static const double LINGER_SECONDS = 1; /* of the wire's bootstrap: the communicator's own stays */

/* ---- what goes wrong ---- */

void tti_parcel_end(struct tti_post *post, struct tti_parcel *parcel, const struct tti_error *error)
{
    if (parcel->copied) {
        post->copied -= (size_t)parcel->head.bytes + sizeof *parcel;
        free(parcel);
    } else {
        if (error)
            *parcel->error = *error;
        parcel->done = true;
    }
    tti_post_changed(post);
}

static void queue_fail(struct tti_post *post, struct tti_parcel_queue *queue,
                       const struct tti_error *error)
{
    struct tti_parcel *parcel = NULL;
    while ((parcel = tti_parcel_take(queue)))
        tti_parcel_end(post, parcel, error);
}

/* Nothing goes any more. The calling thread's error says why. */
static void post_fail(struct tti_post *post, enum tutti_result code)
{
    pthread_mutex_lock(&post->lock);
    tti_error_save(&post->error, code);
    queue_fail(post, &post->inbox, &post->error);
    for (int p = 0; p < post->comm->size; p++) {
        queue_fail(post, &post->peers[p].sending, &post->error);
        queue_fail(post, &post->peers[p].sent, &post->error);
    }
    tti_post_changed(post);
    pthread_mutex_unlock(&post->lock);
}

/* One peer is not there any more; it may have left in peace. Whoever wants something of it is told
 * what the calling thread's error says. */
static void peer_gone(struct tti_post *post, struct tti_post_peer *peer, enum tutti_result code)
{
    pthread_mutex_lock(&post->lock);
    tti_error_save(&peer->error, code);
    peer->link->ops->disconnect(peer->link->endpoint); /* or it would wake the thread for ever */
    peer->link->endpoint = NULL;
    peer->link->connected = false;
    peer->gone = true;
    queue_fail(post, &peer->sending, &peer->error);
    queue_fail(post, &peer->sent, &peer->error);
    tti_post_changed(post);
    pthread_mutex_unlock(&post->lock);
}

/* ---- the thread ---- */

/* To the peers' queues; whether anything is on its way still. */
static bool post_collect(struct tti_post *post, bool *stop)
{
    struct tti_parcel *parcel = NULL;
    bool busy = false;
    pthread_mutex_lock(&post->lock);
    while ((parcel = tti_parcel_take(&post->inbox))) {
        struct tti_post_peer *peer = &post->peers[parcel->peer];
        if (peer->gone)
            tti_parcel_end(post, parcel, &peer->error);
        else
            tti_parcel_append(&peer->sending, parcel);
    }
    *stop = post->stop;
    if (post->asks && !post->answered) {
        tti_comm_holdings(post->wire, post->asks);
        post->answered = true;
        tti_post_changed(post);
    }
    pthread_mutex_unlock(&post->lock);
    for (int p = 0; p < post->comm->size; p++)
        busy |= post->peers[p].sending.head || post->peers[p].sent.head;
    return busy;
}

/* What a peer sent that cannot be is a failure of the communicator; that it is gone, of those only
 * who want something of it. */
static enum tutti_result post_serve(struct tti_post *post, bool *moved)
{
    for (int p = 0; p < post->comm->size; p++) {
        struct tti_post_peer *peer = &post->peers[p];
        if (p == post->comm->rank || peer->gone)
            continue;
        enum tutti_result result = tti_post_pull(post, peer, moved);
        if (result == TUTTI_OK)
            result = tti_post_push(post, peer, moved);
        if (result == TUTTI_ERR_PEER || result == TUTTI_ERR_LINK)
            peer_gone(post, peer, result);
        else if (result != TUTTI_OK)
            return tti_comm_fail(post->comm, result);
    }
    return TUTTI_OK;
}

static enum tutti_result post_idle(struct tti_post *post, unsigned idle)
{
    uint64_t woken = 0;
    TTI_TRY(tti_links_progress(post->wire));
    if (idle < SPINS) {
        tti_cpu_relax();
        return TUTTI_OK;
    }
    if (idle < SPINS + YIELDS) {
        sched_yield();
        return TUTTI_OK;
    }
    TTI_TRY(tti_comm_listen(post->wire));
    tti_links_sleep(post->wire, SLEEP_MS);
    ssize_t ignored = read(post->wire->wake_fd, &woken, sizeof woken);
    (void)ignored;
    return TUTTI_OK;
}

static enum tutti_result post_loop(struct tti_post *post)
{
    uint64_t flush = 0;
    for (unsigned idle = 0;; idle++) {
        bool moved = false, stop = false;
        const bool busy = post_collect(post, &stop);
        if (stop && flush == 0)
            flush = tti_deadline_in(FLUSH_SECONDS);
        if (stop && (!busy || tti_deadline_passed(flush)))
            return TUTTI_OK;
        TTI_TRY(post_serve(post, &moved));
        if (moved)
            idle = 0;
        else
            TTI_TRY(post_idle(post, idle));
    }
}

static void *post_main(void *argument)
{
    struct tti_post *post = argument;
    tti_log_rank(post->comm->rank);
    enum tutti_result result = post_loop(post);
    if (result == TUTTI_OK)
        result = TTI_FAIL(TUTTI_ERR_USAGE, "the communicator is being destroyed");
    struct tti_error error;
    tti_error_save(&error, result);
    tti_links_end(post->wire); /* nobody reads what callers get back below */
    post_fail(post, tti_error_restore(&error));
    return NULL;
}

/* ---- making and ending ---- */

static enum tutti_result post_start(struct tti_post *post)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&post->thread, NULL, post_main, post);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return TTI_FAIL(TUTTI_ERR_SYSTEM,
                        "cannot start the thread of the windows: %s (see ulimit "
                        "-u)",
                        strerror(error));
    post->started = true;
    return TUTTI_OK;
}

static enum tutti_result post_connect(struct tti_post *post)
{
    const struct tti_operation nothing = {.collective = TUTTI_BARRIER, .count = 1};
    const struct tti_label label = {&nothing, 0, 1};
    const int size = post->comm->size;
    int *all = tti_calloc((size_t)size, sizeof *all);
    if (!all)
        return TUTTI_ERR_MEMORY;
    for (int p = 0; p < size; p++)
        all[p] = p;
    enum tutti_result result = tti_links_connect(
        post->wire, all, size, tti_deadline_in(post->comm->settings.init_timeout_s), &label);
    free(all);
    return result;
}

enum tutti_result tti_post_open(struct tutti_comm *comm, struct tutti_comm *wire,
                                struct tti_board *board, struct tti_post **post)
{
    const size_t size = (size_t)comm->size;
    struct tti_post *made = tti_calloc(1, sizeof *made);
    if (!made) {
        tti_comm_end(wire, 0);
        tti_board_drop(board);
        return TUTTI_ERR_MEMORY;
    }
    made->comm = comm;
    made->wire = wire;
    made->board = board;
    made->renewals = tti_region_renewals();
    pthread_mutex_init(&made->lock, NULL);
    tti_cond_init(&made->changed);
    made->peers = tti_calloc(size, sizeof *made->peers);
    made->waited = tti_calloc(size * TUTTI_SIGNALS, sizeof *made->waited);
    enum tutti_result result = made->peers && made->waited ? TUTTI_OK : TUTTI_ERR_MEMORY;
    for (size_t p = 0; wire && result == TUTTI_OK && p < size; p++)
        made->peers[p].link = &wire->links.all[p];
    if (wire && result == TUTTI_OK)
        result = post_connect(made);
    if (wire && result == TUTTI_OK)
        result = post_start(made);
    if (result != TUTTI_OK) {
        struct tti_error error;
        tti_error_save(&error, result);
        tti_post_close(made);
        return tti_error_restore(&error);
    }
    *post = made;
    return TUTTI_OK;
}

void tti_post_reach(struct tti_post *post, int rank, struct tti_board *own,
                    const struct tti_region_place *place)
{
    struct tti_post_peer *peer = &post->peers[rank];
    if (!own && !tti_region_map(place, tti_board_bytes(post->comm->size), &peer->map))
        return;
    peer->board = own ? own : (struct tti_board *)(void *)peer->map.memory;
}

static void post_let_go(struct tti_post *post)
{
    for (int p = 0; post->peers && p < post->comm->size; p++) {
        struct tti_post_peer *peer = &post->peers[p];
        if (!peer->map.base)
            tti_board_drop(peer->board);
        tti_region_unmap(&peer->map);
    }
    tti_board_drop(post->board);
}

void tti_post_close(struct tti_post *post)
{
    if (!post)
        return;
    if (post->started) {
        pthread_mutex_lock(&post->lock);
        post->stop = true;
        pthread_mutex_unlock(&post->lock);
        tti_comm_wake(post->wire);
        pthread_join(post->thread, NULL);
    }
    tti_comm_end(post->wire, LINGER_SECONDS);
    if (post->gpu) {
        post->ops->stream_destroy(post->gpu, post->stream);
        tti_gpu_retire_device(post->gpu);
        tti_gpu_reclaim(post->ops);
    }
    pthread_cond_destroy(&post->changed);
    pthread_mutex_destroy(&post->lock);
    while (post->windows) {
        struct tutti_window *window = post->windows;
        post->windows = window->next;
        tti_window_free(window);
    }
    post_let_go(post);
    free(post->peers);
    free(post->waited);
    free(post);
}

/* The wire's part is told by the thread that uses it. Under the lock. */
static void memory_of_wire(struct tti_post *post, struct tutti_memory *memory)
{
    post->asks = memory;
    post->answered = false;
    tti_comm_wake(post->wire);
    while (!post->answered && post->error.code == TUTTI_OK)
        pthread_cond_wait(&post->changed, &post->lock);
    post->asks = NULL;
}

void tti_post_memory(struct tti_post *post, struct tutti_memory *memory)
{
    if (!post)
        return;
    pthread_mutex_lock(&post->lock);
    memory->host += tti_heap_bytes(post) + tti_heap_bytes(post->peers) +
                    tti_heap_bytes(post->waited) + post->copied;
    for (int p = 0; p < post->comm->size; p++)
        memory->mapped += post->peers[p].map.bytes;
    for (const struct tutti_window *w = post->windows; w; w = w->next) {
        memory->host += tti_heap_bytes(w) + tti_heap_bytes(w->sizes) + tti_heap_bytes(w->direct);
        for (int p = 0; p < post->comm->size; p++)
            memory->mapped += w->direct[p].bytes;
    }
    tti_add_region(post->board, tti_board_bytes(post->comm->size), memory);
    if (post->started)
        memory_of_wire(post, memory);
    pthread_mutex_unlock(&post->lock);
}
