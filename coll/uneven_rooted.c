/* Gathers and scatters on blocks of different sizes with a few looks less (coll/uneven_call.h):
 * a few messages of a blocking call on host memory, in which nothing is unusual. Checking and
 * sorting out in general would take nearly as long as all the rest. Whatever is unusual, or wrong,
 * is left to uneven.c. */
#include "coll/comm.h"
#include "coll/group.h"
#include "coll/uneven_call.h"

#include <string.h>

enum { ROOTED_FEW = 8 };
/* Elements, fewer than memory could hold of any type. */
static const size_t rooted_plenty = (size_t)1 << 40;

struct rooted {
    const struct tti_uneven *u;
    struct tti_operation ops[ROOTED_FEW];
    size_t count;
    struct tti_uneven_piece piece[ROOTED_FEW]; /* of the root's buffer, */
    size_t begin, end;                         /* ... and from where to where all lie */
};

/* At a rank that is not the root. */
static bool rooted_leaf(struct rooted *r)
{
    const struct tti_uneven *u = r->u;
    const bool sends = u->collective == TUTTI_GATHER;
    const size_t count = sends ? u->from.count : u->to.count;
    if (count == 0 || count > rooted_plenty || (sends ? !u->in : !u->out))
        return false;
    r->ops[r->count++] =
        tti_uneven_message(u, u->root, count, sends ? u->in : NULL, sends ? NULL : u->out);
    return true;
}

/* One after another in the root's buffer, none beyond all memory. False also if all are empty. */
static bool rooted_pieces(struct rooted *r, const struct tti_uneven_side *side)
{
    size_t next = 0;
    bool any = false;
    for (int k = 0; k < r->u->comm->size; k++) {
        const struct tti_uneven_piece piece = r->piece[k] = tti_uneven_piece(side, k, &next);
        if (piece.count == 0)
            continue;
        if (piece.begin < r->end || piece.begin > rooted_plenty || piece.count > rooted_plenty)
            return false;
        r->begin = any ? r->begin : piece.begin;
        r->end = piece.begin + piece.count;
        any = true;
    }
    return any;
}

/* From the next rank on, as in the general way. */
static void rooted_messages(struct rooted *r)
{
    const struct tti_uneven *u = r->u;
    const int size = u->comm->size;
    for (int k = u->root + 1 == size ? 0 : u->root + 1; k != u->root;
         k = k + 1 == size ? 0 : k + 1) {
        const struct tti_uneven_piece *piece = &r->piece[k];
        if (piece->count == 0)
            continue;
        if (u->collective == TUTTI_GATHER)
            r->ops[r->count++] =
                tti_uneven_message(u, k, piece->count, NULL, u->out + piece->begin * u->size);
        else
            r->ops[r->count++] =
                tti_uneven_message(u, k, piece->count, u->in + piece->begin * u->size, NULL);
    }
}

/* At the root. `*moves`: its own block does not lie in place. */
static bool rooted_root(struct rooted *r, bool *moves)
{
    const struct tti_uneven *u = r->u;
    const bool gathers = u->collective == TUTTI_GATHER;
    const char *all = gathers ? u->out : u->in, *one = gathers ? u->in : u->out;
    const size_t count = gathers ? u->from.count : u->to.count;
    const struct tti_uneven_piece *mine = &r->piece[u->root];
    if (!all || !rooted_pieces(r, gathers ? &u->to : &u->from) || mine->count != count)
        return false;
    rooted_messages(r);
    *moves = count > 0 && one != all + mine->begin * u->size;
    if (!*moves)
        return true;
    const uintptr_t at = (uintptr_t)one, first = (uintptr_t)(all + r->begin * u->size);
    return one && (at + count * u->size <= first || at >= first + (r->end - r->begin) * u->size);
}

bool tti_uneven_rooted(const struct tti_uneven *u, enum tutti_result *result)
{
    struct rooted r; /* its operations are filled in as they come */
    bool moves = false;
    if ((u->collective != TUTTI_GATHER && u->collective != TUTTI_SCATTER) || u->async ||
        u->comm->gpu || u->comm->size > ROOTED_FEW || tti_group_open())
        return false;
    r.u = u;
    r.count = r.begin = r.end = 0;
    if (!(u->comm->rank == u->root ? rooted_root(&r, &moves) : rooted_leaf(&r)) || r.count == 0)
        return false;
    *result = tti_work_run(u->comm, r.ops, r.count);
    if (*result != TUTTI_OK || !moves)
        return true;
    const struct tti_uneven_piece *mine = &r.piece[u->root];
    if (u->collective == TUTTI_GATHER)
        memcpy(u->out + mine->begin * u->size, u->in, mine->count * u->size);
    else
        memcpy(u->out, u->in + mine->begin * u->size, mine->count * u->size);
    return true;
}
