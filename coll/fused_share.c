/* What each rank does on the fused path (coll/fused.h): its share of the inputs, combined in the
 * order of ranks, into the outputs.
 *
 * In place: a rank's share is the only part of any buffer that it writes, and nobody else reads
 * that part, except block for block before it is overwritten (device/fuse.c). */
#include "coll/fused.h"

#include "base/types.h"
#include "coll/algorithms/algorithms.h"
#include "coll/comm.h"
#include "device/reduce.h"

static const struct {
    const struct tti_algorithm *equal;
    enum tti_fused_whose in, out;
} fused_table[TUTTI_COLLECTIVE_COUNT] = {
    [TUTTI_ALL_REDUCE] = {&tti_two_shot_all_reduce, TTI_FUSED_ALL, TTI_FUSED_ALL},
    [TUTTI_REDUCE_SCATTER] = {&tti_direct_reduce_scatter, TTI_FUSED_ALL, TTI_FUSED_NOBODY},
    [TUTTI_ALL_GATHER] = {&tti_direct_all_gather, TTI_FUSED_NOBODY, TTI_FUSED_ALL},
    [TUTTI_BROADCAST] = {&tti_scatter_gather_broadcast, TTI_FUSED_ROOT, TTI_FUSED_ALL},
    [TUTTI_REDUCE] = {&tti_direct_reduce, TTI_FUSED_ALL, TTI_FUSED_ROOT},
    [TUTTI_GATHER] = {&tti_direct_gather, TTI_FUSED_NOBODY, TTI_FUSED_ROOT},
    [TUTTI_SCATTER] = {&tti_direct_scatter, TTI_FUSED_ROOT, TTI_FUSED_NOBODY},
    [TUTTI_ALL_TO_ALL] = {&tti_direct_all_to_all, TTI_FUSED_NOBODY, TTI_FUSED_ALL},
};

const struct tti_algorithm *tti_fused_equal(enum tutti_collective collective)
{
    return fused_table[collective].equal;
}

enum tti_fused_whose tti_fused_in(enum tutti_collective collective)
{
    return fused_table[collective].in;
}

enum tti_fused_whose tti_fused_out(enum tutti_collective collective)
{
    return fused_table[collective].out;
}

double tti_fused_blocks(enum tutti_collective collective, int ranks)
{
    bool one = collective == TUTTI_ALL_REDUCE || collective == TUTTI_BROADCAST ||
               collective == TUTTI_REDUCE;
    return one ? 1 : ranks;
}

double tti_fused_reads(enum tutti_collective collective, int ranks)
{
    if (collective == TUTTI_BROADCAST)
        return 1.0 / ranks;
    return collective == TUTTI_REDUCE_SCATTER || collective == TUTTI_ALL_TO_ALL ? ranks : 1;
}

double tti_fused_writes(enum tutti_collective collective, int ranks)
{
    if (collective == TUTTI_REDUCE)
        return 1.0 / ranks;
    return collective == TUTTI_ALL_GATHER || collective == TUTTI_ALL_TO_ALL ? ranks : 1;
}

double tti_fused_touched(enum tutti_collective collective, int ranks)
{
    return tti_fused_reads(collective, ranks) + tti_fused_writes(collective, ranks);
}

struct share {
    const struct tti_operation *o;
    const struct tti_fused_views *views;
    int rank, n;
    size_t size;   /* of an element */
    bool from_end; /* see tti_fuse */
};

/* The address of element `at`; *run is cut to the elements that lie there in one piece. */
static char *share_at(const struct share *s, const struct tti_fused_view *view, size_t at,
                      size_t *run)
{
    size_t end = SIZE_MAX;
    char *address = view->middle + at * s->size;
    if (at < view->head_end) {
        address = view->head + at * s->size;
        end = view->head_end;
    } else if (at < view->tail_begin) {
        end = view->tail_begin;
    } else {
        address = view->tail + (at - view->tail_begin) * s->size;
    }
    if (end - at < *run)
        *run = end - at;
    return address;
}

static void share_fuse(const struct share *s, const struct tti_fused_part *part, void *const *dsts,
                       const void *const *srcs, size_t count)
{
    const struct tti_operation *o = s->o;
    const bool sums = o->op == TUTTI_AVG || (unsigned)o->op >= TUTTI_OP_USER;
    const struct tti_finish finish = {o->op == TUTTI_AVG, s->n};
    const int sources = part->in_last - part->in_first;
    tti_fuse(sums || sources < 2 ? TUTTI_SUM : o->op, o->type, dsts, part->last - part->first, srcs,
             sources, count, sources > 1 ? &finish : NULL, s->from_end);
}

static void share_move(const struct share *s, const struct tti_fused_part *part)
{
    const struct tti_operation *o = s->o;
    const void *srcs[TTI_FUSED_RANKS];
    void *dsts[TTI_FUSED_RANKS];
    for (size_t done = 0; done < part->count;) {
        size_t run = part->count - done, from = part->from + done, to = part->to + done;
        if (part->own_in)
            srcs[0] = (const char *)o->in + from * s->size;
        for (int r = part->in_first; r < part->in_last && !part->own_in; r++)
            srcs[r - part->in_first] = share_at(s, &s->views->in[r], from, &run);
        if (part->own_out)
            dsts[0] = (char *)o->out + to * s->size;
        for (int r = part->first; r < part->last && !part->own_out; r++)
            dsts[r - part->first] = share_at(s, &s->views->out[r], to, &run);
        share_fuse(s, part, dsts, srcs, run);
        done += run;
    }
}

void tti_fused_move(const struct tti_operation *o, int ranks, const struct tti_fused_part *part,
                    char *const *in, char *const *out, bool from_end)
{
    const struct share s = {o, NULL, -1, ranks, tti_type_bytes(o->type), from_end};
    const void *srcs[TTI_FUSED_RANKS];
    void *dsts[TTI_FUSED_RANKS];
    for (int r = part->in_first; r < part->in_last; r++)
        srcs[r - part->in_first] =
            (part->own_in ? (const char *)o->in : in[r]) + part->from * s.size;
    for (int r = part->first; r < part->last; r++)
        dsts[r - part->first] = (part->own_out ? (char *)o->out : out[r]) + part->to * s.size;
    share_fuse(&s, part, dsts, srcs, part->count);
}

/* What this rank does; an all-to-all is one block for each rank. */
static struct tti_fused_part share_part(const struct share *s, enum tutti_collective collective)
{
    const int n = s->n, rank = s->rank, root = s->o->root;
    const size_t begin = tti_chunk_begin(s->o->count, s->size, (uint32_t)n, (uint32_t)rank);
    const size_t part =
        tti_chunk_begin(s->o->count, s->size, (uint32_t)n, (uint32_t)rank + 1) - begin;
    const size_t own = (size_t)rank * s->o->count, all = s->o->count;
    switch (collective) {
    case TUTTI_REDUCE:
        return (struct tti_fused_part){begin, begin, part, 0, n, root, root + 1, false, false};
    case TUTTI_REDUCE_SCATTER:
        return (struct tti_fused_part){own, 0, all, 0, n, rank, rank + 1, false, true};
    case TUTTI_BROADCAST:
        return (struct tti_fused_part){begin, begin, part, root, root + 1, 0, n, false, false};
    case TUTTI_ALL_GATHER:
        return (struct tti_fused_part){0, own, all, rank, rank + 1, 0, n, true, false};
    case TUTTI_GATHER:
        return (struct tti_fused_part){0, own, all, rank, rank + 1, root, root + 1, true, false};
    case TUTTI_SCATTER:
        return (struct tti_fused_part){own, 0, all, root, root + 1, rank, rank + 1, false, true};
    default: /* TUTTI_ALL_REDUCE: no other has a fused path */
        return (struct tti_fused_part){begin, begin, part, 0, n, 0, n, false, false};
    }
}

bool tti_fused_part(struct tutti_comm *comm, const struct tti_operation *o,
                    struct tti_fused_part *part)
{
    const struct share s = {o, NULL, comm->rank, comm->size, tti_type_bytes(o->type), false};
    if (o->collective == TUTTI_ALL_TO_ALL)
        return false;
    *part = share_part(&s, o->collective);
    return true;
}

void tti_fused_share(struct tutti_comm *comm, const struct tti_operation *o,
                     const struct tti_fused_views *views)
{
    const struct share s = {o, views, comm->rank, comm->size, tti_type_bytes(o->type), false};
    if (o->collective != TUTTI_ALL_TO_ALL) {
        const struct tti_fused_part part = share_part(&s, o->collective);
        share_move(&s, &part);
        return;
    }
    const size_t own = (size_t)s.rank * o->count, all = o->count;
    for (int k = 0; k < s.n; k++) { /* not all to the same rank at once */
        int to = (s.rank + k) % s.n;
        const struct tti_fused_part block = {(size_t)to * all, own,  all,  s.rank, s.rank + 1, to,
                                             to + 1,           true, false};
        share_move(&s, &block);
    }
}
