/* The staged path (coll/staged.h).
 *
 * An operation goes in windows. A rank fills windows of its stage (coll/stage.h) ahead of the one
 * that it combines, and sends what it can; what the transport has no room for is offered again
 * whenever it waits. It waits for room until all peers have read what was there before: that is
 * older than the window it combines next, so peers that are behind get on without it. */
#include "coll/staged.h"

#include "base/clock.h"
#include "base/memory.h"
#include "coll/exec_internal.h"
#include "coll/fused.h"
#include "device/cpu_caches.h"
#include "device/memory.h"
#include "device/reduce.h"

#include <stdlib.h>
#include <string.h>

enum { AHEAD = 2 }; /* windows filled before the first is combined; fewer than TTI_STAGED_MUTUAL */

/* Broadcasts that find their windows there: fitted. */
static const double AHEAD_TOUCHED = 1.3;

/* How far a peer has been sent the windows. */
struct staged_peer {
    size_t window, offset; /* bytes of that window which are sent */
};

struct staged {
    struct tutti_comm *comm;
    const struct tti_operation *o;
    struct tti_stage *stage; /* used by who gives */
    uint64_t tag;
    uint64_t first; /* number of window 0 in the stage */
    struct tti_stage_limit limit;
    size_t size;          /* of an element */
    size_t window, count; /* elements of a block that one covers; windows */
    size_t filled;        /* windows, of this operation */
    bool gives, takes;    /* does this rank send, does it receive? */
    bool moved;           /* the transport took something */
    unsigned idle;
    uint64_t deadline; /* 0: nothing had to be waited for long enough to look at the clock */
    struct staged_peer peer[TTI_STAGED_RANKS];
};

bool tti_staged_serves(enum tutti_collective collective, int ranks)
{
    return ranks > 1 && ranks <= TTI_STAGED_RANKS &&
           (collective == TUTTI_ALL_REDUCE || collective == TUTTI_BROADCAST ||
            collective == TUTTI_ALL_GATHER);
}

size_t tti_staged_windows(size_t bytes, size_t ahead)
{
    const size_t room = tti_stage_room(bytes);
    const size_t count = (bytes + TTI_STAGED_WINDOW - 1) / TTI_STAGED_WINDOW;
    const size_t most = TTI_STAGED_LARGE / TTI_STAGED_WINDOW;
    if (bytes < TTI_STAGED_WINDOW)
        return room * TTI_STAGE_WINDOWS <= TTI_STAGE_BYTES ? TTI_STAGE_WINDOWS
                                                           : TTI_STAGE_BYTES / room;
    return ahead == 0 || count > most / ahead ? most : ahead * count;
}

double tti_staged_touched(enum tutti_collective collective, int ranks, double bytes)
{
    const double n = ranks;
    if (collective == TUTTI_ALL_REDUCE)
        return 2 + n + 1;
    if (collective == TUTTI_ALL_GATHER)
        return 2 + 2 * n;
    /* Two by each. The readers wait for a part of the root's, if they wait for the root. */
    return bytes < TTI_STAGED_WINDOW ? AHEAD_TOUCHED : 2.6;
}

/* ---- sending -------------------------------------------------------------------------------- */

static size_t staged_elements(const struct staged *s, size_t window)
{
    const size_t left = s->o->count - window * s->window;
    return left < s->window ? left : s->window;
}

/* Send the peer what is filled, as far as there is room. */
static enum tutti_result staged_offer(struct staged *s, int p)
{
    struct tti_link *link = &s->comm->links.all[p];
    struct staged_peer *to = &s->peer[p];
    while (to->window < s->filled) {
        const size_t bytes = staged_elements(s, to->window) * s->size;
        const char *data = tti_stage_at(s->stage, s->first + to->window);
        size_t accepted = 0;
        enum tutti_result result =
            link->lend(link->endpoint, 0, s->tag, data + to->offset, bytes - to->offset, &accepted);
        if (result != TUTTI_OK)
            return tti_comm_link_failed(s->comm, result);
        if (accepted == 0)
            return TUTTI_OK;
        s->moved = true;
        link->queues[0].accepted += accepted;
        to->offset += accepted;
        if (to->offset == bytes) {
            *tti_stage_end(s->stage, s->first + to->window, p) = link->queues[0].accepted;
            to->window++;
            to->offset = 0;
        }
    }
    return TUTTI_OK;
}

static enum tutti_result staged_offer_all(struct staged *s)
{
    const int n = s->comm->size;
    for (int k = 1; k < n && s->gives; k++)
        TTI_TRY(staged_offer(s, (s->comm->rank + k) % n));
    return TUTTI_OK;
}

/* Looks before the core is offered to others. A root that may be far ahead comes with its next
 * window soon; one that is held near its readers waits for those on this core. On a mesh more looks
 * were not measured. */
static unsigned staged_turns(const struct staged *s, bool sends)
{
    enum { TURNS = 2 };
    const bool follows = s->o->collective == TUTTI_BROADCAST && !sends &&
                         !s->comm->profile.meshed && s->o->count * s->size < TTI_STAGED_WINDOW;
    return follows ? TTI_TURNS_FOLLOWING : TURNS;
}

/* One more turn in which nothing came from the peer, or nothing was taken by it. */
static enum tutti_result staged_wait(struct staged *s, int peer, bool sends)
{
    const unsigned turns = staged_turns(s, sends);
    s->moved = false;
    TTI_TRY(staged_offer_all(s));
    if (s->moved) /* perhaps for this: the core is not given away before that is known */
        return TUTTI_OK;
    if (++s->idle < turns) {
        tti_cpu_relax();
        return TUTTI_OK;
    }
    if (s->deadline == 0)
        s->deadline = tti_deadline_in(s->comm->settings.timeout_s);
    s->comm->executor->fast_peer = peer;
    s->comm->executor->fast_sends = sends;
    return tti_exec_idle(s->comm->executor, s->idle - turns, s->deadline);
}

/* Wait until all peers are sent the first `windows`. */
static enum tutti_result staged_sent(struct staged *s, size_t windows)
{
    for (int p = 0; p < s->comm->size && s->gives; p++)
        while (p != s->comm->rank && s->peer[p].window < windows)
            TTI_TRY(staged_wait(s, p, true));
    return TUTTI_OK;
}

/* What a network has accepted goes on only while somebody looks after it; memory is there at once.
 * Where ranks of a host have no memory in common, they are not expected here. */
static enum tutti_result staged_gone(struct staged *s)
{
    for (int p = 0; p < s->comm->size && s->gives; p++) {
        const struct tti_link *link = &s->comm->links.all[p];
        while (p != s->comm->rank && !tti_link_in_memory(link) &&
               link->ops->released(link->endpoint, 0) < link->queues[0].accepted)
            TTI_TRY(staged_wait(s, p, true));
    }
    return TUTTI_OK;
}

/* Copy the next window into the stage, when there is room, and send it. */
static enum tutti_result staged_fill(struct staged *s)
{
    const size_t bytes = staged_elements(s, s->filled) * s->size;
    int behind = -1;
    while (!tti_stage_take(s->comm, bytes, &s->limit, &behind))
        TTI_TRY(staged_wait(s, behind, true));
    /* Into the caches, whatever the size: the peers read it there at once. */
    memcpy(tti_stage_at(s->stage, s->first + s->filled),
           (const char *)s->o->in + s->filled * s->window * s->size, bytes);
    s->filled++;
    return staged_offer_all(s);
}

/* ---- receiving ------------------------------------------------------------------------------ */

/* Elements of the message from the peer that lie at *data, at least one; *n shrinks to them. */
static enum tutti_result staged_peek(struct staged *s, int p, const void **data, size_t *n)
{
    struct tti_link *link = &s->comm->links.all[p];
    for (;;) {
        size_t bytes = 0;
        uint64_t tag = s->tag;
        enum tutti_result result = link->ops->peek(link->endpoint, 0, &tag, data, &bytes);
        if (result != TUTTI_OK)
            return tti_comm_link_failed(s->comm, result);
        if (bytes > 0 && tag != s->tag)
            return tti_exec_mismatch(s->comm->executor, p, s->tag, tag);
        if (bytes > 0) {
            *n = bytes / s->size < *n ? bytes / s->size : *n;
            s->idle = 0;
            return TUTTI_OK;
        }
        TTI_TRY(staged_wait(s, p, false));
    }
}

/* The elements that were peeked are used. */
static enum tutti_result staged_consume(struct staged *s, int p, size_t n)
{
    struct tti_link *link = &s->comm->links.all[p];
    const enum tutti_result result = tti_link_intact(link, 0);
    if (result != TUTTI_OK)
        return tti_comm_link_failed(s->comm, result);
    link->ops->consume(link->endpoint, 0, n * s->size);
    return TUTTI_OK;
}

/* Combine a window of all ranks' inputs, the own among them, into the output. */
static enum tutti_result staged_combine(struct staged *s, size_t window)
{
    const struct tti_operation *o = s->o;
    const int ranks = s->comm->size, rank = s->comm->rank;
    const bool sums = o->op == TUTTI_AVG || (unsigned)o->op >= TUTTI_OP_USER;
    const struct tti_finish finish = {o->op == TUTTI_AVG, ranks};
    const size_t begin = window * s->window, count = staged_elements(s, window);
    for (size_t done = 0; done < count;) {
        const void *srcs[TTI_STAGED_RANKS];
        void *dst = (char *)o->out + (begin + done) * s->size;
        size_t n = count - done;
        srcs[rank] = (const char *)o->in + (begin + done) * s->size;
        for (int k = 1; k < ranks; k++)
            TTI_TRY(staged_peek(s, (rank + k) % ranks, &srcs[(rank + k) % ranks], &n));
        tti_fuse(sums ? TUTTI_SUM : o->op, o->type, &dst, 1, srcs, ranks, n, &finish, false);
        for (int k = 1; k < ranks; k++)
            TTI_TRY(staged_consume(s, (rank + k) % ranks, n));
        done += n;
    }
    return TUTTI_OK;
}

/* Copy a window of a peer's input to `to`. */
static enum tutti_result staged_copy(struct staged *s, int p, size_t window, char *to)
{
    const size_t count = staged_elements(s, window);
    for (size_t done = 0; done < count;) {
        const void *data = NULL;
        size_t n = count - done;
        TTI_TRY(staged_peek(s, p, &data, &n));
        tti_copy_bytes(to + done * s->size, data, n * s->size);
        TTI_TRY(staged_consume(s, p, n));
        done += n;
    }
    return TUTTI_OK;
}

static enum tutti_result staged_take(struct staged *s, size_t window)
{
    const struct tti_operation *o = s->o;
    const int ranks = s->comm->size, rank = s->comm->rank;
    const size_t at = window * s->window * s->size, block = o->count * s->size;
    char *out = (char *)o->out + at;
    if (o->collective == TUTTI_ALL_REDUCE)
        return staged_combine(s, window);
    if (o->collective == TUTTI_BROADCAST && rank != o->root)
        return staged_copy(s, o->root, window, out);
    char *own = o->collective == TUTTI_ALL_GATHER ? out + (size_t)rank * block : out;
    const char *in = (const char *)o->in + at;
    if (own != in)
        tti_copy_bytes(own, in, staged_elements(s, window) * s->size);
    for (int k = 1; k < ranks && s->takes; k++) {
        const int p = (rank + k) % ranks;
        TTI_TRY(staged_copy(s, p, window, out + (size_t)p * block));
    }
    return TUTTI_OK;
}

/* ---- the operation -------------------------------------------------------------------------- */

static enum tutti_result staged_run(struct staged *s)
{
    for (size_t window = 0; window < s->count; window++) {
        while (s->gives && s->filled < s->count && s->filled < window + AHEAD)
            TTI_TRY(staged_fill(s));
        TTI_TRY(staged_take(s, window));
    }
    TTI_TRY(staged_sent(s, s->count));
    return staged_gone(s);
}

static enum tutti_result staged_links(struct staged *s, const struct tti_label *label)
{
    int peers[TTI_STAGED_RANKS], count = 0;
    for (int p = 0; p < s->comm->size; p++)
        if (p != s->comm->rank && !s->comm->links.all[p].connected &&
            (s->o->collective != TUTTI_BROADCAST || s->gives || p == s->o->root))
            peers[count++] = p;
    if (count == 0)
        return TUTTI_OK;
    return tti_links_connect(s->comm, peers, count, tti_deadline_in(s->comm->settings.timeout_s),
                             label);
}

/* A broadcast of large blocks goes through all that such have: what was just written is read faster
 * when it has left the writer's first-level cache. */
static struct tti_stage_limit staged_limit(const struct staged *s)
{
    const size_t block = s->o->count * s->size, ahead = s->comm->settings.staged_ahead;
    const size_t most = block < TTI_STAGED_WINDOW ? block : TTI_STAGED_WINDOW;
    const size_t room = tti_stage_room(most);
    if (s->o->collective != TUTTI_BROADCAST)
        return (struct tti_stage_limit){TTI_STAGED_MUTUAL, TTI_STAGED_MUTUAL * room};
    const size_t windows = tti_staged_windows(block, ahead);
    return (struct tti_stage_limit){windows,
                                    most < TTI_STAGED_WINDOW ? windows * room : TTI_STAGED_LARGE};
}

/* For how much the caches must have room: the buffers, as on the fused path, since what lies in the
 * slots is read again and again; half of them in clusters, as in the executor (exec_cached). */
static size_t staged_cached(const struct staged *s)
{
    const struct tutti_comm *comm = s->comm;
    const double touched = tti_fused_touched(s->o->collective, comm->size) * (double)s->o->count *
                           (double)s->size * comm->peers.local_size;
    return (size_t)(tti_cpu_meshed() ? touched : touched / 2);
}

enum tutti_result tti_staged(struct tutti_comm *comm, const struct tti_operation *o,
                             const struct tti_label *label)
{
    struct tti_executor *x = comm->executor;
    struct staged s;
    s.gives = o->collective != TUTTI_BROADCAST || comm->rank == o->root;
    s.takes = o->collective != TUTTI_BROADCAST || comm->rank != o->root;
    if (s.gives)
        TTI_TRY(tti_stage_make(comm));
    s.comm = comm;
    s.o = o;
    s.stage = comm->stage;
    s.tag = tti_tag_numbered(tti_tag_staged(o), label->sequence);
    s.first = s.gives ? comm->stage->filled : 0;
    s.size = tutti_type_size(o->type);
    s.window = TTI_STAGED_WINDOW / s.size;
    s.count = (o->count + s.window - 1) / s.window;
    s.limit = staged_limit(&s);
    s.filled = 0;
    s.idle = 0;
    s.deadline = 0;
    memset(s.peer, 0, (size_t)comm->size * sizeof s.peer[0]);
    x->label = label;
    x->lane_count = 0;
    TTI_TRY(staged_links(&s, label));
    tti_copy_expect(staged_cached(&s));
    enum tutti_result result = staged_run(&s);
    x->fast_peer = -1;
    comm->staged += result == TUTTI_OK;
    return result;
}
