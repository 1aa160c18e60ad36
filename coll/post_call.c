/* What callers have the post do, and its windows (coll/post.h). Small parcels are copied, so that
 * their callers need not wait until they are sent. */
#include "base/clock.h"
#include "base/memory.h"
#include "coll/exec_internal.h"
#include "coll/post_internal.h"
#include "device/memory.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum {
    COPIED_BYTES = 16 << 10, /* parcels up to this are copied ... */
    COPIED_MOST = 4 << 20,   /* ... while all that are copied and not sent yet are no more */
    LOOK_MS = 20,            /* how often who waits looks whether all is well */
    TURNS = 100,             /* who waits for a signal looks so often in a row ... */
    TURNS_CROWDED = 4,       /* ... if others need the core, so often ... */
    YIELDING_US = 200,       /* ... then for so long between others; then it sleeps */
};

/* ---- windows ---- */

enum tutti_result tti_post_device(struct tti_post *post, const struct tti_gpu_ops *ops, int device)
{
    if (post->gpu && post->gpu->device != device)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                        "the window is on device %d, another of this rank's on device %d; a "
                        "communicator has one device a rank",
                        device, post->gpu->device);
    if (post->gpu)
        return TUTTI_OK;
    struct tti_gpu *gpu = NULL;
    tutti_stream stream = NULL;
    TTI_TRY(ops->open(device, &gpu));
    enum tutti_result result = ops->stream_create(gpu, &stream);
    if (result != TUTTI_OK) {
        ops->close(gpu);
        return result;
    }
    pthread_mutex_lock(&post->lock);
    post->ops = ops;
    post->gpu = gpu;
    post->stream = stream;
    pthread_mutex_unlock(&post->lock);
    return TUTTI_OK;
}

void tti_post_enlist(struct tti_post *post, struct tutti_window *window)
{
    pthread_mutex_lock(&post->lock);
    window->next = post->windows;
    post->windows = window;
    pthread_mutex_unlock(&post->lock);
}

void tti_post_delist(struct tti_post *post, struct tutti_window *window)
{
    pthread_mutex_lock(&post->lock);
    struct tutti_window **link = &post->windows;
    while (*link && *link != window)
        link = &(*link)->next;
    if (*link)
        *link = window->next;
    pthread_mutex_unlock(&post->lock);
}

/* ---- callers ---- */

/* Under the lock: a parcel of its own for what is small; NULL: the caller's will do. */
static struct tti_parcel *parcel_copy(struct tti_post *post, const struct tti_parcel *parcel)
{
    const size_t bytes = (size_t)parcel->head.bytes;
    if (bytes > COPIED_BYTES || post->copied + bytes + sizeof *parcel > COPIED_MOST)
        return NULL;
    struct tti_parcel *made = malloc(sizeof *made + bytes);
    if (!made)
        return NULL;
    *made = *parcel;
    made->copied = true;
    made->data = (const char *)(made + 1);
    if (bytes > 0)
        memcpy(made + 1, parcel->data, bytes);
    post->copied += bytes + sizeof *parcel;
    return made;
}

/* Wait for `changed`, until `peer` takes something, then see whether the communicator works still.
 * Under the lock, which is let go meanwhile. */
static enum tutti_result post_look(struct tti_post *post, int peer, uint64_t deadline)
{
    tti_record_waits(&post->comm->recorder.ring[0],
                     tti_deadline_begin(deadline, post->comm->settings.timeout_s), peer, true);
    const uint64_t look = tti_deadline_in(LOOK_MS / 1e3);
    (void)tti_cond_wait(&post->changed, &post->lock, look < deadline ? look : deadline);
    pthread_mutex_unlock(&post->lock);
    enum tutti_result result = tti_comm_listen(post->comm);
    pthread_mutex_lock(&post->lock);
    return result;
}

/* A parcel that will not be sent in time refers to memory of a caller who is about to return: end
 * the links, as after every failure of an operation. Bounded. Under the lock. */
static void parcel_recall(struct tti_post *post, const struct tti_parcel *parcel)
{
    post->stop = true;
    tti_comm_wake(post->wire);
    while (!parcel->done)
        pthread_cond_wait(&post->changed, &post->lock);
}

/* Until the thread has handed it back. Under the lock. */
static enum tutti_result parcel_await(struct tti_post *post, const struct tti_parcel *parcel,
                                      uint64_t deadline)
{
    enum tutti_result result = TUTTI_OK;
    while (!parcel->done && result == TUTTI_OK) {
        result = post_look(post, parcel->peer, deadline);
        if (result == TUTTI_OK && !parcel->done && tti_deadline_passed(deadline))
            result = TTI_FAIL(TUTTI_ERR_TIMEOUT, "rank %d (%s) did not take the data within %g s",
                              parcel->peer, post->comm->peers.all[parcel->peer].name,
                              post->comm->settings.timeout_s);
    }
    if (result == TUTTI_OK)
        return parcel->error->code == TUTTI_OK ? TUTTI_OK : tti_error_restore(parcel->error);
    struct tti_error error;
    tti_error_save(&error, result);
    parcel_recall(post, parcel);
    return tti_error_restore(&error);
}

/* The peer, or the post, is not there any more: the error says why. Under the lock. */
static enum tutti_result post_lost(const struct tti_post *post, int peer)
{
    if (post->peers[peer].gone)
        return tti_error_restore(&post->peers[peer].error);
    return post->error.code == TUTTI_OK ? TUTTI_OK : tti_error_restore(&post->error);
}

/* Who is gone may have died, which the bootstrap knows better. Takes the communicator's turn for
 * granted. */
static enum tutti_result post_explain(struct tti_post *post, enum tutti_result result)
{
    return result == TUTTI_ERR_PEER || result == TUTTI_ERR_LINK
               ? tti_comm_link_failed(post->comm, result)
               : result;
}

enum tutti_result tti_post_check(struct tti_post *post, int peer)
{
    pthread_mutex_lock(&post->lock);
    const enum tutti_result result = post_lost(post, peer);
    pthread_mutex_unlock(&post->lock);
    return post_explain(post, result);
}

/* Would a signal that is counted at once overtake nothing? */
static bool post_overtakes_nothing(const struct tti_post *post, int peer)
{
    const struct tti_post_peer *to = &post->peers[peer];
    return to->board && tti_load_acquire(&to->board->from[post->comm->rank].applied) == to->posted;
}

/* By the thread. Under the lock. */
static enum tutti_result post_give(struct tti_post *post, struct tti_parcel *parcel)
{
    struct tti_parcel *copy = parcel_copy(post, parcel);
    post->peers[parcel->peer].posted++;
    tti_parcel_append(&post->inbox, copy ? copy : parcel);
    tti_comm_wake(post->wire);
    return copy ? TUTTI_OK
                : parcel_await(post, parcel, tti_deadline_in(post->comm->settings.timeout_s));
}

enum tutti_result tti_post_send(struct tti_post *post, int peer, const struct tti_post_head *head,
                                const void *data)
{
    struct tti_error error = {.code = TUTTI_OK};
    struct tti_parcel parcel = {.head = *head, .peer = peer, .data = data, .error = &error};
    parcel.head.magic = TTI_POST_MAGIC;
    pthread_mutex_lock(&post->lock);
    enum tutti_result result = post_lost(post, peer);
    const bool direct =
        result == TUTTI_OK && head->bytes == 0 && post_overtakes_nothing(post, peer);
    if (result == TUTTI_OK && !direct)
        result = post_give(post, &parcel);
    pthread_mutex_unlock(&post->lock);
    if (direct)
        tti_board_count(post->peers[peer].board, post->comm->rank, head->signal);
    return post_explain(post, result);
}

void tti_post_signal_self(struct tti_post *post, int signal)
{
    tti_board_count(post->board, post->comm->rank, signal);
}

/* ---- waiting ---- */

static enum tutti_result wait_late(const struct tti_post *post, int peer, int signal,
                                   uint64_t count, uint64_t here)
{
    return TTI_FAIL(TUTTI_ERR_TIMEOUT, "of %llu signals %d from rank %d (%s) %llu came within %g s",
                    (unsigned long long)count, signal, peer, post->comm->peers.all[peer].name,
                    (unsigned long long)here, post->comm->settings.timeout_s);
}

/* Awake: sleeping and being woken takes longer than a put of a MiB. */
static bool wait_awake(const struct tti_post *post, const _Atomic uint64_t *word, uint64_t least)
{
    const bool crowded = tti_exec_crowded(post->comm);
    if (tti_board_spin(word, least, crowded ? TURNS_CROWDED : TURNS))
        return true;
    const uint64_t until = tti_now_ns() + (uint64_t)YIELDING_US * 1000;
    while (!tti_exec_background(post->comm) && tti_now_ns() < until) {
        sched_yield();
        if (tti_load_acquire(word) >= least)
            return true;
    }
    return false;
}

/* Until *word is `least` or more, asleep. */
static enum tutti_result wait_asleep(struct tti_post *post, int peer, const _Atomic uint64_t *word,
                                     uint64_t least)
{
    const double timeout_s = post->comm->settings.timeout_s;
    const uint64_t deadline = tti_deadline_in(timeout_s);
    while (tti_load_acquire(word) < least) {
        pthread_mutex_lock(&post->lock);
        const enum tutti_result lost = post_lost(post, peer);
        pthread_mutex_unlock(&post->lock);
        if (lost != TUTTI_OK) /* what it had sent has come before */
            return tti_load_acquire(word) < least ? lost : TUTTI_OK;
        tti_record_waits(&post->comm->recorder.ring[0], tti_deadline_begin(deadline, timeout_s),
                         peer, false);
        tti_board_sleep(post->board, word, least, tti_deadline_ms(deadline, LOOK_MS));
        TTI_TRY(tti_comm_listen(post->comm));
        if (tti_deadline_passed(deadline))
            break;
    }
    return TUTTI_OK;
}

/* Another communicator's failure may have cut off pages that this one's windows are of: then what
 * others have stored since is not here. */
static enum tutti_result wait_check_pages(struct tti_post *post)
{
    const uint64_t renewals = tti_region_renewals();
    bool cut_off = false;
    if (renewals == post->renewals)
        return TUTTI_OK;
    post->renewals = renewals;
    pthread_mutex_lock(&post->lock);
    for (const struct tutti_window *w = post->windows; w; w = w->next) {
        struct tti_region region = {.id = 0};
        cut_off |= w->region != 0 &&
                   (!tti_region_find(w->memory, w->bytes, &region) || region.id != w->region);
    }
    pthread_mutex_unlock(&post->lock);
    return cut_off ? TTI_FAIL(TUTTI_ERR_PEER,
                              "a window's memory was cut off from the other ranks, because another "
                              "communicator that used it failed; communicators in use at the same "
                              "time should have allocations of their own")
                   : TUTTI_OK;
}

enum tutti_result tti_post_wait(struct tti_post *post, int peer, int signal, uint64_t count)
{
    const _Atomic uint64_t *word = &post->board->from[peer].arrived[signal];
    uint64_t *waited = &post->waited[(size_t)peer * TUTTI_SIGNALS + (size_t)signal];
    const uint64_t least = *waited + count;
    enum tutti_result result = TUTTI_OK;
    if (!wait_awake(post, word, least))
        result = wait_asleep(post, peer, word, least);
    if (result != TUTTI_OK)
        return post_explain(post, result);
    const uint64_t here = tti_load_acquire(word);
    if (here < least)
        return wait_late(post, peer, signal, count, here - *waited);
    *waited = least;
    return wait_check_pages(post);
}
