/* shm: two cores copy a fragment that lies in its sender's memory.
 *
 * A sender whose memory is read by process_vm_readv waits meanwhile. So the receiver offers it the
 * end of the place that it is about to fill (struct shm_share), reads the front, and looks again:
 * an offer that nobody has taken is taken back, and one that was taken is awaited. Who waits for a
 * fragment to be consumed takes what is offered and writes it with process_vm_writev.
 *
 * Nobody may write to a caller's memory after the call is over. Until `receive` returns the
 * receiver therefore waits for who has taken its offer. One that stands still is given time, and
 * then finds an empty range, because the kernel takes the range from the shared line. But a call of
 * the kernel that has begun is not stopped by that, nor by a signal: the range is only given up
 * when no thread of the peer can be in such a call, as /proc tells of threads that are stopped or
 * sleep; of one that runs, or waits for a page, nothing is known, and that is waited for, as for a
 * page of one's own. Who is held up for longer than any machine should is an error. After that
 * nothing is offered on this lane any more, so that the range stays empty. */
#include "transport/shm/shm.h"

#include "base/clock.h"
#include "base/memory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SHARE_TURNS = 4096,      /* looks in a row, before others may have the core */
    SHARE_MISSED = 6,        /* offers are as rare as one in 2 to the power of this */
    SHARE_CHEAP = 512 << 10, /* a second call of the kernel is nothing beside so many bytes */
    SHARE_LOOK_US = 5000,    /* between two looks into /proc */
};
static const double share_patience_s = 1.0, share_limit_s = 60.0;

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
    atomic_store_explicit(&share->offset, in->offset + own, memory_order_relaxed);
    atomic_store_explicit(&share->offered_ns, tti_now_ns(), memory_order_relaxed);
    __atomic_store_n(&share->into.iov_base, (char *)into + own, __ATOMIC_RELAXED);
    __atomic_store_n(&share->into.iov_len, bytes - own, __ATOMIC_RELAXED);
    tti_store_release(&share->state, share_word(in->consumed, SHM_SHARE_OFFERED));
    return own;
}

/* The start of /proc/PID/task/TID/NAME; false if there is none. */
static bool share_proc(int tasks, const char *tid, const char *name, char *text, size_t bytes)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", tid, name);
    const int file = openat(tasks, path, O_RDONLY | O_CLOEXEC);
    const ssize_t got = file >= 0 ? read(file, text, bytes - 1) : -1;
    if (file >= 0)
        close(file);
    text[got > 0 ? got : 0] = 0;
    return got > 0;
}

/* Not in process_vm_writev, or stopped, which is never in the middle of it. */
static bool share_thread_is_out(int tasks, const char *tid)
{
    char text[512];
    if (!share_proc(tasks, tid, "stat", text, sizeof text))
        return faccessat(tasks, tid, F_OK, 0) != 0 && errno == ENOENT; /* it has ended */
    const char *name_end = strrchr(text, ')');
    if (name_end && name_end[1] && strchr("TtZXx", name_end[2]))
        return true;
    if (!share_proc(tasks, tid, "syscall", text, sizeof text) || strncmp(text, "running", 7) == 0)
        return false;
    return strtol(text, NULL, 10) != SYS_process_vm_writev;
}

/* Does the peer write to no range that it had before it was made empty? */
static bool share_peer_is_out(const struct shm_endpoint *self)
{
    char path[40], here[24];
    snprintf(path, sizeof path, "/proc/%ld/task", (long)self->pid);
    snprintf(here, sizeof here, "%ld", syscall(SYS_gettid)); /* ranks may be threads */
    DIR *tasks = opendir(path);
    if (!tasks) /* it has ended, or we have no room to look (too many open files) */
        return errno == ENOENT && access("/proc/self", F_OK) == 0;
    bool out = true;
    const struct dirent *task = NULL;
    do {
        errno = 0; /* which tells an error from the end */
        task = readdir(tasks);
        out = task ? task->d_name[0] == '.' || strcmp(task->d_name, here) == 0 ||
                         share_thread_is_out(dirfd(tasks), task->d_name)
                   : errno == 0;
    } while (out && task);
    closedir(tasks);
    return out;
}

/* What is taken now and not under way finds nothing to write to. */
static void share_give_up(struct shm_in *in)
{
    in->share_over = true;
    __atomic_store_n(&in->share->into.iov_len, 0, __ATOMIC_SEQ_CST);
}

/* The peer has taken the offer: wait until it does not write any more. */
static enum tutti_result share_await(struct shm_endpoint *self, struct shm_in *in, bool *written)
{
    const uint64_t taken = share_word(in->consumed, SHM_SHARE_TAKEN), begun = tti_now_ns();
    const uint64_t patience = tti_deadline_in(share_patience_s);
    const uint64_t limit = tti_deadline_in(share_limit_s);
    uint64_t word = 0;
    for (unsigned turn = 0; (word = tti_load_acquire(&in->share->state)) == taken; turn++) {
        if (turn < SHARE_TURNS) {
            tti_cpu_relax();
            continue;
        }
        tti_shm_endpoint_ready(self); /* has it left? */
        if (!in->share_over && (self->ended || tti_deadline_passed(patience)))
            share_give_up(in);
        if (!in->share_over) {
            sched_yield();
            continue;
        }
        if (share_peer_is_out(self))
            break;
        if (tti_deadline_passed(limit))
            return tti_shm_break(self, TTI_FAIL(TUTTI_ERR_LINK,
                                                "rank %d (%s) has been writing %zu bytes here for "
                                                "%.0f s (TUTTI_SHM_SHARE_FROM=1T does without)",
                                                self->peer->rank, self->peer->name,
                                                (size_t)(in->bytes - in->share->offset),
                                                (double)(tti_now_ns() - begun) / 1e9));
        usleep(SHARE_LOOK_US);
    }
    *written = word == share_word(in->consumed, SHM_SHARE_DONE);
    return TUTTI_OK;
}

enum tutti_result tti_shm_share_end(struct shm_endpoint *self, struct shm_in *in, bool *written)
{
    const uint64_t offered = share_word(in->consumed, SHM_SHARE_OFFERED);
    *written = false;
    if (!share_pass(in->share, offered, SHM_SHARE_NONE))
        TTI_TRY(share_await(self, in, written));
    const unsigned missed = in->share_missed + (in->share_missed < SHARE_MISSED);
    in->share_missed = *written ? 0 : missed;
    in->share_pause = *written ? 0 : 1U << missed;
    return TUTTI_OK;
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
    const uint64_t offset = atomic_load_explicit(&share->offset, memory_order_relaxed);
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
