/* Is a call on blocks of different sizes legal (coll/uneven_call.h)? */
#include "coll/uneven_call.h"

#include "base/memory.h"
#include "coll/api_call.h"
#include "coll/comm.h"

#include <stdint.h>
#include <stdlib.h>

static int uneven_pieces(const struct tti_uneven *u, const struct tti_uneven_side *side)
{
    return side->unused ? 0 : side->counts ? u->comm->size : 1;
}

static const char *uneven_name(const struct tti_uneven *u)
{
    return tti_uneven_name(u->collective);
}

static int piece_order(const void *left, const void *right)
{
    const struct tti_uneven_piece *a = left, *b = right;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* Blocks that are not in the order of their ranks: does one reach into another? */
static enum tutti_result uneven_apart(const struct tti_uneven *u,
                                      const struct tti_uneven_side *side)
{
    const int n = u->comm->size;
    struct tti_uneven_piece *pieces = tti_calloc((size_t)n, sizeof *pieces);
    size_t next = 0;
    int used = 0;
    if (!pieces)
        return TUTTI_ERR_MEMORY;
    for (int k = 0; k < n; k++) {
        pieces[used] = tti_uneven_piece(side, k, &next);
        used += pieces[used].count > 0;
    }
    qsort(pieces, (size_t)used, sizeof *pieces, piece_order);
    enum tutti_result result = TUTTI_OK;
    for (int k = 1; k < used && result == TUTTI_OK; k++)
        if (pieces[k].begin < pieces[k - 1].begin + pieces[k - 1].count)
            result =
                TTI_FAIL(TUTTI_ERR_ARGUMENT,
                         "%s: blocks of out overlap: one has %zu elements from %zu on, another "
                         "begins at %zu",
                         uneven_name(u), pieces[k - 1].count, pieces[k - 1].begin, pieces[k].begin);
    free(pieces);
    return result;
}

/* Sizes, and whether blocks that are written lie apart. `*total` is that of all blocks. */
static enum tutti_result uneven_side_check(const struct tti_uneven *u,
                                           const struct tti_uneven_side *side, bool out,
                                           size_t *total)
{
    const void *buffer = out ? u->out : u->in;
    const size_t most = (size_t)PTRDIFF_MAX / tutti_type_size(u->type);
    size_t next = 0, end = 0;
    bool ordered = true;
    *total = 0;
    for (int k = 0; k < uneven_pieces(u, side); k++) {
        const struct tti_uneven_piece piece = tti_uneven_piece(side, k, &next);
        if (piece.count == 0)
            continue;
        if (piece.begin > most || piece.count > most - piece.begin || piece.count > most - *total)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                            "%s: block %d of %s, %zu elements of %s from %zu on, ends beyond what "
                            "memory can hold",
                            uneven_name(u), k, out ? "out" : "in", piece.count,
                            tutti_type_name(u->type), piece.begin);
        *total += piece.count;
        ordered = ordered && piece.begin >= end;
        end = piece.begin + piece.count;
    }
    if (*total > 0 && !buffer)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: the %s buffer is NULL, and has %zu elements",
                        uneven_name(u), out ? "out" : "in", *total);
    return out && !ordered ? uneven_apart(u, side) : TUTTI_OK;
}

/* From the first to the last byte that the call touches there. */
static void uneven_extent(const struct tti_uneven *u, const struct tti_uneven_side *side, bool out,
                          const char **begin, const char **end)
{
    const char *base = out ? u->out : u->in;
    const size_t size = tutti_type_size(u->type);
    size_t next = 0, least = SIZE_MAX, most = 0;
    for (int k = 0; k < uneven_pieces(u, side); k++) {
        const struct tti_uneven_piece piece = tti_uneven_piece(side, k, &next);
        if (piece.count == 0)
            continue;
        least = piece.begin < least ? piece.begin : least;
        most = piece.begin + piece.count > most ? piece.begin + piece.count : most;
    }
    *begin = most > 0 ? base + least * size : NULL;
    *end = most > 0 ? base + most * size : NULL;
}

/* What is read and what is written lie apart, but for the own block in place. */
static enum tutti_result uneven_overlap(const struct tti_uneven *u)
{
    const size_t size = tutti_type_size(u->type);
    const char *in, *in_end, *out, *out_end;
    uneven_extent(u, &u->from, false, &in, &in_end);
    uneven_extent(u, &u->to, true, &out, &out_end);
    if (in >= out_end || out >= in_end)
        return TUTTI_OK;
    size_t next_in = 0;
    for (int i = 0; i < uneven_pieces(u, &u->from); i++) {
        const struct tti_uneven_piece a = tti_uneven_piece(&u->from, i, &next_in);
        const bool own_in = u->from.counts ? i == u->comm->rank : true;
        size_t next_out = 0;
        for (int o = 0; o < uneven_pieces(u, &u->to); o++) {
            const struct tti_uneven_piece b = tti_uneven_piece(&u->to, o, &next_out);
            const bool own_out = u->to.counts ? o == u->comm->rank : true;
            const char *read = u->in + a.begin * size, *written = u->out + b.begin * size;
            if (read >= written + b.count * size || written >= read + a.count * size ||
                (own_in && own_out && read == written && u->collective != TUTTI_ALL_TO_ALL))
                continue;
            return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                            "%s: the buffers overlap%s (see tutti/uneven.h): %zu elements of in at "
                            "%p, %zu of out at %p",
                            uneven_name(u),
                            u->collective == TUTTI_ALL_TO_ALL ? ""
                                                              : ", but not as in place demands",
                            a.count, (const void *)read, b.count, (const void *)written);
        }
    }
    return TUTTI_OK;
}

/* The own block has one size. */
static enum tutti_result uneven_own(const struct tti_uneven *u)
{
    const int rank = u->comm->rank;
    const struct tti_uneven_side *from = &u->from, *to = &u->to;
    if (from->unused || to->unused)
        return TUTTI_OK;
    const size_t in = from->counts ? from->counts[rank] : from->count;
    const size_t out = to->counts ? to->counts[rank] : to->count;
    if (in == out)
        return TUTTI_OK;
    return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                    "%s: rank %d gives itself %zu elements and expects %zu from itself",
                    uneven_name(u), rank, in, out);
}

enum tutti_result tti_uneven_begin(const struct tti_uneven *u, const size_t *const *counts,
                                   size_t arrays)
{
    const struct tti_operation head = {.collective = u->collective,
                                       .part_of = u->collective,
                                       .type = u->type,
                                       .op = u->op,
                                       .root = u->root};
    TTI_TRY(tti_api_begin(u->comm, &head, u->async, u->stream, u->request));
    TTI_TRY(tti_operation_check(&head, u->comm));
    for (size_t i = 0; i < arrays; i++)
        if (!counts[i])
            return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: %scounts is NULL", uneven_name(u),
                            arrays == 1 ? ""
                            : i == 0    ? "in_"
                                        : "out_");
    return TUTTI_OK;
}

enum tutti_result tti_uneven_check(const struct tti_uneven *u, size_t *total)
{
    size_t in = 0, out = 0;
    TTI_TRY(uneven_side_check(u, &u->from, false, &in));
    TTI_TRY(uneven_side_check(u, &u->to, true, &out));
    TTI_TRY(uneven_own(u));
    *total = in > out ? in : out;
    return uneven_overlap(u);
}
