/* Collectives over mapped device memory by short kernels and words in memory that streams wait for:
 * right for any ranks of a host, and fast for processes that share a GPU without MPS, where kernels
 * that spin on each other are time-sliced and crawl.
 *
 * Every rank copies what others need of its input into its window (publish); all meet; every rank
 * takes from the windows what it needs, folding in the order of ranks; all meet again, and the
 * windows are free. A message larger than the window takes several passes over ranges of every
 * block. Large all-reduces fold only their part, into their own window, meet, and take the parts of
 * the others: the plan two_shot_all_reduce; small ones fold everything: one_shot_all_reduce; the
 * others equal the direct_ plans (tests/coll/test_gpu_equal.c).
 *
 * A meeting: raise a flag at every other rank, wait until all own flags are raised, lower them. The
 * words are constants, so a captured meeting can be replayed. There are TTI_MEETS sets of flags,
 * and two meetings in a row never use the same: so a flag is lowered before it is raised again,
 * since whoever raises it has passed a meeting in between, to which its reader came after lowering
 * it. A pass uses set 0, 1 or 0, 1, 2. */
#include "coll/gpu/gpu_map.h"

enum { ONE_SHOT_BYTES = 32 << 10, PART_ELEMENTS = 128 };

struct window {
    struct tutti_comm *comm;
    const struct tti_gpu_map *map;
    struct tti_gpu *gpu;
    const struct tti_operation *o;
    tutti_stream stream;
    size_t width, block; /* bytes of an element, of a block */
    size_t from, length; /* this pass: elements of every block */
};

/* ---- meetings ---- */

static uint32_t *window_flag(const struct window *w, int at, int meeting, int from)
{
    const int index = meeting * TTI_GPU_RANKS + from;
    return (uint32_t *)tti_gpu_at(w->map, at, TTI_ARENA_FLAGS + (size_t)index * TTI_FLAG_STEP);
}

static enum tutti_result window_meet(const struct window *w, int meeting)
{
    const struct tti_gpu_ops *ops = w->gpu->ops;
    const int rank = w->comm->rank, n = w->comm->size;
    for (int k = 1; k < n; k++)
        TTI_TRY(
            ops->stream_write(w->gpu, window_flag(w, (rank + k) % n, meeting, rank), 1, w->stream));
    for (int k = 1; k < n; k++)
        TTI_TRY(
            ops->stream_wait(w->gpu, window_flag(w, rank, meeting, (rank + k) % n), 1, w->stream));
    for (int k = 1; k < n; k++)
        TTI_TRY(
            ops->stream_write(w->gpu, window_flag(w, rank, meeting, (rank + k) % n), 0, w->stream));
    return TUTTI_OK;
}

/* ---- publishing ---- */

static char *window_at(const struct window *w, int rank)
{
    return tti_gpu_at(w->map, rank, w->map->window_at);
}

/* Blocks that a rank publishes at most. */
static size_t window_blocks(const struct window *w)
{
    switch (w->o->collective) {
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_TO_ALL:
    case TUTTI_SCATTER:
        return (size_t)w->comm->size;
    default:
        return 1;
    }
}

static enum tutti_result window_publish(const struct window *w)
{
    uint32_t in = 0, out = 0;
    tti_shape(w->o->collective, w->comm->size, w->comm->rank, w->o->root, &in, &out);
    const size_t bytes = w->length * w->width;
    for (uint32_t b = 0; b < in; b++) {
        const void *src = (const char *)w->o->in + b * w->block + w->from * w->width;
        char *dst = window_at(w, w->comm->rank) + b * bytes;
        if (tti_gpu_premultiplied(w->o))
            TTI_TRY(tti_gpu_fold(w->comm, w->o, &src, 1, dst, w->length, 0, true, w->stream));
        else
            TTI_TRY(w->gpu->ops->copy(w->gpu, dst, src, bytes, w->stream));
    }
    return TUTTI_OK;
}

/* ---- taking ---- */

/* Fold elements [begin, end) of block `b` of all windows into dst. */
static enum tutti_result window_fold(const struct window *w, size_t b, size_t begin, size_t end,
                                     void *dst)
{
    const void *src[TTI_GPU_RANKS];
    for (int p = 0; p < w->comm->size; p++)
        src[p] = window_at(w, p) + (b * w->length + begin) * w->width;
    const uint32_t divisor = w->o->op == TUTTI_AVG ? (uint32_t)w->comm->size : 0;
    return tti_gpu_fold(w->comm, w->o, src, w->comm->size, dst, end - begin, divisor, false,
                        w->stream);
}

static char *window_out(const struct window *w, int block)
{
    return (char *)w->o->out + (size_t)block * w->block + w->from * w->width;
}

/* Block `b` of the window of rank `p` to block `to` of the output. */
static enum tutti_result window_take(const struct window *w, int p, int b, int to)
{
    const size_t bytes = w->length * w->width;
    return w->gpu->ops->copy(w->gpu, window_out(w, to), window_at(w, p) + (size_t)b * bytes, bytes,
                             w->stream);
}

static size_t window_part(const struct window *w, int rank)
{
    const size_t lines = (w->length + PART_ELEMENTS - 1) / PART_ELEMENTS;
    const size_t end = lines * (size_t)rank / (size_t)w->comm->size * PART_ELEMENTS;
    return end < w->length ? end : w->length;
}

static enum tutti_result window_two_shot(const struct window *w)
{
    const int rank = w->comm->rank;
    const size_t begin = window_part(w, rank), end = window_part(w, rank + 1);
    /* Part `rank` of any window is read by this rank alone. */
    TTI_TRY(window_fold(w, 0, begin, end, window_at(w, rank) + begin * w->width));
    TTI_TRY(window_meet(w, 1));
    for (int p = 0; p < w->comm->size; p++) {
        const size_t at = window_part(w, p) * w->width;
        const size_t bytes = window_part(w, p + 1) * w->width - at;
        TTI_TRY(w->gpu->ops->copy(w->gpu, window_out(w, 0) + at, window_at(w, p) + at, bytes,
                                  w->stream));
    }
    return window_meet(w, 2);
}

static enum tutti_result window_take_all(const struct window *w)
{
    const int rank = w->comm->rank, n = w->comm->size;
    switch (w->o->collective) {
    case TUTTI_ALL_REDUCE:
        return window_fold(w, 0, 0, w->length, window_out(w, 0));
    case TUTTI_REDUCE:
        return rank == w->o->root ? window_fold(w, 0, 0, w->length, window_out(w, 0)) : TUTTI_OK;
    case TUTTI_REDUCE_SCATTER:
        return window_fold(w, (size_t)rank, 0, w->length, window_out(w, 0));
    case TUTTI_BROADCAST:
        return window_take(w, w->o->root, 0, 0);
    case TUTTI_SCATTER:
        return window_take(w, w->o->root, rank, 0);
    case TUTTI_GATHER:
        if (rank != w->o->root)
            return TUTTI_OK;
        break;
    default:
        break;
    }
    const int b = w->o->collective == TUTTI_ALL_TO_ALL ? rank : 0;
    for (int k = 0; k < n; k++) /* not all from the same rank at once */
        TTI_TRY(window_take(w, (rank + k) % n, b, (rank + k) % n));
    return TUTTI_OK;
}

static enum tutti_result window_pass(const struct window *w)
{
    TTI_TRY(window_publish(w));
    TTI_TRY(window_meet(w, 0));
    if (w->o->collective == TUTTI_ALL_REDUCE && w->length * w->width > ONE_SHOT_BYTES)
        return window_two_shot(w);
    TTI_TRY(window_take_all(w));
    return window_meet(w, 1);
}

enum tutti_result tti_gpu_window(struct tutti_comm *comm, const struct tti_operation *o,
                                 tutti_stream stream)
{
    struct window w = {.comm = comm,
                       .map = comm->gpu->map,
                       .gpu = comm->gpu->gpu,
                       .o = o,
                       .stream = stream,
                       .width = tutti_type_size(o->type)};
    if (o->collective == TUTTI_BARRIER) {
        TTI_TRY(window_meet(&w, 0));
        return window_meet(&w, 1);
    }
    w.block = o->count * w.width;
    size_t most = w.map->window_bytes / (window_blocks(&w) * w.width);
    if (most > PART_ELEMENTS)
        most = most / PART_ELEMENTS * PART_ELEMENTS;
    for (w.from = 0; w.from < o->count; w.from += w.length) {
        w.length = o->count - w.from < most ? o->count - w.from : most;
        TTI_TRY(window_pass(&w));
    }
    return TUTTI_OK;
}
