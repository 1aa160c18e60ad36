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
#include "device/reduce.h"

enum { ONE_SHOT_BYTES = 32 << 10, PART_ELEMENTS = 128 };

struct window {
    struct tutti_comm *comm;
    const struct tti_gpu_map *map;
    struct tti_gpu *gpu;
    const struct tti_operation *o;
    tutti_stream stream;
    size_t out_width;       /* bytes of an element of the output */
    struct tti_gpu_range r; /* this pass */
};

/* ---- meetings ---- */

static uint32_t *window_flag(const struct window *w, int at, int meeting, int from)
{
    const int index = meeting * TTI_GPU_RANKS + from;
    return (uint32_t *)tti_gpu_at(w->map, at, TTI_ARENA_FLAGS + (size_t)index * TTI_FLAG_STEP);
}

/* At all others; until all others have; down again, which were raised here. */
static enum tutti_result window_raise(const struct window *w, int meeting, uint32_t value)
{
    const int rank = w->map->rank, n = w->map->size;
    for (int k = 1; k < n; k++)
        TTI_TRY(w->gpu->ops->stream_write(w->gpu, window_flag(w, (rank + k) % n, meeting, rank),
                                          value, w->stream));
    return TUTTI_OK;
}

static enum tutti_result window_await(const struct window *w, int meeting, uint32_t value)
{
    const int rank = w->map->rank, n = w->map->size;
    for (int k = 1; k < n; k++)
        TTI_TRY(w->gpu->ops->stream_wait(w->gpu, window_flag(w, rank, meeting, (rank + k) % n),
                                         value, w->stream));
    return TUTTI_OK;
}

static enum tutti_result window_lower(const struct window *w, int meeting)
{
    const int rank = w->map->rank, n = w->map->size;
    for (int k = 1; k < n; k++)
        TTI_TRY(w->gpu->ops->stream_write(w->gpu, window_flag(w, rank, meeting, (rank + k) % n), 0,
                                          w->stream));
    return TUTTI_OK;
}

static enum tutti_result window_meet(const struct window *w, int meeting)
{
    TTI_TRY(window_raise(w, meeting, 1));
    TTI_TRY(window_await(w, meeting, 1));
    return window_lower(w, meeting);
}

/* ---- publishing ---- */

static char *window_at(const struct window *w, int rank)
{
    return tti_gpu_at(w->map, rank, w->map->window_at);
}

/* Blocks that a rank publishes at most. */
static uint32_t window_blocks(const struct window *w)
{
    switch (w->o->collective) {
    case TUTTI_REDUCE_SCATTER:
    case TUTTI_ALL_TO_ALL:
    case TUTTI_SCATTER:
        return (uint32_t)w->map->size;
    default:
        return 1;
    }
}

static enum tutti_result window_publish(const struct window *w)
{
    uint32_t in = 0, out = 0;
    tti_shape(w->o->collective, w->map->size, w->map->rank, w->o->root, &in, &out);
    return tti_gpu_publish(w->comm, &w->r, in, window_at(w, w->map->rank), w->stream);
}

/* ---- taking ---- */

/* Fold elements [begin, end) of block `b` of all windows into dst. */
static enum tutti_result window_fold(const struct window *w, uint32_t b, size_t begin, size_t end,
                                     void *dst)
{
    const void *src[TTI_GPU_RANKS];
    const size_t at = tti_gpu_range_at(&w->r, window_blocks(w), b) + begin * w->r.width;
    for (int p = 0; p < w->map->size; p++)
        src[p] = window_at(w, p) + at;
    const uint32_t divisor = w->o->op == TUTTI_AVG ? (uint32_t)w->map->size : 0;
    return tti_gpu_fold(w->comm, w->o, src, w->map->size, dst, end - begin, divisor, false,
                        w->stream);
}

static char *window_out(const struct window *w, int block)
{
    return (char *)w->o->out + (size_t)block * w->r.stride + w->r.from * w->out_width;
}

/* Block `b` of the window of rank `p` to block `to` of the output. */
static enum tutti_result window_take(const struct window *w, int p, int b, int to)
{
    const uint32_t n = (uint32_t)w->map->size;
    const size_t count = tti_gpu_range_count(&w->r, n, (uint32_t)p);
    if (count == 0)
        return TUTTI_OK;
    char *dst = w->o->blocks ? tti_gpu_range_out(&w->r, n, (uint32_t)to) : window_out(w, to);
    return w->gpu->ops->copy(w->gpu, dst, window_at(w, p) + (size_t)b * w->r.length * w->r.width,
                             count * w->r.width, w->stream);
}

static size_t window_part(const struct window *w, int rank)
{
    const size_t lines = (w->r.length + PART_ELEMENTS - 1) / PART_ELEMENTS;
    const size_t end = lines * (size_t)rank / (size_t)w->map->size * PART_ELEMENTS;
    return end < w->r.length ? end : w->r.length;
}

static enum tutti_result window_two_shot(const struct window *w)
{
    const int rank = w->map->rank;
    const size_t begin = window_part(w, rank), end = window_part(w, rank + 1);
    /* Part `rank` of any window is read by this rank alone. */
    TTI_TRY(window_fold(w, 0, begin, end, window_at(w, rank) + begin * w->r.width));
    TTI_TRY(window_meet(w, 1));
    for (int p = 0; p < w->map->size; p++) {
        const size_t at = window_part(w, p) * w->r.width;
        const size_t bytes = window_part(w, p + 1) * w->r.width - at;
        TTI_TRY(w->gpu->ops->copy(w->gpu, window_out(w, 0) + at, window_at(w, p) + at, bytes,
                                  w->stream));
    }
    return window_meet(w, 2);
}

/* ---- the same out of buffers that are lent (gpu_lend.h), by run-time addresses ---- */

struct lent {
    struct window w;
    char *in[TTI_GPU_RANKS], *out[TTI_GPU_RANKS]; /* own buffers, as the others have them */
    bool in_lent, out_lent;
    uint32_t turns;
};

/* `srcs` ranks' inputs from rank `first` on, elements [begin, end) of this range of block `b`: to
 * dst, or, if that is NULL, into all outputs. */
static enum tutti_result lent_fold(const struct lent *l, int first, int srcs, size_t b,
                                   size_t begin, size_t end, char *dst)
{
    const struct window *w = &l->w;
    const int rank = w->map->rank, n = w->map->size;
    const size_t at = (w->r.from + begin) * w->r.width,
                 in_window = (b * w->r.length + begin) * w->r.width;
    struct tti_reduce_copy_args args = {.srcs = (uint32_t)srcs,
                                        .dsts = dst ? 1 : (uint32_t)n,
                                        .dst_wide = w->o->wide,
                                        .places = &tti_gpu_lend_page(w->map, rank)->places,
                                        .in_at = b * w->r.stride + at,
                                        .out_at = at,
                                        .far_first = (uint32_t)first,
                                        .far_out = !dst};
    for (int k = 0; k < srcs; k++)
        args.src[k] = first + k == rank && l->in_lent
                          ? (const char *)w->o->in + b * w->r.stride + at
                          : window_at(w, first + k) + in_window;
    for (int p = 0; p < n && !dst; p++)
        args.dst[p] =
            p == rank && l->out_lent ? (char *)w->o->out + at : window_at(w, p) + in_window;
    if (dst)
        args.dst[0] = dst;
    const bool averages = tti_reduces(w->o->collective) && w->o->op == TUTTI_AVG;
    return tti_gpu_fold_all(w->comm, w->o, &args, end - begin, averages ? (uint32_t)n : 0,
                            w->stream);
}

/* Block `b` of the input of rank p to block `to` of the output. */
static enum tutti_result lent_take(const struct lent *l, int p, int b, int to)
{
    char *dst = window_out(&l->w, to);
    if (p == l->w.map->rank) {
        /* In place it is where it belongs. Who takes another's block may have no input. */
        const char *own =
            (const char *)l->w.o->in + (size_t)b * l->w.r.stride + l->w.r.from * l->w.r.width;
        if (own == dst)
            return TUTTI_OK;
    }
    return lent_fold(l, p, 1, (size_t)b, 0, l->w.r.length, dst);
}

/* ---- either: `l` is NULL where nothing is lent ---- */

static enum tutti_result take_sum(const struct window *w, const struct lent *l, uint32_t b)
{
    const size_t count = tti_gpu_range_count(&w->r, window_blocks(w), b);
    if (count == 0)
        return TUTTI_OK;
    return l ? lent_fold(l, 0, w->map->size, b, 0, count, window_out(w, 0))
             : window_fold(w, b, 0, count, window_out(w, 0));
}

static enum tutti_result take_block(const struct window *w, const struct lent *l, int p, int b,
                                    int to)
{
    return l ? lent_take(l, p, b, to) : window_take(w, p, b, to);
}

static enum tutti_result take_all(const struct window *w, const struct lent *l)
{
    const int rank = w->map->rank, n = w->map->size;
    switch (w->o->collective) {
    case TUTTI_ALL_REDUCE:
        return take_sum(w, l, 0);
    case TUTTI_REDUCE:
        return rank == w->o->root ? take_sum(w, l, 0) : TUTTI_OK;
    case TUTTI_REDUCE_SCATTER:
        return take_sum(w, l, (uint32_t)rank);
    case TUTTI_BROADCAST:
        return take_block(w, l, w->o->root, 0, 0);
    case TUTTI_SCATTER:
        return take_block(w, l, w->o->root, rank, 0);
    case TUTTI_GATHER:
        if (rank != w->o->root)
            return TUTTI_OK;
        break;
    default:
        break;
    }
    const int b = w->o->collective == TUTTI_ALL_TO_ALL ? rank : 0;
    for (int k = 0; k < n; k++) /* not all from the same rank at once */
        TTI_TRY(take_block(w, l, (rank + k) % n, b, (rank + k) % n));
    return TUTTI_OK;
}

static enum tutti_result window_pass(const struct window *w)
{
    TTI_TRY(window_publish(w));
    TTI_TRY(window_meet(w, 0));
    if (w->o->collective == TUTTI_ALL_REDUCE && w->r.length * w->r.width > ONE_SHOT_BYTES)
        return window_two_shot(w);
    TTI_TRY(take_all(w, NULL));
    return window_meet(w, 1);
}

/* ---- on the callers' buffers, where they are lent (gpu_lend.h) ----
 *
 * The same in ranges of what a window holds, but a rank whose buffers all others have mapped copies
 * nothing and lets them take all ranges at once. In set 0 of the flags it raises how many ranges of
 * its input, or its window, are ready for them; in set 1, how many it is through with. Both only
 * grow during a call. Set 0 is lowered when all have raised it for the last time, before this rank
 * raises set 1 for the last time, without which nobody goes on to the next call; set 1 is lowered
 * last, before this rank raises set 0 of the next. */

enum { READY, THROUGH };

/* Tells all where this rank's buffers are, or that they are not lent. */
static enum tutti_result lent_place(const struct lent *l)
{
    const struct window *w = &l->w;
    struct tti_place_args args = {.ranks = (uint32_t)w->map->size};
    for (int p = 0; p < w->map->size; p++) {
        struct tti_gpu_places *places = &tti_gpu_lend_page(w->map, p)->places;
        args.at[p] = p == w->map->rank ? NULL : &places->of[w->map->rank];
        args.place[p] =
            (struct tti_gpu_place){l->in_lent ? l->in[p] : NULL, l->out_lent ? l->out[p] : NULL};
    }
    const struct tti_gpu_launch launch = {.kernel = TTI_KERNEL_PLACE,
                                          .blocks = 1,
                                          .threads = 32,
                                          .args = &args,
                                          .args_bytes = sizeof args};
    return w->gpu->ops->launch(w->gpu, &launch, w->stream);
}

static enum tutti_result lent_range(const struct lent *l, uint32_t turn)
{
    const struct window *w = &l->w;
    const bool back = w->o->collective == TUTTI_ALL_REDUCE && !l->out_lent;
    const bool steps = !l->in_lent || back; /* the window is used in each range anew */
    if (steps && turn > 0)
        TTI_TRY(window_await(w, THROUGH, turn));
    if (!l->in_lent)
        TTI_TRY(window_publish(w));
    if (steps || turn == 0)
        TTI_TRY(window_raise(w, READY, steps ? turn + 1 : l->turns));
    TTI_TRY(window_await(w, READY, turn + 1));
    if (turn + 1 == l->turns)
        TTI_TRY(window_lower(w, READY));
    TTI_TRY(w->o->collective == TUTTI_ALL_REDUCE
                ? lent_fold(l, 0, w->map->size, 0, window_part(w, w->map->rank),
                            window_part(w, w->map->rank + 1), NULL)
                : take_all(w, l));
    TTI_TRY(window_raise(w, THROUGH, turn + 1));
    if (!back)
        return TUTTI_OK;
    TTI_TRY(window_await(w, THROUGH, turn + 1));
    return w->gpu->ops->copy(w->gpu, window_out(w, 0), window_at(w, w->map->rank),
                             w->r.length * w->r.width, w->stream);
}

static enum tutti_result lent_run(struct window *w, size_t most, bool capturing)
{
    uint32_t in = 0, out = 0;
    struct lent l = {.w = *w, .turns = (uint32_t)((w->o->count + most - 1) / most)};
    tti_shape(w->o->collective, w->map->size, w->map->rank, w->o->root, &in, &out);
    l.in_lent = in == 0 || tti_gpu_lend_find(w->comm, w->o->in, capturing, l.in);
    l.out_lent = w->o->collective == TUTTI_ALL_REDUCE &&
                 tti_gpu_lend_find(w->comm, w->o->out, capturing, l.out);
    tti_gpu_lend_count(w->comm->gpu->map,
                       l.in_lent && (l.out_lent || w->o->collective != TUTTI_ALL_REDUCE));
    TTI_TRY(lent_place(&l));
    for (uint32_t turn = 0; tti_gpu_range_next(&l.w.r, most); turn++) {
        TTI_TRY(lent_range(&l, turn));
        TTI_TRY(tti_gpu_room_between(w->comm, w->stream));
    }
    TTI_TRY(window_await(&l.w, THROUGH, l.turns));
    return window_lower(&l.w, THROUGH);
}

enum tutti_result tti_gpu_window(struct tutti_comm *comm, const struct tti_operation *o,
                                 tutti_stream stream, bool capturing)
{
    struct window w = {.comm = comm,
                       .map = comm->gpu->map,
                       .gpu = comm->gpu->gpu,
                       .o = o,
                       .stream = stream,
                       .r = tti_gpu_range_of(o, comm->gpu->map->rank, 1)};
    if (o->collective == TUTTI_BARRIER) {
        TTI_TRY(window_meet(&w, 0));
        return window_meet(&w, 1);
    }
    w.out_width = o->wide ? tutti_type_size(tti_acc_type(o->type)) : w.r.width;
    const size_t most =
        tti_gpu_range_most(&w.r, window_blocks(&w), 0, w.map->window_bytes, PART_ELEMENTS);
    if (tti_gpu_lend_takes(comm, o))
        return lent_run(&w, most, capturing);
    while (tti_gpu_range_next(&w.r, most)) {
        TTI_TRY(window_pass(&w));
        TTI_TRY(tti_gpu_room_between(comm, stream));
    }
    return TUTTI_OK;
}
