/* Is a call on blocks of different sizes legal (coll/uneven_call.h)? */
#include "coll/uneven_call.h"

#include "base/memory.h"
#include "base/types.h"
#include "coll/api_call.h"
#include "coll/comm.h"
#include "plan/plan.h"

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

/* Of a buffer: elements of all blocks, and from where to where they lie. */
struct uneven_extent {
    size_t total, begin, end;
};

/* Sizes, and whether blocks that are written lie apart. */
static enum tutti_result uneven_side_check(const struct tti_uneven *u,
                                           const struct tti_uneven_side *side, bool out,
                                           struct uneven_extent *extent)
{
    const void *buffer = out ? u->out : u->in;
    const size_t most = (size_t)PTRDIFF_MAX / u->size;
    const int pieces = uneven_pieces(u, side);
    size_t next = 0, total = 0, begin = SIZE_MAX, end = 0;
    bool ordered = true;
    for (int k = 0; k < pieces; k++) {
        const struct tti_uneven_piece piece = tti_uneven_piece(side, k, &next);
        if (piece.count == 0)
            continue;
        if (piece.begin > most || piece.count > most - piece.begin || piece.count > most - total)
            return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                            "%s: block %d of %s, %zu elements of %s from %zu on, ends beyond what "
                            "memory can hold",
                            uneven_name(u), k, out ? "out" : "in", piece.count,
                            tutti_type_name(u->type), piece.begin);
        total += piece.count;
        ordered = ordered && piece.begin >= end;
        begin = piece.begin < begin ? piece.begin : begin;
        end = piece.begin + piece.count > end ? piece.begin + piece.count : end;
    }
    if (total > 0 && !buffer)
        return TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: the %s buffer is NULL, and has %zu elements",
                        uneven_name(u), out ? "out" : "in", total);
    *extent = (struct uneven_extent){total, begin, end};
    return out && !ordered ? uneven_apart(u, side) : TUTTI_OK;
}

/* Do a block that is read and one that is written lie apart, or are they the own one in place? */
static bool uneven_pair_fits(const struct tti_uneven *u, const struct tti_uneven_piece *in,
                             const struct tti_uneven_piece *out, bool own)
{
    const char *read = u->in + in->begin * u->size, *written = u->out + out->begin * u->size;
    return in->count == 0 || out->count == 0 || read >= written + out->count * u->size ||
           written >= read + in->count * u->size ||
           (own && read == written && u->collective != TUTTI_ALL_TO_ALL);
}

/* What is read and what is written lie apart, but for the own block in place. */
static enum tutti_result uneven_overlap(const struct tti_uneven *u)
{
    const int rank = u->comm->rank;
    size_t next_in = 0;
    for (int i = 0; i < uneven_pieces(u, &u->from); i++) {
        const struct tti_uneven_piece in = tti_uneven_piece(&u->from, i, &next_in);
        size_t next_out = 0;
        for (int o = 0; o < uneven_pieces(u, &u->to); o++) {
            const struct tti_uneven_piece out = tti_uneven_piece(&u->to, o, &next_out);
            const bool own = (!u->from.counts || i == rank) && (!u->to.counts || o == rank);
            if (!uneven_pair_fits(u, &in, &out, own))
                return TTI_FAIL(TUTTI_ERR_ARGUMENT,
                                "%s: the buffers overlap%s (see tutti/uneven.h): %zu elements of "
                                "in at %p, %zu of out at %p",
                                uneven_name(u),
                                u->collective == TUTTI_ALL_TO_ALL ? ""
                                                                  : ", but not as in place demands",
                                in.count, (const void *)(u->in + in.begin * u->size), out.count,
                                (const void *)(u->out + out.begin * u->size));
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

/* What every operation is asked, which all but few fulfil. */
static bool uneven_plainly_fits(const struct tti_uneven *u)
{
    return u->comm && !u->comm->forked && !u->stream && (!u->async || u->request) &&
           tti_type_bytes(u->type) > 0 && (unsigned)u->type < TUTTI_TYPE_COUNT && u->root >= 0 &&
           u->root < u->comm->size && !tti_reduces(u->collective);
}

enum tutti_result tti_uneven_begin(struct tti_uneven *u)
{
    if (!uneven_plainly_fits(u)) {
        const struct tti_operation head = {.collective = u->collective,
                                           .part_of = u->collective,
                                           .type = u->type,
                                           .op = u->op,
                                           .root = u->root};
        TTI_TRY(tti_api_begin(u->comm, &head, u->async, u->stream, u->request));
        TTI_TRY(tti_operation_check(&head, u->comm));
    }
    u->size = tti_type_bytes(u->type);
    return TUTTI_OK;
}

enum tutti_result tti_uneven_counts(const struct tti_uneven *u, const size_t *counts,
                                    const char *name)
{
    return counts ? TUTTI_OK : TTI_FAIL(TUTTI_ERR_ARGUMENT, "%s: %s is NULL", uneven_name(u), name);
}

enum tutti_result tti_uneven_check(const struct tti_uneven *u, size_t *total)
{
    struct uneven_extent in, out;
    TTI_TRY(uneven_side_check(u, &u->from, false, &in));
    TTI_TRY(uneven_side_check(u, &u->to, true, &out));
    TTI_TRY(uneven_own(u));
    *total = in.total > out.total ? in.total : out.total;
    if (in.total == 0 || out.total == 0 ||
        u->in + in.begin * u->size >= u->out + out.end * u->size ||
        u->out + out.begin * u->size >= u->in + in.end * u->size)
        return TUTTI_OK;
    return uneven_overlap(u);
}
