/* shm: two cores copy a fragment that lies in its sender's memory.
 *
 * A sender whose memory is read by process_vm_readv waits meanwhile. So the receiver offers it the
 * end of the place that it is about to fill (struct shm_share), reads the front, and looks again:
 * an offer that nobody has taken is taken back, and one that was taken is awaited. Who waits for a
 * fragment to be consumed takes what is offered and writes it with process_vm_writev.
 *
 * Nobody may write to a caller's memory after the call is over. Until `receive` returns the
 * receiver therefore waits for who has taken its offer. One that stands still is given time, and
 * then finds an empty range, because the kernel takes the range from the shared line: only a write
 * that is under way could still come, and that cannot be stopped by a signal; it has time again.
 * After that nothing is offered on this lane any more, so that the range stays empty. */
#include "transport/shm/shm.h"

#include "base/clock.h"
#include "base/memory.h"

#include <sched.h>

enum {
    SHARE_TURNS = 4096,      /* looks in a row, before others may have the core */
    SHARE_MISSED = 6,        /* offers are as rare as one in 2 to the power of this */
    SHARE_CHEAP = 512 << 10, /* a second call of the kernel is nothing beside so many bytes */
};
static const double share_patience_s = 1.0;

static uint64_t share_word(uint64_t number, enum shm_share_state state)
{
    return (number + 1) << 3 | state;
}

static bool share_pass(struct shm_share *share, uint64_t from, uint64_t to)
{
    return atomic_compare_exchange_strong(&share->state, &from, to);
}

/* ---- the receiver --------------------------------------------------------------------------- */

/* A peer that has something else to do, as in an all-gather, takes nothing, and then an offer only
 * cuts the reading in two: offer less and less often. */
static bool share_pauses(struct shm_in *in, size_t bytes)
{
    if (in->share_pause == 0 || bytes >= SHARE_CHEAP)
        return false;
    in->share_pause--;
    return true;
}

size_t tti_shm_share_offer(const struct shm_endpoint *self, struct shm_in *in, void *into,
                           size_t bytes)
{
    struct shm_share *share = in->share;
    const size_t half = bytes / 2 / SHM_PAGE * SHM_PAGE;
    if (half == 0 || bytes < self->transport->settings.share_from || in->share_over ||
        !tti_load_acquire(&self->theirs->reads_memory) || share_pauses(in, bytes))
        return bytes;
    const size_t own = half - (uintptr_t)into % TTI_CACHE_LINE; /* no line is written by both */
    share->offset = in->offset + own;
    atomic_store_explicit(&share->offered_ns, tti_now_ns(), memory_order_relaxed);
    share->into = (struct iovec){.iov_base = (char *)into + own, .iov_len = bytes - own};
    tti_store_release(&share->state, share_word(in->consumed, SHM_SHARE_OFFERED));
    return own;
}

/* The peer has taken the offer and says no more: true as soon as it has written all. */
static bool share_await(struct shm_endpoint *self, struct shm_in *in)
{
    const uint64_t taken = share_word(in->consumed, SHM_SHARE_TAKEN);
    uint64_t word = 0, deadline = 0;
    for (unsigned turn = 0; (word = tti_load_acquire(&in->share->state)) == taken; turn++) {
        if (turn < SHARE_TURNS) {
            tti_cpu_relax();
            continue;
        }
        tti_shm_endpoint_ready(self); /* has it died? */
        if (deadline == 0)
            deadline = tti_deadline_in(share_patience_s);
        const bool late = tti_deadline_passed(deadline);
        if (self->ended || (late && in->share_over))
            break;
        if (late) {
            in->share_over = true;
            __atomic_store_n(&in->share->into.iov_len, 0, __ATOMIC_SEQ_CST);
            deadline = tti_deadline_in(share_patience_s);
        }
        sched_yield();
    }
    return word == share_word(in->consumed, SHM_SHARE_DONE);
}

bool tti_shm_share_end(struct shm_endpoint *self, struct shm_in *in)
{
    const uint64_t offered = share_word(in->consumed, SHM_SHARE_OFFERED);
    const bool missed = share_pass(in->share, offered, SHM_SHARE_NONE);
    in->share_missed = !missed                           ? 0
                       : in->share_missed < SHARE_MISSED ? in->share_missed + 1
                                                         : SHARE_MISSED;
    in->share_pause = missed ? 1U << in->share_missed : 0;
    return !missed && share_await(self, in);
}

/* ---- the sender ----------------------------------------------------------------------------- */

void tti_shm_share_note(struct shm_out *out, const void *data)
{
    if (!out->lent)
        out->lent = tti_calloc(SHM_LINES, sizeof *out->lent);
    if (out->lent) /* or it is read by the receiver alone */
        out->lent[out->sent % SHM_LINES] = (struct shm_lent){out->sent, data};
}

/* A receiver that has read a good part of its own half before we came is soon through with the
 * rest as well, and its cache has that place. */
static bool share_fresh(const struct shm_share *share, size_t bytes_a_ns)
{
    const uint64_t bytes = __atomic_load_n(&share->into.iov_len, __ATOMIC_RELAXED);
    const uint64_t made = atomic_load_explicit(&share->offered_ns, memory_order_relaxed);
    return tti_now_ns() < made + bytes / bytes_a_ns;
}

/* [offset, bytes) of a fragment to where the peer wants it: all that it has offered, or false. */
static bool share_write(const struct shm_endpoint *self, struct shm_share *share,
                        const unsigned char *data, size_t bytes)
{
    const uint64_t offset = share->offset;
    const size_t want = __atomic_load_n(&share->into.iov_len, __ATOMIC_RELAXED);
    if (offset > bytes || want == 0 || want > bytes - offset)
        return false;
    const struct iovec here = {.iov_base = (void *)(uintptr_t)(data + offset), .iov_len = want};
    return process_vm_writev(self->pid, &here, 1, &share->into, 1, 0) == (ssize_t)want;
}

void tti_shm_share_help(const struct shm_endpoint *self, const struct shm_out *out)
{
    const uint64_t word = tti_load_acquire(&out->share->state), number = (word >> 3) - 1;
    if ((word & 7) != SHM_SHARE_OFFERED || !out->lent || self->ended ||
        number - out->freed >= out->sent - out->freed)
        return;
    const struct shm_lent *lent = &out->lent[number % SHM_LINES];
    const uint64_t taken = share_word(number, SHM_SHARE_TAKEN);
    if (lent->number != number || !lent->data ||
        !share_fresh(out->share, self->transport->settings.share_bytes_a_ns) ||
        !share_pass(out->share, word, taken))
        return;
    const bool done = share_write(self, out->share, lent->data, out->log[number % SHM_LINES].bytes);
    /* Fails when the peer has lost patience: then it does without. */
    (void)share_pass(out->share, taken,
                     share_word(number, done ? SHM_SHARE_DONE : SHM_SHARE_FAILED));
}
