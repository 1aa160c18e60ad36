/* A rank's part in a call: its memory, the call, and what must come of it. */
#include "tests/random/player.h"

#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* ---- what lies where ------------------------------------------------------------------------ */

static void block_add(struct blocks *b, int from, int to, size_t count)
{
    const int k = b->count++;
    b->from[k] = from;
    b->to[k] = to;
    b->counts[k] = count;
    b->at[k] = b->span;
    b->span += count;
}

static void blocks_make(const struct part *part, int n, int me, struct blocks *in,
                        struct blocks *out)
{
    const enum what what = part->what;
    const bool root = me == part->root, pairs = what == ALL_TO_ALL || what == MESSAGES;
    const bool all_in =
        pairs || what == REDUCE_SCATTER || what == SCATTER_V || (what == SCATTER && root);
    const bool all_out =
        pairs || what == ALL_GATHER || what == GATHER_V || (what == GATHER && root);
    for (int k = 0; k < n; k++) {
        if (all_in)
            block_add(in, me, k, part->counts[me][k]);
        if (all_out)
            block_add(out, k, pairs ? me : 0, part->counts[k][me]);
    }
    if (what == ALL_REDUCE || what == REDUCE || what == ALL_GATHER || what == GATHER_V ||
        what == GATHER || ((what == BROADCAST || what == BCAST) && root))
        block_add(in, me, 0, part->counts[me][0]);
    if (what == ALL_REDUCE || (what == REDUCE && root))
        block_add(out, -1, 0, part->counts[0][0]);
    if (what == REDUCE_SCATTER || what == SCATTER_V)
        block_add(out, -1, me, part->counts[0][me]);
    if (what == BROADCAST || what == BCAST)
        block_add(out, part->root, 0, part->counts[0][0]);
    if (what == SCATTER)
        block_add(out, part->root, me, part->counts[part->root][me]);
}

static void blocks_fill(const struct part *part, const struct band *band, const struct blocks *b,
                        char *at)
{
    const size_t size = type_bytes(part->type);
    for (int k = 0; k < b->count; k++)
        for (size_t e = 0; e < b->counts[k]; e++)
            value_put(at + (b->at[k] + e) * size, part->type,
                      b->from[k] < 0 ? value_reduced(part, band, b->to[k], e)
                                     : value_of(part, b->from[k], b->to[k], e));
}

/* The longer one is the whole, and the other lies in it. */
static void place_both(struct player *p, struct playing *x, int own)
{
    const size_t size = type_bytes(x->part.type);
    const bool into = x->in.count > x->out.count;
    x->source = x->target = place_take(p, (into ? x->in.span : x->out.span) * size);
    x->source_at = x->target_at = x->source->begin;
    if (into)
        x->target_at += x->in.at[own] * size;
    if (x->out.count > x->in.count && x->in.count > 0)
        x->source_at += x->out.at[own] * size;
}

struct playing *call_prepare(struct player *p, const struct part *part, cudaStream_t stream)
{
    const struct band *b = &p->bands[part->band];
    const size_t size = type_bytes(part->type);
    struct playing *x = NULL;
    for (int k = 0; k < PARTS_MOST && !x; k++)
        x = p->playing[k].used ? NULL : &p->playing[k];
    CHECK(x);
    *x = (struct playing){.used = true, .part = *part, .stream = stream};
    blocks_make(part, b->size, b->own, &x->in, &x->out);
    const bool both = x->in.count > 0 && x->out.count > 0;
    if (part->what == BCAST || (part->in_place && both)) {
        place_both(p, x, b->own);
    } else {
        x->source = place_take(p, x->in.span * size);
        x->target = place_take(p, x->out.span * size);
        x->source_at = x->source->begin;
        x->target_at = x->target->begin;
    }
    blocks_fill(part, b, &x->in, x->source->before + x->source_at);
    return x;
}

/* ---- the call ------------------------------------------------------------------------------- */

/* In an order of this rank's own. */
static void messages_start(struct player *p, const struct playing *x, const struct band *b,
                           const char *in, char *out)
{
    const size_t size = type_bytes(x->part.type);
    const int turned = draw_int(&p->own, b->size);
    const bool sends_last = draw_once_in(&p->own, 2);
    OK(ncclGroupStart());
    for (int half = 0; half < 2; half++)
        for (int i = 0; i < b->size; i++) {
            const int k = (i + turned) % b->size;
            const bool sends = (half == 1) == sends_last;
            const struct blocks *of = sends ? &x->in : &x->out;
            if (of->counts[k] == 0 && !x->part.empties)
                continue;
            if (sends)
                OK(ncclSend(in + of->at[k] * size, of->counts[k], x->part.type, k, b->comm,
                            x->stream));
            else
                OK(ncclRecv(out + of->at[k] * size, of->counts[k], x->part.type, k, b->comm,
                            x->stream));
        }
    OK(ncclGroupEnd());
}

/* As PyTorch writes a collective of uneven blocks. */
static void uneven_start(const struct playing *x, const struct band *b, ncclRedOp_t op,
                         const char *in, char *out)
{
    const struct part *part = &x->part;
    const size_t size = type_bytes(part->type);
    OK(ncclGroupStart());
    for (int root = 0; root < b->size; root++) {
        if (part->what == GATHER_V)
            OK(ncclBroadcast(in, out + x->out.at[root] * size, x->out.counts[root], part->type,
                             root, b->comm, x->stream));
        else
            OK(ncclReduce(in + x->in.at[root] * size, out, x->in.counts[root], part->type, op, root,
                          b->comm, x->stream));
    }
    OK(ncclGroupEnd());
}

static ncclResult_t even_start(const struct playing *x, const struct band *b, ncclRedOp_t op,
                               const char *in, char *out)
{
    const size_t n = x->part.counts[0][0];
    const ncclDataType_t type = x->part.type;
    const int root = x->part.root;
    switch (x->part.what) {
    case ALL_REDUCE:
        return ncclAllReduce(in, out, n, type, op, b->comm, x->stream);
    case REDUCE:
        return ncclReduce(in, out, n, type, op, root, b->comm, x->stream);
    case BROADCAST:
        return ncclBroadcast(in, out, n, type, root, b->comm, x->stream);
    case BCAST:
        return ncclBcast(out, n, type, root, b->comm, x->stream);
    case ALL_GATHER:
        return ncclAllGather(in, out, n, type, b->comm, x->stream);
    case REDUCE_SCATTER:
        return ncclReduceScatter(in, out, n, type, op, b->comm, x->stream);
    case ALL_TO_ALL:
        return ncclAlltoAll(in, out, n, type, b->comm, x->stream);
    case GATHER:
        return ncclGather(in, out, n, type, root, b->comm, x->stream);
    default:
        return ncclScatter(in, out, n, type, root, b->comm, x->stream);
    }
}

void call_start(struct player *p, struct playing *x)
{
    const struct band *b = &p->bands[x->part.band];
    const char *in = x->source->device + x->source_at;
    char *out = x->target->device + x->target_at, text[200];
    const ncclRedOp_t op = x->part.op == ncclNumOps ? b->op : x->part.op;
    player_tell("%s", part_text(&x->part, text, sizeof text));
    place_copy(x->source->device, x->source->before, x->source->bytes, x->stream);
    if (x->target != x->source)
        place_copy(x->target->device, x->target->before, x->target->bytes, x->stream);
    /* One of which nothing is used may be anything. */
    if (x->in.count == 0 && x->part.what != BCAST && draw_once_in(&p->own, 2))
        in = draw_once_in(&p->own, 2) ? NULL : out;
    if (x->out.count == 0 && draw_once_in(&p->own, 2))
        out = NULL;
    if (x->part.what == MESSAGES)
        messages_start(p, x, b, in, out);
    else if (x->part.what == GATHER_V || x->part.what == SCATTER_V)
        uneven_start(x, b, op, in, out);
    else
        OK(even_start(x, b, op, in, out));
}

void band_settle(const struct band *b)
{
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
        OK(ncclCommGetAsyncError(b->comm, &state));
        if (state == ncclInProgress)
            usleep(100);
    }
    if (state != ncclSuccess)
        player_told(__FILE__, __LINE__, "ncclCommGetAsyncError", ncclGetLastError(b->comm));
}

void bands_settle(const struct player *p)
{
    for (int k = 0; k < BANDS_MOST; k++)
        if (p->bands[k].live && p->bands[k].own >= 0)
            band_settle(&p->bands[k]);
}

/* ---- what came of it ------------------------------------------------------------------------ */

void call_finish(struct player *p, struct playing *x)
{
    const struct band *b = &p->bands[x->part.band];
    char text[200];
    player_tell("finish %s", part_text(&x->part, text, sizeof text));
    place_copy(x->source->after, x->source->device, x->source->bytes, x->stream);
    if (x->target != x->source)
        place_copy(x->target->after, x->target->device, x->target->bytes, x->stream);
    CU(cu.finish(x->stream));
    band_settle(b);
    /* What was before is what must be, but where something comes. */
    blocks_fill(&x->part, b, &x->out, x->target->before + x->target_at);
    place_check(x->source, text);
    place_check(x->target, text);
    place_give(x->source);
    place_give(x->target);
    x->used = false;
}

void call_finish_all(struct player *p, int band)
{
    const int first = draw_int(&p->own, PARTS_MOST);
    for (int k = 0; k < PARTS_MOST; k++) {
        struct playing *x = &p->playing[(first + k) % PARTS_MOST];
        if (x->used && (band < 0 || x->part.band == band))
            call_finish(p, x);
    }
}
