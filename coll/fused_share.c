/* What each rank does on the fused path (coll/fused.h): its share of the inputs, combined in the
 * order of ranks, into the outputs.
 *
 * In place: a rank's share is the only part of any buffer that it writes, and nobody else reads
 * that part, except block for block before it is overwritten (device/fuse.c). */
#include "coll/fused.h"

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

double tti_fused_touched(enum tutti_collective collective, int ranks)
{
    double n = ranks;
    switch (collective) {
    case TUTTI_BROADCAST:
    case TUTTI_REDUCE:
        return (n + 1) / n;
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_GATHER:
        return n + 1;
    case TUTTI_ALL_TO_ALL:
        return 2 * n;
    default:
        return 2;
    }
}

struct share {
    const struct tti_operation *o;
    const struct tti_fused_views *views;
    int rank, n;
    size_t size; /* of an element */
};

/* `count` elements from `from` on of all inputs, combined, to element `to` of the outputs of ranks
 * [first, last). */
static void share_combine(const struct share *s, size_t from, size_t count, int first, int last,
                          size_t to)
{
    const void *srcs[TTI_FUSED_RANKS];
    void *dsts[TTI_FUSED_RANKS];
    const struct tti_finish finish = {s->o->op == TUTTI_AVG, s->n};
    bool plain = s->o->op == TUTTI_AVG || (unsigned)s->o->op >= TUTTI_OP_USER;
    for (int r = 0; r < s->n; r++)
        srcs[r] = (const char *)s->views->in[r] + from * s->size;
    for (int r = first; r < last; r++)
        dsts[r - first] = (char *)s->views->out[r] + to * s->size;
    tti_fuse(plain ? TUTTI_SUM : s->o->op, s->o->type, dsts, last - first, srcs, s->n, count,
             &finish);
}

/* `count` elements at `src` to element `to` of the outputs of ranks [first, last). */
static void share_copy(const struct share *s, const void *src, size_t count, int first, int last,
                       size_t to)
{
    void *dsts[TTI_FUSED_RANKS];
    for (int r = first; r < last; r++)
        dsts[r - first] = (char *)s->views->out[r] + to * s->size;
    tti_fuse(TUTTI_SUM, s->o->type, dsts, last - first, &src, 1, count, NULL);
}

void tti_fused_share(struct tutti_comm *comm, const struct tti_operation *o,
                     const struct tti_fused_views *views)
{
    const struct share s = {o, views, comm->rank, comm->size, tutti_type_size(o->type)};
    const int n = s.n, rank = s.rank, root = o->root;
    const size_t begin = tti_chunk_begin(o->count, s.size, (uint32_t)n, (uint32_t)rank);
    const size_t part = tti_chunk_begin(o->count, s.size, (uint32_t)n, (uint32_t)rank + 1) - begin;
    const size_t own = (size_t)rank * o->count;
    switch (o->collective) {
    case TUTTI_ALL_REDUCE:
        share_combine(&s, begin, part, 0, n, begin);
        break;
    case TUTTI_REDUCE:
        share_combine(&s, begin, part, root, root + 1, begin);
        break;
    case TUTTI_REDUCE_SCATTER:
        share_combine(&s, own, o->count, rank, rank + 1, 0);
        break;
    case TUTTI_BROADCAST:
        share_copy(&s, (const char *)views->in[root] + begin * s.size, part, 0, n, begin);
        break;
    case TUTTI_ALL_GATHER:
        share_copy(&s, o->in, o->count, 0, n, own);
        break;
    case TUTTI_GATHER:
        share_copy(&s, o->in, o->count, root, root + 1, own);
        break;
    case TUTTI_SCATTER:
        share_copy(&s, (const char *)views->in[root] + own * s.size, o->count, rank, rank + 1, 0);
        break;
    case TUTTI_ALL_TO_ALL:
        for (int k = 0; k < n; k++) { /* not all to the same rank at once */
            int to = (rank + k) % n;
            share_copy(&s, (const char *)o->in + (size_t)to * o->count * s.size, o->count, to,
                       to + 1, own);
        }
        break;
    default:
        break;
    }
}
