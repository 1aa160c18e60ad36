/* Collectives on blocks of different sizes (tutti/uneven.h).
 *
 * Where every block goes from one rank to one other, they are sends and receives, all at once, in
 * the caller's group or one of their own. An all-gather is, too, where nothing better is known:
 * between hosts a plan brings each block there once. A reduce-scatter runs by a plan. */
#include "base/memory.h"
#include "coll/api_call.h"
#include "coll/comm.h"
#include "coll/door.h"
#include "coll/group.h"
#include "coll/select.h"
#include "coll/uneven_call.h"
#include "plan/plan.h"

#include <stdlib.h>
#include <string.h>

/* ---- in parts ---- */

/* One after another, each with what it has to do with the next rank: from the own one's neighbour
 * on round to the own one. */
struct uneven_turn {
    const struct tti_uneven *u;
    size_t in, out; /* where the next blocks begin that have no displs */
    int peer;
    struct tti_uneven_piece given, taken;
};

/* What a buffer has for, or from, the peer. */
static struct tti_uneven_piece turn_side(const struct uneven_turn *turn,
                                         const struct tti_uneven_side *side, size_t *next)
{
    const struct tti_uneven *u = turn->u;
    const bool rooted = u->collective == TUTTI_GATHER || u->collective == TUTTI_SCATTER;
    if (side->unused || (rooted && !side->counts && turn->peer != u->root))
        return (struct tti_uneven_piece){0, 0};
    if (!side->counts || turn->peer == 0)
        *next = 0;
    return tti_uneven_piece(side, turn->peer, next);
}

static void turn_next(struct uneven_turn *turn)
{
    turn->peer = turn->peer + 1 == turn->u->comm->size ? 0 : turn->peer + 1;
    turn->given = turn_side(turn, &turn->u->from, &turn->in);
    turn->taken = turn_side(turn, &turn->u->to, &turn->out);
}

static size_t uneven_before(const struct tti_uneven_side *side, int rank)
{
    size_t before = 0;
    for (int k = 0; side->counts && k <= rank; k++)
        before += side->counts[k];
    return before;
}

static struct uneven_turn turn_begin(const struct tti_uneven *u)
{
    const int rank = u->comm->rank;
    return (struct uneven_turn){.u = u,
                                .in = u->from.unused ? 0 : uneven_before(&u->from, rank),
                                .out = u->to.unused ? 0 : uneven_before(&u->to, rank),
                                .peer = rank};
}

/* Parts that are added to a group; the last one brings the request. */
struct uneven_parts {
    const struct tti_uneven *u;
    size_t left; /* to be added */
};

static enum tutti_result part_add(struct uneven_parts *parts, struct tti_operation *o)
{
    const struct tti_uneven *u = parts->u;
    o->part_of = u->collective;
    o->type = u->type;
    return tti_api_part(u->comm, o, u->async, u->stream, --parts->left == 0 ? u->request : NULL);
}

static bool turn_stays(const struct uneven_turn *turn)
{
    const struct tti_uneven *u = turn->u;
    const uintptr_t in = (uintptr_t)u->in, out = (uintptr_t)u->out; /* either may be NULL */
    return turn->peer == u->comm->rank &&
           in + turn->given.begin * u->size == out + turn->taken.begin * u->size;
}

/* What the rank sends the peer, and what it receives: at most two operations, their number. */
static size_t turn_operations(const struct uneven_turn *turn, struct tti_operation ops[2])
{
    const struct tti_uneven *u = turn->u;
    size_t count = 0;
    if (turn->given.count > 0)
        ops[count++] = tti_uneven_message(u, turn->peer, turn->given.count,
                                          u->in + turn->given.begin * u->size, NULL);
    if (turn->taken.count > 0)
        ops[count++] = tti_uneven_message(u, turn->peer, turn->taken.count, NULL,
                                          u->out + turn->taken.begin * u->size);
    return count;
}

static enum tutti_result messages_collect(const struct tti_uneven *u)
{
    struct uneven_parts parts = {u, 0};
    struct tti_operation ops[2];
    struct uneven_turn turn = turn_begin(u);
    for (int k = 0; k < u->comm->size; k++) {
        turn_next(&turn);
        if (!turn_stays(&turn))
            parts.left += (size_t)(turn.given.count > 0) + (turn.taken.count > 0);
    }
    if (parts.left == 0)
        return tti_api_nothing(u->comm, u->request);
    turn = turn_begin(u);
    for (int k = 0; k < u->comm->size; k++) {
        turn_next(&turn);
        const size_t count = turn_stays(&turn) ? 0 : turn_operations(&turn, ops);
        for (size_t i = 0; i < count; i++)
            TTI_TRY(part_add(&parts, &ops[i]));
    }
    return TUTTI_OK;
}

/* All in a group: the caller's, which stays as it was if one is refused, or one of their own. */
static enum tutti_result uneven_together(const struct tti_uneven *u,
                                         enum tutti_result (*collect)(const struct tti_uneven *))
{
    const bool nested = tti_group_open();
    const size_t place = nested ? tti_group_place() : 0;
    (void)tutti_group_start();
    const enum tutti_result result = collect(u);
    if (result == TUTTI_OK)
        return tutti_group_end();
    if (nested) {
        tti_group_return(place);
        (void)tutti_group_end();
    } else {
        tti_group_discard();
    }
    return result;
}

/* Can it run where it is called, past the group? */
static bool messages_here(const struct tti_uneven *u)
{
    return !u->async && !u->comm->gpu && !tti_group_open();
}

/* What goes to others as one piece of work, then, after all that was called before, the own block
 * by hand. */
static enum tutti_result messages_run(const struct tti_uneven *u)
{
    enum { FEW = 16 };
    struct tti_operation few[FEW], *ops = few;
    struct uneven_turn turn = turn_begin(u);
    size_t count = 0;
    if (u->comm->size > FEW / 2)
        ops = tti_calloc(2 * (size_t)u->comm->size, sizeof *ops);
    if (!ops)
        return TUTTI_ERR_MEMORY;
    for (int k = 1; k < u->comm->size; k++) {
        turn_next(&turn);
        count += turn_operations(&turn, ops + count);
    }
    turn_next(&turn);
    const bool own = turn.given.count > 0 && turn.taken.count > 0 && !turn_stays(&turn);
    const enum tutti_result result = count > 0 ? tti_work_run(u->comm, ops, count)
                                     : own     ? uneven_together(u, messages_collect)
                                               : tti_api_nothing(u->comm, NULL);
    if (result == TUTTI_OK && own && count > 0)
        memcpy(u->out + turn.taken.begin * u->size, u->in + turn.given.begin * u->size,
               turn.given.count * u->size);
    if (ops != few)
        free(ops);
    return result;
}

/* ---- by a plan ---- */

static enum tutti_result uneven_plan(const struct tti_uneven *u, const struct tti_uneven_side *side,
                                     size_t total)
{
    struct tti_blocks *blocks = tti_blocks_make(u->comm->size, false);
    size_t next = 0;
    if (!blocks)
        return TUTTI_ERR_MEMORY;
    for (int k = 0; k < blocks->n; k++) {
        const struct tti_uneven_piece piece = tti_uneven_piece(side, k, &next);
        tti_blocks_put(blocks, k, piece.begin, piece.count);
    }
    struct tti_operation operation = {.collective = u->collective,
                                      .in = u->in,
                                      .out = u->out,
                                      .count = total,
                                      .type = u->type,
                                      .op = u->op,
                                      .blocks = blocks};
    const enum tutti_result result =
        tti_api_part(u->comm, &operation, u->async, u->stream, u->request);
    free(blocks);
    return result;
}

bool tti_comm_uneven_plan(const tutti_comm *comm, enum tutti_collective collective)
{
    char name[32];
    return collective == TUTTI_REDUCE_SCATTER ||
           (collective == TUTTI_ALL_GATHER &&
            (comm->peers.nhosts > 1 || tti_select_forced(comm, collective, name, sizeof name)));
}

static enum tutti_result uneven_messages(const struct tti_uneven *u)
{
    return messages_here(u) ? messages_run(u) : uneven_together(u, messages_collect);
}

static enum tutti_result uneven_run(const struct tti_uneven *u)
{
    const struct tti_uneven_side *side = u->collective == TUTTI_REDUCE_SCATTER ? &u->from : &u->to;
    enum tutti_result result;
    size_t total = 0;
    if (tti_uneven_rooted(u, &result))
        return result;
    TTI_TRY(tti_uneven_check(u, &total));
    if (tti_has_uneven(u->collective) &&
        (total == 0 || tti_comm_uneven_plan(u->comm, u->collective)))
        return uneven_plan(u, side, total);
    return uneven_messages(u);
}

/* ---- the operations ---- */

static bool uneven_at_root(const struct tti_uneven *u)
{
    return u->comm->rank == u->root;
}

static enum tutti_result all_gather_v(struct tti_uneven *u, const size_t *counts,
                                      const size_t *displs)
{
    u->collective = TUTTI_ALL_GATHER;
    TTI_TRY(tti_uneven_begin(u));
    TTI_TRY(tti_uneven_counts(u, counts, "counts"));
    u->from = (struct tti_uneven_side){.count = counts[u->comm->rank]};
    u->to = (struct tti_uneven_side){.counts = counts, .displs = displs};
    return uneven_run(u);
}

static enum tutti_result reduce_scatter_v(struct tti_uneven *u, const size_t *counts,
                                          const size_t *displs)
{
    u->collective = TUTTI_REDUCE_SCATTER;
    TTI_TRY(tti_uneven_begin(u));
    TTI_TRY(tti_uneven_counts(u, counts, "counts"));
    u->from = (struct tti_uneven_side){.counts = counts, .displs = displs};
    u->to = (struct tti_uneven_side){.count = counts[u->comm->rank]};
    return uneven_run(u);
}

static enum tutti_result all_to_all_v(struct tti_uneven *u, const size_t *in_counts,
                                      const size_t *in_displs, const size_t *out_counts,
                                      const size_t *out_displs)
{
    u->collective = TUTTI_ALL_TO_ALL;
    TTI_TRY(tti_uneven_begin(u));
    TTI_TRY(tti_uneven_counts(u, in_counts, "in_counts"));
    TTI_TRY(tti_uneven_counts(u, out_counts, "out_counts"));
    u->from = (struct tti_uneven_side){.counts = in_counts, .displs = in_displs};
    u->to = (struct tti_uneven_side){.counts = out_counts, .displs = out_displs};
    return uneven_run(u);
}

static enum tutti_result gather_v(struct tti_uneven *u, size_t count, const size_t *counts,
                                  const size_t *displs)
{
    u->collective = TUTTI_GATHER;
    TTI_TRY(tti_uneven_begin(u));
    if (uneven_at_root(u))
        TTI_TRY(tti_uneven_counts(u, counts, "counts"));
    u->from = (struct tti_uneven_side){.count = count};
    u->to =
        (struct tti_uneven_side){.counts = counts, .displs = displs, .unused = !uneven_at_root(u)};
    return uneven_run(u);
}

static enum tutti_result scatter_v(struct tti_uneven *u, const size_t *counts, const size_t *displs,
                                   size_t count)
{
    u->collective = TUTTI_SCATTER;
    TTI_TRY(tti_uneven_begin(u));
    if (uneven_at_root(u))
        TTI_TRY(tti_uneven_counts(u, counts, "counts"));
    u->from =
        (struct tti_uneven_side){.counts = counts, .displs = displs, .unused = !uneven_at_root(u)};
    u->to = (struct tti_uneven_side){.count = count};
    return uneven_run(u);
}

static struct tti_uneven uneven_async(const void *in, void *out, enum tutti_type type,
                                      tutti_comm *comm, tutti_stream stream,
                                      tutti_request **request)
{
    return (struct tti_uneven){.comm = comm,
                               .in = in,
                               .out = out,
                               .type = type,
                               .async = true,
                               .stream = stream,
                               .request = request};
}

enum tutti_result tutti_all_gather_v(const void *in, void *out, const size_t *counts,
                                     const size_t *displs, enum tutti_type type, tutti_comm *comm)
{
    struct tti_uneven u = {.comm = comm, .in = in, .out = out, .type = type};
    return all_gather_v(&u, counts, displs);
}

enum tutti_result tutti_all_gather_v_async(const void *in, void *out, const size_t *counts,
                                           const size_t *displs, enum tutti_type type,
                                           tutti_comm *comm, tutti_stream stream,
                                           tutti_request **request)
{
    struct tti_uneven u = uneven_async(in, out, type, comm, stream, request);
    return all_gather_v(&u, counts, displs);
}

enum tutti_result tutti_reduce_scatter_v(const void *in, void *out, const size_t *counts,
                                         const size_t *displs, enum tutti_type type,
                                         enum tutti_op op, tutti_comm *comm)
{
    struct tti_uneven u = {.comm = comm, .in = in, .out = out, .type = type, .op = op};
    return reduce_scatter_v(&u, counts, displs);
}

enum tutti_result tutti_reduce_scatter_v_async(const void *in, void *out, const size_t *counts,
                                               const size_t *displs, enum tutti_type type,
                                               enum tutti_op op, tutti_comm *comm,
                                               tutti_stream stream, tutti_request **request)
{
    struct tti_uneven u = uneven_async(in, out, type, comm, stream, request);
    u.op = op;
    return reduce_scatter_v(&u, counts, displs);
}

enum tutti_result tutti_all_to_all_v(const void *in, const size_t *in_counts,
                                     const size_t *in_displs, void *out, const size_t *out_counts,
                                     const size_t *out_displs, enum tutti_type type,
                                     tutti_comm *comm)
{
    struct tti_uneven u = {.comm = comm, .in = in, .out = out, .type = type};
    return all_to_all_v(&u, in_counts, in_displs, out_counts, out_displs);
}

enum tutti_result tutti_all_to_all_v_async(const void *in, const size_t *in_counts,
                                           const size_t *in_displs, void *out,
                                           const size_t *out_counts, const size_t *out_displs,
                                           enum tutti_type type, tutti_comm *comm,
                                           tutti_stream stream, tutti_request **request)
{
    struct tti_uneven u = uneven_async(in, out, type, comm, stream, request);
    return all_to_all_v(&u, in_counts, in_displs, out_counts, out_displs);
}

enum tutti_result tutti_gather_v(const void *in, size_t count, void *out, const size_t *counts,
                                 const size_t *displs, enum tutti_type type, int root,
                                 tutti_comm *comm)
{
    struct tti_uneven u = {.comm = comm, .in = in, .out = out, .type = type, .root = root};
    return gather_v(&u, count, counts, displs);
}

enum tutti_result tutti_gather_v_async(const void *in, size_t count, void *out,
                                       const size_t *counts, const size_t *displs,
                                       enum tutti_type type, int root, tutti_comm *comm,
                                       tutti_stream stream, tutti_request **request)
{
    struct tti_uneven u = uneven_async(in, out, type, comm, stream, request);
    u.root = root;
    return gather_v(&u, count, counts, displs);
}

enum tutti_result tutti_scatter_v(const void *in, const size_t *counts, const size_t *displs,
                                  void *out, size_t count, enum tutti_type type, int root,
                                  tutti_comm *comm)
{
    struct tti_uneven u = {.comm = comm, .in = in, .out = out, .type = type, .root = root};
    return scatter_v(&u, counts, displs, count);
}

enum tutti_result tutti_scatter_v_async(const void *in, const size_t *counts, const size_t *displs,
                                        void *out, size_t count, enum tutti_type type, int root,
                                        tutti_comm *comm, tutti_stream stream,
                                        tutti_request **request)
{
    struct tti_uneven u = uneven_async(in, out, type, comm, stream, request);
    u.root = root;
    return scatter_v(&u, counts, displs, count);
}
