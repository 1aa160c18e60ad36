/* Operations on the fused path that come again with the same buffers, as a program's do in its
 * inner loop (coll/fused.h).
 *
 * What the ranks tell each other is then what they told each other last time. It is told
 * nevertheless: only so does each know that the others' inputs are ready, and that they have not
 * chosen other buffers meanwhile. What falls away is selection, looking up memory, and the general
 * arithmetic of edges and views: a third of a microsecond, which is a fifth of an all-reduce of 64
 * KiB. A peer that has other buffers this time gets the general way, from where we are. */
#include "coll/fused_internal.h"

#include "base/atomic.h"
#include "base/memory.h"
#include "device/memory.h"
#include "device/reduce.h"

#include <stdlib.h>
#include <string.h>

enum {
    AGAIN_RANKS = 8, /* the most; with more the rest of the operation is long */
    /* Of a part, from which on it goes from the end every second time: what is touched for less
     * stays in the first-level cache anyway. */
    FROM_END_BYTES = 12 << 10,
    FROM_END_IN_PLACE = 24 << 10,
    /* On meshes, parts of all-reduces of this length are slower from the end where inputs are new
     * each time (measured: decisions.md). */
    FROM_END_NOT_FROM = 80 << 10,
    FROM_END_NOT_TO = 144 << 10,
};

struct again_peer {
    struct tti_fused_offer mine, theirs; /* not edged: the short ones */
    size_t in_bytes, out_bytes;          /* of theirs; 0: not mapped */
};

struct tti_fused_again {
    struct tti_operation o;
    uint64_t regions; /* tti_region_changes: own memory lies as it did */
    struct tti_selection selection;
    struct tti_record_known record;
    size_t in_count, out_count, touches;
    struct tti_fused_part part;
    bool from_end; /* this time */
    struct again_peer peer[AGAIN_RANKS];
};

static size_t again_slot(const struct tti_operation *o)
{
    uint64_t hash = (uint64_t)(uintptr_t)o->in * 3 + (uint64_t)(uintptr_t)o->out + o->count * 5 +
                    (uint64_t)o->collective;
    return (size_t)(hash * UINT64_C(0x9e3779b97f4a7c15) >> 62);
}
_Static_assert(TTI_FUSED_AGAIN == 4, "again_slot gives two bits");

static bool again_like(const struct tti_operation *a, const struct tti_operation *b)
{
    return a->in == b->in && a->out == b->out && a->count == b->count &&
           a->collective == b->collective && a->type == b->type && a->op == b->op &&
           a->root == b->root;
}

struct tti_fused_again *tti_fused_find(struct tutti_comm *comm, const struct tti_operation *o)
{
    struct tti_fused_again *found = comm->again[again_slot(o)];
    return found && again_like(&found->o, o) && found->regions == tti_region_changes() &&
                   tti_fused_class(comm, o)->skip == 0
               ? found
               : NULL;
}

void tti_fused_forget(struct tutti_comm *comm)
{
    for (int i = 0; i < TTI_FUSED_AGAIN; i++) {
        free(comm->again[i]);
        comm->again[i] = NULL;
    }
    comm->again_last = NULL;
}

void tti_fused_keep(const struct tti_fused_run *f, const struct tti_selection *selection,
                    uint64_t regions)
{
    struct tutti_comm *comm = f->comm;
    struct tti_fused_part part;
    struct tti_fused_again **slot = &comm->again[again_slot(f->o)];
    if (comm->size > AGAIN_RANKS || (unsigned)f->o->op >= TUTTI_OP_COUNT ||
        !tti_fused_part(comm, f->o, &part))
        return;
    for (int p = 0; p < comm->size; p++)
        if (p != comm->rank && (f->mine[p].edged || f->theirs[p].edged))
            return;
    if (!*slot && !(*slot = tti_calloc(1, sizeof **slot)))
        return; /* the general way needs none */
    struct tti_fused_again *made = *slot;
    made->o = *f->o;
    comm->again_last = made;
    made->regions = regions;
    made->selection = *selection;
    made->record = tti_record_of(f->o, TTI_RECORD_FUSED, selection->index, 1);
    made->in_count = f->in_count;
    made->out_count = f->out_count;
    made->touches = tti_fused_touches(f);
    made->part = part;
    for (int p = 0; p < comm->size; p++) {
        if (p == comm->rank)
            continue;
        struct again_peer *peer = &made->peer[p];
        peer->mine = f->mine[p];
        peer->theirs = f->theirs[p];
        peer->in_bytes = tti_fused_used(f, p, false) * f->size;
        peer->out_bytes = tti_fused_used(f, p, true) * f->size;
    }
}

static bool again_is(const struct tutti_place *a, const struct tutti_place *b)
{
    return a->region == b->region && a->offset == b->offset;
}

/* Offer the own buffers to a peer; false: it is not as it was. */
static bool again_offer(const struct tti_fused_run *f, struct tti_link *link,
                        const struct again_peer *peer)
{
    struct tutti_place place;
    if (f->in_count &&
        (!link->ops->offer(link->endpoint, f->o->in, f->in_count * f->size, &place) ||
         !again_is(&place, &peer->mine.in)))
        return false;
    return !f->out_count ||
           (link->ops->offer(link->endpoint, f->o->out, f->out_count * f->size, &place) &&
            again_is(&place, &peer->mine.out));
}

/* The peers' offers; *same: all are as they were, else f has them all. Those that are as they were
 * are not copied. */
static enum tutti_result again_hear(struct tti_fused_run *f, const struct tti_fused_again *again,
                                    bool *mappable, bool *same)
{
    const int rank = f->comm->rank, n = f->comm->size;
    uint64_t alike = 0; /* a bit a rank */
    _Static_assert(TTI_FUSED_RANKS <= 64, "a bit a rank");
    *mappable = *same = true;
    for (int k = 1; k < n; k++) {
        const int p = (rank + k) % n;
        struct tti_fused_offer *theirs = &f->theirs[p];
        const struct tti_fused_offer *known = &again->peer[p].theirs;
        if (tti_fused_heard(f, p, known, TTI_FUSED_OFFER_SHORT)) {
            alike |= UINT64_C(1) << p;
            continue;
        }
        TTI_TRY(tti_fused_receive(f, p, theirs, sizeof *theirs, theirs));
        *mappable = *mappable && theirs->mappable;
        *same = *same && theirs->mappable && !theirs->edged && again_is(&theirs->in, &known->in) &&
                again_is(&theirs->out, &known->out);
    }
    for (int p = 0; p < n && !*same; p++) { /* as the general way has them */
        if (p == rank)
            continue;
        f->mine[p] = again->peer[p].mine;
        if (alike >> p & 1)
            f->theirs[p] = again->peer[p].theirs;
        else if (!f->theirs[p].edged)
            memset((char *)&f->theirs[p] + TTI_FUSED_OFFER_SHORT, 0,
                   sizeof f->theirs[p] - TTI_FUSED_OFFER_SHORT);
    }
    return TUTTI_OK;
}

static enum tutti_result again_map(struct tti_fused_run *f, int p, const struct again_peer *peer,
                                   char **in, char **out)
{
    struct tti_link *link = &f->comm->links.all[p];
    void *at = NULL;
    enum tutti_result result = TUTTI_OK;
    if (peer->in_bytes)
        result = link->ops->map(link->endpoint, &peer->theirs.in, peer->in_bytes, &at);
    *in = at;
    if (result == TUTTI_OK && peer->out_bytes)
        result = link->ops->map(link->endpoint, &peer->theirs.out, peer->out_bytes, &at);
    *out = at;
    return result == TUTTI_OK ? TUTTI_OK : tti_comm_link_failed(f->comm, result);
}

/* Is it worth going from the end? Not where ranks take turns on cores: there the caches are left
 * with what the others did last. */
static bool again_is_long(const struct tutti_comm *comm, const struct tti_fused_again *again)
{
    const struct tti_operation *o = &again->o;
    const size_t least = o->in == o->out ? FROM_END_IN_PLACE : FROM_END_BYTES;
    const size_t bytes = again->part.count * tti_type_bytes(o->type);
    if (comm->profile.meshed && o->collective == TUTTI_ALL_REDUCE && bytes > FROM_END_NOT_FROM &&
        bytes < FROM_END_NOT_TO)
        return false;
    return !comm->crowded && bytes >= least;
}

/* Does it find in the caches what it left there? Not if another long one went over them since. */
static bool again_came_last(struct tutti_comm *comm, const struct tti_fused_again *again)
{
    if (!again_is_long(comm, again))
        return false;
    const bool last = comm->again_last == again;
    comm->again_last = again;
    return last;
}

static enum tutti_result again_share(struct tti_fused_run *f, const struct tti_fused_again *again)
{
    const int rank = f->comm->rank, n = f->comm->size;
    char *in[AGAIN_RANKS], *out[AGAIN_RANKS];
    for (int p = 0; p < n; p++)
        if (p != rank)
            TTI_TRY(again_map(f, p, &again->peer[p], &in[p], &out[p]));
    in[rank] = (char *)(uintptr_t)f->o->in;
    out[rank] = f->o->out;
    if (again_came_last(f->comm, again))
        tti_copy_expect_turns(tti_fused_and_others(again->touches), again->touches);
    else
        tti_copy_expect(tti_fused_and_others(again->touches));
    tti_fused_move(f->o, n, &again->part, in, out, again->from_end);
    TTI_TRY(tti_fused_through(f));
    if (tti_region_renewals() == f->renewals)
        return TUTTI_OK;
    for (int p = 0; p < n; p++)
        f->mine[p] = again->peer[p].mine;
    return tti_fused_check_pages(f);
}

/* While the peers' word is on its way: the beginning of the own part, which need not be waited for,
 * from the second-level cache into the first. Not its end: the core asks by itself for what lies
 * behind what it is asked for, which is the next rank's part, and that rank is writing there.
 * Outputs only of copies: a sum that goes to two places has no use for them (64 KiB 2.15 us with
 * them, 1.95 without). */
static void again_fetch(const struct tti_fused_run *f, const struct tti_fused_part *part)
{
    enum { MOST = 8192, GAP = 2048 };
    const int rank = f->comm->rank;
    const size_t all = part->count * f->size, inside = all > GAP ? all - GAP : 0;
    const size_t bytes = inside < MOST ? inside : MOST;
    const size_t from = part->from * f->size, to = part->to * f->size;
    const bool spreads = part->in_last - part->in_first > 1 && part->last - part->first > 1;
    if (part->own_in || (rank >= part->in_first && rank < part->in_last))
        for (size_t at = 0; at < bytes; at += TTI_CACHE_LINE)
            tti_prefetch_read((const char *)f->o->in + from + at);
    if (!spreads && (part->own_out || (rank >= part->first && rank < part->last)))
        for (size_t at = 0; at < bytes; at += TTI_CACHE_LINE)
            tti_prefetch_write((char *)f->o->out + to + at);
}

static enum tutti_result again_run(struct tti_fused_run *f, const struct tti_fused_again *again,
                                   bool *served)
{
    const int rank = f->comm->rank, n = f->comm->size;
    bool same = false;
    for (int k = 1; k < n; k++) {
        const int p = (rank + k) % n;
        TTI_TRY(tti_fused_send(f, p, &again->peer[p].mine, TTI_FUSED_OFFER_SHORT));
    }
    tti_fused_noted(f);
    if (!again->from_end) /* else it begins with what was last used */
        again_fetch(f, &again->part);
    TTI_TRY(again_hear(f, again, served, &same));
    f->comm->repeats += same;
    f->comm->repeats_from_end += same && again->from_end;
    if (same)
        return again_share(f, again);
    memset(&f->edges, 0, sizeof f->edges);
    TTI_TRY(tti_fused_rest(f, *served));
    if (*served) /* they may stay with it */
        tti_fused_keep(f, &again->selection, again->regions);
    return TUTTI_OK;
}

void tti_fused_by(struct tutti_comm *comm, const struct tti_fused_again *again)
{
    tti_record_by(&comm->recorder.ring[0], TTI_RECORD_FUSED, again->selection.index, 1);
}

void tti_fused_noted(struct tti_fused_run *f)
{
    const struct tti_fused_again *again = f->unnoted;
    struct tti_record_ring *ring = &f->comm->recorder.ring[0];
    const uint64_t sequence = f->comm->executor->label->sequence;
    f->unnoted = NULL;
    if (!again)
        return;
    if (__builtin_expect(again->record.bytes < TTI_RECORD_TIMED_BYTES, 1)) {
        tti_record_again(ring, &again->record, sequence);
        return;
    }
    tti_record_begin(ring, f->o, sequence);
    tti_fused_by(f->comm, again);
}

enum tutti_result tti_fused_repeat(struct tutti_comm *comm, struct tti_fused_again *again,
                                   const struct tti_operation *o, const struct tti_label *label,
                                   bool recorded, bool *served)
{
    struct tti_fused_run f;
    *served = false;
    tti_fused_begin(&f, comm, o, again->selection.index, label);
    f.unnoted = recorded ? NULL : again;
    f.in_count = again->in_count;
    f.out_count = again->out_count;
    for (int p = 0; p < comm->size; p++)
        if (p != comm->rank && !again_offer(&f, &comm->links.all[p], &again->peer[p])) {
            tti_fused_noted(&f);
            return tti_fused(comm, o, &again->selection, label, served);
        }
    f.offered = true;
    again->from_end = !again->from_end && again_is_long(comm, again);
    const enum tutti_result result = again_run(&f, again, served);
    return tti_fused_end(&f, result, *served);
}
