/* Going to sleep, and being woken (shm.c says how).
 *
 * Who publishes something and then looks whether the peer sleeps, and who says that it sleeps and
 * then looks for what was published, need a fence each between the two. A sleeper whose `fences` is
 * 1 does both by membarrier, which interrupts each processor that runs a process like ours: 1 us
 * where none does, but up to 15 us in a virtual machine, and 10 for whom it interrupts. That is
 * right for those who sleep now and then, and too much for those who sleep at each message, as
 * threads in the background do. So each sleeper reckons what its way costs, and what the other one
 * would, and changes over when it is behind.
 *
 * How it takes back that it fences for its peers: `fences` is cleared before a last membarrier. Who
 * read 1 had published before that, and what comes before the read comes before the peer's side of
 * the membarrier, too, as the read itself does: so the sleeper sees it, now and at each later look.
 * Who reads 0 fences for itself. It does so for a while after 1 is said again, which is for nothing
 * and does no harm: the sleeper says it before the first sleep that relies on it. */
#include "base/clock.h"
#include "transport/shm/shm.h"

#include <linux/membarrier.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SLEEP_FENCE_NS = 32,   /* what a message takes longer by a fence of its sender (measured: 27) */
    SLEEP_MOST_NS = 25000, /* a membarrier that took longer was held up */
    SLEEP_BEHIND_NS = 100000, /* lost, or not saved, before the other way is gone over to */
    SLEEP_SAMPLES = 8,
};

/* ---- fences --------------------------------------------------------------------------------- */

bool tti_shm_fence_all(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
}

/* Register this process, and see whether it works. */
static bool sleep_fences_work(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0 &&
           tti_shm_fence_all();
}

void tti_shm_prepare(void)
{
    (void)sleep_fences_work(); /* tti_shm_fences_begin asks again, and is told at once */
}

void tti_shm_fences_begin(struct shm_transport *self)
{
    self->fences = sleep_fences_work();
    self->fences_for_both = self->fences;
}

static void sleep_tell(struct shm_transport *self, bool fences)
{
    for (struct shm_endpoint *e = self->endpoints; e; e = e->next)
        if (e->ours)
            tti_store_release(&e->ours->fences, fences ? 1 : 0);
}

static int64_t sleep_within(int64_t ns, int64_t most)
{
    return ns > most ? most : ns < -most ? -most : ns;
}

/* Since the last time, fencing for both took us `spent_ns`, or would have. */
static void sleep_reckon(struct shm_transport *self, int64_t spent_ns)
{
    uint64_t taken = 0;
    for (struct shm_endpoint *e = self->endpoints; e; e = e->next)
        for (int i = 0; e->lane && i < e->lanes; i++)
            taken += e->lane[i].in.consumed;
    uint64_t came = taken > self->taken ? taken - self->taken : 0; /* or an endpoint is gone */
    if (came > SLEEP_BEHIND_NS)
        came = SLEEP_BEHIND_NS;
    self->taken = taken;
    self->saved_ns =
        sleep_within(self->saved_ns + (int64_t)came * SLEEP_FENCE_NS - spent_ns, SLEEP_BEHIND_NS);
}

/* Begin to fence for both, if that is better. */
static void sleep_settle(struct shm_transport *self)
{
    if (!self->fences || self->fences_for_both || self->saved_ns < SLEEP_BEHIND_NS)
        return;
    self->fences_for_both = true;
    sleep_tell(self, true);
}

void tti_shm_stays_awake(struct shm_transport *self)
{
    if (!self->fences || self->fences_for_both)
        return;
    sleep_reckon(self, 0);
    sleep_settle(self);
}

/* Fence for both, and see how long it takes. */
static bool sleep_fence_all(struct shm_transport *self)
{
    const uint64_t begun = tti_now_ns();
    if (!tti_shm_fence_all())
        return false;
    const int64_t took_ns = sleep_within((int64_t)(tti_now_ns() - begun), SLEEP_MOST_NS);
    self->fence_all_ns += (took_ns - self->fence_all_ns) / SLEEP_SAMPLES;
    sleep_reckon(self, took_ns);
    return true;
}

/* Between saying that we sleep and looking for news. False: what was published may not be seen. */
static bool sleep_fence(struct shm_transport *self)
{
    if (self->fences && !self->fences_for_both) {
        sleep_reckon(self, self->fence_all_ns);
        sleep_settle(self);
    }
    tti_full_fence(); /* pairs with the one in tti_shm_ring */
    if (!self->fences_for_both)
        return true;
    const bool last = self->saved_ns <= -SLEEP_BEHIND_NS;
    if (last)
        sleep_tell(self, false);
    if (!sleep_fence_all(self))
        return false;
    self->fences_for_both = !last;
    return true;
}

/* ---- sleeping ------------------------------------------------------------------------------- */

void tti_shm_wake(struct shm_endpoint *self)
{
    if (atomic_exchange(&self->theirs->sleeping, 0)) { /* whoever clears the flag writes, once */
        uint64_t one = 1;
        ssize_t ignored = write(self->bell, &one, sizeof one);
        (void)ignored; /* EAGAIN: the counter is full, so the peer is awake */
    }
}

int tti_shm_fd(void *transport)
{
    return ((struct shm_transport *)transport)->epoll;
}

/* Each flag that is gone is one ring, which comes late where its peer was held up in between: until
 * it is read `wake` would wake at once whoever sleeps. */
void tti_shm_disarm(void *transport)
{
    struct shm_transport *self = transport;
    uint64_t rings = 0;
    for (struct shm_endpoint *e = self->endpoints; self->armed && e; e = e->next)
        if (e->ours)
            self->owed += atomic_exchange(&e->ours->sleeping, 0) == 0;
    self->armed = false;
    if (self->owed > 0 && read(self->wake, &rings, sizeof rings) == sizeof rings)
        self->owed -= rings < self->owed ? rings : self->owed;
    self->look = true;
}

/* Has anything changed that the caller has not been told of? Counts as told from here on. What came
 * back from the peer may have been seen by a call that was asked for something else, so that counts
 * until it was told here. */
static bool sleep_news(struct shm_endpoint *self)
{
    bool news = self->state == SHM_KNOCKING || self->state == SHM_WELCOMING ||
                self->state != self->known_state;
    self->known_state = self->state;
    if (!self->ours)
        return news;
    bool end = self->ended || self->state == SHM_FAILED ||
               tti_load_acquire(&self->theirs->left) != SHM_THERE;
    news = news || end != self->known_end;
    self->known_end = end;
    for (int i = 0; i < self->lanes; i++) {
        struct shm_lane *lane = &self->lane[i];
        uint64_t arrived = tti_shm_arrived(&lane->in);
        (void)tti_shm_collect(&lane->out);
        news = news || lane->out.freed != lane->out.known_freed || arrived != lane->in.known;
        lane->out.known_freed = lane->out.freed;
        lane->in.known = arrived;
    }
    return news;
}

bool tti_shm_arm(void *transport)
{
    struct shm_transport *self = transport;
    bool news = false;
    if (self->look)
        tti_shm_look(self); /* or the sockets would wake us again for what they said before */
    for (struct shm_endpoint *e = self->endpoints; e; e = e->next)
        if (e->ours)
            atomic_store_explicit(&e->ours->sleeping, 1, memory_order_relaxed);
    self->armed = true;
    if (!sleep_fence(self))
        news = true; /* it may be asked again, but without it nobody may sleep */
    for (struct shm_endpoint *e = self->endpoints; e; e = e->next)
        news = sleep_news(e) || news;
    if (news)
        tti_shm_disarm(self);
    return !news;
}
